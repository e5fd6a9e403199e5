//! The devices that a placement may use: groups of equal ones, and how they communicate.

use crate::operators::Kind;
use thiserror::Error;

/// Devices of one group, and replicas of one part, at most.
pub const GROUP_MAX: usize = 4_096;

/// Groups at most.
const GROUPS_MAX: usize = 64;

/// Equal devices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// What they are.
    pub kind: Kind,
    /// How many there are.
    pub count: usize,
    /// Memory of one; `None` is unlimited.
    pub memory_bytes: Option<u64>,
    /// How fast one computes, as a multiple of the device that the graph's times are for.
    pub speed: f64,
    /// How fast one exchanges data with the host, as a multiple of the link that the graph's transfer times are for.
    pub link: f64,
    /// The machine that they are in.
    pub machine: usize,
    /// How fast one exchanges data that other machines need or made, as a multiple of the same; matters only where there
    /// are several machines.
    pub across: f64,
}

impl Group {
    /// Accelerators as the graph's times have them.
    #[must_use]
    pub fn accelerators(count: usize, memory_bytes: u64) -> Self {
        Self {
            kind: Kind::Accelerator,
            count,
            memory_bytes: Some(memory_bytes),
            speed: 1.0,
            link: 1.0,
            machine: 0,
            across: 1.0,
        }
    }

    /// CPUs as the graph's times have them, with all the memory they want.
    #[must_use]
    pub fn cpus(count: usize) -> Self {
        Self { kind: Kind::Cpu, memory_bytes: None, ..Self::accelerators(count, 0) }
    }

    /// The time that `accelerator_ms` or `cpu_ms` becomes on one of these.
    pub(crate) fn time(&self, accelerator_ms: f64, cpu_ms: f64) -> f64 {
        match self.kind {
            Kind::Accelerator => accelerator_ms / self.speed,
            Kind::Cpu => cpu_ms / self.speed,
        }
    }

    /// Whether so many bytes fit one of these.
    pub(crate) fn fits(&self, bytes: u64) -> bool {
        self.memory_bytes.is_none_or(|memory| bytes <= memory)
    }
}

/// All devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Devices {
    /// Groups of equal devices.
    pub groups: Vec<Group>,
    /// Bytes a second at which replicas of a part exchange their gradients; `None`: no part is replicated.
    pub exchange_bytes_per_second: Option<f64>,
}

/// What is wrong with a description of devices.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum DeviceFault {
    /// There is no device.
    #[error("there is no device; ask for an accelerator or a cpu")]
    None,
    /// More groups than are planned for.
    #[error("{found} groups of devices, at most {GROUPS_MAX} are planned for")]
    Groups {
        /// How many there are.
        found: usize,
    },
    /// More devices than are planned for.
    #[error("group {group} has {found} devices, at most {GROUP_MAX} are planned for")]
    Count {
        /// The group.
        group: usize,
        /// How many there are.
        found: usize,
    },
    /// A speed is not positive and finite.
    #[error("group {group} has {what} {value}; it is a positive number")]
    Speed {
        /// The group.
        group: usize,
        /// Which speed.
        what: &'static str,
        /// Its value.
        value: f64,
    },
    /// Replicas on several machines.
    #[error(
        "parts are not replicated over machines with links of their own; leave out the exchange speed, or plan a pipeline"
    )]
    ReplicatedMachines,
    /// A planner that knows one link only.
    #[error(
        "islands, and the time of one sample, are planned with one link; leave out the machines, or ask for contiguous parts"
    )]
    OneLink,
    /// Replicas could not exchange anything.
    #[error("replicas exchange {value} bytes a second; give a positive number")]
    Exchange {
        /// The speed.
        value: f64,
    },
}

impl Devices {
    /// Equal accelerators (group 0) and equal CPUs (group 1), without replication.
    #[must_use]
    pub fn uniform(accelerators: usize, cpus: usize, memory_bytes: u64) -> Self {
        Self {
            groups: vec![Group::accelerators(accelerators, memory_bytes), Group::cpus(cpus)],
            exchange_bytes_per_second: None,
        }
    }

    /// These devices in each of so many machines; between machines the link is `across` times as fast as within one.
    #[must_use]
    pub fn on_machines(&self, machines: usize, across: f64) -> Self {
        let machine = |machine| {
            let group = move |group: &Group| Group { machine, across: group.link * across, ..*group };
            self.groups.iter().map(group)
        };
        let groups = (0..machines.min(GROUPS_MAX + 1)).flat_map(machine).collect();
        Self { groups, exchange_bytes_per_second: self.exchange_bytes_per_second }
    }

    /// Whether there are several machines, and it matters which of them a part is on.
    #[must_use]
    pub fn hierarchical(&self) -> bool {
        let mut used = self.groups.iter().filter(|group| group.count > 0);
        let first = used.next().map(|group| group.machine);
        used.any(|group| Some(group.machine) != first)
            && self.groups.iter().any(|group| group.kind == Kind::Accelerator && group.across != group.link)
    }

    /// How many devices there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.groups.iter().map(|group| group.count).sum()
    }

    /// Everything wrong with the description.
    #[must_use]
    pub fn faults(&self) -> Vec<DeviceFault> {
        let mut faults = Vec::new();
        if self.count() == 0 {
            faults.push(DeviceFault::None);
        }
        if self.groups.len() > GROUPS_MAX {
            faults.push(DeviceFault::Groups { found: self.groups.len() });
        }
        let positive = |value: f64| value.is_finite() && value > 0.0;
        for (number, group) in self.groups.iter().enumerate() {
            if group.count > GROUP_MAX {
                faults.push(DeviceFault::Count { group: number, found: group.count });
            }
            for (what, value) in
                [("speed", group.speed), ("link speed", group.link), ("speed across machines", group.across)]
            {
                if !positive(value) {
                    faults.push(DeviceFault::Speed { group: number, what, value });
                }
            }
        }
        if self.hierarchical() && self.exchange_bytes_per_second.is_some() {
            faults.push(DeviceFault::ReplicatedMachines);
        }
        if let Some(value) = self.exchange_bytes_per_second.filter(|value| !positive(*value)) {
            faults.push(DeviceFault::Exchange { value });
        }
        faults
    }

    /// Replicas that a part may have in a group.
    pub(crate) fn replicas_max(&self, group: usize) -> usize {
        match self.exchange_bytes_per_second {
            Some(_) => self.groups[group].count,
            None => self.groups[group].count.min(1),
        }
    }

    /// The load of one device of `group` that runs a part, or shares it with others.
    pub(crate) fn load(&self, group: usize, communication: Communication, part: PartCost) -> f64 {
        let kind = self.groups[group].kind;
        let transfer_ms = match kind {
            Kind::Accelerator => part.transfer_ms / self.groups[group].link,
            Kind::Cpu => 0.0,
        };
        let compute_ms = self.groups[group].time(part.accelerator_ms, part.cpu_ms);
        let ring_ms = self.ring_ms(part.replicas, part.exchanged_bytes);
        communication.load(compute_ms, transfer_ms + ring_ms) / part.replicas as f64
    }

    /// What one replica takes to exchange gradients with the others, all in a ring.
    pub(crate) fn ring_ms(&self, replicas: usize, bytes: f64) -> f64 {
        match self.exchange_bytes_per_second {
            Some(speed) if replicas > 1 => {
                2.0 * (replicas - 1) as f64 / replicas as f64 * bytes / speed * 1e3
            }
            _ => 0.0,
        }
    }
}

/// What a part costs before it meets a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartCost {
    pub accelerator_ms: f64,
    pub cpu_ms: f64,
    pub transfer_ms: f64,
    /// Bytes of gradients that replicas exchange.
    pub exchanged_bytes: f64,
    pub replicas: usize,
}

/// How an accelerator's transfers and its computing share time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Communication {
    /// One after the other: a device's load is their sum.
    #[default]
    Serial,
    /// At the same time: a device's load is the greater of them.
    Overlapped,
}

impl Communication {
    /// The load of an accelerator that computes and transfers so long.
    pub(crate) fn load(self, compute_ms: f64, transfer_ms: f64) -> f64 {
        match self {
            Self::Serial => compute_ms + transfer_ms,
            Self::Overlapped => compute_ms.max(transfer_ms),
        }
    }
}
