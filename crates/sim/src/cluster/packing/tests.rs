//! Shares with pairs: they fit, they are never worse than turns, and they are right where the best is known.

use super::super::shares::{Member, Planner};
use super::Packed;
use sched::cluster::{Claim, Goal, JobId};
use vocab::{Rng, Span};

fn claims(count: u32) -> Vec<Claim> {
    let claim = |job| Claim {
        job: JobId(job),
        weight_milli: 1_000,
        age: Span::from_ms(60_000 * (1 + u64::from(job))),
        steps_left: 1_000 * (1 + u64::from(job % 3)),
    };
    (0..count).map(claim).collect()
}

/// Each job's steps a second under these shares.
fn rates(
    members: &[Member<'_>],
    Packed { alone, pairs }: &Packed,
    together: impl Fn(usize, usize) -> Option<Vec<(f64, f64)>>,
) -> Vec<f64> {
    let sum = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut rates: Vec<f64> =
        members.iter().zip(alone).map(|(member, shares)| sum(&member.rates, shares)).collect();
    for (first, second, shares) in pairs {
        for (share, (a, b)) in shares.iter().zip(together(*first, *second).unwrap()) {
            rates[*first] += share * a;
            rates[*second] += share * b;
        }
    }
    rates
}

/// Two equal jobs on one GPU: each has half of it by turns, and eight tenths together.
#[test]
fn two_that_fit_together_share() {
    let claims = claims(2);
    let member = |claim| Member { rates: vec![10.0], gpus: 1.0, claim, times: 1.0 };
    let members: Vec<Member<'_>> = claims.iter().map(member).collect();
    let packed = Planner::default().packed(Goal::MaxMin, &members, &[1.0], |_, _| Some(vec![(8.0, 8.0)]));
    assert!((packed.pairs[0].2[0] - 1.0).abs() < 1e-4, "{:?}", packed.pairs);
    let apart = Planner::default().packed(Goal::MaxMin, &members, &[1.0], |_, _| Some(vec![(4.0, 4.0)]));
    assert!(apart.pairs.is_empty() && (apart.alone[0][0] - 0.5).abs() < 1e-4, "{:?}", apart.alone);
}

/// Random jobs, kinds and pairs: no job is given more than its time, no kind more than its GPUs, and the goal is met at
/// least as well as by turns.
#[test]
fn pairs_fit_and_are_never_worse() {
    let mut rng = Rng::new(5);
    for round in 0..120 {
        let (count, kinds) =
            (2 + usize::try_from(rng.below(9)).unwrap(), 1 + usize::try_from(rng.below(3)).unwrap());
        let claims = claims(u32::try_from(count).unwrap());
        let models: Vec<Vec<f64>> =
            (0..3).map(|_| (0..kinds).map(|_| 1.0 + rng.unit() * 9.0).collect()).collect();
        let slow: Vec<f64> = (0..16).map(|_| 1.0 + rng.unit() * 2.0).collect();
        let model: Vec<usize> = (0..count).map(|_| usize::try_from(rng.below(3)).unwrap()).collect();
        let gpus: Vec<f64> = (0..count).map(|_| [1.0, 2.0][usize::try_from(rng.below(2)).unwrap()]).collect();
        let members: Vec<Member<'_>> = claims
            .iter()
            .enumerate()
            .map(|(at, claim)| Member { rates: models[model[at]].clone(), gpus: gpus[at], claim, times: 1.0 })
            .collect();
        let counts: Vec<f64> = (0..kinds).map(|_| 2.0 + rng.unit().mul_add(3.0, 0.0).floor()).collect();
        let together = |first: usize, second: usize| {
            let (a, b) = (model[first], model[second]);
            let rate = |of: usize, beside: usize, kind: usize| models[of][kind] / slow[of * 4 + beside];
            ((gpus[first] - gpus[second]).abs() < 0.5)
                .then(|| (0..kinds).map(|kind| (rate(a, b, kind), rate(b, a, kind))).collect::<Vec<_>>())
        };
        for goal in [Goal::MaxMin, Goal::Makespan, Goal::FinishTimeFairness] {
            let packed = Planner::default().packed(goal, &members, &counts, together);
            let turns =
                Packed { alone: Planner::default().shares(goal, &members, &counts), pairs: Vec::new() };
            let mut had: Vec<f64> = packed.alone.iter().map(|shares| shares.iter().sum()).collect();
            let mut used = vec![0.0; kinds];
            for (at, shares) in packed.alone.iter().enumerate() {
                shares.iter().zip(&mut used).for_each(|(share, used)| *used += share * gpus[at]);
            }
            for (first, second, shares) in &packed.pairs {
                assert!(first < second && (gpus[*first] - gpus[*second]).abs() < 0.5);
                had[*first] += shares.iter().sum::<f64>();
                had[*second] += shares.iter().sum::<f64>();
                shares.iter().zip(&mut used).for_each(|(share, used)| *used += share * gpus[*first]);
            }
            let fits = had.iter().all(|had| *had < 1.0 + 1e-4)
                && used.iter().zip(&counts).all(|(used, count)| *used < count + 1e-3);
            assert!(fits, "{round} {goal:?}: {had:?} {used:?} of {counts:?}");
            let worth = |at: usize, rate: f64| match goal {
                Goal::Makespan => rate / claims[at].steps_left as f64,
                _ => rate * gpus[at] / members[at].rates.iter().zip(&counts).map(|(r, c)| r * c).sum::<f64>(),
            };
            if goal == Goal::FinishTimeFairness {
                continue;
            }
            let least = |packed: &Packed| {
                let rates = rates(&members, packed, together);
                rates.iter().enumerate().map(|(at, rate)| worth(at, *rate)).fold(f64::MAX, f64::min)
            };
            let (with, without) = (least(&packed), least(&turns));
            assert!(with >= without * 0.999, "{round} {goal:?}: {with} below {without}");
        }
    }
}
