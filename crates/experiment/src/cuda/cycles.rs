//! PipeSwitch's figure 6: a batch model and an inference model take turns on a device that holds the weights of one, in
//! cycles of one second and more; and a thousand loads, runs and evictions.

use super::model::{at, fill, gpu, inputs, load, precisions, run_through, segments_of, warm_time};
use crate::host;
use anyhow::{Context as _, bail};
use engine::{Device, Program, Queue};
use graph::segment;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vocab::{Bytes, PartitionId, Rng, Span};

const SEGMENT: Span = Span::from_us(250);

/// Runs per second of `program` for as long as `window`.
fn work(
    device: &dyn Device,
    queue: &mut dyn Queue,
    program: &Arc<dyn Program>,
    window: Duration,
) -> anyhow::Result<f64> {
    let start = Instant::now();
    let mut runs = 0u32;
    while start.elapsed() < window {
        run_through(queue, program, inputs(device, &**program)?)?;
        runs += 1;
    }
    Ok(f64::from(runs) / start.elapsed().as_secs_f64())
}

/// Turns of `batch` and `inference`, each for half a cycle, the other's weights away.
pub(crate) fn run(out: &Path, kind: &str, batch: &str, inference: &str) -> anyhow::Result<bool> {
    std::fs::create_dir_all(out)?;
    let precision = *precisions(kind)?.first().context("a precision")?;
    let device = gpu(precision, Some(out.join("cache")))?;
    let mut queue = device.open(PartitionId(0))?;
    let mut prepared = Vec::new();
    for name in [batch, inference] {
        let graph = at(&load(name)?, 8)?;
        let whole = device.prepare(&graph, &segment(&graph, &super::model::WHOLE))?;
        let (alone, _) = warm_time(&device, &mut *queue, &whole, 20)?;
        let program = device.prepare(&graph, &segments_of(&graph, alone, SEGMENT))?;
        warm_time(&device, &mut *queue, &program, 5)?;
        prepared.push(program);
    }
    let weights = |at: usize| prepared[at].weights().context("weights that move");
    let ready = work(&device, &mut *queue, &prepared[1], Duration::from_secs(2))?;
    let mut csv = String::from("cycle_s,inference_runs_per_s,share_of_ready\n");
    let mut bars = crate::bars::Bars::default();
    for cycle in [1u64, 2, 5, 10, 30] {
        let window = Duration::from_secs(cycle) / 2;
        let rounds = (6 / cycle).max(1);
        let mut rates = Vec::new();
        for _ in 0..rounds {
            weights(1)?.evict(Bytes(0))?;
            work(&device, &mut *queue, &prepared[0], window.min(Duration::from_secs(3)))?;
            weights(0)?.evict(Bytes(0))?;
            // The switch is part of the inference's time.
            rates.push(work(&device, &mut *queue, &prepared[1], window)?);
        }
        rates.sort_by(f64::total_cmp);
        let rate = rates[rates.len() / 2];
        writeln!(csv, "{cycle},{rate:.2},{:.4}", rate / ready)?;
        bars.at_least(
            &format!("{inference} in cycles of {cycle} s, share of a ready model's"),
            100.0 * rate / ready,
            97.0,
            " %",
        );
    }
    std::fs::write(out.join("cycles.csv"), csv)?;
    bars.finish_as(&out.join("cycles_bars.txt"))
}

/// Loads, runs and evicts models in random order; outputs and device memory must stay the same.
pub(crate) fn churn(out: &Path, kind: &str, models: &[&str]) -> anyhow::Result<bool> {
    std::fs::create_dir_all(out)?;
    let precision = *precisions(kind)?.first().context("a precision")?;
    let device = gpu(precision, Some(out.join("cache")))?;
    let mut queue = device.open(PartitionId(0))?;
    let mut programs = Vec::new();
    for name in models {
        let graph = at(&load(name)?, 2)?;
        let whole = device.prepare(&graph, &segment(&graph, &super::model::WHOLE))?;
        let (alone, _) = warm_time(&device, &mut *queue, &whole, 5)?;
        let program = device.prepare(&graph, &segments_of(&graph, alone, Span::from_us(100)))?;
        let mut given = inputs(&device, &*program)?;
        let bytes = fill(&mut given, 3)?;
        let expected = outputs(&run_through(&mut *queue, &program, given)?)?;
        program.weights().context("weights that move")?.evict(Bytes(0))?;
        programs.push((program, bytes, expected));
    }
    device.synchronize()?;
    let base = (device.weight_memory(), device.driver_free()?);
    let mut rng = Rng::new(11);
    let start = Instant::now();
    for cycle in 0..1_000u32 {
        let chosen = usize::try_from(rng.below(programs.len() as u64))?;
        let (program, bytes, expected) = &programs[chosen];
        let mut given = inputs(&device, &**program)?;
        for (buffer, bytes) in given.iter_mut().zip(bytes) {
            buffer.write(0, bytes)?;
        }
        let found = outputs(&run_through(&mut *queue, program, given)?)?;
        if found != *expected {
            bail!("cycle {cycle}: {} gives other outputs than at first", models[chosen]);
        }
        program.weights().context("weights that move")?.evict(Bytes(0))?;
        let now = (device.weight_memory(), device.driver_free()?);
        if now != base {
            bail!("cycle {cycle}: device memory is {now:?}, it was {base:?}");
        }
    }
    let text = format!(
        "1000 loads, runs and evictions of {} in {:.2} s: every output bit for bit the first, memory back to its base each time\n",
        models.join(", "),
        start.elapsed().as_secs_f64()
    );
    host::print(text.trim_end());
    std::fs::write(out.join("churn.txt"), text)?;
    Ok(true)
}

fn outputs(buffers: &[Box<dyn engine::Buffer>]) -> anyhow::Result<Vec<Vec<u8>>> {
    let one = |buffer: &dyn engine::Buffer| {
        let mut bytes = vec![0xA5; buffer.spec().len()];
        buffer.read(0, &mut bytes)?;
        Ok(bytes)
    };
    buffers.iter().map(|buffer| one(&**buffer)).collect()
}
