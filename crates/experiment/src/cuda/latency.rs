//! Warm latency: from pinned input to pinned output, one run at a time, outputs in the precision they were computed in.

use super::model::{WHOLE, at, batches, fill, gpu, gpu_as_computed, inputs, load, precisions, run_through};
use crate::host;
use crate::statistics::quantile;
use anyhow::Context as _;
use engine::Device as _;
use graph::segment;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;
use vocab::{PartitionId, Span};

const RUNS: usize = 200;

/// Latency of every model at every precision and batch, as one segment.
pub(crate) fn run(out: &Path, kinds: &str, sizes: &str, models: &[&str]) -> anyhow::Result<bool> {
    std::fs::create_dir_all(out)?;
    let mut table = String::from("model,batch,precision,p50_ms,p5_ms,p95_ms,device_ms,prepare_s\n");
    for precision in precisions(kinds)? {
        let device = gpu_as_computed(precision, Some(out.join("cache")))?;
        let mut queue = device.open(PartitionId(0))?;
        for name in models {
            let model = load(name)?;
            for batch in batches(sizes)? {
                let graph = at(&model, batch)?;
                let begin = Instant::now();
                let program = device.prepare(&graph, &segment(&graph, &WHOLE))?;
                let prepare = begin.elapsed().as_secs_f64();
                let (mut times, mut on_device) = (Vec::new(), Vec::new());
                for number in 0..RUNS + 20 {
                    let mut given = inputs(&device, &*program)?;
                    if number == 0 {
                        fill(&mut given, 1)?;
                    }
                    let begin = Instant::now();
                    let mut run = engine::Run::new(program.clone(), given)?;
                    while !run.is_launched() {
                        run.launch(&mut *queue)?;
                    }
                    run.settle(&mut *queue)?;
                    let time = Span::from(begin.elapsed());
                    let device: Span = run.take_times().into_iter().sum();
                    run.finish()?;
                    if number >= 20 {
                        times.push(time);
                        on_device.push(device);
                    }
                }
                let ms = |spans: &[Span], per_mille| quantile(spans, per_mille).as_ms_f64();
                let (p50, device_ms) = (ms(&times, 500), ms(&on_device, 500));
                writeln!(
                    table,
                    "{name},{batch},{},{p50:.4},{:.4},{:.4},{device_ms:.4},{prepare:.1}",
                    precision.name(),
                    ms(&times, 50),
                    ms(&times, 950)
                )?;
                let ways = ::cuda::ways(&*program)?;
                host::print(&format!(
                    "{name:<14} b{batch:<2} {:<5} p50 {p50:.3} ms device {device_ms:.3} prepare {prepare:.1}s {ways:?}",
                    precision.name()
                ));
                // What was measured outlasts a run that is cut short.
                std::fs::write(out.join("latency.csv"), &table)?;
            }
        }
    }
    Ok(true)
}

/// Each step's time alone.
pub(crate) fn steps(kind: &str, batch: &str, name: &str) -> anyhow::Result<bool> {
    let precision = *precisions(kind)?.first().context("no precision")?;
    let device = gpu(precision, Some(std::env::temp_dir().join("raddle-cuda")))?;
    let graph = at(&load(name)?, batch.parse()?)?;
    let program = device.prepare(&graph, &segment(&graph, &WHOLE))?;
    let mut queue = device.open(PartitionId(0))?;
    let mut given = inputs(&device, &*program)?;
    fill(&mut given, 1)?;
    run_through(&mut *queue, &program, given)?;
    let times = ::cuda::step_times(&*program)?;
    let total: Span = times.iter().map(|(_, time)| *time).sum();
    for (name, time) in &times {
        host::print(&format!("{:>9.2} us  {name}", time.as_secs_f64() * 1e6));
    }
    host::print(&format!("{:>9.2} us  {} steps", total.as_secs_f64() * 1e6, times.len()));
    Ok(true)
}
