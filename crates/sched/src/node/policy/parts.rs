//! Which partitions a turn may still use, shared by every policy: idle ones whose units are free beside what runs and
//! what was decided in this turn, and that no constraint between tenants forbids. Without parts of devices this costs
//! one comparison.

use crate::node::NodeWorld;
use vocab::{ModelId, PartitionId};

/// What is held after the decisions of this turn so far.
pub(super) struct Parts<'w> {
    world: &'w NodeWorld,
    held: Vec<(ModelId, PartitionId)>,
    taken: Vec<PartitionId>,
}

impl<'w> Parts<'w> {
    pub(super) fn new(world: &'w NodeWorld) -> Self {
        let held = if world.space().is_plain() { Vec::new() } else { world.held() };
        Self { world, held, taken: Vec::new() }
    }

    /// Idle partitions, by id.
    pub(super) fn idle(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.world.idle().filter(|partition| !self.taken.contains(partition))
    }

    /// Whether `model` may begin on `partition`.
    pub(super) fn fits(&self, model: ModelId, partition: PartitionId) -> bool {
        self.world.is_idle(partition)
            && !self.taken.contains(&partition)
            && self.world.space().allows(model, partition, &self.held).is_ok()
    }

    /// Whether no unit of `partition` is held by anyone; floating parts must fit on the device together.
    pub(super) fn is_alone(&self, partition: PartitionId) -> bool {
        let space = self.world.space();
        let Some(part) = space.part(partition) else { return true };
        if part.first.is_none() || self.held.iter().any(|(_, other)| is_floating(self.world, *other)) {
            let whole = space.device_units(partition).unwrap_or(part.units);
            return self.units_held(partition) + part.units <= whole;
        }
        self.held.iter().all(|(_, other)| space.are_disjoint(partition, *other))
    }

    /// Whether nobody runs on the device of `partition`.
    pub(super) fn is_empty(&self, partition: PartitionId) -> bool {
        let peers = self.world.space().peers(partition);
        !self.held.iter().any(|(_, other)| peers.contains(other))
    }

    /// Idle units right beside `partition`, which is idle itself: what it would leave of the gap it lies in.
    pub(super) fn idle_beside(&self, partition: PartitionId) -> u32 {
        let space = self.world.space();
        let range = |id: PartitionId| {
            let part = space.part(id)?;
            Some((part.first?, part.first? + part.units))
        };
        let Some((begin, end)) = range(partition) else { return 0 };
        let whole = space.device_units(partition).unwrap_or(end);
        let peers = space.peers(partition);
        let held = || self.held.iter().filter(|(_, id)| peers.contains(id)).filter_map(|(_, id)| range(*id));
        let left = held().map(|(_, to)| to).filter(|to| *to <= begin).max().unwrap_or(0);
        let right = held().map(|(from, _)| from).filter(|from| *from >= end).min().unwrap_or(whole);
        (begin - left) + (right - end)
    }

    /// `model` begins on `partition` in this turn.
    pub(super) fn take(&mut self, model: ModelId, partition: PartitionId) {
        self.taken.push(partition);
        if !self.world.space().is_plain() {
            self.held.push((model, partition));
        }
    }

    /// Units of the device of `partition` that are held, a unit counted once for each run on it.
    pub(super) fn units_held(&self, partition: PartitionId) -> u32 {
        let space = self.world.space();
        let peers = space.peers(partition);
        let held = self.held.iter().filter(|(_, other)| peers.contains(other));
        held.filter_map(|(_, other)| space.part(*other)).map(|part| part.units).sum()
    }
}

fn is_floating(world: &NodeWorld, partition: PartitionId) -> bool {
    world.space().part(partition).is_some_and(|part| part.first.is_none())
}
