//! GPT-2 (Radford et al., 2019): a decoder normalised before each branch, whose head shares the embeddings' weight.
//!
//! The whole row is computed at once, without a cache of keys and values; the causal mask is a constant.

use super::builder::{Net, Wire};
use super::proto;
use super::transformer::{Attention, FORBIDDEN};
use tract_onnx::pb::ModelProto;
use tract_onnx::pb::tensor_proto::DataType;

/// A member of the family.
pub(super) struct Shape {
    /// The longest row of tokens.
    pub(super) positions: usize,
    vocabulary: usize,
    width: usize,
    heads: usize,
    layers: usize,
}

/// The published small one.
pub(super) const SMALL: Shape =
    Shape { positions: 1_024, vocabulary: 50_257, width: 768, heads: 12, layers: 12 };

/// One for tests.
pub(super) const TINY: Shape = Shape { positions: 32, vocabulary: 64, width: 32, heads: 4, layers: 2 };

const EPSILON: f32 = 1e-5;

/// Mean square of an embedding: small beside what the layers add, and logits still differ.
const EMBEDDING_POWER: f32 = 0.01;

/// Wires it for rows of `tokens`.
pub(super) fn wire(mut net: Net, shape: &Shape, tokens: usize) -> ModelProto {
    let Shape { positions, vocabulary, width, .. } = *shape;
    let ids = net.input_ids("input_ids", &[tokens]);
    let words = net.centred_weight("wte.weight", &[vocabulary, width], EMBEDDING_POWER);
    let places = net.centred_weight("wpe.weight", &[positions, width], EMBEDDING_POWER);
    let word = net.embed("wte", &words, &ids, width, EMBEDDING_POWER);
    let mut x = net.add_positions("wpe", &places, &word, EMBEDDING_POWER);
    let mask = causal_mask(&mut net, tokens);
    for at in 0..shape.layers {
        x = layer(&mut net, &format!("h.{at}"), &x, shape.heads, &mask);
    }
    x = net.layer_norm("ln_f", &x, EPSILON);
    let logits = tied_head(&mut net, &x, &words, vocabulary);
    net.finish(&[("logits", &logits)])
}

fn layer(net: &mut Net, name: &str, x: &Wire, heads: usize, mask: &str) -> Wire {
    let width = x.dims[1];
    let read = net.layer_norm(&format!("{name}.ln_1"), x, EPSILON);
    let packed = net.linear(&format!("{name}.attn.c_attn"), &read, 3 * width);
    let [q, k, v] = net.split_width(&format!("{name}.attn.split"), &packed);
    let context =
        net.attention(&format!("{name}.attn"), [&q, &k, &v], &Attention { heads, mask: Some(mask) });
    let attended = net.linear(&format!("{name}.attn.c_proj"), &context, width);
    let x = net.add(&format!("{name}.attn.add"), x, &attended);
    let read = net.layer_norm(&format!("{name}.ln_2"), &x, EPSILON);
    let mut branch = net.linear(&format!("{name}.mlp.c_fc"), &read, 4 * width);
    branch = net.gelu_tanh(&format!("{name}.mlp.act"), &branch);
    branch = net.linear(&format!("{name}.mlp.c_proj"), &branch, width);
    net.add(&format!("{name}.mlp.add"), &x, &branch)
}

/// Zero where a token may look (itself and those before), forbidding elsewhere; for every row and head alike.
///
/// Stored as truth values and turned into numbers by nodes over constants, which every engine folds away.
fn causal_mask(net: &mut Net, tokens: usize) -> String {
    let places = (0..tokens).flat_map(|asking| (0..tokens).map(move |seen| (asking, seen)));
    let later: Vec<u8> = places.map(|(asking, seen)| u8::from(seen > asking)).collect();
    let dims = [1, 1, tokens, tokens];
    let later = net.constant("later_tokens", |name| proto::tensor(name, &dims, DataType::Bool, later));
    net.cast_to_float("causal_mask.float", &later);
    let forbidden = net.scalar(FORBIDDEN);
    net.then("Mul", "causal_mask", &["causal_mask.float", &forbidden])
}

/// Logits over the vocabulary, as one product over all tokens of the batch, so that the table is used as it is stored.
fn tied_head(net: &mut Net, x: &Wire, words: &str, vocabulary: usize) -> Wire {
    let [tokens, width] = [x.dims[0], x.dims[1]];
    let flat = net.numbers(&[-1, proto::dim(width)]);
    let flat = net.then("Reshape", "lm_head.flat", &[&x.name, &flat]);
    net.node("Gemm", "lm_head.product", &[&flat, words], vec![proto::int("transB", 1)]);
    let shape = net.numbers(&[-1, proto::dim(tokens), proto::dim(vocabulary)]);
    let name = net.then("Reshape", "lm_head", &["lm_head.product", &shape]);
    Wire { name, dims: vec![tokens, vocabulary], power: x.power * width as f32 * EMBEDDING_POWER }
}
