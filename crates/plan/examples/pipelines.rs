//! Plans every profile of a folder for four machines of four devices and prints values and times, a line a profile.
//!
//! `cargo run -p plan --example pipelines -- FOLDER`, where FOLDER holds `*.graph.txt`.
#![expect(clippy::print_stdout, reason = "a program that prints")]

use plan::formats::{Link, read_pipedream};
use plan::pipeline::{Discipline, Level, Transfers, plan_pipeline, plan_published};
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).ok_or("name the folder of the profiles")?;
    let entries = std::fs::read_dir(folder)?;
    let mut files = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
    files.retain(|file| file.to_string_lossy().ends_with(".graph.txt"));
    files.sort();
    let levels =
        [Level { machines: 4, bytes_per_second: 12e9 }, Level { machines: 4, bytes_per_second: 1.25e9 }];
    for path in files {
        let graph = read_pipedream(&std::fs::read_to_string(&path)?, Link { bytes_per_second: 12e9 })?;
        let start = Instant::now();
        let published = match plan_published(&graph, &levels, Transfers::Ignored) {
            Ok(plan) => format!("{:.7} s", plan.seconds),
            Err(error) => error.to_string(),
        };
        let middle = Instant::now();
        let (plan, report) = plan_pipeline(&graph, &levels, None, Discipline::Stashing, &|| false)?;
        let proof = if report.proved { "proved" } else { "unproved" };
        println!(
            "{:<28} published {published} in {:.3} s; default {:.7} s, at least {:.7} s, {proof}, {} cuts, in {:.3} s",
            path.file_name().unwrap_or_default().to_string_lossy(),
            (middle - start).as_secs_f64(),
            report.seconds,
            report.lower_seconds,
            plan.cuts,
            middle.elapsed().as_secs_f64(),
        );
    }
    Ok(())
}
