//! The devices of a server. They are alike, so that a model costs the same on each; their partitions are numbered through.
//!
//! ```text
//! device 0: p0 p1 p2    device 1: p3 p4 p5    (each calls its own p0 p1 p2)
//! ```

use super::runtime::RuntimeError;
use engine::{Device, PartitionInfo};
use sched::node::{Event, Part};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};
use vocab::{Bytes, DeviceId, PartitionId};

/// Devices of one kind, at least one.
#[derive(Clone)]
pub(super) struct Devices(Arc<Vec<Arc<dyn Device>>>);

/// A partition as its device and as the world know it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Its device's place among the devices.
    pub(super) device: usize,
    /// Its number on its device.
    pub(super) own: PartitionId,
    /// Its number in the world.
    pub(super) id: PartitionId,
}

/// Cores from which on threads look out.
const CORES_TO_SPARE: usize = 8;

/// How long a thread looks out for a message before it sleeps.
const LOOK_OUT: Duration = Duration::from_micros(100);

/// The next message of `inbox`, looked out for so long, without sleeping.
pub(super) fn look_out<T>(inbox: &Receiver<T>, long: Duration) -> Result<T, TryRecvError> {
    let begin = Instant::now();
    loop {
        match inbox.try_recv() {
            Err(TryRecvError::Empty) if begin.elapsed() < long => std::hint::spin_loop(),
            found => return found,
        }
    }
}

impl Devices {
    /// # Errors
    /// When there is none, or one differs from the first.
    pub(super) fn new(devices: Vec<Arc<dyn Device>>) -> Result<Self, RuntimeError> {
        let shape = |device: &dyn Device| {
            let parts = device.partitions().iter().map(|part| (part.id, part.first, part.units));
            let memory = device.weight_memory().map(|(_, total)| total);
            (device.info().kind.clone(), parts.collect::<Vec<_>>(), device.overlap(), memory)
        };
        let first = devices.first().ok_or(RuntimeError::NoDevice)?;
        let own = shape(&**first);
        if let Some(place) = devices.iter().position(|device| shape(&**device) != own) {
            let text = |device: &dyn Device| {
                let (parts, kind) = (device.partitions().len(), &device.info().kind);
                format!("{kind}, {} units in {parts} partition(s)", device.units())
            };
            let (first, other) = (text(&**first), text(&*devices[place]));
            return Err(RuntimeError::Unlike { place, first, other });
        }
        if devices.len() * first.partitions().len() > usize::from(u16::MAX) {
            return Err(RuntimeError::Partitions { devices: devices.len(), each: first.partitions().len() });
        }
        Ok(Self(Arc::new(devices)))
    }

    /// The device that stands for all where costs are measured.
    pub(super) fn first(&self) -> &Arc<dyn Device> {
        &self.0[0]
    }

    /// All, in order.
    pub(super) fn all(&self) -> &[Arc<dyn Device>] {
        &self.0
    }

    /// How long threads that wait for each other's messages look out for them before they sleep: a while on GPUs, where waking
    /// up costs more than that, on a machine with cores to spare; else not at all.
    pub(super) fn look_out(&self) -> Duration {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let worth = self.first().segment_target().is_some() && cores >= CORES_TO_SPARE;
        if worth { LOOK_OUT } else { Duration::ZERO }
    }

    /// The device at that place.
    pub(super) fn at(&self, place: usize) -> &Arc<dyn Device> {
        &self.0[place]
    }

    /// Every partition of every device, in the order of their numbers.
    pub(super) fn partitions(&self) -> impl Iterator<Item = (Place, &PartitionInfo)> {
        let each = self.first().partitions().len();
        self.0.iter().enumerate().flat_map(move |(device, at)| {
            at.partitions().iter().enumerate().map(move |(own, info)| {
                let id = PartitionId(u16::try_from(device * each + own).unwrap_or(u16::MAX));
                (Place { device, own: info.id, id }, info)
            })
        })
    }

    /// The world as a driver begins with it, and the events that say so. `staging` of each device's memory for weights is
    /// not the scheduler's.
    pub(super) fn events(&self, staging: Bytes) -> Vec<Event> {
        let partition = |(place, info): (Place, &PartitionInfo)| Event::PartitionAdded {
            partition: place.id,
            name: info.name.clone(),
        };
        let mut events: Vec<Event> = self.partitions().map(partition).collect();
        for (at, device) in self.0.iter().enumerate() {
            let own: Vec<(Place, &PartitionInfo)> =
                self.partitions().filter(|(place, _)| place.device == at).collect();
            if own.len() > 1 {
                let part = |(place, info): &(Place, &PartitionInfo)| {
                    (place.id, Part { first: Some(info.first), units: info.units })
                };
                let parts = own.iter().map(part).collect();
                events.push(Event::PartsShared { units: device.units(), overlap: device.overlap(), parts });
            }
            if let Some((_, total)) = device.weight_memory() {
                events.push(Event::DeviceAdded {
                    device: number(at),
                    name: device.info().kind.clone(),
                    memory: Bytes(total.0.saturating_sub(staging.0)),
                    partitions: own.iter().map(|(place, _)| place.id).collect(),
                });
            }
        }
        events
    }
}

/// A device's number in the world.
fn number(place: usize) -> DeviceId {
    DeviceId(u16::try_from(place).unwrap_or(u16::MAX))
}
