//! Gavel (OSDI'20): shares of time by kind of GPU, worked out by the driver as a linear program, and rounds that follow them.
//!
//! ```text
//! jobs change ──▶ Replan ──▶ PlanReady: x[job][kind] ──▶ each round, by x over the share of time had so far
//! ```
//!
//! A job's priority on a kind of GPU is its share there over the part of that kind's time it has had since the latest plan.
//! Ties keep the order of arrival. Plans are not made more often than Gavel's authors do. Times are summed and divided in
//! binary fractions as in their simulator: jobs of one model are often owed the same but for the last bit, which then
//! decides who goes first.

use super::ordered::reach;
use super::twister::Twister;
use super::{Place, Share};
use crate::Policy;
use crate::cluster::{Claim, ClusterWorld, Decision, Free, Goal, Grant, Job, JobId, Real};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use vocab::{Span, Time};

/// Shares of time by kind of GPU.
#[derive(Clone, Debug)]
pub struct Gavel {
    goal: Goal,
    round: Span,
    jobs: BTreeMap<JobId, Shares>,
    /// Time given out on each kind since the latest plan, in s.
    given: Vec<f64>,
    /// When time was last counted anew, in s.
    since: f64,
    stale: bool,
    asked: u64,
    known: u64,
    shuffle: Twister,
}

/// What a job should have and had, by kind of GPU.
#[derive(Clone, Debug)]
struct Shares {
    /// Share of time; nothing before the first plan with it.
    plan: Option<Vec<Real>>,
    /// Time had since the latest plan, in s, beginning at half a round.
    had: Vec<f64>,
    /// Time it should have had more than it had, over all plans, in s.
    owed: Vec<f64>,
}

/// Seconds between two plans at least (Gavel's simulator).
const PLAN_EVERY_S: f64 = 1_920.0;

/// A job's place in the queue of a kind: priority, what it is owed, its share.
type Rank = (Real, Real, Real);

impl Gavel {
    /// Shares that make `goal` best, in rounds of `round`.
    #[must_use]
    pub fn new(goal: Goal, round: Span) -> Self {
        Self {
            goal,
            round,
            jobs: BTreeMap::new(),
            given: Vec::new(),
            since: 0.0,
            stale: false,
            asked: 0,
            known: 0,
            // The seed of Gavel's own order of kinds.
            shuffle: Twister::new(5),
        }
    }

    fn half(&self) -> f64 {
        self.round.as_secs_f64() / 2.0
    }

    /// Counts the time jobs had in the round that ended, and takes in who came and went.
    fn follow(&mut self, world: &ClusterWorld, kinds: usize) {
        let half = self.half();
        self.given.resize(kinds, 0.0);
        for job in self.jobs.values_mut() {
            job.had.resize(kinds, half);
            job.owed.resize(kinds, 0.0);
            if let Some(plan) = &mut job.plan {
                plan.resize(kinds, Real::ZERO);
            }
        }
        // The last to end is counted first.
        let mut rounds = world.rounds().to_vec();
        rounds.sort_by_key(|(_, took)| Reverse(*took));
        for (id, took) in rounds {
            // A kind that is gone needs no account.
            let kind = world.job(id).and_then(Job::last_kind).filter(|kind| *kind < kinds);
            if let (Some(kind), Some(job)) = (kind, self.jobs.get_mut(&id)) {
                job.had[kind] += took.value();
                self.given[kind] += took.value();
            }
        }
        let live: BTreeSet<JobId> = world.running().chain(world.waiting()).map(|job| job.spec.job).collect();
        let before = self.jobs.len();
        self.jobs.retain(|id, _| live.contains(id));
        self.stale |= self.jobs.len() < before || !world.fresh().is_empty();
        for id in live {
            self.jobs.entry(id).or_insert_with(|| {
                let (had, owed) = (vec![half; kinds], vec![0.0; kinds]);
                Shares { plan: None, had, owed }
            });
        }
    }

    /// Begins to count time anew, and notes what each job is owed.
    fn reset(&mut self, now: f64) {
        let half = self.half();
        let passed = now - self.since;
        for job in self.jobs.values_mut() {
            for kind in 0..self.given.len() {
                let due = job.plan.as_ref().map_or(0.0, |plan| plan[kind].value() * passed);
                job.owed[kind] += due - (job.had[kind] - half);
                job.had[kind] = half;
            }
        }
        for given in &mut self.given {
            *given = half * self.jobs.len() as f64;
        }
        self.since = now;
    }

    fn rank(&self, job: &Shares, kind: usize) -> Rank {
        let owed = Real::of(job.owed[kind]);
        let Some(plan) = &job.plan else { return (Real::ZERO, owed, Real::ZERO) };
        let share = plan[kind].value();
        let given = self.given[kind];
        let priority = if given > 0.0 { share / (job.had[kind] / given) } else { share * 1e9 };
        (Real::of(priority), owed, plan[kind])
    }

    /// Who runs on which kind in the next round.
    fn choose(&mut self, world: &ClusterWorld, free: &Free) -> Vec<(JobId, usize)> {
        let mut kinds: Vec<usize> = (0..self.given.len()).collect();
        if matches!(self.goal, Goal::MaxMinAlike | Goal::MakespanAlike | Goal::Isolated) {
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

/// The time in s, to the last bit where a round just ended.
fn clock(now: Time, world: &ClusterWorld) -> f64 {
    let at = |clock: &Real| Time::ZERO + Span::from_secs_f64(clock.value().max(0.0));
    let ended = world.clock().filter(|clock| at(clock) == now);
    ended.map_or(now.since(Time::ZERO).as_secs_f64(), Real::value)
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
            Goal::Isolated => "gavel-isolated",
            Goal::Speed => "gavel-speed",
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
                    job.plan = Some(
                        (0..kinds).map(|kind| shares.get(kind).copied().unwrap_or(Real::ZERO)).collect(),
                    );
                }
            }
        } else {
            let clock = clock(now, world);
            let due = self.since == 0.0 || clock - self.since >= PLAN_EVERY_S;
            if self.stale && due && !self.jobs.is_empty() {
                self.stale = false;
                self.reset(clock);
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
