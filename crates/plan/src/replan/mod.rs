//! Planning anew when a device changes: what to move where, what that costs, and when it pays.
//!
//! ```text
//! running plan, changes ─▶ keep · shift the boundaries · best of all ─▶ each: value, bytes moved, ms to move ─▶ cheapest
//! ```
//!
//! The cheapest is the one that takes least time for moving and for so many samples together. Devices are numbered group
//! by group, as a placement's parts use them.

mod matching;
#[cfg(test)]
mod tests;

use crate::operators::OperatorGraph;
use crate::place::{
    Communication, Devices, Group, Limits, Part, PlaceError, Placement, judge, place, place_along,
};
use std::collections::BTreeSet;
use thiserror::Error;

/// Devices that are told apart.
pub const DEVICES_MAX: usize = 256;

/// What happened to a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// It now computes at this multiple of the speed that the graph's times are for.
    Speed(f64),
    /// It now has so much memory.
    Memory(u64),
    /// It is gone, with all it held.
    Lost,
    /// It is there again, or new: such a device, numbered on from the last.
    Added(Group),
}

/// What moving costs and how long a plan will be used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moving {
    /// Bytes a second that a device can take in; devices take in at the same time.
    pub bytes_per_second: f64,
    /// Samples that will be run by the new plan.
    pub samples: f64,
}

/// How much of the running plan is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Nothing.
    Keep,
    /// Where parts begin and end, not their order.
    Shift,
    /// Everything.
    Anew,
}

/// One way to go on.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    /// How much of the running plan is given up.
    pub how: How,
    /// The devices as they are now, equal ones in groups.
    pub devices: Devices,
    /// The placement on these groups.
    pub placement: Placement,
    /// The numbers of the devices that run each part.
    pub device_of: Vec<Vec<usize>>,
    /// The greatest load now, milliseconds a sample.
    pub value_ms: f64,
    /// Whether no contiguous placement has a lower value.
    pub proved: bool,
    /// Bytes that come to a device which did not hold them.
    pub moved_bytes: u64,
    /// Time to move: that of the device to which most comes.
    pub moving_ms: f64,
    /// Moving, and running all samples.
    pub total_ms: f64,
}

/// Why there is no new plan.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ReplanError {
    /// The running plan is impossible on the devices that it was made for.
    #[error("the running plan is impossible: {0}")]
    Running(String),
    /// Changes that cannot be made.
    #[error("{}", .0.join("\n"))]
    Changes(Vec<String>),
    /// More devices than are told apart.
    #[error("{found} devices, at most {DEVICES_MAX} are planned for anew")]
    TooMany {
        /// How many there are.
        found: usize,
    },
    /// Moving is described wrongly.
    #[error("moving {bytes_per_second} bytes a second for {samples} samples; both are positive numbers")]
    Moving {
        /// The speed.
        bytes_per_second: f64,
        /// The samples.
        samples: f64,
    },
    /// Nothing fits the devices that are left.
    #[error("{0}")]
    Place(#[from] PlaceError),
}

/// Every way to go on after `changes`, each to the device of that number; the cheapest first.
///
/// # Errors
///
/// An impossible running plan, changes of devices that are not there, and when nothing fits what is left.
pub fn replan(
    graph: &OperatorGraph,
    (devices, running): (&Devices, &Placement),
    changes: &[(usize, Change)],
    communication: Communication,
    moving: Moving,
    limits: Limits<'_>,
) -> Result<Vec<Way>, ReplanError> {
    let found = devices.count() + changes.len();
    if found > DEVICES_MAX {
        return Err(ReplanError::TooMany { found });
    }
    let positive = |value: f64| value.is_finite() && value > 0.0;
    if !positive(moving.bytes_per_second) || !positive(moving.samples) {
        let Moving { bytes_per_second, samples } = moving;
        return Err(ReplanError::Moving { bytes_per_second, samples });
    }
    let verdict = judge(graph, devices, communication, running);
    if let Some(fault) = verdict.faults.first() {
        return Err(ReplanError::Running(fault.to_string()));
    }
    let old = Fleet::of(devices, running);
    let new = old.changed(changes)?;
    let context = Context { graph, communication, moving, exchange: devices.exchange_bytes_per_second };
    let mut ways = Vec::new();
    ways.extend(context.keep(&new));
    let now = new.devices(context.exchange);
    if verdict.contiguous()
        && let Ok((placement, _)) = place_along(graph, &now, communication, limits, running)
    {
        ways.push(context.way(How::Shift, &new, placement, false));
    }
    match place(graph, &now, communication, limits) {
        Ok((placement, report)) => ways.push(context.way(How::Anew, &new, placement, report.proved)),
        Err(error) if ways.is_empty() => return Err(error.into()),
        Err(_) => {}
    }
    let best = ways.iter().filter(|way| way.proved).map(|way| way.value_ms).fold(f64::INFINITY, f64::min);
    for way in &mut ways {
        way.proved |= way.value_ms <= best;
    }
    ways.sort_by(|a, b| a.total_ms.total_cmp(&b.total_ms));
    Ok(ways)
}

/// Single devices and what each holds.
struct Fleet {
    devices: Vec<Option<Group>>,
    holds: Vec<BTreeSet<usize>>,
    /// For each part of the running plan, its devices.
    parts: Vec<Vec<usize>>,
}

impl Fleet {
    fn of(devices: &Devices, running: &Placement) -> Self {
        let single = devices
            .groups
            .iter()
            .flat_map(|group| std::iter::repeat_n(Some(Group { count: 1, ..*group }), group.count));
        let single: Vec<Option<Group>> = single.collect();
        let mut next = Vec::new();
        let mut first = 0;
        for group in &devices.groups {
            next.push(first);
            first += group.count;
        }
        let mut holds = vec![BTreeSet::new(); single.len()];
        let mut parts = Vec::new();
        for part in &running.parts {
            let range = next[part.group]..next[part.group] + part.replicas;
            next[part.group] = range.end;
            for device in range.clone() {
                holds[device] = part.operators.iter().copied().collect();
            }
            parts.push(range.collect());
        }
        Self { devices: single, holds, parts }
    }

    /// The same fleet after all changes; every change that cannot be made is told.
    fn changed(&self, changes: &[(usize, Change)]) -> Result<Self, ReplanError> {
        let mut devices = self.devices.clone();
        let mut faults = Vec::new();
        for &(number, change) in changes {
            if let Change::Added(group) = change {
                devices.push(Some(Group { count: 1, ..group }));
                continue;
            }
            match devices.get_mut(number) {
                None => faults.push(format!("there is no device {number}, only {}", self.devices.len())),
                Some(device) => match (device.as_mut(), change) {
                    (None, _) => faults.push(format!("device {number} is lost already")),
                    (Some(_), Change::Lost) => *device = None,
                    (Some(device), Change::Speed(speed)) if speed.is_finite() && speed > 0.0 => {
                        device.speed = speed;
                    }
                    (Some(_), Change::Speed(speed)) => {
                        faults
                            .push(format!("device {number} cannot have speed {speed}; say that it is lost"));
                    }
                    (Some(device), Change::Memory(bytes)) => device.memory_bytes = Some(bytes),
                    (Some(_), Change::Added(_)) => {}
                },
            }
        }
        if !faults.is_empty() {
            return Err(ReplanError::Changes(faults));
        }
        let mut holds = self.holds.clone();
        holds.resize(devices.len(), BTreeSet::new());
        for (holds, device) in holds.iter_mut().zip(&devices) {
            if device.is_none() {
                holds.clear();
            }
        }
        Ok(Self { devices, holds, parts: self.parts.clone() })
    }

    /// Different devices, in the order in which they occur, and the numbers of those that are equal.
    fn groups(&self) -> Vec<(Group, Vec<usize>)> {
        let mut groups: Vec<(Group, Vec<usize>)> = Vec::new();
        for (number, device) in self.devices.iter().enumerate() {
            let Some(device) = device else { continue };
            match groups.iter_mut().find(|(known, _)| known == device) {
                Some((_, numbers)) => numbers.push(number),
                None => groups.push((*device, vec![number])),
            }
        }
        groups
    }

    fn devices(&self, exchange_bytes_per_second: Option<f64>) -> Devices {
        let group = |(group, numbers): (Group, Vec<usize>)| Group { count: numbers.len(), ..group };
        Devices { groups: self.groups().into_iter().map(group).collect(), exchange_bytes_per_second }
    }
}

struct Context<'a> {
    graph: &'a OperatorGraph,
    communication: Communication,
    moving: Moving,
    exchange: Option<f64>,
}

impl Context<'_> {
    /// The running plan on the devices as they are now, if it is possible.
    fn keep(&self, fleet: &Fleet) -> Option<Way> {
        let groups = fleet.groups();
        let mut parts = Vec::new();
        for devices in &fleet.parts {
            let group_of = |device: &usize| groups.iter().position(|(_, numbers)| numbers.contains(device));
            let group = group_of(devices.first()?)?;
            if devices.iter().any(|device| group_of(device) != Some(group)) {
                return None;
            }
            let operators = fleet.holds[*devices.first()?].iter().copied().collect();
            parts.push(Part { group, replicas: devices.len(), operators });
        }
        let devices = fleet.devices(self.exchange);
        let placement = Placement { parts };
        let verdict = judge(self.graph, &devices, self.communication, &placement);
        verdict
            .faults
            .is_empty()
            .then(|| self.measured(How::Keep, fleet, devices, placement, fleet.parts.clone(), false))
    }

    /// A new placement, its parts matched to devices so that as much as possible stays.
    fn way(&self, how: How, fleet: &Fleet, placement: Placement, proved: bool) -> Way {
        let devices = fleet.devices(self.exchange);
        let mut device_of = vec![Vec::new(); placement.parts.len()];
        for (group, (_, numbers)) in fleet.groups().into_iter().enumerate() {
            // One seat a replica.
            let seats: Vec<usize> = (0..placement.parts.len())
                .filter(|&part| placement.parts[part].group == group)
                .flat_map(|part| std::iter::repeat_n(part, placement.parts[part].replicas))
                .collect();
            let stays = |seat: usize, device: usize| {
                let operators = placement.parts[seats[seat]].operators.iter();
                self.bytes(operators.filter(|operator| fleet.holds[numbers[device]].contains(operator)))
            };
            for (seat, device) in matching::best(seats.len(), numbers.len(), stays).into_iter().enumerate() {
                device_of[seats[seat]].push(numbers[device]);
            }
        }
        self.measured(how, fleet, devices, placement, device_of, proved)
    }

    fn measured(
        &self,
        how: How,
        fleet: &Fleet,
        devices: Devices,
        placement: Placement,
        device_of: Vec<Vec<usize>>,
        proved: bool,
    ) -> Way {
        let value_ms = judge(self.graph, &devices, self.communication, &placement).value_ms;
        let mut moved_bytes = 0u64;
        let mut most = 0u64;
        for (part, devices) in placement.parts.iter().zip(&device_of) {
            for &device in devices {
                let new = part.operators.iter().filter(|operator| !fleet.holds[device].contains(operator));
                let bytes = self.bytes(new);
                moved_bytes = moved_bytes.saturating_add(bytes);
                most = most.max(bytes);
            }
        }
        let moving_ms = most as f64 / self.moving.bytes_per_second * 1e3;
        let total_ms = moving_ms + value_ms * self.moving.samples;
        Way { how, devices, placement, device_of, value_ms, proved, moved_bytes, moving_ms, total_ms }
    }

    fn bytes<'b>(&self, operators: impl Iterator<Item = &'b usize>) -> u64 {
        operators
            .fold(0, |sum, &operator| sum.saturating_add(self.graph.operators()[operator].resident_bytes))
    }
}
