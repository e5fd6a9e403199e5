//! VGG (Simonyan and Zisserman, 2014): stages of 3×3 convolutions between poolings, then three dense layers.

use super::CLASSES;
use super::builder::{Conv, Net, Pool};
use tract_onnx::pb::ModelProto;

/// Convolutions a stage in the network of 16 layers.
pub(super) const SIXTEEN: [usize; 5] = [2, 2, 3, 3, 3];

/// Convolutions a stage in the network of 19 layers.
pub(super) const NINETEEN: [usize; 5] = [2, 2, 4, 4, 4];

/// Wires it with `depths` convolutions a stage.
pub(super) fn wire(mut net: Net, depths: [usize; 5]) -> ModelProto {
    let mut x = net.input("input", &[3, 224, 224]);
    let mut at = 0;
    for (depth, channels) in depths.into_iter().zip([64, 128, 256, 512, 512]) {
        for _ in 0..depth {
            x = net.conv(&format!("features.{at}"), &x, Conv::square(channels, 3).pad(1));
            x = net.relu(&format!("features.{}", at + 1), &x);
            at += 2;
        }
        x = net.max_pool(&format!("features.{at}"), &x, Pool::new(2, 2));
        at += 1;
    }
    x = net.flatten("flatten", &x);
    x = net.dense("classifier.0", &x, 4_096);
    x = net.relu("classifier.1", &x);
    x = net.dense("classifier.3", &x, 4_096);
    x = net.relu("classifier.4", &x);
    let logits = net.dense("classifier.6", &x, CLASSES);
    net.finish(&[("logits", &logits)])
}
