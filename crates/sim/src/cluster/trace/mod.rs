//! Public traces: one reader a format, all giving the same jobs, and all problems of a file at once.

mod alibaba;
mod format;
mod gavel;
mod muri;
mod philly;
mod pollux;
mod shockwave;
mod synergy;
mod table;

pub use alibaba::{GPU_MEMORY, alibaba, alibaba_nodes, share_need};
pub use format::{Companions, Format, FormatError};
pub use gavel::gavel;
pub(in crate::cluster) use muri::iteration_s;
pub use muri::{muri, tiresias};
pub use philly::philly;
pub use pollux::pollux;
pub use shockwave::shockwave;
pub use synergy::{synergy, synergy_deployed};
pub(in crate::cluster) use table::Table;

use std::collections::BTreeSet;
use std::fmt;
use vocab::{Bytes, Rng, Span, Time};

/// Longest time of a job alone, in ns: an eighth of what a time can hold, some 70 years.
const LONGEST: u128 = u64::MAX as u128 / 8;

/// A job of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceJob {
    /// The line it was read from, from 1.
    pub line: usize,
    /// Its name in the trace.
    pub name: String,
    /// Its model; empty where the trace names none.
    pub model: String,
    /// When it was submitted, from the trace's zero.
    pub arrival: Time,
    /// GPUs, all at once.
    pub gpus: u32,
    /// Iterations to do; at least 1.
    pub iterations: u64,
    /// Time of one iteration alone, at an even part of CPUs and memory.
    pub iteration: Span,
    /// Time lost when it starts or goes on.
    pub restart: Span,
    /// CPUs beyond which it gets no faster, in thousandths, over all its GPUs; 0 where the trace says nothing.
    pub cpu_milli: u64,
    /// Main memory beyond which it gets no faster, over all its GPUs.
    pub memory: Bytes,
    /// How many times faster it is with that much, in millionths.
    pub speedup_micro: u64,
    /// Rows of its batch; 0 where the trace does not say.
    pub batch: u32,
}

impl TraceJob {
    /// Its time alone, from start to end.
    #[must_use]
    pub fn solo(&self) -> Span {
        self.iteration * self.iterations
    }
}

/// A trace: jobs in order of arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The jobs; those that arrive together in the order of their lines.
    pub jobs: Vec<TraceJob>,
    /// Rules that reading followed, for the user: what was left out or assumed.
    pub notes: Vec<String>,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// Why a trace cannot be used: everything that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the trace has {} problems:\n{}", .problems.len(), lines(.problems))]
pub struct TraceError {
    /// The problems, by line.
    pub problems: Vec<Problem>,
    /// The trace without the jobs that have problems, for those who want to go on.
    pub rest: Trace,
}

pub(super) fn lines(problems: &[Problem]) -> String {
    const SHOWN: usize = 20;
    let mut lines: Vec<String> = problems.iter().take(SHOWN).map(ToString::to_string).collect();
    if problems.len() > SHOWN {
        lines.push(format!("and {} more", problems.len() - SHOWN));
    }
    lines.join("\n")
}

impl Trace {
    /// A trace of `jobs`, sorted by arrival, after the checks that are the same for all formats.
    ///
    /// # Errors
    /// With `problems` and those of the jobs, when there are any.
    fn checked(jobs: Vec<TraceJob>, mut problems: Vec<Problem>) -> Result<Self, TraceError> {
        let mut names = BTreeSet::new();
        let mut good = Vec::with_capacity(jobs.len());
        for job in jobs {
            let before = problems.len();
            let mut problem = |what: String| problems.push(Problem { line: job.line, what });
            if !names.insert(job.name.clone()) {
                problem(format!("job \"{}\" is there twice; give each job its own id", job.name));
            }
            if job.gpus == 0 {
                problem(format!("job \"{}\" asks for no GPU; give at least 1", job.name));
            }
            let solo = u128::from(job.iteration.ns()) * u128::from(job.iterations);
            if solo == 0 {
                problem(format!("job \"{}\" takes no time; remove it or give its duration", job.name));
            } else if solo > LONGEST || job.arrival.ns() > u64::MAX / 8 {
                problem(format!("job \"{}\" lasts or arrives beyond 70 years; check its units", job.name));
            }
            if problems.len() == before {
                good.push(job);
            }
        }
        if good.is_empty() && problems.is_empty() {
            problems.push(Problem { line: 1, what: "the trace holds no job".into() });
        }
        good.sort_by_key(|job| job.arrival);
        let trace = Self { jobs: good, notes: Vec::new() };
        if problems.is_empty() {
            return Ok(trace);
        }
        problems.sort_by_key(|problem| problem.line);
        Err(TraceError { problems, rest: trace })
    }

    /// This trace with a rule its reader followed.
    #[must_use]
    fn noting(mut self, note: String) -> Self {
        self.notes.push(note);
        self
    }

    /// The same arrivals with the jobs dealt anew among them: another order of the same work, for a spread. Seed 0 changes
    /// nothing.
    #[must_use]
    pub fn dealt(&self, seed: u64) -> Self {
        let mut jobs = self.jobs.clone();
        if seed > 0 {
            let mut rng = Rng::new(seed);
            let arrivals: Vec<Time> = jobs.iter().map(|job| job.arrival).collect();
            for at in (1..jobs.len()).rev() {
                let other = usize::try_from(rng.below(at as u64 + 1)).expect("a place in a list fits");
                jobs.swap(at, other);
            }
            for (job, arrival) in jobs.iter_mut().zip(arrivals) {
                job.arrival = arrival;
            }
        }
        Self { jobs, notes: self.notes.clone() }
    }

    /// Models by name, each once, sorted: a job's [`vocab::ModelId`] is its model's place here.
    #[must_use]
    pub fn models(&self) -> Vec<&str> {
        let names: BTreeSet<&str> = self.jobs.iter().map(|job| job.model.as_str()).collect();
        names.into_iter().collect()
    }
}
