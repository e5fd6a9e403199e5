//! Gives every node a name of its own: exporters leave names out or repeat them, and layers are told apart by name.

use std::collections::BTreeSet;
use tract_onnx::pb::{GraphProto, ModelProto, NodeProto};

/// Renames nodes that have no name, or whose name something else has already.
pub(crate) fn make_unique(proto: &mut ModelProto) {
    let Some(graph) = &mut proto.graph else { return };
    let mut taken: BTreeSet<String> = BTreeSet::new();
    reserve(graph, &mut taken);
    rename(graph, &mut taken);
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
