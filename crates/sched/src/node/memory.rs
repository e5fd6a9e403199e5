//! Device memory: whose weights lie where, what is on its way, and what is reserved for it.
//!
//! ```text
//! absent ──Load──▶ loading ──last group arrived──▶ resident ──Evict──▶ evicting ──evicted──▶ absent, or its first groups
//! ```
//!
//! Weights are kept as transfer groups, and a device always holds the first few of a model's groups, or all. A load
//! reserves the missing ones before anything travels; an eviction gives memory back when it is admitted, because a
//! device carries loads and evictions out in the order they were decided. A model without stored weights, and every
//! model on a partition of no device, is always at hand.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::{Bytes, DeviceId, ModelId, PartitionId, RunId, Span, Time};

/// Weights that travel together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightGroup {
    /// Their bytes in device memory, padding included.
    pub bytes: Bytes,
    /// Believed time they keep the link busy.
    #[serde(default)]
    pub transfer: Span,
    /// The first segment that needs them; segments before it can run without.
    #[serde(default)]
    pub first_segment: u32,
}

/// Memory of all devices.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    devices: BTreeMap<DeviceId, Device>,
    /// By model.
    weights: Vec<Weights>,
    places: BTreeMap<(DeviceId, ModelId), Residency>,
}

#[derive(Clone, Debug)]
struct Device {
    name: String,
    memory: Bytes,
    partitions: Vec<PartitionId>,
}

#[derive(Clone, Debug, Default)]
struct Weights {
    groups: Vec<WeightGroup>,
    /// Bytes of the first `n` groups.
    first: Vec<Bytes>,
}

/// How much of one model is on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Residency {
    /// Leading groups that have arrived.
    pub present: u32,
    /// Leading groups that memory is reserved for.
    pub reserved: u32,
    /// What happens to it.
    pub moving: Moving,
    /// When a run of it last began or ended there, or its load was decided.
    pub used: Time,
    /// Whether its latest load failed.
    pub failed: bool,
}

/// What happens to a model's weights on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moving {
    /// Nothing.
    Still,
    /// Groups arrive.
    Loading {
        /// Since when.
        since: Time,
    },
    /// Groups beyond the reserved ones are being forgotten.
    Evicting,
}

/// Why weights cannot be moved, or a run cannot begin without them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryRefusal {
    /// No such device.
    #[error("there is no device {0}")]
    NoDevice(DeviceId),
    /// Nothing is known of the model's weights.
    #[error("model {0} has no stored weights to move")]
    NoWeights(ModelId),
    /// The memory does not suffice.
    #[error("model {name:?} needs {needs}, {free} free of {memory} on {device}; evict others first")]
    Short {
        /// The model's name.
        name: String,
        /// Bytes of the groups that are missing.
        needs: Bytes,
        /// Bytes nothing is reserved for.
        free: Bytes,
        /// Bytes of the device.
        memory: Bytes,
        /// The device.
        device: DeviceId,
    },
    /// All of it is there or on its way.
    #[error("model {model} is on {device}, or on its way, already")]
    Loaded {
        /// The model.
        model: ModelId,
        /// The device.
        device: DeviceId,
    },
    /// It is being loaded or evicted.
    #[error("model {model} is being moved on {device}; wait until that has ended")]
    Moving {
        /// The model.
        model: ModelId,
        /// The device.
        device: DeviceId,
    },
    /// A run needs it.
    #[error("{run} needs the weights of model {model} on {device}")]
    InUse {
        /// The model.
        model: ModelId,
        /// The device.
        device: DeviceId,
        /// The run.
        run: RunId,
    },
    /// No more of it is there than shall stay.
    #[error("model {model} holds {held} group(s) on {device}, nothing beyond {keep} to evict")]
    NothingToEvict {
        /// The model.
        model: ModelId,
        /// The device.
        device: DeviceId,
        /// Groups there.
        held: u32,
        /// Groups that shall stay.
        keep: u32,
    },
    /// A run cannot begin: the weights are neither there nor on their way.
    #[error("model {model} is neither on {device} nor on its way there; load it first")]
    NotThere {
        /// The model.
        model: ModelId,
        /// The device.
        device: DeviceId,
    },
}

impl Residency {
    const ABSENT: Self =
        Self { present: 0, reserved: 0, moving: Moving::Still, used: Time::ZERO, failed: false };
}

impl Memory {
    /// Whether no device has a bound: everything is always at hand.
    #[must_use]
    pub fn is_unbounded(&self) -> bool {
        self.devices.is_empty()
    }

    /// Devices, by id.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.devices.keys().copied()
    }

    /// The device of a partition; none when its memory has no bound.
    #[must_use]
    pub fn device_of(&self, partition: PartitionId) -> Option<DeviceId> {
        self.devices.iter().find(|(_, device)| device.partitions.contains(&partition)).map(|(id, _)| *id)
    }

    /// A device's name for people.
    #[must_use]
    pub fn name(&self, device: DeviceId) -> Option<&str> {
        self.devices.get(&device).map(|device| device.name.as_str())
    }

    /// Bytes of a device; none where there is no such device.
    #[must_use]
    pub fn size(&self, device: DeviceId) -> Bytes {
        self.devices.get(&device).map_or(Bytes(0), |device| device.memory)
    }

    /// Bytes of a device that are reserved for weights.
    #[must_use]
    pub fn reserved(&self, device: DeviceId) -> Bytes {
        self.on(device).map(|(model, place)| self.first_bytes(model, place.reserved)).sum()
    }

    /// Bytes of a device that nothing is reserved for.
    #[must_use]
    pub fn free(&self, device: DeviceId) -> Bytes {
        Bytes(self.size(device).0.saturating_sub(self.reserved(device).0))
    }

    /// A model's transfer groups, in order; empty when its weights are always at hand.
    #[must_use]
    pub fn groups(&self, model: ModelId) -> &[WeightGroup] {
        self.weights.get(model.index()).map_or(&[], |weights| &weights.groups)
    }

    /// How many groups a model has.
    #[must_use]
    pub fn group_count(&self, model: ModelId) -> u32 {
        u32::try_from(self.groups(model).len()).expect("a model has fewer than 2^32 groups")
    }

    /// Bytes of a model's first `groups` groups, or of all there are.
    #[must_use]
    pub fn first_bytes(&self, model: ModelId, groups: u32) -> Bytes {
        let Some(weights) = self.weights.get(model.index()) else { return Bytes(0) };
        let at = usize::try_from(groups).unwrap_or(usize::MAX).min(weights.groups.len());
        weights.first.get(at).copied().unwrap_or(Bytes(0))
    }

    /// Bytes of all of a model's groups.
    #[must_use]
    pub fn all_bytes(&self, model: ModelId) -> Bytes {
        self.first_bytes(model, u32::MAX)
    }

    /// Bytes that a load of `model` onto `device` would reserve.
    #[must_use]
    pub fn missing(&self, device: DeviceId, model: ModelId) -> Bytes {
        let there = self.first_bytes(model, self.residency(device, model).reserved);
        Bytes(self.all_bytes(model).0 - there.0)
    }

    /// How much of `model` is on `device`.
    #[must_use]
    pub fn residency(&self, device: DeviceId, model: ModelId) -> Residency {
        self.places.get(&(device, model)).copied().unwrap_or(Residency::ABSENT)
    }

    /// Whether a run of `model` may begin on `device`: all of it is there or on its way.
    #[must_use]
    pub fn is_claimed(&self, device: DeviceId, model: ModelId) -> bool {
        self.residency(device, model).reserved == self.group_count(model)
    }

    /// Whether all of `model` is on `device`.
    #[must_use]
    pub fn is_resident(&self, device: DeviceId, model: ModelId) -> bool {
        self.residency(device, model).present == self.group_count(model)
    }

    /// Models of which something is on `device` or on its way, by id.
    pub fn on(&self, device: DeviceId) -> impl Iterator<Item = (ModelId, Residency)> + '_ {
        let range = (device, ModelId(0))..=(device, ModelId(u32::MAX));
        self.places.range(range).map(|((_, model), place)| (*model, *place))
    }

    /// How much later than a warm run one of `warm` device time that begins now would finish on `device`, if nothing
    /// else used the link: never more than that, so nobody is refused who could have been served.
    #[must_use]
    pub fn cold(&self, now: Time, device: DeviceId, model: ModelId, warm: Span) -> Span {
        let place = self.residency(device, model);
        let present = usize::try_from(place.present).unwrap_or(usize::MAX);
        let Some(missing) = self.groups(model).get(present..).filter(|missing| !missing.is_empty()) else {
            return Span::ZERO;
        };
        let under_way = match place.moving {
            Moving::Loading { since } => now.since(since),
            _ => Span::ZERO,
        };
        let travel = missing.iter().map(|group| group.transfer).sum::<Span>() - under_way;
        let exposed = if present == 0 { missing[0].transfer - under_way } else { Span::ZERO };
        exposed.max(travel - warm)
    }

    /// The smallest memory that a model could never fit in: the largest device, when even that is smaller and no run can
    /// go elsewhere. `partitions` are all there are.
    pub(super) fn too_small(
        &self,
        model: ModelId,
        mut partitions: impl Iterator<Item = PartitionId>,
    ) -> Option<(Bytes, Bytes)> {
        let (needs, largest) =
            (self.all_bytes(model), self.devices.values().map(|device| device.memory).max()?);
        let fits = needs <= largest || partitions.any(|partition| self.device_of(partition).is_none());
        (!fits).then_some((needs, largest))
    }
}

/// Facts.
impl Memory {
    pub(super) fn add_device(&mut self, id: DeviceId, name: &str, memory: Bytes, partitions: &[PartitionId]) {
        let device = Device { name: name.into(), memory, partitions: partitions.to_vec() };
        self.devices.insert(id, device);
    }

    /// Weights that lie on a device already keep their groups.
    pub(super) fn store(&mut self, model: ModelId, groups: &[WeightGroup]) {
        if self.places.iter().any(|((_, held), place)| *held == model && place.reserved > 0) {
            return;
        }
        if self.weights.len() <= model.index() {
            self.weights.resize_with(model.index() + 1, Weights::default);
        }
        let mut first = vec![Bytes(0)];
        first.extend(groups.iter().scan(Bytes(0), |sum, group| {
            *sum += group.bytes;
            Some(*sum)
        }));
        self.weights[model.index()] = Weights { groups: groups.to_vec(), first };
    }

    pub(super) fn arrived(&mut self, device: DeviceId, model: ModelId, groups: u32) {
        let all = self.group_count(model);
        let Some(place) = self.places.get_mut(&(device, model)) else { return };
        if !matches!(place.moving, Moving::Loading { .. }) {
            return;
        }
        place.present = place.present.max(groups.min(all));
        if place.present == all {
            place.moving = Moving::Still;
        }
    }

    pub(super) fn failed(&mut self, device: DeviceId, model: ModelId) {
        let Some(place) = self.places.get_mut(&(device, model)) else { return };
        if matches!(place.moving, Moving::Loading { .. }) {
            *place = Residency { reserved: place.present, moving: Moving::Still, failed: true, ..*place };
        }
    }

    /// An eviction that was not ordered, as of a device that was lost, leaves nothing.
    pub(super) fn evicted(&mut self, device: DeviceId, model: ModelId) {
        let Some(place) = self.places.get_mut(&(device, model)) else { return };
        if place.moving == Moving::Evicting {
            place.moving = Moving::Still;
        } else {
            *place = Residency { present: 0, reserved: 0, moving: Moving::Still, ..*place };
        }
        if place.reserved == 0 {
            self.places.remove(&(device, model));
        }
    }

    pub(super) fn used(&mut self, now: Time, device: DeviceId, model: ModelId) {
        if let Some(place) = self.places.get_mut(&(device, model)) {
            place.used = now;
        }
    }
}

/// Decisions.
impl Memory {
    pub(super) fn load(
        &mut self,
        now: Time,
        device: DeviceId,
        model: ModelId,
        name: &str,
    ) -> Result<(), MemoryRefusal> {
        let memory = self.devices.get(&device).ok_or(MemoryRefusal::NoDevice(device))?.memory;
        let all = self.group_count(model);
        if all == 0 {
            return Err(MemoryRefusal::NoWeights(model));
        }
        let place = self.residency(device, model);
        if place.moving == Moving::Evicting {
            return Err(MemoryRefusal::Moving { model, device });
        }
        if place.reserved == all {
            return Err(MemoryRefusal::Loaded { model, device });
        }
        let (needs, free) = (self.missing(device, model), self.free(device));
        if needs > free {
            return Err(MemoryRefusal::Short { name: name.into(), needs, free, memory, device });
        }
        let loading = Residency {
            reserved: all,
            moving: Moving::Loading { since: now },
            used: now,
            failed: false,
            ..place
        };
        self.places.insert((device, model), loading);
        Ok(())
    }

    /// `run` is one that lives on the device and needs the model.
    pub(super) fn evict(
        &mut self,
        device: DeviceId,
        model: ModelId,
        keep: u32,
        run: Option<RunId>,
    ) -> Result<(), MemoryRefusal> {
        if !self.devices.contains_key(&device) {
            return Err(MemoryRefusal::NoDevice(device));
        }
        let held = self.residency(device, model).reserved;
        let place = self.places.get_mut(&(device, model)).filter(|place| place.reserved > keep);
        let place = place.ok_or(MemoryRefusal::NothingToEvict { model, device, held, keep })?;
        if place.moving != Moving::Still {
            return Err(MemoryRefusal::Moving { model, device });
        }
        if let Some(run) = run {
            return Err(MemoryRefusal::InUse { model, device, run });
        }
        (place.present, place.reserved, place.moving) = (place.present.min(keep), keep, Moving::Evicting);
        Ok(())
    }

    /// Whether a run of `model` may begin on `partition`.
    pub(super) fn allows(&self, partition: PartitionId, model: ModelId) -> Result<(), MemoryRefusal> {
        match self.device_of(partition) {
            Some(device) if !self.is_claimed(device, model) => Err(MemoryRefusal::NotThere { model, device }),
            _ => Ok(()),
        }
    }

    /// Asserts that no device holds more than it has.
    pub(super) fn check(&self) {
        for device in self.devices() {
            assert!(self.reserved(device) <= self.size(device), "memory of {device}");
        }
        for ((device, model), place) in &self.places {
            assert!(place.present <= place.reserved, "{model} on {device}: {place:?}");
            assert!(place.reserved <= self.group_count(*model), "{model} on {device}: {place:?}");
        }
    }
}
