//! Who goes first.

use crate::cluster::Job;
use serde::{Deserialize, Serialize};

/// An order of jobs. Ties keep the order jobs had before, at first that of their arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// First come, first served.
    Arrival,
    /// Shortest remaining time.
    Remaining,
    /// Smallest remaining time × GPUs.
    RemainingService,
}

impl Order {
    /// The smaller goes first.
    #[must_use]
    pub fn key(self, job: &Job) -> u128 {
        match self {
            Self::Arrival => u128::from(job.spec.arrival.ns()),
            Self::Remaining => u128::from(job.left.ns()),
            Self::RemainingService => u128::from(job.left.ns()) * u128::from(job.spec.gpus),
        }
    }
}
