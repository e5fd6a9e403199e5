//! Costs of layers, exact.

use super::{Onnx, agrees};
use crate::{Cost, Sizes};
use expect_test::expect;
use vocab::Bytes;

#[test]
fn layers_cost_what_their_shapes_say() {
    let mut onnx = Onnx::new();
    onnx.input("x", &["N", "4", "8", "8"]).weight("w", &[6, 2, 3, 3], 0.0).weight("b", &[6], 0.0);
    onnx.node("Conv", &["x", "w", "b"], "conv").with("group", &[2]).with("strides", &[2, 2]);
    onnx.node("Relu", &["conv"], "relu");
    onnx.node("AveragePool", &["relu"], "pool").with("kernel_shape", &[3, 3]);
    onnx.weight("d", &[6, 2, 2, 2], 0.0).node("ConvTranspose", &["pool", "d"], "deconv");
    onnx.integers("flat", &[0, -1]).node("Reshape", &["deconv", "flat"], "rows").weight("m", &[8, 5], 0.0);
    onnx.node("MatMul", &["rows", "m"], "product").weight("c", &[5], 0.0).node(
        "Add",
        &["product", "c"],
        "sum",
    );
    onnx.node("Softmax", &["sum"], "y").with("axis", &[1]).output("y");
    let graph = agrees(&onnx.bytes(), &Sizes::batch(3), 1e-5);
    let mut text = String::new();
    for layer in &graph.layers {
        let cost = Cost::of(&graph, layer);
        text += &format!(
            "{}: {} flops, reads {}, weights {}, writes {}, {} parameters\n",
            layer.op.kind(),
            cost.flops,
            cost.read,
            cost.weights,
            cost.written,
            cost.parameters
        );
    }
    expect![[r#"
        conv: 5994 flops, reads 3.0 KiB, weights 456 B, writes 648 B, 114 parameters
        relu: 162 flops, reads 648 B, weights 0 B, writes 648 B, 0 parameters
        average pool: 180 flops, reads 648 B, weights 0 B, writes 72 B, 0 parameters
        deconv: 288 flops, reads 72 B, weights 196 B, writes 96 B, 48 parameters
        reshape: 0 flops, reads 0 B, weights 0 B, writes 0 B, 0 parameters
        einsum: 240 flops, reads 96 B, weights 160 B, writes 60 B, 40 parameters
        add: 15 flops, reads 60 B, weights 20 B, writes 60 B, 5 parameters
        softmax: 75 flops, reads 60 B, weights 0 B, writes 60 B, 0 parameters
    "#]]
    .assert_eq(&text);
    assert_eq!(graph.parameters(), 6 * 2 * 9 + 6 + 6 * 2 * 4 + 8 * 5 + 5);
}

#[test]
fn the_model_counts_what_the_file_declares() {
    let mut onnx = Onnx::new();
    onnx.input("x", &["N", "2", "4", "4"]).weight("w", &[3, 2, 1, 1], 0.0).node("Conv", &["x", "w"], "c");
    for part in ["scale", "shift", "mean", "variance"] {
        onnx.weight(part, &[3], 1.0);
    }
    onnx.node("BatchNormalization", &["c", "scale", "shift", "mean", "variance"], "y").output("y");
    let model = onnx.model();
    assert_eq!(model.parameters(), 6 + 3 + 3);
    let graph = model.at(&Sizes::batch(1)).unwrap();
    assert_eq!(graph.parameters(), 6 + 3);
    assert_eq!(graph.weight_bytes(), Bytes(4 * 9));
}

#[test]
fn intensity_is_operations_for_each_byte() {
    let cost = Cost { flops: 100, read: Bytes(10), weights: Bytes(20), written: Bytes(20), parameters: 5 };
    assert_eq!(cost.bytes(), Bytes(50));
    assert!((cost.intensity() - 2.0).abs() < 1e-9);
    assert!(Cost::default().intensity().abs() < 1e-9);
}
