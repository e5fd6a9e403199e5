//! Scenario files: what to simulate, in TOML. Every fault of a file is reported at once.

use sched::node::policy::Choice;
use sched::node::{BucketCost, ModelSpec};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use vocab::{Class, ModelId, Profile, Span, Time};

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
    /// Relative standard deviation of a run's time around the profile.
    #[serde(default)]
    pub noise: f64,
    /// The models.
    pub models: Vec<ModelEntry>,
    /// The loads.
    pub loads: Vec<Load>,
}

const fn one() -> u16 {
    1
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
#[derive(Clone, Debug, Serialize, Deserialize)]
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
}

/// Costs of one batch bucket.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchEntry {
    /// Rows.
    pub rows: u32,
    /// Time of each segment in µs.
    pub segments_us: Vec<u64>,
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
    },
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
                Ok(profile) if model.batches.is_empty() => model.batches = entries(&profile),
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
        for (place, model) in self.models.iter().enumerate() {
            if self.models[..place].iter().any(|other| other.name == model.name) {
                faults.push(format!("two models are called {:?}", model.name));
            }
            faults.extend(model.faults());
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
        (0..).zip(&self.models).map(|(id, model)| model.spec(ModelId(id))).collect()
    }

    pub(crate) fn end(&self) -> Time {
        Time::ZERO + Span::from_ms(self.duration_ms)
    }
}

fn entries(profile: &Profile) -> Vec<BatchEntry> {
    // Rounded up, so that no segment becomes free.
    let us = |span: &Span| span.ns().div_ceil(1_000);
    let entry = |b: &vocab::BatchProfile| BatchEntry {
        rows: b.batch,
        segments_us: b.segment_ns.iter().map(us).collect(),
    };
    profile.batches.iter().map(entry).collect()
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
        faults
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
        let rate_fits = |rate: f64| rate.is_finite() && rate > 0.0 && rate <= 1e9;
        match &self.arrivals {
            Arrivals::Poisson { rate } | Arrivals::Constant { rate } if !rate_fits(*rate) => {
                faults.push(format!("rate is {rate}; it must be above 0 and at most 1e9 a second"));
            }
            Arrivals::Closed { clients, .. } if !(1..=1_000_000).contains(clients) => {
                faults.push(format!("clients is {clients}; between 1 and 1,000,000 make sense"));
            }
            Arrivals::Trace { at_ns } if at_ns.windows(2).any(|pair| pair[0] > pair[1]) => {
                faults.push("the trace's times do not ascend".into());
            }
            _ => {}
        }
        faults
    }
}
