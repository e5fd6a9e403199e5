//! The cluster simulator: public traces on virtual time, under the policies of [`sched::cluster`].
//!
//! A [`Trace`] gives jobs; a [`Setup`] gives nodes, the truth about progress and when the policy is asked; a
//! [`ClusterSimulation`] takes turns from the first arrival to the last end and returns a [`ClusterOutcome`].

mod applications;
mod belief;
mod driver;
mod lp;
mod outcome;
mod packing;
mod profiles;
mod setup;
mod shares;
mod sharing;
mod speeds;
mod spread;
mod summary;
mod throughputs;
pub mod trace;
mod training;
mod truth;

pub use applications::{Application, Applications, ApplicationsError, Spread};
pub use belief::Belief;
pub use driver::{ClusterError, ClusterSimulation, Paused};
pub use outcome::{ClusterOutcome, Completed, SAMPLES_MAX, Sample, jain};
pub use profiles::{Point, Profiles, ProfilesError};
pub use setup::{Loss, Setup, SetupError};
pub use sharing::share_gpus;
pub use spread::spread_jobs;
pub use summary::Summary;
pub use throughputs::{Throughputs, ThroughputsError};
pub use trace::{Trace, TraceError, TraceJob};
pub use truth::{Pairs, Progress};

#[cfg(test)]
mod tests;
