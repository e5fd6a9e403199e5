//! How runs that share a device slow each other down.
//!
//! Where nothing was measured, runs on the same units share them evenly: a run computes as fast as on so many units as it
//! has left of its own, one divided by the runs on it for each unit. Floating parts that together exceed the device shrink
//! in proportion. Runs on disjoint parts still share caches and bandwidth. What was measured of pairs adds up, on units
//! that both have and beside them; a run with a part of its units in common with another suffers each in proportion.

use crate::Scenario;
use crate::device::TrueRun;
use crate::slowdowns::Slowdowns;
use sched::World as _;
use sched::node::{Costs, NodeWorld, Part, Space};
use vocab::{IdMap, ModelId, PartitionId, RunId, Time};

/// A run on a device, as far as others feel it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Present {
    /// Its model.
    pub model: ModelId,
    /// Where it runs.
    pub partition: PartitionId,
    /// Its rows.
    pub rows: u32,
}

/// Speeds of runs beside each other, as a scenario has them: what the simulator reckons with, for who knows from elsewhere
/// what runs.
#[derive(Debug)]
pub struct Speeds {
    world: NodeWorld,
    costs: Vec<Costs>,
    slowdowns: Slowdowns,
}

impl Speeds {
    /// Of a checked `scenario`; models and partitions are numbered as it does.
    #[must_use]
    pub fn of(scenario: &Scenario) -> Self {
        let mut world = NodeWorld::new();
        for event in scenario.partition_events() {
            world.apply(Time::ZERO, &event);
        }
        let specs = scenario.specs();
        let costs = specs.iter().map(|spec| Costs::with_parts(&spec.costs, &spec.parts)).collect();
        Self { world, costs, slowdowns: scenario.slowdowns() }
    }

    /// The speed of `run` while `there` run, itself among them; 1 with nobody in its way.
    ///
    /// # Panics
    /// When the scenario has no such model.
    #[must_use]
    pub fn rate(&self, run: Present, there: &[Present]) -> f64 {
        rate(&self.slowdowns, self.world.space(), &self.costs[run.model.index()], (run, there))
    }
}

/// Runs on the devices, and what they do to each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Crowd {
    /// On a device now.
    running: Vec<RunId>,
    slowdowns: Slowdowns,
}

impl Crowd {
    pub(crate) fn new(slowdowns: Slowdowns) -> Self {
        Self { running: Vec::new(), slowdowns }
    }

    pub(crate) fn join(&mut self, run: RunId) {
        self.running.push(run);
    }

    pub(crate) fn leave(&mut self, run: RunId) {
        self.running.retain(|other| *other != run);
    }

    /// Sets everyone's speed from `now` on; who runs at another speed than before.
    pub(crate) fn settle(
        &self,
        now: Time,
        space: &Space,
        costs: &[Costs],
        runs: &mut IdMap<RunId, TrueRun>,
    ) -> Vec<RunId> {
        if space.is_plain() && self.slowdowns.is_empty() {
            return Vec::new();
        }
        let present = |run: &TrueRun| Present { model: run.model, partition: run.partition, rows: run.rows };
        let there: Vec<Present> = self.running.iter().filter_map(|run| runs.get(run)).map(present).collect();
        let mut changed = Vec::new();
        for id in &self.running {
            let Some(run) = runs.get_mut(id) else { continue };
            let rate = rate(&self.slowdowns, space, &costs[run.model.index()], (present(run), &there));
            if run.set_rate(now, rate) {
                changed.push(*id);
            }
        }
        changed
    }
}

fn rate(slowdowns: &Slowdowns, space: &Space, costs: &Costs, (run, there): (Present, &[Present])) -> f64 {
    let peers = space.peers(run.partition);
    let alone = [run.partition];
    let peers = if peers.is_empty() { &alone[..] } else { peers };
    let own = space.part(run.partition);
    let mut slower = 1.0;
    // Its own part, and those whose units it shares evenly because nothing else is known.
    let mut parts: Vec<Part> = own.into_iter().collect();
    for other in there.iter().filter(|other| peers.contains(&other.partition)) {
        if other.partition == run.partition {
            continue;
        }
        let times = |shared| slowdowns.times((run.model, run.rows), (other.model, other.rows), shared);
        let apart = times(false).map_or(0.0, |times| times - 1.0);
        let place = space.part(other.partition);
        let common = own.zip(place).map_or(0.0, |(own, place)| common(own, place));
        match times(true).filter(|_| common > 0.0) {
            Some(shared) => slower += common * (shared - 1.0) + (1.0 - common) * apart,
            None => {
                slower += apart;
                parts.extend(place);
            }
        }
    }
    let Some(part) = own else { return 1.0 / slower };
    let total = space.device_units(run.partition).unwrap_or(part.units);
    let own = own_units(part, total, &parts);
    let at = |units: f64| seconds(costs, run.rows, units, total);
    at(f64::from(part.units)) / at(own) / slower
}

/// The part of its units that `own` has in common with `other`, 0 to 1; floating parts have no places to compare.
fn common(own: Part, other: Part) -> f64 {
    let Some((a, b)) = own.first.zip(other.first) else { return 0.0 };
    let units = (a + own.units).min(b + other.units).saturating_sub(a.max(b));
    f64::from(units) / f64::from(own.units.max(1))
}

/// Units that a run on `part` has for itself among runs on `parts`, its own included.
fn own_units(part: Part, total: u32, parts: &[Part]) -> f64 {
    let Some(first) = part.first.filter(|_| parts.iter().all(|other| other.first.is_some())) else {
        let sum: u32 = parts.iter().map(|other| other.units).sum();
        return f64::from(part.units) * (f64::from(total) / f64::from(sum.max(1))).min(1.0);
    };
    let end = first + part.units;
    let ranges = || parts.iter().filter_map(|other| Some((other.first?, other.first? + other.units)));
    let mut cuts: Vec<u32> =
        ranges().flat_map(|(from, to)| [from, to]).filter(|at| (first..end).contains(at)).collect();
    cuts.extend([first, end]);
    cuts.sort_unstable();
    cuts.dedup();
    let share = |pair: &[u32]| {
        let on = ranges().filter(|(from, to)| *from <= pair[0] && pair[0] < *to).count();
        f64::from(pair[1] - pair[0]) / (on.max(1) as f64)
    };
    cuts.windows(2).map(share).sum()
}

/// Time of a run on a fraction of units: between those of the whole numbers around it.
fn seconds(costs: &Costs, rows: u32, units: f64, total: u32) -> f64 {
    let on = |units: u32| costs.of_on(rows, (units < total).then_some(units)).as_secs_f64();
    if units <= 1.0 {
        return on(1) / units.max(1e-6);
    }
    let below = (1..=total).rev().find(|whole| f64::from(*whole) <= units).unwrap_or(1);
    let part = units - f64::from(below);
    if part < 1e-9 || below >= total { on(below) } else { on(below) * (1.0 - part) + on(below + 1) * part }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_shared_evenly() {
        let at = |first, units| Part { first: Some(first), units };
        let floating = |units| Part { first: None, units };
        let own = |part, parts: &[Part]| own_units(part, 8, parts);
        assert_eq!(own(at(0, 4), &[at(0, 4), at(4, 4)]), 4.0);
        assert_eq!(own(at(0, 8), &[at(0, 8), at(0, 8)]), 4.0);
        assert_eq!(own(at(0, 6), &[at(0, 6), at(4, 4)]), 5.0, "two units are shared");
        assert_eq!(own(at(4, 4), &[at(0, 6), at(4, 4), at(4, 2)]), 2.0 / 3.0 + 2.0);
        assert_eq!(own(floating(4), &[floating(4), floating(4)]), 4.0);
        assert_eq!(own(floating(8), &[floating(8), floating(8)]), 4.0, "together they exceed the device");
    }
}
