//! What it costs to run on another part of the device than before: on parts made at start, which is a choice of stream,
//! against making the part anew and against starting a process anew.

use crate::bars::Bars;
use crate::cuda::model::{WHOLE, at, inputs, load, run_through};
use crate::host;
use crate::statistics::quantile;
use cuda::{CudaDevice, CudaOptions, PartOptions, PartWanted, Precision};
use engine::{Device, Program, Queue, Run};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;
use vocab::{Bytes, PartitionId, Span};

/// Runs of each way.
const ROUNDS: usize = 4_000;
/// Parts and processes made anew.
const ANEW: usize = 20;

/// Two halves of the device.
fn device(cache: &Path) -> anyhow::Result<CudaDevice> {
    let (groups, size) = cuda::grain(0, false)?;
    let units = groups / 2 * size;
    let half = |first| PartWanted { first, units, streams: 1 };
    let options = CudaOptions {
        precision: Precision::Fp32,
        weights: Bytes(256 << 20),
        slots: 2,
        slot: Bytes(256 << 20),
        staging: Bytes(16 << 20),
        cache: Some(cache.to_owned()),
        parts: Some(PartOptions { parts: vec![half(0), half(units)], overlap: 1, ..PartOptions::default() }),
        ..CudaOptions::default()
    };
    Ok(CudaDevice::open(0, &options)?)
}

fn program(device: &CudaDevice) -> anyhow::Result<Arc<dyn Program>> {
    let graph = at(&load("tiny_cnn")?, 1)?;
    Ok(device.prepare(&graph, &graph::segment(&graph, &WHOLE))?)
}

/// The process that is started anew: opens the device, runs once.
pub(super) fn probe(cache: &Path) -> anyhow::Result<bool> {
    let device = device(cache)?;
    let program = program(&device)?;
    let mut queue = device.open(PartitionId(1))?;
    run_through(&mut *queue, &program, inputs(&device, &*program)?)?;
    Ok(true)
}

/// Times from before a launch until it returned, and until the run was over, on each of these queues in turn.
fn turns(
    device: &CudaDevice,
    program: &Arc<dyn Program>,
    queues: &mut [Box<dyn Queue>],
) -> anyhow::Result<(Vec<Span>, Vec<Span>)> {
    let (mut called, mut over) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS + 100 {
        let place = round % queues.len();
        let queue = &mut *queues[place];
        let mut run = Run::new(program.clone(), inputs(device, &**program)?)?;
        let begin = Instant::now();
        run.launch(queue)?;
        let launched = Span::from(begin.elapsed());
        run.settle(queue)?;
        if round >= 100 {
            called.push(launched);
            over.push(Span::from(begin.elapsed()));
        }
        run.finish()?;
    }
    Ok((called, over))
}

/// Everything; whether the bar was met.
pub(super) fn run(out: &Path) -> anyhow::Result<bool> {
    std::fs::create_dir_all(out)?;
    let cache = out.join("cache");
    let device = device(&cache)?;
    let program = program(&device)?;
    // The whole device is the first partition.
    let mut halves = vec![device.open(PartitionId(1))?, device.open(PartitionId(2))?];
    for half in &mut halves {
        half.warm(&*program, false)?;
    }
    let same = turns(&device, &program, &mut halves[..1])?;
    let changing = turns(&device, &program, &mut halves)?;
    let (groups, size) = cuda::grain(0, false)?;
    let remake =
        || device.remake(&*program, PartWanted { first: size, units: groups / 2 * size, streams: 1 });
    let remade = (0..ANEW).map(|_| remake()).collect::<Result<Vec<Span>, _>>()?;
    drop(halves);
    let mut replaced = Vec::new();
    for _ in 0..ANEW / 4 {
        let begin = Instant::now();
        let mut process = Command::new(std::env::current_exe()?);
        let status = process.args(["sgprs", "probe"]).arg(&cache).stdout(Stdio::null()).status()?;
        anyhow::ensure!(status.success(), "the process that is started anew failed");
        replaced.push(Span::from(begin.elapsed()));
    }
    let ways = [
        ("launch on the same part", &same.0),
        ("launch on the other part", &changing.0),
        ("run on the same part", &same.1),
        ("run on the other part", &changing.1),
        ("part made anew", &remade),
        ("process started anew", &replaced),
    ];
    let us = |spans: &[Span], per_mille| quantile(spans, per_mille).as_ms_f64() * 1e3;
    let line = |(name, spans): &(&str, &Vec<Span>)| {
        let [p50, p99, most] = [500, 990, 1_000].map(|per_mille| us(spans, per_mille));
        format!("{name},{},{p50:.1},{p99:.1},{most:.1}", spans.len())
    };
    host::csv(&out.join("change.csv"), "what,times,p50_us,p99_us,most_us", ways.iter().map(line))?;
    let mut bars = Bars::default();
    for (name, spans) in &ways {
        bars.note(&format!("{name}: p50 {:.1} us, p99 {:.1} us", us(spans, 500), us(spans, 990)));
    }
    let more = us(&changing.1, 990) - us(&same.1, 500);
    bars.at_most("p99 of a run on the other part beyond the median on the same", more, 20.0, " us");
    bars.at_most("p99 of a launch on the other part", us(&changing.0, 990), 20.0, " us");
    bars.finish_as(&out.join("change_bars.txt"))
}
