//! A partition's thread: it alone touches its queue. It runs one batch at a time, looks at its control word at every
//! segment edge, and keeps parked runs.

use super::answer::Computed;
use super::devices::{Place, look_out};
use super::handle::Timing;
use super::runtime::{Clock, Message};
use super::variant::{Rows, Variant, begin};
use engine::{Device, EngineError, Progress, Queue, Run};
use sched::node::{Event, Window};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};
use vocab::{RunId, Span, Time};

/// What a partition is told to do.
pub(super) enum Command {
    Start(Start),
    Resume { run: RunId, until: Option<usize> },
    Abandon { run: RunId },
}

/// A run to begin.
pub(super) struct Start {
    pub(super) run: RunId,
    pub(super) variant: Arc<Variant>,
    pub(super) inputs: Vec<Arc<Vec<Rows>>>,
    pub(super) rows: Vec<u32>,
    pub(super) window: Window,
    /// It parks by itself before this segment.
    pub(super) until: Option<usize>,
}

/// Parked runs of a device: a run may go on on another of its partitions than it stopped on.
pub(super) type Lot = Arc<Mutex<BTreeMap<RunId, Active>>>;

/// The words a partition reads at every edge: the run to park and the run to abandon, each as its number plus one.
#[derive(Debug, Default)]
pub(super) struct Control {
    park: AtomicU64,
    abandon: AtomicU64,
}

impl Control {
    pub(super) fn park(&self, run: RunId) {
        self.park.store(run.0 + 1, Ordering::Release);
    }

    pub(super) fn abandon(&self, run: RunId) {
        self.abandon.store(run.0 + 1, Ordering::Release);
    }

    /// Whether `run` was told to park; telling is taken back by this.
    fn take_park(&self, run: RunId) -> bool {
        self.park.compare_exchange(run.0 + 1, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn wants_abandon(&self, run: RunId) -> bool {
        self.abandon.load(Ordering::Acquire) == run.0 + 1
    }
}

/// A partition as the scheduler holds it.
pub(super) struct Worker {
    pub(super) commands: Sender<Command>,
    pub(super) control: Arc<Control>,
    pub(super) thread: std::thread::JoinHandle<()>,
}

/// Starts the partition's thread and waits until its queue is open.
pub(super) fn spawn(
    device: Arc<dyn Device>,
    place: Place,
    clock: Clock,
    events: Sender<Message>,
    parked: Lot,
    long: Duration,
) -> Result<Worker, EngineError> {
    let (commands, inbox) = mpsc::channel();
    let (opened, ready) = mpsc::channel();
    let control = Arc::new(Control::default());
    let unavailable = |why: String| EngineError::Unavailable { partition: place.id, why };
    let shared = control.clone();
    let body = move || {
        let queue = match device.open(place.own) {
            Ok(queue) => queue,
            Err(error) => return drop(opened.send(Err(error))),
        };
        if opened.send(Ok(())).is_ok() {
            let site = place.device;
            Partition { device, site, queue, clock, events, control: shared, parked, look_out: long }
                .serve(&inbox);
        }
    };
    let thread = std::thread::Builder::new().name(format!("partition {}", place.id)).spawn(body);
    let thread = thread.map_err(|error| unavailable(error.to_string()))?;
    ready.recv().map_err(|_| unavailable("its thread ended".into()))??;
    Ok(Worker { commands, control, thread })
}

struct Partition {
    device: Arc<dyn Device>,
    /// Its device's place among the devices.
    site: usize,
    queue: Box<dyn Queue>,
    clock: Clock,
    events: Sender<Message>,
    control: Arc<Control>,
    parked: Lot,
    /// How long it looks out for commands before it sleeps.
    look_out: Duration,
}

/// A run with everything to go on with it.
pub(super) struct Active {
    id: RunId,
    run: Run,
    rows: Vec<u32>,
    batched: bool,
    timing: Timing,
    since: Time,
    until: Option<usize>,
}

impl Partition {
    fn serve(mut self, inbox: &Receiver<Command>) {
        while let Some(command) = self.next(inbox) {
            match command {
                Command::Start(start) => self.start(start),
                Command::Resume { run, until } => self.resume(run, until),
                Command::Abandon { run } => {
                    if self.unpark(run).is_some() {
                        self.tell(Event::RunAbandoned { run });
                    }
                }
            }
        }
    }

    fn next(&self, inbox: &Receiver<Command>) -> Option<Command> {
        look_out(inbox, self.look_out).or_else(|_| inbox.recv()).ok()
    }

    fn tell(&self, event: Event) {
        // The scheduler outlives its partitions; once it is gone there is nobody to tell.
        let _ = self.events.send(Message::Device { event, computed: None });
    }

    fn start(&mut self, start: Start) {
        let run = start.run;
        let mut now = self.clock.now();
        if now < start.window.earliest {
            std::thread::sleep(start.window.earliest.since(now).into());
            now = self.clock.now();
        }
        if now > start.window.latest {
            return self.tell(Event::RunRefused { run });
        }
        if self.control.wants_abandon(run) {
            return self.tell(Event::RunAbandoned { run });
        }
        self.tell(Event::RunStarted { run });
        let begun = Instant::now();
        let rows = start.rows.iter().sum();
        let program = start.variant.program(self.site, rows).clone();
        let ready = start.variant.await_load(self.site);
        match ready.and_then(|()| begin(&*self.device, program, &start.inputs)) {
            Err(error) => self.tell(Event::RunFailed { run, why: error.to_string() }),
            Ok(active) => {
                let timing = Timing { input: Span::from(begun.elapsed()), ..Timing::default() };
                let (id, batched) = (start.run, start.variant.batched);
                let (rows, until) = (start.rows, start.until);
                self.go_on(Active { id, run: active, rows, batched, timing, since: now, until });
            }
        }
    }

    fn unpark(&self, run: RunId) -> Option<Active> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner).remove(&run)
    }

    fn resume(&mut self, run: RunId, until: Option<usize>) {
        let Some(mut active) = self.unpark(run) else { return };
        active.until = until;
        self.tell(Event::RunResumed { run });
        match active.run.resume() {
            Ok(()) => self.go_on(active),
            Err(error) => self.tell(Event::RunFailed { run, why: error.to_string() }),
        }
    }

    /// Runs segments until the end, or until an edge at which the control word says otherwise. As many are in flight as
    /// the device takes ahead; a run told to stop lets those end first.
    fn go_on(&mut self, mut active: Active) {
        let run = active.id;
        let ahead = self.device.ahead();
        let mut stopping = false;
        loop {
            match active.run.progress() {
                Progress::Finished => return self.finish(active),
                Progress::AtEdge { .. } if self.control.wants_abandon(run) => {
                    active.run.abandon();
                    return self.tell(Event::RunAbandoned { run });
                }
                Progress::AtEdge { next }
                    if stopping || active.until == Some(next) || self.control.take_park(run) =>
                {
                    return self.park(active, next);
                }
                _ => {}
            }
            stopping = stopping || self.control.take_park(run);
            let holds = stopping || self.control.wants_abandon(run);
            if let Err(error) = self.advance(&mut active, if holds { 0 } else { ahead }) {
                drop(active);
                return self.tell(Event::RunFailed { run, why: error.to_string() });
            }
        }
    }

    /// Launches until `ahead` segments are in flight or all of its stage, then waits for the oldest.
    fn advance(&mut self, active: &mut Active, ahead: usize) -> Result<(), EngineError> {
        let queue = &mut *self.queue;
        let more = |run: &Run| !run.is_launched() && active.until != Some(run.next_segment());
        while active.run.under_way() < ahead && more(&active.run) {
            active.run.launch(queue)?;
        }
        active.run.settle_one(queue).map(drop)
    }

    fn park(&mut self, mut active: Active, next: usize) {
        let run = active.id;
        let segments = active.run.take_times();
        let next_segment = u32::try_from(next).expect("a model has fewer than 2^32 segments");
        // Told to park on the way to where it parks by itself: it has been obeyed.
        self.control.take_park(run);
        match active.run.park() {
            Ok(()) => {
                active.timing.parks += 1;
                active.until = None;
                self.parked.lock().unwrap_or_else(PoisonError::into_inner).insert(run, active);
                self.tell(Event::RunParked { run, next_segment, segments });
            }
            Err(error) => self.tell(Event::RunFailed { run, why: error.to_string() }),
        }
    }

    fn finish(&self, mut active: Active) {
        let run = active.id;
        let segments = active.run.take_times();
        let computed = self.clock.now();
        active.timing.compute = computed.since(active.since) - active.timing.input;
        match active.run.finish() {
            Ok(outputs) => {
                let Active { rows, batched, timing, .. } = active;
                let computed = Some(Computed { outputs, rows, batched, timing, at: computed });
                let event = Event::RunFinished { run, segments };
                let _ = self.events.send(Message::Device { event, computed });
            }
            Err(error) => self.tell(Event::RunFailed { run, why: error.to_string() }),
        }
    }
}
