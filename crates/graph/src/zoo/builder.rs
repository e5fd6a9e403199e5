//! Wires a network node by node, making its seeded weights on the way.
//!
//! ```text
//! input ── conv("features.0") ──▶ Wire{name, dims, power} ── relu(..) ──▶ … ── finish(["logits"])
//! ```
//!
//! A [`Wire`] knows its dimensions (the batch left out, it is symbolic) and its *power*: the mean square one expects of
//! its elements. Each layer scales its weights by the power it reads, so that activations neither vanish nor explode
//! however deep the network is. The rules for power are rough on purpose; a factor of two is harmless.

use super::proto;
use std::collections::BTreeSet;
use tract_onnx::pb::tensor_proto::DataType;
use tract_onnx::pb::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto};
use vocab::Rng;

/// What the names of constants that nobody trains begin with.
pub(super) const CONSTANT: &str = "constant.";

/// A network under construction.
pub(super) struct Net {
    rng: Rng,
    graph: GraphProto,
    constants: BTreeSet<String>,
}

/// A value of the network.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    /// The ONNX value.
    pub(super) name: String,
    /// Dimensions after the batch.
    pub(super) dims: Vec<usize>,
    /// The mean square expected of an element.
    pub(super) power: f32,
}

/// A two-dimensional convolution.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conv {
    out: usize,
    kernel: [usize; 2],
    stride: usize,
    pad: [usize; 2],
    groups: usize,
    bias: bool,
}

/// A two-dimensional, square pooling window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pool {
    kernel: usize,
    stride: usize,
    pad: usize,
    ceil: bool,
}

impl Conv {
    /// `out` channels through a square kernel; stride 1, no padding, one group, with a bias.
    pub(super) const fn square(out: usize, kernel: usize) -> Self {
        Self { out, kernel: [kernel, kernel], stride: 1, pad: [0, 0], groups: 1, bias: true }
    }

    /// `out` channels through a kernel of odd sides, padded so that the image keeps its size.
    pub(super) const fn keeping_size(out: usize, kernel: [usize; 2]) -> Self {
        Self { kernel, pad: [kernel[0] / 2, kernel[1] / 2], ..Self::square(out, 1) }
    }

    /// Steps of `stride` pixels.
    pub(super) const fn stride(self, stride: usize) -> Self {
        Self { stride, ..self }
    }

    /// `pad` zeros on every side.
    pub(super) const fn pad(self, pad: usize) -> Self {
        Self { pad: [pad, pad], ..self }
    }

    /// Channels split into `groups` that do not see each other.
    pub(super) const fn groups(self, groups: usize) -> Self {
        Self { groups, ..self }
    }

    /// No bias, as before a batch normalisation.
    pub(super) const fn without_bias(self) -> Self {
        Self { bias: false, ..self }
    }
}

impl Pool {
    /// A window of `kernel` pixels in steps of `stride`, unpadded, dropping what does not fill a window.
    pub(super) const fn new(kernel: usize, stride: usize) -> Self {
        Self { kernel, stride, pad: 0, ceil: false }
    }

    /// `pad` pixels on every side.
    pub(super) const fn pad(self, pad: usize) -> Self {
        Self { pad, ..self }
    }

    /// Keeps the last window even when it is not full.
    pub(super) const fn rounding_up(self) -> Self {
        Self { ceil: true, ..self }
    }

    fn out_size(self, size: usize) -> usize {
        let span = size + 2 * self.pad - self.kernel;
        1 + if self.ceil { span.div_ceil(self.stride) } else { span / self.stride }
    }
}

/// What a network needs first: inputs, weights, nodes, outputs.
impl Net {
    /// An empty network called `name`, whose weights follow from `seed`.
    pub(super) fn new(name: &str, seed: u64) -> Self {
        let graph = GraphProto { name: name.into(), ..GraphProto::default() };
        Self { rng: Rng::new(seed), graph, constants: BTreeSet::new() }
    }

    /// A floating-point input.
    pub(super) fn input(&mut self, name: &str, dims: &[usize]) -> Wire {
        self.graph.input.push(proto::value_info(name, DataType::Float, dims));
        Wire { name: name.into(), dims: dims.to_vec(), power: 1.0 }
    }

    /// An input of token numbers or masks.
    pub(super) fn input_ids(&mut self, name: &str, dims: &[usize]) -> Wire {
        self.graph.input.push(proto::value_info(name, DataType::Int64, dims));
        Wire { name: name.into(), dims: dims.to_vec(), power: 1.0 }
    }

    /// A trainable weight, evenly distributed over `low..high`; its values depend on the seed and its name alone.
    pub(super) fn weight(&mut self, name: &str, dims: &[usize], low: f32, high: f32) -> String {
        let mut rng = self.rng.fork(name_hash(name));
        let bytes = uniform(&mut rng, dims.iter().product(), low, high);
        self.graph.initializer.push(proto::tensor(name, dims, DataType::Float, bytes));
        name.into()
    }

    /// A trainable weight around zero with the given mean square.
    pub(super) fn centred_weight(&mut self, name: &str, dims: &[usize], power: f32) -> String {
        let bound = (3.0 * power).sqrt();
        self.weight(name, dims, -bound, bound)
    }

    /// A constant scalar, shared by all that ask for the same value.
    pub(super) fn scalar(&mut self, value: f32) -> String {
        self.constant(&format!("scalar_{value:?}"), |name| proto::floats_tensor(name, &[], &[value]))
    }

    /// A constant vector of integers, shared by all that ask for the same values.
    pub(super) fn numbers(&mut self, values: &[i64]) -> String {
        let parts: Vec<String> = values.iter().map(ToString::to_string).collect();
        self.constant(&format!("numbers_{}", parts.join("_")), |name| proto::ints_tensor(name, values))
    }

    /// A constant made at most once under its name.
    pub(super) fn constant(&mut self, suffix: &str, make: impl FnOnce(&str) -> TensorProto) -> String {
        let name = format!("{CONSTANT}{suffix}");
        if self.constants.insert(name.clone()) {
            self.graph.initializer.push(make(&name));
        }
        name
    }

    /// A node with one output, named like the node.
    pub(super) fn node(&mut self, op: &str, name: &str, inputs: &[&str], attributes: Vec<AttributeProto>) {
        self.node_of(op, name, inputs, &[name.to_owned()], attributes);
    }

    /// A node with the outputs given.
    pub(super) fn node_of(
        &mut self,
        op: &str,
        name: &str,
        inputs: &[&str],
        outputs: &[String],
        attribute: Vec<AttributeProto>,
    ) {
        self.graph.node.push(NodeProto {
            op_type: op.into(),
            name: name.into(),
            input: inputs.iter().map(|input| (*input).to_owned()).collect(),
            output: outputs.to_vec(),
            attribute,
            ..NodeProto::default()
        });
    }

    /// The finished model; each wire of `outputs` is renamed as its output asks.
    pub(super) fn finish(mut self, outputs: &[(&str, &Wire)]) -> ModelProto {
        for (name, wire) in outputs {
            self.graph.output.push(proto::value_info(name, DataType::Float, &wire.dims));
            let uses =
                self.graph.node.iter_mut().flat_map(|node| node.input.iter_mut().chain(&mut node.output));
            for used in uses.filter(|used| **used == wire.name) {
                (*name).clone_into(used);
            }
        }
        proto::model(self.graph)
    }
}

/// The layers of convolutional networks.
impl Net {
    /// A convolution; its output has power 1 or so.
    pub(super) fn conv(&mut self, name: &str, x: &Wire, conv: Conv) -> Wire {
        let [channels, height, width] = image(x);
        let [tall, wide] = conv.kernel;
        let group = channels / conv.groups;
        let fan_in = group * tall * wide;
        let power = 1.0 / (fan_in as f32 * x.power);
        let weight = self.centred_weight(&format!("{name}.weight"), &[conv.out, group, tall, wide], power);
        let mut inputs = vec![x.name.clone(), weight];
        if conv.bias {
            inputs.push(self.bias(name, conv.out));
        }
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let [kernel, pad] = [conv.kernel, conv.pad].map(|pair| pair.map(proto::dim));
        let stride = proto::dim(conv.stride);
        let attributes = vec![
            proto::ints("kernel_shape", &kernel),
            proto::ints("strides", &[stride, stride]),
            proto::ints("pads", &[pad[0], pad[1], pad[0], pad[1]]),
            proto::int("group", proto::dim(conv.groups)),
        ];
        self.node("Conv", name, &inputs, attributes);
        let out_size =
            |size: usize, axis: usize| (size + 2 * conv.pad[axis] - conv.kernel[axis]) / conv.stride + 1;
        Wire { name: name.into(), dims: vec![conv.out, out_size(height, 0), out_size(width, 1)], power: 1.0 }
    }

    /// A batch normalisation by stored statistics, which fit the power it reads.
    pub(super) fn batch_norm(&mut self, name: &str, x: &Wire, epsilon: f32) -> Wire {
        let channels = &x.dims[..1];
        let deviation = x.power.sqrt();
        let parameters = [
            self.weight(&format!("{name}.weight"), channels, 0.8, 1.2),
            self.weight(&format!("{name}.bias"), channels, -0.2, 0.2),
            self.weight(&format!("{name}.running_mean"), channels, -0.2 * deviation, 0.2 * deviation),
            self.weight(&format!("{name}.running_var"), channels, 0.7 * x.power, 1.4 * x.power),
        ];
        let [scale, bias, mean, variance] = parameters.each_ref().map(String::as_str);
        let inputs = [x.name.as_str(), scale, bias, mean, variance];
        self.node("BatchNormalization", name, &inputs, vec![proto::float("epsilon", epsilon)]);
        Wire { name: name.into(), power: 1.0, ..x.clone() }
    }

    /// The positive part.
    pub(super) fn relu(&mut self, name: &str, x: &Wire) -> Wire {
        self.node("Relu", name, &[&x.name], vec![]);
        Wire { name: name.into(), power: x.power * 0.5, ..x.clone() }
    }

    /// The positive part, at most 6.
    pub(super) fn relu6(&mut self, name: &str, x: &Wire) -> Wire {
        let [low, high] = [self.scalar(0.0), self.scalar(6.0)];
        self.node("Clip", name, &[&x.name, &low, &high], vec![]);
        Wire { name: name.into(), power: x.power * 0.5, ..x.clone() }
    }

    /// The largest of each window.
    pub(super) fn max_pool(&mut self, name: &str, x: &Wire, pool: Pool) -> Wire {
        self.pool("MaxPool", name, x, pool, 2.0)
    }

    /// The mean of each window, padding included.
    pub(super) fn average_pool(&mut self, name: &str, x: &Wire, pool: Pool) -> Wire {
        self.pool("AveragePool", name, x, pool, 0.6)
    }

    /// The mean of each channel, as a vector.
    pub(super) fn global_pool(&mut self, name: &str, x: &Wire) -> Wire {
        self.node("GlobalAveragePool", name, &[&x.name], vec![]);
        let pooled = Wire { name: name.into(), dims: vec![x.dims[0], 1, 1], power: x.power * 0.4 };
        self.flatten(&format!("{name}.flatten"), &pooled)
    }

    /// All elements of a row, as a vector.
    pub(super) fn flatten(&mut self, name: &str, x: &Wire) -> Wire {
        self.node("Flatten", name, &[&x.name], vec![proto::int("axis", 1)]);
        Wire { name: name.into(), dims: vec![x.dims.iter().product()], power: x.power }
    }

    /// A fully connected layer over a vector; its output has power 1 or so.
    pub(super) fn dense(&mut self, name: &str, x: &Wire, out: usize) -> Wire {
        let fan_in = x.dims[0];
        let power = 1.0 / (fan_in as f32 * x.power);
        let weight = self.centred_weight(&format!("{name}.weight"), &[out, fan_in], power);
        let bias = self.bias(name, out);
        self.node("Gemm", name, &[&x.name, &weight, &bias], vec![proto::int("transB", 1)]);
        Wire { name: name.into(), dims: vec![out], power: 1.0 }
    }

    /// The sum of two values of one shape.
    pub(super) fn add(&mut self, name: &str, a: &Wire, b: &Wire) -> Wire {
        assert_eq!(a.dims, b.dims, "{name} adds values of one shape");
        self.node("Add", name, &[&a.name, &b.name], vec![]);
        Wire { name: name.into(), dims: a.dims.clone(), power: a.power + b.power }
    }

    /// `parts` one after another along their first dimension after the batch.
    pub(super) fn concat(&mut self, name: &str, parts: &[Wire]) -> Wire {
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        self.node("Concat", name, &names, vec![proto::int("axis", 1)]);
        let mut dims = parts[0].dims.clone();
        dims[0] = parts.iter().map(|part| part.dims[0]).sum();
        let power = parts.iter().map(|part| part.power * part.dims[0] as f32).sum::<f32>() / dims[0] as f32;
        Wire { name: name.into(), dims, power }
    }

    /// The bias of layer `name`.
    pub(super) fn bias(&mut self, name: &str, len: usize) -> String {
        self.weight(&format!("{name}.bias"), &[len], -0.1, 0.1)
    }

    fn pool(&mut self, op: &str, name: &str, x: &Wire, pool: Pool, gain: f32) -> Wire {
        let [channels, height, width] = image(x);
        let [kernel, stride, pad] = [pool.kernel, pool.stride, pool.pad].map(proto::dim);
        let mut attributes = vec![
            proto::ints("kernel_shape", &[kernel, kernel]),
            proto::ints("strides", &[stride, stride]),
            proto::ints("pads", &[pad; 4]),
        ];
        if pool.ceil {
            attributes.push(proto::int("ceil_mode", 1));
        }
        if op == "AveragePool" && pool.pad > 0 {
            attributes.push(proto::int("count_include_pad", 1));
        }
        self.node(op, name, &[&x.name], attributes);
        let dims = vec![channels, pool.out_size(height), pool.out_size(width)];
        Wire { name: name.into(), dims, power: x.power * gain }
    }
}

fn image(x: &Wire) -> [usize; 3] {
    x.dims.as_slice().try_into().expect("the zoo convolves and pools images only: channels, height, width")
}

/// `count` floats over `low..high` in little-endian bytes, 24 random bits each.
fn uniform(rng: &mut Rng, count: usize, low: f32, high: f32) -> Vec<u8> {
    let step = (high - low) / 16_777_216.0;
    let value = |bits: [u8; 3]| {
        let steps = u32::from_le_bytes([bits[0], bits[1], bits[2], 0]);
        (low + steps as f32 * step).to_le_bytes()
    };
    let mut bytes = vec![0; count * 4];
    for pair in bytes.chunks_mut(8) {
        let [a, b, c, d, e, f, _, _] = rng.next_u64().to_le_bytes();
        pair[..4].copy_from_slice(&value([a, b, c]));
        if let Some(second) = pair.get_mut(4..) {
            second.copy_from_slice(&value([d, e, f])[..second.len()]);
        }
    }
    bytes
}

/// FNV-1a: a weight's stream depends on its name, so that adding a layer changes no other weight.
fn name_hash(name: &str) -> u64 {
    name.bytes()
        .fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}
