//! Which partitions a turn may still use, shared by every policy: idle ones whose units are free beside what runs and
//! what was decided in this turn, and that no constraint between tenants forbids. Without parts of devices this costs
//! one comparison.

use crate::node::{NodeWorld, Run};
use vocab::{ModelId, PartitionId, Time};

/// What is held after the decisions of this turn so far.
pub(super) struct Parts<'w> {
    world: &'w NodeWorld,
    held: Vec<(ModelId, PartitionId)>,
    taken: Vec<PartitionId>,
    /// Of those held, who is about to leave: others may count on their units.
    leaving: Vec<PartitionId>,
}

impl<'w> Parts<'w> {
    pub(super) fn new(world: &'w NodeWorld) -> Self {
        let held = if world.space().is_plain() { Vec::new() } else { world.held() };
        Self { world, held, taken: Vec::new(), leaving: Vec::new() }
    }

    /// From now on the units of runs that are about to leave count as idle, where no two such runs lie on them.
    pub(super) fn pass_on(&mut self, now: Time) {
        let space = self.world.space();
        if space.is_plain() {
            return;
        }
        let leaves = |run: &&Run| run.occupies() && self.world.leaves(run).is_some_and(|at| at <= now);
        self.leaving = self.world.runs().filter(leaves).map(|run| run.partition).collect();
    }

    /// Runs that keep their units.
    fn staying(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.held.iter().map(|(_, partition)| *partition).filter(|partition| !self.leaving.contains(partition))
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
        if part.first.is_none() || self.staying().any(|other| is_floating(self.world, other)) {
            let whole = space.device_units(partition).unwrap_or(part.units);
            return self.units_held(partition) + part.units <= whole;
        }
        if !self.staying().all(|other| space.are_disjoint(partition, other)) {
            return false;
        }
        let under: Vec<PartitionId> =
            self.leaving.iter().copied().filter(|other| !space.are_disjoint(partition, *other)).collect();
        under.iter().enumerate().all(|(at, a)| under[..at].iter().all(|b| space.are_disjoint(*a, *b)))
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
        let held = || self.staying().filter(|id| peers.contains(id)).filter_map(range);
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
        let held = self.staying().filter(|other| peers.contains(other));
        held.filter_map(|other| space.part(other)).map(|part| part.units).sum()
    }
}

fn is_floating(world: &NodeWorld, partition: PartitionId) -> bool {
    world.space().part(partition).is_some_and(|part| part.first.is_none())
}
