//! The links over which weights reach the simulated devices: one transfer after the other, group by group.

use crate::Scenario;
use sched::node::{Event, WeightGroup};
use std::collections::BTreeMap;
use vocab::{Bytes, DeviceId, ModelId, PartitionId, Span, Time};

/// Links and memory of all devices; none when models are always at hand.
#[derive(Clone, Debug, Default)]
pub(crate) struct Links {
    devices: Vec<Link>,
    /// Time that an eviction takes.
    evict: Span,
    /// When each group of a model was on a device.
    arrived: BTreeMap<(DeviceId, ModelId), Vec<Time>>,
}

#[derive(Clone, Debug, Default)]
struct Link {
    /// When the transfers decided so far end.
    idle: Time,
    /// When the evictions decided so far have given their memory back.
    free: Time,
}

impl Links {
    pub(crate) fn of(scenario: &Scenario) -> Self {
        let Some(device) = &scenario.device else { return Self::default() };
        let devices = vec![Link::default(); device.count.into()];
        Self { devices, evict: Span::from_us(device.evict_us), arrived: BTreeMap::new() }
    }

    /// What the world is told of devices and weights.
    pub(crate) fn first_events(&self, scenario: &Scenario) -> Vec<Event> {
        let Some(entry) = &scenario.device else { return Vec::new() };
        let link = entry.link.expect("a checked scenario has a link");
        let device = |id: u16| {
            let own = (0..scenario.partition_count()).filter(|place| place % entry.count == id);
            Event::DeviceAdded {
                device: DeviceId(id),
                name: format!("d{id}"),
                memory: Bytes(entry.memory_bytes),
                partitions: own.map(PartitionId).collect(),
            }
        };
        let mut events: Vec<Event> = (0..entry.count).map(device).collect();
        for (id, model) in (0..).zip(&scenario.models) {
            let groups = model.weight_groups(&link);
            if !groups.is_empty() {
                events.push(Event::WeightsStored { model: ModelId(id), groups });
            }
        }
        events
    }

    /// When an eviction that the device is told of at `now` has ended.
    pub(crate) fn evict(&mut self, now: Time, device: DeviceId) -> Time {
        let link = &mut self.devices[usize::from(device.0)];
        link.free = link.free.max(now) + self.evict;
        link.free
    }

    /// When each group of `model` beyond the first `present` arrives, if the device is told at `now`.
    pub(crate) fn load(
        &mut self,
        now: Time,
        device: DeviceId,
        model: ModelId,
        present: u32,
        groups: &[WeightGroup],
    ) -> Vec<Time> {
        let link = &mut self.devices[usize::from(device.0)];
        let mut at = now.max(link.free).max(link.idle);
        let present = usize::try_from(present).unwrap_or(usize::MAX);
        let travel = |group: &WeightGroup| {
            at += group.transfer;
            at
        };
        let fresh: Vec<Time> = groups.iter().skip(present).map(travel).collect();
        link.idle = at;
        let arrived = self.arrived.entry((device, model)).or_default();
        arrived.clear();
        arrived.resize(present, Time::ZERO);
        arrived.extend(&fresh);
        fresh
    }

    /// When the weights of each of `segments` segments are there.
    pub(crate) fn arrivals(
        &self,
        device: DeviceId,
        model: ModelId,
        groups: &[WeightGroup],
        segments: usize,
    ) -> Vec<Time> {
        let mut arrivals = vec![Time::ZERO; segments];
        for (group, at) in groups.iter().zip(self.arrived.get(&(device, model)).into_iter().flatten()) {
            let first = usize::try_from(group.first_segment).unwrap_or(usize::MAX).min(segments);
            for arrival in &mut arrivals[first..] {
                *arrival = (*arrival).max(*at);
            }
        }
        arrivals
    }
}
