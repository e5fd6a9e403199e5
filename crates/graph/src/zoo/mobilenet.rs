//! MobileNetV2 (Sandler et al., 2018): inverted residuals around depthwise convolutions, linear at the narrow ends.

use super::CLASSES;
use super::builder::{Conv, Net, Wire};
use tract_onnx::pb::ModelProto;

const EPSILON: f32 = 1e-5;

/// Stages: expansion, channels, blocks, stride of the first block.
const STAGES: [[usize; 4]; 7] = [
    [1, 16, 1, 1],
    [6, 24, 2, 2],
    [6, 32, 3, 2],
    [6, 64, 4, 2],
    [6, 96, 3, 1],
    [6, 160, 3, 2],
    [6, 320, 1, 1],
];

/// Wires it.
pub(super) fn wire(mut net: Net) -> ModelProto {
    let input = net.input("input", &[3, 224, 224]);
    let mut x = conv_norm_relu(&mut net, "features.0", &input, Conv::square(32, 3).stride(2).pad(1));
    let mut at = 1;
    for [expansion, channels, blocks, stride] in STAGES {
        for block in 0..blocks {
            let stride = if block == 0 { stride } else { 1 };
            x = inverted_residual(&mut net, &format!("features.{at}"), &x, expansion, channels, stride);
            at += 1;
        }
    }
    x = conv_norm_relu(&mut net, &format!("features.{at}"), &x, Conv::square(1_280, 1));
    x = net.global_pool("avgpool", &x);
    let logits = net.dense("classifier.1", &x, CLASSES);
    net.finish(&[("logits", &logits)])
}

fn inverted_residual(
    net: &mut Net,
    name: &str,
    x: &Wire,
    expansion: usize,
    channels: usize,
    stride: usize,
) -> Wire {
    let hidden = x.dims[0] * expansion;
    let mut branch = x.clone();
    let mut convs = vec![Conv::square(hidden, 3).stride(stride).pad(1).groups(hidden)];
    if expansion > 1 {
        convs.insert(0, Conv::square(hidden, 1));
    }
    let wide = convs.len();
    for (at, conv) in convs.into_iter().enumerate() {
        branch = conv_norm_relu(net, &format!("{name}.conv.{at}"), &branch, conv);
    }
    branch = net.conv(&format!("{name}.conv.{wide}"), &branch, Conv::square(channels, 1).without_bias());
    branch = net.batch_norm(&format!("{name}.conv.{}", wide + 1), &branch, EPSILON);
    if branch.dims == x.dims { net.add(&format!("{name}.add"), x, &branch) } else { branch }
}

fn conv_norm_relu(net: &mut Net, name: &str, x: &Wire, conv: Conv) -> Wire {
    let made = net.conv(&format!("{name}.0"), x, conv.without_bias());
    let normed = net.batch_norm(&format!("{name}.1"), &made, EPSILON);
    net.relu6(&format!("{name}.2"), &normed)
}
