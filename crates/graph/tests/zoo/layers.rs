//! How many nodes of each kind a network has. Parameters and products do not tell a missing activation; this does.

use expect_test::{Expect, expect};
use graph::zoo::{self, ZooOptions};
use std::collections::BTreeMap;

fn check(names: &[&str], expected: &Expect) {
    let lines = names.iter().map(|name| {
        let file = zoo::build(name, &ZooOptions::default()).unwrap();
        let mut kinds = BTreeMap::new();
        for node in file.graph.iter().flat_map(|graph| &graph.node) {
            *kinds.entry(node.op_type.as_str()).or_insert(0) += 1;
        }
        let kinds: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        format!("{name}: {}\n", kinds.join(", "))
    });
    expected.assert_eq(&lines.collect::<String>());
}

#[test]
fn plain_networks() {
    check(
        &["alexnet", "vgg16", "vgg19", "squeezenet1_0", "tiny_cnn", "tiny_mlp"],
        &expect![[r#"
        alexnet: 5 Conv, 1 Flatten, 3 Gemm, 3 MaxPool, 7 Relu
        vgg16: 13 Conv, 1 Flatten, 3 Gemm, 5 MaxPool, 15 Relu
        vgg19: 16 Conv, 1 Flatten, 3 Gemm, 5 MaxPool, 18 Relu
        squeezenet1_0: 8 Concat, 26 Conv, 1 Flatten, 1 GlobalAveragePool, 3 MaxPool, 26 Relu
        tiny_cnn: 1 Add, 2 BatchNormalization, 3 Conv, 1 Flatten, 1 Gemm, 1 GlobalAveragePool, 3 Relu
        tiny_mlp: 3 Gemm, 2 Relu
    "#]],
    );
}

#[test]
fn residual_networks() {
    check(
        &["resnet18", "resnet50", "resnet101", "resnet152", "resnext50", "mobilenet_v2"],
        &expect![[r#"
        resnet18: 8 Add, 20 BatchNormalization, 20 Conv, 1 Flatten, 1 Gemm, 1 GlobalAveragePool, 1 MaxPool, 17 Relu
        resnet50: 16 Add, 53 BatchNormalization, 53 Conv, 1 Flatten, 1 Gemm, 1 GlobalAveragePool, 1 MaxPool, 49 Relu
        resnet101: 33 Add, 104 BatchNormalization, 104 Conv, 1 Flatten, 1 Gemm, 1 GlobalAveragePool, 1 MaxPool, 100 Relu
        resnet152: 50 Add, 155 BatchNormalization, 155 Conv, 1 Flatten, 1 Gemm, 1 GlobalAveragePool, 1 MaxPool, 151 Relu
        resnext50: 16 Add, 53 BatchNormalization, 53 Conv, 1 Flatten, 1 Gemm, 1 GlobalAveragePool, 1 MaxPool, 49 Relu
        mobilenet_v2: 10 Add, 52 BatchNormalization, 35 Clip, 52 Conv, 1 Flatten, 1 Gemm, 1 GlobalAveragePool
    "#]],
    );
}

#[test]
fn concatenating_networks() {
    check(
        &["inception_v3", "densenet121"],
        &expect![[r#"
        inception_v3: 9 AveragePool, 94 BatchNormalization, 11 Concat, 94 Conv, 1 Flatten, 1 Gemm, 1 GlobalAveragePool, 4 MaxPool, 94 Relu
        densenet121: 3 AveragePool, 121 BatchNormalization, 58 Concat, 120 Conv, 1 Flatten, 1 Gemm, 1 GlobalAveragePool, 1 MaxPool, 121 Relu
    "#]],
    );
}

#[test]
fn transformers() {
    check(
        &["bert_base", "gpt2", "vit_b_16", "tiny_transformer"],
        &expect![[r#"
        bert_base: 122 Add, 1 Cast, 12 Div, 12 Erf, 3 Gather, 1 Gemm, 25 LayerNormalization, 96 MatMul, 37 Mul, 48 Reshape, 1 Slice, 12 Softmax, 1 Sub, 1 Tanh, 48 Transpose, 1 Unsqueeze
        gpt2: 109 Add, 1 Cast, 1 Gather, 1 Gemm, 25 LayerNormalization, 72 MatMul, 61 Mul, 12 Pow, 50 Reshape, 1 Slice, 12 Softmax, 12 Split, 12 Tanh, 48 Transpose
        vit_b_16: 85 Add, 2 Concat, 1 Conv, 12 Div, 12 Erf, 1 Expand, 1 Gather, 1 Gemm, 25 LayerNormalization, 72 MatMul, 36 Mul, 49 Reshape, 1 Shape, 12 Softmax, 12 Split, 49 Transpose
        tiny_transformer: 19 Add, 1 Cast, 1 Gather, 1 Gemm, 5 LayerNormalization, 12 MatMul, 11 Mul, 2 Pow, 10 Reshape, 1 Slice, 2 Softmax, 2 Split, 2 Tanh, 8 Transpose
    "#]],
    );
}
