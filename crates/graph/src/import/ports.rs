//! What the caller of a model sees: its ports, its open dimensions, its size.

use super::error::{ImportError, Problem};
use super::validate;
use crate::model::{Dim, Port};
use crate::translate::dtype;
use std::collections::BTreeSet;
use tract_onnx::pb::{GraphProto, TensorProto};
use tract_onnx::prelude::{DatumType, Symbol, TDim};

/// A port from its name, type and dimensions; `batch` is the symbol of the rows.
pub(super) fn port(
    name: &str,
    datum: DatumType,
    dims: &[TDim],
    batch: Option<&Symbol>,
) -> Result<Port, ImportError> {
    let shape = dims.iter().map(|dim| match (dim, dim.as_i64()) {
        (_, Some(length)) => Dim::Fixed(usize::try_from(length).unwrap_or(0)),
        (TDim::Sym(symbol), None) if Some(symbol) == batch => Dim::Batch,
        (other, None) => Dim::Free(other.to_string()),
    });
    port_of(name, datum, shape.collect())
}

/// A port whose dimensions are known already.
pub(super) fn port_of(name: &str, datum: DatumType, shape: Vec<Dim>) -> Result<Port, ImportError> {
    let unnamed = || {
        let (name, remedy) = (format!("{datum:?} of {name}"), "export without it");
        ImportError::Invalid { problems: vec![Problem::Unsupported { what: "element type", name, remedy }] }
    };
    Ok(Port { name: name.to_owned(), dtype: dtype(datum).ok_or_else(unnamed)?, shape })
}

/// Numbers that training would change: floating-point constants of at least one dimension, without the running
/// statistics of batch normalisations.
pub(super) fn parameters(graph: &GraphProto) -> u64 {
    let statistics: BTreeSet<&str> = graph
        .node
        .iter()
        .filter(|node| node.op_type == "BatchNormalization")
        .flat_map(|node| node.input.iter().skip(3).map(String::as_str))
        .collect();
    let learnable =
        |tensor: &&TensorProto| matches!(tensor.data_type, 1 | 10 | 11) && !tensor.dims.is_empty();
    let named = graph.initializer.iter().filter(|tensor| !statistics.contains(tensor.name.as_str()));
    let constants = graph.node.iter().filter(|node| node.op_type == "Constant");
    let constants =
        constants.filter(|node| !node.output.iter().any(|output| statistics.contains(output.as_str())));
    let inline =
        constants.flat_map(|node| node.attribute.iter().filter_map(|attribute| attribute.t.as_ref()));
    named
        .chain(inline)
        .filter(learnable)
        .filter_map(|tensor| Some(validate::data_bytes(tensor)? / validate::width(tensor)?))
        .sum()
}
