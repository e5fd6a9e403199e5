//! Policies for a cluster, one file each, composed from an order, an admission rule and a placement.

mod elastic;
mod fragments;
mod gavel;
mod gittins;
mod las;
mod order;
mod ordered;
mod place;
mod random;
mod sharing;
mod synergy;
pub mod themis;
mod twister;

pub use elastic::{Elastic, Gain};
pub use gavel::Gavel;
pub use gittins::{Gittins, indices};
pub use las::Las;
pub use order::Order;
pub use ordered::{Admit, Ordered, Preempt};
pub use place::{Place, Share};
pub use random::Random;
pub use sharing::{Benefit, Sharing};
pub use synergy::{Synergy, Tune};
pub use themis::Themis;

use super::{ClusterWorld, Goal};
use crate::Policy;
use serde::{Deserialize, Serialize};
use vocab::Span;

/// A policy and its parameters, as journals name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "policy", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Choice {
    /// One queue in an order.
    Ordered {
        /// Who goes first.
        order: Order,
        /// Whether one that does not fit holds up those behind it.
        admit: Admit,
        /// Where jobs go.
        place: Place,
        /// Whether running jobs give way.
        preempt: Preempt,
    },
    /// Discretised least attained service.
    Las {
        /// GPU time at which a job falls to the next queue.
        thresholds: Vec<Span>,
        /// Whether, within a queue, jobs that run go before jobs that wait.
        runners_first: bool,
        /// A job that waited so many times as long as it ran goes back to the first queue; 0 is never.
        promote: u32,
        /// Where jobs go.
        place: Place,
    },
    /// The largest chance to end soon for the service it takes.
    Gittins {
        /// Where jobs go.
        place: Place,
    },
    /// CPUs and memory beside fixed GPUs, in rounds.
    Synergy {
        /// Who goes first.
        order: Order,
        /// How CPUs and memory are shared out.
        tune: Tune,
        /// Length of a round.
        round: Span,
    },
    /// Gangs that grow and shrink, in rounds.
    Elastic {
        /// What another GPU is worth.
        gain: Gain,
        /// Length of a round.
        round: Span,
    },
    /// Shares of time by kind of GPU, from a linear program.
    Gavel {
        /// What the shares make best.
        goal: Goal,
        /// Whether two jobs may share GPUs.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        packed: bool,
        /// Length of a round.
        round: Span,
    },
    /// Finish-time fairness by auctions of leases.
    Themis {
        /// Length of a lease.
        lease: Span,
        /// Part of the jobs, in thousandths, that an auction is closed to: those treated best so far.
        fair_milli: u32,
    },
    /// Shortest first, sharing GPUs with running jobs.
    Sharing {
        /// When sharing is allowed.
        benefit: Benefit,
    },
}

impl Choice {
    /// Names that [`Choice::named`] knows.
    pub const NAMES: [&'static str; 32] = [
        "fifo",
        "fifo-strict",
        "sjf",
        "srtf",
        "srsf",
        "las",
        "las-promote",
        "gittins",
        "gandiva",
        "muri-srtf",
        "muri-srsf",
        "muri-las",
        "pollux-las",
        "optimus",
        "pollux",
        "synergy-proportional",
        "synergy-greedy",
        "synergy-tune",
        "synergy-opt",
        "gavel",
        "gavel-alike",
        "gavel-ftf",
        "gavel-makespan",
        "gavel-makespan-alike",
        "gavel-isolated",
        "gavel-packed",
        "gavel-ftf-packed",
        "gavel-makespan-packed",
        "themis",
        "themis-2m",
        "sjf-ffs",
        "sjf-bsbf",
    ];

    /// The policy called `name` with its default parameters.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let ordered =
            |order, admit, preempt| Some(Self::Ordered { order, admit, place: Place::Consolidated, preempt });
        let secs = |secs: u64| Span::from_ms(secs * 1_000);
        let thresholds = vec![secs(3_250), secs(7_200)];
        let synergy = |tune| Some(Self::Synergy { order: Order::Arrival, tune, round: secs(300) });
        let las = |thresholds, runners_first, promote, place| {
            Some(Self::Las { thresholds, runners_first, promote, place })
        };
        let gavel = |goal| Some(Self::Gavel { goal, packed: false, round: secs(360) });
        let packed = |goal| Some(Self::Gavel { goal, packed: true, round: secs(360) });
        match name {
            "gavel" => gavel(Goal::MaxMin),
            "gavel-alike" => gavel(Goal::MaxMinAlike),
            "gavel-ftf" => gavel(Goal::FinishTimeFairness),
            "gavel-makespan" => gavel(Goal::Makespan),
            "gavel-makespan-alike" => gavel(Goal::MakespanAlike),
            "gavel-isolated" => gavel(Goal::Isolated),
            "gavel-packed" => packed(Goal::MaxMin),
            "gavel-ftf-packed" => packed(Goal::FinishTimeFairness),
            "gavel-makespan-packed" => packed(Goal::Makespan),
            "fifo" => ordered(Order::Arrival, Admit::Backfill, Preempt::Never),
            "fifo-strict" => ordered(Order::Arrival, Admit::Strict, Preempt::Never),
            "sjf" => ordered(Order::Remaining, Admit::Backfill, Preempt::Never),
            "srtf" => ordered(Order::Remaining, Admit::Backfill, Preempt::InPlace),
            "srsf" => ordered(Order::RemainingService, Admit::Backfill, Preempt::InPlace),
            "muri-srtf" => ordered(Order::Remaining, Admit::Backfill, Preempt::Repack),
            "muri-srsf" => ordered(Order::RemainingService, Admit::Backfill, Preempt::Repack),
            "las" => las(thresholds, true, 0, Place::Consolidated),
            "las-promote" => las(thresholds, true, 8, Place::Consolidated),
            "gittins" => Some(Self::Gittins { place: Place::Consolidated }),
            "muri-las" => las(thresholds, true, 0, Place::Anywhere),
            "pollux-las" => las(vec![secs(57_600)], false, 0, Place::MostFree),
            "optimus" => Some(Self::Elastic { gain: Gain::RemainingTime, round: secs(60) }),
            "pollux" => Some(Self::Elastic { gain: Gain::Goodput, round: secs(60) }),
            "synergy-proportional" => synergy(Tune::Proportional),
            "synergy-greedy" => synergy(Tune::Greedy),
            "synergy-tune" => synergy(Tune::Tune),
            "synergy-opt" => synergy(Tune::Best),
            "themis" => Some(Self::Themis { lease: secs(1_200), fair_milli: 800 }),
            "themis-2m" => Some(Self::Themis { lease: secs(120), fair_milli: 800 }),
            "sjf-bsbf" => Some(Self::Sharing { benefit: Benefit::BestFirst }),
            "gandiva" => Some(Self::Sharing { benefit: Benefit::Throughput }),
            "sjf-ffs" => Some(Self::Sharing { benefit: Benefit::FirstFit }),
            _ => None,
        }
    }

    /// Whether it wants to be told what is left of running jobs at every turn.
    #[must_use]
    pub fn needs_progress(&self) -> bool {
        match self {
            Self::Ordered { order, preempt, .. } => *order != Order::Arrival && *preempt != Preempt::Never,
            Self::Sharing { .. } | Self::Elastic { .. } | Self::Themis { .. } | Self::Gavel { .. } => true,
            Self::Synergy { order, .. } => *order != Order::Arrival,
            Self::Las { .. } | Self::Gittins { .. } => false,
        }
    }

    /// Whether batches follow goodput rather than what was asked for.
    #[must_use]
    pub const fn adapts_batches(&self) -> bool {
        matches!(self, Self::Elastic { gain: Gain::Goodput, .. })
    }

    /// A fresh policy.
    #[must_use]
    pub fn build(&self) -> Box<dyn Policy<ClusterWorld>> {
        match self {
            Self::Ordered { order, admit, place, preempt } => {
                Box::new(Ordered::new(*order, *admit, *place, *preempt))
            }
            Self::Las { thresholds, runners_first, promote, place } => {
                Box::new(Las::new(thresholds.clone(), *runners_first, *promote, *place))
            }
            Self::Gittins { place } => Box::new(Gittins::new(*place)),
            Self::Synergy { order, tune, round } => Box::new(Synergy::new(*order, *tune, *round)),
            Self::Elastic { gain, round } => Box::new(Elastic::new(*gain, *round)),
            Self::Gavel { goal, packed, round } => Box::new(Gavel::new(*goal, *packed, *round)),
            Self::Themis { lease, fair_milli } => Box::new(Themis::new(*lease, *fair_milli)),
            Self::Sharing { benefit } => Box::new(Sharing::new(*benefit)),
        }
    }
}
