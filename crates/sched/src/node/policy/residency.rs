//! Making room in device memory, shared by every policy: whose weights go so that a model's can come.
//!
//! Models without a run on the device or parked there are idle; the one used least recently goes first, but those no
//! longer served before all others, and those that requests wait for last. Of the last one to go, as many leading groups
//! stay as there is room for: when it comes back, its transfer hides behind them. Without bounded devices all of this
//! costs one comparison.

use crate::node::{Act, Decision, Moving, NodeWorld, Why};
use vocab::{Bytes, DeviceId, ModelId, PartitionId, RequestId, Time};

/// What memory will be like after the decisions of this turn so far.
pub(super) struct Rooms<'w> {
    world: &'w NodeWorld,
    bounded: bool,
    /// Decided in this turn.
    loaded: Vec<(DeviceId, ModelId)>,
    evicted: Vec<(DeviceId, ModelId, u32)>,
    /// Models that shall not go in this turn.
    kept: Vec<(DeviceId, ModelId)>,
}

/// What a start on a partition takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Nothing: all weights are there.
    Clear,
    /// Nothing: the rest is on its way.
    Coming,
    /// A load after these evictions, each with the groups that stay.
    Load {
        /// Where.
        device: DeviceId,
        /// Bytes to reserve, and bytes free before the evictions.
        needs: Bytes,
        free: Bytes,
        evict: Vec<(ModelId, u32)>,
    },
}

impl<'w> Rooms<'w> {
    pub(super) fn new(world: &'w NodeWorld) -> Self {
        let bounded = !world.memory().is_unbounded();
        Self { world, bounded, loaded: Vec::new(), evicted: Vec::new(), kept: Vec::new() }
    }

    /// Whether some device has a bound at all.
    pub(super) const fn bounded(&self) -> bool {
        self.bounded
    }

    /// What a start of `model` on `partition` takes; none when it must wait for memory.
    pub(super) fn way(&self, model: ModelId, partition: PartitionId) -> Option<Way> {
        if !self.bounded {
            return Some(Way::Clear);
        }
        self.world.memory().device_of(partition).map_or(Some(Way::Clear), |device| self.way_to(model, device))
    }

    /// What it takes to have `model` on `device`.
    pub(super) fn way_to(&self, model: ModelId, device: DeviceId) -> Option<Way> {
        let memory = self.world.memory();
        if self.evicted.iter().any(|(at, gone, _)| (*at, *gone) == (device, model)) {
            return None;
        }
        if memory.is_resident(device, model) {
            return Some(Way::Clear);
        }
        if memory.is_claimed(device, model) || self.loaded.contains(&(device, model)) {
            return Some(Way::Coming);
        }
        if memory.residency(device, model).moving == Moving::Evicting {
            return None;
        }
        let (needs, free) = (memory.missing(device, model), self.free(device));
        let evict = self.evictions(device, model, needs, free)?;
        Some(Way::Load { device, needs, free, evict })
    }

    /// Decides what `way` takes, because of `why`.
    pub(super) fn take(&mut self, model: ModelId, way: &Way, why: Why, decisions: &mut Vec<Decision>) {
        let Way::Load { device, needs, free, evict } = way else { return };
        for (victim, keep) in evict {
            let why = Why::RoomFor { model, needs: *needs, free: *free };
            let act = Act::Evict { model: *victim, device: *device, keep: *keep };
            decisions.push(Decision { act, why });
            self.evicted.push((*device, *victim, *keep));
        }
        decisions.push(Decision { act: Act::Load { model, device: *device }, why });
        self.loaded.push((*device, model));
    }

    /// For policies that begin no run before all its weights are there: whether `model` can begin on `partition` now; if
    /// not, its load is decided where there is room. After a load that failed the run begins at once and shares its fate,
    /// so that nobody waits for ever.
    pub(super) fn wait_for(
        &mut self,
        model: ModelId,
        partition: PartitionId,
        request: RequestId,
        decisions: &mut Vec<Decision>,
    ) -> bool {
        let Some(way) = self.way(model, partition) else { return false };
        self.take(model, &way, Why::NeededBy { request }, decisions);
        self.keep(model, partition);
        match way {
            Way::Clear => true,
            Way::Coming => false,
            Way::Load { device, .. } => self.world.memory().residency(device, model).failed,
        }
    }

    /// `model` shall stay where `partition` is, for the rest of this turn.
    pub(super) fn keep(&mut self, model: ModelId, partition: PartitionId) {
        if self.bounded
            && let Some(device) = self.world.memory().device_of(partition)
        {
            self.keep_on(model, device);
        }
    }

    /// `model` shall stay on `device` for the rest of this turn.
    pub(super) fn keep_on(&mut self, model: ModelId, device: DeviceId) {
        self.kept.push((device, model));
    }

    /// The partition of `idle` that suits `model` best: all weights there, else on their way, else the first with room, else
    /// the first.
    pub(super) fn choose(
        &self,
        model: ModelId,
        mut idle: impl Iterator<Item = PartitionId>,
    ) -> Option<PartitionId> {
        if !self.bounded {
            return idle.next();
        }
        let rank = |partition: PartitionId| match self.way(model, partition) {
            Some(Way::Clear) => 0,
            Some(Way::Coming) => 1,
            Some(Way::Load { .. }) => 2,
            None => 3,
        };
        idle.min_by_key(|partition| rank(*partition))
    }

    /// Whether `model` has room where `partition` is beside everything that cannot go: models with a run there, running
    /// or parked, and loads under way.
    pub(super) fn fits_beside_runs(&self, model: ModelId, partition: PartitionId) -> bool {
        if !self.bounded {
            return true;
        }
        let Some(device) = self.world.memory().device_of(partition) else { return true };
        let memory = self.world.memory();
        let stays = |other: ModelId, moving: Moving| {
            moving != Moving::Still
                || self.kept.contains(&(device, other))
                || self.world.user(device, other).is_some()
        };
        let pinned =
            memory.on(device).filter(|(other, place)| *other != model && stays(*other, place.moving));
        let pinned: Bytes = pinned.map(|(other, place)| memory.first_bytes(other, place.reserved)).sum();
        pinned + memory.all_bytes(model) <= memory.size(device)
    }

    /// Whether a load is under way or was decided for `device`.
    pub(super) fn is_loading(&self, device: DeviceId) -> bool {
        let mut on = self.world.memory().on(device);
        on.any(|(_, place)| matches!(place.moving, Moving::Loading { .. }))
            || self.loaded.iter().any(|(at, _)| *at == device)
    }

    fn free(&self, device: DeviceId) -> Bytes {
        let memory = self.world.memory();
        let spent: Bytes = self
            .loaded
            .iter()
            .filter(|(at, _)| *at == device)
            .map(|(_, model)| less(memory.all_bytes(*model), self.left(device, *model)))
            .sum();
        let gained: Bytes = self
            .evicted
            .iter()
            .filter(|(at, _, _)| *at == device)
            .map(|(_, model, keep)| {
                let held = memory.first_bytes(*model, memory.residency(device, *model).reserved);
                less(held, memory.first_bytes(*model, *keep))
            })
            .sum();
        less(memory.free(device) + gained, spent)
    }

    /// What is reserved for `model` before a load of this turn.
    fn left(&self, device: DeviceId, model: ModelId) -> Bytes {
        let memory = self.world.memory();
        memory.first_bytes(model, memory.residency(device, model).reserved)
    }

    /// Evictions that make `free` suffice for `needs`; none when even all together do not.
    fn evictions(
        &self,
        device: DeviceId,
        model: ModelId,
        needs: Bytes,
        free: Bytes,
    ) -> Option<Vec<(ModelId, u32)>> {
        let mut short = less(needs, free);
        if short == Bytes(0) {
            return Some(Vec::new());
        }
        let memory = self.world.memory();
        let mut idle: Vec<(bool, bool, Time, ModelId, u32)> = Vec::new();
        for (other, place) in memory.on(device) {
            let stays = other == model
                || place.reserved == 0
                || place.moving != Moving::Still
                || self.kept.contains(&(device, other))
                || self.evicted.iter().any(|(at, gone, _)| (*at, *gone) == (device, other))
                || self.world.user(device, other).is_some();
            if !stays {
                let wanted = !self.world.queue(other).is_empty();
                idle.push((self.world.is_served(other), wanted, place.used, other, place.reserved));
            }
        }
        idle.sort_unstable();
        let mut victims = Vec::new();
        for (_, _, _, other, reserved) in idle {
            let held = memory.first_bytes(other, reserved);
            let enough = |keep: &u32| less(held, memory.first_bytes(other, *keep)) >= short;
            let keep = (0..reserved).rev().find(enough).unwrap_or(0);
            short = less(short, less(held, memory.first_bytes(other, keep)));
            victims.push((other, keep));
            if short == Bytes(0) {
                return Some(victims);
            }
        }
        None
    }
}

/// `a - b`, stopping at zero.
fn less(a: Bytes, b: Bytes) -> Bytes {
    Bytes(a.0.saturating_sub(b.0))
}
