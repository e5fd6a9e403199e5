//! Public traces: one reader a format, all giving the same jobs, and all problems of a file at once.

mod muri;
mod philly;
mod synergy;
mod table;

pub use muri::{muri, tiresias};
pub use philly::philly;
pub use synergy::synergy;

use std::collections::BTreeSet;
use std::fmt;
use vocab::{Bytes, Span, Time};

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
}

fn lines(problems: &[Problem]) -> String {
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
    fn checked(mut jobs: Vec<TraceJob>, mut problems: Vec<Problem>) -> Result<Self, TraceError> {
        let mut names = BTreeSet::new();
        for job in &jobs {
            let mut problem = |what: String| problems.push(Problem { line: job.line, what });
            if !names.insert(&job.name) {
                problem(format!("job \"{}\" is there twice; give each job its own id", job.name));
            }
            if job.gpus == 0 {
                problem(format!("job \"{}\" asks for no GPU; give at least 1", job.name));
            }
            if job.iterations == 0 || job.iteration == Span::ZERO {
                problem(format!("job \"{}\" takes no time; remove it or give its duration", job.name));
            }
        }
        if jobs.is_empty() && problems.is_empty() {
            problems.push(Problem { line: 1, what: "the trace holds no job".into() });
        }
        if !problems.is_empty() {
            problems.sort_by_key(|problem| problem.line);
            return Err(TraceError { problems });
        }
        jobs.sort_by_key(|job| job.arrival);
        Ok(Self { jobs })
    }

    /// Models by name, each once, sorted: a job's [`vocab::ModelId`] is its model's place here.
    #[must_use]
    pub fn models(&self) -> Vec<&str> {
        let names: BTreeSet<&str> = self.jobs.iter().map(|job| job.model.as_str()).collect();
        names.into_iter().collect()
    }
}
