//! One queue in an order: FIFO, SJF, SRTF, SRSF, by their order and by whether running jobs give way.

use super::{Order, Place, Share};
use crate::Policy;
use crate::cluster::{ClusterWorld, Decision, Free, Grant, Job, JobId, Phase, Regrant};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use vocab::Time;

/// Whether a job that does not fit holds up those behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Admit {
    /// It does: nobody overtakes.
    Strict,
    /// It does not: whoever fits goes.
    Backfill,
}

/// Whether running jobs give way to those before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preempt {
    /// They run to their end.
    Never,
    /// They do, and those that stay keep their GPUs.
    InPlace,
    /// They do, and everybody is placed anew at each turn, first come first packed (Muri's simulator).
    Repack,
}

/// One queue in an order.
#[derive(Clone, Debug)]
pub struct Ordered {
    order: Order,
    admit: Admit,
    place: Place,
    preempt: Preempt,
    /// Live jobs in their latest order, with their gangs; without preemption, those that wait.
    queue: Vec<(u128, JobId, u32)>,
    /// Jobs that run after the latest turn: only their places can have changed.
    active: Vec<JobId>,
    /// Which jobs are active, by id, while the queue is sorted.
    touched: Vec<bool>,
    /// Somebody in the queue left it without having run.
    stale: bool,
}

impl Ordered {
    /// A fresh queue.
    #[must_use]
    pub const fn new(order: Order, admit: Admit, place: Place, preempt: Preempt) -> Self {
        Self {
            order,
            admit,
            place,
            preempt,
            queue: Vec::new(),
            active: Vec::new(),
            touched: Vec::new(),
            stale: false,
        }
    }

    /// Sorts live jobs by what is known of them now.
    fn sort(&mut self, world: &ClusterWorld) {
        let kept = |job: &Job| match job.phase {
            Phase::Waiting { .. } => true,
            Phase::Running { .. } => self.preempt != Preempt::Never,
            Phase::Ended { .. } => false,
        };
        let last = self.active.iter().chain(world.fresh()).map(|id| id.index() + 1).max().unwrap_or(0);
        self.touched.resize(self.touched.len().max(last), false);
        for id in &self.active {
            self.touched[id.index()] = true;
        }
        let (touched, stale, order) = (&mut self.touched, self.stale, self.order);
        self.queue.retain_mut(|(key, id, _)| {
            if !std::mem::take(&mut touched[id.index()]) && !stale {
                return true;
            }
            let job = world.known(*id);
            *key = order.key(job);
            kept(job)
        });
        // Jobs that a lost node sent back wait again.
        let queue = &mut self.queue;
        let mut enter = |id: &JobId| {
            let job = world.known(*id);
            queue.push((order.key(job), *id, job.spec.gpus));
        };
        for id in &self.active {
            if std::mem::take(&mut touched[id.index()]) && world.known(*id).waits() {
                enter(id);
            }
        }
        world.fresh().iter().filter(|id| kept(world.known(**id))).for_each(&mut enter);
        self.stale = false;
        self.queue.sort_by_key(|(key, ..)| *key);
    }

    /// Walks the queue and offers each job to `fit`, until nothing more can fit; whether somebody there had left.
    fn walk(&self, world: &ClusterWorld, mut room: u32, mut fit: impl FnMut(&Job) -> bool) -> bool {
        let mut stale = false;
        // Room only shrinks during a walk: a gang of a size that failed once fails again.
        let mut failed = BTreeSet::new();
        for (_, id, gang) in &self.queue {
            if room == 0 {
                return stale;
            }
            let hopeless = *gang > room || failed.contains(gang);
            if hopeless && self.admit == Admit::Backfill {
                continue;
            }
            let job = world.known(*id);
            if matches!(job.phase, Phase::Ended { .. }) {
                stale = true;
                continue;
            }
            if !hopeless && fit(job) {
                room -= gang;
            } else if self.admit == Admit::Strict {
                return stale;
            } else if uniform(&job.spec) {
                failed.insert(*gang);
            }
        }
        stale
    }

    fn start_waiting(&mut self, world: &ClusterWorld) -> Vec<Decision> {
        let mut free = world.free();
        let mut decisions = Vec::new();
        let place = self.place;
        self.stale = self.walk(world, free.gpus(), |job| {
            let pieces = place.take(&mut free, job.spec.gpus, Share::asked(&job.spec));
            decisions.extend(pieces.map(|pieces| start(job, pieces)));
            decisions
                .last()
                .is_some_and(|last| matches!(last, Decision::Start { job: id, .. } if *id == job.spec.job))
        });
        decisions
    }

    fn keep_in_place(&mut self, world: &ClusterWorld) -> Vec<Decision> {
        let mut chosen = Vec::new();
        self.stale = self.walk(world, world.gpus(), |job| {
            chosen.push(job.spec.job);
            true
        });
        let stays: BTreeSet<JobId> = chosen.iter().copied().collect();
        let mut free = world.free();
        let mut decisions = Vec::new();
        for job in world.running().filter(|job| !stays.contains(&job.spec.job)) {
            decisions.push(Decision::Stop { job: job.spec.job });
            free.give(job.grant().expect("a running job holds a grant"));
        }
        for job in chosen.iter().map(|id| world.known(*id)).filter(|job| job.waits()) {
            let pieces = self.place.take(&mut free, job.spec.gpus, Share::asked(&job.spec));
            decisions.extend(pieces.map(|pieces| start(job, pieces)));
        }
        decisions
    }

    fn repack(&mut self, world: &ClusterWorld) -> Vec<Decision> {
        let mut free: Free = world.empty();
        let mut placed = Vec::new();
        let place = self.place;
        self.stale = self.walk(world, free.gpus(), |job| {
            let pieces = place.take(&mut free, job.spec.gpus, Share::asked(&job.spec));
            placed.extend(pieces.map(|pieces| (job.spec.job, Grant::whole(pieces))));
            placed.last().is_some_and(|(id, _)| *id == job.spec.job)
        });
        reach(world, placed, None)
    }
}

/// The decisions that lead from what runs to `wanted`: stops, then all changes at once, then starts in order.
pub(super) fn reach(world: &ClusterWorld, wanted: Vec<(JobId, Grant)>, lease: Option<Time>) -> Vec<Decision> {
    let stays: BTreeSet<JobId> = wanted.iter().map(|(id, _)| *id).collect();
    let gone = world.running().map(|job| job.spec.job).filter(|id| !stays.contains(id));
    let mut decisions: Vec<Decision> = gone.map(|job| Decision::Stop { job }).collect();
    let (mut changes, mut starts) = (Vec::new(), Vec::new());
    for (job, grant) in wanted {
        match world.known(job).grant() {
            None => starts.push(Decision::Start { job, grant, lease }),
            Some(held) if *held != grant => changes.push(Regrant { job, grant }),
            Some(_) => {}
        }
    }
    if !changes.is_empty() {
        decisions.push(Decision::Regrant { changes });
    }
    decisions.append(&mut starts);
    decisions
}

fn start(job: &Job, pieces: Vec<crate::cluster::Piece>) -> Decision {
    Decision::Start { job: job.spec.job, grant: Grant::whole(pieces), lease: None }
}

/// Whether jobs of this gang differ in nothing but GPUs, so that one's failure to fit speaks for all.
const fn uniform(spec: &crate::cluster::JobSpec) -> bool {
    spec.cpu_milli == 0 && spec.memory.0 == 0
}

impl Policy<ClusterWorld> for Ordered {
    fn name(&self) -> &'static str {
        match (self.order, self.preempt) {
            (Order::Arrival, _) => "fifo",
            (Order::Remaining, Preempt::Never) => "sjf",
            (Order::Remaining, _) => "srtf",
            (Order::RemainingService, _) => "srsf",
        }
    }

    fn decide(&mut self, _now: Time, world: &ClusterWorld) -> Vec<Decision> {
        self.sort(world);
        let decisions = match self.preempt {
            Preempt::Never => self.start_waiting(world),
            Preempt::InPlace => self.keep_in_place(world),
            Preempt::Repack => self.repack(world),
        };
        self.active.clear();
        self.active.extend(world.running().map(|job| job.spec.job));
        self.active.extend(decisions.iter().filter_map(|decision| match decision {
            Decision::Start { job, .. } => Some(*job),
            _ => None,
        }));
        decisions
    }

    fn wake(&self, _now: Time) -> Option<Time> {
        None
    }
}
