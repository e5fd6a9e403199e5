//! The CUDA engine measured on a GPU: run there from a prebuilt binary, `experiment cuda PART --OUT FOLDER …`.

mod check;
mod cycles;
mod latency;
pub(crate) mod model;
mod preempt;
mod report;
mod several;
mod switch;

use anyhow::bail;
use std::path::Path;

/// Runs one part; whether every bar was met.
pub(crate) fn run(arguments: &[&str]) -> anyhow::Result<bool> {
    match arguments {
        ["report"] => report::run(Path::new("experiments/pipeswitch")),
        ["conformance"] => check::conformance(),
        ["check", out, precisions, batches, models @ ..] => {
            check::run(Path::new(out), precisions, batches, models)
        }
        ["audit", precision, batches, models @ ..] => check::audit(precision, batches, models),
        ["latency", out, precisions, batches, models @ ..] => {
            latency::run(Path::new(out), precisions, batches, models)
        }
        ["switch", out, precisions, models @ ..] => switch::run(Path::new(out), precisions, models),
        ["preempt", out, precision, low, high] => preempt::run(Path::new(out), precision, low, high),
        ["cycles", out, precision, batch, inference] => {
            cycles::run(Path::new(out), precision, batch, inference)
        }
        ["churn", out, precision, models @ ..] => cycles::churn(Path::new(out), precision, models),
        ["several", out, precision, models @ ..] => several::run(Path::new(out), precision, models),
        ["steps", precision, batch, model] => latency::steps(precision, batch, model),
        _ => bail!(
            "name a part: report | conformance | check OUT PRECISIONS BATCHES MODEL… | audit PRECISION BATCHES MODEL… | latency OUT PRECISIONS BATCHES MODEL… | \
             switch OUT PRECISIONS MODEL… | preempt OUT PRECISION LOW HIGH | cycles OUT PRECISION BATCH INFERENCE | \
             churn OUT PRECISION MODEL… | several OUT PRECISION MODEL… | steps PRECISION BATCH MODEL"
        ),
    }
}
