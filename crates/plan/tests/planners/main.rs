//! Tests of the planners at their boundary: published workloads, files with faults, and small graphs by brute force.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod brute_force;
mod data;
mod formats;
mod limits;
mod milp;
mod packing;
mod pipeline;
mod pipeline_brute_force;
mod reference;
