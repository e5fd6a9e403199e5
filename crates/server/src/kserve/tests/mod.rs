//! Requests as text in, what the runtime would get or what the client is told as text out.

#![expect(clippy::too_many_lines, reason = "a test is its input and its expected text, however long")]

mod properties;
mod replies;
mod requests;

use super::{Call, CallError, Limits, Terms, TimeoutRule, parse, parse_raw};
use crate::live::{ModelInfo, ModelState};
use graph::{DType, Dim, Port};
use std::fmt::Write as _;
use std::sync::Arc;
use vocab::{Class, Span};

const LIMITS: Limits = Limits { tensor_bytes: 1 << 20 };

fn port(name: &str, dtype: DType, shape: &[Dim]) -> Port {
    Port { name: name.into(), dtype, shape: shape.to_vec() }
}

fn model(inputs: Vec<Port>, outputs: Vec<Port>, batch_max: u32) -> Arc<ModelInfo> {
    let state = ModelState::Ready;
    Arc::new(ModelInfo { name: "m".into(), version: 1, state, inputs, outputs, batch_max })
}

/// Two inputs with a batch of at most 16, two outputs.
fn pair() -> Arc<ModelInfo> {
    let row = [Dim::Batch, Dim::Fixed(2)];
    let outputs = vec![port("S", DType::F32, &row), port("C", DType::I32, &[Dim::Batch])];
    model(vec![port("A", DType::F32, &row), port("B", DType::I64, &[Dim::Batch])], outputs, 16)
}

/// The same with a third output in half precision.
fn with_half() -> Arc<ModelInfo> {
    let mut model = Arc::unwrap_or_clone(pair());
    model.outputs.push(port("H", DType::F16, &[Dim::Batch, Dim::Fixed(2)]));
    Arc::new(model)
}

/// One input of one type and one dimension of any size.
fn single(dtype: DType) -> Arc<ModelInfo> {
    let free = [Dim::Free("n".into())];
    model(vec![port("X", dtype, &free)], vec![port("Y", dtype, &free)], 0)
}

fn terms() -> Terms {
    let timeouts = vec![TimeoutRule::Honoured, TimeoutRule::AtMost(Span::from_us(500)), TimeoutRule::Ignored];
    Terms { levels: 3, default_class: Class::new(2).unwrap(), timeouts }
}

fn read(body: &[u8], json_len: Option<usize>, model: &Arc<ModelInfo>) -> Result<Call, CallError> {
    let asked = if json_len == Some(0) { parse_raw(body, model)? } else { parse(body, json_len)? };
    asked.check(model, &terms(), LIMITS)
}

/// The call or the error, each line as it stands.
fn show(result: &Result<Call, CallError>) -> String {
    let call = match result {
        Ok(call) => call,
        Err(error) => return format!("400 {error}\n"),
    };
    let mut text = "200\n".to_owned();
    let submission = &call.submission;
    for (tensor, port) in submission.inputs.iter().zip(&submission.model.inputs) {
        let values =
            tensor.to_f32().map_or_else(|| format!("{:?}", tensor.data()), |values| format!("{values:?}"));
        writeln!(text, "{} {} {:?} {values}", port.name, tensor.dtype(), tensor.shape()).unwrap();
    }
    for wanted in &call.reply.outputs {
        let name = &submission.model.outputs[wanted.port].name;
        writeln!(text, "-> {name} {:?} classes {}", wanted.form, wanted.classes).unwrap();
    }
    let class = submission.class.map(Class::level);
    writeln!(
        text,
        "rows {} class {class:?} timeout {:?} id {:?}",
        submission.rows, submission.timeout, call.reply.id
    )
    .unwrap();
    text
}

const A: &str = r#"{"name":"A","shape":[1,2],"datatype":"FP32","data":[1,2]}"#;
const B: &str = r#"{"name":"B","shape":[1],"datatype":"INT64","data":[7]}"#;

fn with(more: &str) -> String {
    format!(r#"{{"inputs":[{A},{B}]{more}}}"#)
}
