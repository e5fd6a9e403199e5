//! What models suffer from a neighbour on the device: on disjoint halves of it, and both on the whole of it.

use super::Settings;
use crate::host;
use anyhow::{Context as _, bail};
use engine::{Buffer, Device, EngineError, PartitionInfo, Program, Progress, Queue, Run, Staged};
use graph::{HostTensor, ImportLimits, Model, SegmentOptions, Segmentation, Sizes};
use sim::SlowdownEntry;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use vocab::{PartitionId, Span};

/// Runs that a time is the mean of: at least so many, and more for so long, which a neighbour's longest run is less than.
const RUNS_MIN: u32 = 3;
const RUNS_MAX: u32 = 100;
const LONG_ENOUGH: Duration = Duration::from_millis(25);

/// A model at one batch, ready to run.
struct Ready {
    model: String,
    rows: u32,
    work: Work,
}

/// A program, with inputs that lie where runs fetch them from, where the device stages any.
#[derive(Clone)]
struct Work {
    program: Arc<dyn Program>,
    staged: Option<Vec<Vec<Arc<dyn Staged>>>>,
}

impl Work {
    /// With inputs of zeros.
    fn new(program: Arc<dyn Program>, device: &dyn Device) -> anyhow::Result<Self> {
        let mut staged = Some(Vec::new());
        for spec in program.inputs() {
            let zeros = HostTensor::new(spec.dtype, spec.shape.clone(), vec![0; spec.len()])?;
            staged = staged.zip(device.stage(&zeros)).map(|(mut inputs, input)| {
                inputs.push(vec![input]);
                inputs
            });
        }
        Ok(Self { program, staged: staged.filter(|inputs| !inputs.is_empty()) })
    }
}

/// What a run suffers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Suffered {
    model: String,
    beside: String,
    rows: u32,
    beside_rows: u32,
    units: u32,
    beside_units: u32,
    /// On the same units.
    shared: bool,
    alone: Span,
    together: Span,
}

const HEADER: &str = "model,beside,rows,beside_rows,units,beside_units,shared,alone_us,beside_us,slowdown";

impl Suffered {
    fn line(&self) -> String {
        let Self { model, beside, rows, beside_rows, units, beside_units, .. } = self;
        let us = |span: Span| span.as_secs_f64() * 1e6;
        format!(
            "{model},{beside},{rows},{beside_rows},{units},{beside_units},{},{:.1},{:.1},{:.3}",
            u8::from(self.shared),
            us(self.alone),
            us(self.together),
            self.times()
        )
    }

    /// Times longer than alone.
    fn times(&self) -> f64 {
        self.together.as_secs_f64() / self.alone.as_secs_f64().max(1e-9)
    }

    /// As scenarios have it; what seems to gain from a neighbour is chance.
    pub(super) fn entry(&self) -> SlowdownEntry {
        SlowdownEntry {
            model: self.model.clone(),
            beside: self.beside.clone(),
            times: self.times().max(1.0),
            shared: self.shared,
            rows: Some(self.rows),
            beside_rows: Some(self.beside_rows),
        }
    }
}

/// What `run` wrote into `folder`.
pub(super) fn read(folder: &Path) -> anyhow::Result<Vec<SlowdownEntry>> {
    let path = folder.join(super::NEIGHBOURS);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let entry = |(at, line): (usize, &str)| {
        let fields: Vec<&str> = line.split(',').collect();
        let found = || {
            let [model, beside, rows, beside_rows, _, _, shared, _, _, times] = fields.as_slice() else {
                return None;
            };
            Some(SlowdownEntry {
                model: (*model).to_owned(),
                beside: (*beside).to_owned(),
                times: times.parse::<f64>().ok()?.max(1.0),
                shared: *shared == "1",
                rows: Some(rows.parse().ok()?),
                beside_rows: Some(beside_rows.parse().ok()?),
            })
        };
        found().with_context(|| format!("{}:{} is no pair of neighbours: {line}", path.display(), at + 2))
    };
    text.lines().skip(1).enumerate().map(entry).collect()
}

/// Measures every model of the settings beside every one, itself too, and writes `live-neighbours.csv`.
pub(super) fn run(
    settings: &Settings,
    (models, out): (&Path, &Path),
    device: &dyn Device,
) -> anyhow::Result<Vec<SlowdownEntry>> {
    let begin = Instant::now();
    let mut names: Vec<&String> =
        settings.mixes.iter().flat_map(|mix| &mix.models).map(|(name, _)| name).collect();
    names.sort_unstable();
    names.dedup();
    let mut ready = Vec::new();
    for name in names {
        match prepare(name, &models.join(name).join("1/model.onnx"), &settings.neighbour_rows, device) {
            Ok(own) => ready.extend(own),
            Err(why) => host::say(&format!("{name} is not measured beside others: {why:#}")),
        }
    }
    let mut found = Vec::new();
    for shared in [false, true] {
        let pair = PartitionInfo::two(device.partitions(), shared).context(
            "neighbours need two streams of the whole device and two parts with nothing in common",
        )?;
        found.extend(table(&ready, pair, shared, device)?);
    }
    host::csv(&out.join(super::NEIGHBOURS), HEADER, found.iter().map(Suffered::line))?;
    host::say(&format!("{} pairs of neighbours after {:.1} s", found.len(), begin.elapsed().as_secs_f64()));
    Ok(found.iter().map(Suffered::entry).collect())
}

/// A model at each of these batches.
fn prepare(name: &str, path: &Path, rows: &[u32], device: &dyn Device) -> anyhow::Result<Vec<Ready>> {
    let model = Model::import(name, path, &ImportLimits::default())?;
    let mut cuts: Option<Segmentation> = None;
    let mut one = |rows: &u32| {
        let graph = model.at(&Sizes { batch: *rows as usize, free: BTreeMap::new() })?;
        let cut =
            cuts.get_or_insert_with(|| Segmentation::of(&graph, &SegmentOptions::default())).apply(&graph)?;
        let work = Work::new(device.prepare(&graph, &cut)?, device)?;
        Ok(Ready { model: name.to_owned(), rows: *rows, work })
    };
    rows.iter().map(&mut one).collect()
}

/// Every one alone, and beside every one that runs without a pause.
fn table(
    ready: &[Ready],
    (own, other): (&PartitionInfo, &PartitionInfo),
    shared: bool,
    device: &dyn Device,
) -> anyhow::Result<Vec<Suffered>> {
    std::thread::scope(|scope| {
        // The neighbour's thread opens its queue once and takes what to run, one after the other.
        let (orders, inbox) = channel();
        let (tells, told) = channel();
        let neighbour = scope.spawn(move || keep_running(device, other.id, &inbox, &tells));
        let measured = || -> anyhow::Result<Vec<Suffered>> {
            let mut queue = device.open(own.id)?;
            let mut found = Vec::new();
            for model in ready {
                queue.warm(&*model.work.program, false)?;
                let alone = time(device, &mut *queue, &model.work)?;
                for beside in ready {
                    let stop = Arc::new(AtomicBool::new(false));
                    let order = Order { work: beside.work.clone(), stop: stop.clone() };
                    orders.send(order).ok().context("the neighbour failed")?;
                    told.recv().context("the neighbour did not begin")?;
                    let together = time(device, &mut *queue, &model.work);
                    stop.store(true, Ordering::Relaxed);
                    told.recv().context("the neighbour did not end")?;
                    found.push(Suffered {
                        model: model.model.clone(),
                        beside: beside.model.clone(),
                        rows: model.rows,
                        beside_rows: beside.rows,
                        units: own.units,
                        beside_units: other.units,
                        shared,
                        alone,
                        together: together?,
                    });
                }
            }
            Ok(found)
        };
        let found = measured();
        drop(orders);
        match neighbour.join() {
            Ok(ended) => ended?,
            Err(_) => bail!("the neighbour panicked"),
        }
        found
    })
}

/// What a neighbour runs, until told to stop.
struct Order {
    work: Work,
    stop: Arc<AtomicBool>,
}

/// Runs each order without a pause; tells when it is under way, and when it is over.
fn keep_running(
    device: &dyn Device,
    on: PartitionId,
    orders: &Receiver<Order>,
    tells: &Sender<()>,
) -> Result<(), EngineError> {
    let mut queue = device.open(on)?;
    for Order { work, stop } in orders {
        queue.warm(&*work.program, false)?;
        once(device, &mut *queue, &work)?;
        // Whoever waits for it may have given up, here and below.
        let _ = tells.send(());
        while !stop.load(Ordering::Relaxed) {
            once(device, &mut *queue, &work)?;
        }
        let _ = tells.send(());
    }
    Ok(())
}

/// Mean time of a run's segments together, over enough runs to meet a neighbour in every state.
fn time(device: &dyn Device, queue: &mut dyn Queue, work: &Work) -> anyhow::Result<Span> {
    // The first one warms caches up.
    once(device, queue, work)?;
    let (begin, mut runs, mut sum) = (Instant::now(), 0u32, Span::ZERO);
    while runs < RUNS_MIN || (runs < RUNS_MAX && begin.elapsed() < LONG_ENOUGH) {
        sum += once(device, queue, work)?;
        runs += 1;
    }
    Ok(Span::from_secs_f64(sum.as_secs_f64() / f64::from(runs)))
}

/// Time of the segments of one run, launched as far ahead as a runtime would.
fn once(device: &dyn Device, queue: &mut dyn Queue, work: &Work) -> Result<Span, EngineError> {
    let program = work.program.clone();
    let mut run = match &work.staged {
        Some(staged) => Run::staged(program, staged.clone())?,
        None => {
            let inputs = program.inputs().iter().map(|spec| device.buffer(spec));
            let inputs = inputs.collect::<Result<Vec<Box<dyn Buffer>>, EngineError>>()?;
            Run::new(program, inputs)?
        }
    };
    while run.progress() != Progress::Finished {
        while !run.is_launched() && run.under_way() < device.ahead().max(1) {
            run.launch(queue)?;
        }
        run.settle_one(queue)?;
    }
    Ok(run.take_times().iter().copied().sum())
}
