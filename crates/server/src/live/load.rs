//! The loader thread: reads models, has their programs made and measured, and tells the scheduler.

use super::handle::{ModelInfo, ModelState, Outcome, Readiness, Timing};
use super::make::{Maker, Wanted};
use super::preparing::{Claim, Taker};
use super::runtime::{Message, Served, Shared, Work};
use super::scheduler::wall_ms;
use super::variant::{Binding, Rows, Variant};
use crate::metrics::{End, Ended};
use crate::repository::ModelEntry;
use engine::Queue;
use graph::{Batch, Dim, Model, Port};
use sched::node::{ModelSpec, Promise};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;
use vocab::{ModelId, Request, Span};

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

pub(super) struct Loader {
    pub(super) shared: Arc<Shared>,
    pub(super) maker: Maker,
    pub(super) batch_default: u32,
    pub(super) variants_max: usize,
}

impl Loader {
    pub(super) fn serve(self, inbox: &Receiver<Job>) {
        // What a model costs is what it costs on the largest part.
        let device = self.maker.devices.first();
        let largest = device.partitions().iter().max_by_key(|part| (part.units, u16::MAX - part.id.0));
        let Some(largest) = largest.map(|part| part.id) else { return };
        let mut queue = match device.open(largest) {
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
        for port in &mut info.outputs {
            port.dtype = self.maker.devices.first().delivers(port.dtype);
        }
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
        let go_on = || if unwanted() { Err(DRAINING.to_owned()) } else { Ok(()) };
        let sizes: Vec<String> = binding.iter().map(|(name, size)| format!("{name}={size}")).collect();
        let suffix = if sizes.is_empty() { String::new() } else { format!("[{}]", sizes.join(",")) };
        let name = format!("{}/{}{suffix}", served.name, served.info().version);
        let made = self.maker.make(&Wanted { model, name, batch_max, alone, free }, queue, go_on)?;
        let id = self.shared.next_model();
        let batching = &served.config.batching;
        let spec = ModelSpec {
            id,
            name: format!("{}{suffix}", served.name),
            class: batching.default_class,
            batch_max: batch_max.max(1),
            queue_delay: batching.delay,
            queue_max: batching.default_policy.max_queue_size,
            costs: made.costs.clone(),
            parts: made.parts.clone(),
            // A periodic task's answers are due before the next request, unless it says otherwise.
            promise: Promise {
                deadline: served.config.slo.or(served.config.period),
                period: served.config.period,
            },
        };
        let metrics = served.metrics.clone();
        let (name, groups) = (served.name.clone(), made.groups.clone());
        let weights = made.sites.iter().map(|site| site.weights.clone()).collect();
        self.shared.send(Message::AddModel { spec, name, metrics, weights, groups });
        Ok(Arc::new(Variant::new(id, made.sites.clone(), batched)))
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
