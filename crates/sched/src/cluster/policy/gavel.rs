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

use super::twister::Twister;
use super::{Place, Share};
use crate::Policy;
use crate::cluster::{Claim, ClusterWorld, Decision, Free, Goal, Grant, Job, JobId, Phase, Real, Regrant};
use std::cmp::Reverse;
use vocab::{Span, Time};

/// Shares of time by kind of GPU.
#[derive(Clone, Debug)]
pub struct Gavel {
    goal: Goal,
    round: Span,
    /// Live jobs, by id.
    jobs: Vec<Shares>,
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
    job: JobId,
    gpus: u32,
    /// Whether it has its place in the round that is being made.
    chosen: bool,
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
            jobs: Vec::new(),
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

    fn row(&mut self, job: JobId) -> Option<&mut Shares> {
        let at = self.jobs.binary_search_by_key(&job, |row| row.job).ok()?;
        self.jobs.get_mut(at)
    }

    /// Makes room for kinds that were not there before.
    fn widen(&mut self, kinds: usize) {
        let half = self.half();
        self.given.resize(kinds, 0.0);
        for row in &mut self.jobs {
            row.had.resize(kinds, half);
            row.owed.resize(kinds, 0.0);
            if let Some(plan) = &mut row.plan {
                plan.resize(kinds, Real::ZERO);
            }
        }
    }

    /// Counts the time jobs had in the round that ended, and takes in who came and went.
    fn follow(&mut self, world: &ClusterWorld, kinds: usize) {
        if self.given.len() < kinds {
            self.widen(kinds);
        }
        // The last to end is counted first.
        let mut rounds = world.rounds().to_vec();
        rounds.sort_by_key(|(_, took)| Reverse(*took));
        for (id, took) in rounds {
            // A kind that is gone needs no account.
            let kind = world.job(id).and_then(Job::last_kind).filter(|kind| *kind < kinds);
            if let Some((kind, row)) = kind.zip(self.row(id)) {
                row.had[kind] += took.value();
                self.given[kind] += took.value();
            }
        }
        let (running, waiting) = world.load();
        if world.fresh().is_empty() && running + waiting == self.jobs.len() {
            return;
        }
        self.stale = true;
        self.jobs.retain(|row| !matches!(world.known(row.job).phase, Phase::Ended { .. }));
        let half = self.half();
        for id in world.fresh() {
            if let Err(at) = self.jobs.binary_search_by_key(id, |row| row.job) {
                let (had, owed) = (vec![half; kinds], vec![0.0; kinds]);
                let gpus = world.known(*id).spec.gpus;
                self.jobs.insert(at, Shares { job: *id, gpus, chosen: false, plan: None, had, owed });
            }
        }
    }

    /// Begins to count time anew, and notes what each job is owed.
    fn reset(&mut self, now: f64) {
        let half = self.half();
        let passed = now - self.since;
        for job in &mut self.jobs {
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
    fn choose(&mut self, world: &ClusterWorld) -> Vec<(JobId, usize)> {
        let mut kinds: Vec<usize> = (0..self.given.len()).collect();
        if matches!(self.goal, Goal::MaxMinAlike | Goal::MakespanAlike | Goal::Isolated) {
            self.shuffle.shuffle(&mut kinds);
        }
        let mut rooms = vec![0; kinds.len()];
        for node in world.nodes() {
            rooms[node.kind as usize] += u32::from(node.gpus);
        }
        self.jobs.iter_mut().for_each(|row| row.chosen = false);
        let (mut chosen, mut queue) = (Vec::with_capacity(self.jobs.len()), Vec::new());
        for kind in kinds {
            let mut room: u32 = rooms[kind];
            let open = self.jobs.iter().enumerate().filter(|(_, row)| !row.chosen && row.gpus <= room);
            queue.clear();
            queue.extend(open.map(|(at, row)| (Reverse(self.rank(row, kind)), at)));
            queue.sort_unstable();
            for (_, at) in &queue {
                let row = &mut self.jobs[*at];
                if room == 0 {
                    break;
                }
                if row.gpus > room || !world.runs_on_kind(row.job, kind) {
                    continue;
                }
                room -= row.gpus;
                row.chosen = true;
                // A job that no plan knows takes its place but does not run: so does Gavel's simulator.
                if row.plan.is_some() {
                    chosen.push((row.job, kind));
                }
            }
        }
        chosen
    }

    fn question(&mut self, now: Time, world: &ClusterWorld) -> Decision {
        self.asked += 1;
        let claim = |row: &Shares| {
            let job = world.known(row.job);
            Claim {
                job: row.job,
                weight_milli: 1_000,
                age: now.since(job.spec.arrival),
                steps_left: job.steps_left.unwrap_or(1),
            }
        };
        let jobs = self.jobs.iter().map(claim).collect();
        Decision::Replan { number: self.asked, goal: self.goal, jobs }
    }
}

/// The time in s, to the last bit where a round just ended.
fn clock(now: Time, world: &ClusterWorld) -> f64 {
    let at = |clock: &Real| Time::ZERO + Span::from_secs_f64(clock.value().max(0.0));
    let ended = world.clock().filter(|clock| at(clock) == now);
    ended.map_or(now.since(Time::ZERO).as_secs_f64(), Real::value)
}

/// What a job holds of a kind.
fn kept(job: &Job, kind: usize) -> Option<&Grant> {
    job.grant().filter(|_| job.last_kind() == Some(kind))
}

/// The decisions that lead to `chosen`: who stays on a kind keeps its GPUs, the others are placed anew, the largest first.
fn reach(world: &ClusterWorld, mut chosen: Vec<(JobId, usize)>, kinds: usize) -> Vec<Decision> {
    let all_stay = || chosen.iter().all(|(id, kind)| kept(world.known(*id), *kind).is_some());
    if chosen.len() == world.load().0 && all_stay() {
        return Vec::new();
    }
    let free = world.empty();
    let of_kind = |kind: usize| free.nodes.iter().filter(move |node| node.kind as usize == kind);
    let mut free: Vec<Free> =
        (0..kinds).map(|kind| Free { nodes: of_kind(kind).copied().collect() }).collect();
    chosen.sort_by_key(|(id, _)| Reverse(world.known(*id).spec.gpus));
    let mut stays = Vec::with_capacity(chosen.len());
    chosen.retain(|(id, kind)| {
        let held = kept(world.known(*id), *kind);
        held.inspect(|grant| free.iter_mut().for_each(|nodes| nodes.take(grant)));
        stays.extend(held.map(|_| *id));
        held.is_none()
    });
    let (mut changes, mut starts) = (Vec::new(), Vec::new());
    for (id, kind) in chosen {
        let job = world.known(id);
        let (gpus, share) = (job.spec.gpus, Share::asked(&job.spec));
        let consolidated = Place::Consolidated.take(&mut free[kind], gpus, share);
        let pieces = consolidated.or_else(|| Place::Anywhere.take(&mut free[kind], gpus, share));
        let Some(grant) = pieces.map(Grant::whole) else { continue };
        stays.push(id);
        if job.waits() {
            starts.push(Decision::Start { job: id, grant, lease: None });
        } else if job.grant() != Some(&grant) {
            changes.push(Regrant { job: id, grant });
        }
    }
    stays.sort_unstable();
    let gone = world.running().map(|job| job.spec.job).filter(|id| stays.binary_search(id).is_err());
    let mut decisions: Vec<Decision> = gone.map(|job| Decision::Stop { job }).collect();
    if !changes.is_empty() {
        decisions.push(Decision::Regrant { changes });
    }
    decisions.append(&mut starts);
    decisions
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
        let kinds = world.nodes().map(|node| node.kind as usize + 1).max().unwrap_or(0).max(self.given.len());
        self.follow(world, kinds);
        let answer = world.plan().filter(|plan| plan.number == self.asked && self.asked > 0);
        if let Some(plan) = answer.filter(|_| self.known < self.asked) {
            self.known = self.asked;
            self.jobs.iter_mut().for_each(|row| row.plan = None);
            for (id, shares) in &plan.shares {
                let of_kind = |kind: usize| shares.get(kind).copied().unwrap_or(Real::ZERO);
                if let Some(row) = self.row(*id) {
                    row.plan = Some((0..kinds).map(of_kind).collect());
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
        let chosen = self.choose(world);
        reach(world, chosen, kinds)
    }

    fn wake(&self, now: Time) -> Option<Time> {
        (!self.jobs.is_empty()).then(|| now + self.round)
    }
}
