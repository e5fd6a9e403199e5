//! Numbers in binary fractions as facts: compared, ordered and stored without loss.
//!
//! Quantities are integers here but for these: what a solver or a simulator in binary fractions gave, where the last bit
//! decides which of two equal jobs goes first.

use serde::{Deserialize, Serialize};

/// A number in binary fractions. The order is that of the numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Real(u64);

impl Real {
    /// Nothing.
    pub const ZERO: Self = Self(1 << 63);

    /// Of a number; both zeros are one.
    #[must_use]
    pub fn of(number: f64) -> Self {
        let bits = (number + 0.0).to_bits();
        Self(if bits >> 63 == 1 { !bits } else { bits | 1 << 63 })
    }

    /// The number.
    #[must_use]
    pub const fn value(self) -> f64 {
        f64::from_bits(if self.0 >> 63 == 1 { self.0 & !(1 << 63) } else { !self.0 })
    }
}

impl std::fmt::Debug for Real {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.value().fmt(f)
    }
}
