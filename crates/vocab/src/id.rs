//! Ids: small numbers that name things, each its own type so that they cannot be mixed up.

use serde::{Deserialize, Serialize};
use std::fmt;

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
