//! Plans the published throughput workloads and prints value, proof, work and time of each, a line a workload.
//!
//! `cargo run -p plan --example reference -- FOLDER`, where FOLDER holds `LayerGraphs` and `OperatorGraphs`.
#![expect(clippy::print_stdout, reason = "a program that prints")]

use plan::formats::read_placement;
use plan::{Communication, Limits, place};
use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("name the folder of the workloads")?);
    for kind in ["LayerGraphs", "OperatorGraphs"] {
        let entries = std::fs::read_dir(folder.join(kind))?;
        let mut files =
            entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
        files.sort();
        for path in files {
            let file = read_placement(&std::fs::read_to_string(&path)?)?;
            let start = Instant::now();
            let (placement, report) =
                place(&file.graph, &file.devices, Communication::Serial, Limits::default())?;
            let time = start.elapsed();
            println!(
                "{:<42} {:16.10} lower {:16.10} {} parts {} {:?} {:?} {:.3} s",
                format!("{kind}/{}", path.file_stem().unwrap_or_default().to_string_lossy()),
                report.value_ms,
                report.lower_ms,
                if report.proved { "proved" } else { "unproved" },
                placement.parts.len(),
                report.binding,
                report.work,
                time.as_secs_f64(),
            );
        }
    }
    Ok(())
}
