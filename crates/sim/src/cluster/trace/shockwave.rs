//! Shockwave's traces (NSDI'23): Gavel's layout with the way a job's batch changes and its expected duration.

use super::table::Table;
use super::{Trace, TraceError, TraceJob};
use vocab::{Bytes, Span, Time};

const COLUMNS: [&str; 12] = [
    "job_type",
    "command",
    "directory",
    "steps_arg",
    "needs_data",
    "total_steps",
    "scale_factor",
    "mode",
    "priority",
    "slo",
    "duration",
    "arrival",
];

/// Reads a trace; a job takes the duration the trace expects, whatever its batch does meanwhile.
///
/// # Errors
/// When anything is wrong with it: every problem, with its line.
pub fn shockwave(text: &str) -> Result<Trace, TraceError> {
    let (jobs, problems) = Table::bare(text, &COLUMNS, '\t').read(|row| {
        let (gpus, arrival) = (row.gpus("scale_factor"), row.number("arrival"));
        let duration = row.number("duration");
        let mode = row.text("mode");
        if !["static", "accordion", "gns"].contains(&mode) {
            row.problem(format!("mode is \"{mode}\", not static, accordion or gns"));
        }
        Some(TraceJob {
            line: row.line,
            name: (row.line - 1).to_string(),
            arrival: Time::ZERO + Span::from_secs_f64(arrival?),
            gpus: gpus?,
            iterations: 1,
            iteration: Span::from_secs_f64(duration?),
            restart: Span::ZERO,
            model: row.text("job_type").to_owned(),
            cpu_milli: 0,
            memory: Bytes(0),
            speedup_micro: 1_000_000,
            batch: 0,
        })
    });
    Trace::checked(jobs, problems)
}
