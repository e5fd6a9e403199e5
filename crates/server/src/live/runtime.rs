//! The runtime's shared state and its start and stop.

use super::Handle;
use super::answer::{Answerers, Computed};
use super::devices::Devices;
use super::handle::{ModelInfo, ModelState, Outcome, Readiness, Submission, SubmitError, Ticket};
use super::load::{Job, Loader, Parts};
use super::make::{Calibration, Maker, Shelf};
use super::mover;
use super::observe::Observer;
use super::partition;
use super::preparing::{Claim, Preparing, Taker};
use super::rules::TenantRule;
use super::scheduler::Scheduler;
use super::variant::{Binding, Rows, Variant, binding, stage};
use crate::metrics::{Metrics, ModelMetrics};
use crate::repository::{ModelConfig, ModelEntry};
use engine::{Device, EngineError, Residency};
use graph::{Dim, ImportLimits, Model, Port, SegmentOptions};
use sched::node::policy::Choice;
use sched::node::{Event, ModelSpec, NodeWorld, WeightGroup};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Instant;
use tokio::sync::oneshot;
use vocab::{Bytes, ModelId, Request, RequestId, Time};

/// The driver's clock: time since it started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn now(self) -> Time {
        Time::ZERO + vocab::Span::from(self.0.elapsed())
    }
}

/// What the scheduler thread is told.
pub(super) enum Message {
    Submit(Work),
    Cancel {
        request: RequestId,
    },
    Device {
        event: Event,
        computed: Option<Computed>,
    },
    AddModel {
        spec: ModelSpec,
        /// The tenant: its name in the repository.
        name: String,
        metrics: Arc<ModelMetrics>,
        /// By device.
        weights: Vec<Vec<Arc<dyn Residency>>>,
        groups: Vec<WeightGroup>,
    },
    RemoveModel {
        model: ModelId,
    },
    Stop,
}

/// A request with everything needed to run and answer it.
pub(super) struct Work {
    pub(super) request: Request,
    pub(super) variant: Arc<Variant>,
    pub(super) inputs: Arc<Vec<Rows>>,
    pub(super) reply: Reply,
}

impl Work {
    pub(super) fn answer(self, outcome: Outcome) {
        self.reply.send(outcome);
    }
}

/// The way back to the client. Dropping it counts the request as over.
pub(super) struct Reply {
    sender: oneshot::Sender<Outcome>,
    room: Room,
}

impl Reply {
    pub(super) fn send(self, outcome: Outcome) {
        // A client that has left has dropped its end; its answer is nobody's.
        let _ = self.sender.send(outcome);
        drop(self.room);
    }
}

/// A request's share of the in-flight bounds, given back when dropped.
struct Room {
    shared: Arc<Shared>,
    bytes: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.shared.in_flight.fetch_sub(1, Ordering::AcqRel);
        self.shared.in_flight_bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// Cancels its request when dropped before the outcome was seen.
#[derive(Debug)]
pub(super) struct CancelOnDrop {
    request: RequestId,
    inbox: Option<Sender<Message>>,
    /// Its claim when it was submitted before its programs were there.
    claim: Option<Claim>,
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Message")
    }
}

impl CancelOnDrop {
    pub(super) fn disarm(mut self) {
        self.inbox = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let before_scheduling = self.claim.as_ref().is_some_and(|claim| claim.take(Taker::Client));
        if let Some(inbox) = self.inbox.take().filter(|_| !before_scheduling) {
            // A stopped scheduler has answered everyone already.
            let _ = inbox.send(Message::Cancel { request: self.request });
        }
    }
}

/// A model version being served.
pub(super) struct Served {
    pub(super) name: String,
    pub(super) config: Arc<ModelConfig>,
    pub(super) metrics: Arc<ModelMetrics>,
    info: RwLock<Arc<ModelInfo>>,
    model: OnceLock<(Model, Binding)>,
    variants: Mutex<Vec<(Binding, Arc<Variant>)>>,
}

impl Served {
    pub(super) fn info(&self) -> Arc<ModelInfo> {
        self.info.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_info(&self, info: ModelInfo) {
        *self.info.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(info);
    }

    pub(super) fn set_state(&self, state: ModelState) {
        let info = ModelInfo { state, ..(*self.info()).clone() };
        self.set_info(info);
    }

    /// The imported model, once it has been read.
    pub(super) fn model(&self) -> Option<&Model> {
        self.model.get().map(|(model, _)| model)
    }

    /// Free sizes that the configuration fixes.
    pub(super) fn pinned(&self) -> Binding {
        self.model.get().map(|(_, pinned)| pinned.clone()).unwrap_or_default()
    }

    pub(super) fn set_model(&self, model: Model, pinned: Binding) {
        // A model is read once; a second reading would be dropped.
        let _ = self.model.set((model, pinned));
    }

    /// The programs for these free sizes, if they are prepared; they count as just used.
    pub(super) fn variant(&self, sizes: &Binding) -> Option<Arc<Variant>> {
        let mut variants = self.variants.lock().unwrap_or_else(PoisonError::into_inner);
        let at = variants.iter().position(|(known, _)| known == sizes)?;
        let found = variants.remove(at);
        let variant = found.1.clone();
        variants.push(found);
        Some(variant)
    }

    /// Keeps `variant`, and lets go of the least recently used idle ones beyond `max`; gives their numbers.
    pub(super) fn insert(&self, sizes: Binding, variant: Arc<Variant>, max: usize) -> Vec<ModelId> {
        let mut variants = self.variants.lock().unwrap_or_else(PoisonError::into_inner);
        variants.push((sizes, variant));
        let mut gone = Vec::new();
        while variants.len() > max {
            // A variant that a request still holds has more owners than this list.
            let idle = variants[..variants.len() - 1].iter().position(|(_, v)| Arc::strong_count(v) == 1);
            let Some(at) = idle else { break };
            gone.push(variants.remove(at).1.id);
        }
        gone
    }
}

/// State shared by handles, loader and scheduler.
pub(super) struct Shared {
    models: BTreeMap<(String, u64), Arc<Served>>,
    entrance: Mutex<Entrance>,
    devices: Devices,
    clock: Clock,
    limits: Limits,
    pub(super) import: ImportLimits,
    pub(super) model_numbers: AtomicU32,
    in_flight: AtomicUsize,
    in_flight_bytes: AtomicUsize,
    loading: AtomicUsize,
    draining: AtomicBool,
}

/// Requests are numbered and sent under one lock, so that numbers ascend in the order of arrival.
struct Entrance {
    next: RequestId,
    inbox: Sender<Message>,
    loader: Sender<Job>,
}

/// Bounds of the runtime.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests taken and not ended.
    pub in_flight: usize,
    /// Bytes of their inputs.
    pub in_flight_bytes: usize,
    /// Distinct shapes a model with free dimensions keeps programs for.
    pub variants: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { in_flight: 4_096, in_flight_bytes: 1 << 30, variants: 8 }
    }
}

impl Shared {
    pub(super) fn models(&self) -> Vec<Arc<ModelInfo>> {
        self.models.values().map(|served| served.info()).collect()
    }

    pub(super) fn model(&self, name: &str, version: Option<u64>) -> Option<Arc<ModelInfo>> {
        self.served(name, version).map(|served| served.info())
    }

    fn served(&self, name: &str, version: Option<u64>) -> Option<&Arc<Served>> {
        if let Some(version) = version {
            return self.models.get(&(name.to_owned(), version));
        }
        let versions = self.models.range((name.to_owned(), 0)..=(name.to_owned(), u64::MAX));
        versions.map(|(_, served)| served).next_back()
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(super) fn send(&self, message: Message) {
        let entrance = self.entrance.lock().unwrap_or_else(PoisonError::into_inner);
        // A stopped scheduler needs no more messages.
        let _ = entrance.inbox.send(message);
    }

    pub(super) fn loaded_one(&self) {
        self.loading.fetch_sub(1, Ordering::AcqRel);
    }

    pub(super) fn readiness(&self) -> Readiness {
        if self.draining.load(Ordering::Acquire) {
            Readiness::Draining
        } else if self.loading.load(Ordering::Acquire) > 0 {
            Readiness::Loading
        } else {
            Readiness::Ready
        }
    }

    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    pub(super) fn submit(self: &Arc<Self>, submission: Submission) -> Result<Ticket, SubmitError> {
        if self.draining.load(Ordering::Acquire) {
            return Err(SubmitError::Draining);
        }
        let Submission { model: info, inputs, rows, class, timeout } = submission;
        let name = info.name.clone();
        let not_ready = |why: &str| SubmitError::NotReady { name: name.clone(), why: why.into() };
        let served =
            self.served(&info.name, Some(info.version)).ok_or_else(|| not_ready("it was unloaded"))?;
        match &served.info().state {
            ModelState::Ready => {}
            ModelState::Loading => return Err(not_ready("it is loading; retry soon")),
            ModelState::Unavailable(why) => return Err(not_ready(why)),
        }
        let sizes =
            binding(&info.inputs, &inputs).map_err(|why| SubmitError::Shape { name: name.clone(), why })?;
        let room = self.room(inputs.iter().map(|tensor| tensor.data().len()).sum())?;
        let class = class.unwrap_or(served.config.batching.default_class);
        let timeout = timeout.or_else(|| served.config.default_timeout(class));
        let variant = served.variant(&sizes);

        let (sender, outcome) = oneshot::channel();
        let reply = Reply { sender, room };
        // Before it is numbered: copying takes its time, and many clients copy at once.
        let inputs = Arc::new(match &variant {
            Some(variant) => stage(&**self.devices.at(variant.likely()), inputs),
            None => inputs.into_iter().map(Rows::Host).collect(),
        });
        let mut entrance = self.entrance.lock().unwrap_or_else(PoisonError::into_inner);
        let id = entrance.next;
        entrance.next = RequestId(id.0 + 1);
        let arrival = self.clock.now();
        let model = variant.as_ref().map_or(ModelId(u32::MAX), |variant| variant.id);
        let deadline = timeout.map(|timeout| arrival + timeout);
        let request = Request { id, model, class, rows, arrival, deadline };
        let preparing = variant.is_none().then(|| Preparing::new(timeout));
        let claim = preparing.as_ref().map(|preparing| preparing.claim.clone());
        // A stopped runtime drops the work, and with it the reply: the ticket then says so.
        match variant {
            Some(variant) => {
                drop(entrance.inbox.send(Message::Submit(Work { request, variant, inputs, reply })))
            }
            None => {
                let claim = claim.clone().unwrap_or_default();
                let parts = Parts { request, inputs, reply, claim };
                drop(entrance.loader.send(Job::Shape { served: served.clone(), binding: sizes, parts }));
            }
        }
        let cancel = CancelOnDrop { request: id, inbox: Some(entrance.inbox.clone()), claim };
        Ok(Ticket { request: id, outcome, cancel: Some(cancel), preparing })
    }

    /// Reserves a place and `bytes` among the requests in flight.
    fn room(self: &Arc<Self>, bytes: usize) -> Result<Room, SubmitError> {
        let before = self.in_flight.fetch_add(1, Ordering::AcqRel);
        let bytes_before = self.in_flight_bytes.fetch_add(bytes, Ordering::AcqRel);
        let room = Room { shared: self.clone(), bytes };
        if before >= self.limits.in_flight {
            return Err(SubmitError::Full { limit: self.limits.in_flight });
        }
        // One request may be larger than the bound; it must then be alone.
        if bytes_before > 0 && bytes_before.saturating_add(bytes) > self.limits.in_flight_bytes {
            return Err(SubmitError::FullBytes { limit: Bytes::of_len(self.limits.in_flight_bytes) });
        }
        Ok(room)
    }
}

/// Puts the dimensions that `config` declares into `info`'s ports.
///
/// # Errors
/// A sentence naming the first tensor whose declaration does not fit the file.
pub(super) fn apply_dims(info: &mut ModelInfo, config: &ModelConfig) -> Result<(), String> {
    let batched = info.batch_max > 0;
    let sides = [(&mut info.inputs, &config.inputs, "input"), (&mut info.outputs, &config.outputs, "output")];
    for (ports, declared, side) in sides {
        for tensor in declared {
            let Some(port) = ports.iter_mut().find(|port| port.name == tensor.name) else {
                let known: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
                return Err(format!(
                    "config.pbtxt declares {side} {:?}; the file has {}",
                    tensor.name,
                    known.join(", ")
                ));
            };
            if port.dtype != tensor.dtype {
                let (declared, found) = (tensor.dtype, port.dtype);
                return Err(format!(
                    "config.pbtxt declares {side} {:?} as {declared}; in the file it is {found}",
                    tensor.name
                ));
            }
            let own = if batched { &mut port.shape[1..] } else { &mut port.shape[..] };
            let shown = format!("{own:?}");
            let fits = |(dim, declared): (&Dim, &i64)| match dim {
                Dim::Fixed(size) => *declared == -1 || usize::try_from(*declared) == Ok(*size),
                _ => true,
            };
            if own.len() != tensor.dims.len() || !own.iter().zip(&tensor.dims).all(fits) {
                return Err(format!(
                    "config.pbtxt declares {side} {:?} with dims {:?}; the file has {shown}",
                    tensor.name, tensor.dims
                ));
            }
            for (dim, declared) in own.iter_mut().zip(&tensor.dims) {
                if let (Dim::Free(_), Ok(size)) = (&*dim, usize::try_from(*declared)) {
                    *dim = Dim::Fixed(size);
                }
            }
        }
    }
    Ok(())
}

/// Free dimensions of the file that `info` shows as fixed, with their sizes.
pub(super) fn pinned(file: &[Port], info: &ModelInfo) -> Binding {
    let mut sizes = Binding::new();
    for (port, shown) in file.iter().zip(&info.inputs) {
        for (dim, shown) in port.shape.iter().zip(&shown.shape) {
            match (dim, shown) {
                (Dim::Free(name), Dim::Fixed(size)) => drop(sizes.insert(name.clone(), *size)),
                (Dim::Batch, Dim::Fixed(size)) => drop(sizes.insert("batch".into(), *size)),
                _ => {}
            }
        }
    }
    sizes
}

/// What a runtime is started with.
pub struct RuntimeOptions {
    /// The devices to run on, all of one kind and in the same parts.
    pub devices: Vec<Arc<dyn Device>>,
    /// The policy.
    pub policy: Choice,
    /// Who watches the turns.
    pub observers: Vec<Observer>,
    /// Bounds.
    pub limits: Limits,
    /// Bounds of reading models.
    pub import: ImportLimits,
    /// `max_batch_size` of a model that does not say.
    pub batch_default: u32,
    /// How models are cut.
    pub segments: SegmentOptions,
    /// How their costs are measured.
    pub calibration: Calibration,
    /// Device memory for weights that the scheduler is not given: models are prepared and measured in it.
    pub staging: Bytes,
    /// Constraints between tenants.
    pub rules: Vec<TenantRule>,
    /// Where prepared models are kept for the next runtime on the same devices; they are prepared anew without.
    pub shelf: Option<Arc<Shelf>>,
}

/// Why a runtime cannot start.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// A partition cannot be opened.
    #[error(transparent)]
    Partition(#[from] EngineError),
    /// A thread cannot be started.
    #[error("a thread cannot be started")]
    Thread(#[from] std::io::Error),
    /// Nothing to run on.
    #[error("a server needs a device")]
    NoDevice,
    /// Models would not cost the same on each device.
    #[error(
        "device {place} ({other}) is not like the first ({first}); serve unlike devices with a server each"
    )]
    Unlike {
        /// Its place among those that were named.
        place: usize,
        /// What the first is.
        first: String,
        /// What it is.
        other: String,
    },
    /// More partitions than there are numbers for.
    #[error("{devices} devices of {each} partitions are too many; cut each into fewer")]
    Partitions {
        /// Devices.
        devices: usize,
        /// Partitions of each.
        each: usize,
    },
}

/// A running runtime. Keep it until the end, then [`Runtime::stop`] it.
pub struct Runtime {
    handle: Handle,
    scheduler: std::thread::JoinHandle<()>,
    loader: std::thread::JoinHandle<()>,
}

impl Runtime {
    /// Opens every partition of the devices and begins to load `entries`.
    ///
    /// # Errors
    /// When a partition or a thread cannot be had, or the devices differ.
    pub fn start(
        options: RuntimeOptions,
        entries: Vec<ModelEntry>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, RuntimeError> {
        let clock = Clock(Instant::now());
        let (inbox, messages) = mpsc::channel();
        let (loader_inbox, jobs) = mpsc::channel();
        let devices = Devices::new(options.devices)?;
        let mut workers = BTreeMap::new();
        let parked = partition::Lot::default();
        for (place, _) in devices.partitions() {
            let (device, lot) = (devices.at(place.device).clone(), parked.clone());
            let worker = partition::spawn(device, place, clock, inbox.clone(), lot, devices.look_out())?;
            workers.insert(place.id, worker);
        }
        let mover = mover::spawn(inbox.clone())?;
        let models = entries.iter().map(|entry| served(entry, &metrics)).collect();
        let shared = Arc::new(Shared {
            models,
            entrance: Mutex::new(Entrance { next: RequestId(0), inbox, loader: loader_inbox }),
            devices: devices.clone(),
            clock,
            limits: options.limits,
            import: options.import,
            model_numbers: AtomicU32::new(0),
            in_flight: AtomicUsize::new(0),
            in_flight_bytes: AtomicUsize::new(0),
            loading: AtomicUsize::new(entries.len()),
            draining: AtomicBool::new(false),
        });
        let mut scheduler = Scheduler {
            mover,
            answerers: Answerers::start(clock)?,
            world: NodeWorld::new(),
            policy: options.policy.build(),
            workers,
            works: BTreeMap::new(),
            runs: BTreeMap::new(),
            models: BTreeMap::new(),
            touched: Vec::new(),
            rules: options.rules,
            tenants: BTreeMap::new(),
            observers: options.observers,
            metrics,
            clock,
            look_out: devices.look_out(),
        };
        scheduler.begin(&devices.events(options.staging));
        let maker = Maker {
            devices,
            segments: options.segments,
            calibration: options.calibration,
            moves: options.policy.moves(),
            stops: options.policy.stops(),
            shelf: options.shelf,
        };
        let loader = Loader {
            shared: shared.clone(),
            maker,
            batch_default: options.batch_default,
            variants_max: options.limits.variants,
        };
        let scheduler =
            std::thread::Builder::new().name("scheduler".into()).spawn(move || scheduler.serve(&messages))?;
        let loader = std::thread::Builder::new().name("loader".into()).spawn(move || loader.serve(&jobs))?;
        let runtime = Self { handle: Handle(shared), scheduler, loader };
        runtime.load(entries);
        Ok(runtime)
    }

    fn load(&self, entries: Vec<ModelEntry>) {
        let shared = &self.handle.0;
        for entry in entries {
            let served = shared.models[&(entry.name.clone(), entry.version)].clone();
            let entrance = shared.entrance.lock().unwrap_or_else(PoisonError::into_inner);
            // The loader lives until it is told to stop.
            let _ = entrance.loader.send(Job::Model { served, entry });
        }
    }

    /// A way in for front ends.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Stops at once: runs under way are given up at their next segment edge, requests in flight are answered with a
    /// failure, journals are completed. A file that is just being read is not waited for.
    pub fn stop(self) {
        self.handle.drain();
        {
            let entrance = self.handle.0.entrance.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = entrance.loader.send(Job::Stop);
            let _ = entrance.inbox.send(Message::Stop);
        }
        // The loader may be deep in a large file, and nothing it makes is wanted any more.
        drop(self.loader);
        if self.scheduler.join().is_err() {
            tracing::error!("the scheduler thread panicked");
        }
    }
}

fn served(entry: &ModelEntry, metrics: &Metrics) -> ((String, u64), Arc<Served>) {
    let info = ModelInfo {
        name: entry.name.clone(),
        version: entry.version,
        state: ModelState::Loading,
        inputs: Vec::new(),
        outputs: Vec::new(),
        batch_max: 0,
    };
    let served = Served {
        name: entry.name.clone(),
        config: entry.config.clone(),
        metrics: metrics.add_model(&entry.name, entry.version, entry.config.batching.levels),
        info: RwLock::new(Arc::new(info)),
        model: OnceLock::new(),
        variants: Mutex::new(Vec::new()),
    };
    ((entry.name.clone(), entry.version), Arc::new(served))
}
