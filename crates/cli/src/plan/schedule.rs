//! `raddle plan schedule`.

use crate::args::Format;
use crate::output;
use crate::plan::args::{Order, ScheduleArgs};
use crate::plan::{amounts, input, size};
use anyhow::{Context as _, bail, ensure};
use plan::formats::read_pipeline;
use plan::pipeline::stage_costs;
use plan::schedule::{
    Kind, Matching, Run, Schedule, Sending, Settings, StageCost, generate, simulate, timeline,
};
use serde::Serialize;
use std::fs::File;
use std::io::BufWriter;
use vocab::{Bytes, Span};

#[derive(Serialize)]
struct Printed {
    schema_version: u32,
    stages: usize,
    microbatches: usize,
    makespan_ms: f64,
    bubble: f64,
    devices: Vec<Device>,
    transfers: usize,
    waited_ms: f64,
}

#[derive(Serialize)]
struct Device {
    device: usize,
    busy_ms: f64,
    idle_ms: f64,
    span_ms: f64,
    peak_bytes: u64,
    stashed_max: usize,
}

pub(crate) fn run(args: &ScheduleArgs, format: Format) -> anyhow::Result<()> {
    let (costs, replicas) = costs(args)?;
    let schedule = match &args.text {
        Some(path) => Schedule::parse(&input::text(path)?)
            .with_context(|| format!("{} is not a schedule", path.display()))?,
        None => generate(&kind(args, replicas), &costs, args.microbatches)?,
    };
    let settings = Settings {
        slots: args.slots,
        sending: if args.rendezvous { Sending::Rendezvous } else { Sending::Buffered },
        matching: if args.in_order { Matching::InOrder } else { Matching::Tagged },
    };
    if args.print {
        return output::print(schedule.with_transfers().to_string().trim_end());
    }
    let run = simulate(&schedule, &costs, settings)?;
    if let Some(path) = &args.timeline {
        let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        timeline(&run, &costs, BufWriter::new(file))?;
    }
    print(&schedule, &run, format)
}

fn kind(args: &ScheduleArgs, replicas: Vec<usize>) -> Kind {
    match args.order {
        Order::Gpipe => Kind::Gpipe,
        Order::OneFOneB => Kind::OneForwardOneBackward,
        Order::OneFOneBRr => Kind::RoundRobin { replicas },
        Order::Interleaved => Kind::Interleaved { chunks: args.chunks },
        Order::ZbH1 => Kind::ZeroBubbleH1,
        Order::ZbV => Kind::ZeroBubbleV,
    }
}

/// The costs of every stage, from a pipeline's plan or as typed, and its replicas.
fn costs(args: &ScheduleArgs) -> anyhow::Result<(Vec<StageCost>, Vec<usize>)> {
    if let Some(path) = &args.pipeline {
        let graph = args.graph.as_ref().context("a plan needs its graph; give --graph")?;
        let input = input::read_plain(graph)?;
        let what = || format!("{} is not a pipeline", path.display());
        let document = read_pipeline(&input::text(path)?).map_err(|error| input::plain(&what(), &error))?;
        let pipeline = document.pipeline(&input.graph)?;
        let replicas: Vec<usize> = pipeline.stages.iter().map(plan::pipeline::Stage::devices).collect();
        if args.order != Order::OneFOneBRr && replicas.iter().any(|&replicas| replicas > 1) {
            bail!("the plan replicates stages, which only 1f1b-rr schedules; choose --order 1f1b-rr");
        }
        return Ok((stage_costs(&input.graph, &document.levels(), &pipeline)?, replicas));
    }
    let times = args.times.split(',').map(str::trim).map(str::parse::<f64>).collect::<Result<Vec<f64>, _>>();
    let times =
        times.ok().filter(|times| times.len() == 3 && times.iter().all(|time| (0.0..1e9).contains(time)));
    let times = times.with_context(|| {
        format!("{:?} are not three times; write forward,backward,weights in ms", args.times)
    })?;
    ensure!((0.0..1e9).contains(&args.transfer_ms), "{} ms is no time for a transfer", args.transfer_ms);
    let span = |ms: f64| Span::from_secs_f64(ms / 1e3);
    let activation_bytes = Bytes(amounts::bytes(&args.activation)?);
    let cost = StageCost {
        forward: span(times[0]),
        backward: span(times[1]),
        weight: span(times[2]),
        transfer: span(args.transfer_ms),
        activation_bytes,
        weight_stash_bytes: activation_bytes,
        resident_bytes: Bytes(amounts::bytes(&args.resident)?),
    };
    let stages = match (&args.text, args.stages) {
        (Some(path), _) => {
            Schedule::parse(&input::text(path)?)
                .with_context(|| format!("{} is not a schedule", path.display()))?
                .stages
        }
        (None, stages) => stages,
    };
    ensure!(stages <= 100_000, "{stages} stages are too many, at most 100000 are scheduled");
    let replicas = if args.replicas.is_empty() { vec![1; stages] } else { args.replicas.clone() };
    Ok((vec![cost; stages], replicas))
}

fn print(schedule: &Schedule, run: &Run, format: Format) -> anyhow::Result<()> {
    let makespan_ms = run.makespan.as_ms_f64();
    let device = |(device, of): (usize, &plan::schedule::DeviceRun)| Device {
        device,
        busy_ms: of.busy.as_ms_f64(),
        idle_ms: makespan_ms - of.busy.as_ms_f64(),
        span_ms: of.span.as_ms_f64(),
        peak_bytes: of.peak_bytes.0,
        stashed_max: of.stashed_max,
    };
    let waits = run.transfers.iter().map(|transfer| transfer.start.since(transfer.asked).as_ms_f64());
    let waited = waits.fold(0.0, |sum, wait| sum + wait);
    let printed = Printed {
        schema_version: 1,
        stages: schedule.stages,
        microbatches: schedule.microbatches,
        makespan_ms,
        bubble: run.bubble(),
        devices: run.devices.iter().enumerate().map(device).collect(),
        transfers: run.transfers.len(),
        waited_ms: waited,
    };
    match format {
        Format::Json => return output::print(&serde_json::to_string_pretty(&printed)?),
        Format::Csv => {}
        Format::Table => output::print(&format!(
            "{} stages, {} microbatches: {makespan_ms:.4} ms, bubble {:.2} %; {} transfers, which waited {waited:.4} ms for links\n",
            printed.stages,
            printed.microbatches,
            printed.bubble * 100.0,
            printed.transfers,
        ))?,
    }
    let columns =
        ["device", "busy ms", "idle ms", "from first to last ms", "peak memory", "microbatches held"];
    output::rows(format, "devices", &columns, &printed.devices, |device| {
        vec![
            device.device.to_string(),
            format!("{:.4}", device.busy_ms),
            format!("{:.4}", device.idle_ms),
            format!("{:.4}", device.span_ms),
            size(device.peak_bytes as f64),
            device.stashed_max.to_string(),
        ]
    })
}
