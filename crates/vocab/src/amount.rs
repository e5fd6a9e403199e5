//! Amounts that are not time: bytes, and shares of a device.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

/// A number of bytes. Sums saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// The bytes of a slice or an allocation of `len` bytes.
    #[must_use]
    pub fn of_len(len: usize) -> Self {
        Self(u64::try_from(len).unwrap_or(u64::MAX))
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self(0), Add::add)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            0..1_024 => return f.pad(&format!("{} B", self.0)),
            1_024..1_048_576 => (self.0 as f64 / 1_024.0, "KiB"),
            1_048_576..1_073_741_824 => (self.0 as f64 / 1_048_576.0, "MiB"),
            _ => (self.0 as f64 / 1_073_741_824.0, "GiB"),
        };
        f.pad(&format!("{value:.1} {unit}"))
    }
}

/// A part of a whole in millionths: 1,000,000 is all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Share(u32);

impl Share {
    /// All of it.
    pub const WHOLE: Self = Self(1_000_000);

    /// `part` of `whole`, rounded down; `None` when `whole` is zero or `part` is more than `whole`.
    #[must_use]
    pub fn of(part: u64, whole: u64) -> Option<Self> {
        if whole == 0 || part > whole {
            return None;
        }
        let millionths = u128::from(part) * 1_000_000 / u128::from(whole);
        u32::try_from(millionths).ok().map(Self)
    }

    /// Millionths of the whole.
    #[must_use]
    pub const fn millionths(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:.1} %", f64::from(self.0) / 1e4))
    }
}
