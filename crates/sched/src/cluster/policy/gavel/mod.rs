//! Gavel (OSDI'20): shares of time by kind of GPU, worked out by the driver as a linear program, and rounds that follow them.
//!
//! ```text
//! jobs change ──▶ Replan ──▶ PlanReady: x[job][kind] ──▶ each round, by x over the share of time had so far
//! ```
//!
//! A job's priority on a kind of GPU is its share there over the part of that kind's time it has had since the latest plan.
//! Where two jobs may share GPUs, plans give shares to pairs as well; a pair is one in the queue, beside its two jobs alone.
//! Ties keep the order of arrival. Plans are not made more often than Gavel's authors do. Times are summed and divided in
//! binary fractions as in their simulator: jobs of one model are often owed the same but for the last bit, which then
//! decides who goes first.

mod place;

use super::twister::Twister;
use crate::Policy;
use crate::cluster::{Claim, ClusterWorld, Decision, Goal, Job, JobId, PairShares, Phase, Plan, Real};
use std::cmp::Reverse;
use vocab::{Span, Time};

/// Shares of time by kind of GPU.
#[derive(Clone, Debug)]
pub struct Gavel {
    goal: Goal,
    packed: bool,
    round: Span,
    /// Live jobs, by id.
    jobs: Vec<Shares>,
    /// Pairs that the latest plan gives time to.
    pairs: Vec<Shares>,
    /// Pairs that ran in the latest round, and whether their time is counted.
    teams: Vec<((JobId, JobId), bool)>,
    /// Time given out on each kind since the latest plan, in s.
    given: Vec<f64>,
    /// When time was last counted anew, in s.
    since: f64,
    stale: bool,
    asked: u64,
    known: u64,
    shuffle: Twister,
}

/// Who runs together: a job, and another on the same GPUs.
type Unit = (JobId, Option<JobId>);

/// What a job or a pair should have and had, by kind of GPU.
#[derive(Clone, Debug)]
struct Shares {
    unit: Unit,
    gpus: u32,
    /// Whether it has its place in the round that is being made; nothing of a pair.
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
    /// Shares that make `goal` best, of jobs and, if `packed`, of pairs, in rounds of `round`.
    #[must_use]
    pub fn new(goal: Goal, packed: bool, round: Span) -> Self {
        Self {
            goal,
            packed,
            round,
            jobs: Vec::new(),
            pairs: Vec::new(),
            teams: Vec::new(),
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

    fn place_of(&self, job: JobId) -> Option<usize> {
        self.jobs.binary_search_by_key(&job, |row| row.unit.0).ok()
    }

    /// Makes room for kinds that were not there before.
    fn widen(&mut self, kinds: usize) {
        let half = self.half();
        self.given.resize(kinds, 0.0);
        for row in self.jobs.iter_mut().chain(&mut self.pairs) {
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
        // The last to end is counted first, and of a pair alone.
        let mut rounds = world.rounds().to_vec();
        rounds.sort_by_key(|(_, took)| Reverse(*took));
        for (id, took) in rounds {
            let team = self.teams.iter_mut().find(|((first, second), _)| id == *first || id == *second);
            let row = match team {
                Some((_, true)) => continue,
                Some((pair, counted)) => {
                    *counted = true;
                    let unit = (pair.0, Some(pair.1));
                    self.pairs.iter_mut().find(|row| row.unit == unit)
                }
                None => self.place_of(id).map(|at| &mut self.jobs[at]),
            };
            // A kind that is gone needs no account.
            let kind = world.job(id).and_then(Job::last_kind).filter(|kind| *kind < kinds);
            if let Some((kind, row)) = kind.zip(row) {
                row.had[kind] += took.value();
                self.given[kind] += took.value();
            }
        }
        let (running, waiting) = world.load();
        if world.fresh().is_empty() && running + waiting == self.jobs.len() {
            return;
        }
        self.stale = true;
        let live = |job: JobId| !matches!(world.known(job).phase, Phase::Ended { .. });
        self.jobs.retain(|row| live(row.unit.0));
        self.pairs.retain(|row| live(row.unit.0) && row.unit.1.is_none_or(live));
        for id in world.fresh() {
            if let Err(at) = self.jobs.binary_search_by_key(id, |row| row.unit.0) {
                let row = self.fresh((*id, None), world.known(*id).spec.gpus);
                self.jobs.insert(at, row);
            }
        }
    }

    /// A row that had nothing yet.
    fn fresh(&self, unit: Unit, gpus: u32) -> Shares {
        let (had, owed) = (vec![self.half(); self.given.len()], vec![0.0; self.given.len()]);
        Shares { unit, gpus, chosen: false, plan: None, had, owed }
    }

    /// Begins to count time anew, and notes what each job is owed.
    fn reset(&mut self, now: f64) {
        let half = self.half();
        let passed = now - self.since;
        let rows = self.jobs.len() + self.pairs.len();
        for row in self.jobs.iter_mut().chain(&mut self.pairs) {
            for kind in 0..self.given.len() {
                let due = row.plan.as_ref().map_or(0.0, |plan| plan[kind].value() * passed);
                row.owed[kind] += due - (row.had[kind] - half);
                row.had[kind] = half;
            }
        }
        for given in &mut self.given {
            *given = half * rows as f64;
        }
        self.since = now;
    }

    /// Takes in the answer to the latest question.
    fn learn(&mut self, plan: &Plan) {
        let kinds = self.given.len();
        let of_kinds = |shares: &[Real]| {
            (0..kinds).map(|kind| shares.get(kind).copied().unwrap_or(Real::ZERO)).collect::<Vec<Real>>()
        };
        self.jobs.iter_mut().for_each(|row| row.plan = None);
        for (id, shares) in &plan.shares {
            if let Some(at) = self.place_of(*id) {
                self.jobs[at].plan = Some(of_kinds(shares));
            }
        }
        let before = std::mem::take(&mut self.pairs);
        for PairShares { jobs: (first, second), shares } in plan.pairs.iter().filter(|_| self.packed) {
            let gpus = |id: JobId| self.place_of(id).map(|at| self.jobs[at].gpus);
            let unit = (*first, Some(*second));
            let twice = first == second || self.pairs.iter().any(|row| row.unit == unit);
            let Some(gang) = gpus(*first).filter(|gang| gpus(*second) == Some(*gang) && !twice) else {
                continue;
            };
            let known = before.iter().find(|row| row.unit == unit).cloned();
            let row = known.unwrap_or_else(|| self.fresh(unit, gang));
            self.pairs.push(Shares { plan: Some(of_kinds(shares)), ..row });
        }
    }

    fn rank(&self, job: &Shares, kind: usize) -> Rank {
        let owed = Real::of(job.owed[kind]);
        let Some(plan) = &job.plan else { return (Real::ZERO, owed, Real::ZERO) };
        let share = plan[kind].value();
        let given = self.given[kind];
        let priority = if given > 0.0 { share / (job.had[kind] / given) } else { share * 1e9 };
        (Real::of(priority), owed, plan[kind])
    }

    /// Whether a unit may be given GPUs of a kind in the round that is being made.
    fn open(&self, row: &Shares, kind: usize) -> bool {
        let Some(second) = row.unit.1 else { return !row.chosen };
        let free = |job| self.place_of(job).is_some_and(|at| !self.jobs[at].chosen);
        free(row.unit.0) && free(second) && row.plan.as_ref().is_some_and(|plan| plan[kind] > Real::ZERO)
    }

    /// A job's row, or beyond them a pair's.
    fn nth(&self, at: usize) -> &Shares {
        self.jobs.get(at).unwrap_or_else(|| &self.pairs[at - self.jobs.len()])
    }

    /// Who runs on which kind in the next round.
    fn choose(&mut self, world: &ClusterWorld) -> Vec<(Unit, usize)> {
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
            queue.clear();
            for (at, row) in self.jobs.iter().chain(&self.pairs).enumerate() {
                if row.gpus <= room && self.open(row, kind) {
                    queue.push((Reverse(self.rank(row, kind)), at));
                }
            }
            queue.sort_unstable();
            for (_, at) in &queue {
                if room == 0 {
                    break;
                }
                let row = self.nth(*at);
                let (unit, gpus, planned) = (row.unit, row.gpus, row.plan.is_some());
                let fits = |job: JobId| world.runs_on_kind(job, kind);
                if gpus > room || !self.open(row, kind) || !fits(unit.0) || !unit.1.is_none_or(fits) {
                    continue;
                }
                room -= gpus;
                for job in std::iter::once(unit.0).chain(unit.1) {
                    if let Some(at) = self.place_of(job) {
                        self.jobs[at].chosen = true;
                    }
                }
                // A job that no plan knows takes its place but does not run: so does Gavel's simulator.
                if planned {
                    chosen.push((unit, kind));
                }
            }
        }
        chosen
    }

    fn question(&mut self, now: Time, world: &ClusterWorld) -> Decision {
        self.asked += 1;
        let claim = |row: &Shares| {
            let job = world.known(row.unit.0);
            Claim {
                job: row.unit.0,
                weight_milli: 1_000,
                age: now.since(job.spec.arrival),
                steps_left: job.steps_left.unwrap_or(1),
            }
        };
        let jobs = self.jobs.iter().map(claim).collect();
        Decision::Replan { number: self.asked, goal: self.goal, packed: self.packed, jobs }
    }
}

/// The time in s, to the last bit where a round just ended.
fn clock(now: Time, world: &ClusterWorld) -> f64 {
    let at = |clock: &Real| Time::ZERO + Span::from_secs_f64(clock.value().max(0.0));
    let ended = world.clock().filter(|clock| at(clock) == now);
    ended.map_or(now.since(Time::ZERO).as_secs_f64(), Real::value)
}

impl Policy<ClusterWorld> for Gavel {
    fn name(&self) -> &'static str {
        match (self.goal, self.packed) {
            (Goal::MaxMin, false) => "gavel",
            (Goal::MaxMin, true) => "gavel-packed",
            (Goal::MaxMinAlike, _) => "gavel-alike",
            (Goal::FinishTimeFairness, false) => "gavel-ftf",
            (Goal::FinishTimeFairness, true) => "gavel-ftf-packed",
            (Goal::Makespan, false) => "gavel-makespan",
            (Goal::Makespan, true) => "gavel-makespan-packed",
            (Goal::MakespanAlike, _) => "gavel-makespan-alike",
            (Goal::Isolated, _) => "gavel-isolated",
            (Goal::Speed, _) => "gavel-speed",
        }
    }

    fn decide(&mut self, now: Time, world: &ClusterWorld) -> Vec<Decision> {
        let kinds = world.nodes().map(|node| node.kind as usize + 1).max().unwrap_or(0).max(self.given.len());
        self.follow(world, kinds);
        let answer = world.plan().filter(|plan| plan.number == self.asked && self.asked > 0);
        if let Some(plan) = answer.filter(|_| self.known < self.asked) {
            self.known = self.asked;
            self.learn(plan);
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
        let pairs = chosen.iter().filter_map(|((first, second), _)| Some((*first, (*second)?)));
        self.teams = pairs.map(|pair| (pair, false)).collect();
        place::reach(world, chosen, kinds)
    }

    fn wake(&self, now: Time) -> Option<Time> {
        (!self.jobs.is_empty()).then(|| now + self.round)
    }
}
