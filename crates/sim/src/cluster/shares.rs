//! The driver's answers to [`Replan`](sched::cluster::Decision::Replan): shares of time by job and kind of GPU, as linear
//! programs (Gavel, OSDI'20).

use super::lp::Program;
use super::packing::{Packed, Pool};
use sched::cluster::{Claim, Goal, JobId};
use std::collections::BTreeMap;

/// A job in a program: steps a second on each kind, GPUs it takes, its claim.
#[derive(Clone)]
pub(super) struct Member<'c> {
    pub(super) rates: Vec<f64>,
    pub(super) gpus: f64,
    pub(super) claim: &'c Claim,
    /// Jobs it stands for.
    pub(super) times: f64,
}

/// Works out shares; keeps what fairness needs of the past.
#[derive(Clone, Debug, Default)]
pub(super) struct Planner {
    /// For each job: time it would have taken alone on its even part for the steps done so far, steps left and rate there
    /// when last asked.
    alone: BTreeMap<JobId, (f64, f64, f64)>,
}

/// Solutions of fairness and makespan are this close to the best, relatively (Gavel's simulator, for the makespan).
const MAKESPAN_TOLERANCE: f64 = 1.05;

/// Halvings until finish-time fairness is found.
const HALVINGS: u32 = 40;

impl Planner {
    /// Shares for `members` of GPUs `counts` of each kind; those of an even split when no program could be solved.
    pub(super) fn shares<'c>(&mut self, goal: Goal, members: &[Member<'c>], counts: &[f64]) -> Vec<Vec<f64>> {
        let kinds = Kinds::of(counts);
        let narrowed: Vec<Member<'c>> = members.iter().map(|member| kinds.narrow(member)).collect();
        let solved = self.solve(goal, &narrowed, &kinds.pick(counts));
        solved.into_iter().map(|shares| kinds.widen(shares)).collect()
    }

    /// The same where two members may share GPUs as `together` says of their places: steps a second of both by kind. Never
    /// worse by the goal than without pairs; without an answer, or where the goal knows no pairs, nobody shares.
    pub(super) fn packed<'c>(
        &mut self,
        goal: Goal,
        members: &[Member<'c>],
        counts: &[f64],
        together: impl Fn(usize, usize) -> Option<Vec<(f64, f64)>>,
    ) -> Packed {
        let kinds = Kinds::of(counts);
        let narrowed: Vec<Member<'c>> = members.iter().map(|member| kinds.narrow(member)).collect();
        let (merged, places) = merge(goal, &narrowed);
        let counted = kinds.pick(counts);
        let pool =
            Pool::of(&merged, &places, &counted, |a, b| together(a, b).map(|rates| kinds.pick(&rates)));
        let solved = match goal {
            Goal::MaxMin => pool.best(&scales(&merged, &counted, |member, kind| member.rates[kind])),
            Goal::Makespan => {
                let left = |member: &Member<'_>| 1.0 / member.claim.steps_left.max(1) as f64;
                pool.best(&merged.iter().map(left).collect::<Vec<f64>>())
            }
            Goal::FinishTimeFairness => self.fairness(&merged, &counted, |needs| {
                pool.best(&needs.iter().map(|need| 1.0 / need).collect::<Vec<f64>>())
            }),
            Goal::MaxMinAlike | Goal::MakespanAlike | Goal::Isolated | Goal::Speed => None,
        };
        let Some((solution, _)) = solved else {
            return Packed { alone: self.shares(goal, members, counts), pairs: Vec::new() };
        };
        let mut dealt = pool.deal(&solution);
        let alone = dealt.alone.iter_mut().chain(dealt.pairs.iter_mut().map(|(.., shares)| shares));
        alone.for_each(|shares| *shares = kinds.widen(std::mem::take(shares)));
        dealt
    }

    fn solve(&mut self, goal: Goal, members: &[Member<'_>], counts: &[f64]) -> Vec<Vec<f64>> {
        let (merged, places) = merge(goal, members);
        let solved = match goal {
            Goal::MaxMin => max_min(&merged, counts, |member, kind| member.rates[kind]),
            Goal::MaxMinAlike => max_min(&merged, counts, |_, _| 1.0),
            Goal::Makespan => makespan(&merged, counts, |member, kind| member.rates[kind]),
            Goal::MakespanAlike => makespan(&merged, counts, |member, _| member.rates[0]),
            Goal::FinishTimeFairness => {
                let best =
                    |needs: &[f64]| largest(&merged, counts, |at, kind| merged[at].rates[kind] / needs[at]);
                self.fairness(&merged, counts, best).map(|(shares, _)| shares)
            }
            Goal::Isolated | Goal::Speed => None,
        };
        let solved = solved
            .unwrap_or_else(|| merged.iter().map(|member| even(member.gpus, all(&merged), counts)).collect());
        places.into_iter().map(|place| solved[place].clone()).collect()
    }

    /// The least largest finish-time fairness, by halving: each job needs some rate for a given one, and `largest` makes the
    /// least part of those that jobs have as large as it can.
    fn fairness<S>(
        &mut self,
        members: &[Member<'_>],
        counts: &[f64],
        largest: impl Fn(&[f64]) -> Option<(S, f64)>,
    ) -> Option<(S, f64)> {
        let mut rows = Vec::with_capacity(members.len());
        for member in members {
            let part = even(member.gpus, all(members), counts);
            let rate: f64 = member.rates.iter().zip(&part).map(|(rate, share)| rate * share).sum();
            let left = member.claim.steps_left as f64;
            let rate = rate.max(1e-9);
            let (mut so_far, before, at) =
                self.alone.get(&member.claim.job).copied().unwrap_or((0.0, left, rate));
            so_far += (before - left).max(0.0) / at;
            self.alone.insert(member.claim.job, (so_far, left, rate));
            rows.push((member.claim.age.as_secs_f64(), left, so_far + left / rate));
        }
        let live: Vec<JobId> = members.iter().map(|member| member.claim.job).collect();
        self.alone.retain(|job, _| live.binary_search(job).is_ok());
        let (mut low, mut high) = (0.0f64, 1e9f64);
        let mut best = None;
        for _ in 0..HALVINGS {
            let middle =
                if high > 1e3 * low.max(1.0) { (low.max(1e-3) * high).sqrt() } else { (low + high) / 2.0 };
            // Rates needed for every job's fairness to be `middle`; past hope when time has run out.
            let needs: Option<Vec<f64>> = rows
                .iter()
                .map(|(age, left, alone)| {
                    Some(middle * alone - age).filter(|rest| *rest > 0.0).map(|rest| left / rest)
                })
                .collect();
            let scaled = needs.and_then(|needs| largest(&needs).filter(|(_, least)| *least >= 1.0 - 1e-7));
            match scaled {
                Some(shares) => (high, best) = (middle, Some(shares)),
                None => low = middle,
            }
            if high - low < 1e-6 * high {
                break;
            }
        }
        best
    }
}

/// Kinds of GPU that there are; the others are no part of a program.
struct Kinds {
    all: usize,
    there: Vec<usize>,
}

impl Kinds {
    fn of(counts: &[f64]) -> Self {
        let there = (0..counts.len()).filter(|kind| counts[*kind] > 0.0).collect();
        Self { all: counts.len(), there }
    }

    fn pick<T: Copy>(&self, values: &[T]) -> Vec<T> {
        self.there.iter().map(|kind| values[*kind]).collect()
    }

    fn narrow<'c>(&self, member: &Member<'c>) -> Member<'c> {
        Member { rates: self.pick(&member.rates), ..*member }
    }

    fn widen(&self, shares: Vec<f64>) -> Vec<f64> {
        let mut all = vec![0.0; self.all];
        self.there.iter().zip(shares).for_each(|(kind, share)| all[*kind] = share);
        all
    }
}

/// Members that a goal cannot tell apart, as one each, and where each member went: they get the same shares to the last bit,
/// so that who goes first among them is no accident of rounding.
fn merge<'c>(goal: Goal, members: &[Member<'c>]) -> (Vec<Member<'c>>, Vec<usize>) {
    let bits = |rates: &[f64]| rates.iter().map(|rate| rate.to_bits()).collect::<Vec<u64>>();
    let key = |member: &Member<'_>| {
        let Claim { job, weight_milli, steps_left, .. } = member.claim;
        let (rates, steps, job) = match goal {
            Goal::MaxMin => (bits(&member.rates), 0, JobId(0)),
            Goal::MaxMinAlike | Goal::Isolated | Goal::Speed => (Vec::new(), 0, JobId(0)),
            Goal::Makespan => (bits(&member.rates), *steps_left, JobId(0)),
            Goal::MakespanAlike => (bits(&member.rates[..1]), *steps_left, JobId(0)),
            Goal::FinishTimeFairness => (Vec::new(), 0, *job),
        };
        (rates, member.gpus.to_bits(), *weight_milli, steps, job)
    };
    let (mut merged, mut places): (Vec<Member<'c>>, _) = (Vec::new(), Vec::with_capacity(members.len()));
    let mut seen = BTreeMap::new();
    for member in members {
        let place = *seen.entry(key(member)).or_insert(merged.len());
        match merged.get_mut(place) {
            Some(first) => first.times += member.times,
            None => merged.push(member.clone()),
        }
        places.push(place);
    }
    (merged, places)
}

/// Jobs that all members stand for.
fn all(members: &[Member<'_>]) -> f64 {
    members.iter().map(|member| member.times).sum()
}

/// An even split of the cluster, at most the whole time (Gavel's "isolated").
fn even(gpus: f64, jobs: f64, counts: &[f64]) -> Vec<f64> {
    let part: Vec<f64> = counts.iter().map(|count| count / jobs.max(1.0) / gpus).collect();
    let all: f64 = part.iter().sum::<f64>().max(1.0);
    part.into_iter().map(|part| part / all).collect()
}

/// The largest least throughput, each over that of a split proportional to the kinds' sizes, times GPUs over weight.
fn max_min(
    members: &[Member<'_>],
    counts: &[f64],
    rate: impl Fn(&Member<'_>, usize) -> f64,
) -> Option<Vec<Vec<f64>>> {
    let usual = usual(members, counts, &rate);
    let worth = |at: usize, kind: usize| {
        let member = &members[at];
        let weight = member.claim.weight_milli.max(1) as f64 / 1e3;
        rate(member, kind) * member.gpus / (usual[at].max(1e-12) * weight)
    };
    Some(largest(members, counts, worth)?.0)
}

/// Each member's throughput at a split proportional to the kinds' sizes.
fn usual(members: &[Member<'_>], counts: &[f64], rate: impl Fn(&Member<'_>, usize) -> f64) -> Vec<f64> {
    let jobs = all(members);
    let total: f64 = counts.iter().map(|count| count / jobs).sum();
    let share = |kind: usize| counts[kind] / jobs / total;
    let usual = |member| (0..counts.len()).map(|kind| rate(member, kind) * share(kind)).sum::<f64>();
    members.iter().map(usual).collect()
}

/// What a step a second is worth to each member, by [`max_min`].
fn scales(members: &[Member<'_>], counts: &[f64], rate: impl Fn(&Member<'_>, usize) -> f64) -> Vec<f64> {
    let scale = |(member, usual): (&Member<'_>, f64)| {
        let weight = member.claim.weight_milli.max(1) as f64 / 1e3;
        member.gpus / (usual.max(1e-12) * weight)
    };
    members.iter().zip(usual(members, counts, rate)).map(scale).collect()
}

/// The shares that make the least of `Σ worth · share` largest, and that least.
fn largest(
    members: &[Member<'_>],
    counts: &[f64],
    worth: impl Fn(usize, usize) -> f64,
) -> Option<(Vec<Vec<f64>>, f64)> {
    let (jobs, kinds) = (members.len(), counts.len());
    // Unknowns: the least, then each job's share of each kind, as the peers' modelling tool orders them.
    let mut cost = vec![0.0; 1 + jobs * kinds];
    cost[0] = -1.0;
    let mut program = Program::merged(cost, columns(members, kinds));
    fit(&mut program, members, counts);
    for (job, member) in members.iter().enumerate() {
        let row = (0..kinds).map(|kind| (place(jobs, job, kind), -worth(job, kind)));
        program.row(member.times, row.chain([(0, 1.0)]), 0.0);
    }
    let x = program.solve()?.x;
    Some((read(&x, jobs, kinds), x[0]))
}

/// How many unknowns of the written-out program each of ours stands for.
fn columns(members: &[Member<'_>], kinds: usize) -> Vec<f64> {
    let shares = (0..kinds).flat_map(|_| members.iter().map(|member| member.times));
    std::iter::once(1.0).chain(shares).collect()
}

/// Where a job's share of a kind stands among the unknowns.
const fn place(jobs: usize, job: usize, kind: usize) -> usize {
    1 + kind * jobs + job
}

fn read(x: &[f64], jobs: usize, kinds: usize) -> Vec<Vec<f64>> {
    let share = |job: usize, kind: usize| x[place(jobs, job, kind)].clamp(0.0, 1.0);
    (0..jobs).map(|job| (0..kinds).map(|kind| share(job, kind)).collect()).collect()
}

/// Shares are not negative, fit each kind's GPUs and each job's time.
fn fit(program: &mut Program, members: &[Member<'_>], counts: &[f64]) {
    let (jobs, kinds) = (members.len(), counts.len());
    for kind in 0..kinds {
        for (job, member) in members.iter().enumerate() {
            program.row(member.times, [(place(jobs, job, kind), -1.0)], 0.0);
        }
    }
    for (kind, count) in counts.iter().enumerate() {
        let row = members.iter().enumerate().map(|(job, member)| (place(jobs, job, kind), member.gpus));
        program.row(1.0, row, *count);
    }
    for (job, member) in members.iter().enumerate() {
        let row = (0..kinds).map(|kind| (place(jobs, job, kind), 1.0));
        program.row(member.times, row, 1.0);
    }
}

/// Shares by which every job ends within a time that is close to the least, found by halving as Gavel's simulator does.
fn makespan(
    members: &[Member<'_>],
    counts: &[f64],
    rate: impl Fn(&Member<'_>, usize) -> f64,
) -> Option<Vec<Vec<f64>>> {
    let left = |at: usize| members[at].claim.steps_left.max(1) as f64;
    let (_, inverse) = largest(members, counts, |at, kind| rate(&members[at], kind) / left(at))?;
    let least = 1.0 / inverse.max(1e-15);
    let (mut low, mut high) = (100.0f64, 1e6f64);
    while high < least {
        (low, high) = (high, high * 10.0);
    }
    let mut found = high;
    while MAKESPAN_TOLERANCE * low < high {
        let middle = (low + high) / 2.0;
        if middle >= least {
            (high, found) = (middle, middle);
        } else {
            low = middle;
        }
    }
    let (jobs, kinds) = (members.len(), counts.len());
    // The least is no unknown here, and costs nothing.
    let mut program = Program::merged(vec![0.0; 1 + jobs * kinds], columns(members, kinds));
    fit(&mut program, members, counts);
    program.row(1.0, [(0, 1.0)], 1.0);
    program.row(1.0, [(0, -1.0)], 1.0);
    for (job, member) in members.iter().enumerate() {
        let row = (0..kinds).map(|kind| (place(jobs, job, kind), -rate(member, kind)));
        program.row(member.times, row, -left(job) / found);
    }
    Some(read(&program.solve()?.x, jobs, kinds))
}
