//! The cluster simulator: public traces on virtual time, under the policies of [`sched::cluster`].
//!
//! A [`Trace`] gives jobs; a [`Setup`] gives nodes, the truth about progress and when the policy is asked; a
//! [`ClusterSimulation`] takes turns from the first arrival to the last end and returns a [`ClusterOutcome`].

mod driver;
mod outcome;
mod setup;
pub mod trace;
mod truth;

pub use driver::{ClusterError, ClusterSimulation};
pub use outcome::{ClusterOutcome, Completed};
pub use setup::{Setup, SetupError};
pub use trace::{Trace, TraceError, TraceJob};
pub use truth::{Pairs, Progress};

#[cfg(test)]
mod tests;
