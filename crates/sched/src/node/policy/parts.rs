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

    /// Whether `model` may begin on `partition`, which is idle.
    pub(super) fn fits(&self, model: ModelId, partition: PartitionId) -> bool {
        !self.taken.contains(&partition) && self.world.space().allows(model, partition, &self.held).is_ok()
    }

    /// Whether no unit of `partition` is held by anyone.
    pub(super) fn is_alone(&self, partition: PartitionId) -> bool {
        let space = self.world.space();
        self.held.iter().all(|(_, other)| space.are_disjoint(partition, *other))
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
