//! The light ONNX topologies: folded and cut, they compute the same.

use super::segment::{check_invariants, run_segments};
use super::{agrees, difference, operands, run};
use crate::{Batch, Cost, ImportLimits, Model, SegmentOptions, Segmentation, Sizes, wire_graph};
use expect_test::{Expect, expect};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use tract_onnx::pb::{ModelProto, TensorProto};
use vocab::Rng;

/// The topology `name` with seeded weights in place of its constants, scaled so that activations neither vanish nor
/// overflow.
fn seeded(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/data/light/light_{name}.onnx", env!("CARGO_MANIFEST_DIR"));
    let mut proto = ModelProto::decode(&*std::fs::read(path).unwrap()).unwrap();
    let graph = proto.graph.as_mut().unwrap();
    let shapes: BTreeMap<String, Vec<i64>> =
        graph.initializer.iter().map(|tensor| (tensor.name.clone(), numbers(tensor))).collect();
    let variances: BTreeSet<String> = graph
        .node
        .iter()
        .filter(|node| node.op_type == "BatchNormalization")
        .flat_map(|node| [node.input[1].clone(), node.input[4].clone()])
        .collect();
    let mut rng = Rng::new(23);
    let mut weights = Vec::new();
    graph.node.retain(|node| {
        if node.op_type != "ConstantOfShape" {
            return true;
        }
        let dims = &shapes[&node.input[0]];
        let count = dims.iter().product::<i64>();
        let fan_in = if dims.len() > 1 { count / dims[0].max(1) } else { 8 };
        let (middle, spread) = if variances.contains(&node.output[0]) {
            (1.0, 0.3)
        } else {
            (0.0, (3.0 / fan_in as f32).sqrt())
        };
        let data =
            (0..count).flat_map(|_| (middle + super::number(&mut rng) * spread).to_le_bytes()).collect();
        let name = node.output[0].clone();
        weights.push(TensorProto {
            name,
            dims: dims.clone(),
            data_type: 1,
            raw_data: data,
            ..Default::default()
        });
        false
    });
    graph.initializer.extend(weights);
    proto.encode_to_vec()
}

fn numbers(tensor: &TensorProto) -> Vec<i64> {
    if tensor.raw_data.is_empty() {
        return tensor.int64_data.clone();
    }
    tensor.raw_data.chunks_exact(8).map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap())).collect()
}

fn check(name: &str, expected: &Expect) {
    let bytes = seeded(name);
    let model = Model::from_bytes(name, bytes.clone(), &ImportLimits::default()).unwrap();
    let graph = agrees(&bytes, &Sizes::batch(1), 1e-5);
    let cuts = Segmentation::of(&graph, &SegmentOptions::default());
    let segments = cuts.apply(&graph).unwrap();
    check_invariants(&graph, &segments);
    let operands = operands(&graph);
    let whole = run(wire_graph(&graph).unwrap(), &operands);
    let parts = run_segments(&graph, &segments, &operands);
    assert!(difference(&whole[0], &parts[0]) < 1e-5);
    let batch = match model.batch() {
        Batch::Symbolic => {
            let three = model.at(&Sizes::batch(3)).unwrap();
            check_invariants(&three, &cuts.apply(&three).unwrap());
            "any number of rows"
        }
        Batch::Baked { .. } | Batch::None => "one row",
    };
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for layer in &graph.layers {
        *kinds.entry(layer.op.kind()).or_default() += 1;
    }
    let kinds: Vec<String> = kinds.into_iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    let text = format!(
        "{}\n{batch}, {} parameters, {} Mflop, {} segments",
        kinds.join(", "),
        model.parameters(),
        Cost::of_graph(&graph).flops / 1_000_000,
        segments.len()
    );
    expected.assert_eq(&text);
}

#[test]
fn resnet50() {
    check(
        "resnet50",
        &expect![[r#"
        add 17, average pool 1, conv 53, einsum 1, max pool 1, relu 49, remove axis 2, softmax 1
        one row, 25557033 parameters, 8206 Mflop, 30 segments"#]],
    );
}

#[test]
fn densenet121() {
    check(
        "densenet121",
        &expect![[r#"
        affine+relu 62, average pool 3, concat 58, conv 121, div 1, max pool 1, reduce sum 1, relu 59
        any number of rows, 8062504 parameters, 5712 Mflop, 31 segments"#]],
    );
}

#[test]
fn inception_v2() {
    check(
        "inception_v2",
        &expect![[r#"
        add 1, average pool 8, concat 10, conv 69, einsum 1, max pool 5, relu 69, remove axis 2, softmax 1
        one row, 11214888 parameters, 4058 Mflop, 27 segments"#]],
    );
}

#[test]
fn shufflenet() {
    check(
        "shufflenet",
        &expect![[r#"
        add 14, average pool 4, concat 3, conv 49, einsum 1, max pool 1, move axis 16, relu 33, remove axis 2, reshape 32, softmax 1
        one row, 1393320 parameters, 257 Mflop, 5 segments"#]],
    );
}

#[test]
fn squeezenet() {
    check(
        "squeezenet",
        &expect![[r#"
            concat 8, conv 26, div 1, max pool 3, reduce sum 1, relu 26, softmax 1
            any number of rows, 1235496 parameters, 706 Mflop, 13 segments"#]],
    );
}

/// Local response normalisation and grouped convolutions.
#[test]
fn alexnet() {
    check(
        "bvlc_alexnet",
        &expect![[r#"
            add 3, conv 5, einsum 3, lrn 2, max pool 3, relu 7, reshape 1, softmax 1
            one row, 60965224 parameters, 1317 Mflop, 8 segments"#]],
    );
}

/// The files as they come, weights and all made by operators.
#[test]
fn every_topology_is_imported() {
    let folder = format!("{}/tests/data/light", env!("CARGO_MANIFEST_DIR"));
    let mut found = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "onnx") {
            let model = Model::import("light", &path, &ImportLimits::default()).unwrap();
            let graph = model.at(&Sizes::batch(1)).unwrap();
            check_invariants(&graph, &crate::segment(&graph, &SegmentOptions::default()));
            found += 1;
        }
    }
    assert_eq!(found, 9);
}
