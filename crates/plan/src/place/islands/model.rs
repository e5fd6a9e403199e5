//! The placement problem as a mixed-integer program, for a solver outside; and what its answer means.
//!
//! ```text
//! minimise L    x[u,d] = 1: unit u is on device d    y[n,d] = 1: device d pays for net n
//! each unit on one device · y[n,d] ≥ ±(x[consumer,d] − x[source,d]) · memory · L ≥ load of each device
//! ```
//!
//! Equal devices are told apart by the heaviest units: the first may only be on the first device of a group, the second
//! on the first two, and so on, so that renaming devices gives no second solution. Contiguous parts are asked for by an order
//! of the devices instead: of the ends of an edge, the source is on no later device.

use super::super::problem::Problem;
use super::super::{Communication, Devices, Group, Placement, Report, binding, judge};
use super::split_of;
use crate::operators::{Kind, OperatorGraph};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use thiserror::Error;

/// Variables and rows that are written.
const SIZE_MAX: usize = 2_000_000;

/// Relative tolerance of solvers: a bound is lowered by it, a value that close to a bound is the least.
const TOLERANCE: f64 = 1e-6;

/// A mixed-integer program.
#[derive(Clone, Debug)]
pub struct Model {
    problem: Problem,
    devices: Devices,
    communication: Communication,
    groups: Vec<Group>,
    /// Units that tell equal devices apart, heaviest first.
    telling: Vec<usize>,
    /// Whether edges lead from devices to the same or later ones.
    ordered: bool,
    floor: f64,
}

/// Why there is no model.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ModelError {
    /// More than a solver could do anything with.
    #[error("the model would have about {found} variables and rows, at most {SIZE_MAX} are written")]
    Size {
        /// How many there would be.
        found: usize,
    },
}

/// What a solver says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Values of variables by name; those that are missing are 0.
    pub values: BTreeMap<String, f64>,
    /// A value that it proved no solution to be below.
    pub bound: Option<f64>,
}

/// Variables and their factors.
type Terms = Vec<(f64, String)>;

/// `L ≥ …` and the like: the sum of terms is at most, at least or exactly something.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub terms: Terms,
    pub sense: &'static str,
    pub right: f64,
}

impl Model {
    /// The program for placements that are not replicated. `report` is what is known already.
    ///
    /// # Errors
    ///
    /// When it would be too large.
    pub fn new(
        graph: &OperatorGraph,
        devices: &Devices,
        communication: Communication,
        report: &Report,
    ) -> Result<Self, ModelError> {
        let devices = Devices { exchange_bytes_per_second: None, ..devices.clone() };
        let problem = Problem::loose(graph, &devices);
        Self::of(problem, devices, communication, report.lower_ms, false)
    }

    /// The program for contiguous placements whose parts follow each other in the order of the devices, as they are given;
    /// `floor_ms` is a value that none is below. Where all devices are equal, that is every contiguous placement.
    ///
    /// # Errors
    ///
    /// When it would be too large.
    pub fn in_order(
        graph: &OperatorGraph,
        devices: &Devices,
        communication: Communication,
        floor_ms: f64,
    ) -> Result<Self, ModelError> {
        let devices = Devices { exchange_bytes_per_second: None, ..devices.clone() };
        Self::of(Problem::new(graph, &devices), devices, communication, floor_ms, true)
    }

    fn of(
        problem: Problem,
        devices: Devices,
        communication: Communication,
        floor: f64,
        ordered: bool,
    ) -> Result<Self, ModelError> {
        let ends: usize = problem.consumed.iter().map(Vec::len).sum();
        let rows = problem.units.len() + problem.nets.len() + problem.edges.len() + 2 * ends;
        let found = devices.count().saturating_mul(rows);
        if found > SIZE_MAX {
            return Err(ModelError::Size { found });
        }
        let groups =
            devices.groups.iter().flat_map(|group| std::iter::repeat_n(*group, group.count)).collect();
        let mut telling: Vec<usize> = (0..problem.units.len()).collect();
        telling.sort_by(|&a, &b| {
            problem.units[b].work_ms().total_cmp(&problem.units[a].work_ms()).then(a.cmp(&b))
        });
        let most = devices.groups.iter().map(|group| group.count).max().unwrap_or(0);
        // An order tells them apart.
        telling.truncate(if ordered { 0 } else { most });
        Ok(Self { problem, devices, communication, groups, telling, ordered, floor })
    }

    /// The program in the LP format that solvers read.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = "minimize\n obj: L\nsubject to\n".to_owned();
        for (number, row) in self.rows().iter().enumerate() {
            let _ = write!(text, " r{number}:");
            for (factor, name) in &row.terms {
                let _ = write!(text, " {factor:+e} {name}\n ");
            }
            let _ = writeln!(text, "{} {:e}", row.sense, row.right);
        }
        let _ = writeln!(text, "bounds\n L >= {:e}", self.floor);
        for (unit, device) in self.barred() {
            let _ = writeln!(text, " {} = 0", x(unit, device));
        }
        for net in 0..self.problem.nets.len() {
            for device in self.paying() {
                let _ = writeln!(text, " 0 <= {} <= 1", y(net, device));
            }
        }
        text.push_str("binary\n");
        for unit in 0..self.problem.units.len() {
            for device in 0..self.groups.len() {
                let _ = writeln!(text, " {}", x(unit, device));
            }
        }
        text.push_str("end\n");
        text
    }

    /// The values that `placement` gives the variables that are not 0, to start a solver from.
    #[must_use]
    pub fn start(&self, placement: &Placement) -> BTreeMap<String, f64> {
        let mut device_of = self.devices_of(placement);
        if !self.ordered {
            device_of = self.renamed(&device_of);
        }
        let mut values = BTreeMap::new();
        for (unit, &device) in device_of.iter().enumerate() {
            values.insert(x(unit, device), 1.0);
        }
        for (unit, consumed) in self.problem.consumed.iter().enumerate() {
            for &(net, source) in consumed {
                if device_of[unit] != device_of[source] {
                    for device in [device_of[unit], device_of[source]] {
                        if self.groups[device].kind == Kind::Accelerator {
                            values.insert(y(net, device), 1.0);
                        }
                    }
                }
            }
        }
        let loads = self.loads(&values);
        values.insert("L".to_owned(), loads.into_iter().fold(self.floor, f64::max));
        values
    }

    /// The better of what was known and what a solver says, judged anew; its bound is taken on trust.
    #[must_use]
    pub fn conclude(
        &self,
        graph: &OperatorGraph,
        (placement, report): (Placement, Report),
        answer: &Answer,
    ) -> (Placement, Report) {
        let bound = answer.bound.map_or(f64::NEG_INFINITY, |bound| bound - TOLERANCE * bound.abs());
        let found = self.placement(answer).map(|found| {
            let verdict = judge(graph, &self.devices, self.communication, &found);
            (found, verdict)
        });
        let (mut placement, mut report) = (placement, report);
        if let Some((found, verdict)) = found
            && verdict.faults.is_empty()
            && verdict.value_ms < report.value_ms
        {
            placement = found;
            report.value_ms = verdict.value_ms;
            report.binding = binding(&verdict, self.problem.heaviest_ms(&self.devices));
        }
        report.lower_ms = report.lower_ms.max(bound);
        report.proved = report.value_ms <= report.lower_ms * (1.0 + 2.0 * TOLERANCE);
        report.lower_ms = report.lower_ms.min(report.value_ms);
        (placement, report)
    }

    /// The placement that variables mean; `None` when a unit is nowhere.
    fn placement(&self, answer: &Answer) -> Option<Placement> {
        let mut device_of = Vec::with_capacity(self.problem.units.len());
        for unit in 0..self.problem.units.len() {
            let on = |device: &usize| answer.values.get(&x(unit, *device)).is_some_and(|&value| value > 0.5);
            device_of.push((0..self.groups.len()).find(on)?);
        }
        Some(self.problem.placement(&split_of(&device_of, &self.devices)))
    }

    fn devices_of(&self, placement: &Placement) -> Vec<usize> {
        let split = self.problem.split(placement);
        let mut device_of = vec![0; self.problem.units.len()];
        let mut next: Vec<usize> = (0..self.devices.groups.len())
            .map(|group| self.devices.groups[..group].iter().map(|group| group.count).sum())
            .collect();
        for part in &split.parts {
            for &unit in &part.units {
                device_of[unit] = next[part.group];
            }
            next[part.group] += 1;
        }
        device_of
    }

    /// Devices named in the order in which the telling units, then all, meet them, group by group.
    fn renamed(&self, device_of: &[usize]) -> Vec<usize> {
        let mut name: BTreeMap<usize, usize> = BTreeMap::new();
        let mut first = 0;
        for group in &self.devices.groups {
            let range = first..first + group.count;
            let mut next = first;
            for &unit in self.telling.iter().chain(&(0..device_of.len()).collect::<Vec<_>>()) {
                let device = device_of[unit];
                if range.contains(&device) && !name.contains_key(&device) {
                    name.insert(device, next);
                    next += 1;
                }
            }
            first = range.end;
        }
        device_of.iter().map(|device| name.get(device).copied().unwrap_or(*device)).collect()
    }

    /// Units and the devices on which they cannot be, or need not be tried.
    fn barred(&self) -> Vec<(usize, usize)> {
        let mut barred = Vec::new();
        for (unit, costs) in self.problem.units.iter().enumerate() {
            for (device, group) in self.groups.iter().enumerate() {
                let time = group.time(costs.accelerator_ms, costs.cpu_ms);
                if !time.is_finite() || !group.fits(costs.resident_bytes) {
                    barred.push((unit, device));
                }
            }
        }
        let mut first = 0;
        for group in &self.devices.groups {
            for (rank, &unit) in self.telling.iter().enumerate() {
                barred.extend((first + rank + 1..first + group.count).map(|device| (unit, device)));
            }
            first += group.count;
        }
        barred.sort_unstable();
        barred.dedup();
        barred
    }

    /// Devices that pay for transfers.
    fn paying(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.groups.len()).filter(|&device| self.groups[device].kind == Kind::Accelerator)
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for unit in 0..self.problem.units.len() {
            let terms = (0..self.groups.len()).map(|device| (1.0, x(unit, device))).collect();
            rows.push(Row { terms, sense: "=", right: 1.0 });
        }
        for (unit, consumed) in self.problem.consumed.iter().enumerate() {
            for &(net, source) in consumed {
                for device in self.paying() {
                    for sign in [1.0, -1.0] {
                        let pays = (1.0, y(net, device));
                        let terms = vec![pays, (-sign, x(unit, device)), (sign, x(source, device))];
                        rows.push(Row { terms, sense: ">=", right: 0.0 });
                    }
                }
            }
        }
        for &(source, target) in self.problem.edges.iter().filter(|_| self.ordered) {
            for last in 0..self.groups.len().saturating_sub(1) {
                let on = |unit: usize, sign: f64| (0..=last).map(move |device| (sign, x(unit, device)));
                let terms = on(source, 1.0).chain(on(target, -1.0)).collect();
                rows.push(Row { terms, sense: ">=", right: 0.0 });
            }
        }
        for (device, group) in self.groups.iter().enumerate() {
            let Some(memory) = group.memory_bytes else { continue };
            let sized = self.problem.units.iter().enumerate().filter(|(_, unit)| unit.resident_bytes > 0);
            // In units of the memory, so that numbers stay small.
            let terms: Vec<_> = sized
                .map(|(unit, costs)| (costs.resident_bytes as f64 / memory.max(1) as f64, x(unit, device)))
                .collect();
            if terms.iter().map(|term| term.0).sum::<f64>() > 1.0 {
                rows.push(Row { terms, sense: "<=", right: 1.0 });
            }
        }
        for device in 0..self.groups.len() {
            let (computing, moving) = self.costs(device);
            let sums = match self.communication {
                Communication::Serial => vec![[computing, moving].concat()],
                Communication::Overlapped => vec![computing, moving],
            };
            for mut terms in sums {
                for term in &mut terms {
                    term.0 = -term.0;
                }
                terms.push((1.0, "L".to_owned()));
                rows.push(Row { terms, sense: ">=", right: 0.0 });
            }
        }
        rows
    }

    /// What computing and moving cost a device, term by term.
    fn costs(&self, device: usize) -> (Terms, Terms) {
        let group = &self.groups[device];
        let mut computing = Vec::new();
        for (unit, costs) in self.problem.units.iter().enumerate() {
            let time = group.time(costs.accelerator_ms, costs.cpu_ms);
            if time.is_finite() && time > 0.0 {
                computing.push((time, x(unit, device)));
            }
        }
        let mut moving = Vec::new();
        if group.kind == Kind::Accelerator {
            for (net, content) in self.problem.nets.iter().enumerate() {
                moving.push((content.transfer_ms / group.link, y(net, device)));
            }
        }
        (computing, moving)
    }

    fn loads(&self, values: &BTreeMap<String, f64>) -> Vec<f64> {
        let sum = |terms: &[(f64, String)]| -> f64 {
            terms.iter().map(|(factor, name)| factor * values.get(name).copied().unwrap_or(0.0)).sum()
        };
        let load = |device| {
            let (computing, moving) = self.costs(device);
            self.communication.load(sum(&computing), sum(&moving))
        };
        (0..self.groups.len()).map(load).collect()
    }
}

fn x(unit: usize, device: usize) -> String {
    format!("x{unit}_{device}")
}

fn y(net: usize, device: usize) -> String {
    format!("y{net}_{device}")
}
