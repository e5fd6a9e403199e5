//! Memory for activations: one slab in equal slots, a slot a live run. Where each buffer of a program lies in a slot is
//! planned once; buffers that are never alive together share.

use crate::driver::{DriverError, Gpu, Slab};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// The slab and its free slots.
#[derive(Debug)]
pub(crate) struct Arena {
    slab: Slab,
    slot_bytes: usize,
    free: Mutex<BTreeSet<usize>>,
    /// Slots that are a partition's own, the first ones; the others are spare.
    own: usize,
}

/// A slot, given back when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    arena: Arc<Arena>,
    pub(crate) number: usize,
}

impl Arena {
    /// So many slots, the first of them each a partition's own.
    pub(crate) fn new(
        gpu: &Gpu,
        slots: usize,
        slot_bytes: usize,
        partitions: usize,
    ) -> Result<Arc<Self>, DriverError> {
        let slot_bytes = slot_bytes.next_multiple_of(ALIGNMENT);
        let slab = Slab::new(gpu, slots * slot_bytes)?;
        let (free, own) = (Mutex::new((0..slots).collect()), partitions.min(slots));
        Ok(Arc::new(Self { slab, slot_bytes, free, own }))
    }

    pub(crate) const fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Bytes of all slots.
    pub(crate) const fn bytes(&self) -> usize {
        self.slab.bytes
    }

    pub(crate) const fn slots(&self) -> usize {
        self.slab.bytes / self.slot_bytes
    }

    /// A free slot: the partition's own, so that few are ever captured, else a spare one, else another's.
    pub(crate) fn take(self: &Arc<Self>, partition: Option<usize>) -> Option<Slot> {
        let mut free = self.free.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let own = partition.filter(|partition| *partition < self.own && free.contains(partition));
        let number =
            own.or_else(|| free.range(self.own..).next().copied()).or_else(|| free.first().copied())?;
        free.remove(&number);
        Some(Slot { arena: self.clone(), number })
    }

    /// The slots that runs on a partition take unless all others are taken.
    pub(crate) fn usual(&self, partition: usize) -> impl Iterator<Item = usize> + use<> {
        let own = (partition < self.own).then_some(partition);
        own.into_iter().chain(self.own..self.slots())
    }

    /// Where a slot begins.
    pub(crate) const fn base(&self, slot: usize) -> u64 {
        self.slab.base() + (slot * self.slot_bytes) as u64
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.arena.free.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(self.number);
    }
}

/// Every buffer begins at a multiple of this.
pub(crate) const ALIGNMENT: usize = 512;

/// Offsets of buffers, and the bytes they need together. `lives` gives the first and last step of each buffer that is
/// used at all. Largest first, each at the lowest place where nothing alive at the same time lies.
pub(crate) fn plan(bytes: &[usize], lives: &BTreeMap<usize, (usize, usize)>) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = lives.keys().copied().collect();
    order.sort_by_key(|buffer| (std::cmp::Reverse(bytes[*buffer]), *buffer));
    let mut offsets = vec![0; bytes.len()];
    let mut placed: Vec<usize> = Vec::new();
    let mut total = 0;
    for buffer in order {
        let (from, to) = lives[&buffer];
        let mut beside: Vec<(usize, usize)> = placed
            .iter()
            .filter(|other| lives[*other].0 <= to && from <= lives[*other].1)
            .map(|other| (offsets[*other], offsets[*other] + bytes[*other]))
            .collect();
        beside.sort_unstable();
        let mut at = 0;
        for (begin, end) in beside {
            if at + bytes[buffer] <= begin {
                break;
            }
            at = at.max(end.next_multiple_of(ALIGNMENT));
        }
        offsets[buffer] = at;
        total = total.max(at + bytes[buffer]);
        placed.push(buffer);
    }
    (offsets, total.next_multiple_of(ALIGNMENT))
}

#[cfg(test)]
mod tests {
    use super::{ALIGNMENT, plan};
    use std::collections::BTreeMap;
    use vocab::Rng;

    #[test]
    fn buffers_alive_together_never_overlap() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let count = usize::try_from(rng.below(30)).unwrap() + 1;
            let mut draw = |below: u64| usize::try_from(rng.below(below)).unwrap();
            let bytes: Vec<usize> = (0..count).map(|_| draw(5_000)).collect();
            let lives: BTreeMap<usize, (usize, usize)> = (0..count)
                .map(|buffer| {
                    let from = draw(40);
                    (buffer, (from, from + draw(8)))
                })
                .collect();
            let (offsets, total) = plan(&bytes, &lives);
            for a in 0..count {
                assert!(offsets[a].is_multiple_of(ALIGNMENT) && offsets[a] + bytes[a] <= total);
                for b in 0..a {
                    let together = lives[&a].0 <= lives[&b].1 && lives[&b].0 <= lives[&a].1;
                    let apart = offsets[a] + bytes[a] <= offsets[b] || offsets[b] + bytes[b] <= offsets[a];
                    assert!(!together || apart, "seed {seed}: {a} and {b}");
                }
            }
        }
    }
}
