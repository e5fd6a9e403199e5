//! Truncated, random and flipped bytes: an answer or an error, never a panic.

use super::Onnx;
use crate::{ImportLimits, Model};
use vocab::{Bytes, Rng};

/// Limits of a test: what a mutated header asks for stays affordable thousands of times over.
const LIMITS: ImportLimits = ImportLimits {
    file: Bytes(1 << 20),
    external: Bytes(1 << 20),
    derived: Bytes(16 << 20),
    value: Bytes(64 << 20),
    nodes: 64,
    depth: 4,
};

/// Small, and of many kinds: convolution, pooling, a shape computed at run time, attributes, constants.
fn small() -> Vec<u8> {
    let mut onnx = Onnx::new();
    onnx.input("x", &["N", "2", "6", "6"]).weight("w", &[3, 2, 3, 3], 0.0).weight("b", &[3], 0.0);
    onnx.node("Conv", &["x", "w", "b"], "c").with("pads", &[1, 1, 1, 1]).node("Relu", &["c"], "r");
    onnx.node("MaxPool", &["r"], "p").with("kernel_shape", &[2, 2]).with("strides", &[2, 2]);
    onnx.integers("shape", &[0, -1]).node("Reshape", &["p", "shape"], "f").weight("d", &[27, 4], 0.0);
    onnx.node("MatMul", &["f", "d"], "m").node("Softmax", &["m"], "y").with("axis", &[1]).output("y");
    onnx.bytes()
}

/// Imports, and sizes what imports; only a panic of ours, or one that escapes, fails the test.
fn survives(bytes: Vec<u8>) -> bool {
    Model::from_bytes("hostile", bytes, &LIMITS).is_ok_and(|model| {
        let free = model.free_dims().map(|dim| (dim.to_owned(), 2)).collect();
        model.at(&crate::Sizes { batch: 1, free }).is_ok()
    })
}

#[test]
fn truncated_files_are_refused() {
    let bytes = small();
    assert!(survives(bytes.clone()));
    let sound = (0..bytes.len()).filter(|end| survives(bytes[..*end].to_vec())).count();
    // A cut between the graph and what follows it leaves a whole graph.
    assert!(sound < 16, "{sound} truncations were taken for models");
}

#[test]
fn flipped_bytes_never_panic() {
    let bytes = small();
    let mut rng = Rng::new(1);
    let mut sound = 0;
    for _ in 0..3000 {
        let mut bytes = bytes.clone();
        for _ in 0..=rng.below(3) {
            let at = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
            bytes[at] = u8::try_from(rng.below(256)).unwrap();
        }
        sound += usize::from(survives(bytes));
    }
    assert!(sound > 100, "hardly any mutant reaches the analysis: {sound}");
}

#[test]
fn random_bytes_are_refused() {
    let mut rng = Rng::new(2);
    for length in 0..1000u64 {
        let bytes: Vec<u8> = (0..length % 200).map(|_| u8::try_from(rng.below(256)).unwrap()).collect();
        assert!(!survives(bytes));
    }
}

/// A graph field around random bytes gets further than bare ones.
#[test]
fn random_graphs_are_refused() {
    let mut rng = Rng::new(3);
    for _ in 0..1000 {
        let body: Vec<u8> = (0..rng.below(60)).map(|_| u8::try_from(rng.below(256)).unwrap()).collect();
        let mut bytes = vec![0x3a, u8::try_from(body.len()).unwrap()];
        bytes.extend(body);
        assert!(!survives(bytes));
    }
}
