//! Writes an answer the way it was asked for: JSON, or JSON followed by the bytes of the tensors.

use super::call::{Form, Reply, Wanted};
use super::classify::classify;
use super::error::ReplyError;
use super::numbers;
use graph::{Dim, HostTensor};
use std::collections::BTreeMap;
use std::io::Write as _;

/// A model's class names, by output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(pub BTreeMap<String, Vec<String>>);

/// A written answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The body.
    pub body: Vec<u8>,
    /// Bytes of JSON at its beginning, when binary tensors follow; `None` when all of it is JSON.
    pub json_len: Option<usize>,
}

/// One output's place in the reply.
struct Written {
    datatype: &'static str,
    shape: Vec<usize>,
    content: Content,
}

enum Content {
    /// A tensor as it is.
    Tensor,
    /// Class texts.
    Texts(Vec<String>),
}

/// Writes `outputs`, one tensor an output of the model, as `reply` wants them.
///
/// # Errors
/// When a value cannot be written in JSON, or the tensors are not the model's outputs.
pub fn encode(reply: &Reply, outputs: &[HostTensor], labels: &Labels) -> Result<Encoded, ReplyError> {
    let model = &reply.model;
    if outputs.len() != model.outputs.len() {
        let (expected, found) = (model.outputs.len(), outputs.len());
        return Err(ReplyError::Outputs { model: model.name.clone(), expected, found });
    }
    let mut json = Vec::with_capacity(256);
    let mut binary = Vec::new();
    json.extend_from_slice(b"{\"model_name\":");
    string(&model.name, &mut json);
    write!(json, ",\"model_version\":\"{}\"", model.version).expect("a Vec takes every write");
    if let Some(id) = &reply.id {
        json.extend_from_slice(b",\"id\":");
        string(id, &mut json);
    }
    json.extend_from_slice(b",\"outputs\":[");
    for (at, wanted) in reply.outputs.iter().enumerate() {
        if at > 0 {
            json.push(b',');
        }
        output(reply, *wanted, &outputs[wanted.port], labels, &mut json, &mut binary)?;
    }
    json.extend_from_slice(b"]}");
    let any_binary = reply.outputs.iter().any(|wanted| wanted.form == Form::Binary);
    let json_len = any_binary.then_some(json.len());
    json.append(&mut binary);
    Ok(Encoded { body: json, json_len })
}

fn output(
    reply: &Reply,
    wanted: Wanted,
    tensor: &HostTensor,
    labels: &Labels,
    json: &mut Vec<u8>,
    binary: &mut Vec<u8>,
) -> Result<(), ReplyError> {
    let name = &reply.model.outputs[wanted.port].name;
    let written = describe(reply, wanted, tensor, labels);
    json.extend_from_slice(b"{\"name\":");
    string(name, json);
    let shape: Vec<String> = written.shape.iter().map(usize::to_string).collect();
    write!(json, ",\"datatype\":\"{}\",\"shape\":[{}]", written.datatype, shape.join(","))
        .expect("a Vec takes every write");
    match wanted.form {
        Form::Binary => {
            let begin = binary.len();
            match &written.content {
                Content::Tensor => binary.extend_from_slice(tensor.data()),
                Content::Texts(texts) => texts.iter().for_each(|text| length_prefixed(text, binary)),
            }
            write!(json, ",\"parameters\":{{\"binary_data_size\":{}}}}}", binary.len() - begin)
                .expect("a Vec takes every write");
        }
        Form::Json => {
            json.extend_from_slice(b",\"data\":");
            match &written.content {
                Content::Tensor => numbers::write(tensor.data(), tensor.dtype(), json).map_err(|fault| {
                    ReplyError::NonFinite { output: name.clone(), at: fault.at, value: fault.value }
                })?,
                Content::Texts(texts) => {
                    serde_json::to_writer(&mut *json, texts).expect("strings go into a Vec");
                }
            }
            json.push(b'}');
        }
    }
    Ok(())
}

/// Type, shape and content of an output: the tensor itself, or its best classes.
fn describe(reply: &Reply, wanted: Wanted, tensor: &HostTensor, labels: &Labels) -> Written {
    if wanted.classes == 0 {
        let (datatype, shape) = (tensor.dtype().kserve(), tensor.shape().to_vec());
        return Written { datatype, shape, content: Content::Tensor };
    }
    let port = &reply.model.outputs[wanted.port];
    let batched = matches!(port.shape.first(), Some(Dim::Batch));
    let rows = if batched { tensor.shape().first().copied().unwrap_or(1) } else { 1 };
    let names = labels.0.get(&port.name).map_or(&[][..], Vec::as_slice);
    let count = usize::try_from(wanted.classes).unwrap_or(usize::MAX);
    let best = classify(tensor, rows, count, names);
    let width = best.first().map_or(0, Vec::len);
    let shape = if batched { vec![rows, width] } else { vec![width] };
    Written { datatype: "BYTES", shape, content: Content::Texts(best.into_iter().flatten().collect()) }
}

/// A BYTES element: its length as four little-endian bytes, then itself.
fn length_prefixed(text: &str, out: &mut Vec<u8>) {
    let length = u32::try_from(text.len()).expect("a class text is a number, an index and a bounded label");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn string(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("a string goes into a Vec");
}
