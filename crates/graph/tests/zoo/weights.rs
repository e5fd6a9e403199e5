//! Seeds, options and mistakes.

use expect_test::{Expect, expect};
use graph::zoo::{self, ZooOptions};
use prost::Message;
use std::path::Path;

fn tiny(seed: u64) -> Vec<u8> {
    zoo::build("tiny_cnn", &ZooOptions { seed, ..ZooOptions::default() }).unwrap().encode_to_vec()
}

#[test]
fn the_seed_decides_the_file() {
    assert_eq!(tiny(7), tiny(7));
    assert_ne!(tiny(7), tiny(8));
}

#[test]
fn weights_are_the_same_on_every_machine() {
    let model = zoo::build("tiny_mlp", &ZooOptions::default()).unwrap();
    let first = &model.graph.as_ref().unwrap().initializer[0];
    let values: Vec<f32> =
        first.raw_data.chunks_exact(4).take(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    let shown = format!("{} {:?} {values:?}", first.name, first.dims);
    expect!["fc1.weight [32, 16] [-0.16274235, -0.4003339, 0.34793863, 0.3422275]"].assert_eq(&shown);
}

fn refused(name: &str, sequence: Option<usize>, expected: &Expect) {
    let error = zoo::build(name, &ZooOptions { seed: 0, sequence }).unwrap_err();
    expected.assert_eq(&error.to_string());
}

#[test]
fn mistakes_name_their_remedy() {
    refused(
        "resnet34",
        None,
        &expect![[
            r#"the zoo has no model "resnet34"; choose one of alexnet, vgg16, vgg19, resnet18, resnet50, resnet101, resnet152, resnext50, inception_v3, densenet121, mobilenet_v2, squeezenet1_0, bert_base, gpt2, vit_b_16, tiny_cnn, tiny_mlp, tiny_transformer"#
        ]],
    );
    refused(
        "bert_base",
        Some(513),
        &expect![[
            r#"model "bert_base" reads rows of 1 to 512 tokens, not 513; set `sequence` in that range"#
        ]],
    );
    refused(
        "tiny_transformer",
        Some(0),
        &expect![[
            r#"model "tiny_transformer" reads rows of 1 to 32 tokens, not 0; set `sequence` in that range"#
        ]],
    );
    let nowhere = zoo::write("tiny_mlp", Path::new("no/such/folder/m.onnx"), &ZooOptions::default());
    expect![[
        r#"cannot write model "tiny_mlp" to no/such/folder/m.onnx; check that the folder exists and has room"#
    ]]
    .assert_eq(&nowhere.unwrap_err().to_string());
}
