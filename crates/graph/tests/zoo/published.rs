//! Parameters (exact) and multiply-adds (within one per cent) as published: by torchvision for the image networks, and
//! for the two over text, at 128 tokens, by the arithmetic of their matrix products.

use graph::zoo::{self, ZooOptions};
use graph::{Cost, ImportLimits, Model, Op, Sizes};
use prost::Message;

/// Multiply-adds, in billions, of a transformer of 12 layers and width 768 over 128 tokens: four products of the width
/// with itself and two with four times the width for each token, and two of tokens with tokens.
const TWELVE_LAYERS: f64 = 12.0 * 128.0 * (12.0 * 768.0 * 768.0 + 2.0 * 128.0 * 768.0) / 1e9;

fn check(name: &str, parameters: u64, billions: f64) {
    let file = zoo::build(name, &ZooOptions::default()).unwrap();
    assert_eq!(zoo::parameter_count(&file), parameters, "{name}");
    let model = Model::from_bytes(name, file.encode_to_vec(), &ImportLimits::default()).unwrap();
    drop(file);
    assert_eq!(model.parameters(), parameters, "{name} as imported");
    let graph = model.unfolded(&Sizes::batch(1)).unwrap();
    let bytes = graph.weight_bytes().0;
    assert!(bytes < parameters * 4 / 100 * 101, "{name}: {bytes} bytes, so that some weight is stored twice");
    let products = graph.layers.iter().filter(|layer| matches!(layer.op, Op::Conv(_) | Op::EinSum(_)));
    let flops: u64 = products.map(|layer| Cost::of(&graph, layer).flops).sum();
    let found = flops as f64 / 2e9;
    assert!((found / billions - 1.0).abs() < 0.01, "{name}: {found} is not {billions}");
}

macro_rules! published {
    ($($name:ident: $parameters:literal, $billions:expr;)*) => {
        $(#[test] fn $name() { check(stringify!($name), $parameters, $billions); })*
    };
}

published! {
    alexnet: 61_100_840, 0.714;
    vgg16: 138_357_544, 15.47;
    vgg19: 143_667_240, 19.63;
    resnet18: 11_689_512, 1.814;
    resnet50: 25_557_032, 4.089;
    resnet101: 44_549_160, 7.801;
    resnet152: 60_192_808, 11.514;
    resnext50: 25_028_904, 4.23;
    inception_v3: 23_834_568, 5.713;
    densenet121: 7_978_856, 2.834;
    mobilenet_v2: 3_504_872, 0.301;
    squeezenet1_0: 1_248_424, 0.819;
    vit_b_16: 86_567_656, 17.564;
    bert_base: 109_482_240, TWELVE_LAYERS + 768.0 * 768.0 / 1e9;
    gpt2: 124_439_808, TWELVE_LAYERS + 128.0 * 768.0 * 50_257.0 / 1e9;
}
