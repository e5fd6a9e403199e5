//! `raddle simulate cluster`: public traces under many policies, side by side, on virtual time.

mod args;
mod explain;
mod load;
mod report;
mod run;
mod what_if;

pub(crate) use args::ClusterArgs;

use crate::args::Format;
use crate::output;
use anyhow::{Context as _, bail};
use run::Run;
use serde::Serialize;
use sim::cluster::{ClusterOutcome, Summary, Trace};
use std::fmt::Write as _;
use std::io::Write as _;

/// A policy's figures, over all seeds.
#[derive(Serialize)]
struct Row {
    policy: String,
    #[serde(flatten)]
    summary: Summary,
    /// Least and largest mean completion time over the seeds, when there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_completion_s_range: Option<(f64, f64)>,
}

pub(crate) fn run(args: &ClusterArgs, format: Format) -> anyhow::Result<()> {
    let case = load::case(args)?;
    for text in &case.trace.notes {
        note(text);
    }
    if let Some(job) = &args.explain {
        return explain::run(&case, job, format);
    }
    if let Some(at) = args.what_if_at {
        return what_if::run(&case, at, format);
    }
    let results = run::all(args, &case)?;
    if let Some(path) = &args.jobs {
        std::fs::write(path, jobs_csv(&case.trace, &results))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(path) = &args.report {
        report::write(path, &case, &results)?;
    }
    print(&results, format)
}

/// Says something beside the results on stderr.
fn note(text: &str) {
    // Nothing is lost for those who read stdout only.
    let _ = writeln!(std::io::stderr().lock(), "note: {text}");
}

fn print(results: &[Run], format: Format) -> anyhow::Result<()> {
    let rows: Vec<Row> =
        results.iter().filter(|result| result.seed == 0).map(|first| row(first, results)).collect();
    let spread = rows.iter().any(|row| row.mean_completion_s_range.is_some());
    let mut columns = vec![
        "policy",
        "jobs",
        "mean JCT h",
        "median h",
        "p99 h",
        "makespan h",
        "queueing h",
        "worst FTF",
        "Jain",
        "GPU %",
        "CPU %",
        "restarts",
    ];
    if spread {
        columns.insert(3, "over seeds h");
    }
    output::rows(format, "results", &columns, &rows, |row| cells(row, spread))
}

fn row(first: &Run, results: &[Run]) -> Row {
    let means = results.iter().filter(|result| result.policy == first.policy);
    let means: Vec<f64> = means.map(|result| result.outcome.mean_completion_s()).collect();
    let range = means.iter().fold((f64::MAX, 0.0f64), |(low, high), mean| (low.min(*mean), high.max(*mean)));
    Row {
        policy: first.policy.clone(),
        summary: Summary::of(&first.outcome),
        mean_completion_s_range: (means.len() > 1).then_some(range),
    }
}

fn cells(row: &Row, spread: bool) -> Vec<String> {
    let hours = |seconds: f64| format!("{:.3}", seconds / 3_600.0);
    let summary = &row.summary;
    let mut cells = vec![
        row.policy.clone(),
        summary.jobs.to_string(),
        hours(summary.mean_completion_s),
        hours(summary.median_completion_s),
        hours(summary.p99_completion_s),
        hours(summary.makespan_s),
        hours(summary.mean_queueing_s),
        format!("{:.2}", summary.fairness_max),
        format!("{:.3}", summary.fairness_jain),
        format!("{:.1}", summary.gpu_use * 100.0),
        summary.cpu_use.map_or_else(|| "-".into(), |share| format!("{:.1}", share * 100.0)),
        summary.restarts.to_string(),
    ];
    if spread {
        let range = row.mean_completion_s_range;
        let shown = range.map_or_else(|| "-".into(), |(low, high)| format!("{}–{}", hours(low), hours(high)));
        cells.insert(3, shown);
    }
    cells
}

/// Each job's times under each policy and seed.
fn jobs_csv(trace: &Trace, results: &[Run]) -> String {
    let mut text =
        "policy,seed,job,line,model,gpus,arrival_s,started_s,ended_s,jct_s,solo_s,rho,starts\n".to_owned();
    for result in results {
        let outcome: &ClusterOutcome = &result.outcome;
        for (job, rho) in outcome.completed.iter().zip(outcome.fairness()) {
            let dealt = result.dealt.as_ref().unwrap_or(trace);
            let traced = &dealt.jobs[job.job.index()];
            let seconds = |ns: u64| ns as f64 / 1e9;
            writeln!(
                text,
                "{},{},{},{},{},{},{},{},{},{},{},{rho:.4},{}",
                result.policy,
                result.seed,
                traced.name,
                traced.line,
                traced.model.replace(',', ";"),
                job.gpus,
                seconds(job.arrival.ns()),
                seconds(job.started.ns()),
                seconds(job.ended.ns()),
                seconds(job.completion().ns()),
                seconds(job.solo.ns()),
                job.starts,
            )
            .expect("writing to a string succeeds");
        }
    }
    text
}

/// The journal of a cluster, replayed: whether every decision came out the same.
pub(crate) fn replay(path: &std::path::Path, format: Format) -> anyhow::Result<()> {
    use sched::cluster::{ClusterWorld, policy::Choice};
    use sched::journal::{Reader, Replay};
    let file =
        std::fs::File::open(path).with_context(|| format!("cannot open journal {}", path.display()))?;
    let (mut reader, choice) = Reader::new::<Choice>(std::io::BufReader::new(file))
        .with_context(|| format!("{} is no journal of a cluster", path.display()))?;
    let replay = sched::journal::replay(&mut reader, &mut ClusterWorld::new(), &mut *choice.build())?;
    match replay {
        Replay::Same { turns, decisions } => {
            let text = match format {
                Format::Json => output::json("replay", &serde_json::json!({"same": true, "turns": turns}))?,
                _ => format!("all {decisions} decisions of {turns} turns came out the same"),
            };
            output::print(&text)
        }
        Replay::Differs { turn, now, recorded, replayed } => bail!(
            "turn {turn} at {now} decides {} things differently; first recorded {:?}, now {:?}",
            recorded.len().max(replayed.len()),
            recorded.first(),
            replayed.first()
        ),
    }
}

#[cfg(test)]
mod tests;
