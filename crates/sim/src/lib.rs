//! The simulator: the driver that takes turns on virtual time.
//!
//! A [`Scenario`] names partitions, models with their profiles, and loads; a [`Simulation`] pops events off a heap, takes
//! a turn at each instant and performs the decisions on a model of the device. No clock and no hash order in here: the
//! same scenario and seed give the same journal on every machine.

mod arrivals;
pub mod cluster;
mod crowd;
mod device;
mod driver;
mod link;
mod scenario;
mod slowdowns;
mod spread;
mod tally;

pub use crowd::{Present, Speeds};
pub use driver::{Outcome, Simulation, SimulationError};
pub use scenario::{
    Arrivals, BatchEntry, DeviceEntry, Grouping, GroupingName, LinkEntry, Load, ModelEntry, ModelPart,
    PartEntry, PolicyEntry, RuleEntry, Scenario, ScenarioError, SlowdownEntry, SpaceEntry,
};
pub use tally::{End, Ended, Group, Summary, Tally};

#[cfg(test)]
mod tests;
