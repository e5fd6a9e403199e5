//! Cold starts: the time from "its weights are on the host" to the first result, pipelined and by the ablations of
//! PipeSwitch's figures 5 and 7 to 9.

use super::model::{at, fill, gpu, inputs, load, precisions, segments_of, warm_time};
use crate::host;
use crate::statistics::{quantile, ratio};
use anyhow::Context as _;
use engine::{Device, Program, Queue, Run};
use graph::SegmentOptions;
use plan::transfer::{Link, travel};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vocab::{Bytes, PartitionId, Span};

/// Cold starts measured each way.
const ROUNDS: usize = 40;
/// Device time of a segment.
const SEGMENT: Span = Span::from_us(150);

/// Finest cuts.
const FINE: SegmentOptions = SegmentOptions { segments_max: 512, flops_min: 0 };

struct Ways<'d> {
    device: &'d ::cuda::CudaDevice,
    queue: Box<dyn Queue>,
}

impl Ways<'_> {
    /// The first result of a program whose weights are away: `begin` starts their transfer its own way.
    fn cold(
        &mut self,
        program: &Arc<dyn Program>,
        begin: &mut dyn FnMut(&dyn Program) -> anyhow::Result<()>,
    ) -> anyhow::Result<Span> {
        let weights = program.weights().context("weights that move")?;
        let given = inputs(self.device, &**program)?;
        weights.evict(Bytes(0))?;
        self.device.synchronize()?;
        std::thread::sleep(Duration::from_millis(1));
        let start = Instant::now();
        begin(&**program)?;
        let mut run = Run::new(program.clone(), given)?;
        while !run.is_launched() {
            run.launch(&mut *self.queue)?;
        }
        run.settle(&mut *self.queue)?;
        let time = Span::from(start.elapsed());
        run.finish()?;
        Ok(time)
    }

    fn rounds(
        &mut self,
        program: &Arc<dyn Program>,
        begin: &mut dyn FnMut(&dyn Program) -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<Span>> {
        (0..ROUNDS).map(|_| self.cold(program, begin)).collect()
    }
}

/// Whole table of one model.
struct Table<'t> {
    name: &'t str,
    precision: &'t str,
    ready: Span,
    csv: &'t mut String,
}

impl Table<'_> {
    fn row(&mut self, way: &str, times: &[Span]) -> anyhow::Result<Span> {
        let at = |per_mille| quantile(times, per_mille).as_ms_f64();
        let (name, precision) = (self.name, self.precision);
        let over = ratio(quantile(times, 500), self.ready);
        writeln!(self.csv, "{name},{precision},{way},{:.4},{:.4},{:.4},{over:.3}", at(500), at(50), at(950))?;
        host::print(&format!(
            "{name:<14} {precision} {way:<22} {:.3} ms ({:.3} … {:.3}) {over:.2}×ready",
            at(500),
            at(50),
            at(950)
        ));
        Ok(quantile(times, 500))
    }
}

/// Every way of every model at batch 8.
pub(crate) fn run(out: &Path, kinds: &str, models: &[&str]) -> anyhow::Result<bool> {
    std::fs::create_dir_all(out)?;
    let mut csv = String::from("model,precision,way,p50_ms,p5_ms,p95_ms,over_ready\n");
    let mut bars = crate::bars::Bars::default();
    for precision in precisions(kinds)? {
        let device = gpu(precision, Some(out.join("cache")))?;
        for name in models {
            one(&device, precision.name(), name, &mut csv, &mut bars)?;
        }
    }
    std::fs::write(out.join("switch.csv"), csv)?;
    bars.finish_as(&out.join("switch_bars.txt"))
}

#[expect(clippy::too_many_lines, reason = "one way after the other, as the table lists them")]
fn one(
    device: &::cuda::CudaDevice,
    precision: &str,
    name: &str,
    csv: &mut String,
    bars: &mut crate::bars::Bars,
) -> anyhow::Result<()> {
    let graph = at(&load(name)?, 8)?;
    let mut ways = Ways { device, queue: device.open(PartitionId(0))? };
    let whole = device.prepare(&graph, &graph::segment(&graph, &super::model::WHOLE))?;
    let (alone, _) = warm_time(device, &mut *ways.queue, &whole, ROUNDS)?;
    let program = device.prepare(&graph, &segments_of(&graph, alone, SEGMENT))?;
    let fine = device.prepare(&graph, &graph::segment(&graph, &FINE))?;
    let mut given = inputs(device, &*program)?;
    fill(&mut given, 1)?;
    let (ready, times) = warm_time(device, &mut *ways.queue, &program, ROUNDS)?;
    let transfers: Vec<Span> = (0..9).map(|_| ::cuda::transfer_time(&*program)).collect::<Result<_, _>>()?;
    let link = quantile(&transfers, 500);
    let bytes = program.weights().context("weights that move")?.bytes();
    #[expect(clippy::cast_precision_loss, reason = "weights are far below 2^53 bytes")]
    let bandwidth = bytes.0 as f64 / link.as_secs_f64();
    let needs = program.needs();
    let latencies: Vec<Span> =
        (0..9).map(|_| ::cuda::transfer_latency(&*program)).collect::<Result<_, _>>()?;
    let latency = quantile(&latencies, 500);
    // What cutting costs, a segment.
    let cuts = (times.len() as u64).saturating_sub(1).max(1);
    let gap = Span::from_ns((ready - alone).ns() / cuts);
    let (ends, predicted) = travel(&needs, &times, Link::new(latency, bandwidth)?, gap);
    let mut table = Table { name, precision, ready, csv };
    table.row("ready", &[ready])?;
    host::print(&format!(
        "{name:<14} {precision} {bytes} in {} segments, {} groups; link {link}, latency {latency}, gap {gap}, predicted {predicted}",
        needs.len(),
        ends.len()
    ));
    let load = |groups: Vec<Bytes>| {
        move |program: &dyn Program| Ok(program.weights().context("weights that move")?.load(&groups)?)
    };
    program.weights().context("weights that move")?.plan(&ends);
    let cold = ways.rounds(&program, &mut |_| Ok(()))?;
    let pipelined = table.row("pipelined", &cold)?;
    let whole_transfer = ways.rounds(&program, &mut load(vec![bytes]))?;
    table.row("whole-model transfer", &whole_transfer)?;
    let fine_needs = fine.needs();
    warm_time(device, &mut *ways.queue, &fine, 3)?;
    let per_layer = ways.rounds(&fine, &mut load(fine_needs.clone()))?;
    table.row("per-layer pipeline", &per_layer)?;
    let mut unpipelined = |program: &dyn Program| {
        let weights = program.weights().context("weights that move")?;
        weights.load(&fine_needs)?;
        while !weights.is_resident()? {
            std::hint::spin_loop();
        }
        Ok(())
    };
    let no_pipeline = ways.rounds(&fine, &mut unpipelined)?;
    table.row("per-layer without pipeline", &no_pipeline)?;
    let mut fresh_addresses = |program: &dyn Program| Ok(::cuda::forget_graphs(program)?);
    let no_reservation = ways.rounds(&program, &mut fresh_addresses)?;
    table.row("no reserved addresses", &no_reservation)?;
    let copy = ::cuda::packed_weights(&*program)?;
    let no_pinned = ways.rounds(&program, &mut |program| Ok(::cuda::load_pageable(program, &copy)?))?;
    table.row("no pinned store", &no_pinned)?;
    // One process: the model is prepared again, with everything that was measured or compiled remembered.
    let mut prepared = Vec::new();
    for _ in 0..3 {
        program.weights().context("weights that move")?.evict(Bytes(0))?;
        let start = Instant::now();
        let again = device.prepare(&graph, &segments_of(&graph, alone, SEGMENT))?;
        let mut run = Run::new(again.clone(), inputs(device, &*again)?)?;
        while !run.is_launched() {
            run.launch(&mut *ways.queue)?;
        }
        run.settle(&mut *ways.queue)?;
        prepared.push(Span::from(start.elapsed()));
        run.finish()?;
        again.weights().context("weights that move")?.evict(Bytes(0))?;
    }
    table.row("no standby", &prepared)?;
    let limit = 1.10 * link.max(ready).as_ms_f64() + 0.3;
    bars.at_most(&format!("{name} {precision} b8 cold first result"), pipelined.as_ms_f64(), limit, " ms");
    // What was cold is in the way of the next model otherwise.
    program.weights().context("weights that move")?.evict(Bytes(0))?;
    Ok(())
}
