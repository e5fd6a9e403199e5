//! A call ready to paste for a model that is served.

use graph::{DType, Dim, Port};
use server::live::ModelInfo;
use std::net::SocketAddr;

/// Largest example input, in elements, written out as JSON; larger ones are sent as zero bytes.
const INLINE_MAX: usize = 64;

/// A curl command that asks `model` for its answer to zeros; `None` when its shapes are open or its types need care.
pub(crate) fn curl(model: &ModelInfo, address: SocketAddr) -> Option<String> {
    let shapes: Vec<Vec<usize>> = model.inputs.iter().map(shape).collect::<Option<_>>()?;
    let elements = elements(model)?;
    let url = format!("http://{address}/v2/models/{}/infer", model.name);
    if elements <= INLINE_MAX {
        let inputs: Vec<serde_json::Value> =
            model.inputs.iter().zip(&shapes).map(|(port, shape)| inline(port, shape)).collect();
        let body = serde_json::json!({ "inputs": inputs });
        return Some(format!("  curl -s {url} -d '{body}'"));
    }
    let inputs: Vec<serde_json::Value> = model
        .inputs
        .iter()
        .zip(&shapes)
        .map(|(port, shape)| {
            let bytes = shape.iter().product::<usize>() * port.dtype.size();
            serde_json::json!({"name": port.name, "shape": shape, "datatype": port.dtype.kserve(),
                "parameters": {"binary_data_size": bytes}})
        })
        .collect();
    let outputs: Vec<serde_json::Value> = model
        .outputs
        .iter()
        .map(|port| serde_json::json!({"name": port.name, "parameters": classification(port)}))
        .collect();
    let header = serde_json::json!({"inputs": inputs, "outputs": outputs}).to_string();
    let bytes: usize = model
        .inputs
        .iter()
        .zip(&shapes)
        .map(|(port, shape)| shape.iter().product::<usize>() * port.dtype.size())
        .sum();
    Some(format!(
        "  (printf %s '{header}'; head -c {bytes} /dev/zero) |\n    curl -s {url} -H 'Inference-Header-Content-Length: {}' --data-binary @-",
        header.len()
    ))
}

/// Elements of one row of every input; `None` when a shape is open.
pub(crate) fn elements(model: &ModelInfo) -> Option<usize> {
    model.inputs.iter().map(|port| Some(shape(port)?.iter().product::<usize>())).sum()
}

fn shape(port: &Port) -> Option<Vec<usize>> {
    let size = |dim: &Dim| match dim {
        Dim::Batch => Some(1),
        Dim::Fixed(size) => Some(*size),
        Dim::Free(_) => None,
    };
    port.shape.iter().map(size).collect()
}

fn inline(port: &Port, shape: &[usize]) -> serde_json::Value {
    let zeros = vec![0; shape.iter().product()];
    serde_json::json!({"name": port.name, "shape": shape, "datatype": port.dtype.kserve(), "data": zeros})
}

/// The best five of a row of scores; everything else as JSON numbers.
fn classification(port: &Port) -> serde_json::Value {
    match port.shape.as_slice() {
        [_, Dim::Fixed(classes)] if port.dtype == DType::F32 && *classes > 5 => {
            serde_json::json!({"classification": 5})
        }
        _ => serde_json::json!({"binary_data": false}),
    }
}
