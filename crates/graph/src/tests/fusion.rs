//! Fusion groups, found by structure.

use super::{Onnx, agrees};
use crate::{Sizes, fusions};
use expect_test::{Expect, expect};

/// The groups of a model: their kinds and the values their layers write.
fn check(onnx: &Onnx, expected: &Expect) {
    let graph = agrees(&onnx.bytes(), &Sizes::batch(2), 1e-5);
    let mut text = String::new();
    for fusion in fusions(&graph) {
        let written = |at: &usize| graph.value(graph.layers[*at].outputs[0]).name.clone();
        text += &format!(
            "{:?}: {}\n",
            fusion.kind,
            fusion.layers.iter().map(written).collect::<Vec<_>>().join(" ")
        );
    }
    expected.assert_eq(&text);
}

fn matrix() -> Onnx {
    let mut onnx = Onnx::new();
    onnx.input("x", &["N", "6", "8"]).weight("w", &[8, 8], 0.0).weight("b", &[8], 0.0);
    onnx.node("MatMul", &["x", "w"], "product").node("Add", &["product", "b"], "h");
    onnx
}

#[test]
fn a_product_takes_its_bias_and_activation() {
    let mut onnx = matrix();
    onnx.node("Tanh", &["h"], "t").node("MatMul", &["t", "w"], "y").output("y");
    check(
        &onnx,
        &expect![[r#"
        Linear: product h t
    "#]],
    );
}

#[test]
fn a_convolution_takes_its_clamp() {
    let mut onnx = Onnx::new();
    onnx.input("x", &["N", "2", "6", "6"]).weight("w", &[3, 2, 3, 3], 0.0).node("Conv", &["x", "w"], "c");
    onnx.floats("low", &[], &[0.0]).floats("high", &[], &[6.0]).node("Clip", &["c", "low", "high"], "k");
    onnx.node("MaxPool", &["k"], "y").with("kernel_shape", &[2, 2]).output("y");
    check(
        &onnx,
        &expect![[r#"
        Linear: c k.min k
    "#]],
    );
}

#[test]
fn gates_are_found() {
    let mut onnx = matrix();
    onnx.node("Sigmoid", &["h"], "s").node("Mul", &["h", "s"], "silu").node("MatMul", &["silu", "w"], "q");
    onnx.node("HardSigmoid", &["q"], "g").node("Mul", &["g", "q"], "y").output("y");
    check(
        &onnx,
        &expect![[r#"
        Silu: product h s silu
        HardSwish: q g.mul_alpha g.add_beta g.sat-one g y
    "#]],
    );
}

/// Both spellings of a GELU, as exporters write them.
#[test]
fn both_gelus_are_found() {
    let mut onnx = matrix();
    onnx.floats("root", &[], &[std::f32::consts::SQRT_2]).floats("one", &[], &[1.0]).floats(
        "half",
        &[],
        &[0.5],
    );
    onnx.node("Div", &["h", "root"], "d").node("Erf", &["d"], "e").node("Add", &["e", "one"], "p");
    onnx.node("Mul", &["h", "p"], "m").node("Mul", &["m", "half"], "gelu").node(
        "MatMul",
        &["gelu", "w"],
        "q",
    );
    onnx.floats("three", &[], &[3.0]).floats("k", &[], &[0.044_715]).floats("c", &[], &[0.797_884_6]);
    onnx.node("Pow", &["q", "three"], "cube").node("Mul", &["cube", "k"], "kc").node(
        "Add",
        &["q", "kc"],
        "i",
    );
    onnx.node("Mul", &["i", "c"], "j").node("Tanh", &["j"], "t").node("Add", &["t", "one"], "u");
    onnx.node("Mul", &["q", "half"], "hq").node("Mul", &["hq", "u"], "y").output("y");
    check(
        &onnx,
        &expect![[r#"
        Gelu: product h d e p m gelu
        Gelu: q hq cube kc i j t u y
    "#]],
    );
}

#[test]
fn layer_normalisations_are_found_spelled_out_or_named() {
    let mut onnx = matrix();
    onnx.node("Add", &["h", "x"], "r").weight("s", &[8], 1.0).weight("t", &[8], 0.0);
    onnx.node("LayerNormalization", &["r", "s", "t"], "n").node("Add", &["n", "r"], "r2");
    onnx.floats("two", &[], &[2.0]).floats("epsilon", &[], &[1e-5]);
    onnx.node("ReduceMean", &["r2"], "mean").with_list("axes", &[-1]).node("Sub", &["r2", "mean"], "d");
    onnx.node("Pow", &["d", "two"], "sq").node("ReduceMean", &["sq"], "var").with_list("axes", &[-1]);
    onnx.node("Add", &["var", "epsilon"], "ve").node("Sqrt", &["ve"], "sd").node("Div", &["d", "sd"], "z");
    onnx.node("Mul", &["z", "s"], "zs")
        .node("Add", &["zs", "t"], "n2")
        .node("Add", &["n2", "r2"], "y")
        .output("y");
    check(
        &onnx,
        &expect![[r#"
        Linear: product h
        LayerNorm: n.reduced_sum n.reduced_mean_x n.d n.dd n.reduced_sum_dd n.var n.var_eps n.inv_std_dev n.normalized n.y_internal
        LayerNorm: mean.sum mean d sq var.sum var ve sd z n2
    "#]],
    );
}

#[test]
fn an_attention_is_found_between_its_products() {
    let mut onnx = Onnx::new();
    onnx.input("x", &["N", "6", "8"]).input("mask", &["N", "1", "6"]).weight("w", &[8, 8], 0.0);
    onnx.weight("v", &[8, 8], 0.0).weight("u", &[8, 8], 0.0).floats("scale", &[], &[0.35]);
    onnx.node("MatMul", &["x", "w"], "q").node("MatMul", &["x", "v"], "k").node(
        "MatMul",
        &["x", "u"],
        "value",
    );
    onnx.node("Transpose", &["k"], "kt").with("perm", &[0, 2, 1]).node("MatMul", &["q", "kt"], "qk");
    onnx.node("Mul", &["qk", "scale"], "scaled").node("Add", &["scaled", "mask"], "masked");
    onnx.node("Softmax", &["masked"], "p")
        .with("axis", &[-1])
        .node("MatMul", &["p", "value"], "y")
        .output("y");
    check(
        &onnx,
        &expect![[r#"
        Attention: qk scaled masked p y
    "#]],
    );
}

#[test]
fn a_residual_sum_belongs_to_nobody() {
    let mut onnx = matrix();
    onnx.node("Add", &["h", "x"], "y").output("y");
    check(
        &onnx,
        &expect![[r#"
        Linear: product h
    "#]],
    );
}
