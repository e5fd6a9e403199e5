//! Discretised least attained service (Tiresias, NSDI'19): queues by GPU time had; a job falls to the next queue at each
//! threshold, and lower queues run on what higher ones leave.
//!
//! ```text
//! queue 0: [runners, in order][waiting, in order][newcomers] ── threshold ──▶ queue 1: …
//! ```

use super::{Place, Share};
use crate::Policy;
use crate::cluster::{ClusterWorld, Decision, Grant, Job, JobId, Phase};
use std::collections::VecDeque;
use vocab::{Span, Time};

/// Discretised least attained service.
#[derive(Clone, Debug)]
pub struct Las {
    thresholds: Vec<Span>,
    runners_first: bool,
    /// A job that waited so many times as long as it ran goes back to the first queue; 0 is never.
    promote: u32,
    place: Place,
    queues: Vec<Queue>,
    /// Each job's time and GPU time when it last came to the first queue, by id.
    base: Vec<(Span, Span)>,
    /// Each job's queue and gang, by id.
    level: Vec<usize>,
    wake: Option<Time>,
}

/// A queue in three stretches, walked one after the other.
#[derive(Clone, Debug, Default)]
struct Queue {
    runners: Vec<JobId>,
    waiting: VecDeque<JobId>,
    /// Jobs that came to this queue since its last walk.
    newcomers: Vec<JobId>,
}

impl Las {
    /// Queues with these thresholds between them; see [`Choice::Las`](super::Choice::Las) for the rest.
    #[must_use]
    pub fn new(thresholds: Vec<Span>, runners_first: bool, promote: u32, place: Place) -> Self {
        let queues = vec![Queue::default(); thresholds.len() + 1];
        let (base, level) = (Vec::new(), Vec::new());
        Self { thresholds, runners_first, promote, place, queues, base, level, wake: None }
    }

    fn follow(&mut self, now: Time, world: &ClusterWorld) {
        let live = |id: &JobId| !matches!(world.known(*id).phase, Phase::Ended { .. });
        for queue in &mut self.queues {
            queue.runners.retain(live);
            queue.waiting.retain(live);
        }
        for id in world.fresh() {
            if self.level.len() <= id.index() {
                self.level.resize(id.index() + 1, 0);
                self.base.resize(id.index() + 1, (Span::ZERO, Span::ZERO));
            }
            // Only jobs that another policy ran before have had service.
            let service = world.known(*id).service(now);
            let level = self.thresholds.partition_point(|limit| *limit <= service);
            self.level[id.index()] = level;
            self.queues[level].newcomers.push(*id);
        }
    }

    /// Moves running jobs that passed their queue's threshold, one queue at a time, in order of arrival.
    fn demote(&mut self, now: Time, world: &ClusterWorld) {
        for job in world.running() {
            let (id, level) = (job.spec.job, self.level[job.spec.job.index()]);
            let passed = self.thresholds.get(level).is_some_and(|limit| self.service(now, job) >= *limit);
            if passed {
                let queue = &mut self.queues[level];
                queue.runners.retain(|other| *other != id);
                queue.waiting.retain(|other| *other != id);
                self.level[id.index()] = level + 1;
                self.queues[level + 1].newcomers.push(id);
            }
        }
    }

    /// GPU time since a job last came to the first queue.
    fn service(&self, now: Time, job: &Job) -> Span {
        job.service(now).saturating_sub(self.base[job.spec.job.index()].1)
    }

    /// When a waiting job of a lower queue goes back to the first, if it ever does.
    fn promoted_at(&self, now: Time, job: &Job) -> Option<Time> {
        let Phase::Waiting { since } = job.phase else { return None };
        let at = job.spec.job.index();
        let ran = job.ran(now).saturating_sub(self.base[at].0);
        (self.promote > 0 && self.level[at] > 0 && ran > Span::ZERO)
            .then(|| since + ran * u64::from(self.promote))
    }

    /// Moves jobs that waited too long back to the first queue.
    fn promote(&mut self, now: Time, world: &ClusterWorld) {
        if self.promote == 0 {
            return;
        }
        for job in world.waiting() {
            if self.promoted_at(now, job).is_none_or(|at| at > now) {
                continue;
            }
            let id = job.spec.job;
            let queue = &mut self.queues[self.level[id.index()]];
            queue.runners.retain(|other| *other != id);
            queue.waiting.retain(|other| *other != id);
            queue.newcomers.retain(|other| *other != id);
            self.level[id.index()] = 0;
            self.base[id.index()] = (job.ran(now), job.service(now));
            self.queues[0].newcomers.push(id);
        }
    }

    /// Chooses who runs: whoever still fits by count, queue by queue. Those chosen come first in their queue from then on.
    fn choose(&mut self, world: &ClusterWorld) -> Vec<JobId> {
        let mut room = world.empty().gpus();
        let mut chosen = Vec::new();
        let mut fits = |id: &JobId| {
            let gang = world.known(*id).spec.gpus;
            let fits = gang <= room;
            if fits {
                room -= gang;
                chosen.push(*id);
            }
            fits
        };
        for queue in &mut self.queues {
            if !self.runners_first {
                let newcomers = std::mem::take(&mut queue.newcomers);
                queue.waiting.extend(newcomers);
                for id in &queue.waiting {
                    fits(id);
                }
                continue;
            }
            let (stay, stopped): (Vec<_>, Vec<_>) =
                std::mem::take(&mut queue.runners).into_iter().partition(&mut fits);
            queue.runners = stay;
            let runners = &mut queue.runners;
            let mut keep_waiting = |id: &JobId| {
                let fits = fits(id);
                if fits {
                    runners.push(*id);
                }
                !fits
            };
            queue.waiting.retain(&mut keep_waiting);
            queue.newcomers.retain(&mut keep_waiting);
            for id in stopped.into_iter().rev() {
                queue.waiting.push_front(id);
            }
            queue.waiting.extend(queue.newcomers.drain(..));
        }
        chosen
    }

    /// When the first of `running` will pass its threshold, counted in whole seconds.
    fn next_demotion(&self, now: Time, world: &ClusterWorld, running: &[JobId]) -> Option<Time> {
        let passes = |id: &JobId| {
            let job = world.known(*id);
            let limit = self.thresholds.get(self.level[id.index()])?;
            let alone = limit.ns().div_ceil(u64::from(job.spec.gpus.max(1)));
            let whole = Span::from_ms(alone.div_ceil(1_000_000_000) * 1_000);
            let ran = job.ran(now).saturating_sub(self.base[id.index()].0);
            Some(now + whole.saturating_sub(ran))
        };
        let promotions =
            world.waiting().filter(|_| self.promote > 0).filter_map(|job| self.promoted_at(now, job));
        running.iter().filter_map(passes).chain(promotions).min()
    }
}

impl Policy<ClusterWorld> for Las {
    fn name(&self) -> &'static str {
        "las"
    }

    fn decide(&mut self, now: Time, world: &ClusterWorld) -> Vec<Decision> {
        self.follow(now, world);
        self.demote(now, world);
        self.promote(now, world);
        let chosen = self.choose(world);
        let mut stays = vec![false; self.level.len()];
        for id in &chosen {
            stays[id.index()] = true;
        }
        let mut free = world.free();
        let mut decisions = Vec::new();
        for job in world.running().filter(|job| !stays[job.spec.job.index()]) {
            decisions.push(Decision::Stop { job: job.spec.job });
            free.give(job.grant().expect("a running job holds a grant"));
        }
        for job in chosen.iter().map(|id| world.known(*id)).filter(|job| job.waits()) {
            let Some(pieces) = self.place.take(&mut free, job.spec.gpus, Share::asked(&job.spec)) else {
                continue;
            };
            decisions.push(Decision::Start { job: job.spec.job, grant: Grant::whole(pieces), lease: None });
        }
        self.wake = self.next_demotion(now, world, &chosen);
        decisions
    }

    fn wake(&self, _now: Time) -> Option<Time> {
        self.wake
    }
}
