//! Batch dimensions: symbolic where the file allows, baked with a reason where not.

use super::{Onnx, agrees, difference, operands, run};
use crate::{Batch, Dim, Sizes, wire_graph};
use expect_test::{Expect, expect};
use std::collections::BTreeMap;
use std::sync::Arc;

fn check(onnx: &Onnx, expected: &Expect) {
    let model = onnx.model();
    let mut text = match model.batch() {
        Batch::Symbolic => "symbolic\n".to_owned(),
        Batch::Baked { rows, why } => format!("{rows} rows: {why}\n"),
        Batch::None => "none\n".to_owned(),
    };
    for port in model.inputs().iter().chain(model.outputs()) {
        let dims: Vec<String> = port
            .shape
            .iter()
            .map(|dim| match dim {
                Dim::Batch => "batch".to_owned(),
                Dim::Fixed(length) => length.to_string(),
                Dim::Free(name) => format!("free {name}"),
            })
            .collect();
        text += &format!("{}: {}\n", port.name, dims.join(", "));
    }
    expected.assert_eq(&text);
}

#[test]
fn a_named_first_dimension_is_the_batch() {
    let mut onnx = Onnx::new();
    onnx.input("x", &["batch_size", "4"])
        .weight("w", &[4, 3], 0.0)
        .node("MatMul", &["x", "w"], "y")
        .output("y");
    check(
        &onnx,
        &expect![[r#"
        symbolic
        x: batch, 4
        y: batch, 3
    "#]],
    );
    agrees(&onnx.bytes(), &Sizes::batch(5), 1e-6);
}

#[test]
fn a_first_dimension_of_one_is_freed() {
    let mut onnx = Onnx::new();
    onnx.input("x", &["1", "4"]).input("z", &["?", "3"]).weight("w", &[4, 3], 0.0);
    onnx.node("MatMul", &["x", "w"], "m").node("Add", &["m", "z"], "y").output("y");
    check(
        &onnx,
        &expect![[r#"
        symbolic
        x: batch, 4
        z: batch, 3
        y: batch, 3
    "#]],
    );
}

#[test]
fn a_batch_in_a_reshape_is_baked() {
    let mut onnx = Onnx::new();
    onnx.input("x", &["1", "4"])
        .integers("shape", &[1, 2, 2])
        .node("Reshape", &["x", "shape"], "y")
        .output("y");
    let model = onnx.model();
    let Batch::Baked { rows: 1, why } = model.batch() else { panic!("{:?}", model.batch()) };
    assert!(why.starts_with("with any number of rows, the model fails to analyse"), "{why}");
    let error = model.at(&Sizes::batch(2)).unwrap_err().to_string();
    assert!(error.starts_with("model \"test\" runs 1 rows at a time, not 2"), "{error}");
    agrees(&onnx.bytes(), &Sizes::batch(1), 0.0);
}

#[test]
fn a_first_dimension_of_eight_stays() {
    let mut onnx = Onnx::new();
    onnx.input("x", &["8", "4"]).node("Relu", &["x"], "y").output("y");
    check(
        &onnx,
        &expect![[r#"
        8 rows: the file fixes the first dimension at 8
        x: 8, 4
        y: 8, 4
    "#]],
    );
}

#[test]
fn rows_that_mix_are_kept_at_one() {
    let mut onnx = Onnx::new();
    onnx.input("x", &["N", "4"]).node("Softmax", &["x"], "y").with("axis", &[0]).output("y");
    check(
        &onnx,
        &expect![[r#"
        1 rows: layer "y" combines elements along axis 0, which counts rows
        x: 1, 4
        y: 1, 4
    "#]],
    );
    let mut onnx = Onnx::new();
    onnx.input("x", &["1", "4"]).integers("flat", &[1, -1]).node("Reshape", &["x", "flat"], "f");
    onnx.node("Softmax", &["f"], "s").with("axis", &[1]).integers("back", &[-1, 4]);
    onnx.node("Reshape", &["s", "back"], "y").output("y");
    check(
        &onnx,
        &expect![[r#"
        1 rows: layer "f.1" gives [1, 4*N], which mixes rows
        x: 1, 4
        y: 1, 4
    "#]],
    );
}

#[test]
fn an_output_without_rows_keeps_the_batch_at_one() {
    let mut onnx = Onnx::new();
    onnx.input("x", &["N", "4"]).node("ReduceMean", &["x"], "y").with_list("axes", &[0]).output("y");
    let model = onnx.model();
    assert!(matches!(model.batch(), Batch::Baked { rows: 1, .. }), "{:?}", model.batch());
}

#[test]
fn scalars_have_no_batch() {
    let mut onnx = Onnx::new();
    onnx.input("x", &[]).node("Relu", &["x"], "y").output("y");
    check(
        &onnx,
        &expect![[r#"
        none
        x: 
        y: 
    "#]],
    );
}

#[test]
fn other_open_dimensions_are_free() {
    let mut onnx = Onnx::new();
    onnx.input("x", &["N", "1", "height", "?"]).weight("w", &[2, 1, 3, 3], 0.0);
    onnx.node("Conv", &["x", "w"], "y").output("y");
    check(
        &onnx,
        &expect![[r#"
        symbolic
        x: batch, 1, free height, free x_3
        y: batch, 2, free height+-2, free x_3+-2
    "#]],
    );
    let model = onnx.model();
    let free = BTreeMap::from([("height".to_owned(), 7), ("x_3".to_owned(), 5)]);
    let graph = model.at(&Sizes { batch: 2, free: free.clone() }).unwrap();
    assert_eq!(graph.value(graph.outputs[0]).shape, [2, 2, 5, 3]);
    agrees(&onnx.bytes(), &Sizes { batch: 2, free: free.clone() }, 1e-6);
    let told = |batch: usize, free: &[(&str, usize)]| {
        let free = free.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect();
        model.at(&Sizes { batch, free }).unwrap_err().to_string() + "\n"
    };
    let all = [
        told(1, &[("height", 7)]),
        told(1, &[("height", 7), ("x_3", 5), ("depth", 1)]),
        told(0, &[("height", 7), ("x_3", 5)]),
        told(1, &[("height", 0), ("x_3", 5)]),
    ];
    expect![[r#"
        dimension "x_3" has no size; give one
        the model has no free dimension "depth"
        dimension "batch" is zero; give at least one
        dimension "height" is zero; give at least one
    "#]]
    .assert_eq(&all.concat());
}

#[test]
fn graphs_of_a_model_share_their_weights() {
    let mut onnx = Onnx::new();
    onnx.input("x", &["N", "2", "5", "5"]).weight("w", &[3, 2, 3, 3], 0.0).node("Conv", &["x", "w"], "c");
    onnx.weight("s", &[3, 1, 1], 1.0).node("Mul", &["c", "s"], "m").weight("t", &[3, 1, 1], 1.0);
    onnx.node("Add", &["m", "t"], "y").output("y");
    let model = onnx.model();
    let (one, four) = (model.at(&Sizes::batch(1)).unwrap(), model.at(&Sizes::batch(4)).unwrap());
    let weights = one.weights();
    assert_eq!(weights.len(), 2);
    for id in weights {
        assert!(Arc::ptr_eq(one.constant(id).unwrap(), four.constant(id).unwrap()), "{}", one.value(id).name);
    }
}

#[test]
fn an_input_that_is_an_output_passes_through() {
    let mut onnx = Onnx::new();
    onnx.input("x", &["N", "4"]).node("Relu", &["x"], "y").output("x").output("y");
    check(
        &onnx,
        &expect![[r#"
        symbolic
        x: batch, 4
        x: batch, 4
        y: batch, 4
    "#]],
    );
    let graph = onnx.at(2);
    let operands = operands(&graph);
    let found = run(wire_graph(&graph).unwrap(), &operands);
    assert!(difference(&operands[0], &found[0]) < 1e-9);
}
