//! `raddle plan replan`.

use crate::args::Format;
use crate::output;
use crate::plan::args::ReplanArgs;
use crate::plan::clock::{Clock, TimeUsed};
use crate::plan::{amounts, input, size, write};
use anyhow::{Context as _, bail};
use plan::Limits;
use plan::formats::{PlacementDocument, read_document};
use plan::replan::{Change, How, Moving, Way, replan};
use serde::Serialize;

#[derive(Serialize)]
struct Printed {
    schema_version: u32,
    graph: String,
    /// The cheapest way's plan, for `raddle plan judge` and the next change.
    placement: PlacementDocument,
    /// The numbers of the devices that run each part.
    device_of: Vec<Vec<usize>>,
    ways: Vec<Row>,
    time: TimeUsed,
}

#[derive(Serialize)]
struct Row {
    how: &'static str,
    value_ms: f64,
    proved: bool,
    moved_bytes: u64,
    moving_ms: f64,
    total_ms: f64,
    devices: Vec<Vec<usize>>,
}

pub(crate) fn run(args: &ReplanArgs, format: Format) -> anyhow::Result<()> {
    let mut clock = Clock::start(args.time_limit)?;
    let input = input::read(&args.graph)?;
    clock.has_read();
    let what = || format!("{} is not a placement that raddle wrote", args.plan.display());
    let document = read_document(&input::text(&args.plan)?).map_err(|error| input::plain(&what(), &error))?;
    let running = document.placement(&input.graph)?;
    let changes = changes(&args.change)?;
    let moving = Moving { bytes_per_second: amounts::rate(&args.moving)?, samples: args.samples };
    let stop = || clock.passed(1.0);
    let limits = Limits { pairs_max: u64::MAX, stop: &stop, ..Limits::default() };
    let devices = document.devices();
    let communication = document.communication();
    let ways = replan(&input.graph, (&devices, &running), &changes, communication, moving, limits)?;
    let best = ways.first().context("there is a way, or it was said why not")?;
    let known = plan::Report {
        value_ms: best.value_ms,
        lower_ms: if best.proved { best.value_ms } else { 0.0 },
        proved: best.proved,
        binding: plan::Binding::Compute { part: worst(&input.graph, communication, best) },
        work: plan::Work::default(),
    };
    let printed = Printed {
        schema_version: 1,
        placement: PlacementDocument::new(
            &input.graph,
            &best.devices,
            communication,
            &best.placement,
            &known,
        ),
        graph: input.name,
        device_of: best.device_of.clone(),
        ways: ways.iter().map(row).collect(),
        time: clock.used(),
    };
    if let Some(path) = &args.output {
        write(path, &serde_json::to_string_pretty(&printed)?)?;
    }
    match format {
        Format::Json => return output::print(&serde_json::to_string_pretty(&printed)?),
        Format::Csv => {}
        Format::Table => output::print(&format!(
            "{}: {}, {:.4} ms a sample, after moving {} in {:.3} ms; planned in {:.1} ms\n",
            printed.graph,
            printed.ways[0].how,
            best.value_ms,
            size(best.moved_bytes as f64),
            best.moving_ms,
            printed.time.wall_s * 1e3
        ))?,
    }
    let columns = ["way", "ms a sample", "proved", "moves", "moving ms", "total ms", "devices"];
    output::rows(format, "ways", &columns, &printed.ways, |row| {
        vec![
            row.how.to_owned(),
            format!("{:.4}", row.value_ms),
            if row.proved { "yes" } else { "no" }.to_owned(),
            size(row.moved_bytes as f64),
            format!("{:.3}", row.moving_ms),
            format!("{:.1}", row.total_ms),
            row.devices.iter().map(|devices| list(devices)).collect::<Vec<_>>().join(" "),
        ]
    })
}

/// The part with the greatest load.
fn worst(graph: &plan::OperatorGraph, communication: plan::Communication, way: &Way) -> usize {
    let verdict = plan::judge(graph, &way.devices, communication, &way.placement);
    verdict.parts.iter().position(|part| part.load_ms >= verdict.value_ms).unwrap_or_default()
}

fn row(way: &Way) -> Row {
    Row {
        how: match way.how {
            How::Keep => "keep",
            How::Shift => "shift boundaries",
            How::Anew => "anew",
        },
        value_ms: way.value_ms,
        proved: way.proved,
        moved_bytes: way.moved_bytes,
        moving_ms: way.moving_ms,
        total_ms: way.total_ms,
        devices: way.device_of.clone(),
    }
}

fn list(devices: &[usize]) -> String {
    devices.iter().map(ToString::to_string).collect::<Vec<_>>().join("+")
}

/// `2:speed=0.5`, `1:memory=8GiB`, `0:lost`, `add:16GiB@0.5`; all faults at once.
fn changes(texts: &[String]) -> anyhow::Result<Vec<(usize, Change)>> {
    let one = |text: &String| -> anyhow::Result<(usize, Change)> {
        let (device, what) = text.split_once(':').with_context(|| {
            format!("{text:?} is no change; write 2:speed=0.5, 1:memory=8GiB, 0:lost or add:16GiB")
        })?;
        if device == "add" {
            let group = amounts::devices(&format!("1x{what}"))?.groups.into_iter().next();
            return Ok((0, Change::Added(group.context("one group was written")?)));
        }
        let device =
            device.parse().with_context(|| format!("{device:?} in {text:?} is no device's number"))?;
        let change = match what.split_once('=') {
            None if what == "lost" => Change::Lost,
            Some(("speed", speed)) => {
                Change::Speed(speed.parse().with_context(|| format!("{speed:?} in {text:?} is no speed"))?)
            }
            Some(("memory", memory)) => Change::Memory(amounts::bytes(memory)?),
            _ => bail!("{what:?} in {text:?} is no change; write speed=0.5, memory=8GiB or lost"),
        };
        Ok((device, change))
    };
    let mut found = Vec::new();
    let mut faults = Vec::new();
    for text in texts {
        match one(text) {
            Ok(change) => found.push(change),
            Err(error) => faults.push(format!("{error:#}")),
        }
    }
    if faults.is_empty() { Ok(found) } else { bail!("{}", faults.join("\n")) }
}
