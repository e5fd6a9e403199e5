//! The layers of transformers, over rows of tokens: wires of dimensions tokens × width.

use super::builder::{Net, Wire};
use super::proto;
use tract_onnx::pb::tensor_proto::DataType;

/// How many heads attention has, and what keeps a token from looking at another.
pub(super) struct Attention<'a> {
    /// Heads, which split the width evenly.
    pub(super) heads: usize,
    /// A value added to every head's scores, very negative where looking is forbidden.
    pub(super) mask: Option<&'a str>,
}

/// Added to a score, it makes its softmax vanish.
pub(super) const FORBIDDEN: f32 = -10_000.0;

/// The mean square expected of attention's output, a mean over many tokens, for values of mean square 1.
const MEAN_POWER: f32 = 0.1;

/// The mean square of a GELU of normal values.
const GELU_POWER: f32 = 0.43;

impl Net {
    /// Layer normalisation over the width.
    pub(super) fn layer_norm(&mut self, name: &str, x: &Wire, epsilon: f32) -> Wire {
        let width = width(x);
        let scale = self.weight(&format!("{name}.weight"), &[width], 0.8, 1.2);
        let bias = self.bias(name, width);
        let attributes = vec![proto::int("axis", -1), proto::float("epsilon", epsilon)];
        self.node("LayerNormalization", name, &[&x.name, &scale, &bias], attributes);
        Wire { name: name.into(), power: 1.0, ..x.clone() }
    }

    /// A fully connected layer for each token, its weight stored input × output.
    pub(super) fn linear(&mut self, name: &str, x: &Wire, out: usize) -> Wire {
        let fan_in = width(x);
        let power = 1.0 / (fan_in as f32 * x.power);
        let weight = self.centred_weight(&format!("{name}.weight"), &[fan_in, out], power);
        let bias = self.bias(name, out);
        let product = format!("{name}.matmul");
        self.node("MatMul", &product, &[&x.name, &weight], vec![]);
        self.node("Add", name, &[&product, &bias], vec![]);
        Wire { name: name.into(), dims: vec![x.dims[0], out], power: 1.0 }
    }

    /// `parts` equal slices of the width.
    pub(super) fn split_width<const PARTS: usize>(&mut self, name: &str, x: &Wire) -> [Wire; PARTS] {
        let width = width(x) / PARTS;
        let names: [String; PARTS] = std::array::from_fn(|part| format!("{name}.{part}"));
        let sizes = self.numbers(&[proto::dim(width); PARTS]);
        self.node_of("Split", name, &[&x.name, &sizes], &names, vec![proto::int("axis", 2)]);
        names.map(|name| Wire { name, dims: vec![x.dims[0], width], power: x.power })
    }

    /// Scaled dot-product attention (Vaswani et al., 2017) of queries, keys and values.
    pub(super) fn attention(&mut self, name: &str, [q, k, v]: [&Wire; 3], with: &Attention<'_>) -> Wire {
        let [tokens, width] = [q.dims[0], width(q)];
        let head_width = width / with.heads;
        let q_heads = self.heads(&format!("{name}.query"), q, with.heads, [0, 2, 1, 3]);
        let k_heads = self.heads(&format!("{name}.key"), k, with.heads, [0, 2, 3, 1]);
        let v_heads = self.heads(&format!("{name}.value"), v, with.heads, [0, 2, 1, 3]);
        let mut scores = format!("{name}.scores");
        self.node("MatMul", &scores, &[&q_heads, &k_heads], vec![]);
        let scale = self.scalar(1.0 / (head_width as f32).sqrt());
        scores = self.then("Mul", &format!("{name}.scaled"), &[&scores, &scale]);
        if let Some(mask) = with.mask {
            scores = self.then("Add", &format!("{name}.masked"), &[&scores, mask]);
        }
        let softmax = format!("{name}.softmax");
        self.node("Softmax", &softmax, &[&scores], vec![proto::int("axis", -1)]);
        let mixed = self.then("MatMul", &format!("{name}.mixed"), &[&softmax, &v_heads]);
        let together = self.transpose(&format!("{name}.together"), &mixed, [0, 2, 1, 3]);
        let shape = self.numbers(&[0, proto::dim(tokens), proto::dim(width)]);
        let name = self.then("Reshape", &format!("{name}.context"), &[&together, &shape]);
        Wire { name, dims: q.dims.clone(), power: v.power * MEAN_POWER }
    }

    /// The exact Gaussian error unit: `x/2 · (1 + erf(x/√2))`.
    pub(super) fn gelu(&mut self, name: &str, x: &Wire) -> Wire {
        let [root, one, half] = [std::f32::consts::SQRT_2, 1.0, 0.5].map(|value| self.scalar(value));
        let scaled = self.then("Div", &format!("{name}.scaled"), &[&x.name, &root]);
        let erf = self.then("Erf", &format!("{name}.erf"), &[&scaled]);
        let gate = self.then("Add", &format!("{name}.gate"), &[&erf, &one]);
        let product = self.then("Mul", &format!("{name}.product"), &[&x.name, &gate]);
        let name = self.then("Mul", name, &[&product, &half]);
        Wire { name, power: x.power * GELU_POWER, ..x.clone() }
    }

    /// The Gaussian error unit as GPT-2 approximates it: `x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³)))`.
    pub(super) fn gelu_tanh(&mut self, name: &str, x: &Wire) -> Wire {
        let slope = (2.0 / std::f32::consts::PI).sqrt();
        let [three, share, slope, one, half] =
            [3.0, 0.044_715, slope, 1.0, 0.5].map(|value| self.scalar(value));
        let cube = self.then("Pow", &format!("{name}.cube"), &[&x.name, &three]);
        let small = self.then("Mul", &format!("{name}.small"), &[&cube, &share]);
        let bent = self.then("Add", &format!("{name}.bent"), &[&x.name, &small]);
        let scaled = self.then("Mul", &format!("{name}.scaled"), &[&bent, &slope]);
        let tanh = self.then("Tanh", &format!("{name}.tanh"), &[&scaled]);
        let gate = self.then("Add", &format!("{name}.gate"), &[&tanh, &one]);
        let halved = self.then("Mul", &format!("{name}.half"), &[&x.name, &half]);
        let name = self.then("Mul", name, &[&halved, &gate]);
        Wire { name, power: x.power * GELU_POWER, ..x.clone() }
    }

    /// The rows of `table` that `ids` name.
    pub(super) fn embed(&mut self, name: &str, table: &str, ids: &Wire, width: usize, power: f32) -> Wire {
        let name = self.then("Gather", name, &[table, &ids.name]);
        Wire { name, dims: vec![ids.dims[0], width], power }
    }

    /// The first `tokens` rows of a table of positions, added to every row of the batch.
    pub(super) fn add_positions(&mut self, name: &str, table: &str, x: &Wire, power: f32) -> Wire {
        let [first, end] = [0, proto::dim(x.dims[0])].map(|at| self.numbers(&[at]));
        let rows = self.then("Slice", &format!("{name}.positions"), &[table, &first, &end, &first]);
        let name = self.then("Add", name, &[&x.name, &rows]);
        Wire { name, power: x.power + power, ..x.clone() }
    }

    /// Numbers or truth values as floats.
    pub(super) fn cast_to_float(&mut self, name: &str, x: &str) {
        let float = i64::from(i32::from(DataType::Float));
        self.node("Cast", name, &[x], vec![proto::int("to", float)]);
    }

    /// A node without attributes; gives back its name, which is its output's.
    pub(super) fn then(&mut self, op: &str, name: &str, inputs: &[&str]) -> String {
        self.node(op, name, inputs, vec![]);
        name.into()
    }

    /// The dimensions of `x` in another order.
    pub(super) fn transpose<const RANK: usize>(&mut self, name: &str, x: &str, order: [i64; RANK]) -> String {
        self.node("Transpose", name, &[x], vec![proto::ints("perm", &order)]);
        name.into()
    }

    /// The width split into heads, then dimensions in the order given.
    fn heads(&mut self, name: &str, x: &Wire, heads: usize, order: [i64; 4]) -> String {
        let split = [x.dims[0], heads, width(x) / heads].map(proto::dim);
        let shape = self.numbers(&[0, split[0], split[1], split[2]]);
        let parted = self.then("Reshape", &format!("{name}.parted"), &[&x.name, &shape]);
        self.transpose(&format!("{name}.heads"), &parted, order)
    }
}

fn width(x: &Wire) -> usize {
    *x.dims.last().expect("a transformer's wires have tokens and a width")
}
