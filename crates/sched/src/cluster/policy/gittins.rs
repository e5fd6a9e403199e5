//! The 2D-Gittins index (Tiresias, NSDI'19): nobody knows how long a job takes, but many ended before.
//!
//! A job that has had service `a` is worth the largest, over any further service Δ, of the chance to end within Δ over the
//! service it is expected to take for that. Both come from the jobs that have ended so far. Between two thresholds the index
//! is taken as constant, so that jobs change places seldom.

use super::{Place, Share};
use crate::Policy;
use crate::cluster::{ClusterWorld, Decision, Grant, Job, JobId, Phase};
use std::collections::{BTreeMap, BTreeSet};
use vocab::{Span, Time};

/// The largest chance to end soon for the service it takes, first.
#[derive(Clone, Debug)]
pub struct Gittins {
    place: Place,
    /// Service of jobs that ended, sorted; at most [`SAMPLES_MAX`].
    samples: Vec<Span>,
    ended: usize,
    /// Thresholds of service and the index from each on, in 10^-18 a nanosecond.
    table: Vec<(Span, u64)>,
    live: BTreeMap<JobId, Span>,
    wake: Option<Time>,
}

/// Jobs remembered; beyond, every second one is forgotten.
const SAMPLES_MAX: usize = 1_024;

/// Levels of service at most.
const LEVELS: usize = 16;

/// Ends between two makings of the table.
const REMAKE_EVERY: usize = 16;

impl Gittins {
    /// Knowing nothing yet: first come, first served until some jobs have ended.
    #[must_use]
    pub const fn new(place: Place) -> Self {
        Self { place, samples: Vec::new(), ended: 0, table: Vec::new(), live: BTreeMap::new(), wake: None }
    }

    /// Notes the service of jobs that ended.
    fn learn(&mut self, now: Time, world: &ClusterWorld) {
        let known = std::mem::take(&mut self.live);
        for id in known.into_keys() {
            let job = world.known(id);
            if !matches!(job.phase, Phase::Ended { .. }) {
                continue;
            }
            let service = job.service(now);
            let at = self.samples.partition_point(|sample| *sample <= service);
            self.samples.insert(at, service);
            self.ended += 1;
            if self.samples.len() > SAMPLES_MAX {
                let mut kept = false;
                self.samples.retain(|_| {
                    kept = !kept;
                    kept
                });
            }
            if self.ended.is_multiple_of(REMAKE_EVERY) {
                self.table = indices(&self.samples, LEVELS);
            }
        }
        self.live =
            world.running().chain(world.waiting()).map(|job| (job.spec.job, job.service(now))).collect();
    }

    fn level(&self, service: Span) -> usize {
        self.table.partition_point(|(from, _)| *from <= service)
    }

    fn index(&self, service: Span) -> u64 {
        self.level(service).checked_sub(1).map_or(0, |level| self.table[level].1)
    }

    /// When the first of `running` passes the next threshold.
    fn next_change(&self, now: Time, running: &[&Job]) -> Option<Time> {
        let passes = |job: &&Job| {
            let service = job.service(now);
            let (from, _) = self.table.get(self.level(service))?;
            let rest = from.saturating_sub(service).ns().div_ceil(u64::from(job.spec.gpus.max(1)));
            Some(now + Span::from_ns(rest.max(1)))
        };
        running.iter().filter_map(passes).min()
    }
}

/// The index from each of at most `levels` thresholds on, in 10^-18 a nanosecond, of jobs whose service is distributed as
/// `samples`, which are sorted.
#[must_use]
pub fn indices(samples: &[Span], levels: usize) -> Vec<(Span, u64)> {
    let mut from: BTreeSet<Span> = BTreeSet::from([Span::ZERO]);
    from.extend((1..levels).filter_map(|level| samples.get(samples.len() * level / levels)));
    let index = |from: Span| {
        let longer = &samples[samples.partition_point(|sample| *sample <= from)..];
        let (mut best, mut sum) = (0u128, 0u128);
        for (at, sample) in longer.iter().enumerate() {
            // Within as much service as this sample took, `at + 1` end; the others take all of it.
            let beyond = u128::from(sample.saturating_sub(from).ns());
            sum += beyond;
            let taken = sum + beyond * (longer.len() - at - 1) as u128;
            best = best.max((at as u128 + 1) * 1_000_000_000_000_000_000 / taken.max(1));
        }
        u64::try_from(best).unwrap_or(u64::MAX)
    };
    from.into_iter().map(|from| (from, index(from))).collect()
}

impl Policy<ClusterWorld> for Gittins {
    fn name(&self) -> &'static str {
        "gittins"
    }

    fn decide(&mut self, now: Time, world: &ClusterWorld) -> Vec<Decision> {
        self.learn(now, world);
        let mut queue: Vec<(u64, &Job)> = world
            .running()
            .chain(world.waiting())
            .map(|job| (u64::MAX - self.index(self.live[&job.spec.job]), job))
            .collect();
        queue.sort_by_key(|(rank, job)| (*rank, job.spec.arrival, job.spec.job));
        let mut room = world.gpus();
        let mut chosen: Vec<&Job> = Vec::new();
        for (_, job) in queue {
            if job.spec.gpus <= room {
                room -= job.spec.gpus;
                chosen.push(job);
            }
        }
        let stays: BTreeSet<JobId> = chosen.iter().map(|job| job.spec.job).collect();
        let mut free = world.free();
        let mut decisions = Vec::new();
        for job in world.running().filter(|job| !stays.contains(&job.spec.job)) {
            decisions.push(Decision::Stop { job: job.spec.job });
            free.give(job.grant().expect("a running job holds a grant"));
        }
        for job in chosen.iter().filter(|job| job.waits()) {
            let pieces = self.place.take(&mut free, job.spec.gpus, Share::asked(&job.spec));
            decisions.extend(pieces.map(|pieces| {
                let (job, grant) = (job.spec.job, Grant::whole(pieces));
                Decision::Start { job, grant, lease: None }
            }));
        }
        self.wake = self.next_change(now, &chosen);
        decisions
    }

    fn wake(&self, _now: Time) -> Option<Time> {
        self.wake
    }
}
