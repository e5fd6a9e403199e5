//! Runs every policy and seed, several at once, in an order that does not depend on how many.

use super::ClusterArgs;
use super::load::Case;
use crate::output;
use anyhow::{Context as _, bail};
use sched::cluster::JobId;
use sched::cluster::policy::Choice;
use sched::journal::Writer;
use sim::cluster::{ClusterOutcome, ClusterSimulation, Trace};
use std::fs::File;
use std::io::BufWriter;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One policy on one seed.
pub(super) struct Run {
    pub(super) policy: String,
    pub(super) seed: u32,
    /// The jobs dealt anew, for seeds beyond the first.
    pub(super) dealt: Option<Trace>,
    pub(super) outcome: ClusterOutcome,
}

pub(super) fn all(args: &ClusterArgs, case: &Case) -> anyhow::Result<Vec<Run>> {
    let seeds = args.seeds.clamp(1, SEEDS_MAX);
    let tasks: Vec<(&str, &Choice, u32)> = case
        .policies
        .iter()
        .flat_map(|(name, choice)| (0..seeds).map(move |seed| (name.as_str(), choice, seed)))
        .collect();
    if tasks.len() > 1 && args.journal.is_some() {
        bail!("a journal is of one policy and seed; name one with --policy");
    }
    let jobs = case.trace.jobs.len() as u64;
    let bar = output::progress(jobs * tasks.len() as u64, "simulating");
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<anyhow::Result<Run>>>> = Mutex::new(tasks.iter().map(|_| None).collect());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.unwrap_or(cores).clamp(1, tasks.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(task) = tasks.get(at) else { return };
                    let result = one(args, case, *task, &bar);
                    results.lock().unwrap_or_else(std::sync::PoisonError::into_inner)[at] = Some(result);
                }
            });
        }
    });
    bar.finish_and_clear();
    let results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let missing = || anyhow::anyhow!("a simulation panicked; please report its trace");
    results.into_iter().map(|result| result.unwrap_or_else(|| Err(missing()))).collect()
}

/// Seeds at most.
const SEEDS_MAX: u32 = 1_000;

fn one(
    args: &ClusterArgs,
    case: &Case,
    (name, choice, seed): (&str, &Choice, u32),
    bar: &indicatif::ProgressBar,
) -> anyhow::Result<Run> {
    let dealt = (seed > 0).then(|| case.trace.dealt(u64::from(seed)));
    let trace = dealt.as_ref().unwrap_or(&case.trace);
    let mut setup = case.setup.clone().for_policy(name);
    if let sim::cluster::Belief::Noisy { seed: noise, .. } = &mut setup.belief {
        *noise += u64::from(seed);
    }
    let mut simulation = ClusterSimulation::new(trace, &setup, choice)?;
    if let Some((_, to)) = case.window {
        simulation = simulation.until(JobId(to - 1));
    }
    let create = |path: &std::path::PathBuf| {
        File::create(path).map(BufWriter::new).with_context(|| format!("cannot write {}", path.display()))
    };
    let mut journal =
        args.journal.as_ref().map(create).transpose()?.map(|sink| Writer::new(sink, choice)).transpose()?;
    let mut ended = 0;
    let mut outcome = simulation
        .run(|now, events, decisions| {
            let ends = events
                .iter()
                .filter(|event| matches!(event, sched::cluster::Event::JobFinished { .. }))
                .count();
            ended += ends as u64;
            bar.inc(ends as u64);
            match &mut journal {
                Some(journal) => journal.append(now, events, decisions),
                None => Ok(()),
            }
        })
        .with_context(|| format!("policy {name}"))?;
    bar.inc((trace.jobs.len() as u64).saturating_sub(ended));
    if let Some(mut journal) = journal {
        journal.flush()?;
    }
    if let Some((from, to)) = case.window {
        outcome.keep(from, to);
        if outcome.completed.is_empty() {
            bail!("no job of the trace is in the window {from}..{to}; it holds {}", trace.jobs.len());
        }
    }
    Ok(Run { policy: name.to_owned(), seed, dealt, outcome })
}
