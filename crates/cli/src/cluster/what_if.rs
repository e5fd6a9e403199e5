//! What if another policy took over: several go on from one snapshot of a run under the first.

use super::load::Case;
use crate::args::Format;
use crate::output;
use anyhow::bail;
use sched::cluster::policy::Choice;
use serde::Serialize;
use sim::cluster::{ClusterSimulation, Summary};
use vocab::{Span, Time};

/// A policy's figures from the snapshot on.
#[derive(Serialize)]
struct Row {
    policy: String,
    #[serde(flatten)]
    summary: Summary,
    /// Mean completion time beyond that of the first policy, in percent.
    mean_completion_beyond_first_percent: f64,
    /// Worst finish-time fairness beyond that of the first policy, in percent.
    fairness_beyond_first_percent: f64,
}

pub(super) fn run(case: &Case, at_s: u64, format: Format) -> anyhow::Result<()> {
    let Some(((first, before), others)) = case.policies.split_first() else {
        bail!("name the policy that runs until then, and those that could take over, with --policy a,b,c");
    };
    let shares = |choice: &Choice| matches!(choice, Choice::Sharing { .. });
    if shares(before)
        && let Some((other, _)) = others.iter().find(|(_, choice)| !shares(choice))
    {
        bail!(
            "jobs that share GPUs under {first} cannot go on under {other}; name policies that share first to last"
        );
    }
    let setup = case.setup.clone().for_policy(first);
    for (other, _) in others {
        let theirs = case.setup.clone().for_policy(other);
        if (theirs.progress, theirs.round, theirs.apart_ppb) != (setup.progress, setup.round, setup.apart_ppb)
        {
            bail!("{other} counts time in its own simulator's way; it cannot go on from a run of {first}");
        }
    }
    let at = Time::ZERO + Span::from_ms(at_s.saturating_mul(1_000).min(u64::MAX / 2_000_000));
    let paused = ClusterSimulation::new(&case.trace, &setup, before)?.pause(at)?;
    let Some(next) = paused.next() else {
        bail!("all jobs have ended by {at_s} s under {first}; give an earlier --what-if-at");
    };
    let (running, waiting) = paused.load();
    super::note(&format!(
        "under {first} until {at_s} s: {running} jobs run, {waiting} wait; each policy goes on from the next turn, at {:.3} s",
        next.since(Time::ZERO).as_secs_f64()
    ));
    let mut rows: Vec<Row> = Vec::with_capacity(case.policies.len());
    for (name, choice) in &case.policies {
        let summary = Summary::of(&paused.resume(choice)?);
        let first = rows.first().map_or(&summary, |row| &row.summary);
        let beyond = |ours: f64, theirs: f64| (ours / theirs.max(1e-9) - 1.0) * 100.0;
        rows.push(Row {
            policy: name.clone(),
            mean_completion_beyond_first_percent: beyond(summary.mean_completion_s, first.mean_completion_s),
            fairness_beyond_first_percent: beyond(summary.fairness_max, first.fairness_max),
            summary,
        });
    }
    let columns = [
        "policy",
        "jobs",
        "mean JCT h",
        "vs first %",
        "p99 h",
        "makespan h",
        "worst FTF",
        "vs first %",
        "Jain",
        "restarts",
    ];
    output::rows(format, "what_if", &columns, &rows, cells)
}

fn cells(row: &Row) -> Vec<String> {
    let hours = |seconds: f64| format!("{:.3}", seconds / 3_600.0);
    let summary = &row.summary;
    vec![
        row.policy.clone(),
        summary.jobs.to_string(),
        hours(summary.mean_completion_s),
        format!("{:+.1}", row.mean_completion_beyond_first_percent),
        hours(summary.p99_completion_s),
        hours(summary.makespan_s),
        format!("{:.2}", summary.fairness_max),
        format!("{:+.1}", row.fairness_beyond_first_percent),
        format!("{:.3}", summary.fairness_jain),
        summary.restarts.to_string(),
    ]
}
