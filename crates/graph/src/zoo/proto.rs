//! Protobuf messages of ONNX: attributes, tensors, value descriptions and the model around a graph.
//!
//! Spelling only: what a network looks like is the builder's and the families' business.

use tract_onnx::pb::attribute_proto::AttributeType;
use tract_onnx::pb::tensor_proto::DataType;
use tract_onnx::pb::tensor_shape_proto::{Dimension, dimension};
use tract_onnx::pb::{
    AttributeProto, GraphProto, ModelProto, OperatorSetIdProto, TensorProto, TensorShapeProto, TypeProto,
    ValueInfoProto, type_proto,
};

/// The version of the ONNX operator set that every zoo model asks for.
const OPSET: i64 = 17;

/// The version of the ONNX file format: the one that came with the operator set.
const IR_VERSION: i64 = 8;

/// The name of the symbolic batch dimension.
const BATCH: &str = "N";

/// An attribute holding one integer.
pub(super) fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { i: value, ..attribute(name, AttributeType::Int) }
}

/// An attribute holding one float.
pub(super) fn float(name: &str, value: f32) -> AttributeProto {
    AttributeProto { f: value, ..attribute(name, AttributeType::Float) }
}

/// An attribute holding a list of integers.
pub(super) fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto { ints: values.to_vec(), ..attribute(name, AttributeType::Ints) }
}

/// A constant of `f32` values.
pub(super) fn floats_tensor(name: &str, dims: &[usize], values: &[f32]) -> TensorProto {
    tensor(name, dims, DataType::Float, values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

/// A constant of `i64` values: a vector of all of them.
pub(super) fn ints_tensor(name: &str, values: &[i64]) -> TensorProto {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    tensor(name, &[values.len()], DataType::Int64, bytes)
}

/// A constant over little-endian bytes.
pub(super) fn tensor(name: &str, dims: &[usize], dtype: DataType, raw_data: Vec<u8>) -> TensorProto {
    TensorProto {
        name: name.into(),
        dims: dims.iter().copied().map(dim).collect(),
        data_type: dtype.into(),
        raw_data,
        ..TensorProto::default()
    }
}

/// The description of a graph input or output: a symbolic batch followed by `dims`.
pub(super) fn value_info(name: &str, dtype: DataType, dims: &[usize]) -> ValueInfoProto {
    let batch = dimension::Value::DimParam(BATCH.into());
    let rest = dims.iter().map(|size| dimension::Value::DimValue(dim(*size)));
    let dim = std::iter::once(batch)
        .chain(rest)
        .map(|value| Dimension { value: Some(value), ..Dimension::default() })
        .collect();
    let tensor = type_proto::Tensor { elem_type: dtype.into(), shape: Some(TensorShapeProto { dim }) };
    let value = Some(type_proto::Value::TensorType(tensor));
    ValueInfoProto {
        name: name.into(),
        r#type: Some(TypeProto { value, ..TypeProto::default() }),
        ..ValueInfoProto::default()
    }
}

/// The file around `graph`.
pub(super) fn model(graph: GraphProto) -> ModelProto {
    ModelProto {
        ir_version: IR_VERSION,
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: OPSET }],
        producer_name: "raddle".into(),
        producer_version: env!("CARGO_PKG_VERSION").into(),
        graph: Some(graph),
        ..ModelProto::default()
    }
}

/// A size as ONNX writes it.
pub(super) fn dim(size: usize) -> i64 {
    i64::try_from(size).expect("the zoo's sizes are far below 2^63")
}

fn attribute(name: &str, kind: AttributeType) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: kind.into(), ..AttributeProto::default() }
}
