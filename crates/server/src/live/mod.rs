//! The live driver: the same turn as the simulator's, on the wall clock and a real device.
//!
//! ```text
//! front end ──Submission──▶ scheduler thread (world + policy) ──launch/park──▶ one thread a partition ──▶ device
//!     ▲                          │        ▲                                          │
//!     └────────Outcome───────────┘        └────────────── events ────────────────────┘
//! ```

mod handle;

pub use handle::{Answer, Handle, ModelInfo, ModelState, Outcome, Readiness, Submission, SubmitError, Ticket, Timing};
