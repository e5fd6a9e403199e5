//! Programs of a model on every device, and what they cost there.

use super::devices::Devices;
use super::travel::measure_travel;
use super::variant::{Binding, Site, buckets, weights};
use engine::{Buffer, Device, EngineError, Program, Queue, Residency, Run};
use graph::{Graph, Model, Segment, SegmentOptions, Segmentation, Sizes};
use sched::node::{BucketCost, PartCost, PartCosts, WeightGroup};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use vocab::{Bytes, PartitionId, Span};

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

/// A model on every device, and what it costs.
pub(super) struct Made {
    /// By device.
    pub(super) sites: Arc<Vec<Site>>,
    pub(super) costs: Vec<BucketCost>,
    pub(super) parts: PartCosts,
    /// Transfer groups of its weights.
    pub(super) groups: Vec<WeightGroup>,
    /// Whether runs that go on on other partitions find their graphs captured there.
    moves: bool,
}

/// Prepared models that outlive a runtime: the next one on the same devices, with another policy, need not prepare them again.
#[derive(Default)]
pub struct Shelf(Mutex<BTreeMap<Key, Arc<Made>>>);

/// As [`Wanted::name`], the largest batch, and whether it is cut finely.
type Key = (String, u32, bool);

impl std::fmt::Debug for Shelf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shelf")
    }
}

impl Shelf {
    fn get(&self, key: &Key) -> Option<Arc<Made>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn put(&self, key: Key, made: Arc<Made>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, made);
    }
}

/// What is to be made.
pub(super) struct Wanted<'m> {
    pub(super) model: &'m Model,
    /// Name, version and free sizes: programs of that name share weights, and nobody else does, because the scheduler moves
    /// the weights of each alone.
    pub(super) name: String,
    /// Largest batch; 0 where rows of several requests never share a run.
    pub(super) batch_max: u32,
    /// Rows of a run that is no batch.
    pub(super) alone: usize,
    pub(super) free: Binding,
}

impl Wanted<'_> {
    /// The model at a batch.
    fn at(&self, batch: usize) -> Result<Graph, String> {
        let sizes = Sizes { batch, free: self.free.clone() };
        let graph = self.model.at(&sizes).map_err(|error| error.to_string())?;
        Ok(Graph { name: self.name.clone(), ..graph })
    }
}

/// Segments are so many times longer where runs are never stopped.
const LONGER: u64 = 4;

/// Makes programs on devices that are alike: measured on the first, prepared on all.
pub(super) struct Maker {
    pub(super) devices: Devices,
    pub(super) segments: SegmentOptions,
    pub(super) calibration: Calibration,
    /// Whether runs go on on other partitions than they began on.
    pub(super) moves: bool,
    /// Whether runs are stopped at their edges.
    pub(super) stops: bool,
    pub(super) shelf: Option<Arc<Shelf>>,
}

impl Maker {
    /// Prepares and measures every bucket of a model, or takes it from the shelf. `go_on` is asked between two buckets.
    pub(super) fn make(
        &self,
        wanted: &Wanted<'_>,
        queue: &mut dyn Queue,
        go_on: impl Fn() -> Result<(), String>,
    ) -> Result<Arc<Made>, String> {
        let Wanted { name, batch_max, .. } = wanted;
        let key = (name.clone(), *batch_max, self.stops);
        if let Some(made) = self.shelf.as_ref().and_then(|shelf| shelf.get(&key)) {
            // The scheduler before may have left them there; the next one begins without.
            leave(&made.sites).map_err(|error| error.to_string())?;
            if self.moves && !made.moves {
                self.warm(&made.sites).map_err(|error| error.to_string())?;
            }
            return Ok(made);
        }
        let sizes = if *batch_max > 0 { buckets(*batch_max) } else { vec![1] };
        let mut programs: Vec<Vec<(u32, Arc<dyn Program>)>> = vec![Vec::new(); self.devices.all().len()];
        let mut costs = Vec::new();
        let mut cuts: Option<Segmentation> = None;
        for rows in sizes {
            go_on()?;
            let batch = if *batch_max > 0 { rows as usize } else { wanted.alone };
            let graph = wanted.at(batch)?;
            let cuts = match &mut cuts {
                Some(cuts) => cuts,
                none => none.insert(self.cut(wanted, &graph, queue)?),
            };
            let segments = cuts.apply(&graph).map_err(|error| error.to_string())?;
            let bucket = self.prepare(&graph, &segments).map_err(|error| error.to_string())?;
            let times = measure(&**self.devices.first(), queue, &bucket[0], self.calibration);
            costs.push(BucketCost { rows, segments: times.map_err(|error| error.to_string())? });
            programs.iter_mut().zip(bucket).for_each(|(all, program)| all.push((rows, program)));
        }
        let site = |programs: Vec<(u32, Arc<dyn Program>)>| Site { weights: weights(&programs), programs };
        let sites: Vec<Site> = programs.into_iter().map(site).collect();
        let mut rest = || {
            plan_travel(&**self.devices.first(), &sites, &costs, queue)?;
            let parts = self.measure_parts(&sites[0].programs)?;
            self.warm(&sites)?;
            Ok((parts, travel(&sites)?))
        };
        let (parts, groups) = rest().map_err(|error: EngineError| error.to_string())?;
        let made = Arc::new(Made { sites: Arc::new(sites), costs, parts, groups, moves: self.moves });
        if let Some(shelf) = &self.shelf {
            shelf.put(key, made.clone());
        }
        Ok(made)
    }

    /// A program on each device. The first goes first: what it finds out about itself, others of its kind need not.
    fn prepare(&self, graph: &Graph, segments: &[Segment]) -> Result<Vec<Arc<dyn Program>>, EngineError> {
        let mut programs = vec![self.devices.first().prepare(graph, segments)?];
        let others = std::thread::scope(|scope| {
            let one = |device: &Arc<dyn Device>| {
                let device = device.clone();
                scope.spawn(move || device.prepare(graph, segments))
            };
            let threads: Vec<_> = self.devices.all().iter().skip(1).map(one).collect();
            let joined = threads.into_iter().map(|thread| {
                let why = || "the thread that prepares for a device panicked".to_owned();
                let lost = |_| EngineError::Prepare {
                    model: graph.name.clone(),
                    segment: String::new(),
                    why: why(),
                };
                thread.join().map_err(lost)?
            });
            joined.collect::<Result<Vec<_>, EngineError>>()
        })?;
        programs.extend(others);
        Ok(programs)
    }

    /// What the programs cost on every size of part that is less than the whole device, each on a thread of its own: a queue
    /// stays on the thread that opened it.
    fn measure_parts(&self, programs: &[(u32, Arc<dyn Program>)]) -> Result<PartCosts, EngineError> {
        let device = self.devices.first();
        let units = device.units();
        let mut sizes: BTreeMap<u32, PartitionId> = BTreeMap::new();
        for part in device.partitions().iter().filter(|part| part.units < units) {
            sizes.entry(part.units).or_insert(part.id);
        }
        if sizes.is_empty() {
            return Ok(PartCosts::default());
        }
        let measured = |units: u32, partition: PartitionId| {
            let mut queue = device.open(partition)?;
            let cost = |(rows, program): &(u32, Arc<dyn Program>)| {
                let segments = measure(&**device, &mut *queue, program, self.calibration)?;
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
    fn warm(&self, sites: &[Site]) -> Result<(), EngineError> {
        if self.devices.first().segment_target().is_none() {
            return Ok(());
        }
        for (place, _) in self.devices.partitions() {
            let all = || {
                let mut queue = self.devices.at(place.device).open(place.own)?;
                let programs = &sites[place.device].programs;
                programs.iter().try_for_each(|(_, program)| queue.warm(&**program, self.moves))
            };
            let warmed = std::thread::scope(|scope| scope.spawn(all).join());
            let (partition, why) = (place.id, "the thread that captures for it panicked".to_owned());
            warmed.map_err(|_| EngineError::Unavailable { partition, why })??;
        }
        Ok(())
    }

    /// Where a model is cut: by operations, or into as many segments as its time on the device at the largest batch asks
    /// for.
    fn cut(&self, wanted: &Wanted<'_>, graph: &Graph, queue: &mut dyn Queue) -> Result<Segmentation, String> {
        let device = self.devices.first();
        let Some(target) = device.segment_target() else {
            return Ok(Segmentation::of(graph, &self.segments));
        };
        let batch = if wanted.batch_max > 0 { wanted.batch_max as usize } else { graph.batch };
        let largest = wanted.at(batch)?;
        let whole = Segmentation::of(&largest, &SegmentOptions { segments_max: 1, flops_min: 0 });
        let cut = whole.apply(&largest).map_err(|error| error.to_string())?;
        let program = device.prepare(&largest, &cut).map_err(|error| error.to_string())?;
        let times = measure(&**device, queue, &program, self.calibration);
        let total: Span = times.map_err(|error| error.to_string())?.into_iter().sum();
        if let Some(weights) = program.weights() {
            weights.evict(Bytes(0)).map_err(|error| error.to_string())?;
        }
        // Where nobody waits for an edge, cuts serve only weights that travel while others compute.
        let target = if self.stops { target } else { target * LONGER };
        let count = usize::try_from(total.ns().div_ceil(target.ns().max(1))).unwrap_or(1);
        let segments_max = count.clamp(1, self.segments.segments_max);
        Ok(Segmentation::of(&largest, &SegmentOptions { segments_max, flops_min: 0 }))
    }
}

/// Plans the groups in which weights travel, for the times of the largest batch.
fn plan_travel(
    device: &dyn Device,
    sites: &[Site],
    costs: &[BucketCost],
    queue: &mut dyn Queue,
) -> Result<(), EngineError> {
    for (place, weights) in sites[0].weights.iter().enumerate() {
        let users = sites[0].programs.iter().zip(costs);
        let same = |((_, program), _): &(&(u32, Arc<dyn Program>), &BucketCost)| {
            program.weights().is_some_and(|own| own.identity() == weights.identity())
        };
        let Some(((_, program), cost)) = users.rev().find(same) else { continue };
        let Some(travel) = measure_travel(device, queue, program, &cost.segments)? else { continue };
        for site in sites {
            site.weights[place].plan(&travel.ends);
        }
    }
    Ok(())
}

/// Takes weights off every device.
fn leave(sites: &[Site]) -> Result<(), EngineError> {
    sites.iter().flat_map(|site| &site.weights).try_for_each(|weights| weights.evict(Bytes(0)))
}

/// The transfer groups of weights, each with its share of a load measured on the first device. Measuring brought weights to
/// devices; from here on the scheduler says when they are there.
fn travel(sites: &[Site]) -> Result<Vec<WeightGroup>, EngineError> {
    leave(sites)?;
    let timed = |weights: &Arc<dyn Residency>| {
        let begin = Instant::now();
        weights.load(&[])?;
        while !weights.is_resident()? {
            std::thread::yield_now();
        }
        let took = Span::from(begin.elapsed());
        weights.evict(Bytes(0))?;
        let own = weights.groups();
        let transfer = Span::from_ns(took.ns() / (own.len() as u64).max(1));
        let group = |bytes| WeightGroup { bytes, transfer, first_segment: 0 };
        Ok(own.into_iter().map(group).collect::<Vec<_>>())
    };
    let groups = sites[0].weights.iter().map(timed).collect::<Result<Vec<_>, EngineError>>()?;
    Ok(groups.into_iter().flatten().collect())
}
