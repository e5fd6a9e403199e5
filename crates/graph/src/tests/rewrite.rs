//! Rewrites change no result.

use super::{Onnx, agrees, drawn};
use crate::{Op, Sizes};
use expect_test::{Expect, expect};

/// Folding agrees with tract on the file, and leaves these layers.
fn check(onnx: &Onnx, expected: &Expect) {
    let graph = agrees(&onnx.bytes(), &Sizes::batch(2), 1e-5);
    expected.assert_eq(&drawn(&graph));
}

fn image() -> Onnx {
    let mut onnx = Onnx::new();
    onnx.input("x", &["N", "2", "6", "6"]);
    onnx
}

fn batch_normalisation(onnx: &mut Onnx, input: &str, output: &str, channels: i64) {
    let name = |part: &str| format!("{output}.{part}");
    onnx.weight(&name("scale"), &[channels], 1.0).weight(&name("shift"), &[channels], 0.0);
    onnx.weight(&name("mean"), &[channels], 0.0).weight(&name("variance"), &[channels], 1.0);
    let (scale, shift, mean, variance) = (name("scale"), name("shift"), name("mean"), name("variance"));
    onnx.node("BatchNormalization", &[input, &scale, &shift, &mean, &variance], output);
}

#[test]
fn a_normalisation_folds_into_the_convolution_before_it() {
    let mut onnx = image();
    onnx.weight("w", &[4, 1, 3, 3], 0.0).weight("b", &[4], 0.0);
    onnx.node("Conv", &["x", "w", "b"], "c").with("group", &[2]).with("pads", &[1, 1, 1, 1]);
    batch_normalisation(&mut onnx, "c", "n", 4);
    onnx.weight("s", &[4, 1, 1], 1.0).node("Mul", &["n", "s"], "m").weight("t", &[1, 4, 1, 1], 0.0);
    onnx.node("Add", &["t", "m"], "a").node("Relu", &["a"], "y").output("y");
    check(
        &onnx,
        &expect![[r#"
        conv (x, c.weight, c.bias) -> a
        relu (a) -> y
    "#]],
    );
}

#[test]
fn a_convolution_without_bias_takes_one() {
    let mut onnx = image();
    onnx.weight("w", &[3, 2, 1, 1], 0.0).node("Conv", &["x", "w"], "c");
    batch_normalisation(&mut onnx, "c", "y", 3);
    onnx.output("y");
    check(
        &onnx,
        &expect![[r#"
        conv (x, c.weight, c.bias) -> y
    "#]],
    );
}

#[test]
fn where_the_convolution_has_another_reader_the_normalisation_stays_apart() {
    let mut onnx = image();
    onnx.weight("w", &[3, 2, 1, 1], 0.0).node("Conv", &["x", "w"], "c");
    batch_normalisation(&mut onnx, "c", "n", 3);
    onnx.node("Relu", &["n"], "r").node("Add", &["r", "c"], "y").output("y");
    check(
        &onnx,
        &expect![[r#"
        conv (x, w.0, c.bias) -> c
        affine+relu (c, n.scale, n.shift) -> r
        add (r, c) -> y
    "#]],
    );
}

#[test]
fn where_the_convolution_is_an_output_it_keeps_its_values() {
    let mut onnx = image();
    onnx.weight("w", &[3, 2, 1, 1], 0.0).node("Conv", &["x", "w"], "c").output("c");
    batch_normalisation(&mut onnx, "c", "y", 3);
    onnx.output("y");
    check(
        &onnx,
        &expect![[r#"
        conv (x, w.0, c.bias) -> c
        affine (c, y.scale, y.shift) -> y
    "#]],
    );
}

#[test]
fn a_normalisation_before_the_activation_becomes_one_layer() {
    let mut onnx = image();
    onnx.node("MaxPool", &["x"], "p").with("kernel_shape", &[2, 2]);
    batch_normalisation(&mut onnx, "p", "n", 2);
    onnx.weight("s", &[2, 1, 1], 1.0).node("Mul", &["n", "s"], "m").weight("t", &[2, 1, 1], 0.0);
    onnx.node("Sub", &["t", "m"], "a").node("Relu", &["a"], "r").weight("w", &[3, 2, 1, 1], 0.0);
    onnx.node("Conv", &["r", "w"], "y").output("y");
    check(
        &onnx,
        &expect![[r#"
        max pool (x) -> p
        affine+relu (p, a.scale, a.shift) -> r
        conv (r, w.0, y.bias) -> y
    "#]],
    );
}

#[test]
fn the_last_axis_may_be_the_channels() {
    let mut onnx = Onnx::new();
    onnx.input("x", &["N", "3", "5"]).weight("s", &[5], 1.0).node("Mul", &["x", "s"], "m");
    onnx.weight("t", &[5], 0.0).node("Add", &["m", "t"], "y").output("y");
    let graph = onnx.at(1);
    assert_eq!(graph.layers[0].op, Op::Affine { axis: 2, relu: false });
    check(
        &onnx,
        &expect![[r#"
        affine (x, y.scale, y.shift) -> y
    "#]],
    );
}

#[test]
fn chains_along_different_axes_do_not_mix() {
    let mut onnx = Onnx::new();
    onnx.input("x", &["N", "3", "5"]).weight("s", &[5], 1.0).node("Mul", &["x", "s"], "m");
    onnx.weight("t", &[3, 1], 0.0).node("Add", &["m", "t"], "y").output("y");
    check(
        &onnx,
        &expect![[r#"
        mul (x, m.fix-rank.1) -> m
        add (m, y.fix-rank) -> y
    "#]],
    );
}

#[test]
fn single_steps_and_plain_numbers_stay() {
    let mut onnx = Onnx::new();
    onnx.input("x", &["N", "3"]).weight("t", &[3], 0.0).node("Add", &["x", "t"], "a").node(
        "Exp",
        &["a"],
        "e",
    );
    onnx.floats("two", &[1], &[2.0]).node("Mul", &["e", "two"], "m").floats("five", &[], &[5.0]);
    onnx.node("Add", &["m", "five"], "y").output("y");
    check(
        &onnx,
        &expect![[r#"
        add (x, a.fix-rank) -> a
        exp (a) -> e
        mul (e, m.fix-rank) -> m
        add (m, y.fix-rank.1) -> y
    "#]],
    );
}

#[test]
fn a_shared_weight_is_folded_for_each_use() {
    let mut onnx = image();
    onnx.weight("w", &[2, 2, 3, 3], 0.0);
    for (at, input) in [(1, "x"), (2, "y1")] {
        let (conv, output) = (format!("c{at}"), format!("y{at}"));
        onnx.node("Conv", &[input, "w"], &conv).with("pads", &[1, 1, 1, 1]);
        batch_normalisation(&mut onnx, &conv, &output, 2);
    }
    onnx.output("y2");
    check(
        &onnx,
        &expect![[r#"
        conv (x, c1.weight, c1.bias) -> y1
        conv (y1, c2.weight, c2.bias) -> y2
    "#]],
    );
}

#[test]
fn layers_that_do_nothing_go() {
    let mut onnx = Onnx::new();
    onnx.input("x", &["N", "4"]).floats("one", &[1], &[1.0]).floats("zero", &[1], &[0.0]);
    onnx.node("Identity", &["x"], "i").node("Mul", &["i", "one"], "m").node("Add", &["zero", "m"], "a");
    onnx.node("Concat", &["a"], "c").with("axis", &[1]).node("Dropout", &["c"], "d").node("Exp", &["d"], "e");
    onnx.node("Identity", &["e"], "y").output("y");
    check(
        &onnx,
        &expect![[r#"
            exp (x) -> e
            identity (e) -> y
        "#]],
    );
}

#[test]
fn a_dropout_goes_unless_its_mask_is_used() {
    for masked in [false, true] {
        let mut onnx = Onnx::new();
        onnx.input("x", &["N", "4"]).node("Dropout", &["x"], "d").node("Exp", &["d"], "y").output("y");
        onnx.graph.node[0].output.push("mask".to_owned());
        if masked {
            onnx.graph.output.push(super::port("mask", 9, None));
        }
        let kinds: Vec<String> = onnx.at(1).layers.iter().map(|layer| layer.op.kind()).collect();
        assert_eq!(kinds.concat(), if masked { "foreign identityexp" } else { "exp" });
    }
}

#[test]
fn a_quotient_by_zero_is_not_folded() {
    let mut onnx = Onnx::new();
    onnx.input("x", &["N", "2"]).floats("d", &[2], &[1.0, 0.0]).node("Div", &["x", "d"], "q");
    onnx.weight("t", &[2], 0.0).node("Add", &["q", "t"], "y").output("y");
    expect![[r#"
        div (x, q.fix-rank) -> q
        add (q, y.fix-rank) -> y
    "#]]
    .assert_eq(&drawn(&onnx.at(1)));
}

/// tract 0.23 folds `constant - conv(x)` into the convolution without negating its weights, and `constant / conv(x)` by
/// dividing by them; such layers reach it in another form.
#[test]
fn a_constant_less_a_convolution_is_kept_from_tract() {
    for operator in ["Sub", "Div"] {
        let mut onnx = image();
        onnx.weight("w", &[2, 2, 3, 3], 0.0).weight("b", &[2], 9.0).node("Conv", &["x", "w", "b"], "c");
        onnx.weight("k", &[2, 1, 1], 2.0).node(operator, &["k", "c"], "d").node("Exp", &["d"], "e");
        onnx.node("Add", &["c", "e"], "y").output("y");
        agrees(&onnx.bytes(), &Sizes::batch(2), 1e-5);
        onnx.graph.node.retain(|node| node.name != "y");
        onnx.node("Identity", &["e"], "y");
        agrees(&onnx.bytes(), &Sizes::batch(2), 1e-5);
    }
}

/// Random chains on random producers: folding never changes a result.
#[test]
fn random_chains_keep_their_results() {
    let mut rng = vocab::Rng::new(5);
    for _ in 0..60 {
        let mut onnx = image();
        let mut last = "x".to_owned();
        if rng.below(2) == 0 {
            onnx.weight("w", &[2, 2, 3, 3], 0.0).node("Conv", &["x", "w"], "c").with("pads", &[1, 1, 1, 1]);
            last = "c".to_owned();
        }
        for step in 0..=rng.below(5) {
            let (constant, output) = (format!("k{step}"), format!("v{step}"));
            let dims: &[i64] =
                [&[2, 1, 1][..], &[1], &[1, 2, 1, 1], &[6], &[]][usize::try_from(rng.below(5)).unwrap()];
            onnx.weight(&constant, dims, 2.0);
            let operator = ["Add", "Sub", "Mul", "Div"][usize::try_from(rng.below(4)).unwrap()];
            let swapped = rng.below(2) == 0;
            let inputs = if swapped { [&*constant, &*last] } else { [&*last, &*constant] };
            onnx.node(operator, &inputs, &output);
            last = output;
        }
        onnx.node("Relu", &[&last], "y").output("y");
        agrees(&onnx.bytes(), &Sizes::batch(2), 1e-5);
    }
}
