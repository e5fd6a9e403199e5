//! Scenario files: what to simulate, in TOML. Every fault of a file is reported at once.

use sched::node::policy::Choice;
use sched::node::{BucketCost, ModelSpec, PartCosts, Promise, WeightGroup};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use vocab::{BatchProfile, Bytes, Class, ModelId, Profile, Span, Time};

mod space;

pub use space::{ModelPart, PartEntry, RuleEntry, SlowdownEntry, SpaceEntry};

/// What to simulate.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Policy by name, or a table with its parameters.
    #[serde(default)]
    pub policy: Option<PolicyEntry>,
    /// Seed of arrivals and noise.
    #[serde(default)]
    pub seed: u64,
    /// Arrivals stop after this; what is in flight finishes.
    pub duration_ms: u64,
    /// Partitions, each running one batch at a time.
    #[serde(default = "one")]
    pub partitions: u16,
    /// From a decision to the first instruction on the device, and from an edge to its report.
    #[serde(default)]
    pub launch_us: u64,
    /// The same as measured run by run, in the order they ended: each run takes one of these, in place of `launch_us`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub launches_us: Vec<u64>,
    /// Segments of a run that the device has at once: one told to stop lets those end first.
    #[serde(default = "single", skip_serializing_if = "is_one")]
    pub ahead: u32,
    /// Relative standard deviation of a run's time around the profile, for buckets without measured factors.
    #[serde(default)]
    pub noise: f64,
    /// Measured factors and launches that follow each other are drawn together in blocks of so many runs.
    #[serde(default = "single", skip_serializing_if = "is_one")]
    pub factor_block: u32,
    /// Memory of the devices and the link to them; without it every model is always at hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceEntry>,
    /// A device shared in parts, which are the partitions then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<SpaceEntry>,
    /// Constraints between tenants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleEntry>,
    /// What neighbours do to each other, on disjoint parts and on the same units.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slowdowns: Vec<SlowdownEntry>,
    /// The models.
    pub models: Vec<ModelEntry>,
    /// The loads.
    pub loads: Vec<Load>,
}

impl Default for Scenario {
    /// One partition, and nothing to do on it.
    fn default() -> Self {
        Self {
            policy: None,
            seed: 0,
            duration_ms: 0,
            partitions: one(),
            launch_us: 0,
            launches_us: Vec::new(),
            ahead: single(),
            noise: 0.0,
            factor_block: single(),
            device: None,
            space: None,
            rules: Vec::new(),
            slowdowns: Vec::new(),
            models: Vec::new(),
            loads: Vec::new(),
        }
    }
}

const fn one() -> u16 {
    1
}

const fn single() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_one(number: &u32) -> bool {
    *number == 1
}

/// Devices with memory of their own.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceEntry {
    /// Bytes each has for weights.
    pub memory_bytes: u64,
    /// How weights reach it; as the first profile with a link says, unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkEntry>,
    /// Time to give the memory of an evicted model back.
    #[serde(default)]
    pub evict_us: u64,
    /// How many devices share the partitions: number `p` is on device `p` modulo this.
    #[serde(default = "one")]
    pub count: u16,
}

/// A link to a device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkEntry {
    /// Time a transfer takes beside its bytes.
    pub latency_us: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
}

/// How a model's weights are cut into transfer groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Grouping {
    /// `"segments"`: each segment with weights on its own; `"whole"`: all in one.
    Named(GroupingName),
    /// After these segments, ascending; the last is the number of segments.
    Ends(Vec<u32>),
}

/// A way to cut that needs no numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupingName {
    /// Each segment with weights on its own.
    Segments,
    /// All in one.
    Whole,
}

/// A policy by name, or with parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PolicyEntry {
    /// Its name, with default parameters.
    Name(String),
    /// Name and parameters.
    Full(Choice),
}

/// A model of a scenario.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelEntry {
    /// Its name.
    pub name: String,
    /// A profile written by `raddle profile`, relative to the scenario file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<PathBuf>,
    /// Or its costs, in place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batches: Vec<BatchEntry>,
    /// Most rows of a run; the profile's largest bucket unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_max: Option<u32>,
    /// A batch that is not full may wait this long.
    #[serde(default)]
    pub queue_delay_us: u64,
    /// Most waiting requests; 0 is no bound.
    #[serde(default)]
    pub queue_max: u32,
    /// Bytes of each segment's weights; the profile's unless given. Without either the model is always at hand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weight_bytes: Vec<u64>,
    /// Transfer groups; the profile's unless given, else one a segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Grouping>,
    /// Its costs on parts of the device; the profile's unless given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<ModelPart>,
    /// Answers are due so long after arrival where a load names no timeout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_us: Option<u64>,
    /// It is a periodic task: a load without a rate of its own asks once a period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_us: Option<u64>,
}

/// Costs of one batch bucket.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchEntry {
    /// Rows.
    pub rows: u32,
    /// Time of each segment in µs.
    pub segments_us: Vec<u64>,
    /// Times of measured runs divided by their mean, in the order they were measured; the simulator draws from them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub factors: Vec<f64>,
    /// How many other runs were on the device when each of those began; then a run draws from those that began among about as
    /// many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<u32>,
}

/// A stream of requests for one model.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// The model asked.
    pub model: String,
    /// Class; 1 goes first.
    #[serde(default = "one_class")]
    pub class: u32,
    /// Rows of each request.
    #[serde(default = "one_row")]
    pub rows: u32,
    /// Answers are due this long after arrival.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_us: Option<u64>,
    /// When they arrive.
    pub arrivals: Arrivals,
    /// So many such streams; those of constant rate are spread over a period.
    #[serde(default = "one_row", skip_serializing_if = "is_one")]
    pub copies: u32,
    /// First arrival not before.
    #[serde(default)]
    pub start_ms: u64,
    /// No arrival from here on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_ms: Option<u64>,
}

const fn one_class() -> u32 {
    1
}

const fn one_row() -> u32 {
    1
}

/// When requests arrive.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Arrivals {
    /// At random, `rate` a second on average.
    Poisson {
        /// Requests a second.
        rate: f64,
    },
    /// Once a period of the model, which is a periodic task.
    Periodic,
    /// Evenly, `rate` a second.
    Constant {
        /// Requests a second.
        rate: f64,
    },
    /// `clients` that each ask again `think_us` after an answer.
    Closed {
        /// Clients.
        clients: u32,
        /// Pause after an answer.
        #[serde(default)]
        think_us: u64,
    },
    /// At these times, in ns since the start.
    Trace {
        /// Ascending.
        at_ns: Vec<u64>,
        /// How long after its arrival the scheduler hears of each; at once where it is empty.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        lag_ns: Vec<u64>,
    },
}

impl Arrivals {
    /// At these times, in ns since the start, heard of at once.
    #[must_use]
    pub const fn at(at_ns: Vec<u64>) -> Self {
        Self::Trace { at_ns, lag_ns: Vec::new() }
    }
}

/// Faults of a scenario file, all of them.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file could not be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// Not TOML of this form.
    #[error("{path} is not a scenario: {message}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and what.
        message: String,
    },
    /// Values that cannot be simulated.
    #[error("{path} cannot be simulated:\n  {}", faults.join("\n  "))]
    Faults {
        /// The file.
        path: PathBuf,
        /// One line each.
        faults: Vec<String>,
    },
}

/// A scenario file is small; anything larger is something else.
const FILE_MAX: u64 = 64 << 20;

impl Scenario {
    /// Reads and checks a scenario file.
    ///
    /// # Errors
    /// When it cannot be read, or with every fault it has.
    pub fn read(path: &Path) -> Result<Self, ScenarioError> {
        let read = |source| ScenarioError::Read { path: path.into(), source };
        let parse = |message: String| ScenarioError::Parse { path: path.into(), message };
        let length = std::fs::metadata(path).map_err(read)?.len();
        if length > FILE_MAX {
            return Err(parse(format!("it has {length} bytes, a scenario has at most {FILE_MAX}")));
        }
        let text = std::fs::read_to_string(path).map_err(read)?;
        let mut scenario: Self = toml::from_str(&text).map_err(|error| parse(error.to_string()))?;
        let mut faults = scenario.load_profiles(path.parent().unwrap_or(Path::new("")));
        faults.extend(scenario.faults());
        if faults.is_empty() {
            Ok(scenario)
        } else {
            Err(ScenarioError::Faults { path: path.into(), faults })
        }
    }

    /// Replaces each profile path by the costs it holds.
    fn load_profiles(&mut self, folder: &Path) -> Vec<String> {
        let mut faults = Vec::new();
        for model in &mut self.models {
            let Some(path) = &model.profile else { continue };
            let read = std::fs::read_to_string(folder.join(path)).map_err(|error| error.to_string());
            let parsed = read.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string()));
            let checked = parsed.and_then(|profile: Profile| {
                profile.check().map_err(|error| error.to_string()).map(|()| profile)
            });
            match checked {
                Ok(profile) if model.batches.is_empty() => {
                    model.take_profile(&profile);
                    if let (Some(device), Some(switch)) = (&mut self.device, &profile.switch) {
                        device.link.get_or_insert(LinkEntry {
                            latency_us: switch.transfer_latency_ns.ns() as f64 / 1e3,
                            bytes_per_s: switch.transfer_bytes_per_s,
                        });
                    }
                }
                Ok(_) => {
                    faults.push(format!("model {:?} has both a profile and batches; keep one", model.name))
                }
                Err(error) => faults.push(format!("profile {} of {:?}: {error}", path.display(), model.name)),
            }
        }
        faults
    }

    /// Everything wrong with the values, one line each.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if let Some(PolicyEntry::Name(name)) = &self.policy
            && Choice::named(name).is_none()
        {
            faults.push(format!("no policy is called {name:?}; there are {}", Choice::NAMES.join(", ")));
        }
        if self.partitions == 0 {
            faults.push("partitions is 0; at least one is needed".into());
        }
        if !(0.0..=1.0).contains(&self.noise) {
            faults.push(format!("noise is {}, it must be within 0 and 1", self.noise));
        }
        if self.ahead == 0 {
            faults.push("ahead is 0; a device has at least the segment that runs".into());
        }
        if self.factor_block == 0 {
            faults.push("factor_block is 0; a block has at least one run".into());
        }
        faults.extend(self.device.iter().flat_map(DeviceEntry::faults));
        faults.extend(self.space_faults());
        for (place, model) in self.models.iter().enumerate() {
            if self.models[..place].iter().any(|other| other.name == model.name) {
                faults.push(format!("two models are called {:?}", model.name));
            }
            faults.extend(model.faults());
            faults.extend(model.part_faults(self.space.as_ref().map(|space| space.units)));
        }
        for (place, load) in self.loads.iter().enumerate() {
            let known = self.models.iter().find(|model| model.name == load.model);
            faults.extend(load.faults(known).into_iter().map(|fault| format!("load {}: {fault}", place + 1)));
        }
        faults
    }

    /// The policy the file asks for; `windows` when it names none.
    #[must_use]
    pub fn choice(&self) -> Choice {
        let named = match &self.policy {
            None => Choice::named("windows"),
            Some(PolicyEntry::Name(name)) => Choice::named(name),
            Some(PolicyEntry::Full(choice)) => Some(choice.clone()),
        };
        named.expect("a checked scenario names a policy there is")
    }

    /// The models as the world is told of them, numbered in the file's order.
    #[must_use]
    pub fn specs(&self) -> Vec<ModelSpec> {
        let units = self.space.as_ref().map_or(0, |space| space.units);
        let spec = |(id, model): (u32, &ModelEntry)| ModelSpec {
            parts: if units == 0 { PartCosts::default() } else { model.part_costs(units) },
            ..model.spec(ModelId(id))
        };
        (0..).zip(&self.models).map(spec).collect()
    }

    pub(crate) fn end(&self) -> Time {
        Time::ZERO + Span::from_ms(self.duration_ms)
    }
}

impl DeviceEntry {
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.count == 0 {
            faults.push("device.count is 0; at least one is needed".into());
        }
        match self.link {
            None => {
                faults.push("device has no link; give device.link, or a profile measured on a GPU".into())
            }
            Some(LinkEntry { latency_us, bytes_per_s }) => {
                if !(0.0..=1e9).contains(&latency_us) {
                    faults.push(format!(
                        "device.link.latency_us is {latency_us}; between 0 and 1e9 make sense"
                    ));
                }
                if !(bytes_per_s.is_finite() && bytes_per_s > 0.0) {
                    faults.push(format!("device.link.bytes_per_s is {bytes_per_s}; it must be above 0"));
                }
            }
        }
        faults
    }
}

fn entries(batches: &[BatchProfile]) -> Vec<BatchEntry> {
    // Rounded up, so that no segment becomes free.
    let us = |span: &Span| span.ns().div_ceil(1_000);
    let entry = |b: &BatchProfile| BatchEntry {
        rows: b.batch,
        segments_us: b.segment_ns.iter().map(us).collect(),
        ..BatchEntry::default()
    };
    batches.iter().map(entry).collect()
}

impl ModelEntry {
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let name = &self.name;
        if self.batches.is_empty() && self.profile.is_none() {
            faults.push(format!("model {name:?} has no costs; give a profile or batches"));
        }
        let ascending = self.batches.windows(2).all(|pair| pair[0].rows < pair[1].rows);
        if !ascending || self.batches.first().is_some_and(|first| first.rows == 0) {
            faults.push(format!("batches of {name:?} must ascend from at least 1 row"));
        }
        let segments = self.batches.first().map_or(0, |first| first.segments_us.len());
        if self.batches.iter().any(|batch| batch.segments_us.len() != segments) {
            faults.push(format!("batches of {name:?} list different numbers of segments"));
        }
        if self.batches.iter().any(|batch| batch.segments_us.iter().all(|us| *us == 0)) {
            faults.push(format!("a batch of {name:?} takes no time"));
        }
        if self.batch_max == Some(0) {
            faults.push(format!("batch_max of {name:?} is 0; at least 1 is needed"));
        }
        let mut factors = self.batches.iter().flat_map(|batch| &batch.factors);
        if let Some(bad) = factors.find(|factor| !(factor.is_finite() && **factor > 0.0)) {
            faults.push(format!("a factor of {name:?} is {bad}; factors are above 0, 1 on average"));
        }
        let uneven =
            |batch: &&BatchEntry| !batch.beside.is_empty() && batch.beside.len() != batch.factors.len();
        if let Some(batch) = self.batches.iter().find(uneven) {
            let (factors, beside) = (batch.factors.len(), batch.beside.len());
            faults.push(format!(
                "beside of {name:?} lists {beside} numbers for {factors} factors; each has one"
            ));
        }
        let weights = self.weight_bytes.len();
        if weights != 0 && segments != 0 && weights != segments {
            faults.push(format!("weight_bytes of {name:?} lists {weights} segments, its batches {segments}"));
        }
        if let Some(Grouping::Ends(ends)) = &self.groups {
            let ascends = ends.windows(2).all(|pair| pair[0] < pair[1]) && ends.first() != Some(&0);
            if !ascends || ends.last().is_none_or(|end| *end as usize != weights) {
                faults.push(format!(
                    "groups of {name:?} must ascend and end with its {weights} segments of weights"
                ));
            }
        }
        faults
    }

    /// Costs, weights and groups of a profile; what the file says of weights and groups goes before.
    fn take_profile(&mut self, profile: &Profile) {
        self.batches = entries(&profile.batches);
        self.take_parts(profile);
        if !self.weight_bytes.is_empty() {
            return;
        }
        self.weight_bytes = profile.segments.iter().map(|segment| segment.weight_bytes.0).collect();
        let groups = profile.switch.iter().flat_map(|switch| &switch.groups);
        let firsts: Vec<(usize, u64)> =
            groups.map(|group| (group.first_segment as usize, group.bytes.0)).collect();
        if firsts.is_empty() || self.groups.is_some() {
            return;
        }
        // A group's padding counts with its first segment.
        self.weight_bytes.fill(0);
        for (first, bytes) in &firsts {
            self.weight_bytes[*first] = *bytes;
        }
        let begins = firsts.iter().skip(1).map(|(first, _)| *first).chain([self.weight_bytes.len()]);
        let ends = begins.map(|begin| u32::try_from(begin).expect("a model has fewer than 2^32 segments"));
        self.groups = Some(Grouping::Ends(ends.collect()));
    }

    /// The transfer groups over `link`; those without weights need no transfer.
    pub(crate) fn weight_groups(&self, link: &LinkEntry) -> Vec<WeightGroup> {
        let count = u32::try_from(self.weight_bytes.len()).expect("a model has fewer than 2^32 segments");
        let ends: Vec<u32> = match &self.groups {
            Some(Grouping::Ends(ends)) => ends.clone(),
            Some(Grouping::Named(GroupingName::Whole)) => vec![count],
            Some(Grouping::Named(GroupingName::Segments)) | None => (1..=count).collect(),
        };
        let mut first_segment = 0;
        let mut groups = Vec::new();
        for end in ends {
            let bytes: u64 = self.weight_bytes[first_segment as usize..end as usize].iter().sum();
            if bytes > 0 {
                let seconds = link.latency_us / 1e6 + bytes as f64 / link.bytes_per_s;
                let transfer = Span::from_secs_f64(seconds);
                groups.push(WeightGroup { bytes: Bytes(bytes), transfer, first_segment });
            }
            first_segment = end;
        }
        groups
    }

    fn spec(&self, id: ModelId) -> ModelSpec {
        let cost = |batch: &BatchEntry| BucketCost {
            rows: batch.rows,
            segments: batch.segments_us.iter().map(|us| Span::from_us(*us)).collect(),
        };
        ModelSpec {
            id,
            name: self.name.clone(),
            class: Class::FIRST,
            batch_max: self.batch_max.unwrap_or(self.batches.last().map_or(1, |batch| batch.rows)),
            queue_delay: Span::from_us(self.queue_delay_us),
            queue_max: self.queue_max,
            costs: self.batches.iter().map(cost).collect(),
            parts: PartCosts::default(),
            promise: Promise {
                deadline: self.deadline_us.map(Span::from_us),
                period: self.period_us.map(Span::from_us),
            },
        }
    }
}

impl Load {
    fn faults(&self, model: Option<&ModelEntry>) -> Vec<String> {
        let mut faults = Vec::new();
        if model.is_none() {
            faults.push(format!("no model is called {:?}", self.model));
        }
        if self.class == 0 {
            faults.push("class is 0; 1 goes first".into());
        }
        if self.rows == 0 {
            faults.push("rows is 0; at least 1 is needed".into());
        }
        if !(1..=100_000).contains(&self.copies) {
            faults.push(format!("copies is {}; between 1 and 100,000 make sense", self.copies));
        }
        let rate_fits = |rate: f64| rate.is_finite() && rate > 0.0 && rate <= 1e9;
        match &self.arrivals {
            Arrivals::Poisson { rate } | Arrivals::Constant { rate } if !rate_fits(*rate) => {
                faults.push(format!("rate is {rate}; it must be above 0 and at most 1e9 a second"));
            }
            Arrivals::Closed { clients, .. } if !(1..=1_000_000).contains(clients) => {
                faults.push(format!("clients is {clients}; between 1 and 1,000,000 make sense"));
            }
            Arrivals::Periodic
                if model.is_some_and(|model| model.period_us.is_none_or(|period| period == 0)) =>
            {
                faults.push(format!("model {:?} is no periodic task; give it a period_us", self.model));
            }
            Arrivals::Trace { at_ns, .. } if at_ns.windows(2).any(|pair| pair[0] > pair[1]) => {
                faults.push("the trace's times do not ascend".into());
            }
            Arrivals::Trace { at_ns, lag_ns } if !lag_ns.is_empty() && lag_ns.len() != at_ns.len() => {
                let (times, lags) = (at_ns.len(), lag_ns.len());
                faults.push(format!(
                    "the trace has {times} times and {lags} lags; give one for each time, or none"
                ));
            }
            _ => {}
        }
        faults
    }
}
