//! Parts of devices: which units each partition is, how many runs a unit may bear, and which tenants may not share.
//!
//! ```text
//! units    0   1   2   3   4   5   6   7
//! p0       |---------------|
//! p1                       |---------------|      disjoint from p0
//! p2       |-------------------------------|      over both: overlap 2 lets it run beside them
//! p3       50 % of the units, wherever they are   (floating: an MPS percentage)
//! ```

use serde::{Deserialize, Serialize};
use vocab::{ModelId, PartitionId};

/// Which units of its device a partition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its first unit; without it the part is so many units wherever they are free, as an MPS percentage is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<u32>,
    /// How many units: streaming multiprocessors of a GPU, cores of a CPU.
    pub units: u32,
}

/// A constraint between tenants, which the world keeps whatever the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// Runs of these two never share a device at the same time.
    Apart(ModelId, ModelId),
    /// Others leave room for a run of `model` on a part of at least so many units.
    Floor {
        /// Whose room it is.
        model: ModelId,
        /// Its least part.
        units: u32,
    },
}

/// Why a run cannot begin on a partition though nobody holds it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpaceRefusal {
    /// Units of it bear as many runs as they may.
    #[error("{wanted} units of partition {partition} are not free: its device bears {overlap} run(s) a unit")]
    Overlap {
        /// The partition.
        partition: PartitionId,
        /// Its units.
        wanted: u32,
        /// Runs a unit may bear.
        overlap: u32,
    },
    /// A tenant that it must not share a device with is running.
    #[error("model {model} never runs beside model {beside}, which is running")]
    Apart {
        /// Who wants to run.
        model: ModelId,
        /// Who runs.
        beside: ModelId,
    },
    /// Another tenant would lose the part it was promised.
    #[error("model {owner} is promised a part of {units} units, and there would be none left")]
    Floor {
        /// Whose promise it is.
        owner: ModelId,
        /// Its least part.
        units: u32,
    },
}

/// Everything known about parts of devices. Without any, partitions are disjoint and each is a device's whole.
#[derive(Clone, Debug, Default)]
pub struct Space {
    devices: Vec<Shared>,
    /// By partition: the device's place and the part.
    places: Vec<Option<(usize, Part)>>,
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Shared {
    units: u32,
    overlap: u32,
    partitions: Vec<PartitionId>,
}

impl Space {
    /// Whether nothing has to be asked before a run begins on an idle partition.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        self.devices.is_empty() && self.rules.is_empty()
    }

    /// The part that a partition is; none when it is not a part of anything.
    #[must_use]
    pub fn part(&self, partition: PartitionId) -> Option<Part> {
        self.place(partition).map(|(_, part)| part)
    }

    /// Units of the device that a partition is a part of.
    #[must_use]
    pub fn device_units(&self, partition: PartitionId) -> Option<u32> {
        self.place(partition).map(|(device, _)| self.devices[device].units)
    }

    /// Units of a partition that is less than its whole device; none for a whole one.
    #[must_use]
    pub fn share(&self, partition: PartitionId) -> Option<u32> {
        let (device, part) = self.place(partition)?;
        (part.units < self.devices[device].units).then_some(part.units)
    }

    /// Partitions of the same device, itself among them.
    #[must_use]
    pub fn peers(&self, partition: PartitionId) -> &[PartitionId] {
        self.place(partition).map_or(&[], |(device, _)| &self.devices[device].partitions)
    }

    /// Whether a run on `from` may go on on `to`: its state lies on its device.
    #[must_use]
    pub fn reaches(&self, from: PartitionId, to: PartitionId) -> bool {
        from == to || self.peers(from).contains(&to)
    }

    /// Whether constraints leave `partition` to `model` on an empty device.
    #[must_use]
    pub fn is_open(&self, model: ModelId, partition: PartitionId) -> bool {
        self.rules.is_empty() || self.allows(model, partition, &[]).is_ok()
    }

    /// Constraints between tenants.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Whether two partitions never compute on the same unit at once. Floating parts are disjoint from others as long as
    /// all of them fit on the device.
    #[must_use]
    pub fn are_disjoint(&self, a: PartitionId, b: PartitionId) -> bool {
        match (self.place(a), self.place(b)) {
            (Some((first, one)), Some((second, other))) => first != second || !one.meets(other),
            _ => a != b,
        }
    }

    /// Whether a run of `model` may begin on `partition` beside the runs in `held`, of which none is on it.
    ///
    /// # Errors
    /// Who or what is in the way.
    pub fn allows(
        &self,
        model: ModelId,
        partition: PartitionId,
        held: &[(ModelId, PartitionId)],
    ) -> Result<(), SpaceRefusal> {
        if self.is_plain() {
            return Ok(());
        }
        let place = self.place(partition);
        let device = place.map(|(device, _)| device);
        let beside: Vec<(ModelId, PartitionId)> = held
            .iter()
            .copied()
            .filter(|(_, other)| self.place(*other).map(|(device, _)| device) == device)
            .collect();
        for rule in &self.rules {
            let Rule::Apart(a, b) = *rule else { continue };
            let enemy = if model == a {
                b
            } else if model == b {
                a
            } else {
                continue;
            };
            if beside.iter().any(|(other, _)| *other == enemy) {
                return Err(SpaceRefusal::Apart { model, beside: enemy });
            }
        }
        let Some((device, part)) = place else { return Ok(()) };
        let shared = &self.devices[device];
        let parts: Vec<Part> = beside.iter().filter_map(|(_, other)| self.part(*other)).collect();
        if !shared.bears(part, &parts) {
            let (wanted, overlap) = (part.units, shared.overlap);
            return Err(SpaceRefusal::Overlap { partition, wanted, overlap });
        }
        for rule in &self.rules {
            let Rule::Floor { model: owner, units } = *rule else { continue };
            if owner == model || self.keeps_floor(device, owner, units, part, &beside) {
                continue;
            }
            return Err(SpaceRefusal::Floor { owner, units });
        }
        Ok(())
    }

    /// Whether `owner` still finds a part of `units` beside others and one more run on `part`, or has one already.
    fn keeps_floor(
        &self,
        device: usize,
        owner: ModelId,
        units: u32,
        part: Part,
        beside: &[(ModelId, PartitionId)],
    ) -> bool {
        let mut others = vec![part];
        for (model, partition) in beside {
            let Some(held) = self.part(*partition) else { continue };
            if *model != owner {
                others.push(held);
            } else if held.units >= units {
                return true;
            }
        }
        let shared = &self.devices[device];
        let parts = shared.partitions.iter().filter_map(|partition| self.part(*partition));
        parts.filter(|part| part.units >= units).any(|part| shared.bears(part, &others))
    }

    /// Asserts that the runs in `held` may be where they are.
    ///
    /// # Panics
    /// When bookkeeping is broken, which is a bug of the world.
    pub(super) fn check(&self, held: &[(ModelId, PartitionId)]) {
        if self.is_plain() {
            return;
        }
        for (at, (model, partition)) in held.iter().enumerate() {
            let others: Vec<(ModelId, PartitionId)> =
                held.iter().enumerate().filter(|(place, _)| *place != at).map(|(_, other)| *other).collect();
            // Promised floors look ahead to who comes next; all else holds in any order.
            match self.allows(*model, *partition, &others) {
                Ok(()) | Err(SpaceRefusal::Floor { .. }) => {}
                Err(refusal) => panic!("model {model} on partition {partition}: {refusal}"),
            }
        }
    }

    fn place(&self, partition: PartitionId) -> Option<(usize, Part)> {
        self.places.get(usize::from(partition.0)).copied().flatten()
    }

    /// A device with `units` units has these parts; each unit bears up to `overlap` runs.
    pub(super) fn add(&mut self, units: u32, overlap: u32, parts: &[(PartitionId, Part)]) {
        let device = self.devices.len();
        for (partition, part) in parts {
            let place = usize::from(partition.0);
            if self.places.len() <= place {
                self.places.resize(place + 1, None);
            }
            self.places[place] = Some((device, *part));
        }
        let partitions = parts.iter().map(|(partition, _)| *partition).collect();
        self.devices.push(Shared { units, overlap: overlap.max(1), partitions });
    }

    pub(super) fn set_rules(&mut self, rules: &[Rule]) {
        self.rules = rules.to_vec();
    }
}

impl Part {
    fn range(self) -> Option<(u32, u32)> {
        self.first.map(|first| (first, first.saturating_add(self.units)))
    }

    /// Whether both are located and have a unit in common.
    fn meets(self, other: Self) -> bool {
        match (self.range(), other.range()) {
            (Some((begin, end)), Some((from, to))) => begin < to && from < end,
            _ => false,
        }
    }
}

impl Shared {
    /// Whether a run on `part` fits beside runs on `others`: floating parts by their sum, located ones unit by unit.
    fn bears(&self, part: Part, others: &[Part]) -> bool {
        let floating = part.first.is_none() || others.iter().any(|other| other.first.is_none());
        if floating {
            let sum: u64 = others.iter().map(|other| u64::from(other.units)).sum();
            return sum + u64::from(part.units) <= u64::from(self.units) * u64::from(self.overlap);
        }
        let near: Vec<(u32, u32)> =
            others.iter().filter(|other| part.meets(**other)).filter_map(|other| other.range()).collect();
        let (begin, end) = part.range().unwrap_or((0, 0));
        // Where most lie on a unit, one of them begins, or the part does.
        let points =
            near.iter().map(|(from, _)| *from).filter(|from| (begin..end).contains(from)).chain([begin]);
        points.into_iter().all(|at| {
            let on = near.iter().filter(|(from, to)| (*from..*to).contains(&at)).count();
            u32::try_from(on).is_ok_and(|on| on < self.overlap)
        })
    }
}
