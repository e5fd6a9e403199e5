//! Ids: small numbers that name things, each its own type so that they cannot be mixed up.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($raw:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $raw);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&format!(concat!($prefix, "{}"), self.0))
            }
        }
    };
}

id!(
    /// One accelerator or CPU of the node.
    DeviceId(u16), "d"
);
id!(
    /// A fixed part of a device; one run occupies it at a time.
    PartitionId(u16), "p"
);
id!(
    /// A model at one set of fixed shapes.
    ModelId(u32), "m"
);
id!(
    /// One inference request, numbered in order of arrival.
    RequestId(u64), "r"
);
id!(
    /// One batch in progress, numbered in order of its decision.
    RunId(u64), "run"
);

impl ModelId {
    /// Its place in a table of models.
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A map looked up by id. Never iterate over it: its order is nobody's.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// Hashes one integer by multiplication (Knuth, The Art of Computer Programming 3, 6.4): ids are ours, not an attacker's.
#[derive(Clone, Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn write_u16(&mut self, id: u16) {
        self.write_u64(u64::from(id));
    }

    #[inline]
    fn write_u32(&mut self, id: u32) {
        self.write_u64(u64::from(id));
    }

    #[inline]
    fn write_u64(&mut self, id: u64) {
        // Tables take their place from the low bits and their tag from the high ones: both must depend on all of the id.
        self.0 = (self.0 ^ id).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(26);
    }
}
