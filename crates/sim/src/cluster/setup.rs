//! A cluster to simulate on, and how the policy is asked.

use super::applications::{Application, Applications};
use super::trace::{Problem, lines};
use super::{Belief, Pairs, Profiles, Progress, Throughputs, Trace, TraceJob};
use sched::cluster::{GpuNeed, Level, NodeId, NodeSpec};
use std::collections::BTreeMap;
use std::sync::Arc;
use vocab::{Bytes, ModelId, Span, Time};

/// Nodes, truth and timing of a simulation.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The nodes.
    pub nodes: Vec<NodeSpec>,
    /// How jobs progress.
    pub progress: Progress,
    /// The policy is asked at multiples of this only; else at every event.
    pub round: Option<Span>,
    /// Ends this close to the first of them, in billionths of the time, are taken as one; 0 but for Muri's orders by time
    /// left, whose simulator compares ends so.
    pub apart_ppb: u64,
    /// What running side by side costs; the policy is told.
    pub pairs: Pairs,
    /// What each model needs on a GPU, by model; models beyond the list need nothing.
    pub needs: Vec<GpuNeed>,
    /// How much slower jobs are when their GPUs span nodes or racks, in thousandths by level, by model and GPUs; others are
    /// not slowed. Policies are told. Only progress that a slowdown counts in follows it: [`Progress::RestartAtStart`] and
    /// [`Progress::RestartAtTurn`].
    pub spreads: BTreeMap<(String, u32), [u32; Level::COUNT]>,
    /// What policies are told of jobs' times.
    pub belief: Belief,
    /// Throughputs of the models on kinds of GPU, and the names of those kinds, for [`Progress::Rounds`].
    pub throughputs: Option<(Arc<Throughputs>, Vec<String>)>,
    /// Tables of the models' speeds by CPUs and memory, for [`Progress::WholeIterations`]: what is true; what policies are
    /// told is what optimistic profiling finds of them. Without, a job is as fast as the trace says when it has all it
    /// asks for, and at the even speed with less.
    pub profiles: Option<Arc<Profiles>>,
    /// Nodes that are lost.
    pub losses: Vec<Loss>,
    /// Measured applications, for [`Progress::Goodput`].
    pub applications: Option<Arc<Applications>>,
}

/// A node that is lost: jobs on it stop where they are and wait again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The node.
    pub node: NodeId,
    /// When it is lost.
    pub at: Time,
    /// When it is back, if ever.
    pub back: Option<Time>,
}

/// Why a trace cannot be simulated on a cluster: every job that never fits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cluster is too small for {} jobs:\n{}", .0.len(), lines(.0))]
pub struct SetupError(pub Vec<Problem>);

impl Setup {
    /// `nodes` nodes of `gpus` GPUs each, asked at every event, with all CPUs and memory one could want.
    #[must_use]
    pub fn uniform(nodes: u32, gpus: u8) -> Self {
        let node = |node| NodeSpec {
            node: NodeId(node),
            rack: 0,
            kind: 0,
            gpus,
            slots: 1,
            cpu_milli: 1_000_000,
            memory: Bytes(1 << 50),
            gpu_memory: Bytes(1 << 40),
        };
        Self {
            nodes: (0..nodes).map(node).collect(),
            progress: Progress::RestartAtStart,
            round: None,
            apart_ppb: 0,
            pairs: Pairs::default(),
            needs: Vec::new(),
            spreads: BTreeMap::new(),
            belief: Belief::Exact,
            throughputs: None,
            profiles: None,
            losses: Vec::new(),
            applications: None,
        }
    }

    /// As Muri's simulator runs its traces: 8 nodes of 8 GPUs. Its orders by time left take ends close together as one;
    /// its LAS does not.
    #[must_use]
    pub fn muri(by_time_left: bool) -> Self {
        Self::uniform(8, 8).for_policy(if by_time_left { "muri-srtf" } else { "muri-las" })
    }

    /// This cluster with the timing of the simulator that a policy's name begins with; names like "srtf" change nothing.
    #[must_use]
    pub fn for_policy(mut self, name: &str) -> Self {
        if name.starts_with("muri-") {
            self.progress = Progress::RestartAtTurn;
            self.apart_ppb = u64::from(name != "muri-las");
        }
        if name.starts_with("gavel") && self.progress == Progress::RestartAtStart {
            self.progress = Progress::Rounds;
            self.round = Some(Span::from_ms(360_000));
        }
        if name.starts_with("gavel") && name.ends_with("-packed") {
            self.nodes.iter_mut().for_each(|node| node.slots = node.slots.max(2));
        }
        self
    }

    /// As Synergy's simulator runs: 16 servers of 8 GPUs, 24 CPUs and 500 GB, in rounds of 300 s.
    #[must_use]
    pub fn synergy() -> Self {
        let mut setup = Self::uniform(16, 8);
        for node in &mut setup.nodes {
            (node.cpu_milli, node.memory) = (24_000, Bytes(500_000_000_000));
        }
        setup.progress = Progress::WholeIterations;
        setup.round = Some(Span::from_ms(300_000));
        setup
    }

    /// CPUs in thousandths and memory that a job is believed to need over all its GPUs to be as fast as it can.
    #[must_use]
    pub fn demand(&self, job: &TraceJob) -> (u64, Bytes) {
        let gpus = u64::from(job.gpus);
        let profiled = self.profiles.as_ref().and_then(|profiles| profiles.demand(&job.model, self.even()));
        profiled.map_or((job.cpu_milli, job.memory), |(cpu_milli, memory)| {
            (cpu_milli * gpus, Bytes(memory * gpus))
        })
    }

    /// What each GPU is sure of when nodes share CPUs, in thousandths, and bytes of memory by GPUs.
    pub(super) fn even(&self) -> (u64, u64) {
        let part = |of: u64, node: &NodeSpec| of / u64::from(node.gpus.max(1));
        let cpus = self.nodes.iter().map(|node| part(node.cpu_milli, node)).min();
        let memory = self.nodes.iter().map(|node| part(node.memory.0, node)).min();
        (cpus.unwrap_or(0), memory.unwrap_or(0))
    }

    /// How much slower a job is when its GPUs span nodes or racks, in thousandths by level.
    #[must_use]
    pub fn spread_milli(&self, job: &TraceJob) -> [u32; Level::COUNT] {
        let none = [1_000; Level::COUNT];
        if self.spreads.is_empty() {
            return none;
        }
        self.spreads.get(&(job.model.clone(), job.gpus)).copied().unwrap_or(none)
    }

    /// What `model` needs on a GPU.
    #[must_use]
    pub fn need(&self, model: ModelId) -> GpuNeed {
        self.needs.get(model.index()).copied().unwrap_or_default()
    }

    /// As Pollux's simulator runs: 16 nodes of 4 GPUs, in rounds of 60 s.
    #[must_use]
    pub fn pollux(applications: Arc<Applications>) -> Self {
        let mut setup = Self::uniform(16, 4);
        setup.progress = Progress::Goodput;
        setup.round = Some(Span::from_ms(60_000));
        setup.applications = Some(applications);
        setup
    }

    /// As Gavel's simulator runs: GPUs of several kinds, by count, GPUs of a node and name, in rounds of 360 s.
    #[must_use]
    pub fn gavel(throughputs: Arc<Throughputs>, kinds: &[(u32, u8, &str)]) -> Self {
        let mut setup = Self::uniform(0, 1);
        for (kind, (count, gpus, _)) in (0..).zip(kinds) {
            for spec in Self::uniform(count / u32::from((*gpus).max(1)), *gpus).nodes {
                let node =
                    NodeId(u32::try_from(setup.nodes.len()).expect("a cluster has fewer than 2^32 nodes"));
                setup.nodes.push(NodeSpec { node, kind, ..spec });
            }
        }
        setup.progress = Progress::Rounds;
        setup.round = Some(Span::from_ms(360_000));
        setup.throughputs = Some((throughputs, kinds.iter().map(|(.., name)| (*name).to_owned()).collect()));
        setup
    }

    /// Steps a second of `job` on each kind of GPU; 0 where it does not fit. Without throughputs, one kind and the trace's
    /// own speed.
    pub(super) fn rates(&self, job: &TraceJob) -> Vec<f64> {
        let own = 1.0 / job.iteration.as_secs_f64().max(1e-9);
        match &self.throughputs {
            Some((throughputs, kinds)) => {
                let rate = |kind: &String| {
                    let many = throughputs.alone(kind, &job.model, job.gpus);
                    many.or_else(|| throughputs.alone(kind, &job.model, 1)).unwrap_or(0.0)
                };
                kinds.iter().map(rate).collect()
            }
            None => {
                let kinds = self.nodes.iter().map(|node| node.kind as usize + 1).max().unwrap_or(1);
                vec![own; kinds]
            }
        }
    }

    /// Steps a second of two jobs on the same GPUs, by kind; zeros where they do not fit together, and nothing where they do
    /// on no kind or GPUs are not shared.
    pub(super) fn rates_together(&self, first: &TraceJob, second: &TraceJob) -> Option<Vec<(f64, f64)>> {
        let (throughputs, kinds) = self.throughputs.as_ref()?;
        let shared = first.gpus == second.gpus && self.nodes.iter().any(|node| node.slots > 1);
        let of_kind = |kind: &String| {
            let (first, second) = ((first.model.as_str(), first.gpus), (second.model.as_str(), second.gpus));
            throughputs.together(kind, first, second).unwrap_or_default()
        };
        let rates: Vec<(f64, f64)> = kinds.iter().filter(|_| shared).map(of_kind).collect();
        rates.iter().any(|(first, _)| *first > 0.0).then_some(rates)
    }

    /// The measured application called `name`.
    pub(super) fn application(&self, name: &str) -> Option<&Application> {
        self.applications.as_ref()?.named(name)
    }

    /// Checks that each job of `trace` fits the empty cluster.
    ///
    /// # Errors
    /// Naming every job that does not.
    pub fn check(&self, trace: &Trace) -> Result<(), SetupError> {
        let gpus: u32 = self.nodes.iter().map(|node| u32::from(node.gpus)).sum();
        let cpus: u64 = self.nodes.iter().map(|node| node.cpu_milli).sum();
        let memory: u64 = self.nodes.iter().map(|node| node.memory.0).sum();
        let mut problems = Vec::new();
        for job in &trace.jobs {
            let mut problem = |what: String| {
                let what = format!("job \"{}\" needs {what}", job.name);
                problems.push(Problem { line: job.line, what });
            };
            if job.gpus > gpus {
                problem(format!("{} GPUs at once, of {gpus}", job.gpus));
            } else if job.cpu_milli > cpus || job.memory.0 > memory {
                problem("more CPUs or memory than the cluster has".into());
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(SetupError(problems)) }
    }
}
