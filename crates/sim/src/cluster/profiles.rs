//! How fast models are by CPUs and memory beside a GPU: Synergy's measured tables (OSDI'22), and what optimistic profiling
//! finds of them.
//!
//! ```text
//! table, measured ──▶ truth: the largest point within what a job holds
//!        └▶ a few CPU counts with all memory, and how much of the data a cache holds ──▶ belief: demands, points for OPT
//! ```

use sched::cluster::minio::{Measured, optimistic};
use serde::Deserialize;
use std::collections::BTreeMap;
use vocab::Bytes;

/// CPUs and memory on each GPU, and the speed there over that on an even part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// CPUs in thousandths.
    pub cpu_milli: u64,
    /// Bytes.
    pub memory: u64,
    /// Speed in thousandths of that on an even part.
    pub speed_milli: u32,
}

impl Point {
    /// Whether it needs no more than `(cpu_milli, memory)`.
    pub(super) const fn within(&self, share: (u64, u64)) -> bool {
        self.cpu_milli <= share.0 && self.memory <= share.1
    }

    /// The fastest is largest; of equals the one that needs least.
    pub(super) const fn key(&self) -> (u32, std::cmp::Reverse<(u64, u64)>) {
        (self.speed_milli, std::cmp::Reverse((self.cpu_milli, self.memory)))
    }
}

/// Tables of models.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profiles(BTreeMap<String, Profile>);

/// One model's table, and what is believed of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Profile {
    truth: Vec<Point>,
    belief: Vec<Point>,
    /// Those of the belief that are worth asking for.
    choices: Vec<Point>,
    demand: (u64, u64),
    /// CPU counts that were measured.
    measured: usize,
}

/// Why tables cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ProfilesError {
    /// Not JSON of this form.
    #[error("the profiles are not JSON of Synergy's tables")]
    Json(#[from] serde_json::Error),
    /// Tables that do not have a row for each CPU count and a column for each amount of memory, or numbers out of range.
    #[error("the tables of {} are not as large as their axes, or hold speeds that are none", .0.join(", "))]
    Tables(Vec<String>),
}

#[derive(Deserialize)]
struct File {
    cpu_per_gpu_axis: Vec<u32>,
    mem_per_gpu_gb_axis: Vec<f64>,
    sets: BTreeMap<String, Server>,
}

#[derive(Deserialize)]
struct Server {
    models: BTreeMap<String, Table>,
}

#[derive(Deserialize)]
struct Table {
    tput_norm: Vec<Vec<f64>>,
}

/// Percent of the best speed that a demand may miss: what is too little to be measured (a tenth, as there) is too little to
/// be asked for, or CPUs that nobody measured would be taken from others.
const TOLERANCE_PERCENT: u64 = 10;

impl Profiles {
    /// Reads the tables of the one-GPU models on servers of 3 CPUs a GPU.
    ///
    /// # Errors
    /// When it is no such JSON, or naming every model whose table is malformed.
    pub fn parse(text: &str) -> Result<Self, ProfilesError> {
        let file: File = serde_json::from_str(text)?;
        let memories: Vec<Bytes> = file.mem_per_gpu_gb_axis.iter().map(|gb| gigabytes(*gb)).collect();
        let (mut profiles, mut bad) = (BTreeMap::new(), Vec::new());
        let models =
            file.sets.into_iter().filter(|(name, _)| name == "models").flat_map(|(_, set)| set.models);
        for (name, table) in models {
            let Some(name) = name.strip_suffix("_1") else { continue };
            match Profile::of(&file.cpu_per_gpu_axis, &memories, &table.tput_norm) {
                Some(profile) => drop(profiles.insert(name.to_owned(), profile)),
                None => bad.push(name.to_owned()),
            }
        }
        if bad.is_empty() { Ok(Self(profiles)) } else { Err(ProfilesError::Tables(bad)) }
    }

    /// The speed of `model` with so much on each GPU, in millionths of that on an even part; nothing for unknown models.
    pub(super) fn speed_micro(&self, model: &str, share: (u64, u64)) -> Option<u64> {
        let points = self.0.get(model)?.truth.iter().filter(|point| point.within(share));
        Some(points.map(|point| u64::from(point.speed_milli) * 1_000).max().unwrap_or(0))
    }

    /// What `model` is believed to need on each GPU to be as fast as it can: CPUs in thousandths, bytes. No less than the
    /// `even` part where one more measurement shows that it would be slower with what it is believed to need of that.
    pub(super) fn demand(&self, model: &str, even: (u64, u64)) -> Option<(u64, u64)> {
        let (cpu, memory) = self.0.get(model)?.demand;
        let modest = (cpu.min(even.0), memory.min(even.1));
        let slower = self.speed_micro(model, modest) < self.speed_micro(model, even);
        Some(if slower { (cpu.max(even.0), memory.max(even.1)) } else { (cpu, memory) })
    }

    /// Points that `model` is believed to have, none of which needs more than another that is as fast, but for what is too
    /// little to be asked for.
    pub(super) fn points(&self, model: &str) -> Option<&[Point]> {
        self.0.get(model).map(|profile| &profile.choices[..])
    }

    /// For each model: CPU counts measured, of how many points; and the largest error of the belief, in percent of the
    /// truth, over points with at least the least memory a GPU's even part is made of.
    #[must_use]
    pub fn errors(&self, even: Bytes) -> Vec<(&str, usize, usize, f64)> {
        let error = |profile: &Profile| {
            let known = |truth: &Point| {
                let share = (truth.cpu_milli, truth.memory);
                let within = profile.belief.iter().filter(|point| point.within(share));
                let believed = within.map(|point| point.speed_milli).max().unwrap_or(0);
                f64::from(believed.abs_diff(truth.speed_milli)) / f64::from(truth.speed_milli.max(1)) * 100.0
            };
            profile.truth.iter().filter(|point| point.memory >= even.0).map(known).fold(0.0, f64::max)
        };
        let row = |(name, profile)| {
            let profile: &Profile = profile;
            (String::as_str(name), profile.measured, profile.truth.len(), error(profile))
        };
        self.0.iter().map(row).collect()
    }
}

impl Profile {
    fn of(cpus: &[u32], memories: &[Bytes], table: &[Vec<f64>]) -> Option<Self> {
        let fits = table.len() == cpus.len() && table.iter().all(|row| row.len() == memories.len());
        let fine = table.iter().flatten().all(|speed| (0.0..1e6).contains(speed));
        if !fits || !fine || cpus.is_empty() || memories.is_empty() {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked to be within 0 and 10^6"
        )]
        let milli = |cpu: usize, memory: usize| (table[cpu][memory] * 1e3).round() as u32;
        let all = |from: usize, speed: &dyn Fn(usize, usize) -> u32| {
            let mut points = Vec::with_capacity(cpus.len() * memories.len());
            for (row, cpu) in cpus.iter().enumerate() {
                for (column, memory) in memories.iter().enumerate().skip(from) {
                    let cpu_milli = u64::from(*cpu) * 1_000;
                    points.push(Point { cpu_milli, memory: memory.0, speed_milli: speed(row, column) });
                }
            }
            points
        };
        let full = memories.len() - 1;
        let place = |cpu: u32| cpus.iter().position(|other| *other == cpu).unwrap_or(0);
        let by_cpu = optimistic(cpus, |cpu| u64::from(milli(place(cpu), full)));
        let measured = by_cpu.len();
        let (data, store) = cached(memories, &|memory| milli(cpus.len() - 1, memory));
        let known = Measured { by_cpu, data, item: ITEM, store };
        let believed = |cpu: usize, memory: usize| {
            u32::try_from(known.rate(cpus[cpu], memories[memory])).unwrap_or(u32::MAX)
        };
        // Where the least amount is slower than the next, it is too little for the job itself, and no cache.
        let from = usize::from(memories.len() > 1 && milli(cpus.len() - 1, 0) < milli(cpus.len() - 1, 1));
        let (cpu, memory) = known.demand(cpus, &memories[from..], TOLERANCE_PERCENT)?;
        let belief = pruned(all(from, &believed));
        Some(Self {
            truth: all(0, &milli),
            choices: choices(&belief),
            belief,
            demand: (u64::from(cpu) * 1_000, memory.0),
            measured,
        })
    }
}

/// Size of an item. Speeds are relative, so any will do that leaves the store's rate some digits.
const ITEM: Bytes = Bytes(1_000_000);

/// The size of the data and what the store gives that explain speeds with all CPUs: with a cache of `m` of the data `d`,
/// those are `store / (1 − m/d)` until something else decides. The file says neither, so both come from the two least
/// amounts of memory from the even part on.
fn cached(memories: &[Bytes], speed: &dyn Fn(usize) -> u32) -> (Bytes, Bytes) {
    let [_, low, high, ..] = memories else { return (Bytes(0), Bytes(0)) };
    let (slow, fast) = (f64::from(speed(1)), f64::from(speed(2)));
    if slow >= fast || slow == 0.0 {
        return (Bytes(0), Bytes(0));
    }
    // slow · (1 − low/d) = fast · (1 − high/d)
    let data = (fast * high.0 as f64 - slow * low.0 as f64) / (fast - slow);
    let store = slow * (1.0 - low.0 as f64 / data);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "both are positive and of the file's size"
    )]
    let whole = |number: f64| Bytes(number.max(0.0).round() as u64);
    (whole(data), whole(store * ITEM.0 as f64 / 1e3))
}

/// The points that are faster than all that need no more.
fn pruned(points: Vec<Point>) -> Vec<Point> {
    let better = |point: &Point, other: &Point| {
        other.within((point.cpu_milli, point.memory)) && other.key() > point.key()
    };
    let kept = |point: &&Point| point.speed_milli > 0 && !points.iter().any(|other| better(point, other));
    points.iter().filter(kept).copied().collect()
}

/// The points that are faster than each before them that needs no more by what is worth asking for.
fn choices(points: &[Point]) -> Vec<Point> {
    let close = |point: &Point, other: &Point| {
        let enough = u64::from(point.speed_milli) * (100 - TOLERANCE_PERCENT);
        other.within((point.cpu_milli, point.memory)) && u64::from(other.speed_milli) * 100 >= enough
    };
    let mut choices: Vec<Point> = Vec::with_capacity(points.len());
    for point in points {
        if !choices.iter().any(|other| close(point, other)) {
            choices.push(*point);
        }
    }
    choices
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the size of a server's memory")]
fn gigabytes(number: f64) -> Bytes {
    Bytes((number.clamp(0.0, 1e9) * 1e9).round() as u64)
}
