//! Scenarios of a device that is shared in parts: its grid, constraints between tenants, slow-downs of neighbours.

use super::{BatchEntry, ModelEntry, Scenario};
use crate::slowdowns::{Slowdown, Slowdowns};
use sched::World as _;
use sched::node::{BucketCost, Event, NodeWorld, Part, PartCost, PartCosts, Rule};
use serde::{Deserialize, Serialize};
use vocab::{ModelId, PartitionId, Profile, Span, Time};

/// A device shared in parts.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpaceEntry {
    /// Units of the device: streaming multiprocessors, cores.
    pub units: u32,
    /// Runs that a unit may bear at once.
    #[serde(default = "one_run")]
    pub overlap: u32,
    /// Every contiguous range of multiples of so many units is a part, and the whole device; besides `parts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grid: Option<u32>,
    /// The parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartEntry>,
}

const fn one_run() -> u32 {
    1
}

/// One or several equal parts.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartEntry {
    /// The first unit; a part without one takes units wherever they are free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<u32>,
    /// Its units.
    pub units: u32,
    /// How many partitions are this part: streams of one context.
    #[serde(default = "one_part", skip_serializing_if = "is_one_part")]
    pub count: u16,
}

const fn one_part() -> u16 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_one_part(count: &u16) -> bool {
    *count == 1
}

/// A constraint between tenants.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum RuleEntry {
    /// These two never run at the same time.
    Apart([String; 2]),
    /// This one always finds a part of so many units.
    Floor {
        /// The model.
        model: String,
        /// Units.
        units: u32,
    },
}

/// How much longer a model's runs take beside another's: on disjoint parts, or on the same units.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowdownEntry {
    /// The model.
    pub model: String,
    /// Its neighbour.
    pub beside: String,
    /// Times longer; 1 is not at all. On the same units 2 is an even share.
    pub times: f64,
    /// On the same units; where no entry says what that costs, units are shared evenly.
    #[serde(default, skip_serializing_if = "is_apart")]
    pub shared: bool,
    /// Rows of the model's runs; of several entries for a pair the one nearest in rows counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u32>,
    /// Rows of its neighbour's runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside_rows: Option<u32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_apart(shared: &bool) -> bool {
    !*shared
}

/// Costs of a model on a part of the device.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPart {
    /// Units of the part.
    pub units: u32,
    /// Costs; the same rows as the model's batches.
    pub batches: Vec<BatchEntry>,
}

/// Parts of one device, more than any grid needs.
const PARTS_MAX: usize = 4_096;

impl SpaceEntry {
    /// Its partitions: the largest first, so that who takes the first idle one takes most.
    pub(crate) fn partitions(&self) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        for entry in &self.parts {
            let part = Part { first: entry.first, units: entry.units };
            parts.extend(std::iter::repeat_n(part, usize::from(entry.count)));
        }
        if let Some(step) = self.grid.filter(|step| *step > 0) {
            parts.push(Part { first: Some(0), units: self.units });
            let atoms = self.units / step;
            for length in 1..=atoms.min(4_096) {
                for first in 0..=atoms - length {
                    let part = Part { first: Some(first * step), units: length * step };
                    if part.units < self.units && parts.len() <= PARTS_MAX {
                        parts.push(part);
                    }
                }
            }
        }
        parts.sort_by_key(|part| std::cmp::Reverse(part.units));
        parts
    }

    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.units == 0 || self.units > 100_000 {
            faults.push(format!("space.units is {}; a device has 1 to 100,000", self.units));
            return faults;
        }
        if self.overlap == 0 {
            faults.push("space.overlap is 0; a unit bears at least one run".into());
        }
        for part in &self.parts {
            let end = u64::from(part.first.unwrap_or(0)) + u64::from(part.units);
            if part.units == 0 || part.count == 0 || end > u64::from(self.units) {
                let first = part.first.map_or_else(String::new, |first| format!(" from {first}"));
                faults.push(format!(
                    "space.parts: {} of {} units{first} are not parts of {} units",
                    part.count, part.units, self.units
                ));
            }
        }
        if let Some(step) = self.grid.filter(|step| *step == 0 || *step > self.units) {
            faults.push(format!("space.grid is {step}; between 1 and {} make sense", self.units));
            return faults;
        }
        match self.partitions().len() {
            0 => faults.push("space has no part; give space.grid or space.parts".into()),
            found if found > PARTS_MAX => faults.push(format!(
                "space has more than {PARTS_MAX} parts; take a coarser space.grid than {}",
                self.grid.unwrap_or(0)
            )),
            _ => {}
        }
        faults
    }
}

impl Scenario {
    /// Partitions there are.
    #[must_use]
    pub fn partition_count(&self) -> u16 {
        let parts = self.space.as_ref().map(|space| space.partitions().len());
        parts.map_or(self.partitions, |count| u16::try_from(count).unwrap_or(u16::MAX))
    }

    /// What the world is told of partitions.
    pub(crate) fn partition_events(&self) -> Vec<Event> {
        let Some(space) = &self.space else {
            let plain = |id| Event::PartitionAdded { partition: PartitionId(id), name: format!("p{id}") };
            return (0..self.partitions).map(plain).collect();
        };
        let parts: Vec<(PartitionId, Part)> = (0..).map(PartitionId).zip(space.partitions()).collect();
        let named = |(id, part): &(PartitionId, Part)| {
            let name = match part.first {
                Some(first) => format!("{id} units {first}-{}", first + part.units - 1),
                None => format!("{id} {} units", part.units),
            };
            Event::PartitionAdded { partition: *id, name }
        };
        let mut events: Vec<Event> = parts.iter().map(named).collect();
        events.push(Event::PartsShared { units: space.units, overlap: space.overlap, parts });
        events
    }

    /// What the world is told of constraints.
    pub(crate) fn rule_events(&self) -> Option<Event> {
        let id = |name: &String| self.model_id(name).expect("a checked rule names models there are");
        let rule = |entry: &RuleEntry| match entry {
            RuleEntry::Apart([a, b]) => Rule::Apart(id(a), id(b)),
            RuleEntry::Floor { model, units } => Rule::Floor { model: id(model), units: *units },
        };
        (!self.rules.is_empty()).then(|| Event::RulesSet { rules: self.rules.iter().map(rule).collect() })
    }

    fn model_id(&self, name: &str) -> Option<ModelId> {
        let place = self.models.iter().position(|model| model.name == name)?;
        u32::try_from(place).ok().map(ModelId)
    }

    /// How much longer runs of a model take beside another's.
    pub(crate) fn slowdowns(&self) -> Slowdowns {
        let mut table = Slowdowns::default();
        for entry in &self.slowdowns {
            let SlowdownEntry { times, shared, rows, beside_rows, .. } = *entry;
            if let Some(pair) = self.model_id(&entry.model).zip(self.model_id(&entry.beside)) {
                table.add(pair, Slowdown { shared, rows, beside_rows, times });
            }
        }
        table
    }

    pub(super) fn space_faults(&self) -> Vec<String> {
        let mut faults: Vec<String> = self.space.iter().flat_map(SpaceEntry::faults).collect();
        let mut known = |what: &str, name: &String| {
            if self.model_id(name).is_none() {
                faults.push(format!("{what}: no model is called {name:?}"));
            }
        };
        for rule in &self.rules {
            match rule {
                RuleEntry::Apart(pair) => pair.iter().for_each(|name| known("rules", name)),
                RuleEntry::Floor { model, .. } => known("rules", model),
            }
        }
        for entry in &self.slowdowns {
            known("slowdowns", &entry.model);
            known("slowdowns", &entry.beside);
        }
        let largest = self.space.iter().flat_map(SpaceEntry::partitions).map(|part| part.units).max();
        for rule in &self.rules {
            if let RuleEntry::Floor { model, units } = rule
                && largest.is_none_or(|largest| *units > largest)
            {
                let largest = largest.unwrap_or(0);
                faults.push(format!(
                    "rules: a floor of {units} units for {model:?} cannot be kept, the largest part has {largest}"
                ));
            }
        }
        if faults.is_empty() && !self.rules.is_empty() {
            faults.extend(self.rule_faults());
        }
        for entry in &self.slowdowns {
            if !(entry.times.is_finite() && entry.times >= 1.0) {
                faults.push(format!(
                    "slowdowns: {:?} beside {:?} takes {} times as long; 1 and more make sense",
                    entry.model, entry.beside, entry.times
                ));
            }
            if entry.rows == Some(0) || entry.beside_rows == Some(0) {
                faults.push(format!(
                    "slowdowns: {:?} beside {:?} names runs of no rows; 1 and more make sense",
                    entry.model, entry.beside
                ));
            }
        }
        faults
    }
}

impl Scenario {
    /// Models that constraints keep from every part even of an empty device.
    fn rule_faults(&self) -> Vec<String> {
        let mut world = NodeWorld::new();
        for event in self.partition_events().into_iter().chain(self.rule_events()) {
            world.apply(Time::ZERO, &event);
        }
        let shut_out = |(id, model): (u32, &ModelEntry)| {
            let open = world.partitions().any(|(at, _)| world.space().is_open(ModelId(id), at));
            let name = &model.name;
            (!open).then(|| format!("rules: the floors of others leave {name:?} no part; add smaller parts"))
        };
        (0..).zip(&self.models).filter_map(shut_out).collect()
    }
}

impl ModelEntry {
    /// Costs on parts of the device.
    pub(super) fn part_costs(&self, units: u32) -> PartCosts {
        let bucket = |batch: &BatchEntry| BucketCost {
            rows: batch.rows,
            segments: batch.segments_us.iter().map(|us| Span::from_us(*us)).collect(),
        };
        let part = |part: &ModelPart| PartCost {
            units: part.units,
            costs: part.batches.iter().map(bucket).collect(),
        };
        PartCosts { units, parts: self.parts.iter().map(part).collect() }
    }

    pub(super) fn take_parts(&mut self, profile: &Profile) {
        let shares = profile.spatial.iter().flat_map(|spatial| &spatial.shares);
        if self.parts.is_empty() {
            let part = |share: &vocab::ShareProfile| ModelPart {
                units: share.units,
                batches: super::entries(&share.batches),
            };
            self.parts = shares.map(part).collect();
        }
    }

    pub(super) fn part_faults(&self, units: Option<u32>) -> Vec<String> {
        let name = &self.name;
        let mut faults = Vec::new();
        if !self.parts.windows(2).all(|pair| pair[0].units < pair[1].units) {
            faults.push(format!("parts of {name:?} must ascend by units"));
        }
        for part in &self.parts {
            if part.units == 0 || units.is_some_and(|units| part.units >= units) {
                faults.push(format!(
                    "a part of {name:?} has {} units; between 1 and less than the whole device make sense",
                    part.units
                ));
            }
            let shape = |batches: &[BatchEntry]| -> Vec<(u32, usize)> {
                batches.iter().map(|batch| (batch.rows, batch.segments_us.len())).collect()
            };
            if shape(&part.batches) != shape(&self.batches) {
                faults.push(format!(
                    "the part of {} units of {name:?} lists other rows or segments than its batches",
                    part.units
                ));
            }
        }
        faults
    }
}
