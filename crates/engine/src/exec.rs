//! A run on a device: launch the next segment, ask, park, resume, abandon.
//!
//! ```text
//!            launch                over, more segments          park
//! AtEdge ───────────▶ InSegment ───────────────────▶ AtEdge ─────────▶ Parked ──resume──▶ AtEdge
//!                      │  ▲   └──── over, last segment ───▶ Finished
//!                      └──┘ launch ahead
//! ```
//! On a device whose launches return before they are over, segments may be launched ahead: the host is then never
//! between two of them. A run parks only when none is under way, so what is launched ahead bounds the wait for an edge.
//! Abandoning is dropping the run; a segment that is under way finishes on the device and is forgotten.

use crate::{Buffer, EngineError, Poll, Program, Queue, Staged, State, Ticket};
use std::collections::VecDeque;
use std::sync::Arc;
use vocab::Span;

/// One batch in progress on a device.
pub struct Run {
    program: Arc<dyn Program>,
    state: Box<dyn State>,
    /// The next segment to launch.
    next: usize,
    /// Launched and not known to be over, oldest first.
    under_way: VecDeque<Ticket>,
    parked: bool,
    times: Vec<Span>,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// At least one segment is under way.
    InSegment,
    /// Between two segments; this one is next.
    AtEdge {
        /// The next segment.
        next: usize,
    },
    /// Parked before this segment.
    Parked {
        /// The next segment.
        next: usize,
    },
    /// All segments are over.
    Finished,
}

impl Run {
    /// A run of `program` on `inputs`, before its first segment.
    ///
    /// # Errors
    /// When the inputs are not the program's.
    pub fn new(program: Arc<dyn Program>, inputs: Vec<Box<dyn Buffer>>) -> Result<Self, EngineError> {
        let state = program.begin(inputs)?;
        Ok(Self::at_first(program, state))
    }

    /// The same on inputs that lie staged, each as the rows of several requests in turn.
    ///
    /// # Errors
    /// When they are not the program's, or its device stages nothing.
    pub fn staged(program: Arc<dyn Program>, rows: Vec<Vec<Arc<dyn Staged>>>) -> Result<Self, EngineError> {
        let state = program.begin_staged(rows)?;
        Ok(Self::at_first(program, state))
    }

    fn at_first(program: Arc<dyn Program>, state: Box<dyn State>) -> Self {
        Self { program, state, next: 0, under_way: VecDeque::new(), parked: false, times: Vec::new() }
    }

    /// Its program.
    #[must_use]
    pub fn program(&self) -> &Arc<dyn Program> {
        &self.program
    }

    /// Where it stands, without asking the device.
    #[must_use]
    pub fn progress(&self) -> Progress {
        if !self.under_way.is_empty() {
            Progress::InSegment
        } else if self.parked {
            Progress::Parked { next: self.next }
        } else if self.is_launched() {
            Progress::Finished
        } else {
            Progress::AtEdge { next: self.next }
        }
    }

    /// Segments launched that are not known to be over.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Whether its last segment has been launched.
    #[must_use]
    pub fn is_launched(&self) -> bool {
        self.next == self.program.segments().len()
    }

    /// The segment that is launched next; their number when all are.
    #[must_use]
    pub const fn next_segment(&self) -> usize {
        self.next
    }

    /// Launches the next segment, behind those under way if there are any.
    ///
    /// # Errors
    /// When the run is parked or has no segment left, or the device refuses; it is lost then.
    pub fn launch(&mut self, queue: &mut dyn Queue) -> Result<(), EngineError> {
        if self.parked || self.is_launched() {
            return Err(self.out_of_order("launch a segment"));
        }
        let ticket = queue.launch(&*self.program, self.next, &mut *self.state)?;
        self.under_way.push_back(ticket);
        self.next += 1;
        Ok(())
    }

    /// Asks the device how far the run is. Never blocks.
    ///
    /// # Errors
    /// When a segment failed.
    pub fn ask(&mut self, queue: &mut dyn Queue) -> Result<Progress, EngineError> {
        while let Some(ticket) = self.under_way.front() {
            let Poll::Over(span) = queue.poll(*ticket)? else { break };
            self.times.push(span);
            self.under_way.pop_front();
        }
        Ok(self.progress())
    }

    /// Waits for the oldest segment under way, if any.
    ///
    /// # Errors
    /// When the segment failed.
    pub fn settle_one(&mut self, queue: &mut dyn Queue) -> Result<Progress, EngineError> {
        if let Some(ticket) = self.under_way.front() {
            self.times.push(queue.wait(*ticket)?);
            self.under_way.pop_front();
        }
        Ok(self.progress())
    }

    /// Waits for every segment under way.
    ///
    /// # Errors
    /// When a segment failed.
    pub fn settle(&mut self, queue: &mut dyn Queue) -> Result<Progress, EngineError> {
        while !self.under_way.is_empty() {
            self.settle_one(queue)?;
        }
        Ok(self.progress())
    }

    /// Puts the run aside at its edge; its state is kept.
    ///
    /// # Errors
    /// When it is not at an edge.
    pub fn park(&mut self) -> Result<(), EngineError> {
        if !matches!(self.progress(), Progress::AtEdge { .. }) {
            return Err(self.out_of_order("park"));
        }
        self.parked = true;
        Ok(())
    }

    /// Takes a parked run up again.
    ///
    /// # Errors
    /// When it is not parked.
    pub fn resume(&mut self) -> Result<(), EngineError> {
        if !self.parked {
            return Err(self.out_of_order("resume"));
        }
        self.parked = false;
        Ok(())
    }

    /// Device times of the segments that have finished since they were last taken.
    pub fn take_times(&mut self) -> Vec<Span> {
        std::mem::take(&mut self.times)
    }

    /// Gives up the run. What it had computed is lost.
    pub fn abandon(self) {
        drop(self);
    }

    /// The outputs of a finished run, in the model's order.
    ///
    /// # Errors
    /// When it has not finished.
    pub fn finish(self) -> Result<Vec<Box<dyn Buffer>>, EngineError> {
        if self.progress() != Progress::Finished {
            return Err(self.out_of_order("finish"));
        }
        self.program.finish(self.state)
    }

    fn out_of_order(&self, act: &'static str) -> EngineError {
        let state = match self.progress() {
            Progress::AtEdge { .. } => "at an edge",
            Progress::InSegment => "in a segment",
            Progress::Parked { .. } => "parked",
            Progress::Finished => "finished",
        };
        EngineError::Order { act, state }
    }
}
