//! The thread that moves weights: it carries loads and evictions out in the order of their decisions, and tells the
//! scheduler when they are over. Transfers themselves run on the device; this thread only begins and watches them.

use super::runtime::Message;
use engine::{EngineError, Residency};
use sched::node::Event;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::Duration;
use vocab::{Bytes, DeviceId, ModelId};

/// The device of a server that has one.
pub(super) const DEVICE: DeviceId = DeviceId(0);

/// How often a transfer under way is looked at.
const LOOK: Duration = Duration::from_micros(100);

/// How often an eviction is tried before it is a fault.
const EVICTIONS: u32 = 1_000;

/// What the mover is told.
pub(super) enum Order {
    /// A model's weights.
    Know { model: ModelId, weights: Vec<Arc<dyn Residency>> },
    /// Bring what is missing.
    Load { model: ModelId, device: DeviceId },
    /// Give device memory back but for the first groups.
    Evict { model: ModelId, device: DeviceId, keep: u32 },
}

/// Starts the thread. It ends when every sender is gone.
pub(super) fn spawn(events: Sender<Message>) -> std::io::Result<Sender<Order>> {
    let (orders, inbox) = mpsc::channel();
    let mover = Mover { events, models: BTreeMap::new(), under_way: Vec::new() };
    std::thread::Builder::new().name("mover".into()).spawn(move || mover.serve(&inbox))?;
    Ok(orders)
}

struct Mover {
    events: Sender<Message>,
    models: BTreeMap<ModelId, Vec<Arc<dyn Residency>>>,
    /// Loads that have begun, in order.
    under_way: Vec<(ModelId, DeviceId)>,
}

impl Mover {
    fn serve(mut self, inbox: &Receiver<Order>) {
        loop {
            let order = if self.under_way.is_empty() {
                inbox.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                match inbox.try_recv() {
                    Ok(order) => Ok(order),
                    Err(TryRecvError::Disconnected) => Err(RecvTimeoutError::Disconnected),
                    Err(TryRecvError::Empty) => inbox.recv_timeout(LOOK),
                }
            };
            match order {
                Ok(order) => self.obey(order),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.look();
        }
    }

    fn tell(&self, event: Event) {
        // A scheduler that has ended needs to know nothing more.
        let _ = self.events.send(Message::Device { event, computed: None });
    }

    fn of(&self, model: ModelId) -> &[Arc<dyn Residency>] {
        self.models.get(&model).map_or(&[], Vec::as_slice)
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Know { model, weights } => drop(self.models.insert(model, weights)),
            Order::Load { model, device } => {
                match self.of(model).iter().try_for_each(|weights| weights.load(&[])) {
                    Ok(()) => self.under_way.push((model, device)),
                    Err(error) => self.failed(model, device, &error),
                }
            }
            Order::Evict { model, device, keep } => match self.evict_soon(model, keep) {
                Ok(()) => self.tell(Event::ModelEvicted { model, device }),
                // The world allows no eviction of weights in use, so this is a broken device: they stay where they are.
                Err(error) => tracing::error!("weights of {model} cannot be evicted: {error}"),
            },
        }
    }

    /// Evicts, waiting a little for a run that has just been told to be over and is still being dropped.
    fn evict_soon(&self, model: ModelId, keep: u32) -> Result<(), EngineError> {
        for _ in 0..EVICTIONS {
            if self.evict(model, keep).is_ok() {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        self.evict(model, keep)
    }

    /// Gives back what lies past the first `keep` groups, counted over all weights of the model.
    fn evict(&self, model: ModelId, keep: u32) -> Result<(), EngineError> {
        let mut left = keep as usize;
        for weights in self.of(model) {
            let groups = weights.groups();
            let kept: Bytes = groups.iter().take(left).copied().sum();
            left = left.saturating_sub(groups.len());
            weights.evict(Bytes(kept.0.min(weights.bytes().0)))?;
        }
        Ok(())
    }

    fn failed(&self, model: ModelId, device: DeviceId, error: &EngineError) {
        self.tell(Event::LoadFailed { model, device, why: error.to_string() });
    }

    /// Tells which loads are over.
    fn look(&mut self) {
        let under_way = std::mem::take(&mut self.under_way);
        for (model, device) in under_way {
            let arrived = self.of(model).iter().map(|weights| weights.is_resident());
            match arrived.collect::<Result<Vec<bool>, EngineError>>() {
                Ok(arrived) if arrived.iter().all(|arrived| *arrived) => {
                    let groups: usize = self.of(model).iter().map(|weights| weights.groups().len()).sum();
                    let groups = u32::try_from(groups).unwrap_or(u32::MAX);
                    self.tell(Event::GroupsArrived { model, device, groups });
                }
                Ok(_) => self.under_way.push((model, device)),
                Err(error) => self.failed(model, device, &error),
            }
        }
    }
}
