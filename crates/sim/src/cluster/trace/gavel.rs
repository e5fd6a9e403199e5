//! Gavel's traces (OSDI'20): tab separated, no header, steps of a model that a table of throughputs turns into time.
//!
//! Two layouts are in use, told apart by their number of columns: 10 (later) and 7 (earlier, one Philly cluster a file).

use super::table::Table;
use super::{Trace, TraceError, TraceJob};
use crate::cluster::Throughputs;
use vocab::{Bytes, Span, Time};

const LATER: [&str; 10] = [
    "job_type",
    "command",
    "directory",
    "steps_arg",
    "needs_data",
    "total_steps",
    "scale_factor",
    "priority",
    "slo",
    "arrival",
];

const EARLIER: [&str; 7] =
    ["job_type", "command", "steps_arg", "needs_data", "total_steps", "arrival", "scale_factor"];

/// The kind of GPU that jobs are timed on.
const KIND: &str = "v100";

/// Reads a trace in either layout; a job's time is that on V100s of one server. A model that was not measured on as many
/// GPUs takes as long as on one, which a note says.
///
/// # Errors
/// When anything is wrong with it: every problem, with its line.
pub fn gavel(text: &str, throughputs: &Throughputs) -> Result<Trace, TraceError> {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let columns: &[&str] = if first.split('\t').count() == EARLIER.len() { &EARLIER } else { &LATER };
    let mut stretched = 0;
    let (jobs, problems) = Table::bare(text, columns, '\t').read(|row| {
        let (gpus, arrival, steps) =
            (row.gpus("scale_factor"), row.number("arrival"), row.whole("total_steps"));
        let model = row.text("job_type").to_owned();
        let gpus = gpus?;
        let measured = throughputs.alone(KIND, &model, gpus);
        stretched += u32::from(measured.is_none());
        let rate = measured.or_else(|| throughputs.alone(KIND, &model, 1)).filter(|rate| *rate > 0.0);
        if rate.is_none() {
            row.problem(format!("model \"{model}\" was not measured on {gpus} GPUs or on one"));
        }
        Some(TraceJob {
            line: row.line,
            name: (row.line - 1).to_string(),
            arrival: Time::ZERO + Span::from_secs_f64(arrival?),
            gpus,
            iterations: steps?,
            iteration: Span::from_secs_f64(1.0 / rate?),
            restart: Span::ZERO,
            model,
            cpu_milli: 0,
            memory: Bytes(0),
            speedup_micro: 1_000_000,
            batch: 0,
        })
    });
    let trace = Trace::checked(jobs, problems)?;
    let note = format!("{stretched} jobs of models not measured on as many GPUs take as long as on one");
    Ok(if stretched == 0 { trace } else { trace.noting(note) })
}
