//! The live driver: the same turn as the simulator's, on the wall clock and real devices.
//!
//! ```text
//! front end ──Submission──▶ scheduler thread (world + policy) ──start/park──▶ one thread a partition ──▶ device
//!     ▲                          │        ▲                                          │
//!     └────────Outcome───────────┘        └────────────── events ────────────────────┘
//! ```
//! A loader thread prepares models, and new shapes of models that take several, beside them. What can be copied without a
//! partition is: inputs are staged by who submits them, answers are taken apart by threads of their own.

mod answer;
mod devices;
mod handle;
mod load;
mod make;
mod mover;
mod observe;
mod partition;
mod preparing;
mod rules;
mod runtime;
mod scheduler;
mod travel;
mod variant;

pub use handle::{
    Answer, Handle, ModelInfo, ModelState, Outcome, Readiness, Submission, SubmitError, Ticket, Timing,
};
pub use make::{Calibration, Shelf, measure};
pub use observe::Observer;
pub use rules::TenantRule;
pub use runtime::{Limits, Runtime, RuntimeError, RuntimeOptions};
pub use travel::{Travel, measure_travel};
pub use variant::buckets;
