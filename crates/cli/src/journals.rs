//! `raddle replay`, `explain` and `timeline`: what a journal tells.

use crate::args::{ExplainArgs, Format, JournalArgs, TimelineArgs};
use crate::{output, picture};
use anyhow::{Context as _, bail};
use sched::journal::{Reader, Record, Replay};
use sched::node::policy::Choice;
use sched::node::timeline::Timeline;
use sched::node::{Decision, Event, NodeWorld};
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;
use std::process::ExitCode;
use vocab::{RequestId, Span, Time};

type NodeRecord = Record<Event, Decision>;

/// Exit code of a replay that decided differently.
const DIFFERS: u8 = 3;

fn open(path: &Path) -> anyhow::Result<(Reader<BufReader<File>>, Choice)> {
    let file = File::open(path).with_context(|| format!("cannot open journal {}", path.display()))?;
    Reader::new(BufReader::new(file)).with_context(|| format!("cannot read journal {}", path.display()))
}

fn records(path: &Path) -> anyhow::Result<Vec<NodeRecord>> {
    let (mut reader, _) = open(path)?;
    let mut records = Vec::new();
    while let Some(record) = reader.next_turn()? {
        records.push(record);
    }
    Ok(records)
}

pub(crate) fn replay(args: &JournalArgs, format: Format) -> ExitCode {
    let outcome = open(&args.journal).and_then(|(mut reader, choice)| {
        let mut policy = choice.build();
        let name = policy.name();
        let replay = sched::journal::replay(&mut reader, &mut NodeWorld::new(), &mut *policy)?;
        Ok((replay, name))
    });
    let shown = outcome.and_then(|(replay, name)| show(replay, name, format));
    match shown {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(DIFFERS),
        Err(error) => {
            output::complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// Prints what a replay found; whether it decided the same.
fn show(replay: Replay<Decision>, policy: &str, format: Format) -> anyhow::Result<bool> {
    let same = matches!(replay, Replay::Same { .. });
    let text = match (&replay, format) {
        (Replay::Same { turns, decisions }, Format::Json) => output::json(
            "replay",
            &serde_json::json!({"same": true, "turns": turns, "decisions": decisions}),
        )?,
        (Replay::Differs { turn, now, recorded, replayed }, Format::Json) => output::json(
            "replay",
            &serde_json::json!({"same": false, "turn": turn, "now_ns": now.ns(), "recorded": recorded,
                "replayed": replayed}),
        )?,
        (Replay::Same { turns, decisions }, _) => {
            format!("{policy}: {turns} turns replayed, all {decisions} decisions the same")
        }
        (Replay::Differs { turn, now, recorded, replayed }, _) => format!(
            "{policy}: turn {turn} at {now} decided differently\n  recorded: {recorded:?}\n  replayed: {replayed:?}"
        ),
    };
    output::print(&text)?;
    Ok(same)
}

pub(crate) fn explain(args: &ExplainArgs, format: Format) -> anyhow::Result<()> {
    let number = args.request.strip_prefix('r').unwrap_or(&args.request);
    let id: u64 =
        number.parse().with_context(|| format!("{:?} is not a request number such as 17", args.request))?;
    let story = sched::node::explain(records(&args.journal)?, RequestId(id));
    let Some(story) = story else { bail!("request r{id} is not in journal {}", args.journal.display()) };
    let text = match format {
        Format::Json => output::json("story", &story.lines().map(str::trim).collect::<Vec<_>>())?,
        Format::Table | Format::Csv => story.trim_end().to_owned(),
    };
    output::print(&text)
}

pub(crate) fn timeline(args: &TimelineArgs) -> anyhow::Result<()> {
    let records = records(&args.journal)?;
    let limit = |ms: Option<u64>, default| ms.map_or(default, |ms| Time::ZERO + Span::from_ms(ms));
    let range = limit(args.from_ms, Time::ZERO)..limit(args.to_ms, Time::FOREVER);
    let path = &args.output;
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => {
            let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
            let mut timeline = Timeline::new(BufWriter::new(file))?;
            for record in &records {
                // Earlier turns still shape the world, so all are shown; viewers zoom.
                timeline.turn(record)?;
            }
            timeline.finish()?;
        }
        Some("svg") => {
            let svg = picture::timeline(&records, range)?;
            std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))?;
        }
        _ => bail!("{} should end in .json (for ui.perfetto.dev) or .svg", path.display()),
    }
    output::print(&format!("{} turns drawn to {}", records.len(), path.display()))
}
