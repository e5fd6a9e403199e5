//! Gangs that grow and shrink, in rounds: Optimus (EuroSys'18) gives each GPU to the job whose remaining time it shortens
//! most; Pollux (OSDI'21) makes the harmonic mean of the jobs' speed-ups best, counting what a restart costs.
//!
//! Pollux searches at random; what is best here over counts of GPUs is separable by job, so it is found exactly instead.

use super::ordered::reach;
use super::{Place, Share};
use crate::Policy;
use crate::cluster::{ClusterWorld, Decision, Grant, Job, JobId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::{Span, Time};

/// What another GPU is worth to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gain {
    /// Time of a step saved × steps left (Optimus).
    RemainingTime,
    /// The harmonic mean of speed-ups (Pollux).
    Goodput,
}

/// Gangs that grow and shrink.
#[derive(Clone, Debug)]
pub struct Elastic {
    gain: Gain,
    round: Span,
    busy: bool,
}

/// What Pollux counts for a job without a GPU, as the inverse of a speed-up, in millionths: as slow as a thousandth of one.
const NOTHING: u128 = 1_000_000_000;

/// Time a restart is counted with (Pollux's simulator).
const RESTART: Span = Span::from_ms(30_000);

/// GPUs beyond which Pollux gives a job no more, whatever it could use (its simulator).
const GPUS_MAX: usize = 64;

impl Elastic {
    /// Rounds of length `round`.
    #[must_use]
    pub const fn new(gain: Gain, round: Span) -> Self {
        Self { gain, round, busy: false }
    }
}

/// Numbers of GPUs a job can be given, at most: what it was measured on, or its gang.
fn most(world: &ClusterWorld, job: &Job) -> u32 {
    let measured = world.speed(job.spec.job).len();
    if measured == 0 {
        job.spec.elastic.1
    } else {
        job.spec.elastic.1.min(u32::try_from(measured).unwrap_or(u32::MAX))
    }
}

/// Time of a step on `gpus` GPUs; as if it scaled perfectly where that was not measured.
fn step(world: &ClusterWorld, job: &Job, gpus: u32) -> Span {
    let measured = world.speed(job.spec.job).get(gpus.saturating_sub(1) as usize).copied();
    measured.unwrap_or_else(|| Span::from_ns(job.spec.solo.ns() / u64::from(gpus.max(1))))
}

/// Optimus: one GPU each (or the least a job can run on), then one after another where it saves most time.
fn by_remaining_time(world: &ClusterWorld, jobs: &[&Job], gpus: u32) -> BTreeMap<JobId, u32> {
    let mut room = gpus;
    let mut rows: Vec<(&Job, u32, i128)> = Vec::with_capacity(jobs.len());
    let gain = |job: &Job, gpus: u32, room: u32| {
        if gpus + 1 > most(world, job) || room < 1 {
            return 0;
        }
        let saved = i128::from(step(world, job, gpus).ns()) - i128::from(step(world, job, gpus + 1).ns());
        saved * i128::from(job.steps_left.unwrap_or(1))
    };
    let mut order = jobs.to_vec();
    order.sort_by_key(|job| job.spec.elastic.0);
    for job in order {
        let least = job.spec.elastic.0;
        if least > room {
            rows.push((job, 0, 0));
            continue;
        }
        room -= least;
        rows.push((job, least, gain(job, least, room)));
    }
    while room > 0 {
        // The first of those that gain most.
        let best = rows.iter_mut().reduce(|best, row| if row.2 > best.2 { row } else { best });
        let Some((job, count, worth)) = best.filter(|row| row.2 > 0) else { break };
        *count += 1;
        *worth = gain(job, *count, room);
        room -= 1;
    }
    rows.into_iter().map(|(job, count, _)| (job.spec.job, count)).collect()
}

/// Pollux: the counts that make the sum of inverse speed-ups smallest, by dynamic programming over jobs and GPUs.
fn by_goodput(now: Time, world: &ClusterWorld, jobs: &[&Job], gpus: u32) -> BTreeMap<JobId, u32> {
    let room = gpus as usize;
    let mut best = vec![0u128; room + 1];
    let mut choices: Vec<Vec<u32>> = Vec::with_capacity(jobs.len());
    for job in jobs {
        let costs = inverse_speedups(now, world, job, room);
        let mut next = vec![u128::MAX; room + 1];
        let mut choice = vec![0u32; room + 1];
        for (used, total) in next.iter_mut().enumerate() {
            for (count, cost) in &costs {
                let Some(rest) = used.checked_sub(*count as usize) else { continue };
                let sum = best[rest].saturating_add(*cost);
                if sum < *total {
                    (*total, choice[used]) = (sum, *count);
                }
            }
        }
        best = next;
        choices.push(choice);
    }
    let mut used = room;
    let mut counts = BTreeMap::new();
    for (job, choice) in jobs.iter().zip(&choices).rev() {
        counts.insert(job.spec.job, choice[used]);
        used -= choice[used] as usize;
    }
    counts
}

/// For each count of GPUs, the inverse of the speed-up over one, in millionths, worsened by a restart where it means one.
fn inverse_speedups(now: Time, world: &ClusterWorld, job: &Job, room: usize) -> Vec<(u32, u128)> {
    let held = job.grant().map_or(0, Grant::gpus);
    let age = now.since(job.spec.arrival);
    let lost = RESTART * u64::from(job.starts.saturating_sub(1));
    let one = u128::from(step(world, job, 1).ns().max(1));
    let (least, most) =
        (job.spec.elastic.0, most(world, job).min(u32::try_from(room.min(GPUS_MAX)).unwrap_or(0)));
    let mut costs = vec![(0, NOTHING)];
    for count in least..=most {
        let mut cost = u128::from(step(world, job, count).ns()) * 1_000_000 / one;
        if held > 0 && count != held {
            let kept = u128::from(age.saturating_sub(lost).ns().max(1));
            cost = cost.saturating_mul(u128::from((age + RESTART).ns())) / kept;
        }
        costs.push((count, cost.min(NOTHING)));
    }
    costs
}

impl Policy<ClusterWorld> for Elastic {
    fn name(&self) -> &'static str {
        match self.gain {
            Gain::RemainingTime => "optimus",
            Gain::Goodput => "pollux",
        }
    }

    fn decide(&mut self, now: Time, world: &ClusterWorld) -> Vec<Decision> {
        let mut jobs: Vec<&Job> = world.running().chain(world.waiting()).collect();
        jobs.sort_by_key(|job| job.spec.job);
        self.busy = !jobs.is_empty();
        let mut free = world.empty();
        let counts = match self.gain {
            Gain::RemainingTime => by_remaining_time(world, &jobs, free.gpus()),
            Gain::Goodput => by_goodput(now, world, &jobs, free.gpus()),
        };
        let mut wanted = Vec::new();
        for job in &jobs {
            let kept = job.grant().filter(|grant| grant.gpus() == counts[&job.spec.job]);
            if let Some(grant) = kept {
                free.take(grant);
                wanted.push((job.spec.job, grant.clone()));
            }
        }
        jobs.retain(|job| wanted.iter().all(|(id, _)| *id != job.spec.job));
        jobs.sort_by_key(|job| counts[&job.spec.job]);
        for job in jobs {
            let count = counts[&job.spec.job];
            if count > 0 {
                let pieces = Place::MostFree.take(&mut free, count, Share::asked(&job.spec));
                wanted.extend(pieces.map(|pieces| (job.spec.job, Grant::whole(pieces))));
            }
        }
        reach(world, wanted, None)
    }

    fn wake(&self, now: Time) -> Option<Time> {
        self.busy.then(|| now + self.round)
    }
}
