//! Placements as this program writes and reads them: the plan, the devices it is for, and what is known about it.

use super::{FormatError, check_faults, check_length};
use crate::operators::{Kind, OperatorGraph};
use crate::place::{Binding, Communication, Devices, Group, Part, Placement, Report, judge};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A placement with its report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacementDocument {
    /// The devices.
    pub devices: Vec<GroupDocument>,
    /// Bytes a second at which replicas exchange gradients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange_bytes_per_second: Option<f64>,
    /// Whether transfers and computing overlap.
    pub overlapped: bool,
    /// The greatest load, in milliseconds a sample.
    pub value_ms: f64,
    /// What is proved that no such placement is below.
    pub lower_ms: f64,
    /// How far the value is above that, as a part of the value.
    pub gap: f64,
    /// Whether the value is proved to be the least.
    pub proved: bool,
    /// What holds the value up, in words.
    pub binding: String,
    /// What each device in use does.
    pub parts: Vec<PartDocument>,
}

/// Equal devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupDocument {
    /// `accelerator` or `cpu`.
    pub kind: KindName,
    /// How many.
    pub count: usize,
    /// Memory of one; missing when unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Computing speed, as a multiple of what the graph's times are for.
    pub speed: f64,
    /// Link speed, as a multiple of what the graph's transfer times are for.
    pub link: f64,
    /// The machine that they are in.
    #[serde(default, skip_serializing_if = "is_first")]
    pub machine: usize,
    /// Speed of the link to other machines, as a multiple of the same; missing where it is the link's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub across: Option<f64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_first(machine: &usize) -> bool {
    *machine == 0
}

/// A kind of device, as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KindName {
    /// An accelerator.
    Accelerator,
    /// A CPU.
    Cpu,
}

/// One part and its costs. Costs are for readers: the judge works them out anew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartDocument {
    /// The place of its devices in `devices`.
    pub group: usize,
    /// Devices that share it.
    pub replicas: usize,
    /// Computing, milliseconds a sample.
    pub compute_ms: f64,
    /// Transfers, milliseconds a sample.
    pub transfer_ms: f64,
    /// Load of each of its devices, milliseconds a sample.
    pub load_ms: f64,
    /// Bytes kept by each of its devices.
    pub resident_bytes: u64,
    /// Whether no forward path leaves it and returns.
    pub contiguous: bool,
    /// Ids of its operators, ascending.
    pub operators: Vec<u64>,
}

impl PlacementDocument {
    /// The document of a placement.
    #[must_use]
    pub fn new(
        graph: &OperatorGraph,
        devices: &Devices,
        communication: Communication,
        placement: &Placement,
        report: &Report,
    ) -> Self {
        let verdict = judge(graph, devices, communication, placement);
        let parts = placement.parts.iter().zip(&verdict.parts).map(|(part, score)| PartDocument {
            group: part.group,
            replicas: part.replicas,
            compute_ms: score.compute_ms,
            transfer_ms: score.transfer_ms,
            load_ms: score.load_ms,
            resident_bytes: score.resident_bytes,
            contiguous: score.contiguous,
            operators: ids(graph, &part.operators),
        });
        Self {
            devices: devices.groups.iter().map(GroupDocument::of).collect(),
            exchange_bytes_per_second: devices.exchange_bytes_per_second,
            overlapped: communication == Communication::Overlapped,
            value_ms: report.value_ms,
            lower_ms: report.lower_ms,
            gap: report.gap(),
            proved: report.proved,
            binding: words(report.binding),
            parts: parts.collect(),
        }
    }

    /// The devices it is for.
    #[must_use]
    pub fn devices(&self) -> Devices {
        Devices {
            groups: self.devices.iter().map(GroupDocument::group).collect(),
            exchange_bytes_per_second: self.exchange_bytes_per_second,
        }
    }

    /// How transfers and computing share time.
    #[must_use]
    pub const fn communication(&self) -> Communication {
        if self.overlapped { Communication::Overlapped } else { Communication::Serial }
    }

    /// The placement, of `graph`.
    ///
    /// # Errors
    ///
    /// Every id that the graph does not have. Whether the placement is possible is for the judge to say.
    pub fn placement(&self, graph: &OperatorGraph) -> Result<Placement, FormatError> {
        let places: BTreeMap<u64, usize> =
            graph.operators().iter().enumerate().map(|(place, operator)| (operator.id, place)).collect();
        let mut faults = Vec::new();
        let mut parts = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let mut operators = Vec::with_capacity(part.operators.len());
            for id in &part.operators {
                match places.get(id) {
                    Some(&place) => operators.push(place),
                    None => faults.push(format!("operator {id} is not in the graph")),
                }
            }
            operators.sort_unstable();
            parts.push(Part { group: part.group, replicas: part.replicas, operators });
        }
        check_faults(faults)?;
        Ok(Placement { parts })
    }
}

impl GroupDocument {
    /// As written.
    #[must_use]
    pub fn of(group: &Group) -> Self {
        Self {
            kind: match group.kind {
                Kind::Accelerator => KindName::Accelerator,
                Kind::Cpu => KindName::Cpu,
            },
            count: group.count,
            memory_bytes: group.memory_bytes,
            speed: group.speed,
            link: group.link,
            machine: group.machine,
            across: (group.across != group.link).then_some(group.across),
        }
    }

    /// As meant.
    #[must_use]
    pub fn group(&self) -> Group {
        Group {
            kind: match self.kind {
                KindName::Accelerator => Kind::Accelerator,
                KindName::Cpu => Kind::Cpu,
            },
            count: self.count,
            memory_bytes: self.memory_bytes,
            speed: self.speed,
            link: self.link,
            machine: self.machine,
            across: self.across.unwrap_or(self.link),
        }
    }
}

/// Reads a document: the whole file, or what a report holds under `placement`.
///
/// # Errors
///
/// A file that is too long or not of this shape.
pub fn read_document(text: &str) -> Result<PlacementDocument, FormatError> {
    #[derive(Deserialize)]
    struct Wrapped {
        placement: PlacementDocument,
    }
    check_length(text)?;
    let value: serde_json::Value = serde_json::from_str(text)?;
    if value.get("placement").is_some() {
        return Ok(Wrapped::deserialize(value)?.placement);
    }
    Ok(PlacementDocument::deserialize(value)?)
}

/// What holds a value up, in words.
#[must_use]
pub fn words(binding: Binding) -> String {
    match binding {
        Binding::Unit => {
            "one group of operators that must stay together is the whole load; no plan is better".to_owned()
        }
        Binding::Compute { part } => format!("computing on part {part}"),
        Binding::Transfers { part } => format!("transfers to and from part {part}"),
        Binding::Surroundings => {
            "one operator, with what it must exchange or take along, is the whole load; no plan is better"
                .to_owned()
        }
    }
}

fn ids(graph: &OperatorGraph, places: &[usize]) -> Vec<u64> {
    let mut ids: Vec<u64> = places.iter().map(|&place| graph.operators()[place].id).collect();
    ids.sort_unstable();
    ids
}
