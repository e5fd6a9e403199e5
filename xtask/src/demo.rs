//! An example repository, made on the spot, and a server on it.

use crate::{cache, cargo};
use std::process::Command;

/// Networks of the example: two tiny ones, and three of everyday size.
const NETWORKS: [&str; 5] = ["tiny_mlp", "tiny_cnn", "squeezenet1_0", "mobilenet_v2", "resnet18"];

/// Builds raddle, writes the example repository and serves it with `arguments` added.
pub(crate) fn run(arguments: &[&str]) -> anyhow::Result<()> {
    crate::run(cargo().args(["build", "--workspace", "--bins"]))?;
    let raddle = crate::target().join("debug/raddle");
    let repository = cache().join("demo");
    if !NETWORKS.iter().all(|name| repository.join(name).join("1/model.onnx").exists()) {
        crate::run(Command::new(&raddle).arg("zoo").args(NETWORKS).arg("--output").arg(&repository))?;
    }
    crate::run(Command::new(&raddle).arg("serve").arg(&repository).args(arguments))
}
