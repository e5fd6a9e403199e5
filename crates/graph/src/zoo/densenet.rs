//! DenseNet-121 (Huang et al., 2016): each layer reads everything that its block has made so far.

use super::CLASSES;
use super::builder::{Conv, Net, Pool, Wire};
use tract_onnx::pb::ModelProto;

const EPSILON: f32 = 1e-5;

/// Channels that a layer adds.
const GROWTH: usize = 32;

/// Wires it.
pub(super) fn wire(mut net: Net) -> ModelProto {
    let input = net.input("input", &[3, 224, 224]);
    let mut x = net.conv("features.conv0", &input, Conv::square(64, 7).stride(2).pad(3).without_bias());
    x = norm_relu(&mut net, "features.norm0", "features.relu0", &x);
    x = net.max_pool("features.pool0", &x, Pool::new(3, 2).pad(1));
    for (block, layers) in (1..).zip([6, 12, 24, 16]) {
        x = dense_block(&mut net, &format!("features.denseblock{block}"), x, layers);
        if block < 4 {
            x = transition(&mut net, &format!("features.transition{block}"), &x);
        }
    }
    x = norm_relu(&mut net, "features.norm5", "features.relu5", &x);
    x = net.global_pool("avgpool", &x);
    let logits = net.dense("classifier", &x, CLASSES);
    net.finish(&[("logits", &logits)])
}

fn dense_block(net: &mut Net, name: &str, x: Wire, layers: usize) -> Wire {
    let mut made = vec![x];
    for layer in 1..=layers {
        let name = format!("{name}.denselayer{layer}");
        let read =
            if made.len() == 1 { made[0].clone() } else { net.concat(&format!("{name}.concat"), &made) };
        let mut branch = norm_relu(net, &format!("{name}.norm1"), &format!("{name}.relu1"), &read);
        branch = net.conv(&format!("{name}.conv1"), &branch, Conv::square(4 * GROWTH, 1).without_bias());
        branch = norm_relu(net, &format!("{name}.norm2"), &format!("{name}.relu2"), &branch);
        made.push(net.conv(&format!("{name}.conv2"), &branch, Conv::square(GROWTH, 3).pad(1).without_bias()));
    }
    net.concat(&format!("{name}.concat"), &made)
}

fn transition(net: &mut Net, name: &str, x: &Wire) -> Wire {
    let half = Conv::square(x.dims[0] / 2, 1).without_bias();
    let mut x = norm_relu(net, &format!("{name}.norm"), &format!("{name}.relu"), x);
    x = net.conv(&format!("{name}.conv"), &x, half);
    net.average_pool(&format!("{name}.pool"), &x, Pool::new(2, 2))
}

fn norm_relu(net: &mut Net, norm: &str, relu: &str, x: &Wire) -> Wire {
    let normed = net.batch_norm(norm, x, EPSILON);
    net.relu(relu, &normed)
}
