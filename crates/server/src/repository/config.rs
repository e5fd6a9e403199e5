//! A model's configuration, as values that contradict nothing: what `config.pbtxt` may say and this server honours.

use crate::kserve::{Terms, TimeoutRule};
use graph::DType;
use std::collections::BTreeMap;
use vocab::{Class, Span};

/// Classes of a model whose configuration does not set `priority_levels`.
pub const LEVELS_DEFAULT: u32 = 4;
/// Most `priority_levels`: each is a queue and a row of metrics.
pub const LEVELS_MAX: u32 = 64;

/// What is configured for a model. Everything a file leaves out is what Triton would complete it with, or `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelConfig {
    /// The model's name: its folder's.
    pub name: String,
    /// Most rows of one run; `Some(0)` says that the model has no batch dimension, `None` leaves it to the loader.
    pub max_batch_size: Option<u32>,
    /// Declared inputs, without the batch dimension where `max_batch_size` is positive. May be empty.
    pub inputs: Vec<TensorConfig>,
    /// Declared outputs, likewise.
    pub outputs: Vec<TensorConfig>,
    /// How requests wait and are joined.
    pub batching: Batching,
    /// Whether `dynamic_batching` was given at all.
    pub dynamic_batching: bool,
    /// Which versions to serve.
    pub version_policy: VersionPolicy,
    /// File name of the model in its version folder, when not `model.onnx`.
    pub model_filename: Option<String>,
    /// Where instances should run. Read, not honoured yet.
    pub instance_groups: Vec<InstanceGroup>,
    /// All `parameters`, ours (`raddle.…`) and others.
    pub parameters: BTreeMap<String, String>,
    /// `raddle.slo_us`: the answer of a request without its own deadline is due after this.
    pub slo: Option<Span>,
    /// `raddle.period_us`: its requests come so far apart, and each is due before the next unless `slo` says otherwise.
    pub period: Option<Span>,
}

/// A declared input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorConfig {
    /// Its name in the model.
    pub name: String,
    /// Its element type.
    pub dtype: DType,
    /// Its dimensions; -1 may be any size.
    pub dims: Vec<i64>,
    /// File with a class name a line, in the model's folder.
    pub label_filename: Option<String>,
}

/// How requests of a model wait and are joined to batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batching {
    /// Batch sizes worth waiting for; empty means any.
    pub preferred: Vec<u32>,
    /// Longest wait for a fuller batch.
    pub delay: Span,
    /// Whether answers must come in the order of requests.
    pub preserve_ordering: bool,
    /// Classes there are, at least 1.
    pub levels: u32,
    /// Whether `priority_levels` was given.
    pub levels_given: bool,
    /// The class of a request that names none.
    pub default_class: Class,
    /// How every class waits, unless it has its own entry below.
    pub default_policy: QueuePolicy,
    /// Classes that wait differently.
    pub policies: BTreeMap<Class, QueuePolicy>,
}

/// How requests of one class wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuePolicy {
    /// What happens to a request whose time is up.
    pub timeout_action: TimeoutAction,
    /// Time of a request that brings none; zero is for ever.
    pub default_timeout: Span,
    /// Whether a request may shorten that.
    pub allow_timeout_override: bool,
    /// Requests that may wait; 0 is no limit but the server's.
    pub max_queue_size: u32,
}

/// What happens to a request whose time is up while it waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeoutAction {
    /// It is refused.
    #[default]
    Reject,
    /// It waits until nothing else does.
    Delay,
}

/// Which versions are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionPolicy {
    /// The highest so many.
    Latest(u32),
    /// All of them.
    All,
    /// These.
    Specific(Vec<u64>),
}

/// Where instances of a model should run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceGroup {
    /// `KIND_AUTO`, `KIND_GPU`, `KIND_CPU` or `KIND_MODEL`.
    pub kind: String,
    /// How many.
    pub count: u32,
    /// On which devices.
    pub gpus: Vec<u32>,
}

impl Default for VersionPolicy {
    fn default() -> Self {
        Self::Latest(1)
    }
}

impl Default for Batching {
    fn default() -> Self {
        Self {
            preferred: Vec::new(),
            delay: Span::ZERO,
            preserve_ordering: false,
            levels: LEVELS_DEFAULT,
            levels_given: false,
            default_class: Class::FIRST,
            default_policy: QueuePolicy::default(),
            policies: BTreeMap::new(),
        }
    }
}

impl ModelConfig {
    /// The configuration of a model that brings none.
    #[must_use]
    pub fn bare(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// How requests of `class` wait.
    #[must_use]
    pub fn queue_policy(&self, class: Class) -> QueuePolicy {
        self.batching.policies.get(&class).copied().unwrap_or(self.batching.default_policy)
    }

    /// When the answer to a request of `class` without its own timeout is due; `None` is never.
    #[must_use]
    pub fn default_timeout(&self, class: Class) -> Option<Span> {
        let policy = self.queue_policy(class);
        [Some(policy.default_timeout).filter(|span| *span > Span::ZERO), self.slo.or(self.period)]
            .into_iter()
            .flatten()
            .min()
    }

    /// What request parameters mean for this model.
    #[must_use]
    pub fn terms(&self) -> Terms {
        let classes = (1..=self.batching.levels).filter_map(Class::new);
        let timeouts = classes.map(|class| timeout_rule(self.queue_policy(class))).collect();
        Terms { levels: self.batching.levels, default_class: self.batching.default_class, timeouts }
    }
}

/// A policy without a timeout of its own lets every request bring one; with one, a request may only shorten it, and
/// only where the policy says so.
fn timeout_rule(policy: QueuePolicy) -> TimeoutRule {
    match (policy.default_timeout > Span::ZERO, policy.allow_timeout_override) {
        (false, _) => TimeoutRule::Honoured,
        (true, true) => TimeoutRule::AtMost(policy.default_timeout),
        (true, false) => TimeoutRule::Ignored,
    }
}
