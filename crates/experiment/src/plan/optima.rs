//! Contiguous optima: their digits, CPU time and memory, and how much faster they are found than by the published planner.

use super::{Settings, Workload, children_s, cpu_s, raddle, spread};
use crate::bars::Bars;
use crate::host;
use anyhow::Context as _;
use plan::formats::read_placement;
use plan::{Communication, Limits, place};
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

/// The published planner, compiled: a program that reads a workload on its standard input.
const RIVAL: &str = "RADDLE_PLAN_REFERENCE";

struct Row {
    name: String,
    value: String,
    expected: String,
    cpu_s: (f64, f64, f64),
    peak_bytes: f64,
    rival_s: Option<f64>,
}

pub(super) fn run(
    folder: &Path,
    settings: &Settings,
    workloads: &[Workload],
    bars: &mut Bars,
) -> anyhow::Result<()> {
    let rival = std::env::var_os(RIVAL);
    bars.note(match rival {
        Some(_) => "the published planner was compiled with -O3 and run here, on the same machine and load",
        None => "the published planner was not run (RADDLE_PLAN_REFERENCE names it): its times are those of the data's README, from another machine",
    });
    let mut rows = Vec::new();
    for workload in workloads {
        let path = workload.file(settings);
        let said = raddle(&["place", &path.to_string_lossy()])?;
        let value = said["placement"]["value_ms"].as_f64().context("a value")?;
        let peak_bytes = said["time"]["peak_bytes"].as_f64().context("peak memory")?;
        let mut times = Vec::with_capacity(settings.repeats);
        for _ in 0..settings.repeats {
            let start = cpu_s()?;
            let file = read_placement(&std::fs::read_to_string(&path)?)?;
            place(&file.graph, &file.devices, Communication::Serial, Limits::default())?;
            times.push(cpu_s()? - start);
        }
        let compared = settings.rivals.contains(&workload.name);
        let rival_s = match &rival {
            Some(program) if compared => {
                let start = children_s()?;
                let status = Command::new(program)
                    .stdin(File::open(&path)?)
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status()?;
                anyhow::ensure!(status.success(), "the published planner failed on {}", workload.name);
                Some(children_s()? - start)
            }
            _ => workload.rival_s.filter(|_| compared),
        };
        rows.push(Row {
            name: workload.name.clone(),
            value: format!("{value:.10}"),
            expected: workload.optimum.clone(),
            cpu_s: spread(times),
            peak_bytes,
            rival_s,
        });
    }
    report(&rows, bars);
    let line = |row: &Row| {
        let (median, least, most) = row.cpu_s;
        let rival = row.rival_s.map_or_else(String::new, |rival| format!("{rival:.2}"));
        format!(
            "{},{},{},{median:.6},{least:.6},{most:.6},{},{rival}",
            row.name, row.value, row.expected, row.peak_bytes
        )
    };
    host::csv(
        &folder.join("optima.csv"),
        "workload,value_ms,expected_ms,cpu_s,cpu_s_least,cpu_s_most,peak_bytes,published_cpu_s",
        rows.iter().map(line),
    )
}

fn report(rows: &[Row], bars: &mut Bars) {
    let equal = rows.iter().filter(|row| row.value == row.expected).count();
    bars.at_least("contiguous optima equal to all printed digits", equal as f64, 16.0, "");
    let slowest = rows.iter().map(|row| row.cpu_s.0).fold(0.0, f64::max);
    bars.at_most("slowest contiguous optimum, CPU", slowest, 1.0, " s");
    let largest = rows.iter().map(|row| row.peak_bytes).fold(0.0, f64::max) / 1e6;
    bars.at_most("memory of the largest, whole process", largest, 200.0, " MB");
    for row in rows {
        let (median, least, most) = row.cpu_s;
        bars.note(&format!("{}: {} ms, {median:.4} s ({least:.4} … {most:.4})", row.name, row.value));
        if let Some(rival) = row.rival_s {
            bars.at_least(
                &format!("{}: times faster than the published planner", row.name),
                rival / median,
                100.0,
                "×",
            );
        }
    }
}
