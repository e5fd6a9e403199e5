//! Counts and durations of the running server: Triton's `nv_inference_*` family, and ours under `raddle_`.
//!
//! The live driver calls the methods; `render` and `stats` read. No clock in here: durations and wall time are given.
//! Every label comes from a loaded model, its configured classes or a constant, so the number of rows is bounded.

use crate::live::Timing;
use prometheus_client::encoding::{EncodeLabelSet, prometheus_text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use vocab::{Class, Span};

/// How a request ended, as a metric tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Answered in time.
    Done,
    /// Answered too late to be sent.
    Late,
    /// Refused before it ran; the cause is one of a few constants.
    Rejected(&'static str),
    /// Its deadline passed while it waited.
    Dropped,
    /// The client left.
    Cancelled,
    /// The device or the model failed.
    Failed,
}

/// One ended request.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// How.
    pub end: End,
    /// Its class.
    pub class: Class,
    /// Rows it brought.
    pub rows: u32,
    /// From arrival to its end.
    pub total: Span,
    /// Where the time went; zero for what did not happen.
    pub timing: Timing,
    /// Wall time of its end: milliseconds since 1970.
    pub wall_ms: u64,
}

/// All metrics of one server. Shared behind an `Arc`.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    families: Families,
    models: RwLock<BTreeMap<(String, u64), Arc<ModelMetrics>>>,
    turn: Histogram,
}

/// Metrics of one model version. The driver keeps its `Arc`; every method may be called from any thread.
#[derive(Debug)]
pub struct ModelMetrics {
    name: String,
    version: String,
    families: Families,
    classes: Vec<ClassMetrics>,
    batch_rows: Histogram,
    preemptions: Counter,
    totals: Mutex<Totals>,
}

#[derive(Debug)]
struct ClassMetrics {
    latency: Histogram,
    depth: Gauge,
}

#[derive(Clone, Debug)]
struct Families {
    requests: Family<RequestLabels, Counter>,
    latency: Family<ClassLabels, Histogram, fn() -> Histogram>,
    depth: Family<ClassLabels, Gauge>,
    batch_rows: Family<ModelLabels, Histogram, fn() -> Histogram>,
    preemptions: Family<ModelLabels, Counter>,
    refused: Family<WhyLabels, Counter>,
    responses: Family<CodeLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabels {
    model: String,
    version: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabels {
    model: String,
    version: String,
    class: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    model: String,
    version: String,
    class: u32,
    end: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WhyLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    code: u32,
}

/// A number of durations and their sum, as Triton's statistics tell them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Durations {
    /// How many.
    pub count: u64,
    /// Their sum in nanoseconds.
    pub ns: u64,
}

/// Statistics of one model version, as `/v2/models/N/stats` tells them.
#[derive(Clone, Debug, Serialize)]
pub struct ModelStatistics {
    /// The model.
    pub name: String,
    /// Its version, as text.
    pub version: String,
    /// Wall time of the last answered request: milliseconds since 1970, 0 for none.
    pub last_inference: u64,
    /// Rows answered.
    pub inference_count: u64,
    /// Runs made for them.
    pub execution_count: u64,
    /// Durations over requests.
    pub inference_stats: InferenceStatistics,
    /// Empty: for models that answer more than once.
    pub response_stats: BTreeMap<String, Durations>,
    /// Durations over runs, by rows.
    pub batch_stats: Vec<BatchStatistics>,
    /// Empty until devices report it.
    pub memory_usage: [(); 0],
}

/// Durations over requests.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct InferenceStatistics {
    /// Answered requests, arrival to answer.
    pub success: Durations,
    /// The others, arrival to end.
    pub fail: Durations,
    /// Waiting, of answered requests.
    pub queue: Durations,
    /// Copying inputs, of answered requests.
    pub compute_input: Durations,
    /// Running, of answered requests.
    pub compute_infer: Durations,
    /// Copying outputs, of answered requests.
    pub compute_output: Durations,
    /// Always none: there is no cache.
    pub cache_hit: Durations,
    /// Always none: there is no cache.
    pub cache_miss: Durations,
}

/// Durations over runs of one size.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BatchStatistics {
    /// Rows of the run.
    pub batch_size: u32,
    /// Copying inputs.
    pub compute_input: Durations,
    /// Running.
    pub compute_infer: Durations,
    /// Copying outputs.
    pub compute_output: Durations,
}

#[derive(Debug, Default)]
struct Totals {
    last_inference_ms: u64,
    rows: u64,
    runs: u64,
    requests: InferenceStatistics,
    failures: [u64; FAILURES.len()],
    batches: BTreeMap<u32, [Durations; 3]>,
    /// Classes, ends and reasons seen: the rows to remove with the model.
    ends: BTreeSet<(u32, &'static str, &'static str)>,
}

/// Triton's reasons of `nv_inference_request_failure`.
const FAILURES: [&str; 4] = ["REJECTED", "CANCELED", "BACKEND", "OTHER"];

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Metrics without a model.
    #[must_use]
    pub fn new() -> Self {
        let latency: fn() -> Histogram = || Histogram::new(exponential_buckets(0.000_5, 2.0, 16));
        let rows: fn() -> Histogram = || Histogram::new(exponential_buckets(1.0, 2.0, 9));
        let families = Families {
            requests: Family::default(),
            latency: Family::new_with_constructor(latency),
            depth: Family::default(),
            batch_rows: Family::new_with_constructor(rows),
            preemptions: Family::default(),
            refused: Family::default(),
            responses: Family::default(),
        };
        let turn = Histogram::new(exponential_buckets(0.000_001, 4.0, 10));
        let mut registry = Registry::default();
        registry.register("raddle_requests", "Requests by how they ended", families.requests.clone());
        registry.register(
            "raddle_request_duration_seconds",
            "Time from arrival to answer of requests done in time",
            families.latency.clone(),
        );
        registry.register("raddle_queue_depth", "Requests waiting", families.depth.clone());
        registry.register("raddle_batch_rows", "Rows a run", families.batch_rows.clone());
        registry.register("raddle_preemptions", "Runs parked for others", families.preemptions.clone());
        registry.register("raddle_refused_decisions", "Policy decisions refused", families.refused.clone());
        registry.register("raddle_http_responses", "HTTP responses by status", families.responses.clone());
        registry.register("raddle_turn_duration_seconds", "Time of one scheduler turn", turn.clone());
        Self { registry, families, models: RwLock::default(), turn }
    }

    /// Begins to count for a model version with classes 1 to `levels`; the same object again when it is known.
    pub fn add_model(&self, name: &str, version: u64, levels: u32) -> Arc<ModelMetrics> {
        let mut models = self.models.write().unwrap_or_else(PoisonError::into_inner);
        let entry = models.entry((name.to_owned(), version));
        let model =
            entry.or_insert_with(|| Arc::new(ModelMetrics::new(&self.families, name, version, levels)));
        Arc::clone(model)
    }

    /// Forgets a model version and its rows.
    pub fn remove_model(&self, name: &str, version: u64) {
        let removed =
            self.models.write().unwrap_or_else(PoisonError::into_inner).remove(&(name.to_owned(), version));
        if let Some(model) = removed {
            model.forget();
        }
    }

    /// One scheduler turn took `span`.
    pub fn turn_took(&self, span: Span) {
        self.turn.observe(span.as_secs_f64());
    }

    /// The world refused a decision; `reason` is one of a few constants.
    pub fn decision_refused(&self, reason: &'static str) {
        self.families.refused.get_or_create(&WhyLabels { reason }).inc();
    }

    /// An HTTP response went out with status `code`.
    pub fn responded(&self, code: u16) {
        self.families.responses.get_or_create(&CodeLabels { code: code.into() }).inc();
    }

    /// Everything in Prometheus' text format.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = String::new();
        self.render_triton(&mut text);
        prometheus_text::encode(&mut text, &self.registry).expect("a String takes every write");
        text
    }

    /// Statistics of the models for which `wanted` says so, by name then version.
    #[must_use]
    pub fn stats(&self, wanted: impl Fn(&str, u64) -> bool) -> Vec<ModelStatistics> {
        let models = self.models.read().unwrap_or_else(PoisonError::into_inner);
        let chosen = models.iter().filter(|((name, version), _)| wanted(name, *version));
        chosen.map(|(_, model)| model.statistics()).collect()
    }

    /// Triton's family. Its counters have no `_total`, which the registry would add.
    fn render_triton(&self, out: &mut String) {
        type Read = fn(&Totals) -> u64;
        const COUNTERS: [(&str, &str, Read); 8] = [
            ("nv_inference_request_success", "Number of successful inference requests", |t| {
                t.requests.success.count
            }),
            ("nv_inference_count", "Number of inferences performed, a batch of n counts n", |t| t.rows),
            ("nv_inference_exec_count", "Number of model executions", |t| t.runs),
            ("nv_inference_request_duration_us", "Cumulative request duration", |t| {
                t.requests.success.ns / 1_000
            }),
            ("nv_inference_queue_duration_us", "Cumulative queuing duration", |t| {
                t.requests.queue.ns / 1_000
            }),
            ("nv_inference_compute_input_duration_us", "Cumulative input duration", |t| {
                t.requests.compute_input.ns / 1_000
            }),
            ("nv_inference_compute_infer_duration_us", "Cumulative inference duration", |t| {
                t.requests.compute_infer.ns / 1_000
            }),
            ("nv_inference_compute_output_duration_us", "Cumulative output duration", |t| {
                t.requests.compute_output.ns / 1_000
            }),
        ];
        let models = self.models.read().unwrap_or_else(PoisonError::into_inner);
        for (name, help, read) in COUNTERS {
            head(out, name, help, "counter");
            for model in models.values() {
                row(out, name, model, "", read(&model.totals()));
            }
        }
        let name = "nv_inference_request_failure";
        head(out, name, "Number of failed inference requests", "counter");
        for model in models.values() {
            let failures = model.totals().failures;
            for (reason, count) in FAILURES.iter().zip(failures) {
                row(out, name, model, &format!(",reason=\"{reason}\""), count);
            }
        }
        let name = "nv_inference_pending_request_count";
        head(out, name, "Number of requests waiting for execution", "gauge");
        for model in models.values() {
            let waiting: i64 = model.classes.iter().map(|class| class.depth.get()).sum();
            row(out, name, model, "", u64::try_from(waiting).unwrap_or(0));
        }
    }
}

fn head(out: &mut String, name: &str, help: &str, kind: &str) {
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("a String takes every write");
}

/// Names have no character that a label would need escaped.
fn row(out: &mut String, name: &str, model: &ModelMetrics, more: &str, value: u64) {
    writeln!(out, "{name}{{model=\"{}\",version=\"{}\"{more}}} {value}", model.name, model.version)
        .expect("a String takes every write");
}

impl ModelMetrics {
    fn new(families: &Families, name: &str, version: u64, levels: u32) -> Self {
        let labels = ModelLabels { model: name.to_owned(), version: version.to_string() };
        let classes = (1..=levels.max(1)).map(|class| {
            let labels = ClassLabels { model: labels.model.clone(), version: labels.version.clone(), class };
            ClassMetrics {
                latency: families.latency.get_or_create_owned(&labels),
                depth: families.depth.get_or_create_owned(&labels),
            }
        });
        Self {
            classes: classes.collect(),
            batch_rows: families.batch_rows.get_or_create_owned(&labels),
            preemptions: families.preemptions.get_or_create_owned(&labels),
            families: families.clone(),
            name: labels.model,
            version: labels.version,
            totals: Mutex::default(),
        }
    }

    /// A request ended.
    pub fn ended(&self, ended: &Ended) {
        let (end, reason) = match ended.end {
            End::Done => ("done", ""),
            End::Late => ("late", "deadline"),
            End::Rejected(reason) => ("rejected", reason),
            End::Dropped => ("dropped", "deadline"),
            End::Cancelled => ("cancelled", "client"),
            End::Failed => ("failed", "device"),
        };
        let place = self.place(ended.class);
        let class = u32::try_from(place + 1).unwrap_or(u32::MAX);
        let (model, version) = (self.name.clone(), self.version.clone());
        let labels = RequestLabels { model, version, class, end, reason };
        self.families.requests.get_or_create(&labels).inc();
        if ended.end == End::Done {
            self.classes[place].latency.observe(ended.total.as_secs_f64());
        }
        let mut totals = self.totals();
        totals.ends.insert((class, end, reason));
        totals.add(ended);
    }

    /// A run of `rows` rows ended; `timing.queue` is not used.
    pub fn ran(&self, rows: u32, timing: Timing) {
        self.batch_rows.observe(f64::from(rows));
        let mut totals = self.totals();
        totals.runs += 1;
        let batch = totals.batches.entry(rows).or_default();
        for (durations, span) in batch.iter_mut().zip([timing.input, timing.compute, timing.output]) {
            durations.add(span);
        }
    }

    /// A run was parked for another.
    pub fn preempted(&self) {
        self.preemptions.inc();
    }

    /// So many requests wait now, by class; in classes not listed none does.
    pub fn waiting(&self, by_class: &BTreeMap<Class, usize>) {
        let mut depths = vec![0_usize; self.classes.len()];
        for (class, waiting) in by_class {
            depths[self.place(*class)] += waiting;
        }
        for (class, waiting) in self.classes.iter().zip(depths) {
            class.depth.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        }
    }

    /// The class's place; one beyond the configured classes counts as the last.
    fn place(&self, class: Class) -> usize {
        usize::try_from(class.level() - 1).unwrap_or(usize::MAX).min(self.classes.len() - 1)
    }

    fn totals(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn statistics(&self) -> ModelStatistics {
        let totals = self.totals();
        let batch = |(rows, [input, infer, output]): (&u32, &[Durations; 3])| BatchStatistics {
            batch_size: *rows,
            compute_input: *input,
            compute_infer: *infer,
            compute_output: *output,
        };
        ModelStatistics {
            name: self.name.clone(),
            version: self.version.clone(),
            last_inference: totals.last_inference_ms,
            inference_count: totals.rows,
            execution_count: totals.runs,
            inference_stats: totals.requests,
            response_stats: BTreeMap::new(),
            batch_stats: totals.batches.iter().map(batch).collect(),
            memory_usage: [],
        }
    }

    /// Removes the model's rows from the families.
    fn forget(&self) {
        let (model, version) = (&self.name, &self.version);
        let labels = ModelLabels { model: model.clone(), version: version.clone() };
        self.families.batch_rows.remove(&labels);
        self.families.preemptions.remove(&labels);
        for class in (1..).take(self.classes.len()) {
            let labels = ClassLabels { model: model.clone(), version: version.clone(), class };
            self.families.latency.remove(&labels);
            self.families.depth.remove(&labels);
        }
        for (class, end, reason) in std::mem::take(&mut self.totals().ends) {
            let labels = RequestLabels { model: model.clone(), version: version.clone(), class, end, reason };
            self.families.requests.remove(&labels);
        }
    }
}

impl Durations {
    fn add(&mut self, span: Span) {
        self.count += 1;
        self.ns = self.ns.saturating_add(span.ns());
    }
}

impl Totals {
    fn add(&mut self, ended: &Ended) {
        let failure = match ended.end {
            End::Done => {
                self.last_inference_ms = ended.wall_ms;
                self.rows += u64::from(ended.rows);
                self.requests.success.add(ended.total);
                self.requests.queue.add(ended.timing.queue);
                self.requests.compute_input.add(ended.timing.input);
                self.requests.compute_infer.add(ended.timing.compute);
                self.requests.compute_output.add(ended.timing.output);
                return;
            }
            End::Rejected(_) | End::Dropped => 0,
            End::Cancelled => 1,
            End::Failed => 2,
            End::Late => 3,
        };
        self.failures[failure] += 1;
        self.requests.fail.add(ended.total);
    }
}

#[cfg(test)]
mod tests;
