//! The scheduler thread: drains every ready message, takes one turn, carries its decisions out. The only thread that
//! sees the world.

use super::answer::{Answerers, Computed, Finished};
use super::devices::look_out;
use super::handle::{Outcome, Timing};
use super::mover::Order;
use super::observe::Observer;
use super::partition::{Command, Start, Worker};
use super::rules::TenantRule;
use super::runtime::{Clock, Message, Work};
use crate::metrics::{End, Ended, Metrics, ModelMetrics};
use sched::node::{Act, Decision, Event, NodeWorld, Why};
use sched::{Policy, World, turn};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use vocab::{Class, ModelId, PartitionId, RequestId, RunId, Span, Time};

/// Messages folded into one turn at most, so that a flood cannot keep decisions waiting.
const DRAIN_MAX: usize = 4_096;

/// Journals reach the operating system at least this often.
const FLUSH_EVERY: Span = Span::from_ms(500);

pub(super) struct Scheduler {
    pub(super) world: NodeWorld,
    pub(super) policy: Box<dyn Policy<NodeWorld>>,
    pub(super) workers: BTreeMap<PartitionId, Worker>,
    pub(super) works: BTreeMap<RequestId, Work>,
    pub(super) runs: BTreeMap<RunId, Book>,
    pub(super) models: BTreeMap<ModelId, Arc<ModelMetrics>>,
    /// Models whose waiting requests may have become more or fewer in this turn.
    pub(super) touched: Vec<ModelId>,
    /// Constraints between tenants, and which models each tenant is.
    pub(super) rules: Vec<TenantRule>,
    pub(super) tenants: BTreeMap<String, Vec<ModelId>>,
    pub(super) observers: Vec<Observer>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Clock,
    pub(super) mover: Sender<Order>,
    pub(super) answerers: Answerers,
    /// How long it looks out for messages before it sleeps.
    pub(super) look_out: Duration,
}

/// A run as this driver keeps it.
pub(super) struct Book {
    model: ModelId,
    partition: PartitionId,
    requests: Vec<RequestId>,
    rows: u32,
    began: Time,
}

impl Scheduler {
    /// Serves messages until told to stop or every sender is gone.
    pub(super) fn serve(mut self, inbox: &Receiver<Message>) {
        let mut wake: Option<Time> = None;
        let mut flushed = self.clock.now();
        loop {
            let idle = || FLUSH_EVERY.min(wake.map_or(Span::MAX, |at| at.since(self.clock.now())));
            let looked = look_out(inbox, self.look_out.min(idle().into()));
            let first = match looked.or_else(|_| inbox.recv_timeout(idle().into())) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let mut events = Vec::new();
            let mut computed = HashMap::new();
            let mut stop = false;
            for message in first.into_iter().chain(inbox.try_iter()).take(DRAIN_MAX) {
                stop |= self.fold(message, &mut events, &mut computed);
            }
            let now = self.clock.now();
            if !events.is_empty() || wake.is_some_and(|at| at <= now) {
                wake = self.turn(now, events, computed);
            }
            if now.since(flushed) >= FLUSH_EVERY {
                flushed = now;
                self.observers.iter_mut().for_each(Observer::flush);
            }
            if stop {
                break;
            }
        }
        self.stop();
    }

    /// Turns a message into events; true when it says to stop.
    fn fold(
        &mut self,
        message: Message,
        events: &mut Vec<Event>,
        computed: &mut HashMap<RunId, Computed>,
    ) -> bool {
        match message {
            Message::Submit(work) => {
                events.push(Event::RequestArrived { request: work.request.clone() });
                self.works.insert(work.request.id, work);
            }
            Message::Cancel { request } => events.push(Event::RequestCancelled { request }),
            Message::Device { event, computed: found } => {
                if let (Event::RunFinished { run, .. }, Some(found)) = (&event, found) {
                    computed.insert(*run, found);
                }
                events.push(event);
            }
            Message::AddModel { spec, name, metrics, weights, groups } => {
                let model = spec.id;
                self.tenants.entry(name).or_default().push(model);
                self.models.insert(model, metrics);
                events.push(Event::ModelAdded { spec });
                if !groups.is_empty() {
                    self.order(Order::Know { model, weights });
                    events.push(Event::WeightsStored { model, groups });
                }
                if !self.rules.is_empty() {
                    events.push(Event::RulesSet { rules: super::rules::expand(&self.rules, &self.tenants) });
                }
            }
            Message::RemoveModel { model } => events.push(Event::ModelRemoved { model }),
            Message::Stop => return true,
        }
        false
    }

    fn turn(
        &mut self,
        now: Time,
        events: Vec<Event>,
        mut computed: HashMap<RunId, Computed>,
    ) -> Option<Time> {
        let begin = Instant::now();
        let turn = turn(&mut self.world, &mut *self.policy, now, &events);
        self.metrics.turn_took(Span::from(begin.elapsed()));
        // Devices first: a part waits for what was decided, everybody else can wait a little longer.
        let stop = |decision: &Decision| match decision.act {
            Act::Until { run, segment } => Some((run, usize::try_from(segment).ok()?)),
            _ => None,
        };
        let stops: BTreeMap<RunId, usize> = turn.accepted.iter().filter_map(stop).collect();
        for decision in &turn.accepted {
            self.perform(now, decision, &stops);
        }
        for event in &events {
            self.tell(now, event, &mut computed);
        }
        for observer in &mut self.observers {
            observer.turn(now, &events, &turn.accepted);
        }
        for (decision, refusal) in &turn.refused {
            tracing::error!("policy {} decided the impossible: {decision:?}: {refusal}", self.policy.name());
            self.metrics.decision_refused("impossible");
        }
        self.count_waiting(&events, &turn.accepted);
        turn.wake
    }

    /// Answers requests whose runs are over.
    fn tell(&mut self, now: Time, event: &Event, computed: &mut HashMap<RunId, Computed>) {
        match event {
            Event::RunStarted { run } => {
                if let Some(book) = self.runs.get_mut(run) {
                    book.began = now;
                }
            }
            Event::RunFinished { run, .. } => {
                let Some(book) = self.runs.remove(run) else { return };
                let Some(computed) = computed.remove(run) else { return };
                let works = book.requests.iter().map(|request| self.works.remove(request)).collect();
                let metrics = self.models.get(&book.model).cloned();
                let (began, batch_rows) = (book.began, book.rows);
                self.answerers.answer(Finished { works, computed, began, batch_rows, metrics });
            }
            Event::RunFailed { run, why } => {
                let Some(book) = self.runs.remove(run) else { return };
                tracing::error!("{run} failed: {why}");
                for request in &book.requests {
                    let Some(work) = self.works.remove(request) else { continue };
                    self.ended(now, &work, End::Failed, Timing::default());
                    work.answer(Outcome::Failed { why: why.clone() });
                }
            }
            Event::RunAbandoned { run } => drop(self.runs.remove(run)),
            // Its requests wait again.
            Event::RunRefused { run } => self.touched.extend(self.runs.remove(run).map(|book| book.model)),
            Event::RequestCancelled { request } => {
                if let Some(work) = self.works.remove(request) {
                    self.ended(now, &work, End::Cancelled, Timing::default());
                }
            }
            _ => {}
        }
    }

    /// `stops` are the segments before which runs decided in this turn park by themselves.
    fn perform(&mut self, now: Time, decision: &Decision, stops: &BTreeMap<RunId, usize>) {
        match &decision.act {
            Act::Start { run, model, partition, requests, window } => {
                let works: Vec<&Work> =
                    requests.iter().filter_map(|request| self.works.get(request)).collect();
                let Some(variant) = works.first().map(|work| work.variant.clone()) else { return };
                let rows: Vec<u32> = works.iter().map(|work| work.request.rows).collect();
                let inputs = works.iter().map(|work| work.inputs.clone()).collect();
                let (total, requests) = (rows.iter().sum(), requests.clone());
                let (model, partition, run) = (*model, *partition, *run);
                self.runs.insert(run, Book { model, partition, requests, rows: total, began: now });
                let (window, until) = (*window, stops.get(&run).copied());
                self.command(partition, Command::Start(Start { run, variant, inputs, rows, window, until }));
            }
            Act::Park { run } => {
                let Some(book) = self.runs.get(run) else { return };
                self.workers[&book.partition].control.park(*run);
                if let Some(metrics) = self.models.get(&book.model) {
                    metrics.preempted();
                }
            }
            Act::Resume { run } => {
                let Some(partition) = self.runs.get(run).map(|book| book.partition) else { return };
                self.command(partition, Command::Resume { run: *run, until: stops.get(run).copied() });
            }
            Act::Abandon { run } => {
                let Some(partition) = self.runs.get(run).map(|book| book.partition) else { return };
                self.workers[&partition].control.abandon(*run);
                self.command(partition, Command::Abandon { run: *run });
            }
            Act::Reject { request } => self.refuse(now, *request, &decision.why),
            Act::Load { model, device } => self.order(Order::Load { model: *model, device: *device }),
            Act::Evict { model, device, keep } => {
                self.order(Order::Evict { model: *model, device: *device, keep: *keep });
            }
            Act::Move { run, partition } => {
                if let Some(book) = self.runs.get_mut(run) {
                    book.partition = *partition;
                }
            }
            // It went with the start or the resumption.
            Act::Until { .. } => {}
            Act::Expire { request } => self.expire(now, *request, &decision.why),
        }
    }

    fn order(&self, order: Order) {
        if self.mover.send(order).is_err() {
            tracing::error!("the thread that moves weights has ended; models that are away cannot be served");
        }
    }

    fn command(&self, partition: PartitionId, command: Command) {
        if self.workers[&partition].commands.send(command).is_err() {
            tracing::error!("the thread of partition {partition} has ended; its runs are lost");
        }
    }

    fn refuse(&mut self, now: Time, request: RequestId, why: &Why) {
        let Some(work) = self.works.remove(&request) else { return };
        self.ended(now, &work, End::Rejected(why.label()), Timing::default());
        work.answer(Outcome::Rejected { label: why.label(), why: why.to_string() });
    }

    fn expire(&mut self, now: Time, request: RequestId, why: &Why) {
        let Some(work) = self.works.remove(&request) else { return };
        let run = self.runs.iter().find(|(_, book)| book.requests.contains(&request)).map(|(run, _)| *run);
        let progress = run.and_then(|run| self.world.run(run)).map(|run| {
            let (next, parks) = (run.next_segment, run.parks);
            format!("{why}; its run was in segment {next} or later, parked {parks} time(s) for others")
        });
        let (end, outcome) = match (run, progress) {
            (Some(_), progress) => {
                (End::Late, Outcome::Late { why: progress.unwrap_or_else(|| why.to_string()) })
            }
            (None, _) => {
                let waiting = self.world.waiting_len();
                (End::Dropped, Outcome::Dropped { why: format!("{why}, waiting with {waiting} other(s)") })
            }
        };
        self.ended(now, &work, end, Timing::default());
        work.answer(outcome);
    }

    fn ended(&mut self, now: Time, work: &Work, end: End, timing: Timing) {
        self.touched.push(work.request.model);
        let Some(metrics) = self.models.get(&work.request.model) else { return };
        let (class, rows) = (work.request.class, work.request.rows);
        let total = now.since(work.request.arrival);
        metrics.ended(&Ended { end, class, rows, total, timing, wall_ms: wall_ms() });
    }

    /// Tells the gauges of every model this turn touched how many of its requests wait.
    fn count_waiting(&mut self, events: &[Event], decisions: &[Decision]) {
        let mut touched = std::mem::take(&mut self.touched);
        for event in events {
            if let Event::RequestArrived { request } = event {
                touched.push(request.model);
            }
        }
        for decision in decisions {
            if let Act::Start { model, .. } = decision.act {
                touched.push(model);
            }
        }
        touched.sort_unstable();
        touched.dedup();
        for model in touched {
            let Some(metrics) = self.models.get(&model) else { continue };
            // A model with free dimensions is one model of the world for each of its shapes.
            let shapes = self.models.iter().filter(|(_, other)| Arc::ptr_eq(other, metrics));
            let mut by_class: BTreeMap<Class, usize> = BTreeMap::new();
            for shape in shapes.map(|(shape, _)| *shape).filter(|shape| self.world.model(*shape).is_some()) {
                for (class, _, _, _) in self.world.queue(shape).by_urgency_with_rows() {
                    *by_class.entry(class).or_default() += 1;
                }
            }
            metrics.waiting(&by_class);
        }
    }

    /// Gives up what runs, answers what is left, and completes the journals.
    fn stop(self) {
        for (run, book) in &self.runs {
            self.workers[&book.partition].control.abandon(*run);
        }
        for (_, worker) in self.workers {
            drop(worker.commands);
            if worker.thread.join().is_err() {
                tracing::error!("a partition's thread panicked");
            }
        }
        self.answerers.stop();
        for (_, work) in self.works {
            work.answer(Outcome::Failed { why: "the server stopped before it could answer".into() });
        }
        self.observers.into_iter().for_each(Observer::finish);
    }
}

/// The time of day, in ms since 1970, for statistics.
pub(super) fn wall_ms() -> u64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    u64::try_from(wall).unwrap_or(u64::MAX)
}

impl Scheduler {
    /// Folds the events the world begins with, as a turn of its own.
    pub(super) fn begin(&mut self, events: &[Event]) {
        let now = self.clock.now();
        let turn = turn(&mut self.world, &mut *self.policy, now, events);
        debug_assert!(turn.accepted.is_empty(), "nothing waits yet");
        for observer in &mut self.observers {
            observer.turn(now, events, &turn.accepted);
        }
        debug_assert!(self.world.wake().is_none(), "nothing is due yet");
    }
}
