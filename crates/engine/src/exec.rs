//! A run on a device: launch the next segment, ask, park, resume, abandon.
//!
//! ```text
//!            launch                over, more segments          park
//! AtEdge ───────────▶ InSegment ───────────────────▶ AtEdge ─────────▶ Parked ──resume──▶ AtEdge
//!                          └──── over, last segment ───▶ Finished
//! ```
//! Abandoning is dropping the run; a segment that is under way finishes on the device and is forgotten.

use crate::{Buffer, EngineError, Poll, Program, Queue, State, Ticket};
use std::sync::Arc;
use vocab::Span;

/// One batch in progress on a device.
pub struct Run {
    program: Arc<dyn Program>,
    state: Box<dyn State>,
    next: usize,
    phase: Phase,
    times: Vec<Span>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    AtEdge,
    InSegment(Ticket),
    Parked,
    Finished,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A segment is under way.
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
        Ok(Self { program, state, next: 0, phase: Phase::AtEdge, times: Vec::new() })
    }

    /// Its program.
    #[must_use]
    pub fn program(&self) -> &Arc<dyn Program> {
        &self.program
    }

    /// Where it stands, without asking the device.
    #[must_use]
    pub const fn progress(&self) -> Progress {
        match self.phase {
            Phase::AtEdge => Progress::AtEdge { next: self.next },
            Phase::InSegment(_) => Progress::InSegment,
            Phase::Parked => Progress::Parked { next: self.next },
            Phase::Finished => Progress::Finished,
        }
    }

    /// Launches the next segment.
    ///
    /// # Errors
    /// When the run is not at an edge, or the device refuses; it is lost then.
    pub fn launch(&mut self, queue: &mut dyn Queue) -> Result<(), EngineError> {
        if self.phase != Phase::AtEdge {
            return Err(self.out_of_order("launch a segment"));
        }
        let ticket = queue.launch(&*self.program, self.next, &mut *self.state)?;
        self.phase = Phase::InSegment(ticket);
        Ok(())
    }

    /// Asks the device how far the run is. Never blocks.
    ///
    /// # Errors
    /// When the segment failed.
    pub fn ask(&mut self, queue: &mut dyn Queue) -> Result<Progress, EngineError> {
        if let Phase::InSegment(ticket) = self.phase
            && let Poll::Over(span) = queue.poll(ticket)?
        {
            self.segment_over(span);
        }
        Ok(self.progress())
    }

    /// Waits for the segment under way, if any.
    ///
    /// # Errors
    /// When the segment failed.
    pub fn settle(&mut self, queue: &mut dyn Queue) -> Result<Progress, EngineError> {
        if let Phase::InSegment(ticket) = self.phase {
            let span = queue.wait(ticket)?;
            self.segment_over(span);
        }
        Ok(self.progress())
    }

    fn segment_over(&mut self, span: Span) {
        self.times.push(span);
        self.next += 1;
        let finished = self.next == self.program.segments().len();
        self.phase = if finished { Phase::Finished } else { Phase::AtEdge };
    }

    /// Puts the run aside at its edge; its state is kept.
    ///
    /// # Errors
    /// When it is not at an edge.
    pub const fn park(&mut self) -> Result<(), EngineError> {
        if !matches!(self.phase, Phase::AtEdge) {
            return Err(self.out_of_order("park"));
        }
        self.phase = Phase::Parked;
        Ok(())
    }

    /// Takes a parked run up again.
    ///
    /// # Errors
    /// When it is not parked.
    pub const fn resume(&mut self) -> Result<(), EngineError> {
        if !matches!(self.phase, Phase::Parked) {
            return Err(self.out_of_order("resume"));
        }
        self.phase = Phase::AtEdge;
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
        if self.phase != Phase::Finished {
            return Err(self.out_of_order("finish"));
        }
        self.program.finish(self.state)
    }

    const fn out_of_order(&self, act: &'static str) -> EngineError {
        let state = match self.phase {
            Phase::AtEdge => "at an edge",
            Phase::InSegment(_) => "in a segment",
            Phase::Parked => "parked",
            Phase::Finished => "finished",
        };
        EngineError::Order { act, state }
    }
}
