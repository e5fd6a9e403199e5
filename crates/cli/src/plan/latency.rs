//! `raddle plan place --objective latency`, and judging what it wrote.

use crate::args::Format;
use crate::output;
use crate::plan::args::PlaceArgs;
use crate::plan::clock::{Clock, TimeUsed};
use crate::plan::{draw, input, size, write};
use anyhow::{Context as _, bail};
use plan::formats::GroupDocument;
use plan::latency::{Call, LatencyPlan, LatencyVerdict, judge_latency, place_latency};
use plan::{Devices, Limits, OperatorGraph};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Moves of the search; each runs the whole plan, so there are fewer than for throughput.
const MOVES_MAX: u64 = 1_000_000;

/// A latency plan as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    devices: Vec<GroupDocument>,
    /// Calls that an accelerator may run.
    calls_max: usize,
    value_ms: f64,
    lower_ms: f64,
    proved: bool,
    /// Ids of the operators that the host runs.
    host: Vec<u64>,
    calls: Vec<CallDocument>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallDocument {
    device: usize,
    start_ms: f64,
    end_ms: f64,
    resident_bytes: u64,
    operators: Vec<u64>,
}

#[derive(Serialize)]
struct Printed<'a> {
    schema_version: u32,
    graph: &'a str,
    latency: &'a Document,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<TimeUsed>,
}

pub(crate) fn run(
    args: &PlaceArgs,
    (input, devices): (&input::Input, &Devices),
    clock: &Clock,
    format: Format,
) -> anyhow::Result<()> {
    if args.islands || args.overlap || args.exchange.is_some() {
        bail!(
            "the time of one sample knows no islands, overlap or replicas; leave --islands, --overlap and --exchange out"
        );
    }
    let stop = || clock.passed(1.0);
    let limits = Limits { stop: &stop, ..Limits::default() };
    let moves = args.moves.min(MOVES_MAX);
    let (plan, report) = place_latency(&input.graph, devices, args.calls, limits, (args.seed, moves))?;
    let verdict = judge_latency(&input.graph, devices, args.calls, &plan);
    let known = (report.lower_ms, report.proved);
    let document = document(&input.graph, devices, args.calls, &plan, &verdict, known);
    let printed =
        Printed { schema_version: 1, graph: &input.name, latency: &document, time: Some(clock.used()) };
    if let Some(path) = &args.output {
        write(path, &serde_json::to_string_pretty(&printed)?)?;
    }
    if let Some(path) = &args.svg {
        let parts: Vec<&[usize]> = std::iter::once(&plan.host)
            .chain(plan.calls.iter().map(|call| &call.operators))
            .map(Vec::as_slice)
            .collect();
        let call = |call: &CallDocument| {
            format!("accelerator {}: {:.3} … {:.3} ms", call.device, call.start_ms, call.end_ms)
        };
        let legend: Vec<String> =
            std::iter::once("host".to_owned()).chain(document.calls.iter().map(call)).collect();
        let title = format!("{}: {:.4} ms from arrival to end", input.name, report.value_ms);
        draw(path, &input.graph, &title, &parts, &legend)?;
    }
    print(&printed, format)
}

/// Whether a file holds a latency plan.
pub(crate) fn is_plan(value: &serde_json::Value) -> bool {
    value.get("latency").is_some() || value.get("calls_max").is_some()
}

/// Scores a plan from scratch; its faults are an error.
pub(crate) fn judge(input: &input::Input, value: &serde_json::Value, format: Format) -> anyhow::Result<()> {
    let read =
        Document::deserialize(value.get("latency").unwrap_or(value)).context("the file is not a plan")?;
    let groups = read.devices.iter().map(GroupDocument::group).collect();
    let devices = Devices { groups, exchange_bytes_per_second: None };
    let places: BTreeMap<u64, usize> =
        input.graph.operators().iter().enumerate().map(|(place, operator)| (operator.id, place)).collect();
    let known = |ids: &[u64]| -> anyhow::Result<Vec<usize>> {
        let place =
            |id: &u64| places.get(id).copied().with_context(|| format!("operator {id} is not in the graph"));
        ids.iter().map(place).collect()
    };
    let call = |call: &CallDocument| Ok(Call { device: call.device, operators: known(&call.operators)? });
    let plan = LatencyPlan {
        host: known(&read.host)?,
        calls: read.calls.iter().map(call).collect::<anyhow::Result<Vec<Call>>>()?,
    };
    let verdict = judge_latency(&input.graph, &devices, read.calls_max, &plan);
    if !verdict.faults.is_empty() {
        let faults: Vec<String> = verdict.faults.iter().map(ToString::to_string).collect();
        bail!("the plan is impossible:\n{}", faults.join("\n"));
    }
    let document = document(&input.graph, &devices, read.calls_max, &plan, &verdict, (0.0, false));
    print(&Printed { schema_version: 1, graph: &input.name, latency: &document, time: None }, format)
}

fn document(
    graph: &OperatorGraph,
    devices: &Devices,
    calls_max: usize,
    plan: &LatencyPlan,
    verdict: &LatencyVerdict,
    (lower_ms, proved): (f64, bool),
) -> Document {
    let ids = |places: &[usize]| places.iter().map(|&place| graph.operators()[place].id).collect();
    let bytes = |places: &[usize]| {
        places.iter().fold(0u64, |sum, &place| sum.saturating_add(graph.operators()[place].resident_bytes))
    };
    let call = |(call, &(start_ms, end_ms)): (&Call, &(f64, f64))| CallDocument {
        device: call.device,
        start_ms,
        end_ms,
        resident_bytes: bytes(&call.operators),
        operators: ids(&call.operators),
    };
    Document {
        devices: devices.groups.iter().map(GroupDocument::of).collect(),
        calls_max,
        value_ms: verdict.value_ms,
        lower_ms,
        proved,
        host: ids(&plan.host),
        calls: plan.calls.iter().zip(&verdict.calls).map(call).collect(),
    }
}

fn print(printed: &Printed<'_>, format: Format) -> anyhow::Result<()> {
    let document = printed.latency;
    match format {
        Format::Json => return output::print(&serde_json::to_string_pretty(printed)?),
        Format::Csv => {}
        Format::Table => {
            let proof = match printed.time {
                None => String::new(),
                Some(_) if document.proved => ", proved to be the least".to_owned(),
                Some(_) => format!(", not proved; at least {:.6} ms", document.lower_ms),
            };
            let took = printed.time.map_or_else(String::new, |time| format!("\n  took {:.3} s", time.wall_s));
            output::print(&format!(
                "{}: {:.6} ms from arrival to end{proof}\n  {} operators on the host{took}\n",
                printed.graph,
                document.value_ms,
                document.host.len()
            ))?;
        }
    }
    output::rows(
        format,
        "calls",
        &["accelerator", "start ms", "end ms", "keeps", "operators"],
        &document.calls,
        |call| {
            vec![
                call.device.to_string(),
                format!("{:.4}", call.start_ms),
                format!("{:.4}", call.end_ms),
                size(call.resident_bytes as f64),
                call.operators.len().to_string(),
            ]
        },
    )
}
