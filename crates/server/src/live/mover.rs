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

/// How often a transfer under way is looked at.
const LOOK: Duration = Duration::from_micros(100);

/// How often an eviction is tried before it is a fault.
const EVICTIONS: u32 = 1_000;

/// What the mover is told.
pub(super) enum Order {
    /// A model's weights, by device.
    Know { model: ModelId, weights: Vec<Vec<Arc<dyn Residency>>> },
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
    /// By device.
    models: BTreeMap<ModelId, Vec<Vec<Arc<dyn Residency>>>>,
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

    fn of(&self, model: ModelId, device: DeviceId) -> &[Arc<dyn Residency>] {
        let sites = self.models.get(&model);
        sites.and_then(|sites| sites.get(usize::from(device.0))).map_or(&[], Vec::as_slice)
    }

    /// Begins to bring what is missing: from another device that has it all and can be read, else from the host.
    fn load(&self, model: ModelId, device: DeviceId) -> Result<(), EngineError> {
        let sites = self.models.get(&model).map_or(&[][..], Vec::as_slice);
        let peers = sites.iter().enumerate().filter(|(at, _)| *at != usize::from(device.0));
        let peers: Vec<&Vec<Arc<dyn Residency>>> = peers.map(|(_, weights)| weights).collect();
        for (place, weights) in self.of(model, device).iter().enumerate() {
            let mut begun = false;
            for peer in peers.iter().filter_map(|peer| peer.get(place)) {
                begun = begun || weights.load_from(&**peer)?;
            }
            if !begun {
                weights.load(&[])?;
            }
        }
        Ok(())
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Know { model, weights } => drop(self.models.insert(model, weights)),
            Order::Load { model, device } => match self.load(model, device) {
                Ok(()) => self.under_way.push((model, device)),
                Err(error) => self.failed(model, device, &error),
            },
            Order::Evict { model, device, keep } => match self.evict_soon(model, device, keep) {
                Ok(()) => self.tell(Event::ModelEvicted { model, device }),
                // The world allows no eviction of weights in use, so this is a broken device: they stay where they are.
                Err(error) => tracing::error!("weights of {model} cannot be evicted: {error}"),
            },
        }
    }

    /// Evicts, waiting a little for a run that has just been told to be over and is still being dropped.
    fn evict_soon(&self, model: ModelId, device: DeviceId, keep: u32) -> Result<(), EngineError> {
        for _ in 0..EVICTIONS {
            if self.evict(model, device, keep).is_ok() {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        self.evict(model, device, keep)
    }

    /// Gives back what lies past the first `keep` groups, counted over all weights of the model.
    fn evict(&self, model: ModelId, device: DeviceId, keep: u32) -> Result<(), EngineError> {
        let mut left = keep as usize;
        for weights in self.of(model, device) {
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
            let arrived = self.of(model, device).iter().map(|weights| weights.is_resident());
            match arrived.collect::<Result<Vec<bool>, EngineError>>() {
                Ok(arrived) if arrived.iter().all(|arrived| *arrived) => {
                    let groups: usize =
                        self.of(model, device).iter().map(|weights| weights.groups().len()).sum();
                    let groups = u32::try_from(groups).unwrap_or(u32::MAX);
                    self.tell(Event::GroupsArrived { model, device, groups });
                }
                Ok(_) => self.under_way.push((model, device)),
                Err(error) => self.failed(model, device, &error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::any::Any;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Weights that arrive at once and write down where from.
    struct Fake {
        name: &'static str,
        there: AtomicBool,
        log: Arc<Mutex<Vec<String>>>,
    }

    impl Fake {
        fn say(&self, what: String) {
            self.log.lock().unwrap().push(what);
        }
    }

    impl Residency for Fake {
        fn bytes(&self) -> Bytes {
            Bytes(8)
        }

        fn groups(&self) -> Vec<Bytes> {
            vec![Bytes(4), Bytes(4)]
        }

        fn identity(&self) -> usize {
            0
        }

        fn loaded(&self) -> Bytes {
            Bytes(if self.there.load(Ordering::Relaxed) { 8 } else { 0 })
        }

        fn is_resident(&self) -> Result<bool, EngineError> {
            Ok(self.there.load(Ordering::Relaxed))
        }

        fn load(&self, _groups: &[Bytes]) -> Result<(), EngineError> {
            self.there.store(true, Ordering::Relaxed);
            self.say(format!("{} from the host", self.name));
            Ok(())
        }

        fn load_from(&self, source: &dyn Residency) -> Result<bool, EngineError> {
            let source = source.as_any().downcast_ref::<Self>().unwrap();
            if !source.is_resident()? {
                return Ok(false);
            }
            self.there.store(true, Ordering::Relaxed);
            self.say(format!("{} from {}", self.name, source.name));
            Ok(true)
        }

        fn evict(&self, kept: Bytes) -> Result<(), EngineError> {
            self.there.store(false, Ordering::Relaxed);
            self.say(format!("{} keeps {}", self.name, kept.0));
            Ok(())
        }

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    #[test]
    fn weights_come_from_a_device_that_has_them_else_from_the_host() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let fake = |name| -> Arc<dyn Residency> {
            Arc::new(Fake { name, there: AtomicBool::new(false), log: log.clone() })
        };
        let (events, told) = mpsc::channel();
        let orders = spawn(events).unwrap();
        let model = ModelId(3);
        let weights =
            vec![vec![fake("a0"), fake("b0")], vec![fake("a1"), fake("b1")], vec![fake("a2"), fake("b2")]];
        let (first, second, third) = (DeviceId(0), DeviceId(1), DeviceId(2));
        for order in [
            Order::Know { model, weights },
            Order::Load { model, device: second },
            Order::Load { model, device: first },
            Order::Evict { model, device: second, keep: 1 },
            Order::Load { model, device: third },
        ] {
            orders.send(order).unwrap();
        }
        drop(orders);
        let devices: Vec<(&str, DeviceId)> = told
            .iter()
            .filter_map(|message| match message {
                Message::Device { event: Event::GroupsArrived { device, groups: 4, .. }, .. } => {
                    Some(("arrived", device))
                }
                Message::Device { event: Event::ModelEvicted { device, .. }, .. } => {
                    Some(("evicted", device))
                }
                _ => None,
            })
            .collect();
        assert_eq!(
            devices,
            [("arrived", second), ("arrived", first), ("evicted", second), ("arrived", third)]
        );
        let lines = log.lock().unwrap().join(", ");
        let expected = "a1 from the host, b1 from the host, a0 from a1, b0 from b1, a1 keeps 4, b1 keeps 0, a2 from a0, b2 from b0";
        assert_eq!(lines, expected);
    }
}
