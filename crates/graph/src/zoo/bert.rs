//! BERT-base (Devlin et al., 2018): an encoder of twelve layers, normalised after each residual, with its pooler.

use super::builder::{Net, Wire};
use super::proto;
use super::transformer::{Attention, FORBIDDEN};
use tract_onnx::pb::ModelProto;
use tract_onnx::pb::tensor_proto::DataType;

/// The longest row of tokens.
pub(super) const POSITIONS: usize = 512;

const VOCABULARY: usize = 30_522;
const TYPES: usize = 2;
const WIDTH: usize = 768;
const HEADS: usize = 12;
const LAYERS: usize = 12;
const EPSILON: f32 = 1e-12;

/// Wires it for rows of `tokens`.
pub(super) fn wire(mut net: Net, tokens: usize) -> ModelProto {
    let [ids, mask, types] =
        ["input_ids", "attention_mask", "token_type_ids"].map(|name| net.input_ids(name, &[tokens]));
    let mask = additive_mask(&mut net, &mask);
    let mut x = embeddings(&mut net, &ids, &types);
    for at in 0..LAYERS {
        x = layer(&mut net, &format!("encoder.layer.{at}"), &x, &mask);
    }
    let first = pick_first(&mut net, "pooler.first", &x);
    let pooled = net.dense("pooler.dense", &first, WIDTH);
    let pooled = Wire { name: net.then("Tanh", "pooler.activation", &[&pooled.name]), ..pooled };
    net.finish(&[("last_hidden_state", &x), ("pooler_output", &pooled)])
}

/// From 1 for a token and 0 for padding to 0 and [`FORBIDDEN`], for every head and asking token alike.
fn additive_mask(net: &mut Net, mask: &Wire) -> String {
    let axes = net.numbers(&[1, 2]);
    let wide = net.then("Unsqueeze", "mask.wide", &[&mask.name, &axes]);
    net.cast_to_float("mask.float", &wide);
    let [one, forbidden] = [1.0, FORBIDDEN].map(|value| net.scalar(value));
    let hidden = net.then("Sub", "mask.hidden", &[&one, "mask.float"]);
    net.then("Mul", "mask", &[&hidden, &forbidden])
}

fn embeddings(net: &mut Net, ids: &Wire, types: &Wire) -> Wire {
    let [words, kinds, positions] = [("word", VOCABULARY), ("token_type", TYPES), ("position", POSITIONS)]
        .map(|(name, rows)| {
            net.centred_weight(&format!("embeddings.{name}_embeddings.weight"), &[rows, WIDTH], 1.0)
        });
    let word = net.embed("embeddings.word", &words, ids, WIDTH, 1.0);
    let kind = net.embed("embeddings.token_type", &kinds, types, WIDTH, 1.0);
    let sum = net.add("embeddings.sum", &word, &kind);
    let sum = net.add_positions("embeddings.positioned", &positions, &sum, 1.0);
    net.layer_norm("embeddings.LayerNorm", &sum, EPSILON)
}

fn layer(net: &mut Net, name: &str, x: &Wire, mask: &str) -> Wire {
    let [q, k, v] =
        ["query", "key", "value"].map(|part| net.linear(&format!("{name}.attention.self.{part}"), x, WIDTH));
    let with = Attention { heads: HEADS, mask: Some(mask) };
    let context = net.attention(&format!("{name}.attention.self"), [&q, &k, &v], &with);
    let attended = net.linear(&format!("{name}.attention.output.dense"), &context, WIDTH);
    let sum = net.add(&format!("{name}.attention.output.add"), &attended, x);
    let x = net.layer_norm(&format!("{name}.attention.output.LayerNorm"), &sum, EPSILON);
    let mut wide = net.linear(&format!("{name}.intermediate.dense"), &x, 4 * WIDTH);
    wide = net.gelu(&format!("{name}.intermediate.gelu"), &wide);
    let narrow = net.linear(&format!("{name}.output.dense"), &wide, WIDTH);
    let sum = net.add(&format!("{name}.output.add"), &narrow, &x);
    net.layer_norm(&format!("{name}.output.LayerNorm"), &sum, EPSILON)
}

/// The first token of each row.
pub(super) fn pick_first(net: &mut Net, name: &str, x: &Wire) -> Wire {
    let zero = net.constant("index_0", |name| proto::tensor(name, &[], DataType::Int64, vec![0; 8]));
    net.node("Gather", name, &[&x.name, &zero], vec![proto::int("axis", 1)]);
    Wire { name: name.into(), dims: vec![x.dims[1]], power: x.power }
}
