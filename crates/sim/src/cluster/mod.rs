//! The cluster simulator: public traces on virtual time, under the policies of [`sched::cluster`].
//!
//! A [`Trace`] gives jobs; a [`Setup`] gives nodes, the truth about progress and when the policy is asked; a
//! [`ClusterSimulation`] takes turns from the first arrival to the last end and returns a [`ClusterOutcome`].

mod applications;
mod driver;
mod lp;
mod outcome;
mod setup;
mod throughputs;
pub mod trace;
mod training;
mod truth;

pub use applications::{Application, Applications, ApplicationsError, Spread};
pub use driver::{ClusterError, ClusterSimulation};
pub use outcome::{ClusterOutcome, Completed};
pub use setup::{Setup, SetupError};
pub use throughputs::{Throughputs, ThroughputsError};
pub use trace::{Trace, TraceError, TraceJob};
pub use truth::{Pairs, Progress};

#[cfg(test)]
mod tests;
