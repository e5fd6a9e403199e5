//! Shares of time where two jobs may be on the same GPUs (space sharing: Gavel, OSDI'20): one linear program over jobs and
//! pairs of jobs.
//!
//! Jobs that differ in nothing are a group, and a group's shares are those of its jobs on average; pairs of groups are dealt
//! to pairs of jobs afterwards:
//!
//! ```text
//! maximise t;  Σ alone + Σ pairs / jobs ≤ 1 a group;  Σ GPUs · (jobs · alone) + Σ GPUs · pairs ≤ GPUs a kind
//!              Σ worth · alone + Σ worth beside · pairs / jobs ≥ t a group
//! ```
//!
//! A pair that does together no more than both would by turns is left out: turns are never worse.

use super::lp::Program;
use super::shares::Member;

/// Groups of jobs, and which of them do more together than by turns.
pub(super) struct Pool<'m, 'c> {
    groups: &'m [Member<'c>],
    /// Places of each group's jobs in the question.
    jobs: Vec<Vec<usize>>,
    counts: &'m [f64],
    pairs: Vec<Together>,
}

/// Two groups' jobs on the same GPUs.
struct Together {
    groups: (usize, usize),
    /// Steps a second of both, by kind.
    rates: Vec<(f64, f64)>,
}

/// Shares by job, and by pair of jobs, in the order of the question.
pub(super) struct Packed {
    pub(super) alone: Vec<Vec<f64>>,
    pub(super) pairs: Vec<(usize, usize, Vec<f64>)>,
}

/// Shares of groups' jobs on average, and of pairs of groups in all.
pub(super) struct Solution {
    alone: Vec<Vec<f64>>,
    pairs: Vec<Vec<f64>>,
}

/// Pairs of groups in a program at most; beyond, those that do most together stay.
const PAIRS_MAX: usize = 4_000;

/// Shares below this are the solver's, not the plan's.
const NOTHING: f64 = 1e-6;

impl<'m, 'c> Pool<'m, 'c> {
    /// Of `groups`, when each job of the question is in the group that `places` says; `together` speaks of jobs.
    pub(super) fn of(
        groups: &'m [Member<'c>],
        places: &[usize],
        counts: &'m [f64],
        together: impl Fn(usize, usize) -> Option<Vec<(f64, f64)>>,
    ) -> Self {
        let mut jobs = vec![Vec::new(); groups.len()];
        for (job, group) in places.iter().enumerate() {
            jobs[*group].push(job);
        }
        let mut pairs = Vec::new();
        for first in 0..groups.len() {
            for second in first..groups.len() {
                // Two of one group are its first two.
                let other = jobs[second].get(usize::from(first == second));
                let Some((a, b)) = jobs[first].first().zip(other) else { continue };
                let rates = (groups[first].gpus.total_cmp(&groups[second].gpus).is_eq())
                    .then(|| together(*a, *b))
                    .flatten();
                let Some(rates) = rates else { continue };
                let gain = gain(&groups[first], &groups[second], &rates);
                if gain > 1.0 {
                    pairs.push((gain, Together { groups: (first, second), rates }));
                }
            }
        }
        pairs.sort_by(|(gain, _), (other, _)| other.total_cmp(gain));
        pairs.truncate(PAIRS_MAX);
        Self { groups, jobs, counts, pairs: pairs.into_iter().map(|(_, pair)| pair).collect() }
    }

    /// The shares that make the least of the groups' rates, each times its scale, largest; and that least.
    pub(super) fn best(&self, scales: &[f64]) -> Option<(Solution, f64)> {
        let (groups, kinds) = (self.groups.len(), self.counts.len());
        let alone = |group: usize, kind: usize| 1 + group * kinds + kind;
        let pair = |at: usize, kind: usize| 1 + (groups + at) * kinds + kind;
        let mut cost = vec![0.0; 1 + (groups + self.pairs.len()) * kinds];
        cost[0] = -1.0;
        let columns = cost.len();
        let mut program = Program::new(cost);
        (1..columns).for_each(|column| program.row(1.0, [(column, -1.0)], 0.0));
        let (mut rooms, mut times) = (vec![Vec::new(); kinds], vec![Vec::new(); groups]);
        let mut rates = vec![vec![(0, 1.0)]; groups];
        for (group, member) in self.groups.iter().enumerate() {
            for (kind, room) in rooms.iter_mut().enumerate() {
                room.push((alone(group, kind), member.gpus * member.times));
                times[group].push((alone(group, kind), 1.0));
                rates[group].push((alone(group, kind), -member.rates[kind] * scales[group]));
            }
        }
        for (at, Together { groups: (first, second), rates: both }) in self.pairs.iter().enumerate() {
            let members = (&self.groups[*first], &self.groups[*second]);
            for (kind, (a, b)) in both.iter().enumerate() {
                let column = pair(at, kind);
                rooms[kind].push((column, members.0.gpus));
                let (a, b) = (-a * scales[*first] / members.0.times, -b * scales[*second] / members.1.times);
                if first == second {
                    times[*first].push((column, 2.0 / members.0.times));
                    rates[*first].push((column, a + b));
                } else {
                    times[*first].push((column, 1.0 / members.0.times));
                    times[*second].push((column, 1.0 / members.1.times));
                    rates[*first].push((column, a));
                    rates[*second].push((column, b));
                }
            }
        }
        rooms.into_iter().zip(self.counts).for_each(|(row, count)| program.row(1.0, row, *count));
        times.into_iter().for_each(|row| program.row(1.0, row, 1.0));
        rates.into_iter().for_each(|row| program.row(1.0, row, 0.0));
        let x = program.solve()?.x;
        let read = |from: usize| (0..kinds).map(|kind| x[from + kind].max(0.0)).collect::<Vec<f64>>();
        let solution = Solution {
            alone: (0..groups).map(|group| read(alone(group, 0))).collect(),
            pairs: (0..self.pairs.len()).map(|at| read(pair(at, 0))).collect(),
        };
        Some((solution, x[0]))
    }

    /// The shares of jobs and pairs of jobs: each group's time beside another is split evenly over its jobs, with as few
    /// pairs as do.
    pub(super) fn deal(&self, solution: &Solution) -> Packed {
        let count: usize = self.jobs.iter().map(Vec::len).sum();
        let mut alone = vec![Vec::new(); count];
        for (jobs, shares) in self.jobs.iter().zip(&solution.alone) {
            jobs.iter().for_each(|job| alone[*job] = shares.iter().map(|share| share.min(1.0)).collect());
        }
        let mut pairs = Vec::new();
        for (Together { groups, rates }, shares) in self.pairs.iter().zip(&solution.pairs) {
            let there = |(share, (rate, _)): (&f64, &(f64, f64))| if *rate > 0.0 { *share } else { 0.0 };
            let shares: Vec<f64> = shares.iter().zip(rates).map(there).collect();
            if shares.iter().sum::<f64>() < NOTHING {
                continue;
            }
            for (first, second, part) in couples(&self.jobs[groups.0], &self.jobs[groups.1]) {
                let kept = |share: &f64| if share * part < NOTHING { 0.0 } else { (share * part).min(1.0) };
                let shares: Vec<f64> = shares.iter().map(kept).collect();
                if shares.iter().any(|share| *share > 0.0) {
                    pairs.push((first.min(second), first.max(second), shares));
                }
            }
        }
        pairs.sort_by_key(|(first, second, _)| (*first, *second));
        Packed { alone, pairs }
    }
}

/// How much two do together of what they do alone, on the kind where that is most.
fn gain(first: &Member<'_>, second: &Member<'_>, rates: &[(f64, f64)]) -> f64 {
    let part = |rate: f64, alone: f64| if alone > 0.0 { rate / alone } else { 0.0 };
    let of_kind =
        |(kind, (a, b)): (usize, &(f64, f64))| part(*a, first.rates[kind]) + part(*b, second.rates[kind]);
    rates.iter().enumerate().map(of_kind).fold(0.0, f64::max)
}

/// Pairs of jobs of two groups, or of one twice given, with the part of the groups' time that each has: as much for each
/// job of a group.
fn couples(first: &[usize], second: &[usize]) -> Vec<(usize, usize, f64)> {
    if first == second {
        // Two by two; of an odd number the last three in a ring.
        let each = 2.0 / first.len() as f64;
        let (even, ring) =
            first.split_at(if first.len().is_multiple_of(2) { first.len() } else { first.len() - 3 });
        let mut couples: Vec<_> = even.chunks_exact(2).map(|two| (two[0], two[1], each)).collect();
        if let [a, b, c] = *ring {
            couples.extend([(a, b), (b, c), (a, c)].map(|(a, b)| (a, b, each / 2.0)));
        }
        return couples;
    }
    // Both groups' time is laid out side by side, in parts of 1 over the product of their sizes.
    let (many, few) = (first.len(), second.len());
    let (mut at, mut couples) = (0, Vec::new());
    while at < many * few {
        let (a, b) = (at / few, at / many);
        let end = ((a + 1) * few).min((b + 1) * many);
        couples.push((first[a], second[b], (end - at) as f64 / (many * few) as f64));
        at = end;
    }
    couples
}

#[cfg(test)]
mod tests;
