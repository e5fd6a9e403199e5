//! Pure scheduling: worlds, policies, turns and their journal.
//!
//! Facts go in as events, choices come out as decisions, and nothing here knows a clock, a thread or a device. The
//! simulator, the live server and `replay` drive the same [`turn()`]; that is why they agree.

pub mod cluster;
pub mod journal;
pub mod node;
mod turn;

pub use turn::{Policy, Turn, World, turn};
