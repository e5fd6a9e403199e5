//! Experiments: programs that measure what an issue names and leave `experiments/NAME/` behind. Run through
//! `cargo xtask bench NAME`, so that everything is built as elsewhere.

mod bars;
mod cluster;
mod cuda;
mod host;
mod knee;
mod packing;
mod plan;
mod plot;
mod spatial;
mod spine;
mod statistics;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = |name: &str| Path::new("experiments").join(name);
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["cluster", parts @ ..] => cluster::run(&folder("cluster"), parts),
        ["cuda", parts @ ..] => cuda::run(parts),
        ["pipeswitch"] => cuda::run(&["report"]),
        ["knee", parts @ ..] => knee::run(&folder("knee"), parts),
        ["packing"] => packing::run(&folder("packing")),
        ["plan", parts @ ..] => plan::run(&folder("plan"), parts),
        ["dstack", parts @ ..] => spatial::dstack(&folder("dstack"), parts),
        ["sgprs", parts @ ..] => spatial::sgprs(&folder("sgprs"), parts),
        ["spine", parts @ ..] => spine::run(&folder("spine"), parts),
        _ => Err(anyhow::anyhow!(
            "name an experiment: cluster [peers|speed|synergy|themis|sharing]…, knee [tables|cores|live DIR]…, dstack, sgprs, packing, spine [turns|simulator|segments|preemption|fidelity]…"
        )),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            host::say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
