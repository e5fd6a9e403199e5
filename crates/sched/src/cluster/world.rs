//! The cluster's world: nodes, jobs and what each holds, with the bookkeeping every policy relies on.
//!
//! Invariants ([`ClusterWorld::check`]): a running job holds exactly its gang; a GPU carries at most `slots` jobs and no
//! more memory than it has; CPUs and memory of a node are never granted twice; nothing is held on a lost node.

use super::{
    Decision, Event, Free, FreeNode, GpuMask, Grant, Job, JobId, JobSpec, Level, NodeId, NodeSpec,
    PairShares, Phase, Real,
};
use crate::World;
use std::collections::{BTreeMap, BTreeSet};
use vocab::{Bytes, ModelId, Span, Time};

/// Everything known about the cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterWorld {
    nodes: Vec<Option<Node>>,
    jobs: Vec<Option<Job>>,
    running: BTreeSet<JobId>,
    waiting: BTreeSet<JobId>,
    leases: BTreeSet<(Time, JobId)>,
    slowdowns: BTreeMap<(ModelId, ModelId), u32>,
    speeds: BTreeMap<JobId, Vec<Span>>,
    plan: Option<Plan>,
    rates: BTreeMap<JobId, Vec<u64>>,
    rounds: Vec<(JobId, Real)>,
    clock: Option<Real>,
    busy_gpus: u32,
    fresh: Vec<JobId>,
}

/// Shares of time that a driver worked out for a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The number of the question.
    pub number: u64,
    /// Shares by job and kind of node.
    pub shares: Vec<(JobId, Vec<Real>)>,
    /// Shares in which two jobs are on the same GPUs.
    pub pairs: Vec<PairShares>,
}

#[derive(Clone, Debug)]
struct Node {
    spec: NodeSpec,
    free: FreeNode,
    gpus: Vec<Gpu>,
}

#[derive(Clone, Debug, Default)]
struct Gpu {
    holders: Vec<JobId>,
    memory: Bytes,
}

/// Why the world refused a decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such job, or it has ended.
    #[error("there is no job {0}, or it has ended")]
    NoJob(JobId),
    /// The job does not wait.
    #[error("{0} does not wait")]
    NotWaiting(JobId),
    /// The job does not run.
    #[error("{0} does not run")]
    NotRunning(JobId),
    /// No such node, or it is lost.
    #[error("there is no node {0}")]
    NoNode(NodeId),
    /// The grant is not the job's gang.
    #[error("{job} needs {needs} GPUs at once, not {gets}")]
    Gang {
        /// The job.
        job: JobId,
        /// Its gang.
        needs: u32,
        /// GPUs granted.
        gets: u32,
    },
    /// A piece without GPUs, a node twice, or no sub-batch at all.
    #[error("the grant of {0} is malformed: one piece a node, each with GPUs, and at least one sub-batch")]
    Malformed(JobId),
    /// A GPU has no slot left.
    #[error("GPU {gpu} of {node} carries as many jobs as it may")]
    Slots {
        /// The node.
        node: NodeId,
        /// The GPU's place on it.
        gpu: usize,
    },
    /// A GPU has too little memory left.
    #[error("GPU {gpu} of {node} has {free} of memory free, {job} needs {needs}")]
    GpuMemory {
        /// The node.
        node: NodeId,
        /// The GPU's place on it.
        gpu: usize,
        /// The job.
        job: JobId,
        /// What it needs.
        needs: Bytes,
        /// What there is.
        free: Bytes,
    },
    /// A node has too few CPUs or too little memory left.
    #[error("{node} has too few CPUs or too little memory free for {job}")]
    Node {
        /// The node.
        node: NodeId,
        /// The job.
        job: JobId,
    },
    /// A job twice in one change.
    #[error("{0} is given two grants at once")]
    Twice(JobId),
    /// The lease ends before it begins.
    #[error("the lease of {0} would end in the past")]
    Lease(JobId),
}

impl ClusterWorld {
    /// An empty cluster.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One job, ended or not.
    #[must_use]
    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(id.index())?.as_ref()
    }

    /// One job that a list of this world named.
    ///
    /// # Panics
    /// When it never arrived.
    #[must_use]
    pub fn known(&self, id: JobId) -> &Job {
        self.job(id).expect("a policy asks for jobs it was shown")
    }

    /// Jobs that run, by id.
    pub fn running(&self) -> impl Iterator<Item = &Job> {
        self.running.iter().map(|id| self.known(*id))
    }

    /// Jobs that wait, by id.
    pub fn waiting(&self) -> impl Iterator<Item = &Job> {
        self.waiting.iter().map(|id| self.known(*id))
    }

    /// How many jobs run and wait.
    #[must_use]
    pub fn load(&self) -> (usize, usize) {
        (self.running.len(), self.waiting.len())
    }

    /// Jobs that arrived since the last turn; all of them when the policy changed.
    #[must_use]
    pub fn fresh(&self) -> &[JobId] {
        &self.fresh
    }

    /// Live nodes, by id.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeSpec> {
        self.nodes.iter().flatten().map(|node| &node.spec)
    }

    /// What is free now.
    #[must_use]
    pub fn free(&self) -> Free {
        Free { nodes: self.nodes.iter().flatten().map(|node| node.free).collect() }
    }

    /// What would be free if nothing ran.
    #[must_use]
    pub fn empty(&self) -> Free {
        Free { nodes: self.nodes().map(free_of).collect() }
    }

    /// Jobs on one GPU, in the order they came.
    #[must_use]
    pub fn holders(&self, node: NodeId, gpu: usize) -> &[JobId] {
        self.node(node).and_then(|node| node.gpus.get(gpu)).map_or(&[], |gpu| &gpu.holders)
    }

    /// Jobs that may share one GPU of a node; 0 of one that is lost.
    #[must_use]
    pub fn slots(&self, node: NodeId) -> u8 {
        self.node(node).map_or(0, |node| node.spec.slots)
    }

    /// Memory free on one GPU.
    #[must_use]
    pub fn gpu_memory_free(&self, node: NodeId, gpu: usize) -> Bytes {
        let free = |node: &Node| Bytes(node.spec.gpu_memory.0.saturating_sub(node.gpus[gpu].memory.0));
        self.node(node).map_or(Bytes(0), free)
    }

    /// How much slower `model` is beside `beside`, in thousandths, if it was measured.
    #[must_use]
    pub fn slowdown_milli(&self, model: ModelId, beside: ModelId) -> Option<u32> {
        self.slowdowns.get(&(model, beside)).copied()
    }

    /// The latest answer to a [`Decision::Replan`].
    #[must_use]
    pub const fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// Time that jobs took of the round that ended with this turn, in s.
    #[must_use]
    pub fn rounds(&self) -> &[(JobId, Real)] {
        &self.rounds
    }

    /// The time in s, as of the latest round, where progress is in rounds.
    #[must_use]
    pub const fn clock(&self) -> Option<Real> {
        self.clock
    }

    /// Whether a job was measured to run on this kind of GPU; jobs that were not measured run on all.
    #[must_use]
    pub fn runs_on_kind(&self, job: JobId, kind: usize) -> bool {
        self.rates.get(&job).is_none_or(|rates| rates.get(kind).is_some_and(|rate| *rate > 0))
    }

    /// Time of a step of a job on 1, 2, … GPUs, as measured; empty where it was not.
    #[must_use]
    pub fn speed(&self, job: JobId) -> &[Span] {
        self.speeds.get(&job).map_or(&[], Vec::as_slice)
    }

    /// GPUs of live nodes.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        self.nodes().map(|node| u32::from(node.gpus)).sum()
    }

    /// GPUs that carry a job.
    #[must_use]
    pub const fn busy_gpus(&self) -> u32 {
        self.busy_gpus
    }

    /// The widest link between a grant's GPUs.
    #[must_use]
    pub fn level(&self, pieces: &[super::Piece]) -> Level {
        let rack = |piece: &super::Piece| self.node(piece.node).map(|node| node.spec.rack);
        match pieces {
            [] | [_] => Level::Node,
            [first, rest @ ..] if rest.iter().all(|piece| rack(piece) == rack(first)) => Level::Rack,
            _ => Level::Cluster,
        }
    }

    /// The kind of a grant's first GPU.
    fn kind_of(&self, grant: &Grant) -> Option<usize> {
        let first = grant.pieces.first()?;
        self.node(first.node).map(|node| node.spec.kind as usize)
    }

    fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.index())?.as_ref()
    }

    fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(id.index())?.as_mut()
    }

    fn job_mut(&mut self, id: JobId) -> Option<&mut Job> {
        self.jobs.get_mut(id.index())?.as_mut()
    }

    /// Whether `grant` fits what is free now.
    fn fit(&self, spec: &JobSpec, grant: &Grant) -> Result<(), Refusal> {
        let job = spec.job;
        if !spec.runs_on(grant.gpus()) {
            return Err(Refusal::Gang { job, needs: spec.gpus, gets: grant.gpus() });
        }
        let mut nodes: Vec<NodeId> = grant.pieces.iter().map(|piece| piece.node).collect();
        nodes.sort_unstable();
        let twice = nodes.windows(2).any(|two| two[0] == two[1]);
        let hollow = grant.pieces.iter().any(|piece| piece.gpus == GpuMask::NONE);
        if twice || hollow || grant.accumulate == 0 {
            return Err(Refusal::Malformed(job));
        }
        let needs = spec.gpu.memory(grant.accumulate);
        for piece in &grant.pieces {
            let node = self.node(piece.node).ok_or(Refusal::NoNode(piece.node))?;
            for at in piece.gpus.iter() {
                let gpu = node.gpus.get(at).filter(|gpu| gpu.holders.len() < usize::from(node.spec.slots));
                let gpu = gpu.ok_or(Refusal::Slots { node: piece.node, gpu: at })?;
                let free = Bytes(node.spec.gpu_memory.0.saturating_sub(gpu.memory.0));
                if needs > free {
                    return Err(Refusal::GpuMemory { node: piece.node, gpu: at, job, needs, free });
                }
            }
            if node.free.cpu_milli < piece.cpu_milli || node.free.memory < piece.memory {
                return Err(Refusal::Node { node: piece.node, job });
            }
        }
        Ok(())
    }

    fn hold(&mut self, spec: &JobSpec, grant: &Grant) {
        let needs = spec.gpu.memory(grant.accumulate);
        for piece in &grant.pieces {
            let node = self.node_mut(piece.node).expect("a grant that fits names live nodes");
            let before = node.free.gpus.count();
            node.free.gpus = node.free.gpus.without(piece.gpus);
            let taken = before - node.free.gpus.count();
            node.free.cpu_milli -= piece.cpu_milli;
            node.free.memory.0 -= piece.memory.0;
            for at in piece.gpus.iter() {
                node.gpus[at].holders.push(spec.job);
                node.gpus[at].memory.0 += needs.0;
            }
            self.busy_gpus += taken;
        }
    }

    fn release(&mut self, spec: &JobSpec, grant: &Grant) {
        let needs = spec.gpu.memory(grant.accumulate);
        for piece in &grant.pieces {
            let Some(node) = self.node_mut(piece.node) else { continue };
            let before = node.free.gpus.count();
            node.free.cpu_milli += piece.cpu_milli;
            node.free.memory.0 += piece.memory.0;
            for at in piece.gpus.iter() {
                let gpu = &mut node.gpus[at];
                gpu.holders.retain(|holder| *holder != spec.job);
                gpu.memory.0 -= needs.0;
                if gpu.holders.is_empty() {
                    node.free.gpus = node.free.gpus.with(GpuMask(1 << at));
                }
            }
            let given = node.free.gpus.count() - before;
            self.busy_gpus -= given;
        }
    }

    /// Takes a job off its GPUs; nothing when it does not run.
    fn halt(&mut self, now: Time, id: JobId) {
        let Some(job) = self.job_mut(id) else { return };
        let (ran, had) = (job.ran(now), job.service(now));
        let Phase::Running { grant, lease, .. } =
            std::mem::replace(&mut job.phase, Phase::Waiting { since: now })
        else {
            unreachable!("callers halt running jobs only")
        };
        (job.ran, job.had) = (ran, had);
        let spec = job.spec.clone();
        self.release(&spec, &grant);
        self.running.remove(&id);
        self.waiting.insert(id);
        if let Some(until) = lease {
            self.leases.remove(&(until, id));
        }
    }

    fn end(&mut self, now: Time, id: JobId) {
        if self.running.contains(&id) {
            self.halt(now, id);
        }
        self.fresh.retain(|fresh| *fresh != id);
        if self.waiting.remove(&id)
            && let Some(job) = self.job_mut(id)
        {
            job.phase = Phase::Ended { at: now };
            self.speeds.remove(&id);
            self.rates.remove(&id);
        }
    }

    /// Makes every live job new, and drops what only the policy before knows about.
    fn hand_over(&mut self) {
        self.fresh = self.running.union(&self.waiting).copied().collect();
        for (_, id) in std::mem::take(&mut self.leases) {
            if let Some(Job { phase: Phase::Running { lease, .. }, .. }) = self.job_mut(id) {
                *lease = None;
            }
        }
        self.plan = None;
        self.rounds.clear();
    }

    fn add_node(&mut self, spec: &NodeSpec) {
        let at = spec.node.index();
        if self.nodes.len() <= at {
            self.nodes.resize(at + 1, None);
        }
        if self.nodes[at].is_none() {
            let gpus = vec![Gpu::default(); usize::from(spec.gpus)];
            self.nodes[at] = Some(Node { spec: spec.clone(), free: free_of(spec), gpus });
        }
    }

    fn lose_node(&mut self, now: Time, node: NodeId) {
        let on_it =
            |job: &&Job| job.grant().is_some_and(|grant| grant.pieces.iter().any(|piece| piece.node == node));
        let hit: Vec<JobId> = self.running().filter(on_it).map(|job| job.spec.job).collect();
        for id in hit {
            self.halt(now, id);
        }
        if let Some(slot) = self.nodes.get_mut(node.index()) {
            *slot = None;
        }
    }

    fn add_job(&mut self, spec: &JobSpec) {
        let at = spec.job.index();
        if self.jobs.len() <= at {
            self.jobs.resize(at + 1, None);
        }
        if self.jobs[at].is_none() {
            let phase = Phase::Waiting { since: spec.arrival };
            self.jobs[at] = Some(Job {
                spec: spec.clone(),
                phase,
                left: spec.solo,
                ran: Span::ZERO,
                had: Span::ZERO,
                counted: spec.arrival,
                steps_left: None,
                kind: None,
                starts: 0,
            });
            self.waiting.insert(spec.job);
            self.fresh.push(spec.job);
        }
    }

    fn start(&mut self, now: Time, id: JobId, grant: &Grant, lease: Option<Time>) -> Result<(), Refusal> {
        let job = self.job(id).ok_or(Refusal::NoJob(id))?;
        match job.phase {
            Phase::Waiting { .. } => {}
            Phase::Running { .. } => return Err(Refusal::NotWaiting(id)),
            Phase::Ended { .. } => return Err(Refusal::NoJob(id)),
        }
        if lease.is_some_and(|until| until <= now) {
            return Err(Refusal::Lease(id));
        }
        let spec = job.spec.clone();
        self.fit(&spec, grant)?;
        self.hold(&spec, grant);
        let kind = self.kind_of(grant);
        let job = self.job_mut(id).expect("the job was found above");
        job.kind = kind;
        job.phase = Phase::Running { grant: grant.clone(), since: now, lease };
        job.counted = now;
        job.starts += 1;
        self.waiting.remove(&id);
        self.running.insert(id);
        self.leases.extend(lease.map(|until| (until, id)));
        Ok(())
    }

    fn regrant(&mut self, now: Time, changes: &[super::Regrant]) -> Result<(), Refusal> {
        let mut old = Vec::with_capacity(changes.len());
        for (place, change) in changes.iter().enumerate() {
            let job = self.job(change.job).ok_or(Refusal::NoJob(change.job))?;
            let grant = job.grant().ok_or(Refusal::NotRunning(change.job))?;
            if changes[..place].iter().any(|earlier| earlier.job == change.job) {
                return Err(Refusal::Twice(change.job));
            }
            old.push((job.spec.clone(), grant.clone()));
        }
        for (spec, grant) in &old {
            self.release(spec, grant);
        }
        for (place, change) in changes.iter().enumerate() {
            let spec = &old[place].0;
            if let Err(refusal) = self.fit(spec, &change.grant) {
                for (done, (spec, _)) in changes[..place].iter().zip(&old) {
                    self.release(spec, &done.grant);
                }
                for (spec, grant) in &old {
                    self.hold(spec, grant);
                }
                return Err(refusal);
            }
            self.hold(spec, &change.grant);
        }
        for change in changes {
            let kind = self.kind_of(&change.grant);
            let job = self.job_mut(change.job).expect("each job was found above");
            (job.had, job.counted, job.kind) = (job.service(now), now, kind);
            if let Phase::Running { grant, .. } = &mut job.phase {
                *grant = change.grant.clone();
            }
        }
        Ok(())
    }

    fn extend(&mut self, now: Time, id: JobId, until: Time) -> Result<(), Refusal> {
        if until <= now {
            return Err(Refusal::Lease(id));
        }
        let job = self.job_mut(id).ok_or(Refusal::NoJob(id))?;
        let Phase::Running { lease, .. } = &mut job.phase else { return Err(Refusal::NotRunning(id)) };
        let old = lease.replace(until);
        if let Some(old) = old {
            self.leases.remove(&(old, id));
        }
        self.leases.insert((until, id));
        Ok(())
    }

    /// Asserts the invariants of this file's head; for tests.
    ///
    /// # Panics
    /// When one is broken.
    pub fn check(&self) {
        let mut expected = self.empty();
        let mut holders: BTreeMap<(NodeId, usize), (BTreeSet<JobId>, u64)> = BTreeMap::new();
        for job in self.running() {
            let grant = job.grant().expect("a running job holds a grant");
            assert!(job.runs_on(grant.gpus()), "{} holds its gang", job.spec.job);
            for piece in &grant.pieces {
                let node = expected.node_mut(piece.node).expect("nothing is held on a lost node");
                node.gpus = node.gpus.without(piece.gpus);
                node.cpu_milli = node.cpu_milli.checked_sub(piece.cpu_milli).expect("CPUs are granted once");
                node.memory.0 = node.memory.0.checked_sub(piece.memory.0).expect("memory is granted once");
                for at in piece.gpus.iter() {
                    let (jobs, memory) = holders.entry((piece.node, at)).or_default();
                    assert!(jobs.insert(job.spec.job), "a job holds a GPU once");
                    *memory += job.spec.gpu.memory(grant.accumulate).0;
                }
            }
        }
        assert_eq!(self.free(), expected, "what is free is what no job holds");
        for node in self.nodes.iter().flatten() {
            for (at, gpu) in node.gpus.iter().enumerate() {
                let (jobs, memory) = holders.remove(&(node.spec.node, at)).unwrap_or_default();
                assert!(jobs.len() <= usize::from(node.spec.slots), "a GPU carries at most its slots");
                assert!(memory <= node.spec.gpu_memory.0, "a GPU's memory is not granted twice");
                assert_eq!(gpu.holders.iter().copied().collect::<BTreeSet<_>>(), jobs);
                assert_eq!(gpu.memory.0, memory);
            }
        }
        let busy: u32 = self.nodes().map(|node| u32::from(node.gpus)).sum::<u32>() - self.free().gpus();
        assert_eq!(self.busy_gpus, busy, "busy GPUs are those that are not free");
        assert!(holders.is_empty(), "every held GPU is on a live node");
    }
}

const fn free_of(spec: &NodeSpec) -> FreeNode {
    FreeNode {
        node: spec.node,
        kind: spec.kind,
        size: spec.gpus as u32,
        gpus: GpuMask::all(spec.gpus),
        cpu_milli: spec.cpu_milli,
        memory: spec.memory,
    }
}

impl World for ClusterWorld {
    type Event = Event;
    type Decision = Decision;
    type Refusal = Refusal;

    fn apply(&mut self, now: Time, event: &Event) {
        match event {
            Event::NodeAdded { spec } => self.add_node(spec),
            Event::NodeLost { node } => self.lose_node(now, *node),
            Event::JobArrived { spec } => self.add_job(spec),
            Event::JobCancelled { job } | Event::JobFinished { job } => self.end(now, *job),
            Event::JobStarted { job, at } => {
                if let Some(Job { phase: Phase::Running { since, .. }, counted, .. }) = self.job_mut(*job) {
                    (*since, *counted) = (*at, *at);
                }
            }
            Event::JobStopped { .. } => {}
            Event::JobFailed { job } => {
                if self.running.contains(job) {
                    self.halt(now, *job);
                }
            }
            Event::JobProgressed { job, left } => {
                if let Some(job) = self.job_mut(*job) {
                    job.left = *left;
                }
            }
            Event::StepsCounted { job, left } => {
                if let Some(job) = self.job_mut(*job) {
                    job.steps_left = Some(*left);
                }
            }
            Event::SpeedMeasured { job, steps } => drop(self.speeds.insert(*job, steps.clone())),
            Event::RatesMeasured { job, micro } => drop(self.rates.insert(*job, micro.clone())),
            Event::RoundDone { job, took } => self.rounds.push((*job, *took)),
            Event::RoundEnded { at } => self.clock = Some(*at),
            Event::PlanReady { number, shares, pairs } => {
                self.plan = Some(Plan { number: *number, shares: shares.clone(), pairs: pairs.clone() });
            }
            Event::PolicyChanged => self.hand_over(),
            Event::PairMeasured { model, beside, slowdown_milli } => {
                self.slowdowns.insert((*model, *beside), *slowdown_milli);
            }
        }
    }

    fn forced(&mut self, now: Time) -> Vec<Decision> {
        let due = self.leases.iter().take_while(|(until, _)| *until <= now);
        due.map(|(_, job)| Decision::Stop { job: *job }).collect()
    }

    fn admit(&mut self, now: Time, decision: &Decision) -> Result<(), Refusal> {
        match decision {
            Decision::Start { job, grant, lease } => self.start(now, *job, grant, *lease),
            Decision::Stop { job } => {
                if !self.running.contains(job) {
                    return Err(Refusal::NotRunning(*job));
                }
                self.halt(now, *job);
                Ok(())
            }
            Decision::Regrant { changes } => self.regrant(now, changes),
            Decision::Extend { job, until } => self.extend(now, *job, *until),
            // A question or a trail changes nothing.
            Decision::Replan { .. } | Decision::Record { .. } => Ok(()),
        }
    }

    fn settle(&mut self) {
        self.fresh.clear();
        self.rounds.clear();
    }

    fn wake(&self) -> Option<Time> {
        self.leases.first().map(|(until, _)| *until)
    }
}
