//! Tests of import, rewriting, fusion and segmentation on small models written here, and on the real topologies in
//! `tests/data`. Results are compared through tract, which runs the file by its own path and our graph by ours.

mod batch;
mod cost;
mod external;
mod fusion;
mod hostile;
mod light;
mod problems;
mod rewrite;
mod segment;

use crate::{Graph, ImportError, ImportLimits, Model, Sizes, wire_graph};
use prost::Message;
use tract_onnx::pb::attribute_proto::AttributeType;
use tract_onnx::pb::tensor_shape_proto::{Dimension, dimension};
use tract_onnx::pb::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto,
    TypeProto, ValueInfoProto, type_proto,
};
use tract_onnx::prelude::{
    Framework, InferenceFact, InferenceModelExt, IntoRunnable, IntoTValue, IntoTensor, TValue, TVec, Tensor,
    TypedModel,
};
use vocab::Rng;

/// A model being written.
pub(super) struct Onnx {
    pub(super) graph: GraphProto,
    rng: Rng,
}

impl Onnx {
    pub(super) fn new() -> Self {
        Self { graph: GraphProto { name: "test".to_owned(), ..GraphProto::default() }, rng: Rng::new(7) }
    }

    /// An input of floats; a dimension is a number, a name, or `?`.
    pub(super) fn input(&mut self, name: &str, dims: &[&str]) -> &mut Self {
        self.graph.input.push(port(name, 1, Some(dims)));
        self
    }

    pub(super) fn output(&mut self, name: &str) -> &mut Self {
        self.graph.output.push(port(name, 1, None));
        self
    }

    /// A weight of seeded numbers around `middle`.
    pub(super) fn weight(&mut self, name: &str, dims: &[i64], middle: f32) -> &mut Self {
        let count = usize::try_from(dims.iter().product::<i64>()).unwrap();
        let numbers: Vec<f32> = (0..count).map(|_| middle + number(&mut self.rng) * 0.5).collect();
        self.floats(name, dims, &numbers)
    }

    pub(super) fn floats(&mut self, name: &str, dims: &[i64], numbers: &[f32]) -> &mut Self {
        self.graph.initializer.push(floats(name, dims, numbers));
        self
    }

    pub(super) fn integers(&mut self, name: &str, numbers: &[i64]) -> &mut Self {
        let dims = vec![i64::try_from(numbers.len()).unwrap()];
        let raw_data = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let tensor =
            TensorProto { name: name.to_owned(), dims, data_type: 7, raw_data, ..TensorProto::default() };
        self.graph.initializer.push(tensor);
        self
    }

    /// A node named as its output.
    pub(super) fn node(&mut self, operator: &str, inputs: &[&str], output: &str) -> &mut Self {
        self.graph.node.push(NodeProto {
            name: output.to_owned(),
            op_type: operator.to_owned(),
            input: inputs.iter().map(|input| (*input).to_owned()).collect(),
            output: vec![output.to_owned()],
            ..NodeProto::default()
        });
        self
    }

    /// An attribute of the node written last.
    pub(super) fn with(&mut self, name: &str, numbers: &[i64]) -> &mut Self {
        let (kind, i) = match numbers {
            [one] => (AttributeType::Int, *one),
            _ => (AttributeType::Ints, 0),
        };
        let ints = numbers.to_vec();
        let attribute =
            AttributeProto { name: name.to_owned(), r#type: kind as i32, i, ints, ..Default::default() };
        self.graph.node.last_mut().unwrap().attribute.push(attribute);
        self
    }

    /// An attribute that is a list even of one number.
    pub(super) fn with_list(&mut self, name: &str, numbers: &[i64]) -> &mut Self {
        self.with(name, numbers);
        let attribute = self.graph.node.last_mut().unwrap().attribute.last_mut().unwrap();
        (attribute.r#type, attribute.i) = (AttributeType::Ints as i32, 0);
        self
    }

    pub(super) fn proto(&self) -> ModelProto {
        ModelProto {
            ir_version: 8,
            opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 17 }],
            graph: Some(self.graph.clone()),
            ..ModelProto::default()
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.proto().encode_to_vec()
    }

    pub(super) fn import(&self) -> Result<Model, ImportError> {
        Model::from_bytes("test", self.bytes(), &ImportLimits::default())
    }

    pub(super) fn model(&self) -> Model {
        self.import().unwrap()
    }

    /// The graph at some rows.
    pub(super) fn at(&self, rows: usize) -> Graph {
        self.model().at(&Sizes::batch(rows)).unwrap()
    }
}

pub(super) fn port(name: &str, elem_type: i32, dims: Option<&[&str]>) -> ValueInfoProto {
    let dim = |text: &&str| {
        let value = match (text.parse(), *text) {
            (Ok(number), _) => Some(dimension::Value::DimValue(number)),
            (_, "?") => None,
            _ => Some(dimension::Value::DimParam((*text).to_owned())),
        };
        Dimension { value, ..Dimension::default() }
    };
    let shape = dims.map(|dims| TensorShapeProto { dim: dims.iter().map(dim).collect() });
    let value = type_proto::Value::TensorType(type_proto::Tensor { elem_type, shape });
    let about = TypeProto { value: Some(value), ..TypeProto::default() };
    ValueInfoProto { name: name.to_owned(), r#type: Some(about), ..ValueInfoProto::default() }
}

pub(super) fn floats(name: &str, dims: &[i64], numbers: &[f32]) -> TensorProto {
    let raw_data = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    TensorProto {
        name: name.to_owned(),
        dims: dims.to_vec(),
        data_type: 1,
        raw_data,
        ..TensorProto::default()
    }
}

/// A number between -1 and 1.
pub(super) fn number(rng: &mut Rng) -> f32 {
    (rng.below(2_000_001) as f32 - 1_000_000.0) / 1_000_000.0
}

/// Seeded operands for a graph: small whole numbers for integers, numbers between -1 and 1 otherwise.
pub(super) fn operands(graph: &Graph) -> Vec<Tensor> {
    let mut rng = Rng::new(11);
    let make = |id: &crate::ValueId| {
        let value = graph.value(*id);
        let count = value.shape.iter().product::<usize>();
        let numbers: Vec<f32> = match value.dtype {
            crate::DType::F32 => (0..count).map(|_| number(&mut rng)).collect(),
            _ => (0..count).map(|_| rng.below(5) as f32).collect(),
        };
        let tensor = Tensor::from_shape(&value.shape, &numbers).unwrap();
        tensor.cast_to_dt(crate::translate::datum(value.dtype)).unwrap().into_owned()
    };
    graph.inputs.iter().map(make).collect()
}

/// What a typed graph gives, optimised by tract as the CPU backend has it.
pub(super) fn run(model: TypedModel, operands: &[Tensor]) -> Vec<Tensor> {
    run_plainly(model.into_optimized().unwrap(), operands)
}

/// What a typed graph gives, operator by operator.
pub(super) fn run_plainly(model: TypedModel, operands: &[Tensor]) -> Vec<Tensor> {
    let plan = model.into_runnable().unwrap();
    let operands: TVec<TValue> = operands.iter().map(|tensor| tensor.clone().into_tvalue()).collect();
    plan.run(operands).unwrap().into_iter().map(IntoTensor::into_tensor).collect()
}

/// What tract makes of the file by itself, at the sizes of `operands`, before any optimisation.
pub(super) fn oracle(bytes: &[u8], operands: &[Tensor]) -> Vec<Tensor> {
    let onnx = tract_onnx::onnx().with_ignore_output_shapes(true).with_ignore_value_info(true);
    let mut model = onnx.model_for_read(&mut &*bytes).unwrap();
    for (at, operand) in operands.iter().enumerate() {
        let fact = InferenceFact::dt_shape(operand.datum_type(), operand.shape());
        model.set_input_fact(at, fact).unwrap();
    }
    run_plainly(model.into_typed().unwrap(), operands)
}

/// The largest difference, relative to the largest number expected.
pub(super) fn difference(expected: &Tensor, found: &Tensor) -> f32 {
    assert_eq!((expected.shape(), expected.datum_type()), (found.shape(), found.datum_type()));
    let (expected, found) = (expected.cast_to::<f32>().unwrap(), found.cast_to::<f32>().unwrap());
    let (expected, found) = (expected.try_as_plain_ram().unwrap(), found.try_as_plain_ram().unwrap());
    let (expected, found) = (expected.as_slice::<f32>().unwrap(), found.as_slice::<f32>().unwrap());
    let largest = expected.iter().fold(1e-6f32, |most, number| most.max(number.abs()));
    expected.iter().zip(found).fold(0.0, |most, (a, b)| {
        assert!(a.is_finite() && b.is_finite(), "{a} and {b}");
        most.max((a - b).abs() / largest)
    })
}

/// Our graph, folded and not, gives what tract gives for the file.
pub(super) fn agrees(bytes: &[u8], sizes: &Sizes, tolerance: f32) -> Graph {
    let model = Model::from_bytes("test", bytes.to_vec(), &ImportLimits::default()).unwrap();
    let graph = model.at(sizes).unwrap();
    let operands = operands(&graph);
    let expected = oracle(bytes, &operands);
    for graph in [&model.unfolded(sizes).unwrap(), &graph] {
        let found = run(wire_graph(graph).unwrap(), &operands);
        assert_eq!(expected.len(), found.len());
        for (expected, found) in expected.iter().zip(&found) {
            let difference = difference(expected, found);
            assert!(difference <= tolerance, "{difference} exceeds {tolerance} in\n{}", drawn(graph));
        }
    }
    graph
}

/// The layers, one a line: kind, name, operands.
pub(super) fn drawn(graph: &Graph) -> String {
    let mut text = String::new();
    for layer in &graph.layers {
        let name = |id: &crate::ValueId| graph.value(*id).name.clone();
        let inputs: Vec<String> = layer.inputs.iter().map(name).collect();
        let outputs: Vec<String> = layer.outputs.iter().map(name).collect();
        text += &format!("{} ({}) -> {}\n", layer.op.kind(), inputs.join(", "), outputs.join(", "));
    }
    text
}
