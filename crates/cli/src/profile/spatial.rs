//! `raddle profile --spatial`: a model on parts of a device, alone and beside another.

use super::parts::{Part, Worker, cores, of_cores, of_device, two_of_cores, two_of_device};
use super::{Prepared, import};
use crate::args::ProfileArgs;
use crate::{output, serve};
use anyhow::{Context as _, bail};
use engine::{Buffer, Device, EngineError, Program, Progress, Queue, Run};
use plan::spatial::{Interference, Pair};
use serde::Serialize;
use server::live::Calibration;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use vocab::{BatchProfile, Bytes, Profile, ShareProfile, Span, SpatialProfile};

/// A model with its programs on a device, one a batch.
struct Measured {
    name: String,
    prepared: Vec<Prepared>,
}

/// What a model suffers, as it is printed.
#[derive(Serialize)]
pub(super) struct Beside {
    pub(super) model: String,
    pub(super) beside: String,
    pub(super) batch: u32,
    pub(super) units: u32,
    pub(super) beside_units: u32,
    /// On the same units.
    pub(super) shared: bool,
    pub(super) alone_ms: f64,
    pub(super) beside_ms: f64,
    pub(super) slowdown: f64,
}

/// The profile of a model on every part, and of the whole device.
pub(super) fn profile(args: &ProfileArgs) -> anyhow::Result<Profile> {
    let parts = parts(args)?;
    let whole = parts.last().context("a device has a part")?;
    let kind = whole.device.info().kind.clone();
    let model = prepare(args, &args.model, &*whole.device)?;
    let calibration = calibration(args);
    let bar = output::progress((parts.len() * model.prepared.len()) as u64, &model.name);
    let mut shares = Vec::new();
    for part in &parts {
        let worker = Worker::start(part)?;
        let mut batches = Vec::new();
        for prepared in &model.prepared {
            let segment_ns = worker.measure(&prepared.program, calibration)?;
            batches.push(BatchProfile { batch: prepared.batch, segment_ns });
            bar.inc(1);
        }
        shares.push(ShareProfile { units: worker.units, batches });
    }
    bar.finish_and_clear();
    let ShareProfile { units, batches } = shares.pop().context("a device has a part")?;
    let segments = model.prepared.into_iter().next().context("a model has a batch")?.segments;
    let spatial = Some(SpatialProfile { units, shares });
    Ok(Profile { model: model.name, device: kind, segments, batches, switch: None, spatial })
}

/// The parts that the arguments name: nested sets of cores, or the partitions of a GPU.
fn parts(args: &ProfileArgs) -> anyhow::Result<Vec<Part>> {
    if args.device.device == "cpu" {
        return of_cores(&cores(args.cores.as_deref())?, &args.parts);
    }
    if !args.parts.is_empty() || args.cores.is_some() {
        bail!("--parts and --cores are sizes and names of cores; they go with --device cpu");
    }
    of_device(&args.device.device, &serve::open(&args.device, (None, None), Bytes(0))?)
}

fn calibration(args: &ProfileArgs) -> Calibration {
    Calibration { repeats: args.repeats.max(1), patience: Span::MAX }
}

fn prepare(args: &ProfileArgs, path: &Path, device: &dyn Device) -> anyhow::Result<Measured> {
    let model = import(path)?;
    let prepared = super::prepare(args, &model, device)?;
    Ok(Measured { name: model.name().to_owned(), prepared: prepared.collect::<anyhow::Result<_>>()? })
}

/// Measures `args.model` and `other` on two parts with nothing in common, or with `args.shared` on the same units: each
/// alone, then each while the other runs without a pause. Both at their largest batch. The device's kind, and what they suffer.
pub(super) fn against(args: &ProfileArgs, other: &Path) -> anyhow::Result<(String, Vec<Beside>)> {
    let [first, second] = if args.device.device == "cpu" {
        two_of_cores(&cores(args.cores.as_deref())?, args.shared)?
    } else {
        if args.cores.is_some() {
            bail!("--cores are those of the processor; they go with --device cpu");
        }
        let device = serve::open(&args.device, (None, None), Bytes(0))?;
        two_of_device(&args.device.device, &device, args.shared)?
    };
    let models = [prepare(args, &args.model, &*first.device)?, prepare(args, other, &*first.device)?];
    let [one, two] = &models;
    let workers = [Worker::start(&first)?, Worker::start(&second)?];
    let mut found = vec![pair(args, (one, &workers[0]), (two, &workers[1]))?];
    if one.name != two.name {
        found.push(pair(args, (two, &workers[1]), (one, &workers[0]))?);
    }
    Ok((first.device.info().kind.clone(), found))
}

/// What a model suffers from a neighbour.
fn pair(
    args: &ProfileArgs,
    (model, worker): (&Measured, &Worker),
    (beside, neighbour): (&Measured, &Worker),
) -> anyhow::Result<Beside> {
    let own = model.prepared.last().context("a model has a batch")?;
    let theirs = beside.prepared.last().context("a model has a batch")?.program.clone();
    let alone: Span = worker.measure(&own.program, calibration(args))?.into_iter().sum();
    let stop = Arc::new(AtomicBool::new(false));
    let (running, started) = channel();
    let ends = stop.clone();
    let outcome = neighbour.begin(move |device, queue| -> Result<u64, EngineError> {
        let mut runs = 0;
        while !ends.load(Ordering::Relaxed) {
            once(device, queue, &theirs)?;
            runs += 1;
            // Whoever waits for the first run may have had it.
            let _ = running.send(());
        }
        Ok(runs)
    })?;
    // The neighbour's first run warms it up; an error of it is told below.
    let begun = started.recv().is_ok();
    let measured = if begun { worker.measure(&own.program, calibration(args)).map(Some) } else { Ok(None) };
    stop.store(true, Ordering::Relaxed);
    outcome.recv().context("a part's thread ended early")??;
    let together: Span = measured?.context("the neighbour did not run")?.into_iter().sum();
    Ok(Beside {
        model: model.name.clone(),
        beside: beside.name.clone(),
        batch: own.batch,
        units: worker.units,
        beside_units: neighbour.units,
        shared: args.shared,
        alone_ms: alone.as_ms_f64(),
        beside_ms: together.as_ms_f64(),
        slowdown: together.as_secs_f64() / alone.as_secs_f64(),
    })
}

/// One run on zero inputs.
fn once(device: &dyn Device, queue: &mut dyn Queue, program: &Arc<dyn Program>) -> Result<(), EngineError> {
    let inputs = program.inputs().iter().map(|spec| device.buffer(spec));
    let inputs = inputs.collect::<Result<Vec<Box<dyn Buffer>>, EngineError>>()?;
    let mut run = Run::new(program.clone(), inputs)?;
    while run.progress() != Progress::Finished {
        run.launch(queue)?;
        run.settle(queue)?;
    }
    Ok(())
}

/// Puts pairs into a table, which may exist already.
pub(super) fn record(path: &Path, device: &str, found: &[Beside]) -> anyhow::Result<()> {
    let mut table: Interference = match std::fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text)
            .with_context(|| format!("{} is no table of neighbours", path.display()))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Interference::new(device),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let faults: Vec<String> = table.check().iter().map(ToString::to_string).collect();
    if !faults.is_empty() {
        bail!("{}: {}", path.display(), faults.join("\n"));
    }
    if table.device != device {
        bail!("{} is of {}, this is {device}; give another file", path.display(), table.device);
    }
    for Beside { model, beside, units, beside_units, slowdown, .. } in found {
        let (model, beside) = (model.clone(), beside.clone());
        let (units, beside_units) = (*units, *beside_units);
        table.put(Pair { model, beside, units, beside_units, slowdown: *slowdown });
    }
    let text = serde_json::to_string_pretty(&table)?;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
