//! Places the published throughput workloads without asking for contiguous parts: value, bound and time, a line each.
//!
//! `cargo run -p plan --example islands -- FOLDER MOVES`, where FOLDER holds `LayerGraphs` and `OperatorGraphs`.
#![expect(clippy::print_stdout, reason = "a program that prints")]

use plan::formats::read_placement;
use plan::{Communication, Limits, place_islands};
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
            let (_, report) = place_islands(
                &file.graph,
                &file.devices,
                Communication::Serial,
                Limits::default(),
                (0, moves),
            )?;
            println!(
                "{:<42} {:14.8} lower {:14.8} {} {:.3} s",
                format!("{kind}/{}", path.file_stem().unwrap_or_default().to_string_lossy()),
                report.value_ms,
                report.lower_ms,
                if report.proved { "proved" } else { "unproved" },
                start.elapsed().as_secs_f64(),
            );
        }
    }
    Ok(())
}
