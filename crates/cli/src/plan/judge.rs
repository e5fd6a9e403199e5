//! `raddle plan judge`: scores a plan from scratch. A plan with faults is printed with them, and fails.

use crate::args::Format;
use crate::output;
use crate::plan::args::JudgeArgs;
use crate::plan::{amounts, draw, input, latency, pipeline, place};
use anyhow::{Context as _, bail};
use plan::formats::{PipelineDocument, PlacementDocument, read_document, read_pipeline, read_split};
use plan::pipeline::{PipelineReport, judge_pipeline};
use plan::{Binding, Communication, Devices, OperatorGraph, Placement, Report, Verdict, judge};
use serde::Serialize;
use std::path::Path;

#[derive(Serialize)]
struct Printed<'a, D: Serialize> {
    schema_version: u32,
    graph: &'a str,
    possible: bool,
    faults: Vec<String>,
    contiguous: bool,
    judged: D,
}

pub(crate) fn run(args: &JudgeArgs, format: Format) -> anyhow::Result<()> {
    let input = input::read(&args.graph)?;
    let text = input::text(&args.plan)?;
    let value: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("{} is not JSON", args.plan.display()))?;
    let not_a_plan = || format!("{} is not a plan", args.plan.display());
    if latency::is_plan(&value) {
        return latency::judge(&input, &value, format);
    }
    let has = |key: &str| value.get(key).is_some();
    if has("pipeline") || has("stages") {
        let document = read_pipeline(&text).map_err(|error| input::plain(&not_a_plan(), &error))?;
        return stages(args, &input, &document, format);
    }
    let (placement, mut devices, communication) = if has("placement") || has("parts") {
        let document = read_document(&text).map_err(|error| input::plain(&not_a_plan(), &error))?;
        let placement =
            document.placement(&input.graph).map_err(|error| input::plain(&not_a_plan(), &error))?;
        (placement, document.devices(), document.communication())
    } else {
        let placement =
            read_split(&text, &input.graph).map_err(|error| input::plain(&not_a_plan(), &error))?;
        let devices =
            input.devices.clone().or_else(|| args.devices.as_ref().map(|_| Devices::uniform(0, 0, 0)));
        let devices = devices.context("neither file names devices; give --devices 4x16GiB,1cpu")?;
        let communication = if args.overlap { Communication::Overlapped } else { Communication::Serial };
        (placement, devices, communication)
    };
    if let Some(text) = &args.devices {
        let exchange = devices.exchange_bytes_per_second;
        devices = amounts::devices(text)?;
        devices.exchange_bytes_per_second = exchange;
    }
    parts(args, &input, (&placement, &devices, communication), format)
}

fn parts(
    args: &JudgeArgs,
    input: &input::Input,
    (placement, devices, communication): (&Placement, &Devices, Communication),
    format: Format,
) -> anyhow::Result<()> {
    let verdict = judge(&input.graph, devices, communication, placement);
    let document = scored(&input.graph, devices, communication, placement, &verdict);
    if let Some(path) = &args.svg {
        let parts: Vec<&[usize]> = placement.parts.iter().map(|part| part.operators.as_slice()).collect();
        draw(path, &input.graph, &input.name, &parts, &place::names(&document))?;
    }
    let faults: Vec<String> = verdict.faults.iter().map(ToString::to_string).collect();
    let printed = Printed {
        schema_version: 1,
        graph: &input.name,
        possible: faults.is_empty(),
        faults: faults.clone(),
        contiguous: verdict.contiguous(),
        judged: &document,
    };
    match format {
        Format::Json => output::print(&serde_json::to_string_pretty(&printed)?)?,
        Format::Csv => place::rows(&document, format)?,
        Format::Table => {
            let shape = if printed.contiguous { "contiguous" } else { "with islands" };
            output::print(&format!("{}: {:.10} ms a sample, {shape}\n", input.name, verdict.value_ms))?;
            place::rows(&document, format)?;
        }
    }
    complain(&args.plan, &faults)
}

/// The document of a plan of which nothing is known but what the judge says.
fn scored(
    graph: &OperatorGraph,
    devices: &Devices,
    communication: Communication,
    placement: &Placement,
    verdict: &Verdict,
) -> PlacementDocument {
    let worst = verdict.parts.iter().position(|part| part.load_ms >= verdict.value_ms).unwrap_or_default();
    let moves = verdict.parts.get(worst).is_some_and(|part| part.transfer_ms > part.compute_ms);
    let binding = if moves { Binding::Transfers { part: worst } } else { Binding::Compute { part: worst } };
    let report = Report {
        value_ms: verdict.value_ms,
        lower_ms: 0.0,
        proved: false,
        binding,
        work: plan::Work::default(),
    };
    PlacementDocument::new(graph, devices, communication, placement, &report)
}

fn stages(
    args: &JudgeArgs,
    input: &input::Input,
    document: &PipelineDocument,
    format: Format,
) -> anyhow::Result<()> {
    let pipeline = document.pipeline(&input.graph)?;
    let levels = document.levels();
    let means = (document.memory_bytes, document.discipline);
    let verdict = judge_pipeline(&input.graph, &levels, means.0, means.1, &pipeline)?;
    let report = PipelineReport { seconds: verdict.seconds, lower_seconds: 0.0, proved: false };
    let judged = PipelineDocument::new(&input.graph, &levels, means, (&pipeline, &report), &verdict);
    let faults: Vec<String> = verdict.faults.iter().map(ToString::to_string).collect();
    let printed = Printed {
        schema_version: 1,
        graph: &input.name,
        possible: faults.is_empty(),
        faults: faults.clone(),
        contiguous: true,
        judged: &judged,
    };
    match format {
        Format::Json => output::print(&serde_json::to_string_pretty(&printed)?)?,
        Format::Csv => pipeline::rows(&judged, format)?,
        Format::Table => {
            output::print(&format!("{}: {:.7} s a minibatch\n", input.name, verdict.seconds))?;
            pipeline::rows(&judged, format)?;
        }
    }
    complain(&args.plan, &faults)
}

fn complain(path: &Path, faults: &[String]) -> anyhow::Result<()> {
    if faults.is_empty() {
        return Ok(());
    }
    bail!("the plan {} is impossible:\n{}", path.display(), faults.join("\n"))
}
