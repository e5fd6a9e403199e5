//! The driver on virtual time: pop every event of an instant, take a turn, perform its decisions.

use crate::arrivals::Stream;
use crate::crowd::Crowd;
use crate::device::{Next, TrueRun};
use crate::link::Links;
use crate::spread::Spread;
use crate::{Ended, Scenario, Tally};
use sched::node::policy::Choice;
use sched::node::{Act, Costs, Decision, Event, NodeWorld, Refusal, Run, RunState, Window};
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
    truths: Vec<Costs>,
    crowd: Crowd,
    runs: IdMap<RunId, TrueRun>,
    heap: BinaryHeap<Reverse<(Time, u64, Pending)>>,
    sequence: u64,
    owners: IdMap<RequestId, usize>,
    next_request: RequestId,
    launch: Span,
    /// Segments of a run that the device has at once.
    ahead: usize,
    links: Links,
    spread: Spread,
    tally: Tally,
    partitions: usize,
    deadline: Time,
    initial: Vec<Event>,
    /// When it begins.
    origin: Time,
    check: bool,
}

/// Something scheduled for later.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pending {
    Arrive {
        stream: usize,
    },
    Start {
        run: RunId,
        window_latest: Time,
    },
    Resume {
        run: RunId,
    },
    /// It computes no more; whoever runs it knows a little later.
    Quit {
        run: RunId,
        epoch: u32,
    },
    Park {
        run: RunId,
        epoch: u32,
        segment: usize,
    },
    Finish {
        run: RunId,
        epoch: u32,
    },
    Abandon {
        run: RunId,
        epoch: u32,
    },
    Groups {
        device: DeviceId,
        model: ModelId,
        groups: u32,
    },
    Evicted {
        device: DeviceId,
        model: ModelId,
    },
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
        Self::under(scenario, choice.build())
    }

    fn under(scenario: &Scenario, policy: Box<dyn Policy<NodeWorld>>) -> Self {
        let rng = Rng::new(scenario.seed);
        let specs = scenario.specs();
        let stream = |(place, load): (u64, &crate::Load)| -> Vec<Stream> {
            let model = specs.iter().find(|spec| spec.name == load.model);
            let model = model.expect("a checked load names a model");
            let one = |copy: u32| {
                let own = rng.fork(place + 1 + (u64::from(copy) << 32));
                Stream::new(load, (model.id, model.promise.period), (own, copy), scenario.end())
            };
            (0..load.copies).map(one).collect()
        };
        Self {
            world: NodeWorld::new(),
            policy,
            streams: (0u64..).zip(&scenario.loads).flat_map(stream).collect(),
            truths: specs.iter().map(|spec| Costs::with_parts(&spec.costs, &spec.parts)).collect(),
            crowd: Crowd::new(scenario.slowdowns()),
            runs: IdMap::default(),
            heap: BinaryHeap::new(),
            sequence: 0,
            owners: IdMap::default(),
            next_request: RequestId(0),
            launch: Span::from_us(scenario.launch_us),
            ahead: usize::try_from(scenario.ahead).unwrap_or(usize::MAX),
            links: Links::of(scenario),
            spread: Spread::of(scenario, rng.fork(0)),
            tally: Tally::default(),
            partitions: usize::from(scenario.partition_count()),
            deadline: scenario.end() + GRACE,
            initial: Vec::new(),
            origin: Time::ZERO,
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

    /// A simulation in which `policy` goes on from `origin` in a `world` where nothing waits or runs, with the scenario's
    /// partitions and models numbered as there. Arrivals count from `origin`.
    #[must_use]
    pub fn going_on(
        scenario: &Scenario,
        (world, policy): (NodeWorld, Box<dyn Policy<NodeWorld>>),
        origin: Time,
    ) -> Self {
        let fresh = Self::under(scenario, policy);
        let after = origin.since(Time::ZERO);
        let later = |Reverse((at, sequence, pending)): Reverse<(Time, u64, Pending)>| {
            Reverse((at + after, sequence, pending))
        };
        Self {
            world,
            heap: fresh.heap.into_iter().map(later).collect(),
            // Requests that have ended keep their numbers.
            next_request: RequestId(1 << 40),
            initial: Vec::new(),
            deadline: fresh.deadline + after,
            origin,
            ..fresh
        }
    }

    fn with_models(mut self, scenario: &Scenario, specs: Vec<sched::node::ModelSpec>) -> Self {
        let mut events = scenario.partition_events();
        events.extend(specs.into_iter().map(|spec| Event::ModelAdded { spec }));
        events.extend(scenario.rule_events());
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
        let mut next = if events.is_empty() { self.wait(None, &mut events) } else { Some(self.origin) };
        while let Some(now) = next {
            let turn = turn(&mut self.world, &mut *self.policy, now, &events);
            observe(now, &events, &turn.accepted)?;
            let ended = self.tally.turn(now, &events, &turn.accepted);
            self.answer(now, &ended);
            let wake = self.perform(now, turn)?;
            if self.check {
                self.world.check();
            }
            events.clear();
            next = self.wait(wake, &mut events);
        }
        let (policy, waiting) = (self.policy.name(), self.tally.live());
        if waiting > 0 {
            return Err(SimulationError::Stuck { policy, waiting });
        }
        Ok(Outcome { tally: self.tally, partitions: self.partitions })
    }

    /// The next instant at which something is seen to happen or the policy wakes, with what happens then; none where the
    /// simulation ends.
    fn wait(&mut self, wake: Option<Time>, events: &mut Vec<Event>) -> Option<Time> {
        loop {
            let next = self.heap.peek().map(|Reverse((at, _, _))| *at);
            let now = next.into_iter().chain(wake).min().filter(|at| *at <= self.deadline)?;
            let mut seen = wake.is_some_and(|wake| wake <= now);
            while self.heap.peek().is_some_and(|Reverse((at, _, _))| *at <= now) {
                let Some(Reverse((_, _, pending))) = self.heap.pop() else { break };
                // Nobody knows yet that a run computes no more.
                seen |= !matches!(pending, Pending::Quit { .. });
                events.extend(self.happen(now, pending));
            }
            if seen {
                return Some(now);
            }
        }
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
            Pending::Quit { run, epoch } => {
                self.runs.get(&run).filter(|truth| truth.epoch == epoch)?;
                self.leave(now, run);
                None
            }
            Pending::Park { run, epoch, segment } => {
                let truth = self.runs.get_mut(&run).filter(|truth| truth.epoch == epoch)?;
                let segments = truth.park();
                let next_segment = u32::try_from(segment).expect("a model has fewer than 2^32 segments");
                self.leave(now, run);
                Some(Event::RunParked { run, next_segment, segments })
            }
            Pending::Finish { run, epoch } => {
                let truth = self.runs.get_mut(&run).filter(|truth| truth.epoch == epoch)?;
                let segments = truth.taken();
                self.runs.remove(&run);
                self.leave(now, run);
                Some(Event::RunFinished { run, segments })
            }
            Pending::Abandon { run, epoch } => {
                self.runs.get(&run).filter(|truth| truth.epoch == epoch)?;
                self.runs.remove(&run);
                self.leave(now, run);
                Some(Event::RunAbandoned { run })
            }
            Pending::Groups { device, model, groups } => Some(Event::GroupsArrived { model, device, groups }),
            Pending::Evicted { device, model } => Some(Event::ModelEvicted { model, device }),
        }
    }

    fn arrive(&mut self, now: Time, place: usize) -> Event {
        let arrival = now.before(self.streams[place].lag);
        if let Some(at) = self.streams[place].next() {
            self.schedule(self.origin + at.since(Time::ZERO), Pending::Arrive { stream: place });
        }
        let id = self.next_request;
        self.next_request = RequestId(id.0 + 1);
        let stream = &self.streams[place];
        if stream.is_closed() {
            self.owners.insert(id, place);
        }
        let deadline = stream.timeout.map(|timeout| arrival + timeout);
        let (model, class, rows) = (stream.model, stream.class, stream.rows);
        Event::RequestArrived { request: Request { id, model, class, rows, arrival, deadline } }
    }

    /// Puts a run on the device and schedules what it does next.
    fn begin(&mut self, now: Time, run: RunId) -> Option<()> {
        let truth = self.runs.get_mut(&run)?;
        let booked = self.world.run(run).map(|run| run.partition);
        if let Some(partition) = booked.filter(|partition| *partition != truth.partition) {
            truth.partition = partition;
            let share = self.world.space().share(partition);
            truth.set_segments(self.truths[truth.model.index()].profiled(truth.rows, share));
        }
        truth.begin(now);
        self.crowd.join(run);
        self.settle(now);
        self.plan(run);
        Some(())
    }

    fn leave(&mut self, now: Time, run: RunId) {
        self.crowd.leave(run);
        self.settle(now);
    }

    /// Reckons speeds anew after someone came or went.
    fn settle(&mut self, now: Time) {
        for run in self.crowd.settle(now, self.world.space(), &self.truths, &mut self.runs) {
            self.plan(run);
        }
    }

    /// Schedules what a run on the device does next; what was scheduled before no longer holds.
    fn plan(&mut self, run: RunId) {
        let Some(truth) = self.runs.get_mut(&run) else { return };
        truth.epoch += 1;
        let (epoch, launch) = (truth.epoch, truth.launch);
        let (at, pending) = match truth.plan() {
            Next::Finish(at) => (at, Pending::Finish { run, epoch }),
            Next::Park(at, segment) => (at, Pending::Park { run, epoch, segment }),
            Next::Abandon(at) => (at, Pending::Abandon { run, epoch }),
        };
        if launch > Span::ZERO {
            self.schedule(at, Pending::Quit { run, epoch });
        }
        self.schedule(at + launch, pending);
    }

    /// Closed-loop clients ask again.
    fn answer(&mut self, now: Time, ended: &[Ended]) {
        for Ended { request, .. } in ended {
            let Some(stream) = self.owners.remove(&request.id) else { continue };
            let own = Time::ZERO + now.since(self.origin);
            if let Some(at) = self.streams[stream].after_answer(own) {
                self.schedule(self.origin + at.since(Time::ZERO), Pending::Arrive { stream });
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
                Act::Resume { run } => {
                    let launch = self.runs.get(&run).map_or(self.launch, |truth| truth.launch);
                    self.schedule(now + launch, Pending::Resume { run });
                }
                Act::Abandon { run } => self.abandon(now, run),
                Act::Load { model, device } => self.load(now, model, device),
                Act::Evict { model, device, .. } => {
                    let at = self.links.evict(now + self.launch, device);
                    self.schedule(at, Pending::Evicted { device, model });
                }
                Act::Until { run, segment } => {
                    if let Some(truth) = self.runs.get_mut(&run) {
                        truth.until = usize::try_from(segment).ok();
                    }
                }
                // A run that goes on asks the world where.
                Act::Move { .. } | Act::Reject { .. } | Act::Expire { .. } => {}
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
        let costs = &self.truths[model.index()];
        let memory = self.world.memory();
        let device = memory.device_of(partition).filter(|device| !memory.is_resident(*device, model));
        let segments = costs.profiled(rows, self.world.space().share(partition));
        let arrivals = device.map_or_else(Vec::new, |device| {
            self.links.arrivals(device, model, memory.groups(model), segments.len())
        });
        // Runs are numbered as they begin.
        let space = self.world.space();
        let there = |other: &&Run| other.id < run && !matches!(other.state, RunState::Parked { .. });
        let before = self.world.runs().filter(there);
        let others = before.filter(|other| space.reaches(other.partition, partition)).count();
        let factor = self.spread.factor(model, costs.bucket_place(rows), others);
        let launch = self.spread.launch().unwrap_or(self.launch);
        let truth = TrueRun::new((model, partition, rows), segments, (factor, launch), arrivals);
        self.runs.insert(run, truth);
        let begin = window.earliest.max(now) + launch;
        // The window is about the decision reaching the device; the launch itself is part of the cost.
        let window_latest = window.latest.max(window.latest + launch);
        self.schedule(begin, Pending::Start { run, window_latest });
    }

    fn stop_at_edge(&mut self, now: Time, run: RunId, for_good: bool) {
        if self.runs.get_mut(&run).is_some_and(|truth| truth.stop_at_edge(now, for_good, self.ahead)) {
            self.plan(run);
        }
    }

    fn abandon(&mut self, now: Time, run: RunId) {
        let Some(truth) = self.runs.get_mut(&run) else { return };
        if truth.on_device {
            self.stop_at_edge(now, run, true);
        } else {
            truth.epoch += 1;
            let epoch = truth.epoch;
            self.schedule(now, Pending::Abandon { run, epoch });
        }
    }
}
