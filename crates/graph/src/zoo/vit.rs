//! ViT-B/16 (Dosovitskiy et al., 2020): an encoder over patches of 16×16 pixels and a class token in front of them.

use super::CLASSES;
use super::bert::pick_first;
use super::builder::{Conv, Net, Wire};
use super::proto;
use super::transformer::Attention;
use tract_onnx::pb::ModelProto;

const WIDTH: usize = 768;
const HEADS: usize = 12;
const LAYERS: usize = 12;
const EPSILON: f32 = 1e-6;

/// Mean square of the class token and of the positions.
const EMBEDDING_POWER: f32 = 0.5;

/// Wires it.
pub(super) fn wire(mut net: Net) -> ModelProto {
    let input = net.input("input", &[3, 224, 224]);
    let mut x = patches(&mut net, &input);
    x = with_class_token(&mut net, &x);
    let positions = net.centred_weight("encoder.pos_embedding", &[1, x.dims[0], WIDTH], EMBEDDING_POWER);
    let name = net.then("Add", "encoder.positioned", &[&x.name, &positions]);
    x = Wire { name, power: x.power + EMBEDDING_POWER, ..x };
    for at in 0..LAYERS {
        x = layer(&mut net, &format!("encoder.layers.encoder_layer_{at}"), &x);
    }
    x = net.layer_norm("encoder.ln", &x, EPSILON);
    x = pick_first(&mut net, "class", &x);
    let logits = net.dense("heads.head", &x, CLASSES);
    net.finish(&[("logits", &logits)])
}

/// One token a patch.
fn patches(net: &mut Net, input: &Wire) -> Wire {
    let x = net.conv("conv_proj", input, Conv::square(WIDTH, 16).stride(16));
    let tokens = x.dims[1] * x.dims[2];
    let shape = net.numbers(&[0, proto::dim(WIDTH), proto::dim(tokens)]);
    let flat = net.then("Reshape", "patches.flat", &[&x.name, &shape]);
    let name = net.transpose("patches", &flat, [0, 2, 1]);
    Wire { name, dims: vec![tokens, WIDTH], power: x.power }
}

/// The class token repeated for every row of the batch, then the patches.
fn with_class_token(net: &mut Net, x: &Wire) -> Wire {
    let token = net.centred_weight("class_token", &[1, 1, WIDTH], EMBEDDING_POWER);
    net.node("Shape", "batch", &[&x.name], vec![proto::int("end", 1)]);
    let rest = net.numbers(&[1, proto::dim(WIDTH)]);
    net.node("Concat", "class_token.shape", &["batch", &rest], vec![proto::int("axis", 0)]);
    let name = net.then("Expand", "class_token.batch", &[&token, "class_token.shape"]);
    let token = Wire { name, dims: vec![1, WIDTH], power: EMBEDDING_POWER };
    net.concat("tokens", &[token, x.clone()])
}

fn layer(net: &mut Net, name: &str, x: &Wire) -> Wire {
    let read = net.layer_norm(&format!("{name}.ln_1"), x, EPSILON);
    let packed = net.linear(&format!("{name}.self_attention.in_proj"), &read, 3 * WIDTH);
    let [q, k, v] = net.split_width(&format!("{name}.self_attention.split"), &packed);
    let with = Attention { heads: HEADS, mask: None };
    let context = net.attention(&format!("{name}.self_attention"), [&q, &k, &v], &with);
    let attended = net.linear(&format!("{name}.self_attention.out_proj"), &context, WIDTH);
    let x = net.add(&format!("{name}.self_attention.add"), x, &attended);
    let read = net.layer_norm(&format!("{name}.ln_2"), &x, EPSILON);
    let mut branch = net.linear(&format!("{name}.mlp.0"), &read, 4 * WIDTH);
    branch = net.gelu(&format!("{name}.mlp.1"), &branch);
    branch = net.linear(&format!("{name}.mlp.3"), &branch, WIDTH);
    net.add(&format!("{name}.mlp.add"), &x, &branch)
}
