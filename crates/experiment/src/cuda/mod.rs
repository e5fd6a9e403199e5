//! The CUDA engine measured on a GPU: run there from a prebuilt binary, `experiment cuda PART --OUT FOLDER …`.

mod check;
mod latency;
mod model;

use anyhow::bail;
use std::path::Path;

/// Runs one part; whether every bar was met.
pub(crate) fn run(arguments: &[&str]) -> anyhow::Result<bool> {
    match arguments {
        ["conformance"] => check::conformance(),
        ["check", out, precisions, batches, models @ ..] => {
            check::run(Path::new(out), precisions, batches, models)
        }
        ["latency", out, precisions, batches, models @ ..] => {
            latency::run(Path::new(out), precisions, batches, models)
        }
        ["steps", precision, batch, model] => latency::steps(precision, batch, model),
        _ => bail!(
            "name a part: conformance | check OUT PRECISIONS BATCHES MODEL… | latency OUT PRECISIONS BATCHES MODEL… | \
             steps PRECISION BATCH MODEL"
        ),
    }
}
