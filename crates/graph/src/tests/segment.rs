//! Segments are contiguous, complete, and cut at the same layers for every batch.

use super::{Onnx, operands, run};
use crate::{
    Graph, Segment, SegmentError, SegmentOptions, Segmentation, Sizes, ValueId, fusions, segment, wire,
    wire_graph,
};
use expect_test::expect;
use std::collections::{BTreeMap, BTreeSet};
use tract_onnx::prelude::{OutletId, SpecialOps, TVec, Tensor, TypedFact, TypedModel};
use vocab::Bytes;

/// Eight convolutions with rectifiers, one with a branch around it.
fn chain() -> Onnx {
    let mut onnx = Onnx::new();
    onnx.input("x", &["N", "4", "16", "16"]);
    let mut last = "x".to_owned();
    for at in 0..8 {
        let [weight, conv, relu, sum] = ["w", "c", "r", "s"].map(|part| format!("{part}{at}"));
        onnx.weight(&weight, &[4, 4, 3, 3], 0.0)
            .node("Conv", &[&last, &weight], &conv)
            .with("pads", &[1, 1, 1, 1]);
        onnx.node("Relu", &[&conv], &relu);
        if at == 5 {
            onnx.node("Add", &[&relu, "r2"], &sum);
        }
        last = if at == 5 { sum } else { relu };
    }
    onnx.node("GlobalAveragePool", &[&last], "y").output("y").output("r3");
    onnx
}

const OPTIONS: SegmentOptions = SegmentOptions { segments_max: 4, flops_min: 1000 };

/// What must hold of any segmentation of any graph.
pub(super) fn check_invariants(graph: &Graph, segments: &[Segment]) {
    assert!(!segments.is_empty());
    let mut next = 0;
    let mut known: BTreeSet<ValueId> = graph.inputs.iter().copied().collect();
    for segment in segments {
        assert_eq!(segment.layers.start, next, "segments follow each other");
        next = segment.layers.end;
        assert!(segment.reads.iter().all(|id| known.contains(id)), "a segment reads what is there");
        let mut own = known.clone();
        for layer in &graph.layers[segment.layers.clone()] {
            for input in &layer.inputs {
                let outside = known.contains(input) && !segment.reads.contains(input);
                assert!(
                    !outside && (own.contains(input) || graph.constant(*input).is_some()),
                    "{}",
                    layer.name
                );
            }
            own.extend(&layer.outputs);
        }
        assert!(segment.writes.iter().all(|id| own.contains(id) && !known.contains(id)));
        known.extend(&segment.writes);
    }
    assert_eq!(next, graph.layers.len());
    assert!(graph.outputs.iter().all(|id| known.contains(id) || graph.constant(*id).is_some()));
    for fusion in fusions(graph) {
        let of = |at: usize| segments.iter().position(|segment| segment.layers.contains(&at));
        assert!(fusion.layers.iter().all(|at| of(*at) == of(fusion.layers[0])), "{fusion:?} is cut");
    }
}

/// Runs each segment by itself, values handed over by id.
pub(super) fn run_segments(graph: &Graph, segments: &[Segment], operands: &[Tensor]) -> Vec<Tensor> {
    let mut values: BTreeMap<ValueId, Tensor> =
        graph.inputs.iter().copied().zip(operands.iter().cloned()).collect();
    for segment in segments {
        let mut model = TypedModel::default();
        let mut outlets: BTreeMap<ValueId, OutletId> = BTreeMap::new();
        for id in &segment.reads {
            let tensor = &values[id];
            let fact = TypedFact::dt_shape(tensor.datum_type(), tensor.shape());
            outlets.insert(*id, model.add_source(graph.value(*id).name.clone(), fact).unwrap());
        }
        for layer in &graph.layers[segment.layers.clone()] {
            let mut inputs = TVec::new();
            for id in &layer.inputs {
                let constant = graph.constant(*id).filter(|_| !outlets.contains_key(id));
                if let Some(constant) = constant {
                    outlets.insert(
                        *id,
                        model.add_const(graph.value(*id).name.clone(), constant.clone()).unwrap(),
                    );
                }
                inputs.push(outlets[id]);
            }
            let written = wire(layer, graph, &mut model, &inputs).unwrap();
            outlets.extend(layer.outputs.iter().copied().zip(written));
        }
        let written: Vec<OutletId> = segment.writes.iter().map(|id| outlets[id]).collect();
        model.select_output_outlets(&written).unwrap();
        let read: Vec<Tensor> = segment.reads.iter().map(|id| values[id].clone()).collect();
        values.extend(segment.writes.iter().copied().zip(run(model, &read)));
    }
    graph.outputs.iter().map(|id| values[id].clone()).collect()
}

#[test]
fn segments_are_balanced_and_hand_over_what_is_needed() {
    let graph = chain().at(1);
    let segments = segment(&graph, &OPTIONS);
    check_invariants(&graph, &segments);
    let name = |id: &ValueId| graph.value(*id).name.clone();
    let mut text = String::new();
    for segment in &segments {
        let (reads, writes) = (segment.reads.iter().map(name), segment.writes.iter().map(name));
        text += &format!(
            "{} {:?} {} -> {}, {} flops, weights {}, alive {}\n",
            segment.name,
            segment.layers,
            reads.collect::<Vec<_>>().join(" "),
            writes.collect::<Vec<_>>().join(" "),
            segment.flops,
            segment.weight_bytes,
            segment.activation_bytes
        );
    }
    expect![[r#"
        c0 0..4 x -> r1, 149504 flops, weights 1.1 KiB, alive 4.0 KiB
        c2 4..8 r1 -> r2 r3, 149504 flops, weights 1.1 KiB, alive 8.0 KiB
        c4 8..13 r2 r3 -> s5, 150528 flops, weights 1.1 KiB, alive 8.0 KiB
        c6 13..19 s5 -> y, 150532 flops, weights 1.1 KiB, alive 4.0 KiB
    "#]]
    .assert_eq(&text);
    let operands = operands(&graph);
    let whole = run(wire_graph(&graph).unwrap(), &operands);
    for (whole, parts) in whole.iter().zip(run_segments(&graph, &segments, &operands)) {
        assert!(super::difference(whole, &parts) < 1e-5);
    }
}

#[test]
fn small_models_are_not_cut() {
    let graph = chain().at(1);
    assert_eq!(segment(&graph, &SegmentOptions::default()).len(), 1);
    let one = SegmentOptions { segments_max: 1, ..OPTIONS };
    let segments = segment(&graph, &one);
    assert_eq!(segments.len(), 1);
    assert_eq!(segments[0].activation_bytes, Bytes(4 * 16 * 16 * 4 + 16));
    let none = SegmentOptions { segments_max: 0, flops_min: 0 };
    assert_eq!(segment(&graph, &none).len(), 1);
}

#[test]
fn cuts_hold_at_every_batch_and_for_this_model_only() {
    let onnx = chain();
    let model = onnx.model();
    let cuts = Segmentation::of(&model.at(&Sizes::batch(1)).unwrap(), &OPTIONS);
    assert_eq!(cuts.segments(), 4);
    for rows in [1, 2, 7] {
        let graph = model.at(&Sizes::batch(rows)).unwrap();
        let segments = cuts.apply(&graph).unwrap();
        check_invariants(&graph, &segments);
        assert_eq!(segments.len(), 4);
        let one: u64 = segment(&model.at(&Sizes::batch(1)).unwrap(), &OPTIONS).iter().map(|s| s.flops).sum();
        assert_eq!(segments.iter().map(|segment| segment.flops).sum::<u64>(), one * rows as u64);
    }
    let mut other = Onnx::new();
    other.input("x", &["N", "4"]).node("Relu", &["x"], "y").output("y");
    assert!(matches!(cuts.apply(&other.at(1)), Err(SegmentError::Layers { found: 1, .. })));
    let mut renamed = onnx;
    renamed.graph.node.iter_mut().for_each(|node| node.name = format!("{}'", node.name));
    assert!(matches!(cuts.apply(&renamed.at(1)), Err(SegmentError::Layer { .. })));
}

#[test]
fn a_graph_that_does_nothing_is_one_segment() {
    let mut onnx = Onnx::new();
    onnx.input("x", &["N", "4"]).output("x");
    let graph = onnx.at(1);
    let segments = segment(&graph, &OPTIONS);
    check_invariants(&graph, &segments);
    assert_eq!((segments.len(), segments[0].layers.clone(), segments[0].flops), (1, 0..1, 0));
    let mut empty = graph;
    empty.layers.clear();
    empty.outputs = empty.inputs.clone();
    let segments = segment(&empty, &OPTIONS);
    check_invariants(&empty, &segments);
    assert_eq!((segments.len(), segments[0].layers.clone()), (1, 0..0));
}
