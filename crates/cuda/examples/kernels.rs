//! Compiles every kernel of ONNX files for sm_90, without a GPU: `kernels FILE…`.
#![expect(clippy::print_stdout, reason = "an example prints")]

use cuda::{Precision, check_kernels};
use graph::{ImportLimits, Model, Sizes};
use std::collections::BTreeMap;
use std::path::Path;

fn main() {
    let mut failed = 0;
    for file in std::env::args().skip(1) {
        let model = match Model::import("model", Path::new(&file), &ImportLimits::default()) {
            Ok(model) => model,
            Err(error) => {
                println!("{file}: {error}");
                continue;
            }
        };
        let free: BTreeMap<String, usize> = model.free_dims().map(|dim| (dim.to_owned(), 320)).collect();
        let batch = match model.batch() {
            graph::Batch::Baked { rows, .. } => *rows,
            _ => 2,
        };
        for precision in [Precision::Fp32, Precision::Tf32, Precision::Fp16, Precision::Bf16] {
            let outcome = match model.at(&Sizes { batch, free: free.clone() }) {
                Ok(graph) => check_kernels(&graph, precision, "sm_90"),
                Err(error) => Err(error.to_string()),
            };
            match outcome {
                Ok(kernels) => println!("{file} {}: {kernels} kernels", precision.name()),
                Err(why) => {
                    failed += 1;
                    println!("{file} {}: {why}", precision.name());
                }
            }
        }
    }
    assert_eq!(failed, 0, "{failed} failed");
}
