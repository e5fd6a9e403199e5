//! `raddle plan place`.

use crate::args::Format;
use crate::output;
use crate::plan::args::{Objective, PlaceArgs, Solver};
use crate::plan::clock::{Clock, TimeUsed};
use crate::plan::{amounts, draw, input, latency, size, solver, write};
use anyhow::{Context as _, bail};
use plan::formats::{GroupDocument, KindName, PartDocument, PlacementDocument};
use plan::{Communication, Devices, Limits, Model, OperatorGraph, Placement, Report, place, place_islands};
use serde::Serialize;

/// The part of the time limit that the search for islands may use when a solver follows.
const SEARCH_SHARE: f64 = 0.4;

/// Operators of a graph that a solver is asked about by itself; of more it proves nothing in any time that is waited for.
const SOLVER_OPERATORS_MAX: usize = 20_000;

/// What is printed as JSON.
#[derive(Serialize)]
struct Printed<'a> {
    schema_version: u32,
    graph: &'a str,
    placement: &'a PlacementDocument,
    work: Work,
    time: TimeUsed,
    doubts: &'a [String],
}

#[derive(Serialize)]
struct Work {
    units: usize,
    nets: usize,
    ideals: usize,
    alive_ideals: usize,
    sets_scored: u64,
    solver: Option<&'static str>,
}

pub(crate) fn run(args: &PlaceArgs, format: Format) -> anyhow::Result<()> {
    let mut clock = Clock::start(args.time_limit)?;
    let input = input::read(&args.graph)?;
    clock.has_read();
    let mut devices = match &args.devices {
        Some(text) => amounts::devices(text)?,
        None => input.devices.clone().context("the file names no devices; give --devices 4x16GiB,1cpu")?,
    };
    if args.machines == 0 {
        bail!("0 machines run nothing; give --machines 1 or more");
    }
    if args.machines > 1 {
        devices = devices.on_machines(args.machines, args.across);
    }
    if args.objective == Objective::Latency {
        return latency::run(args, (&input, &devices), &clock, format);
    }
    devices.exchange_bytes_per_second = args.exchange.as_deref().map(amounts::rate).transpose()?;
    if args.islands && devices.exchange_bytes_per_second.is_some() {
        bail!("islands are not replicated; leave out --exchange or --islands");
    }
    let communication = if args.overlap { Communication::Overlapped } else { Communication::Serial };
    let mut used = None;
    let (placement, report) = if args.islands {
        islands(args, &input.graph, &devices, communication, &clock, &mut used)?
    } else {
        let stop = || clock.passed(1.0);
        let limits = Limits { pairs_max: u64::MAX, stop: &stop, ..Limits::default() };
        place(&input.graph, &devices, communication, limits)?
    };
    let document = PlacementDocument::new(&input.graph, &devices, communication, &placement, &report);
    let work = Work {
        units: report.work.units,
        nets: report.work.nets,
        ideals: report.work.ideals,
        alive_ideals: report.work.alive,
        sets_scored: report.work.pairs,
        solver: used,
    };
    let printed = Printed {
        schema_version: 1,
        graph: &input.name,
        placement: &document,
        work,
        time: clock.used(),
        doubts: &input.doubts,
    };
    if let Some(path) = &args.output {
        write(path, &serde_json::to_string_pretty(&printed)?)?;
    }
    if let Some(path) = &args.svg {
        let parts: Vec<&[usize]> = placement.parts.iter().map(|part| part.operators.as_slice()).collect();
        let title = format!("{}: {:.4} ms a sample", input.name, report.value_ms);
        draw(path, &input.graph, &title, &parts, &legend(&document))?;
    }
    print(&printed, format)
}

/// Our own search, then a solver in what is left of the time.
fn islands(
    args: &PlaceArgs,
    graph: &OperatorGraph,
    devices: &Devices,
    communication: Communication,
    clock: &Clock,
    used: &mut Option<&'static str>,
) -> anyhow::Result<(Placement, Report)> {
    let wanted = match args.solver {
        Solver::None => false,
        Solver::Auto => graph.operators().len() <= SOLVER_OPERATORS_MAX,
        Solver::Highs => true,
    };
    let python = if wanted { solver::find() } else { None };
    if args.solver == Solver::Highs && python.is_none() {
        bail!(
            "no Python with highspy; install it and name the Python in RADDLE_PYTHON, or leave out --solver"
        );
    }
    let share = if python.is_some() { SEARCH_SHARE } else { 1.0 };
    let stop = || clock.passed(share);
    let limits = Limits { pairs_max: u64::MAX, stop: &stop, ..Limits::default() };
    let known = place_islands(graph, devices, communication, limits, (args.seed, args.moves))?;
    let Some(python) = python.filter(|_| !known.1.proved || args.solver == Solver::Highs) else {
        return Ok(known);
    };
    let solved =
        Model::new(graph, devices, communication, &known.1).map_err(anyhow::Error::from).and_then(|model| {
            let answer = solver::solve(&python, &model, &model.start(&known.0), clock)?;
            Ok(model.conclude(graph, known.clone(), &answer))
        });
    match solved {
        Ok(better) => {
            *used = Some("HiGHS");
            Ok(better)
        }
        Err(error) if args.solver == Solver::Highs => Err(error),
        Err(error) => {
            tracing::warn!("the solver is left out: {error:#}");
            Ok(known)
        }
    }
}

fn legend(document: &PlacementDocument) -> Vec<String> {
    let names = names(document);
    let line = |(part, name): (&PartDocument, &String)| format!("{name}: {:.4} ms", part.load_ms);
    document.parts.iter().zip(&names).map(line).collect()
}

/// What each part's devices are called: kind and number, numbered within their group.
pub(crate) fn names(document: &PlacementDocument) -> Vec<String> {
    let mut next = vec![0usize; document.devices.len()];
    let machines = document.devices.iter().any(|group| group.machine > 0);
    let name = |part: &PartDocument| {
        let Some(group) = document.devices.get(part.group) else { return format!("group {}", part.group) };
        let beside =
            |other: &&GroupDocument| other.kind == KindName::Accelerator && other.machine == group.machine;
        let accelerators = document.devices.iter().filter(beside).count();
        let first = next[part.group];
        next[part.group] += part.replicas;
        let kind = match group.kind {
            KindName::Accelerator if accelerators > 1 => format!("accelerator {}.", part.group),
            KindName::Accelerator => "accelerator ".to_owned(),
            KindName::Cpu => "cpu ".to_owned(),
        };
        let kind = if machines { format!("machine {}, {kind}", group.machine) } else { kind };
        match part.replicas {
            0 | 1 => format!("{kind}{first}"),
            all => format!("{kind}{first}-{}", first + all - 1),
        }
    };
    document.parts.iter().map(name).collect()
}

fn print(printed: &Printed<'_>, format: Format) -> anyhow::Result<()> {
    let document = printed.placement;
    match format {
        Format::Json => return output::print(&serde_json::to_string_pretty(printed)?),
        Format::Csv => {}
        Format::Table => output::print(&headline(printed))?,
    }
    rows(document, format)
}

/// A row a part.
pub(crate) fn rows(document: &PlacementDocument, format: Format) -> anyhow::Result<()> {
    let names = names(document);
    let parts: Vec<(&String, &PartDocument)> = names.iter().zip(&document.parts).collect();
    let columns = ["device", "load ms", "computing ms", "transfers ms", "keeps", "operators", "contiguous"];
    output::rows(format, "parts", &columns, &parts, |(name, part)| {
        vec![
            (*name).clone(),
            format!("{:.4}", part.load_ms),
            format!("{:.4}", part.compute_ms),
            format!("{:.4}", part.transfer_ms),
            size(part.resident_bytes as f64),
            part.operators.len().to_string(),
            if part.contiguous { "yes" } else { "no" }.to_owned(),
        ]
    })
}

fn headline(printed: &Printed<'_>) -> String {
    let document = printed.placement;
    let proof = if document.proved {
        "proved to be the least".to_owned()
    } else {
        format!("not proved; at least {:.10} ms, gap {:.2} %", document.lower_ms, document.gap * 100.0)
    };
    let time = &printed.time;
    let mut took = format!("{:.3} s", time.wall_s);
    if let (Some(cpu), Some(peak)) = (time.cpu_s, time.peak_bytes) {
        took = format!("{took}, {cpu:.2} s of computing in all, at most {}", size(peak as f64));
    }
    let solver = printed.work.solver.map_or_else(String::new, |solver| format!(", with {solver}"));
    format!(
        "{}: {:.10} ms a sample, {proof}\n  held up by {}\n  took {took}{solver}\n",
        printed.graph, document.value_ms, document.binding
    )
}
