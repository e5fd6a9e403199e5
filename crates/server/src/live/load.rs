//! The loader thread: reads models, prepares their programs, measures what they cost, and tells the scheduler.

use super::handle::{ModelInfo, ModelState, Outcome, Readiness, Timing};
use super::preparing::{Claim, Taker};
use super::runtime::{Message, Served, Shared, Work};
use super::scheduler::wall_ms;
use super::variant::{Binding, Rows, Variant, buckets};
use crate::metrics::{End, Ended};
use crate::repository::ModelEntry;
use engine::{Buffer, Device, EngineError, Program, Queue, Residency, Run};
use graph::{Batch, Dim, Graph, Model, Port, SegmentOptions, Segmentation, Sizes};
use sched::node::{BucketCost, ModelSpec, PartCost, PartCosts, Promise, WeightGroup};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;
use vocab::{Bytes, ModelId, PartitionId, Request, Span};

/// Work for the loader.
pub(super) enum Job {
    /// A model of the repository, its place among the served ones.
    Model { served: Arc<Served>, entry: ModelEntry },
    /// A submission whose shapes need programs of their own first.
    Shape { served: Arc<Served>, binding: Binding, parts: Parts },
    /// Nothing more will come.
    Stop,
}

/// A submission without its variant.
pub(super) struct Parts {
    pub(super) request: Request,
    pub(super) inputs: Arc<Vec<Rows>>,
    pub(super) reply: super::runtime::Reply,
    pub(super) claim: Claim,
}

/// Why a model is not loaded any more.
const DRAINING: &str = "the server is draining";

/// How costs are measured when a model is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Calibration {
    /// Timed runs of each bucket after one that warms up; the median counts.
    pub repeats: u32,
    /// Once a bucket has been measured for this long, its remaining repeats are skipped.
    pub patience: Span,
}

impl Default for Calibration {
    fn default() -> Self {
        Self { repeats: 3, patience: Span::from_ms(500) }
    }
}

/// Median device time of each segment of `program` over a few runs on zero inputs.
///
/// # Errors
/// When the device fails.
pub fn measure(
    device: &dyn Device,
    queue: &mut dyn Queue,
    program: &Arc<dyn Program>,
    calibration: Calibration,
) -> Result<Vec<Span>, EngineError> {
    let begin = Instant::now();
    let mut samples: Vec<Vec<Span>> = vec![Vec::new(); program.segments().len()];
    for repeat in 0..=calibration.repeats {
        let buffers = program.inputs().iter().map(|spec| device.buffer(spec));
        let inputs = buffers.collect::<Result<Vec<Box<dyn Buffer>>, EngineError>>()?;
        let mut run = Run::new(program.clone(), inputs)?;
        while run.progress() != engine::Progress::Finished {
            run.launch(queue)?;
            run.settle(queue)?;
        }
        let times = run.take_times();
        let enough = Span::from(begin.elapsed()) > calibration.patience;
        // The first run warms caches up; it counts only when there is no patience for another.
        if repeat > 0 || enough {
            samples.iter_mut().zip(&times).for_each(|(sample, time)| sample.push(*time));
        }
        if enough {
            break;
        }
    }
    let median = |sample: &mut Vec<Span>| {
        sample.sort_unstable();
        // A segment quicker than the clock still takes some time.
        sample[sample.len() / 2].max(Span::from_ns(1))
    };
    Ok(samples.iter_mut().map(median).collect())
}

pub(super) struct Loader {
    pub(super) shared: Arc<Shared>,
    pub(super) device: Arc<dyn Device>,
    pub(super) segments: SegmentOptions,
    pub(super) batch_default: u32,
    pub(super) variants_max: usize,
    pub(super) calibration: Calibration,
    /// Whether runs go on on other partitions than they began on.
    pub(super) moves: bool,
}

impl Loader {
    pub(super) fn serve(self, inbox: &Receiver<Job>) {
        // What a model costs is what it costs on the largest part.
        let largest = self.device.partitions().iter().max_by_key(|part| (part.units, u16::MAX - part.id.0));
        let Some(largest) = largest.map(|part| part.id) else { return };
        let mut queue = match self.device.open(largest) {
            Ok(queue) => queue,
            Err(error) => {
                tracing::error!("models cannot be measured: {error}");
                return;
            }
        };
        while let Ok(job) = inbox.recv() {
            match job {
                Job::Model { served, entry } => {
                    let begin = Instant::now();
                    match self.load(&served, &entry, &mut *queue) {
                        Ok(()) => {
                            let span = Span::from(begin.elapsed());
                            tracing::info!("model {} version {} ready in {span}", entry.name, entry.version);
                        }
                        Err(why) => {
                            tracing::error!(
                                "model {} version {} not served: {why}",
                                entry.name,
                                entry.version
                            );
                            served.set_state(ModelState::Unavailable(why));
                        }
                    }
                    self.shared.loaded_one();
                }
                Job::Shape { served, binding, parts } => self.shape(&served, &binding, parts, &mut *queue),
                Job::Stop => break,
            }
        }
    }

    fn load(&self, served: &Arc<Served>, entry: &ModelEntry, queue: &mut dyn Queue) -> Result<(), String> {
        if self.shared.readiness() == Readiness::Draining {
            return Err(DRAINING.into());
        }
        let model = Model::import(&entry.name, &entry.path, &self.shared.import)
            .map_err(|error| error.to_string())?;
        let configured = entry.config.max_batch_size;
        let batch_max = match model.batch() {
            Batch::Symbolic => configured.unwrap_or(self.batch_default),
            Batch::Baked { rows, why } => {
                tracing::info!("model {}: its batch is fixed at {rows} by the file: {why}", entry.name);
                if let Some(wanted) = configured.filter(|wanted| *wanted > 0) {
                    return Err(format!(
                        "config.pbtxt asks for max_batch_size {wanted}, but the file fixes the batch at {rows} ({why}); \
                         export it with a dynamic batch dimension, or set max_batch_size: 0"
                    ));
                }
                0
            }
            Batch::None => 0,
        };
        let mut info = ModelInfo {
            name: entry.name.clone(),
            version: entry.version,
            state: ModelState::Ready,
            inputs: ports(model.inputs(), batch_max),
            outputs: ports(model.outputs(), batch_max),
            batch_max,
        };
        super::runtime::apply_dims(&mut info, &entry.config)?;
        let open = info.inputs.iter().flat_map(|port| &port.shape).any(|dim| matches!(dim, Dim::Free(_)));
        let pinned = super::runtime::pinned(model.inputs(), &info);
        served.set_model(model, pinned);
        if !open {
            let variant = self.prepare(served, &Binding::new(), batch_max, queue)?;
            served.insert(Binding::new(), variant, self.variants_max);
        }
        served.set_info(info);
        Ok(())
    }

    /// Prepares every bucket of a model at one set of free sizes, measures them, and tells the scheduler.
    fn prepare(
        &self,
        served: &Arc<Served>,
        binding: &Binding,
        batch_max: u32,
        queue: &mut dyn Queue,
    ) -> Result<Arc<Variant>, String> {
        let model = served.model().ok_or("its file has not been read")?;
        let unwanted = || {
            let loading = served.info().state == ModelState::Loading;
            loading && self.shared.readiness() == Readiness::Draining
        };
        let mut free = served.pinned();
        free.extend(binding.clone());
        let batched = batch_max > 0;
        let alone = free.remove("batch").unwrap_or(match model.batch() {
            Batch::Baked { rows, .. } => *rows,
            _ => 1,
        });
        let sizes = if batched { buckets(batch_max) } else { vec![1] };
        let (mut programs, mut costs) = (Vec::new(), Vec::new());
        let mut cuts: Option<Segmentation> = None;
        for rows in sizes {
            if unwanted() {
                return Err(DRAINING.into());
            }
            let batch = if batched { rows as usize } else { alone };
            let graph = model.at(&Sizes { batch, free: free.clone() }).map_err(|error| error.to_string())?;
            let cuts = match &mut cuts {
                Some(cuts) => cuts,
                none => none.insert(self.cut(model, batch_max, &free, &graph, queue)?),
            };
            let segments = cuts.apply(&graph).map_err(|error| error.to_string())?;
            let program = self.device.prepare(&graph, &segments).map_err(|error| error.to_string())?;
            let times = measure(&*self.device, queue, &program, self.calibration);
            costs.push(BucketCost { rows, segments: times.map_err(|error| error.to_string())? });
            programs.push((rows, program));
        }
        let parts = self.measure_parts(&programs).map_err(|error| error.to_string())?;
        self.warm(&programs).map_err(|error| error.to_string())?;
        let id = self.shared.next_model();
        let batching = &served.config.batching;
        let sizes: Vec<String> = binding.iter().map(|(name, size)| format!("{name}={size}")).collect();
        let suffix = if sizes.is_empty() { String::new() } else { format!("[{}]", sizes.join(",")) };
        let spec = ModelSpec {
            id,
            name: format!("{}{suffix}", served.name),
            class: batching.default_class,
            batch_max: batch_max.max(1),
            queue_delay: batching.delay,
            queue_max: batching.default_policy.max_queue_size,
            costs,
            parts,
            // A periodic task's answers are due before the next request, unless it says otherwise.
            promise: Promise {
                deadline: served.config.slo.or(served.config.period),
                period: served.config.period,
            },
        };
        let metrics = served.metrics.clone();
        let weights = super::variant::weights(&programs);
        let groups = travel(&weights).map_err(|error| error.to_string())?;
        let name = served.name.clone();
        self.shared.send(Message::AddModel { spec, name, metrics, weights: weights.clone(), groups });
        Ok(Arc::new(Variant { id, programs, batched, weights }))
    }

    /// What the programs cost on every size of part that is less than the whole device, each on a thread of its own: a queue
    /// stays on the thread that opened it.
    fn measure_parts(&self, programs: &[(u32, Arc<dyn Program>)]) -> Result<PartCosts, EngineError> {
        let units = self.device.units();
        let mut sizes: BTreeMap<u32, PartitionId> = BTreeMap::new();
        for part in self.device.partitions().iter().filter(|part| part.units < units) {
            sizes.entry(part.units).or_insert(part.id);
        }
        if sizes.is_empty() {
            return Ok(PartCosts::default());
        }
        let measured = |units: u32, partition: PartitionId| {
            let mut queue = self.device.open(partition)?;
            let cost = |(rows, program): &(u32, Arc<dyn Program>)| {
                let segments = measure(&*self.device, &mut *queue, program, self.calibration)?;
                Ok(BucketCost { rows: *rows, segments })
            };
            let costs = programs.iter().map(cost).collect::<Result<_, EngineError>>()?;
            Ok(PartCost { units, costs })
        };
        let mut parts = Vec::new();
        for (units, partition) in sizes {
            let part = std::thread::scope(|scope| scope.spawn(|| measured(units, partition)).join());
            let why = || "the thread that measures it panicked".to_owned();
            parts.push(part.map_err(|_| EngineError::Unavailable { partition, why: why() })??);
        }
        Ok(PartCosts { units, parts })
    }

    /// Captures on every partition of a GPU what the first run there would have to wait for.
    fn warm(&self, programs: &[(u32, Arc<dyn Program>)]) -> Result<(), EngineError> {
        if self.device.segment_target().is_none() {
            return Ok(());
        }
        for partition in self.device.partitions().iter().map(|part| part.id) {
            let all = || {
                let mut queue = self.device.open(partition)?;
                programs.iter().try_for_each(|(_, program)| queue.warm(&**program, self.moves))
            };
            let warmed = std::thread::scope(|scope| scope.spawn(all).join());
            let why = || "the thread that captures for it panicked".to_owned();
            warmed.map_err(|_| EngineError::Unavailable { partition, why: why() })??;
        }
        Ok(())
    }

    /// Where a model is cut: by operations, or into as many segments as its time on the device at the largest batch asks
    /// for.
    fn cut(
        &self,
        model: &Model,
        batch_max: u32,
        free: &Binding,
        graph: &Graph,
        queue: &mut dyn Queue,
    ) -> Result<Segmentation, String> {
        let Some(target) = self.device.segment_target() else {
            return Ok(Segmentation::of(graph, &self.segments));
        };
        let batch = if batch_max > 0 { batch_max as usize } else { graph.batch };
        let largest = model.at(&Sizes { batch, free: free.clone() }).map_err(|error| error.to_string())?;
        let whole = Segmentation::of(&largest, &SegmentOptions { segments_max: 1, flops_min: 0 });
        let cut = whole.apply(&largest).map_err(|error| error.to_string())?;
        let program = self.device.prepare(&largest, &cut).map_err(|error| error.to_string())?;
        let times = measure(&*self.device, queue, &program, self.calibration);
        let total: Span = times.map_err(|error| error.to_string())?.into_iter().sum();
        if let Some(weights) = program.weights() {
            weights.evict(Bytes(0)).map_err(|error| error.to_string())?;
        }
        let count = usize::try_from(total.ns().div_ceil(target.ns().max(1))).unwrap_or(1);
        let segments_max = count.clamp(1, self.segments.segments_max);
        Ok(Segmentation::of(&largest, &SegmentOptions { segments_max, flops_min: 0 }))
    }

    /// Prepares the programs for new shapes, then hands the waiting submission on, unless it has ended by then.
    fn shape(&self, served: &Arc<Served>, binding: &Binding, parts: Parts, queue: &mut dyn Queue) {
        if parts.claim.taker().is_some() {
            return self.count(served, &parts);
        }
        let variant = match served.variant(binding) {
            Some(variant) => Ok(variant),
            None => self.prepare(served, binding, served.info().batch_max, queue).inspect(|variant| {
                for gone in served.insert(binding.clone(), variant.clone(), self.variants_max) {
                    self.shared.send(Message::RemoveModel { model: gone });
                }
            }),
        };
        if !parts.claim.take(Taker::Loader) {
            return self.count(served, &parts);
        }
        match variant {
            Ok(variant) => {
                let Parts { mut request, inputs, reply, .. } = parts;
                request.model = variant.id;
                self.shared.send(Message::Submit(Work { request, variant, inputs, reply }));
            }
            Err(why) => {
                self.count(served, &parts);
                parts.reply.send(Outcome::Rejected { label: "shape", why });
            }
        }
    }

    /// Counts a request that ended before the scheduler knew it.
    fn count(&self, served: &Served, parts: &Parts) {
        let end = match parts.claim.taker() {
            Some(Taker::Deadline) => End::Dropped,
            Some(Taker::Client) => End::Cancelled,
            Some(Taker::Loader) | None => End::Rejected("shape"),
        };
        let (class, rows) = (parts.request.class, parts.request.rows);
        let total = self.shared.now().since(parts.request.arrival);
        served.metrics.ended(&Ended {
            end,
            class,
            rows,
            total,
            timing: Timing::default(),
            wall_ms: wall_ms(),
        });
    }
}

/// The transfer groups of weights, each with its share of a measured load. Measuring brought the weights to the device;
/// from here on the scheduler says when they are there.
fn travel(weights: &[Arc<dyn Residency>]) -> Result<Vec<WeightGroup>, EngineError> {
    let mut groups = Vec::new();
    for weights in weights {
        weights.evict(Bytes(0))?;
        let begin = Instant::now();
        weights.load(&[])?;
        while !weights.is_resident()? {
            std::thread::yield_now();
        }
        let took = Span::from(begin.elapsed());
        weights.evict(Bytes(0))?;
        let own = weights.groups();
        let each = Span::from_ns(took.ns() / (own.len() as u64).max(1));
        groups.extend(own.into_iter().map(|bytes| WeightGroup { bytes, transfer: each, first_segment: 0 }));
    }
    Ok(groups)
}

/// Ports as clients see them: a model served without a batch dimension shows its rows as a free dimension.
fn ports(ports: &[Port], batch_max: u32) -> Vec<Port> {
    let mut shown = ports.to_vec();
    if batch_max == 0 {
        for dim in shown.iter_mut().flat_map(|port| &mut port.shape) {
            if *dim == Dim::Batch {
                *dim = Dim::Free("batch".into());
            }
        }
    }
    shown
}

impl Shared {
    pub(super) fn next_model(&self) -> ModelId {
        ModelId(self.model_numbers.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
    }
}
