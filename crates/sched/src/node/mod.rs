//! Scheduling on one node: requests of several models share the partitions of its devices.

mod cost;
mod decision;
mod event;
mod explain;
mod memory;
pub mod policy;
mod queue;
mod run;
mod space;
pub mod timeline;
mod world;

pub use cost::{BucketCost, Costs, PartCost, PartCosts};
pub use decision::{Act, Decision, Why, Window};
pub use event::{Event, ModelSpec, Promise};
pub use explain::explain;
pub use memory::{Memory, MemoryRefusal, Moving, Residency, WeightGroup};
pub use queue::Queue;
pub use run::{Run, RunState};
pub use space::{Part, Rule, Space, SpaceRefusal};
pub use world::{Ends, NodeWorld, Refusal, Waiting};

#[cfg(test)]
mod tests;
