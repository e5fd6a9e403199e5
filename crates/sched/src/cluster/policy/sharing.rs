//! Shortest job first, sharing GPUs with running jobs: SJF-BSBF (arXiv 2407.13088), and first-fit sharing beside it.
//!
//! Running jobs are never stopped. A job for which too few GPUs are free may join others, two to a GPU, in smaller
//! sub-batches where memory asks for it; with [`Benefit::BestFirst`] only where that shortens the mean completion time of
//! the pair, the best pair first.

use super::{Place, Share};
use crate::Policy;
use crate::cluster::pair::{Member, queued, shared};
use crate::cluster::{ClusterWorld, Decision, Free, GpuMask, Grant, Job, JobId, NodeId, Piece, Regrant};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use vocab::{Bytes, Span, Time};

/// When sharing is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Benefit {
    /// Never: plain shortest job first.
    Never,
    /// Whenever memory allows, first fit (SJF-FFS).
    FirstFit,
    /// Where the pair gains, best gain first (SJF-BSBF).
    BestFirst,
    /// Where the pair's throughputs, each over that alone, come to more than 1, the largest first; in order of arrival
    /// (Gandiva's packing, OSDI'18).
    Throughput,
}

/// Shortest job first, sharing GPUs with running jobs.
#[derive(Clone, Debug)]
pub struct Sharing {
    benefit: Benefit,
}

/// A running job that could be joined.
struct Host {
    /// Where it is alone.
    alone: Vec<(NodeId, GpuMask)>,
    /// Twice the pair's mean completion time, in thousandths of nanoseconds.
    cost: u128,
    /// Sub-batches the newcomer would need.
    accumulate: u32,
}

impl Sharing {
    /// Sharing under `benefit`.
    #[must_use]
    pub const fn new(benefit: Benefit) -> Self {
        Self { benefit }
    }

    /// Hosts for `job`, best first, among those no other newcomer of this turn has joined.
    fn hosts(&self, world: &ClusterWorld, job: &Job, joined: &BTreeSet<(NodeId, usize)>) -> Vec<Host> {
        if self.benefit == Benefit::Never {
            return Vec::new();
        }
        let mut hosts: Vec<Host> =
            world.running().filter_map(|host| self.host(world, job, host, joined)).collect();
        if self.benefit != Benefit::FirstFit {
            hosts.sort_by_key(|host| host.cost);
        }
        hosts
    }

    fn host(
        &self,
        world: &ClusterWorld,
        job: &Job,
        host: &Job,
        joined: &BTreeSet<(NodeId, usize)>,
    ) -> Option<Host> {
        let (mut alone, mut memory) = (Vec::new(), Bytes(u64::MAX));
        for piece in host.grant()?.pieces.iter().filter(|piece| world.slots(piece.node) > 1) {
            let free = |gpu: &usize| {
                world.holders(piece.node, *gpu).len() == 1 && !joined.contains(&(piece.node, *gpu))
            };
            let mask = piece.gpus.iter().filter(free).fold(0, |mask, gpu| mask | 1 << gpu);
            for gpu in GpuMask(mask).iter() {
                memory = memory.min(world.gpu_memory_free(piece.node, gpu));
            }
            if mask != 0 {
                alone.push((piece.node, GpuMask(mask)));
            }
        }
        if alone.is_empty() {
            return None;
        }
        let fitting = sub_batches(job).filter(|accumulate| job.spec.gpu.memory(*accumulate) <= memory);
        if self.benefit == Benefit::FirstFit {
            return fitting.min().map(|accumulate| Host { alone, cost: 0, accumulate });
        }
        let newcomer = u64::from(world.slowdown_milli(job.spec.model, host.spec.model)?);
        let runner = u64::from(world.slowdown_milli(host.spec.model, job.spec.model)?);
        let pair = |accumulate: u32| {
            let slowdown_milli = newcomer * job.spec.gpu.stretch_milli(accumulate) / 1_000;
            if self.benefit == Benefit::Throughput {
                let both = 1_000_000 / slowdown_milli.max(1) + 1_000_000 / runner.max(1);
                return (both > 1_000).then(|| (u128::MAX - u128::from(both), accumulate));
            }
            let newcomer = Member { left: job.left, slowdown_milli };
            let runner = Member { left: host.left, slowdown_milli: runner };
            let cost = shared(newcomer, runner);
            (cost < queued(newcomer, runner)).then_some((cost, accumulate))
        };
        let (cost, accumulate) = fitting.filter_map(pair).min()?;
        Some(Host { alone, cost, accumulate })
    }

    /// A grant for `job` that joins others on what is not free.
    fn join(
        &self,
        world: &ClusterWorld,
        job: &Job,
        free: &mut Free,
        joined: &BTreeSet<(NodeId, usize)>,
    ) -> Option<Grant> {
        let share = Share::asked(&job.spec);
        let mut left = job.spec.gpus;
        let (mut taken, mut accumulate): (BTreeMap<NodeId, GpuMask>, u32) = (BTreeMap::new(), 1);
        let mut take = |node: NodeId, gpus: GpuMask| {
            let here = gpus.lowest(left);
            left -= here.count();
            if here != GpuMask::NONE {
                let mask = taken.entry(node).or_default();
                *mask = mask.with(here);
            }
            left
        };
        for node in &free.nodes {
            take(node.node, node.gpus);
        }
        for host in self.hosts(world, job, joined) {
            accumulate = accumulate.max(host.accumulate);
            if host.alone.into_iter().any(|(node, gpus)| take(node, gpus) == 0) {
                let piece = |(node, gpus): (NodeId, GpuMask)| {
                    let count = u64::from(gpus.count());
                    let (cpu_milli, memory) = (share.cpu_milli * count, Bytes(share.memory.0 * count));
                    Piece { node, gpus, cpu_milli, memory }
                };
                let grant = Grant { pieces: taken.into_iter().map(piece).collect(), accumulate };
                return occupy(free, &grant).then_some(grant);
            }
        }
        None
    }
}

/// Takes a grant's CPUs, memory and free GPUs out of `free`; false, and nothing taken, when a node has too little.
fn occupy(free: &mut Free, grant: &Grant) -> bool {
    let mut after = free.clone();
    for piece in &grant.pieces {
        let Some(node) = after.node_mut(piece.node) else { return false };
        let (cpu, memory) =
            (node.cpu_milli.checked_sub(piece.cpu_milli), node.memory.0.checked_sub(piece.memory.0));
        let (Some(cpu_milli), Some(memory)) = (cpu, memory) else { return false };
        (node.cpu_milli, node.memory) = (cpu_milli, Bytes(memory));
        node.gpus = node.gpus.without(piece.gpus);
    }
    *free = after;
    true
}

/// Sub-batches worth trying: halves of the batch, down to one row.
fn sub_batches(job: &Job) -> impl Iterator<Item = u32> {
    let rows = job.spec.gpu.rows.max(1);
    std::iter::successors(Some(1u32), |count| count.checked_mul(2)).take_while(move |count| *count <= rows)
}

/// Jobs in sub-batches that are alone again go back to their whole batch.
fn back_to_whole(world: &ClusterWorld) -> Option<Decision> {
    let alone = |job: &&Job| {
        let grant = job.grant().expect("a running job holds a grant");
        let alone = |piece: &Piece| piece.gpus.iter().all(|gpu| world.holders(piece.node, gpu).len() == 1);
        grant.accumulate > 1 && grant.pieces.iter().all(alone)
    };
    let whole = |job: &Job| Regrant {
        job: job.spec.job,
        grant: Grant::whole(job.grant().expect("a running job holds a grant").pieces.clone()),
    };
    let changes: Vec<Regrant> = world.running().filter(alone).map(whole).collect();
    (!changes.is_empty()).then_some(Decision::Regrant { changes })
}

impl Policy<ClusterWorld> for Sharing {
    fn name(&self) -> &'static str {
        match self.benefit {
            Benefit::Never => "sjf",
            Benefit::FirstFit => "sjf-ffs",
            Benefit::BestFirst => "sjf-bsbf",
            Benefit::Throughput => "gandiva",
        }
    }

    fn decide(&mut self, _now: Time, world: &ClusterWorld) -> Vec<Decision> {
        let by_arrival = self.benefit == Benefit::Throughput;
        let key = |job: &Job| {
            (if by_arrival { job.spec.arrival.since(Time::ZERO) } else { job.left }, job.spec.job)
        };
        let mut queue: Vec<(Span, JobId)> = world.waiting().map(key).collect();
        queue.sort_unstable();
        let mut free = world.free();
        let mut joined = BTreeSet::new();
        let mut decisions = Vec::new();
        for (_, id) in queue {
            let job = world.known(id);
            let (gpus, share) = (job.spec.gpus, Share::asked(&job.spec));
            let alone = Place::Consolidated
                .take(&mut free, gpus, share)
                .or_else(|| Place::Anywhere.take(&mut free, gpus, share))
                .map(Grant::whole);
            let Some(grant) = alone.or_else(|| self.join(world, job, &mut free, &joined)) else { continue };
            for piece in &grant.pieces {
                joined.extend(piece.gpus.iter().map(|gpu| (piece.node, gpu)));
            }
            decisions.push(Decision::Start { job: id, grant, lease: None });
        }
        // Retuning comes first only when nobody joins, so that a newcomer never meets a batch grown in the same turn.
        if decisions.is_empty() {
            decisions.extend(back_to_whole(world));
        }
        decisions
    }

    fn wake(&self, _now: Time) -> Option<Time> {
        None
    }
}
