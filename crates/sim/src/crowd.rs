//! How runs that share a device slow each other down.
//!
//! Runs on the same units share them evenly: a run computes as fast as on so many units as it has left of its own, one
//! divided by the runs on it for each unit. Floating parts that together exceed the device shrink in proportion. Runs on
//! disjoint parts still share caches and bandwidth: measured slow-downs of pairs add up.

use crate::device::TrueRun;
use sched::node::{Costs, Part, Space};
use std::collections::BTreeMap;
use vocab::{IdMap, ModelId, PartitionId, RunId, Time};

/// Runs on the devices, and what they do to each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Crowd {
    /// On a device now.
    running: Vec<RunId>,
    /// By model and neighbour: how many times longer its runs take.
    slowdowns: BTreeMap<(ModelId, ModelId), f64>,
}

impl Crowd {
    pub(crate) fn new(slowdowns: BTreeMap<(ModelId, ModelId), f64>) -> Self {
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
        let there: Vec<(ModelId, PartitionId)> = self
            .running
            .iter()
            .filter_map(|run| runs.get(run))
            .map(|run| (run.model, run.partition))
            .collect();
        let mut changed = Vec::new();
        for id in &self.running {
            let Some(run) = runs.get_mut(id) else { continue };
            let rate = self.rate(run, space, &costs[run.model.index()], &there);
            if run.set_rate(now, rate) {
                changed.push(*id);
            }
        }
        changed
    }

    fn rate(&self, run: &TrueRun, space: &Space, costs: &Costs, there: &[(ModelId, PartitionId)]) -> f64 {
        let peers = space.peers(run.partition);
        let alone = [run.partition];
        let peers = if peers.is_empty() { &alone[..] } else { peers };
        let beside = there.iter().filter(|(_, partition)| peers.contains(partition));
        let mut slower = 1.0;
        for (model, partition) in beside.clone() {
            if *partition != run.partition {
                slower += self.slowdowns.get(&(run.model, *model)).map_or(0.0, |times| times - 1.0);
            }
        }
        let Some(part) = space.part(run.partition) else { return 1.0 / slower };
        let total = space.device_units(run.partition).unwrap_or(part.units);
        let parts: Vec<Part> = beside.filter_map(|(_, partition)| space.part(*partition)).collect();
        let own = own_units(part, total, &parts);
        let at = |units: f64| seconds(costs, run.rows, units, total);
        at(f64::from(part.units)) / at(own) / slower
    }
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
