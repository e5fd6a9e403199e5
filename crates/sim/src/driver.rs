//! The driver on virtual time: pop every event of an instant, take a turn, perform its decisions.

use crate::arrivals::Stream;
use crate::device::TrueRun;
use crate::link::Links;
use crate::spread::Spread;
use crate::{Ended, Scenario, Tally};
use sched::node::policy::Choice;
use sched::node::{Act, BucketCost, Decision, Event, NodeWorld, Refusal, Window};
use sched::{Policy, Turn, turn};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use vocab::{DeviceId, IdMap, ModelId, PartitionId, Request, RequestId, Rng, RunId, Span, Time};

/// After the last arrival a simulation gives its requests this long to end; a correct policy needs far less.
const GRACE: Span = Span::from_ms(3_600_000);

/// One simulation.
pub struct Simulation {
    world: NodeWorld,
    policy: Box<dyn Policy<NodeWorld>>,
    streams: Vec<Stream>,
    truths: Vec<Vec<BucketCost>>,
    runs: IdMap<RunId, TrueRun>,
    heap: BinaryHeap<Reverse<(Time, u64, Pending)>>,
    sequence: u64,
    owners: IdMap<RequestId, usize>,
    next_request: RequestId,
    launch: Span,
    links: Links,
    spread: Spread,
    tally: Tally,
    partitions: usize,
    deadline: Time,
    initial: Vec<Event>,
    check: bool,
}

/// Something scheduled for later.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pending {
    Arrive { stream: usize },
    Start { run: RunId, window_latest: Time },
    Resume { run: RunId },
    Park { run: RunId, epoch: u32, segment: usize },
    Finish { run: RunId, epoch: u32 },
    Abandon { run: RunId },
    Groups { device: DeviceId, model: ModelId, groups: u32 },
    Evicted { device: DeviceId, model: ModelId },
}

/// What a simulation gave.
#[derive(Debug)]
pub struct Outcome {
    /// What became of every request.
    pub tally: Tally,
    /// Partitions there were.
    pub partitions: usize,
}

/// Why a simulation stopped early.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// The observer refused a turn, for example because its disk is full.
    #[error("recording the simulation failed")]
    Record(#[from] std::io::Error),
    /// The policy decided something impossible.
    #[error("policy {policy} decided {decision:?} at {now}: {refusal}")]
    Refused {
        /// The policy.
        policy: &'static str,
        /// When.
        now: Time,
        /// What.
        decision: Box<Decision>,
        /// Why not.
        refusal: Refusal,
    },
    /// Requests were left waiting for ever.
    #[error("policy {policy} left {waiting} requests without an end")]
    Stuck {
        /// The policy.
        policy: &'static str,
        /// How many.
        waiting: usize,
    },
}

impl Simulation {
    /// A simulation of a checked `scenario` under `choice`.
    #[must_use]
    pub fn new(scenario: &Scenario, choice: &Choice) -> Self {
        let rng = Rng::new(scenario.seed);
        let specs = scenario.specs();
        let stream = |(place, load): (u64, &crate::Load)| {
            let model = specs.iter().find(|spec| spec.name == load.model);
            let id = model.expect("a checked load names a model").id;
            Stream::new(load, id, rng.fork(place + 1), scenario.end())
        };
        Self {
            world: NodeWorld::new(),
            policy: choice.build(),
            streams: (0u64..).zip(&scenario.loads).map(stream).collect(),
            truths: specs.iter().map(|spec| spec.costs.clone()).collect(),
            runs: IdMap::default(),
            heap: BinaryHeap::new(),
            sequence: 0,
            owners: IdMap::default(),
            next_request: RequestId(0),
            launch: Span::from_us(scenario.launch_us),
            links: Links::of(scenario),
            spread: Spread::of(scenario, rng.fork(0)),
            tally: Tally::default(),
            partitions: usize::from(scenario.partitions),
            deadline: scenario.end() + GRACE,
            initial: Vec::new(),
            check: false,
        }
        .with_models(scenario, specs)
    }

    /// Asserts the world's invariants after every turn; for tests.
    #[must_use]
    pub const fn checked(mut self) -> Self {
        self.check = true;
        self
    }

    fn with_models(mut self, scenario: &Scenario, specs: Vec<sched::node::ModelSpec>) -> Self {
        let partition = |id| Event::PartitionAdded { partition: PartitionId(id), name: format!("p{id}") };
        let mut events: Vec<Event> = (0..scenario.partitions).map(partition).collect();
        events.extend(specs.into_iter().map(|spec| Event::ModelAdded { spec }));
        events.extend(self.links.first_events(scenario));
        for place in 0..self.streams.len() {
            for at in self.streams[place].first() {
                self.schedule(at, Pending::Arrive { stream: place });
            }
        }
        self.initial = events;
        self
    }

    /// Runs to the end, showing each turn to `observe`.
    ///
    /// # Errors
    /// When the policy decides the impossible or leaves requests without an end, or `observe` fails.
    pub fn run(
        mut self,
        mut observe: impl FnMut(Time, &[Event], &[Decision]) -> std::io::Result<()>,
    ) -> Result<Outcome, SimulationError> {
        let mut events = std::mem::take(&mut self.initial);
        let mut now = Time::ZERO;
        loop {
            let turn = turn(&mut self.world, &mut *self.policy, now, &events);
            observe(now, &events, &turn.accepted)?;
            let ended = self.tally.turn(now, &events, &turn.accepted);
            self.answer(now, &ended);
            let wake = self.perform(now, turn)?;
            if self.check {
                self.world.check();
            }
            events.clear();
            let next = self.heap.peek().map(|Reverse((at, _, _))| *at);
            let Some(at) = next.into_iter().chain(wake).min().filter(|at| *at <= self.deadline) else {
                break;
            };
            now = at;
            while self.heap.peek().is_some_and(|Reverse((at, _, _))| *at <= now) {
                let Some(Reverse((_, _, pending))) = self.heap.pop() else { break };
                events.extend(self.happen(now, pending));
            }
        }
        let (policy, waiting) = (self.policy.name(), self.tally.live());
        if waiting > 0 {
            return Err(SimulationError::Stuck { policy, waiting });
        }
        Ok(Outcome { tally: self.tally, partitions: self.partitions })
    }

    fn schedule(&mut self, at: Time, pending: Pending) {
        self.sequence += 1;
        self.heap.push(Reverse((at, self.sequence, pending)));
    }

    /// What `pending` turns into now that its time has come; nothing when it no longer holds.
    fn happen(&mut self, now: Time, pending: Pending) -> Option<Event> {
        match pending {
            Pending::Arrive { stream } => Some(self.arrive(now, stream)),
            Pending::Start { run, window_latest } => {
                if now > window_latest {
                    self.runs.remove(&run);
                    return Some(Event::RunRefused { run });
                }
                self.begin(now, run)?;
                Some(Event::RunStarted { run })
            }
            Pending::Resume { run } => {
                self.begin(now, run)?;
                Some(Event::RunResumed { run })
            }
            Pending::Park { run, epoch, segment } => {
                let truth = self.runs.get_mut(&run).filter(|truth| truth.epoch == epoch)?;
                let segments = truth.taken(segment);
                truth.next = segment;
                truth.on_device = false;
                truth.epoch += 1;
                let next_segment = u32::try_from(segment).expect("a model has fewer than 2^32 segments");
                Some(Event::RunParked { run, next_segment, segments })
            }
            Pending::Finish { run, epoch } => {
                let truth = self.runs.get(&run).filter(|truth| truth.epoch == epoch)?;
                let segments = truth.taken_to_end();
                self.runs.remove(&run);
                Some(Event::RunFinished { run, segments })
            }
            Pending::Abandon { run } => {
                self.runs.remove(&run)?;
                Some(Event::RunAbandoned { run })
            }
            Pending::Groups { device, model, groups } => Some(Event::GroupsArrived { model, device, groups }),
            Pending::Evicted { device, model } => Some(Event::ModelEvicted { model, device }),
        }
    }

    fn arrive(&mut self, now: Time, place: usize) -> Event {
        if let Some(at) = self.streams[place].next() {
            self.schedule(at, Pending::Arrive { stream: place });
        }
        let id = self.next_request;
        self.next_request = RequestId(id.0 + 1);
        let stream = &self.streams[place];
        if stream.is_closed() {
            self.owners.insert(id, place);
        }
        let deadline = stream.timeout.map(|timeout| now + timeout);
        let (model, class, rows) = (stream.model, stream.class, stream.rows);
        Event::RequestArrived { request: Request { id, model, class, rows, arrival: now, deadline } }
    }

    /// Puts a run on the device and schedules its finish.
    fn begin(&mut self, now: Time, run: RunId) -> Option<()> {
        let truth = self.runs.get_mut(&run)?;
        truth.began = now;
        truth.on_device = true;
        let (finish, epoch) = (truth.finish() + self.launch, truth.epoch);
        self.schedule(finish, Pending::Finish { run, epoch });
        Some(())
    }

    /// Closed-loop clients ask again.
    fn answer(&mut self, now: Time, ended: &[Ended]) {
        for Ended { request, .. } in ended {
            let Some(stream) = self.owners.remove(&request.id) else { continue };
            if let Some(at) = self.streams[stream].after_answer(now) {
                self.schedule(at, Pending::Arrive { stream });
            }
        }
    }

    fn perform(&mut self, now: Time, turn: Turn<NodeWorld>) -> Result<Option<Time>, SimulationError> {
        if let Some((decision, refusal)) = turn.refused.into_iter().next() {
            let (policy, decision) = (self.policy.name(), Box::new(decision));
            return Err(SimulationError::Refused { policy, now, decision, refusal });
        }
        for decision in turn.accepted {
            match decision.act {
                Act::Start { run, model, partition, window, .. } => {
                    self.start(now, run, model, partition, window);
                }
                Act::Park { run } => self.stop_at_edge(now, run, false),
                Act::Resume { run } => self.schedule(now + self.launch, Pending::Resume { run }),
                Act::Abandon { run } => self.abandon(now, run),
                Act::Load { model, device } => self.load(now, model, device),
                Act::Evict { model, device, .. } => {
                    let at = self.links.evict(now + self.launch, device);
                    self.schedule(at, Pending::Evicted { device, model });
                }
                Act::Reject { .. } | Act::Expire { .. } => {}
            }
        }
        Ok(turn.wake)
    }

    fn load(&mut self, now: Time, model: ModelId, device: DeviceId) {
        let memory = self.world.memory();
        let present = memory.residency(device, model).present;
        let arrivals = self.links.load(now + self.launch, device, model, present, memory.groups(model));
        for (groups, at) in (present + 1..).zip(arrivals) {
            self.schedule(at, Pending::Groups { device, model, groups });
        }
    }

    fn start(&mut self, now: Time, run: RunId, model: ModelId, partition: PartitionId, window: Window) {
        let rows = self.world.run(run).map_or(1, |run| run.rows);
        let buckets = &self.truths[model.index()];
        let place = buckets.partition_point(|bucket| bucket.rows < rows).min(buckets.len() - 1);
        let memory = self.world.memory();
        let device = memory.device_of(partition).filter(|device| !memory.is_resident(*device, model));
        let segments = buckets[place].segments.len();
        let arrivals = device.map_or_else(Vec::new, |device| {
            self.links.arrivals(device, model, memory.groups(model), segments)
        });
        let truth = TrueRun::new(&buckets[place], self.spread.factor(model, place), arrivals);
        self.runs.insert(run, truth);
        let begin = window.earliest.max(now) + self.launch;
        // The window is about the decision reaching the device; the launch itself is part of the cost.
        let window_latest = window.latest.max(window.latest + self.launch);
        self.schedule(begin, Pending::Start { run, window_latest });
    }

    fn stop_at_edge(&mut self, now: Time, run: RunId, for_good: bool) {
        let launch = self.launch;
        let Some(truth) = self.runs.get_mut(&run) else { return };
        let (at, segment) = truth.edge(now);
        if truth.is_end(segment) {
            return;
        }
        truth.epoch += 1;
        let epoch = truth.epoch;
        let pending = if for_good { Pending::Abandon { run } } else { Pending::Park { run, epoch, segment } };
        self.schedule(at + launch, pending);
    }

    fn abandon(&mut self, now: Time, run: RunId) {
        if self.runs.get(&run).is_some_and(|truth| truth.on_device) {
            self.stop_at_edge(now, run, true);
        } else {
            self.schedule(now, Pending::Abandon { run });
        }
    }
}
