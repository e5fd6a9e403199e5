//! Our own reading of the ONNX rules, before tract sees the model: what is wrong, all of it at once.

use super::ImportLimits;
use super::error::Problem;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tract_onnx::pb::tensor_proto::DataType;
use tract_onnx::pb::tensor_shape_proto::dimension::Value as DimensionValue;
use tract_onnx::pb::type_proto::Value as TypeValue;
use tract_onnx::pb::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};

/// Longest name, location or symbolic dimension.
const TEXT_MAX: usize = 4096;
/// Deepest bracket in a symbolic dimension: it is parsed by recursion.
const BRACKETS_MAX: usize = 16;

/// Operators of com.microsoft that the importer knows; other names of that domain mean something else in ONNX.
const CONTRIBUTED: [&str; 10] = [
    "BiasGelu",
    "FastGelu",
    "QuickGelu",
    "GatherBlockQuantized",
    "GroupQueryAttention",
    "MatMulNBits",
    "MultiHeadAttention",
    "SkipLayerNormalization",
    "RotaryEmbedding",
    "SimplifiedLayerNormalization",
];

/// Adds every problem of `proto` to `problems`.
pub(crate) fn validate(proto: &ModelProto, limits: &ImportLimits, problems: &mut Vec<Problem>) {
    let Some(graph) = &proto.graph else {
        problems.push(Problem::NoGraph);
        return;
    };
    let register = tract_onnx::onnx().op_register;
    let known = |node: &NodeProto| match node.domain.as_str() {
        "" | "ai.onnx" | "ai.onnx.ml" => register.0.contains_key(&node.op_type),
        "com.microsoft" => {
            CONTRIBUTED.contains(&node.op_type.as_str()) && register.0.contains_key(&node.op_type)
        }
        _ => false,
    };
    let mut check = Check { limits, known: &known, nodes: 0, unsupported: BTreeMap::new(), problems };
    check.graph(graph, &BTreeSet::new(), 0);
    check.ports(graph);
    let unsupported = std::mem::take(&mut check.unsupported);
    let operators = unsupported.into_iter().map(|(operator, nodes)| Problem::Operator { operator, nodes });
    problems.extend(operators);
}

/// Bytes of a tensor's elements as its header declares them; `None` when the header makes no sense.
pub(crate) fn data_bytes(tensor: &TensorProto) -> Option<u64> {
    let elements =
        tensor.dims.iter().try_fold(1u64, |count, dim| count.checked_mul(u64::try_from(*dim).ok()?))?;
    elements.checked_mul(element_bytes(tensor.data_type)?)
}

/// Bytes of one element of a tensor; `None` for types that are not supported.
pub(crate) fn width(tensor: &TensorProto) -> Option<u64> {
    element_bytes(tensor.data_type)
}

/// Calls `visit` for every tensor of the graph and its sub-graphs.
pub(crate) fn tensors_mut(graph: &mut GraphProto, visit: &mut dyn FnMut(&mut TensorProto)) {
    graph.initializer.iter_mut().for_each(&mut *visit);
    for attribute in graph.node.iter_mut().flat_map(|node| &mut node.attribute) {
        attribute.t.iter_mut().chain(&mut attribute.tensors).for_each(&mut *visit);
        for body in attribute.g.iter_mut().chain(&mut attribute.graphs) {
            tensors_mut(body, visit);
        }
    }
}

fn element_bytes(data_type: i32) -> Option<u64> {
    Some(match DataType::try_from(data_type).ok()? {
        DataType::Bool | DataType::Uint8 | DataType::Int8 => 1,
        DataType::Uint16 | DataType::Int16 | DataType::Float16 => 2,
        DataType::Uint32 | DataType::Int32 | DataType::Float => 4,
        DataType::Uint64 | DataType::Int64 | DataType::Double => 8,
        _ => return None,
    })
}

struct Check<'a> {
    limits: &'a ImportLimits,
    known: &'a dyn Fn(&NodeProto) -> bool,
    nodes: usize,
    unsupported: BTreeMap<String, Vec<String>>,
    problems: &'a mut Vec<Problem>,
}

impl Check<'_> {
    /// Checks a graph whose nodes may also read `outer`.
    fn graph(&mut self, graph: &GraphProto, outer: &BTreeSet<&str>, depth: usize) {
        self.nodes += graph.node.len();
        if self.nodes > self.limits.nodes {
            let problem = Problem::Nodes { limit: self.limits.nodes };
            if !self.problems.contains(&problem) {
                self.problems.push(problem);
            }
            return;
        }
        for tensor in &graph.initializer {
            self.tensor(tensor, &tensor.name);
        }
        for sparse in &graph.sparse_initializer {
            let name = sparse.values.as_ref().map(|values| values.name.clone()).unwrap_or_default();
            let remedy = "store it densely";
            self.problems.push(Problem::Unsupported { what: "sparse tensor", name, remedy });
        }
        let written = self.written(graph, outer);
        for node in &graph.node {
            self.node(node, &written, depth);
        }
        self.cycles(graph);
        for output in graph.output.iter().filter(|output| !written.contains(output.name.as_str())) {
            let name = format!("\"{}\"", output.name);
            self.problems.push(Problem::Port { side: "output", name, why: "nothing writes it".to_owned() });
        }
    }

    /// Everything a node of the graph may read.
    fn written<'g>(&mut self, graph: &'g GraphProto, outer: &BTreeSet<&'g str>) -> BTreeSet<&'g str> {
        let mut own: BTreeSet<&str> = graph.input.iter().map(|input| input.name.as_str()).collect();
        let mut constants = BTreeSet::new();
        for tensor in &graph.initializer {
            own.insert(&tensor.name);
            if !constants.insert(&tensor.name) {
                self.duplicate("(a constant)", &tensor.name);
            }
        }
        for node in &graph.node {
            for output in node.output.iter().filter(|output| !output.is_empty()) {
                if !own.insert(output) {
                    self.duplicate(&called(node), output);
                }
            }
        }
        own.union(outer).copied().collect()
    }

    fn duplicate(&mut self, node: &str, value: &str) {
        self.problems.push(Problem::Duplicate { node: node.to_owned(), value: value.to_owned() });
    }

    fn node(&mut self, node: &NodeProto, written: &BTreeSet<&str>, depth: usize) {
        if !(self.known)(node) {
            let operator = match node.domain.as_str() {
                "" | "ai.onnx" => node.op_type.clone(),
                domain => format!("{domain}.{}", node.op_type),
            };
            self.unsupported.entry(operator).or_default().push(called(node));
        }
        for input in node.input.iter().filter(|input| !input.is_empty() && !written.contains(input.as_str()))
        {
            self.problems.push(Problem::Missing { node: called(node), value: input.clone() });
        }
        if let Some(text) =
            node.input.iter().chain(&node.output).chain([&node.name]).find(|t| t.len() > TEXT_MAX)
        {
            let start = text.chars().take(32).collect();
            let remedy = "shorten it";
            self.problems.push(Problem::Unsupported { what: "the long name", name: start, remedy });
        }
        if node.output.iter().all(String::is_empty) {
            let remedy = "remove it";
            let name = called(node);
            self.problems.push(Problem::Unsupported { what: "a node without outputs,", name, remedy });
        }
        for attribute in &node.attribute {
            self.attribute(node, attribute, written, depth);
        }
    }

    fn attribute(
        &mut self,
        node: &NodeProto,
        attribute: &AttributeProto,
        written: &BTreeSet<&str>,
        depth: usize,
    ) {
        for tensor in attribute.t.iter().chain(&attribute.tensors) {
            self.tensor(tensor, &format!("{}.{}", called(node), attribute.name));
        }
        if attribute.sparse_tensor.is_some() || !attribute.sparse_tensors.is_empty() {
            let remedy = "store it densely";
            self.problems.push(Problem::Unsupported { what: "sparse tensor", name: called(node), remedy });
        }
        for body in attribute.g.iter().chain(&attribute.graphs) {
            if depth >= self.limits.depth {
                self.problems.push(Problem::Depth { node: called(node), limit: self.limits.depth });
            } else {
                self.graph(body, written, depth + 1);
            }
        }
    }

    /// A tensor whose header and data disagree would be read out of bounds, or fill memory.
    fn tensor(&mut self, tensor: &TensorProto, name: &str) {
        if let Some(why) = contradiction(tensor) {
            self.problems.push(Problem::Tensor { name: name.to_owned(), why });
        }
    }

    fn cycles(&mut self, graph: &GraphProto) {
        let mut writer: BTreeMap<&str, usize> = BTreeMap::new();
        for (at, node) in graph.node.iter().enumerate() {
            writer.extend(
                node.output.iter().filter(|output| !output.is_empty()).map(|output| (output.as_str(), at)),
            );
        }
        let mut waits = vec![0usize; graph.node.len()];
        let mut readers: Vec<Vec<usize>> = vec![Vec::new(); graph.node.len()];
        for (at, node) in graph.node.iter().enumerate() {
            for before in node.input.iter().filter_map(|input| writer.get(input.as_str())) {
                waits[at] += 1;
                readers[*before].push(at);
            }
        }
        let mut ready: VecDeque<usize> = (0..waits.len()).filter(|at| waits[*at] == 0).collect();
        while let Some(at) = ready.pop_front() {
            for reader in &readers[at] {
                waits[*reader] -= 1;
                if waits[*reader] == 0 {
                    ready.push_back(*reader);
                }
            }
        }
        let nodes: Vec<String> = graph
            .node
            .iter()
            .zip(&waits)
            .filter(|(_, waits)| **waits > 0)
            .map(|(node, _)| called(node))
            .collect();
        if !nodes.is_empty() {
            self.problems.push(Problem::Cycle { nodes });
        }
    }

    fn ports(&mut self, graph: &GraphProto) {
        if graph.output.is_empty() {
            let why = "the graph has none".to_owned();
            self.problems.push(Problem::Port { side: "output", name: "list".to_owned(), why });
        }
        self.side("input", &graph.input, true);
        self.side("output", &graph.output, false);
    }

    fn side(&mut self, side: &'static str, ports: &[ValueInfoProto], typed: bool) {
        let mut names = BTreeSet::new();
        for (at, port) in ports.iter().enumerate() {
            let name =
                if port.name.is_empty() { format!("number {at}") } else { format!("\"{}\"", port.name) };
            let why = if port.name.is_empty() {
                Some("has no name".to_owned())
            } else if !names.insert(port.name.as_str()) {
                Some("is listed twice".to_owned())
            } else {
                unusable(port, typed)
            };
            if let Some(why) = why {
                self.problems.push(Problem::Port { side, name, why });
            }
        }
    }
}

/// What to call a node in a message.
fn called(node: &NodeProto) -> String {
    let output = node.output.iter().find(|output| !output.is_empty());
    match (node.name.as_str(), output) {
        ("", Some(output)) => output.clone(),
        ("", None) => format!("({})", node.op_type),
        (name, _) => name.to_owned(),
    }
}

fn contradiction(tensor: &TensorProto) -> Option<String> {
    if let Some(dim) = tensor.dims.iter().find(|dim| **dim < 0) {
        return Some(format!("has the negative dimension {dim}"));
    }
    let Ok(data_type) = DataType::try_from(tensor.data_type) else {
        return Some(format!("has the unknown element type {}", tensor.data_type));
    };
    if data_type == DataType::String {
        return Some("holds strings, which no device computes with".to_owned());
    }
    let Some(width) = element_bytes(tensor.data_type) else {
        return Some(format!("has element type {data_type:?}, which is not supported; export in float32"));
    };
    let Some(needed) = data_bytes(tensor) else {
        return Some(format!("has more elements than memory can hold: {:?}", tensor.dims));
    };
    // External data that could not be read has been reported.
    if tensor.data_location == Some(1) {
        return None;
    }
    if !tensor.raw_data.is_empty() {
        let found = tensor.raw_data.len() as u64;
        return (found != needed)
            .then(|| format!("has {found} bytes, its dimensions {:?} need {needed}", tensor.dims));
    }
    let found = match data_type {
        DataType::Float => tensor.float_data.len(),
        DataType::Double => tensor.double_data.len(),
        DataType::Int64 => tensor.int64_data.len(),
        DataType::Uint32 | DataType::Uint64 if needed > 0 => {
            return Some("stores unsigned integers element by element; store them raw".to_owned());
        }
        DataType::Uint32 | DataType::Uint64 => 0,
        _ => tensor.int32_data.len(),
    };
    let expected = needed / width;
    (found as u64 != expected)
        .then(|| format!("has {found} elements, its dimensions {:?} need {expected}", tensor.dims))
}

/// Why a port cannot be used; inputs must say what they are.
fn unusable(port: &ValueInfoProto, typed: bool) -> Option<String> {
    if port.name.len() > TEXT_MAX {
        return Some("has a name that is too long".to_owned());
    }
    let Some(TypeValue::TensorType(tensor)) = port.r#type.as_ref().and_then(|about| about.value.as_ref())
    else {
        return typed.then(|| "is not a tensor".to_owned());
    };
    if typed && element_bytes(tensor.elem_type).is_none() {
        let kind =
            DataType::try_from(tensor.elem_type).map_or("unknown".to_owned(), |kind| format!("{kind:?}"));
        return Some(format!("has element type {kind}, which is not supported"));
    }
    if !typed {
        // The shapes that a file gives for its outputs are not used.
        return None;
    }
    for dim in tensor.shape.iter().flat_map(|shape| &shape.dim) {
        match &dim.value {
            Some(DimensionValue::DimValue(length)) if *length < -1 => {
                return Some(format!("has the negative dimension {length}"));
            }
            Some(DimensionValue::DimParam(text))
                if text.len() > TEXT_MAX || brackets(text) > BRACKETS_MAX =>
            {
                return Some("has a symbolic dimension that is too long or too deep".to_owned());
            }
            _ => {}
        }
    }
    None
}

fn brackets(text: &str) -> usize {
    text.chars().filter(|character| matches!(character, '(' | '[' | '-' | '+' | '!')).count()
}
