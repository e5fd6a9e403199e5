//! The node's world: models, requests, runs and partitions, with the bookkeeping every policy relies on.
//!
//! Invariants ([`NodeWorld::check`]): a waiting request is in exactly its model's queue; a partition is held by at most
//! one run, and that run names it; every request has exactly one end; no device holds more weights than it has memory
//! for, and no run lives where its model's weights are neither there nor on their way.

use super::{
    Act, Costs, Decision, Event, Memory, MemoryRefusal, ModelSpec, Queue, Run, RunState, Space, SpaceRefusal,
    Why,
};
use crate::World;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vocab::{DeviceId, IdMap, ModelId, PartitionId, Request, RequestId, RunId, Span, Time};

mod admit;

/// Arrivals of a model from which its rate is estimated.
const ARRIVALS: usize = 64;

/// Chance makes a silence of so many average gaps between arrivals one time in fifty; longer ones tell of a lower rate.
const SILENT: u64 = 4;

/// Everything known about the node.
#[derive(Clone, Debug, Default)]
pub struct NodeWorld {
    /// By id: drivers number models from zero.
    models: Vec<Option<Model>>,
    partitions: BTreeMap<PartitionId, Partition>,
    requests: IdMap<RequestId, Live>,
    runs: BTreeMap<RunId, Run>,
    deadlines: BTreeSet<(Time, RequestId)>,
    fresh: Vec<RequestId>,
    refused_at_arrival: Vec<(RequestId, Why)>,
    next_run: RunId,
    ends: Ends,
    memory: Memory,
    space: Space,
}

#[derive(Clone, Debug)]
struct Model {
    spec: ModelSpec,
    costs: Costs,
    queue: Queue,
    served: bool,
    /// The latest arrivals, each with its rows.
    arrivals: VecDeque<(Time, u32)>,
}

#[derive(Clone, Debug)]
struct Partition {
    name: String,
    holder: Option<RunId>,
}

#[derive(Clone, Debug)]
struct Live {
    request: Request,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In its model's queue.
    Waiting,
    /// In this run.
    In(RunId),
    /// Refused on arrival; its rejection is about to be decided.
    AtTheDoor,
}

/// A waiting request with what a policy needs about it.
#[derive(Clone, Copy, Debug)]
pub struct Waiting<'w> {
    /// The request.
    pub request: &'w Request,
    /// Believed device time of a run of this request alone.
    pub alone: Span,
}

/// How many requests have ended, by how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// Answered in time.
    pub done: u64,
    /// Deadline passed while running.
    pub late: u64,
    /// Refused before running.
    pub rejected: u64,
    /// Deadline passed while waiting.
    pub dropped: u64,
    /// The client left.
    pub cancelled: u64,
    /// The device or the model failed.
    pub failed: u64,
}

/// Why the world refused a decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such partition.
    #[error("there is no partition {0}")]
    NoPartition(PartitionId),
    /// No such model, or it is not served.
    #[error("model {0} is not served")]
    NoModel(ModelId),
    /// No such request, or it has ended.
    #[error("there is no request {0}, or it has ended")]
    NoRequest(RequestId),
    /// No such run, or it has ended.
    #[error("there is no run {0}, or it has ended")]
    NoRun(RunId),
    /// The partition is held by another run.
    #[error("partition {partition} is held by {holder}")]
    Busy {
        /// The partition.
        partition: PartitionId,
        /// Who holds it.
        holder: RunId,
    },
    /// The request does not wait.
    #[error("{0} does not wait")]
    NotWaiting(RequestId),
    /// The request is for another model.
    #[error("{request} is for model {wants}")]
    WrongModel {
        /// The request.
        request: RequestId,
        /// What it asks for.
        wants: ModelId,
    },
    /// More rows than a run may have.
    #[error("{rows} rows are more than the model's {batch_max}")]
    TooManyRows {
        /// Rows of the batch.
        rows: u32,
        /// The model's bound.
        batch_max: u32,
    },
    /// A run of no request, or one request twice.
    #[error("a run needs requests, each once")]
    BadBatch,
    /// The run number is taken.
    #[error("run number {0} is taken")]
    RunNumber(RunId),
    /// The window closes before it opens, or has closed.
    #[error("the window has closed")]
    Window,
    /// The run is in another state than the decision needs.
    #[error("{run} cannot do that in state {state:?}")]
    State {
        /// The run.
        run: RunId,
        /// Its state.
        state: RunState,
    },
    /// The request's deadline has not passed.
    #[error("the deadline of {0} has not passed")]
    NotDue(RequestId),
    /// The run would have to stop before a segment that is behind it or not there.
    #[error("{run} cannot stop before segment {segment}")]
    NoSegment {
        /// The run.
        run: RunId,
        /// The segment.
        segment: u32,
    },
    /// A run cannot leave its device.
    #[error("{run} cannot go on on partition {partition}: its state lies on another device")]
    OtherDevice {
        /// The run.
        run: RunId,
        /// Where it should go on.
        partition: PartitionId,
    },
    /// Weights are not where they would have to be, or cannot be moved.
    #[error(transparent)]
    Memory(#[from] MemoryRefusal),
    /// The partition's units are not free, or a constraint between tenants is in the way.
    #[error(transparent)]
    Space(#[from] SpaceRefusal),
}

impl NodeWorld {
    /// An empty node.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Models that are served, by id.
    pub fn models(&self) -> impl Iterator<Item = &ModelSpec> {
        self.models.iter().flatten().filter(|model| model.served).map(|model| &model.spec)
    }

    /// One model, served or not.
    #[must_use]
    pub fn model(&self, id: ModelId) -> Option<&ModelSpec> {
        self.find_model(id).map(|model| &model.spec)
    }

    /// Whether a model takes new requests.
    #[must_use]
    pub fn is_served(&self, id: ModelId) -> bool {
        self.find_model(id).is_some_and(|model| model.served)
    }

    /// Requests that wait for `model`.
    ///
    /// # Panics
    /// When the model was never added.
    #[must_use]
    pub fn queue(&self, model: ModelId) -> &Queue {
        &self.find_model(model).expect("a policy asks for models it was shown").queue
    }

    /// Believed costs of `model`.
    ///
    /// # Panics
    /// When the model was never added.
    #[must_use]
    pub fn costs(&self, model: ModelId) -> &Costs {
        &self.find_model(model).expect("a policy asks for models it was shown").costs
    }

    fn find_model(&self, id: ModelId) -> Option<&Model> {
        self.models.get(id.index())?.as_ref()
    }

    fn find_model_mut(&mut self, id: ModelId) -> Option<&mut Model> {
        self.models.get_mut(id.index())?.as_mut()
    }

    /// A request that has not ended.
    #[must_use]
    pub fn request(&self, id: RequestId) -> Option<&Request> {
        self.requests.get(&id).map(|live| &live.request)
    }

    /// Waiting requests that no policy has been asked about yet, in the order of their arrival.
    pub fn fresh(&self) -> impl Iterator<Item = &Request> {
        let live = self.fresh.iter().filter_map(|id| self.requests.get(id));
        live.filter(|live| live.place == Place::Waiting).map(|live| &live.request)
    }

    /// Partitions, by id, each with the run that holds it.
    pub fn partitions(&self) -> impl Iterator<Item = (PartitionId, Option<&Run>)> {
        self.partitions.iter().map(|(id, partition)| (*id, partition.holder.map(|run| &self.runs[&run])))
    }

    /// Partitions no run holds, by id.
    pub fn idle(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.partitions.iter().filter(|(_, partition)| partition.holder.is_none()).map(|(id, _)| *id)
    }

    /// The run that holds a partition.
    #[must_use]
    pub fn holder(&self, id: PartitionId) -> Option<&Run> {
        self.partitions.get(&id)?.holder.map(|run| &self.runs[&run])
    }

    /// Whether no run holds a partition that there is.
    #[must_use]
    pub fn is_idle(&self, id: PartitionId) -> bool {
        self.partitions.get(&id).is_some_and(|partition| partition.holder.is_none())
    }

    /// A partition's name for people.
    #[must_use]
    pub fn partition_name(&self, id: PartitionId) -> Option<&str> {
        self.partitions.get(&id).map(|partition| partition.name.as_str())
    }

    /// Runs that have not ended, by id.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.values()
    }

    /// Runs that are parked, by id.
    pub fn parked(&self) -> impl Iterator<Item = &Run> {
        self.runs.values().filter(|run| matches!(run.state, RunState::Parked { .. }))
    }

    /// One run that has not ended.
    #[must_use]
    pub fn run(&self, id: RunId) -> Option<&Run> {
        self.runs.get(&id)
    }

    /// The first unused run number; a policy that starts several runs in one turn counts on from it.
    #[must_use]
    pub const fn next_run(&self) -> RunId {
        self.next_run
    }

    /// Requests that wait, all models together.
    #[must_use]
    pub fn waiting_len(&self) -> usize {
        self.models.iter().flatten().map(|model| model.queue.len()).sum()
    }

    /// Whose weights lie where.
    #[must_use]
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Which units partitions are, and which tenants may not share.
    #[must_use]
    pub const fn space(&self) -> &Space {
        &self.space
    }

    /// Who occupies which partition.
    #[must_use]
    pub fn held(&self) -> Vec<(ModelId, PartitionId)> {
        self.runs.values().filter(|run| run.occupies()).map(|run| (run.model, run.partition)).collect()
    }

    /// Believed device time of a run of `rows` rows of `model` on `partition`.
    #[must_use]
    pub fn cost_on(&self, model: ModelId, rows: u32, partition: PartitionId) -> Span {
        self.costs(model).of_on(rows, self.space.share(partition))
    }

    /// Average time between two rows of `model` that arrive, as its latest arrivals have it; none before there were two. Where
    /// it has been silent for several of them, the silence counts.
    #[must_use]
    pub fn row_gap(&self, now: Time, model: ModelId) -> Option<Span> {
        let arrivals = &self.find_model(model)?.arrivals;
        let (first, _) = *arrivals.front()?;
        let rows: u64 = arrivals.iter().skip(1).map(|(_, rows)| u64::from(*rows)).sum();
        let silence = self.silence(now, model)?;
        (rows > 0).then(|| now.since(first).scale(1, rows).max(silence.scale(1, SILENT)))
    }

    /// Time since the latest arrival of `model`; none before the first.
    #[must_use]
    pub fn silence(&self, now: Time, model: ModelId) -> Option<Span> {
        let (latest, _) = *self.find_model(model)?.arrivals.back()?;
        Some(now.since(latest))
    }

    /// A run of `model` on a partition of `device`, on it or parked: its weights must stay there.
    #[must_use]
    pub fn user(&self, device: DeviceId, model: ModelId) -> Option<RunId> {
        let user = |run: &&Run| run.model == model && self.memory.device_of(run.partition) == Some(device);
        self.runs.values().find(user).map(|run| run.id)
    }

    /// Time that a run of `rows` rows of `model`, begun now, would lose at least to weights that have yet to travel, on
    /// the partition that has most of them.
    #[must_use]
    pub fn cold(&self, now: Time, model: ModelId, rows: u32) -> Span {
        if self.memory.is_unbounded() || self.memory.groups(model).is_empty() {
            return Span::ZERO;
        }
        let warm = self.costs(model).of(rows);
        let on = |partition: &PartitionId| match self.memory.device_of(*partition) {
            Some(device) => self.memory.cold(now, device, model, warm),
            None => Span::ZERO,
        };
        self.partitions.keys().map(on).min().unwrap_or(Span::ZERO)
    }

    /// How requests have ended so far.
    #[must_use]
    pub const fn ends(&self) -> &Ends {
        &self.ends
    }

    /// Believed device time that `run` still needs, from `now` on.
    #[must_use]
    pub fn remaining(&self, now: Time, run: &Run) -> Span {
        let share = self.space.share(run.partition);
        let left = self.costs(run.model).span_of(run.rows, run.next_segment, u32::MAX, share);
        run.running_since().map_or(left, |since| left - now.since(since))
    }

    /// Asserts every invariant; simulations and tests call it after each turn.
    ///
    /// # Panics
    /// When bookkeeping is broken, which is a bug of this file.
    pub fn check(&self) {
        let mut waiting = 0;
        for model in self.models.iter().flatten() {
            for id in model.queue.by_arrival() {
                let live = &self.requests[&id];
                assert_eq!((live.place, live.request.model), (Place::Waiting, model.spec.id), "{id}");
                waiting += 1;
            }
        }
        let held: u32 = self.runs.values().map(|run| run.wanted).sum();
        let places = waiting + held as usize + self.refused_at_arrival.len();
        assert_eq!(self.requests.len(), places, "every live request is in exactly one place");
        for (id, partition) in &self.partitions {
            let holders: Vec<RunId> = self
                .runs
                .values()
                .filter(|run| run.partition == *id && run.occupies())
                .map(|run| run.id)
                .collect();
            assert_eq!(partition.holder.into_iter().collect::<Vec<_>>(), holders, "partition {id}");
        }
        for run in self.runs.values() {
            let wanted = run
                .requests
                .iter()
                .filter(|id| self.requests.get(id).is_some_and(|live| live.place == Place::In(run.id)))
                .count();
            assert_eq!(wanted, run.wanted as usize, "{}", run.id);
            assert_eq!(self.memory.allows(run.partition, run.model), Ok(()), "{}", run.id);
        }
        self.memory.check();
        self.space.check(&self.held());
    }
}

impl World for NodeWorld {
    type Event = Event;
    type Decision = Decision;
    type Refusal = Refusal;

    fn apply(&mut self, now: Time, event: &Event) {
        match event {
            Event::PartitionAdded { partition, name } => {
                self.partitions.insert(*partition, Partition { name: name.clone(), holder: None });
            }
            Event::ModelAdded { spec } => self.add_model(spec),
            Event::ModelRemoved { model } => self.remove_model(*model),
            Event::RequestArrived { request } => self.arrive(request),
            Event::RequestCancelled { request } => {
                if self.end_request(*request) {
                    self.ends.cancelled += 1;
                }
            }
            Event::RunStarted { run } | Event::RunResumed { run } => self.on_running(now, *run),
            Event::RunParked { run, next_segment, segments } => {
                self.on_parked(now, *run, *next_segment, segments);
            }
            Event::RunFinished { run, segments } => self.on_finished(now, *run, segments),
            Event::RunAbandoned { run } => self.on_over(now, *run, |ends| &mut ends.cancelled),
            Event::RunFailed { run, .. } => self.on_over(now, *run, |ends| &mut ends.failed),
            Event::RunRefused { run } => self.on_refused(*run),
            Event::DeviceAdded { device, name, memory, partitions } => {
                self.memory.add_device(*device, name, *memory, partitions);
            }
            Event::WeightsStored { model, groups } => self.store(*model, groups),
            Event::GroupsArrived { model, device, groups } => self.memory.arrived(*device, *model, *groups),
            Event::LoadFailed { model, device, .. } => self.memory.failed(*device, *model),
            Event::ModelEvicted { model, device } => self.memory.evicted(*device, *model),
            Event::PartsShared { units, overlap, parts } => self.space.add(*units, *overlap, parts),
            Event::RulesSet { rules } => self.space.set_rules(rules),
            Event::Woke => {}
        }
    }

    fn forced(&mut self, now: Time) -> Vec<Decision> {
        let mut decisions: Vec<Decision> = std::mem::take(&mut self.refused_at_arrival)
            .into_iter()
            .filter(|(request, _)| self.requests.contains_key(request))
            .map(|(request, why)| Decision { act: Act::Reject { request }, why })
            .collect();
        for (_, id) in self.deadlines.range(..=(now, RequestId(u64::MAX))) {
            let waited = now.since(self.requests[id].request.arrival);
            let why = Why::DeadlinePassed { waited };
            decisions.push(Decision { act: Act::Expire { request: *id }, why });
        }
        decisions.extend(self.unwanted_after(&decisions));
        decisions
    }

    fn admit(&mut self, now: Time, decision: &Decision) -> Result<(), Refusal> {
        self.admit_act(now, &decision.act)
    }

    fn settle(&mut self) {
        self.fresh.clear();
    }

    fn wake(&self) -> Option<Time> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }
}

/// Facts.
impl NodeWorld {
    fn add_model(&mut self, spec: &ModelSpec) {
        let costs = Costs::with_parts(&spec.costs, &spec.parts);
        let (queue, arrivals) = (Queue::default(), VecDeque::new());
        let fresh = Model { spec: spec.clone(), costs, queue, served: true, arrivals };
        let place = spec.id.index();
        if self.models.len() <= place {
            self.models.resize_with(place + 1, || None);
        }
        self.models[place] = Some(fresh);
    }

    fn remove_model(&mut self, id: ModelId) {
        let Some(model) = self.find_model_mut(id) else { return };
        model.served = false;
        let waiting: Vec<RequestId> = model.queue.by_arrival().collect();
        self.refused_at_arrival.extend(waiting.into_iter().map(|id_| (id_, Why::NoModel { model: id })));
    }

    /// Requests that waited for a model that turns out to fit nowhere are refused.
    fn store(&mut self, id: ModelId, groups: &[super::WeightGroup]) {
        let Some(model) = self.models.get(id.index()).and_then(Option::as_ref) else { return };
        self.memory.store(id, groups);
        if let Some((needs, memory)) = self.memory.too_small(id, self.partitions.keys().copied()) {
            let refused = |request| (request, Why::TooLarge { needs, memory });
            self.refused_at_arrival.extend(model.queue.by_arrival().map(refused));
        }
    }

    fn arrive(&mut self, request: &Request) {
        let mut request = request.clone();
        let too_small = self.memory.too_small(request.model, self.partitions.keys().copied());
        let mut place = Place::Waiting;
        let mut refuse = |why| {
            self.refused_at_arrival.push((request.id, why));
            place = Place::AtTheDoor;
        };
        let model = self.models.get_mut(request.model.index()).and_then(Option::as_mut);
        match model.filter(|model| model.served) {
            None => refuse(Why::NoModel { model: request.model }),
            Some(model) => {
                if model.arrivals.len() == ARRIVALS {
                    model.arrivals.pop_front();
                }
                model.arrivals.push_back((request.arrival, request.rows));
                let promised = model.spec.promise.deadline.map(|span| request.arrival + span);
                request.deadline = request.deadline.or(promised);
                let limit = model.spec.queue_max;
                if let Some((needs, memory)) = too_small {
                    refuse(Why::TooLarge { needs, memory });
                } else if limit > 0 && model.queue.len() >= limit as usize {
                    refuse(Why::QueueFull { limit });
                } else {
                    model.queue.insert(&request);
                }
            }
        }
        if let Some(deadline) = request.deadline.filter(|_| place == Place::Waiting) {
            self.deadlines.insert((deadline, request.id));
        }
        if place == Place::Waiting {
            self.fresh.push(request.id);
        }
        self.requests.insert(request.id, Live { request, place });
    }

    fn on_running(&mut self, now: Time, run: RunId) {
        let Some(run) = self.runs.get_mut(&run) else { return };
        if run.state == RunState::Ordered {
            run.waited = now.since(run.arrival);
        }
        if matches!(run.state, RunState::Ordered | RunState::Resuming) {
            run.state = RunState::Running { since: now };
        }
    }

    fn on_parked(&mut self, now: Time, id: RunId, next_segment: u32, segments: &[Span]) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        run.busy += segments.iter().copied().sum();
        run.next_segment = next_segment;
        run.parks += 1;
        run.state = RunState::Parked { since: now };
        run.until = None;
        let partition = run.partition;
        self.release(partition, id);
    }

    fn on_finished(&mut self, now: Time, id: RunId, segments: &[Span]) {
        let Some(run) = self.runs.get(&id) else { return };
        let busy = run.busy + segments.iter().copied().sum();
        let (rows, teaches) = (run.rows, !run.cold && !run.moved);
        let (model, share) = (run.model, self.space.share(run.partition));
        if let Some(model) = self.find_model_mut(model).filter(|_| teaches) {
            model.costs.learn_on(rows, share, busy);
        }
        self.on_over(now, id, |ends| &mut ends.done);
    }

    /// Ends a run and those of its requests that are still wanted.
    fn on_over(&mut self, now: Time, id: RunId, end: impl Fn(&mut Ends) -> &mut u64) {
        let Some(run) = self.runs.remove(&id) else { return };
        if let Some(device) = self.memory.device_of(run.partition) {
            self.memory.used(now, device, run.model);
        }
        if run.occupies() {
            self.release(run.partition, id);
        }
        for request in &run.requests {
            if self.forget(*request, Place::In(id)) {
                *end(&mut self.ends) += 1;
            }
        }
    }

    fn on_refused(&mut self, id: RunId) {
        let Some(run) = self.runs.remove(&id) else { return };
        self.release(run.partition, id);
        for request in &run.requests {
            let Some(live) = self.requests.get_mut(request).filter(|live| live.place == Place::In(id)) else {
                continue;
            };
            live.place = Place::Waiting;
            let model = self.models[run.model.index()].as_mut().expect("a run's model was added");
            model.queue.insert(&live.request);
        }
    }

    fn release(&mut self, partition: PartitionId, run: RunId) {
        let held = self.partitions.get_mut(&partition).expect("a run's partition was added");
        assert_eq!(held.holder, Some(run), "only its holder leaves partition {partition}");
        held.holder = None;
    }

    /// Removes `request` if it is at `place`; whether it was.
    fn forget(&mut self, request: RequestId, place: Place) -> bool {
        if self.requests.get(&request).is_none_or(|live| live.place != place) {
            return false;
        }
        let live = self.requests.remove(&request).expect("it was just looked up");
        if let Some(deadline) = live.request.deadline {
            self.deadlines.remove(&(deadline, request));
        }
        true
    }

    /// Ends a request wherever it is; false when it had ended.
    fn end_request(&mut self, id: RequestId) -> bool {
        let Some(live) = self.requests.get(&id) else { return false };
        let (request, place) = (live.request.clone(), live.place);
        match place {
            Place::Waiting => {
                let model = self.find_model_mut(request.model).expect("a waiting request's model was added");
                model.queue.remove(&request);
            }
            Place::In(run) => {
                let run = self.runs.get_mut(&run).expect("a request's run has not ended");
                run.wanted -= 1;
            }
            Place::AtTheDoor => {}
        }
        self.forget(id, place)
    }

    /// Abandonments of runs nobody waits for once `expiries` have been carried out.
    fn unwanted_after(&self, expiries: &[Decision]) -> Vec<Decision> {
        let mut leaving: BTreeMap<RunId, u32> = BTreeMap::new();
        for decision in expiries {
            let Act::Expire { request } = decision.act else { continue };
            if let Place::In(run) = self.requests[&request].place {
                *leaving.entry(run).or_default() += 1;
            }
        }
        let unwanted = |run: &&Run| {
            let left = run.wanted - leaving.get(&run.id).copied().unwrap_or(0);
            left == 0 && !matches!(run.state, RunState::Abandoning { .. })
        };
        let abandon = |run: &Run| Decision { act: Act::Abandon { run: run.id }, why: Why::NobodyWaits };
        self.runs.values().filter(unwanted).map(abandon).collect()
    }
}
