//! Plans the published latency workloads: value, bound and time, a line each.
//!
//! `cargo run -p plan --example latency -- FOLDER MOVES`, where FOLDER holds `LayerGraphs` and `OperatorGraphs`.
#![expect(clippy::print_stdout, reason = "a program that prints")]

use plan::Limits;
use plan::formats::read_placement;
use plan::latency::place_latency;
use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("name the folder of the workloads")?);
    let moves: u64 = std::env::args().nth(2).ok_or("say how many moves are tried")?.parse()?;
    for kind in ["LayerGraphs", "OperatorGraphs"] {
        let entries = std::fs::read_dir(folder.join(kind))?;
        let mut files =
            entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
        files.sort();
        for path in files {
            let file = read_placement(&std::fs::read_to_string(&path)?)?;
            let start = Instant::now();
            let (plan, report) = place_latency(&file.graph, &file.devices, 1, Limits::default(), (0, moves))?;
            println!(
                "{:<36} {:10.4} lower {:10.4} {} calls, {} operators on the host, {:.3} s",
                path.file_stem().unwrap_or_default().to_string_lossy(),
                report.value_ms,
                report.lower_ms,
                plan.calls.len(),
                plan.host.len(),
                start.elapsed().as_secs_f64(),
            );
        }
    }
    Ok(())
}
