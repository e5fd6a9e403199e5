//! Gavel (OSDI'20): shares of time by kind of GPU, worked out by the driver as a linear program, and rounds that follow them.
//!
//! ```text
//! jobs change ──▶ Replan ──▶ PlanReady: x[job][kind] ──▶ each round, by x over the share of time had so far
//! ```
//!
//! A job's priority on a kind of GPU is its share there over the part of that kind's time it has had since the latest plan.
//! Ties keep the order of arrival. Plans are not made more often than Gavel's authors do.

use super::ordered::reach;
use super::twister::Twister;
use super::{Place, Share};
use crate::Policy;
use crate::cluster::{Claim, ClusterWorld, Decision, Free, Goal, Grant, Job, JobId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use vocab::{Span, Time};

/// Shares of time by kind of GPU.
#[derive(Clone, Debug)]
pub struct Gavel {
    goal: Goal,
    round: Span,
    jobs: BTreeMap<JobId, Shares>,
    /// Time given out on each kind since the latest plan.
    given: Vec<u64>,
    /// When time was last counted anew.
    since: Time,
    stale: bool,
    asked: u64,
    known: u64,
    shuffle: Twister,
}

/// What a job should have and had, by kind of GPU.
#[derive(Clone, Debug)]
struct Shares {
    /// Share of time, in 10^-15; nothing before the first plan with it.
    plan: Option<Vec<u64>>,
    /// Time had since the latest plan, in ns, beginning at half a round.
    had: Vec<u64>,
    /// Time it should have had more than it had, over all plans, in ns.
    owed: Vec<i128>,
}

/// A whole share.
const ONE: i128 = 1_000_000_000_000_000;

/// Time between two plans at least (Gavel's simulator).
const PLAN_EVERY: Span = Span::from_ms(1_920_000);

/// A job's place in the queue of a kind: priority, what it is owed, its share.
type Rank = (u128, i128, u64);

impl Gavel {
    /// Shares that make `goal` best, in rounds of `round`.
    #[must_use]
    pub fn new(goal: Goal, round: Span) -> Self {
        Self {
            goal,
            round,
            jobs: BTreeMap::new(),
            given: Vec::new(),
            since: Time::ZERO,
            stale: false,
            asked: 0,
            known: 0,
            // The seed of Gavel's own order of kinds.
            shuffle: Twister::new(5),
        }
    }

    fn half(&self) -> u64 {
        self.round.ns() / 2
    }

    /// Counts the time jobs had in the round that ended, and takes in who came and went.
    fn follow(&mut self, world: &ClusterWorld, kinds: usize) {
        let half = self.half();
        self.given.resize(kinds, 0);
        for job in self.jobs.values_mut() {
            job.had.resize(kinds, half);
            job.owed.resize(kinds, 0);
            if let Some(plan) = &mut job.plan {
                plan.resize(kinds, 0);
            }
        }
        for (id, took) in world.rounds() {
            let kind = world.job(*id).and_then(Job::last_kind);
            if let (Some(kind), Some(job)) = (kind, self.jobs.get_mut(id)) {
                job.had[kind] += took.ns();
                self.given[kind] += took.ns();
            }
        }
        let live: BTreeSet<JobId> = world.running().chain(world.waiting()).map(|job| job.spec.job).collect();
        let before = self.jobs.len();
        self.jobs.retain(|id, _| live.contains(id));
        self.stale |= self.jobs.len() < before || !world.fresh().is_empty();
        for id in live {
            self.jobs.entry(id).or_insert_with(|| {
                let (had, owed) = (vec![half; kinds], vec![0; kinds]);
                Shares { plan: None, had, owed }
            });
        }
    }

    /// Begins to count time anew, and notes what each job is owed.
    fn reset(&mut self, now: Time) {
        let half = self.half();
        let passed = i128::from(now.since(self.since).ns());
        for job in self.jobs.values_mut() {
            for kind in 0..self.given.len() {
                let due = job.plan.as_ref().map_or(0, |plan| i128::from(plan[kind]) * passed / ONE);
                job.owed[kind] += due - (i128::from(job.had[kind]) - i128::from(half));
                job.had[kind] = half;
            }
        }
        for given in &mut self.given {
            *given = half * self.jobs.len() as u64;
        }
        self.since = now;
    }

    fn rank(&self, job: &Shares, kind: usize) -> Rank {
        let Some(plan) = &job.plan else { return (0, job.owed[kind], 0) };
        let share = u128::from(plan[kind]);
        let given = u128::from(self.given[kind]);
        let priority = match (given * 1_000_000).checked_div(u128::from(job.had[kind])) {
            Some(inverse) if given > 0 => share * inverse / 1_000,
            _ => share * 1_000_000_000_000,
        };
        (priority, job.owed[kind], plan[kind])
    }

    /// Who runs on which kind in the next round.
    fn choose(&mut self, world: &ClusterWorld, free: &Free) -> Vec<(JobId, usize)> {
        let mut kinds: Vec<usize> = (0..self.given.len()).collect();
        if matches!(self.goal, Goal::MaxMinAlike | Goal::MakespanAlike) {
            self.shuffle.shuffle(&mut kinds);
        }
        let (mut chosen, mut taken) = (Vec::new(), BTreeSet::new());
        for kind in kinds {
            let mut room: u32 = free
                .nodes
                .iter()
                .filter(|node| node.kind as usize == kind)
                .map(|node| node.gpus.count())
                .sum();
            let mut queue: Vec<(Rank, JobId)> =
                self.jobs.iter().map(|(id, job)| (self.rank(job, kind), *id)).collect();
            queue.sort_by_key(|(rank, _)| Reverse(*rank));
            for (_, id) in queue {
                let gang = world.known(id).spec.gpus;
                if room == 0 {
                    break;
                }
                if taken.contains(&id) || gang > room || !world.runs_on_kind(id, kind) {
                    continue;
                }
                room -= gang;
                taken.insert(id);
                // A job that no plan knows takes its place but does not run: so does Gavel's simulator.
                if self.jobs[&id].plan.is_some() {
                    chosen.push((id, kind));
                }
            }
        }
        chosen
    }

    fn question(&mut self, now: Time, world: &ClusterWorld) -> Decision {
        self.asked += 1;
        let claim = |id: &JobId| {
            let job = world.known(*id);
            Claim {
                job: *id,
                weight_milli: 1_000,
                age: now.since(job.spec.arrival),
                steps_left: job.steps_left.unwrap_or(1),
            }
        };
        let jobs = self.jobs.keys().map(claim).collect();
        Decision::Replan { number: self.asked, goal: self.goal, jobs }
    }
}

/// GPUs of one kind: the others count as taken.
fn only(free: &Free, kind: usize) -> Free {
    Free { nodes: free.nodes.iter().filter(|node| node.kind as usize == kind).copied().collect() }
}

/// Grants for those chosen: what they hold if they stay on their kind, else anew, the largest first.
fn place(world: &ClusterWorld, mut free: Free, chosen: Vec<(JobId, usize)>) -> Vec<(JobId, Grant)> {
    let mut chosen: Vec<(&Job, usize)> =
        chosen.into_iter().map(|(id, kind)| (world.known(id), kind)).collect();
    chosen.sort_by_key(|(job, _)| Reverse(job.spec.gpus));
    let stays = |job: &Job, kind: usize| job.grant().filter(|_| job.last_kind() == Some(kind)).cloned();
    let mut grants = Vec::with_capacity(chosen.len());
    for (job, kind) in &chosen {
        if let Some(grant) = stays(job, *kind) {
            free.take(&grant);
            grants.push((job.spec.job, grant));
        }
    }
    for (job, kind) in chosen.into_iter().filter(|(job, kind)| stays(job, *kind).is_none()) {
        let mut here = only(&free, kind);
        let (gpus, share) = (job.spec.gpus, Share::asked(&job.spec));
        let pieces = Place::Consolidated
            .take(&mut here, gpus, share)
            .or_else(|| Place::Anywhere.take(&mut here, gpus, share));
        if let Some(pieces) = pieces {
            let grant = Grant::whole(pieces);
            free.take(&grant);
            grants.push((job.spec.job, grant));
        }
    }
    grants
}

impl Policy<ClusterWorld> for Gavel {
    fn name(&self) -> &'static str {
        match self.goal {
            Goal::MaxMin => "gavel",
            Goal::MaxMinAlike => "gavel-alike",
            Goal::FinishTimeFairness => "gavel-ftf",
            Goal::Makespan => "gavel-makespan",
            Goal::MakespanAlike => "gavel-makespan-alike",
        }
    }

    fn decide(&mut self, now: Time, world: &ClusterWorld) -> Vec<Decision> {
        let free = world.empty();
        let kinds =
            free.nodes.iter().map(|node| node.kind as usize + 1).max().unwrap_or(0).max(self.given.len());
        self.follow(world, kinds);
        let answer = world.plan().filter(|plan| plan.number == self.asked && self.asked > 0);
        if let Some(plan) = answer.filter(|_| self.known < self.asked) {
            self.known = self.asked;
            for job in self.jobs.values_mut() {
                job.plan = None;
            }
            for (id, shares) in &plan.shares {
                if let Some(job) = self.jobs.get_mut(id) {
                    job.plan = Some((0..kinds).map(|kind| shares.get(kind).copied().unwrap_or(0)).collect());
                }
            }
        } else {
            let due = self.since == Time::ZERO || now.since(self.since) >= PLAN_EVERY;
            if self.stale && due && !self.jobs.is_empty() {
                self.stale = false;
                self.reset(now);
                return vec![self.question(now, world)];
            }
        }
        let chosen = self.choose(world, &free);
        let wanted = place(world, free, chosen);
        reach(world, wanted, None)
    }

    fn wake(&self, now: Time) -> Option<Time> {
        (!self.jobs.is_empty()).then(|| now + self.round)
    }
}
