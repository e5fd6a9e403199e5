//! `raddle simulate`: policies on virtual time, side by side.

use crate::args::{Format, SimulateArgs};
use crate::output;
use anyhow::{Context as _, bail};
use sched::journal::{Record, Writer};
use sched::node::policy::Choice;
use sched::node::timeline::Timeline;
use serde::Serialize;
use sim::{Scenario, Simulation, Summary};
use std::fs::File;
use std::io::BufWriter;

#[derive(Serialize)]
struct Row {
    policy: String,
    #[serde(flatten)]
    summary: Summary,
}

pub(crate) fn run(args: &SimulateArgs, format: Format) -> anyhow::Result<()> {
    let mut scenario = Scenario::read(&args.scenario)?;
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    let choices = choices(args, &scenario)?;
    if choices.len() > 1 && (args.journal.is_some() || args.timeline.is_some()) {
        bail!("a journal or timeline is of one policy; name one with --policy");
    }
    let bar = output::progress(choices.len() as u64, "simulating");
    let results: Vec<anyhow::Result<Vec<Row>>> = std::thread::scope(|scope| {
        let start = |choice: Choice| {
            let (scenario, bar) = (&scenario, &bar);
            scope.spawn(move || {
                let rows = one(scenario, &choice, args);
                bar.inc(1);
                rows
            })
        };
        let threads: Vec<_> = choices.into_iter().map(start).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, anyhow::Result<Vec<Row>>>| {
            thread
                .join()
                .unwrap_or_else(|_| Err(anyhow::anyhow!("a simulation panicked; please report its scenario")))
        };
        threads.into_iter().map(join).collect()
    });
    bar.finish_and_clear();
    let rows =
        results.into_iter().collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten().collect::<Vec<_>>();
    print(&rows, format)
}

fn choices(args: &SimulateArgs, scenario: &Scenario) -> anyhow::Result<Vec<Choice>> {
    if args.policy.is_empty() {
        return Ok(vec![scenario.choice()]);
    }
    let named = |name: &String| {
        Choice::named(name)
            .with_context(|| format!("no policy is called {name:?}; there are {}", Choice::NAMES.join(", ")))
    };
    args.policy.iter().map(named).collect()
}

fn one(scenario: &Scenario, choice: &Choice, args: &SimulateArgs) -> anyhow::Result<Vec<Row>> {
    let create = |path: &std::path::Path| {
        File::create(path).map(BufWriter::new).with_context(|| format!("cannot write {}", path.display()))
    };
    let journal = args.journal.as_deref().map(create).transpose()?;
    let mut journal = journal.map(|sink| Writer::new(sink, choice)).transpose()?;
    let mut timeline = args.timeline.as_deref().map(create).transpose()?.map(Timeline::new).transpose()?;
    let outcome = Simulation::new(scenario, choice).run(|now, events, decisions| {
        if let Some(journal) = &mut journal {
            journal.append(now, events, decisions)?;
        }
        if let Some(timeline) = &mut timeline {
            timeline.turn(&Record { now, events: events.to_vec(), decisions: decisions.to_vec() })?;
        }
        Ok(())
    })?;
    if let Some(mut journal) = journal {
        journal.flush()?;
    }
    if let Some(timeline) = timeline {
        timeline.finish()?;
    }
    let policy = choice.build().name().to_owned();
    let row = |summary| Row { policy: policy.clone(), summary };
    Ok(outcome.tally.summary(outcome.partitions).into_iter().map(row).collect())
}

fn print(rows: &[Row], format: Format) -> anyhow::Result<()> {
    let mut columns = vec![
        "policy", "model", "class", "requests", "done", "late", "rejected", "dropped", "p50 ms", "p95 ms",
        "p99 ms", "done/s", "busy %", "parks",
    ];
    let loads = rows.iter().any(|row| row.summary.loads.is_some());
    columns.extend(loads.then_some("loads"));
    output::rows(format, "results", &columns, rows, |Row { policy, summary: s }| {
        let count = |number: Option<u64>| number.map_or_else(|| "-".into(), |number| number.to_string());
        let mut cells = vec![
            policy.clone(),
            s.model.clone(),
            s.class.map_or_else(|| "-".into(), |class| class.level().to_string()),
            s.requests.to_string(),
            s.done.to_string(),
            s.late.to_string(),
            s.rejected.to_string(),
            s.dropped.to_string(),
            output::number(s.p50_ms),
            output::number(s.p95_ms),
            output::number(s.p99_ms),
            format!("{:.1}", s.throughput),
            output::number(s.utilisation.map(|share| share * 100.0)),
            count(s.parks),
        ];
        cells.extend(loads.then(|| count(s.loads)));
        cells
    })
}
