//! Puts names in order before tract sees them: every node gets one of its own, because exporters leave names out or
//! repeat them and layers are told apart by name; and every output is written by a node.

use std::collections::BTreeSet;
use tract_onnx::pb::{GraphProto, ModelProto, NodeProto};

/// Renames nodes that have no name, or whose name something else has already.
pub(crate) fn make_unique(proto: &mut ModelProto) {
    let Some(graph) = &mut proto.graph else { return };
    let mut taken: BTreeSet<String> = BTreeSet::new();
    reserve(graph, &mut taken);
    rename(graph, &mut taken);
}

/// Has a node write every output: tract forgets the type of an input or constant that is also an output.
pub(crate) fn write_outputs(proto: &mut ModelProto) {
    let Some(graph) = &mut proto.graph else { return };
    let written: BTreeSet<&String> = graph.node.iter().flat_map(|node| &node.output).collect();
    let mut copies = Vec::new();
    for output in graph.output.iter_mut().filter(|output| !written.contains(&output.name)) {
        let copy = format!("{}#copy", output.name);
        copies.push(NodeProto {
            name: copy.clone(),
            op_type: "Identity".to_owned(),
            input: vec![std::mem::replace(&mut output.name, copy.clone())],
            output: vec![copy],
            ..NodeProto::default()
        });
    }
    graph.node.extend(copies);
}

/// Inputs and constants share tract's name space with nodes, and their names are visible outside: they keep them.
fn reserve(graph: &GraphProto, taken: &mut BTreeSet<String>) {
    taken.extend(graph.input.iter().map(|input| input.name.clone()));
    taken.extend(graph.initializer.iter().map(|tensor| tensor.name.clone()));
}

fn rename(graph: &mut GraphProto, taken: &mut BTreeSet<String>) {
    for node in &mut graph.node {
        let wanted = wanted(node);
        let mut name = wanted.clone();
        let mut count = 1;
        while !taken.insert(name.clone()) {
            count += 1;
            name = format!("{wanted}#{count}");
        }
        node.name = name;
        for body in node
            .attribute
            .iter_mut()
            .flat_map(|attribute| attribute.g.iter_mut().chain(&mut attribute.graphs))
        {
            reserve(body, taken);
            rename(body, taken);
        }
    }
}

fn wanted(node: &NodeProto) -> String {
    let output = node.output.iter().find(|name| !name.is_empty());
    match (node.name.as_str(), output) {
        ("", Some(output)) => output.clone(),
        ("", None) => node.op_type.clone(),
        (name, _) => name.to_owned(),
    }
}
