//! Why a job waited: its story, told from the turns of a run or of a journal.

use super::policy::Place;
use super::policy::Share;
use super::{ClusterWorld, Decision, Event, Job, JobId, Phase};
use crate::World;
use std::fmt;
use vocab::{Bytes, Time};

/// Why a job does or does not run after a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It runs on so many GPUs of so many nodes.
    Runs {
        /// GPUs.
        gpus: u32,
        /// Nodes.
        nodes: usize,
    },
    /// Fewer GPUs are free than it needs at once.
    Gang {
        /// What it needs.
        needs: u32,
        /// What is free.
        free: u32,
        /// Jobs that hold the others.
        running: usize,
    },
    /// GPUs suffice, but not as close together, or not beside enough CPUs and memory.
    Scattered {
        /// What it needs.
        needs: u32,
        /// What is free.
        free: u32,
    },
    /// It would fit; the policy keeps the room for others or for its next round.
    HeldBack {
        /// What is free.
        free: u32,
        /// Jobs that wait as well.
        waiting: usize,
    },
    /// It was stopped, and these were started in the same turn.
    Stopped {
        /// The others.
        others: Vec<JobId>,
    },
    /// A node it ran on was lost, or it failed.
    Lost,
    /// It ended.
    Ended,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runs { gpus, nodes } => write!(f, "runs on {gpus} GPUs of {nodes} nodes"),
            Self::Gang { needs, free, running } => {
                write!(
                    f,
                    "waits: needs {needs} GPUs at once, {free} are free, {running} jobs hold the others"
                )
            }
            Self::Scattered { needs, free } => write!(
                f,
                "waits: needs {needs} GPUs close together with their CPUs and memory, {free} are free elsewhere"
            ),
            Self::HeldBack { free, waiting } => {
                write!(f, "waits: {free} GPUs are free, the policy keeps them, {waiting} jobs wait as well")
            }
            Self::Stopped { others } if others.is_empty() => write!(f, "was stopped"),
            Self::Stopped { others } => {
                let names: Vec<String> = others.iter().take(NAMED).map(ToString::to_string).collect();
                let more = others.len().saturating_sub(NAMED);
                write!(f, "was stopped while {} started", names.join(", "))?;
                if more > 0 { write!(f, " and {more} more") } else { Ok(()) }
            }
            Self::Lost => write!(f, "lost a node it ran on, or failed"),
            Self::Ended => write!(f, "ended"),
        }
    }
}

/// Jobs named in one line.
const NAMED: usize = 5;

/// Lines a story keeps; later ones are counted only.
const LINES_MAX: usize = 10_000;

/// The story of one job.
#[derive(Clone, Debug)]
pub struct Story {
    job: JobId,
    world: ClusterWorld,
    /// When the reason changed, and to what.
    pub lines: Vec<(Time, Reason)>,
    /// Lines beyond what is kept.
    pub dropped: u64,
    /// Turns in which it waited.
    pub turns_waited: u64,
}

impl Story {
    /// The story of `job`, from a run's first turn on.
    #[must_use]
    pub fn of(job: JobId) -> Self {
        Self { job, world: ClusterWorld::new(), lines: Vec::new(), dropped: 0, turns_waited: 0 }
    }

    /// Folds one turn.
    pub fn turn(&mut self, now: Time, events: &[Event], decisions: &[Decision]) {
        let world = &mut self.world;
        let ran = world.job(self.job).is_some_and(|job| job.grant().is_some());
        for event in events {
            world.apply(now, event);
        }
        let runs = world.job(self.job).is_some_and(|job| job.grant().is_some());
        for decision in decisions {
            // A journal holds what was admitted; a damaged one is told by replaying it.
            let _ = world.admit(now, decision);
        }
        world.settle();
        let Some(job) = world.job(self.job) else { return };
        self.turns_waited += u64::from(job.waits());
        let stopped = decisions.contains(&Decision::Stop { job: self.job });
        let reason = if stopped && job.waits() {
            let others = decisions.iter().filter_map(|decision| match decision {
                Decision::Start { job, .. } => Some(*job),
                _ => None,
            });
            Reason::Stopped { others: others.collect() }
        } else if ran && !runs && job.waits() {
            Reason::Lost
        } else {
            why(world, job)
        };
        if self.lines.last().is_some_and(|(_, last)| *last == reason) {
            return;
        }
        if self.lines.len() < LINES_MAX {
            self.lines.push((now, reason));
        } else {
            self.dropped += 1;
        }
    }
}

/// Why `job` does or does not run, as `world` stands after a turn.
#[must_use]
pub fn why(world: &ClusterWorld, job: &Job) -> Reason {
    match &job.phase {
        Phase::Ended { .. } => return Reason::Ended,
        Phase::Running { grant, .. } => {
            return Reason::Runs { gpus: grant.gpus(), nodes: grant.pieces.len() };
        }
        Phase::Waiting { .. } => {}
    }
    let (running, waiting) = world.load();
    let mut free = world.free();
    let (needs, there) = (job.spec.elastic.0.min(job.spec.gpus), free.gpus());
    if there < needs {
        return Reason::Gang { needs, free: there, running };
    }
    let share = Share::asked(&job.spec);
    let alone = Share { cpu_milli: 0, memory: Bytes(0) };
    let close = Place::Consolidated.take(&mut free.clone(), needs, alone).is_some();
    if close && Place::Anywhere.take(&mut free, needs, share).is_some() {
        Reason::HeldBack { free: there, waiting: waiting.saturating_sub(1) }
    } else {
        Reason::Scattered { needs, free: there }
    }
}
