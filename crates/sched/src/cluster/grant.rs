//! What a running job holds.

use super::NodeId;
use serde::{Deserialize, Serialize};
use vocab::Bytes;

/// A set of GPUs of one node, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GpuMask(pub u64);

impl GpuMask {
    /// No GPU.
    pub const NONE: Self = Self(0);

    /// The first `count` GPUs of a node.
    #[must_use]
    pub const fn all(count: u8) -> Self {
        if count >= 64 { Self(u64::MAX) } else { Self((1 << count) - 1) }
    }

    /// How many.
    #[must_use]
    #[inline]
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// The `count` lowest of them, or all when there are fewer.
    #[must_use]
    pub const fn lowest(self, count: u32) -> Self {
        let (mut rest, mut left) = (self.0, count);
        while left > 0 && rest != 0 {
            rest &= rest - 1;
            left -= 1;
        }
        Self(self.0 & !rest)
    }

    /// These without `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// These and `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are among these.
    #[must_use]
    pub const fn holds(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Each GPU's place on its node, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let lowest = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
            rest &= rest - 1;
            Some(lowest)
        })
    }
}

/// A job's part on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// The node.
    pub node: NodeId,
    /// GPUs there.
    pub gpus: GpuMask,
    /// CPUs there, in thousandths.
    pub cpu_milli: u64,
    /// Main memory there.
    pub memory: Bytes,
}

/// What a running job holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// One piece a node, in the order they were taken.
    pub pieces: Vec<Piece>,
    /// Sub-batches a step is done in; 1 is the whole batch.
    pub accumulate: u32,
}

impl Grant {
    /// These pieces at the whole batch.
    #[must_use]
    pub const fn whole(pieces: Vec<Piece>) -> Self {
        Self { pieces, accumulate: 1 }
    }

    /// GPUs in all.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        self.pieces.iter().map(|piece| piece.gpus.count()).sum()
    }

    /// CPUs in all, in thousandths.
    #[must_use]
    pub fn cpu_milli(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.cpu_milli).sum()
    }

    /// Main memory in all.
    #[must_use]
    pub fn memory(&self) -> Bytes {
        self.pieces.iter().map(|piece| piece.memory).sum()
    }

    /// Whether both are on the same GPUs, so that a change between them needs no restart.
    #[must_use]
    pub fn same_gpus(&self, other: &Self) -> bool {
        let on = |grant: &Self| {
            let mut on: Vec<_> = grant.pieces.iter().map(|piece| (piece.node, piece.gpus)).collect();
            on.sort_unstable();
            on
        };
        on(self) == on(other)
    }
}
