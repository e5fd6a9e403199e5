//! AlexNet in its one-tower form (Krizhevsky, 2014), as torchvision has it.

use super::CLASSES;
use super::builder::{Conv, Net, Pool};
use tract_onnx::pb::ModelProto;

/// Wires it.
pub(super) fn wire(mut net: Net) -> ModelProto {
    let input = net.input("input", &[3, 224, 224]);
    let pool = Pool::new(3, 2);
    let mut x = net.conv("features.0", &input, Conv::square(64, 11).stride(4).pad(2));
    x = net.relu("features.1", &x);
    x = net.max_pool("features.2", &x, pool);
    x = net.conv("features.3", &x, Conv::square(192, 5).pad(2));
    x = net.relu("features.4", &x);
    x = net.max_pool("features.5", &x, pool);
    for (at, channels) in [(6, 384), (8, 256), (10, 256)] {
        x = net.conv(&format!("features.{at}"), &x, Conv::square(channels, 3).pad(1));
        x = net.relu(&format!("features.{}", at + 1), &x);
    }
    x = net.max_pool("features.12", &x, pool);
    x = net.flatten("flatten", &x);
    x = net.dense("classifier.1", &x, 4_096);
    x = net.relu("classifier.2", &x);
    x = net.dense("classifier.4", &x, 4_096);
    x = net.relu("classifier.5", &x);
    let logits = net.dense("classifier.6", &x, CLASSES);
    net.finish(&[("logits", &logits)])
}
