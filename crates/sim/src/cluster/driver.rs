//! The driver on virtual time: fold what happened, take a turn, perform its decisions, step to the next event.

use super::applications::filled;
use super::belief::Beliefs;
use super::packing::Packed;
use super::shares::{Member, Planner};
use super::speeds::fastest;
use super::truth::{Truth, slowdown_milli};
use super::{ClusterOutcome, Completed, Progress, Sample, Setup, SetupError, Trace};
use sched::cluster::policy::Choice;
use sched::cluster::{
    Claim, ClusterWorld, Decision, Event, Goal, Grant, Job, JobId, JobSpec, PairShares, Real, Refusal,
};
use sched::turn;
use std::collections::BTreeMap;
use vocab::{ModelId, Span, Time};

/// One simulation of a trace under a policy.
#[derive(Clone)]
pub struct ClusterSimulation<'t> {
    trace: &'t Trace,
    setup: &'t Setup,
    world: ClusterWorld,
    choice: Choice,
    report: bool,
    /// Batches are chosen for goodput rather than the trace's own.
    adapts: bool,
    /// Times of a step by GPUs, by model, batch and epoch.
    speeds: BTreeMap<(String, u32, usize), Vec<Span>>,
    models: Vec<ModelId>,
    truths: Vec<Truth>,
    started: Vec<Option<Time>>,
    /// The next end, as foreseen at the latest turn.
    foreseen: Option<Time>,
    /// What each job held last, where a move costs something.
    held: BTreeMap<JobId, Grant>,
    /// Steps a second of each job that arrived, by kind of GPU, where progress is in rounds.
    rates: Vec<Vec<f64>>,
    arrived: usize,
    beliefs: Beliefs,
    planner: Planner,
    /// Turns in a row in which nothing ran or could come.
    idle: u32,
    /// The time in binary fractions of seconds, as the simulators of Gavel and Muri count it.
    clock: f64,
    /// When the latest round with a job in it ended; Gavel's simulator counts a job's time in a round from there.
    round_from: f64,
    /// Losses and returns of nodes to come, soonest last.
    faults: Vec<(Time, Event)>,
    /// Until when the cluster's use is counted.
    looked: Time,
    /// How often each job moved without a stop.
    moves: Vec<u32>,
    outcome: ClusterOutcome,
    until: Option<JobId>,
    check: bool,
}

/// A simulation that stands still between two turns, from which any policy can go on.
pub struct Paused<'t> {
    simulation: ClusterSimulation<'t>,
    /// The next turn; nothing when all was done before.
    next: Option<Time>,
}

/// Is shown each turn.
type Observer<'o> = dyn FnMut(Time, &[Event], &[Decision]) -> std::io::Result<()> + 'o;

/// Why a simulation stopped early.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A job can never run.
    #[error(transparent)]
    Setup(#[from] SetupError),
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
    /// Jobs wait for ever.
    #[error("policy {policy} left {waiting} jobs waiting on an idle cluster at {now}")]
    Stuck {
        /// The policy.
        policy: &'static str,
        /// How many.
        waiting: usize,
        /// Since when.
        now: Time,
    },
}

impl<'t> ClusterSimulation<'t> {
    /// A simulation of `trace` on `setup` under `choice`.
    ///
    /// # Errors
    /// When a job never fits the cluster.
    pub fn new(trace: &'t Trace, setup: &'t Setup, choice: &Choice) -> Result<Self, SetupError> {
        setup.check(trace)?;
        let ids: BTreeMap<&str, ModelId> = trace.models().into_iter().zip((0..).map(ModelId)).collect();
        let outcome = ClusterOutcome {
            gpus: setup.nodes.iter().map(|node| u32::from(node.gpus)).sum(),
            cpu_milli: if trace.jobs.iter().any(|job| job.cpu_milli > 0) {
                setup.nodes.iter().map(|node| node.cpu_milli).sum()
            } else {
                0
            },
            ..ClusterOutcome::default()
        };
        Ok(Self {
            trace,
            setup,
            world: ClusterWorld::new(),
            choice: choice.clone(),
            report: choice.needs_progress(),
            adapts: choice.adapts_batches(),
            speeds: BTreeMap::new(),
            models: trace.jobs.iter().map(|job| ids[job.model.as_str()]).collect(),
            truths: trace.jobs.iter().map(Truth::new).collect(),
            started: vec![None; trace.jobs.len()],
            foreseen: None,
            held: BTreeMap::new(),
            rates: Vec::new(),
            arrived: 0,
            beliefs: Beliefs::new(setup.belief, trace),
            planner: Planner::default(),
            idle: 0,
            clock: 0.0,
            round_from: 0.0,
            faults: faults(setup),
            looked: Time::ZERO,
            moves: vec![0; trace.jobs.len()],
            outcome,
            until: None,
            check: false,
        })
    }

    /// Asserts the world's invariants after every turn; for tests.
    #[must_use]
    pub const fn checked(mut self) -> Self {
        self.check = true;
        self
    }

    /// Stops as soon as this job and all before it have ended, rather than at the end of the trace.
    #[must_use]
    pub const fn until(mut self, job: JobId) -> Self {
        self.until = Some(job);
        self
    }

    /// Runs to the end, showing each turn to `observe`.
    ///
    /// # Errors
    /// When the policy decides the impossible or leaves jobs waiting for ever, or `observe` fails.
    pub fn run(
        mut self,
        mut observe: impl FnMut(Time, &[Event], &[Decision]) -> std::io::Result<()>,
    ) -> Result<ClusterOutcome, ClusterError> {
        let mut events = self.initial();
        self.happen(Time::ZERO, &mut events);
        self.go(Time::ZERO, events, Time::FOREVER, &mut observe)?;
        Ok(self.outcome)
    }

    /// Runs until the last turn at or before `at` and stands still there.
    ///
    /// # Errors
    /// As [`run`](Self::run) does.
    pub fn pause(mut self, at: Time) -> Result<Paused<'t>, ClusterError> {
        let mut events = self.initial();
        self.happen(Time::ZERO, &mut events);
        let next = self.go(Time::ZERO, events, at, &mut |_, _, _| Ok(()))?;
        Ok(Paused { simulation: self, next })
    }

    /// Takes turns from `now` on until all is done, or the next turn, which is returned, would be after `stop`.
    fn go(
        &mut self,
        mut now: Time,
        mut events: Vec<Event>,
        stop: Time,
        observe: &mut Observer<'_>,
    ) -> Result<Option<Time>, ClusterError> {
        let mut policy = self.choice.build();
        loop {
            let turn = turn(&mut self.world, &mut *policy, now, &events);
            self.outcome.turns += 1;
            observe(now, &events, &turn.accepted)?;
            if let Some((decision, refusal)) = turn.refused.into_iter().next() {
                let (policy, decision) = (policy.name(), Box::new(decision));
                return Err(ClusterError::Refused { policy, now, decision, refusal });
            }
            self.perform(now, &turn.accepted);
            if self.check {
                self.world.check();
            }
            self.note(now);
            events.clear();
            events.extend(turn.accepted.iter().filter_map(|decision| self.answer(decision)));
            if !events.is_empty() {
                continue;
            }
            if self.done() {
                return Ok(None);
            }
            let next = self.next(now, turn.wake, policy.name())?;
            if next > stop {
                return Ok(Some(next));
            }
            now = next;
            self.happen(now, &mut events);
        }
    }

    /// Works out what a decision asks for.
    fn answer(&mut self, decision: &Decision) -> Option<Event> {
        let Decision::Replan { number, goal, packed, jobs } = decision else { return None };
        if *goal == Goal::Speed {
            let claimed = jobs.iter().map(|claim| (claim.job, &self.trace.jobs[claim.job.index()])).collect();
            return Some(Event::PlanReady {
                number: *number,
                shares: fastest(self.setup, &self.world, claimed),
                pairs: Vec::new(),
            });
        }
        let member = |claim: &'_ Claim| {
            let traced = &self.trace.jobs[claim.job.index()];
            let rates = self.rates.get(claim.job.index()).cloned();
            (rates.unwrap_or_else(|| self.setup.rates(traced)), f64::from(traced.gpus))
        };
        let rows: Vec<(Vec<f64>, f64)> = jobs.iter().map(member).collect();
        let join = |((rates, gpus), claim)| Member { rates, gpus, claim, times: 1.0 };
        let members: Vec<Member<'_>> = rows.into_iter().zip(jobs).map(join).collect();
        let kinds = members.iter().map(|member| member.rates.len()).max().unwrap_or(0);
        let mut counts = vec![0.0; kinds];
        for node in self.world.nodes() {
            counts[node.kind as usize] += f64::from(node.gpus);
        }
        let traced = |at: usize| &self.trace.jobs[jobs[at].job.index()];
        let together = |first: usize, second: usize| self.setup.rates_together(traced(first), traced(second));
        let Packed { alone, pairs } = if *packed {
            self.planner.packed(*goal, &members, &counts, together)
        } else {
            Packed { alone: self.planner.shares(*goal, &members, &counts), pairs: Vec::new() }
        };
        let parts = |shares: Vec<f64>| shares.into_iter().map(Real::of).collect();
        let shares = jobs.iter().map(|claim| claim.job).zip(alone.into_iter().map(parts)).collect();
        let pair = |(first, second, shares): (usize, usize, Vec<f64>)| PairShares {
            jobs: (jobs[first].job, jobs[second].job),
            shares: parts(shares),
        };
        Some(Event::PlanReady { number: *number, shares, pairs: pairs.into_iter().map(pair).collect() })
    }

    /// Keeps what the cluster looks like from now on.
    fn note(&mut self, now: Time) {
        let (running, waiting) = self.world.load();
        let count = |jobs| u32::try_from(jobs).expect("a trace has fewer than 2^32 jobs");
        let busy = self.world.busy_gpus();
        self.outcome.sample(Sample { at: now, running: count(running), waiting: count(waiting), busy });
    }

    fn initial(&self) -> Vec<Event> {
        let node = |spec: &sched::cluster::NodeSpec| Event::NodeAdded { spec: spec.clone() };
        let pair = |(model, beside, slowdown_milli)| Event::PairMeasured { model, beside, slowdown_milli };
        self.setup.nodes.iter().map(node).chain(self.setup.pairs.iter().map(pair)).collect()
    }

    fn round(&self) -> Span {
        self.setup.round.unwrap_or_default()
    }

    fn done(&self) -> bool {
        let ended = self.outcome.completed.len() + self.outcome.beside.len();
        let all = ended == self.trace.jobs.len();
        all || self.until.is_some_and(|last| {
            self.arrived > last.index()
                && self.world.running().chain(self.world.waiting()).all(|job| job.spec.job > last)
        })
    }

    /// Adds what happened since the last turn: progress, ends, arrivals.
    fn happen(&mut self, now: Time, events: &mut Vec<Event>) {
        let end = (self.foreseen == Some(now)).then_some((self.clock, self.setup.apart_ppb as f64 * 1e-9));
        let mut moved_on = Vec::new();
        let passed = u128::from(now.since(self.looked).ns());
        self.looked = now;
        let first = self.trace.jobs.first().map(|job| job.arrival).unwrap_or_default();
        self.outcome.elapsed = now.since(first.min(now));
        self.outcome.busy_time += u128::from(self.world.busy_gpus()) * passed;
        for job in self.world.running() {
            let id = job.spec.job;
            if self.outcome.cpu_milli > 0 {
                self.outcome.cpu_time += u128::from(job.grant().map_or(0, Grant::cpu_milli)) * passed;
            }
            let truth = &mut self.truths[id.index()];
            let epoch = truth.training.epoch;
            truth.advance(now, self.clock, self.setup, &self.trace.jobs[id.index()]);
            if self.setup.progress == Progress::Rounds {
                let took = Real::of(truth.task.1 - self.round_from);
                events.push(Event::RoundDone { job: id, took });
                events.push(Event::StepsCounted { job: id, left: truth.steps_left() });
            }
            if truth.ended(end, self.setup.progress) {
                events.push(Event::JobFinished { job: id });
                self.beliefs.learn(&self.trace.jobs[id.index()]);
                let service = job.service(now);
                self.outcome.gpu_time += service;
                self.outcome.completed.push(Completed {
                    job: id,
                    arrival: job.spec.arrival,
                    started: self.started[id.index()].unwrap_or(now),
                    ended: truth.end(now, self.setup.progress),
                    starts: job.starts + self.moves[id.index()],
                    gpus: job.spec.gpus,
                    solo: self.trace.jobs[id.index()].solo(),
                });
            } else if self.report {
                let left = self.beliefs.left(id.index(), &self.trace.jobs[id.index()], truth.left);
                events.push(Event::JobProgressed { job: id, left });
                if truth.training.epoch != epoch {
                    moved_on.push(id);
                }
            }
        }
        if self.world.load().0 > 0 {
            self.round_from = self.clock;
            if self.setup.progress == Progress::Rounds {
                events.push(Event::RoundEnded { at: Real::of(self.clock) });
            }
        }
        for id in moved_on {
            self.measure(id, events);
        }
        while self.faults.last().is_some_and(|(at, _)| *at <= now) {
            events.extend(self.faults.pop().map(|(_, event)| event));
        }
        self.arrive(now, events);
    }

    /// Tells a policy that comes in the middle what it would have been told before.
    fn tell(&mut self, events: &mut Vec<Event>) {
        if !self.report {
            return;
        }
        let gone =
            |id: JobId| events.iter().any(|event| matches!(event, Event::JobFinished { job } if *job == id));
        let live = self.world.running().chain(self.world.waiting()).map(|job| job.spec.job);
        let live: Vec<JobId> = live.filter(|id| !gone(*id)).collect();
        for id in live {
            let at = id.index();
            let left = self.beliefs.left(at, &self.trace.jobs[at], self.truths[at].left);
            events.push(Event::JobProgressed { job: id, left });
            self.measure(id, events);
        }
    }

    /// Adds jobs that were submitted until now.
    fn arrive(&mut self, now: Time, events: &mut Vec<Event>) {
        while let Some(job) = self.trace.jobs.get(self.arrived).filter(|job| job.arrival <= now) {
            let model = self.models[self.arrived];
            let id = JobId(u32::try_from(self.arrived).expect("a trace has fewer than 2^32 jobs"));
            let most = self.setup.application(&job.model).map(|application| application.gpus_max(job.batch));
            let (cpu_milli, memory) = self.setup.demand(job);
            let spec = JobSpec {
                job: id,
                model,
                arrival: job.arrival,
                gpus: job.gpus,
                elastic: most.map_or((job.gpus, job.gpus), |most| (1, most.max(job.gpus))),
                solo: self.beliefs.left(self.arrived, job, job.solo()),
                cpu_milli,
                memory,
                gpu: self.setup.need(model),
                spread_milli: self.setup.spread_milli(job),
            };
            events.push(Event::JobArrived { spec });
            self.arrived += 1;
            if self.setup.progress == Progress::Rounds {
                self.rates.push(self.setup.rates(job));
            }
            if self.report {
                self.measure(id, events);
            }
        }
    }

    /// Tells what is known of a measured application's speed: steps left and the time of one by GPUs.
    fn measure(&mut self, id: JobId, events: &mut Vec<Event>) {
        let job = &self.trace.jobs[id.index()];
        if self.setup.throughputs.is_some() {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a rate is at least 0"
            )]
            let micro = |rate: &f64| (rate * 1e6) as u64;
            let micro = self.setup.rates(job).iter().map(micro).collect();
            events.push(Event::RatesMeasured { job: id, micro });
            events.push(Event::StepsCounted { job: id, left: job.iterations });
        }
        let Some(application) = self.setup.application(&job.model) else { return };
        let epoch = self.truths[id.index()].training.epoch.min(application.epochs() - 1);
        events.push(Event::StepsCounted { job: id, left: application.steps_left(job.batch, epoch) });
        if epoch > 0 && !self.adapts {
            return;
        }
        let size = self.setup.nodes.iter().map(|node| node.gpus).max().unwrap_or(1);
        let most = application.gpus_max(job.batch).min(self.outcome.gpus);
        let step = |gpus: u32| {
            let placement = filled(gpus, size);
            let seconds = if self.adapts {
                1.0 / application.best(&placement, epoch).1
            } else {
                application.step_time(&placement, application.spread(job.batch, gpus))
            };
            Span::from_secs_f64(seconds)
        };
        let key = (job.model.clone(), job.batch, epoch);
        let steps = self.speeds.entry(key).or_insert_with(|| (1..=most).map(step).collect());
        events.push(Event::SpeedMeasured { job: id, steps: steps.clone() });
    }

    fn perform(&mut self, now: Time, decisions: &[Decision]) {
        for decision in decisions {
            match decision {
                Decision::Start { job, .. } => self.begin(now, *job),
                Decision::Regrant { changes } => {
                    for change in changes {
                        let moved =
                            self.held.get(&change.job).is_some_and(|old| !old.same_gpus(&change.grant));
                        if moved {
                            self.begin(now, change.job);
                        } else {
                            self.hold(change.job);
                        }
                    }
                }
                Decision::Stop { .. }
                | Decision::Extend { .. }
                | Decision::Replan { .. }
                | Decision::Record { .. } => {}
            }
        }
        let shared = self.setup.nodes.iter().any(|node| node.slots > 1);
        if self.setup.progress == Progress::Rounds && shared {
            self.pair_up();
        } else if (shared || !self.setup.spreads.is_empty()) && !decisions.is_empty() {
            self.slow();
        }
    }

    fn begin(&mut self, now: Time, job: JobId) {
        self.started[job.index()].get_or_insert(now);
        let traced = &self.trace.jobs[job.index()];
        self.truths[job.index()].begin(now, self.clock, traced);
        self.hold(job);
        if let Some((application, grant)) = self.setup.application(&traced.model).zip(self.held.get(&job)) {
            let batch = (!self.adapts || application.gpus_max(traced.batch) == 1).then_some(traced.batch);
            self.truths[job.index()].training.start(application, grant, batch);
        }
    }

    /// Notes what a job holds now.
    fn hold(&mut self, job: JobId) {
        if let Some(grant) = self.world.known(job).grant() {
            let traced = &self.trace.jobs[job.index()];
            self.truths[job.index()].hold(traced, grant, self.setup);
            if self.setup.progress == Progress::Rounds {
                let kind = self.world.known(job).last_kind().unwrap_or(0);
                self.truths[job.index()].rate = self.rates[job.index()].get(kind).copied().unwrap_or(0.0);
            }
            // The simulators of others move jobs for nothing.
            if matches!(self.setup.progress, Progress::RestartAtStart | Progress::Goodput) {
                self.held.insert(job, grant.clone());
            }
        }
    }

    /// Sets each running job's rate from who shares its GPUs, where progress is in rounds.
    fn pair_up(&mut self) {
        for job in self.world.running() {
            let (id, kind) = (job.spec.job, job.last_kind().unwrap_or(0));
            let piece = job.grant().and_then(|grant| grant.pieces.first());
            let gpu = piece.and_then(|piece| Some((piece.node, piece.gpus.iter().next()?)));
            let holders = gpu.map_or(&[][..], |(node, gpu)| self.world.holders(node, gpu));
            let beside = holders.iter().find(|other| **other != id);
            let together = beside.and_then(|other| {
                let (first, second) = (id.min(*other), id.max(*other));
                let traced = |id: JobId| &self.trace.jobs[id.index()];
                let rates = self.setup.rates_together(traced(first), traced(second))?;
                rates.get(kind).map(|rates| if id == first { rates.0 } else { rates.1 })
            });
            let alone = self.rates[id.index()].get(kind).copied().unwrap_or(0.0);
            self.truths[id.index()].rate = together.unwrap_or(alone);
        }
    }

    /// Sets each running job's slowdown from who shares its GPUs and how far apart they are.
    fn slow(&mut self) {
        for job in self.world.running() {
            let mut others: Vec<&Job> = Vec::new();
            for piece in job.grant().map_or(&[][..], |grant| &grant.pieces) {
                for gpu in piece.gpus.iter() {
                    let holders = self.world.holders(piece.node, gpu).iter();
                    let beside = holders.filter(|other| **other != job.spec.job);
                    others.extend(beside.map(|other| self.world.known(*other)));
                }
            }
            let level = self.world.level(job.grant().map_or(&[][..], |grant| &grant.pieces));
            let spread = u64::from(job.spec.spread_milli[level.index()]);
            let slowed = slowdown_milli(job, others.into_iter(), &self.setup.pairs) * spread / 1_000;
            self.truths[job.spec.job.index()].slowdown_milli = slowed;
        }
    }

    /// When the next turn is due.
    fn next(&mut self, now: Time, wake: Option<Time>, policy: &'static str) -> Result<Time, ClusterError> {
        let arrival = self.trace.jobs.get(self.arrived).map(|job| job.arrival);
        let round = self.round();
        let (mut ends, mut soonest) = (None, f64::MAX);
        for job in self.world.running() {
            let at = job.spec.job.index();
            let truth = &mut self.truths[at];
            let due = truth.foresee(now, self.clock, self.setup, &self.trace.jobs[at]);
            soonest = soonest.min(truth.task.1);
            let whole_round = self.setup.progress == Progress::Rounds;
            ends = Some(ends.map_or(due, |end: Time| if whole_round { end.max(due) } else { end.min(due) }));
        }
        let just_after = now + Span::from_ns(1);
        let ends = ends.map(|end| end.max(just_after));
        self.foreseen = ends;
        let (running, waiting) = self.world.load();
        let fault = self.faults.last().map(|(at, _)| *at);
        let idle = running == 0 && arrival.is_none() && fault.is_none() && waiting > 0;
        self.idle = if idle { self.idle + 1 } else { 0 };
        if idle && (wake.is_none() || self.idle > IDLE_MAX) {
            return Err(ClusterError::Stuck { policy, waiting, now });
        }
        // There a round lasts as long as its longest job, and what happens meanwhile waits for its end.
        if let (Progress::Rounds, Some(end)) = (self.setup.progress, ends) {
            let last = |job: &Job| self.truths[job.spec.job.index()].task.1;
            self.clock = self.world.running().map(last).fold(self.clock, f64::max);
            return Ok(end);
        }
        let earliest =
            [arrival, ends, wake, fault].into_iter().flatten().min().expect("something runs or arrives");
        let earliest = earliest.max(just_after);
        self.clock = earliest.since(Time::ZERO).as_secs_f64();
        if self.setup.progress == Progress::RestartAtTurn && ends == Some(earliest) {
            self.clock = soonest;
        }
        if self.setup.progress == Progress::Rounds {
            return Ok(earliest);
        }
        let whole = earliest.ns().checked_next_multiple_of(round.ns().max(1));
        Ok(Time::from_ns(whole.expect("virtual time stays below 2^64 ns, some 584 years")))
    }
}

impl Paused<'_> {
    /// The next turn; nothing when all was done before.
    #[must_use]
    pub const fn next(&self) -> Option<Time> {
        self.next
    }

    /// Jobs that run and wait.
    #[must_use]
    pub fn load(&self) -> (usize, usize) {
        self.simulation.world.load()
    }

    /// Goes on from here to the end under `choice`, which meets what it finds as if it had just come; what ends from here on
    /// is measured.
    ///
    /// # Errors
    /// As [`ClusterSimulation::run`] does.
    pub fn resume(&self, choice: &Choice) -> Result<ClusterOutcome, ClusterError> {
        let mut simulation = self.simulation.clone();
        let Some(next) = self.next else { return Ok(simulation.outcome) };
        (simulation.choice, simulation.report, simulation.adapts) =
            (choice.clone(), choice.needs_progress(), choice.adapts_batches());
        simulation.outcome.forget();
        let mut events = vec![Event::PolicyChanged];
        simulation.happen(next, &mut events);
        simulation.tell(&mut events);
        simulation.go(next, events, Time::FOREVER, &mut |_, _, _| Ok(()))?;
        Ok(simulation.outcome)
    }
}

/// Turns in a row that a policy may leave everybody waiting on an idle cluster, if it wants to be asked again.
const IDLE_MAX: u32 = 1_000;

/// Losses and returns of nodes, soonest last.
fn faults(setup: &Setup) -> Vec<(Time, Event)> {
    let mut faults = Vec::new();
    for loss in &setup.losses {
        faults.push((loss.at, Event::NodeLost { node: loss.node }));
        let spec = setup.nodes.iter().find(|spec| spec.node == loss.node);
        if let Some((back, spec)) = loss.back.zip(spec) {
            faults.push((back, Event::NodeAdded { spec: spec.clone() }));
        }
    }
    faults.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    faults
}
