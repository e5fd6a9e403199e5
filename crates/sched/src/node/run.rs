//! A run: one batch in progress, and the states it passes through.
//!
//! ```text
//! Ordered ──started──▶ Running ──Park──▶ Parking ──parked──▶ Parked ──Resume──▶ Resuming ──resumed──▶ Running
//!    └──refused: requests wait again         └──finished first: done
//! ```

use vocab::{Class, ModelId, PartitionId, RequestId, RunId, Span, Time};

/// One batch in progress.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its number.
    pub id: RunId,
    /// Its model.
    pub model: ModelId,
    /// Where it runs.
    pub partition: PartitionId,
    /// Its requests in row order; those that ended early stay listed.
    pub requests: Vec<RequestId>,
    /// Requests still waiting for its answer.
    pub wanted: u32,
    /// Rows of all its requests.
    pub rows: u32,
    /// The strictest class among its requests.
    pub class: Class,
    /// Arrival of its oldest request.
    pub arrival: Time,
    /// The earliest deadline among its requests.
    pub deadline: Option<Time>,
    /// Where it stands.
    pub state: RunState,
    /// The segment it goes on with after its latest edge.
    pub next_segment: u32,
    /// Device time measured so far.
    pub busy: Span,
    /// Time its requests waited before it began, plus the time it was parked: what ageing counts.
    pub waited: Span,
    /// Times it was parked.
    pub parks: u32,
    /// Whether it was decided before all weights of its model had arrived: it teaches nothing about costs.
    pub cold: bool,
    /// It parks by itself before this segment.
    pub until: Option<u32>,
    /// Whether it went on on another partition than it began on: it teaches nothing about costs.
    pub moved: bool,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Decided; not begun yet.
    Ordered,
    /// On its partition since this time.
    Running {
        /// Since when.
        since: Time,
    },
    /// Asked to stop at its next edge.
    Parking {
        /// On the partition since when.
        since: Time,
    },
    /// Off its partition, state kept.
    Parked {
        /// Since when.
        since: Time,
    },
    /// Asked to go on.
    Resuming,
    /// Asked to stop for good.
    Abandoning {
        /// Whether it still holds its partition; a parked run does not.
        held: bool,
    },
}

impl Run {
    /// Whether it occupies its partition.
    #[must_use]
    pub const fn occupies(&self) -> bool {
        !matches!(self.state, RunState::Parked { .. } | RunState::Abandoning { held: false })
    }

    /// Since when it has been on its partition without a pause.
    #[must_use]
    pub const fn running_since(&self) -> Option<Time> {
        match self.state {
            RunState::Running { since } | RunState::Parking { since } => Some(since),
            _ => None,
        }
    }
}
