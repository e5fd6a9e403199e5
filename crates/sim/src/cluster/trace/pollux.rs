//! Workloads of Pollux (OSDI'21) and Sia (SOSP'23): applications with a number of GPUs and a batch.

use super::table::Table;
use super::{Trace, TraceError, TraceJob};
use crate::cluster::Applications;
use crate::cluster::applications::filled;
use vocab::{Bytes, Span, Time};

/// GPUs of a node that a job's time alone is counted on.
const NODE: u8 = 4;

/// Reads a workload. A job's time alone is that with its batch on as few nodes of 4 GPUs as it fills.
///
/// # Errors
/// When anything is wrong with it: every problem, with its line.
pub fn pollux(text: &str, applications: &Applications) -> Result<Trace, TraceError> {
    let needed = ["name", "time", "application", "num_replicas", "batch_size"];
    let (jobs, problems) = Table::new(text, &needed).read(|row| {
        let (arrival, gpus, batch) = (row.number("time"), row.gpus("num_replicas"), row.gpus("batch_size"));
        let model = row.text("application").to_owned();
        let application = applications.named(&model);
        if application.is_none() {
            row.problem(format!("application \"{model}\" was not measured"));
        }
        let (application, gpus, batch) = (application?, gpus?, batch?);
        let (least, most) = application.batches();
        if !(least..=most).contains(&batch) {
            row.problem(format!("batch_size is {batch}, {model} was measured from {least} to {most}"));
            return None;
        }
        if gpus == 0 || application.spread(batch, gpus).atomic == 0 {
            row.problem(format!("{batch} rows do not make work for {gpus} GPUs"));
            return None;
        }
        let placement = filled(gpus, NODE);
        let step = application.step_time(&placement, application.spread(batch, gpus));
        let seconds = |epoch| {
            let rows = application.progress(epoch + 1) - application.progress(epoch);
            rows * step / application.gain(batch, epoch)
        };
        Some(TraceJob {
            line: row.line,
            name: row.text("name").to_owned(),
            arrival: Time::ZERO + Span::from_secs_f64(arrival?),
            gpus,
            iterations: 1,
            iteration: Span::from_secs_f64((0..application.epochs()).map(seconds).sum()),
            restart: Span::from_ms(30_000),
            model,
            cpu_milli: 0,
            memory: Bytes(0),
            speedup_micro: 1_000_000,
            batch,
        })
    });
    Trace::checked(jobs, problems)
}
