//! Muri's traces (SIGCOMM'22; Philly virtual clusters with models given to the jobs) and those of Tiresias before it.

use super::table::Table;
use super::{Trace, TraceError, TraceJob};
use vocab::{Bytes, Span, Time};

/// Part of an iteration's time, in thousandths, that Muri's simulator adds for its own profiler.
const PROFILED_MILLI: u64 = 1_015;

/// Seconds a start costs by model, on 1, 2, 4, 8, 16 and 32 GPUs, as measured by Muri's authors.
const RESTARTS: [(&str, [u64; 6]); 8] = [
    ("vgg16", [7, 7, 8, 9, 9, 10]),
    ("vgg19", [7, 7, 8, 9, 10, 10]),
    ("resnet18", [4, 5, 5, 7, 7, 7]),
    ("shufflenet_v2_x1_0", [4, 4, 5, 5, 7, 8]),
    ("bert", [10; 6]),
    ("gpt2", [10; 6]),
    ("a2c", [38, 39, 39, 46, 46, 46]),
    ("dqn", [5, 5, 6, 6, 8, 8]),
];

/// Seconds a start costs for models that were not measured.
const RESTART_UNKNOWN: u64 = 10;

/// Reads a trace in Muri's format: times in milliseconds, iterations and the time of one.
///
/// # Errors
/// When anything is wrong with it: every problem, with its line.
pub fn muri(text: &str) -> Result<Trace, TraceError> {
    let needed = ["job_id", "num_gpu", "submit_time", "iterations", "model_name", "iteration_time"];
    let (jobs, problems) = Table::new(text, &needed).read(|row| {
        let gpus = row.gpus("num_gpu");
        let arrival = row.number("submit_time");
        let iterations = row.whole("iterations");
        let iteration = row.number("iteration_time");
        let model = row.text("model_name").to_owned();
        let gpus = gpus?;
        let micros = Span::from_secs_f64(iteration? / 1e3);
        Some(TraceJob {
            line: row.line,
            name: row.text("job_id").to_owned(),
            arrival: Time::ZERO + Span::from_secs_f64(arrival? / 1e3),
            gpus,
            iterations: iterations?,
            iteration: micros.scale(PROFILED_MILLI, 1_000),
            restart: restart(&model, gpus),
            model,
            cpu_milli: 0,
            memory: Bytes(0),
            speedup_micro: 1_000_000,
            // Older files name no batch.
            batch: row.text("batch_size").parse().unwrap_or(0),
        })
    });
    Trace::checked(jobs, problems)
}

/// The time of an iteration in s, to the last bit that Muri's simulator gets from whole milliseconds.
pub(in crate::cluster) fn iteration_s(iteration: Span) -> f64 {
    let ms = iteration.ns() as f64 / (PROFILED_MILLI * 1_000) as f64;
    ms * (PROFILED_MILLI as f64 / 1e3) / 1e3
}

/// Reads a trace in Tiresias's format: times in seconds, a duration for the whole job.
///
/// # Errors
/// When anything is wrong with it: every problem, with its line.
pub fn tiresias(text: &str) -> Result<Trace, TraceError> {
    let needed = ["job_id", "num_gpu", "submit_time", "model_name", "duration"];
    let (jobs, problems) = Table::new(text, &needed).read(|row| {
        let gpus = row.gpus("num_gpu");
        let arrival = row.number("submit_time");
        let duration = row.number("duration");
        Some(TraceJob {
            line: row.line,
            name: row.text("job_id").to_owned(),
            arrival: Time::ZERO + Span::from_secs_f64(arrival?),
            gpus: gpus?,
            iterations: 1,
            iteration: Span::from_secs_f64(duration?),
            restart: Span::ZERO,
            model: row.text("model_name").to_owned(),
            cpu_milli: 0,
            memory: Bytes(0),
            speedup_micro: 1_000_000,
            batch: 0,
        })
    });
    Trace::checked(jobs, problems)
}

fn restart(model: &str, gpus: u32) -> Span {
    let column = [1, 2, 4, 8, 16, 32].iter().position(|size| *size == gpus);
    let row = RESTARTS.iter().find(|(name, _)| *name == model);
    let secs = row.zip(column).map_or(RESTART_UNKNOWN, |((_, secs), column)| secs[column]);
    Span::from_ms(secs * 1_000)
}
