//! Two networks that load and run in a moment, for tests and the example model repository. The third tiny one is a
//! GPT-2 and lives there.

use super::builder::{Conv, Net};
use tract_onnx::pb::ModelProto;

const CLASSES: usize = 10;
const EPSILON: f32 = 1e-5;

/// 16×16 images through three convolutions, one of them inside a residual.
pub(super) fn cnn(mut net: Net) -> ModelProto {
    let input = net.input("input", &[3, 16, 16]);
    let mut x = net.conv("conv1", &input, Conv::square(16, 3).pad(1).without_bias());
    x = net.batch_norm("bn1", &x, EPSILON);
    x = net.relu("relu1", &x);
    x = net.conv("conv2", &x, Conv::square(32, 3).stride(2).pad(1));
    x = net.relu("relu2", &x);
    let mut branch = net.conv("conv3", &x, Conv::square(32, 3).pad(1).without_bias());
    branch = net.batch_norm("bn3", &branch, EPSILON);
    x = net.add("add", &branch, &x);
    x = net.relu("relu3", &x);
    x = net.global_pool("pool", &x);
    let logits = net.dense("fc", &x, CLASSES);
    net.finish(&[("logits", &logits)])
}

/// Vectors of 16 through three dense layers.
pub(super) fn mlp(mut net: Net) -> ModelProto {
    let input = net.input("input", &[16]);
    let mut x = net.dense("fc1", &input, 32);
    x = net.relu("relu1", &x);
    x = net.dense("fc2", &x, 32);
    x = net.relu("relu2", &x);
    let logits = net.dense("fc3", &x, CLASSES);
    net.finish(&[("logits", &logits)])
}
