//! Planners: where to cut a network and what to place where, each answer with a proved bound.
//!
//! A planner is a function from a checked graph to a plan and a report. [`judge()`] scores any placement from scratch, and
//! [`pipeline::judge_pipeline`] any pipeline. Nothing here knows a clock, a file or a thread: the caller reads files, limits work
//! through [`Limits`], and measures time.

mod operators;

pub mod formats;
pub mod latency;
pub mod packing;
pub mod picture;
pub mod pipeline;
pub mod place;
pub mod replan;
pub mod schedule;
pub mod spatial;
pub mod transfer;

pub use operators::{
    EDGES_MAX, GraphError, GraphFault, Kind, OPERATORS_MAX, Operator, OperatorGraph, TRANSFER_MS_TOLERANCE,
};
pub use place::{
    Answer, Binding, Communication, DeviceFault, Devices, Fault, GROUP_MAX, Group, Infeasible, Limits,
    MOVES_MAX, Model, ModelError, Part, PartScore, PlaceError, Placement, Report, Verdict, Work, judge,
    place, place_islands,
};
