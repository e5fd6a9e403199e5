//! Schedules of pipelines: in what order each device runs the passes of each microbatch, and what comes of it.
//!
//! ```text
//! generate (GPipe, 1F1B, 1F1B-RR, interleaved, ZB-H1, ZB-V) ──┐
//! parse (text) ───────────────────────────────────────────────┴─▶ Schedule ─▶ with_transfers ─▶ check ─▶ simulate ─▶ Run
//! ```
//!
//! A schedule is one lane of steps a device. `F` is a forward pass, `B` a backward pass (of inputs alone where the schedule
//! splits it), `W` the gradients of weights; `>` sends and `<` receives an activation or a gradient.

mod check;
mod generate;
mod list;
mod simulate;
mod step;
#[cfg(test)]
mod tests;
mod timeline;

pub use check::{ScheduleFault, check};
pub use generate::{Kind, ScheduleError, generate};
pub use simulate::{
    DeviceRun, Matching, Run, Sending, Settings, SimulationError, Slice, Stuck, Transfer, simulate,
};
pub use step::{Act, ParseError, Pass, Schedule, Step};
pub use timeline::timeline;

use vocab::{Bytes, Span};

/// Steps of one schedule that are made or simulated.
pub const STEPS_MAX: usize = 4_000_000;

/// What one stage costs for one microbatch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCost {
    /// Forward pass.
    pub forward: Span,
    /// Backward pass to the stage's inputs.
    pub backward: Span,
    /// Gradients of the stage's weights; done with the backward pass where the schedule does not split it.
    pub weight: Span,
    /// Sending the stage's output to the next stage; its gradient takes as long on the way back.
    pub transfer: Span,
    /// What a forward pass keeps until its backward pass.
    pub activation_bytes: Bytes,
    /// What a backward pass keeps of that until the gradients of weights are done, where the two are split.
    pub weight_stash_bytes: Bytes,
    /// Parameters, gradients and the like, held all the time.
    pub resident_bytes: Bytes,
}
