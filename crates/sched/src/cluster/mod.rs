//! Scheduling on a cluster: jobs that train for hours share GPUs, CPUs and memory of several nodes.
//!
//! Resources and time are integers; maps that are walked are ordered; so a plan is a pure function of the journal.

mod decision;
mod event;
pub mod explain;
mod free;
mod grant;
mod job;
pub mod minio;
mod node;
pub mod pair;
pub mod policy;
mod real;
mod world;

pub use decision::{Claim, Decision, Goal, Regrant};
pub use event::{Event, PairShares};
pub use free::{Free, FreeNode};
pub use grant::{GpuMask, Grant, Piece};
pub use job::{GpuNeed, Job, JobId, JobSpec, Level, Phase};
pub use node::{NodeId, NodeSpec};
pub use real::Real;
pub use world::{ClusterWorld, Plan, Refusal};

#[cfg(test)]
mod tests;
