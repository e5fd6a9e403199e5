//! The words every layer shares: time, amounts, ids, requests, profiles and the seeded generator.
//!
//! Plain values only: no clock, no I/O, no thread. Anything that needs one of those belongs to a driver.

mod amount;
mod id;
mod profile;
mod request;
mod rng;
mod time;

pub use amount::{Bytes, Share};
pub use id::{DeviceId, IdHasher, IdMap, ModelId, PartitionId, RequestId, RunId};
pub use profile::{
    BatchProfile, GroupProfile, Profile, ProfileError, SegmentProfile, ShareProfile, SpatialProfile,
    SwitchProfile,
};
pub use request::{Class, Request};
pub use rng::Rng;
pub use time::{Span, Time};

#[cfg(test)]
mod tests;
