//! `raddle plan pack`: tenants on MIG instances, on the fewest GPUs.

use crate::args::Format;
use crate::output;
use crate::plan::clock::Clock;
use crate::plan::{input, write};
use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use plan::packing::{
    Bound, Deployment, ModelTable, PackReport, PackVerdict, Tenant, Terms, demands, draw_packing,
    judge_packing, pack, published,
};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Tables, promises and rates in the form of ParvaGPU's public data.
#[derive(Debug, Args)]
pub(crate) struct PackArgs {
    /// Tables of models, or folders of them: NAME.csv with slices, batch, processes, requests/s of a process, seconds.
    #[arg(long, required = true, num_args = 1..)]
    pub(crate) profiles: Vec<PathBuf>,
    /// Promises in ms: a line a set of tenants, a column a model (in the order of names, or named in the first line).
    #[arg(long)]
    pub(crate) slo: PathBuf,
    /// Requests a second, in the same lines and columns.
    #[arg(long)]
    pub(crate) rates: PathBuf,
    /// Pack only this set, from 1; all by default.
    #[arg(long)]
    pub(crate) set: Option<usize>,
    /// Whose packing.
    #[arg(long, value_enum, default_value_t = Mode::Best)]
    pub(crate) mode: Mode,
    /// Judge this deployment, instead of packing.
    #[arg(long, requires = "set", conflicts_with = "mode")]
    pub(crate) judge: Option<PathBuf>,
    /// The part of a promise that a batch may take.
    #[arg(long, default_value_t = Terms::default().latency_part)]
    pub(crate) latency_part: f64,
    /// Processes that may share an instance.
    #[arg(long, default_value_t = Terms::default().processes_max)]
    pub(crate) processes: u32,
    /// GPUs there are.
    #[arg(long, default_value_t = Terms::default().gpus_max)]
    pub(crate) gpus: u32,
    /// Seconds to pack each set for; the best so far is kept.
    #[arg(long, default_value_t = 60.0)]
    pub(crate) time_limit: f64,
    /// Write the set's deployment here, as CSV.
    #[arg(short, long, requires = "set")]
    pub(crate) output: Option<PathBuf>,
    /// Draw the set's GPUs and their instances here, as SVG.
    #[arg(long, requires = "set")]
    pub(crate) svg: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// The fewest GPUs, with a proof where the search ends.
    Best,
    /// ParvaGPU's public scheduler, line for line.
    #[value(name = "parvagpu")]
    ParvaGpu,
}

/// One set, packed and judged.
struct Packed<'a> {
    number: usize,
    tenants: &'a [Tenant],
    deployment: Deployment,
    report: Option<PackReport>,
    verdict: PackVerdict,
    wall_s: f64,
}

/// What is printed of a set as JSON.
#[derive(Serialize)]
struct Printed {
    set: usize,
    gpus: usize,
    slices: u32,
    instances: Vec<InstanceRow>,
    tenants: Vec<TenantRow>,
    bound: Option<BoundRow>,
    faults: Vec<String>,
    wall_s: f64,
}

#[derive(Serialize)]
struct BoundRow {
    fractional_slices: f64,
    fractional_gpus: u32,
    priced_gpus: f64,
    lower_gpus: u32,
    gap: f64,
    proved: bool,
    sums: u64,
}

#[derive(Serialize)]
struct InstanceRow {
    gpu: u32,
    start: u8,
    slices: u32,
    model: String,
    batch: u32,
    processes: u32,
}

#[derive(Serialize)]
struct TenantRow {
    model: String,
    instances: usize,
    slices: u32,
    rate: f64,
    served: f64,
    slack: f64,
    latency_ms: f64,
    slo_ms: f64,
}

pub(crate) fn run(args: &PackArgs, format: Format) -> anyhow::Result<()> {
    let terms = Terms { latency_part: args.latency_part, processes_max: args.processes, gpus_max: args.gpus };
    if !(terms.latency_part > 0.0 && terms.latency_part <= 1.0) {
        bail!("--latency-part {} is no part of a promise; give one above 0 and up to 1", terms.latency_part);
    }
    let tables = tables(&args.profiles)?;
    let models: Vec<String> = tables.iter().map(|table| table.name.clone()).collect();
    let sets = demands(&input::text(&args.slo)?, &input::text(&args.rates)?, &models)?;
    let chosen: Vec<(usize, &Vec<Tenant>)> = match args.set {
        None => (1..).zip(&sets).collect(),
        Some(number) => {
            let set = number.checked_sub(1).and_then(|at| sets.get(at));
            vec![(
                number,
                set.with_context(|| format!("there is no set {number}, there are {}", sets.len()))?,
            )]
        }
    };
    let mut packed = Vec::new();
    let mut faults = Vec::new();
    for (number, tenants) in chosen {
        match one(args, &tables, (number, tenants), &terms) {
            Ok(set) => packed.push(set),
            Err(why) => faults.push(format!("set {number} cannot be packed:\n{why:#}")),
        }
    }
    if let (Some(_), [set]) = (args.set, packed.as_slice()) {
        files(args, &models, set)?;
    }
    if !packed.is_empty() {
        show(args, &packed, format)?;
    }
    if args.judge.is_some() {
        faults.extend(packed.iter().flat_map(|set| set.verdict.faults.iter().map(ToString::to_string)));
    }
    if faults.is_empty() { Ok(()) } else { bail!("{}", faults.join("\n")) }
}

/// The tables of the files, and of every CSV in the folders, by name; all faults at once.
fn tables(paths: &[PathBuf]) -> anyhow::Result<Vec<ModelTable>> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            let entries =
                std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
            for entry in entries {
                files.push(entry.with_context(|| format!("cannot read {}", path.display()))?.path());
            }
        } else {
            files.push(path.clone());
        }
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "csv") || paths.contains(file));
    files.sort_by_key(|file| file.file_stem().map(ToOwned::to_owned));
    let (mut tables, mut faults): (Vec<ModelTable>, Vec<String>) = (Vec::new(), Vec::new());
    for file in &files {
        let read =
            || -> anyhow::Result<ModelTable> { Ok(ModelTable::parse(&name(file), &input::text(file)?)?) };
        match read() {
            Ok(table) if tables.last().is_some_and(|last| last.name == table.name) => {
                faults.push(format!("{} is given twice", table.name));
            }
            Ok(table) => tables.push(table),
            Err(why) => faults.push(format!("{why:#}")),
        }
    }
    if tables.is_empty() && faults.is_empty() {
        bail!("there is no table; give --profiles a folder of NAME.csv");
    }
    if faults.is_empty() { Ok(tables) } else { bail!("{}", faults.join("\n")) }
}

/// A model's name: its file's.
pub(crate) fn name(file: &Path) -> String {
    file.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}

fn one<'a>(
    args: &PackArgs,
    tables: &[ModelTable],
    (number, tenants): (usize, &'a Vec<Tenant>),
    terms: &Terms,
) -> anyhow::Result<Packed<'a>> {
    let clock = Clock::start(args.time_limit)?;
    let stop = || clock.passed(1.0);
    let (deployment, report) = match (&args.judge, args.mode) {
        (Some(path), _) => {
            let what = || format!("{} is no deployment", path.display());
            (Deployment::parse(&input::text(path)?).map_err(|why| input::plain(&what(), &why))?, None)
        }
        (None, Mode::ParvaGpu) => (published(tables, tenants, terms)?, None),
        (None, Mode::Best) => {
            let (deployment, report) = pack(tables, tenants, terms, &stop)?;
            (deployment, Some(report))
        }
    };
    let wall_s = clock.used().wall_s;
    let verdict = judge_packing(tables, tenants, terms, &deployment);
    Ok(Packed { number, tenants, deployment, report, verdict, wall_s })
}

fn files(args: &PackArgs, models: &[String], set: &Packed<'_>) -> anyhow::Result<()> {
    if let Some(path) = &args.output {
        write(path, &set.deployment.csv())?;
    }
    if let Some(path) = &args.svg {
        let title = format!("set {}: {} GPUs, {} slices", set.number, set.verdict.gpus, set.verdict.slices);
        let served = |model: &&String| set.tenants.iter().any(|tenant| tenant.model == **model);
        let models: Vec<String> = models.iter().filter(served).cloned().collect();
        write(path, &draw_packing(&title, &models, &set.deployment))?;
    }
    Ok(())
}

fn show(args: &PackArgs, packed: &[Packed<'_>], format: Format) -> anyhow::Result<()> {
    if format == Format::Json {
        let printed: Vec<Printed> = packed.iter().map(printed).collect();
        return output::print(&output::json("sets", &printed)?);
    }
    if let (Some(_), [set]) = (args.set, packed) {
        return details(set, format);
    }
    let columns =
        ["set", "GPUs", "instances", "slices", "at least", "by slices", "by prices", "proved", "ms"];
    let rows: Vec<Printed> = packed.iter().map(printed).collect();
    output::rows(format, "sets", &columns, &rows, |row| {
        let of = |cell: fn(&BoundRow) -> String| row.bound.as_ref().map_or_else(|| "-".to_owned(), cell);
        vec![
            row.set.to_string(),
            row.gpus.to_string(),
            row.instances.len().to_string(),
            row.slices.to_string(),
            of(|bound| bound.lower_gpus.to_string()),
            of(|bound| bound.fractional_gpus.to_string()),
            of(|bound| format!("{:.3}", bound.priced_gpus)),
            of(|bound| if bound.proved { "yes" } else { "no" }.to_owned()),
            format!("{:.1}", row.wall_s * 1e3),
        ]
    })?;
    warn(packed);
    Ok(())
}

/// What is wrong with a deployment that is shown all the same.
fn warn(packed: &[Packed<'_>]) {
    for set in packed.iter().filter(|set| !set.verdict.faults.is_empty()) {
        for fault in &set.verdict.faults {
            tracing::warn!("set {}: {fault}", set.number);
        }
    }
}

fn details(set: &Packed<'_>, format: Format) -> anyhow::Result<()> {
    if format == Format::Table {
        output::print(&headline(set))?;
    }
    let rows = printed(set).tenants;
    let columns = ["model", "instances", "slices", "requests/s", "served/s", "slack %", "batch ms", "SLO ms"];
    output::rows(format, "tenants", &columns, &rows, |row| {
        vec![
            row.model.clone(),
            row.instances.to_string(),
            row.slices.to_string(),
            row.rate.to_string(),
            format!("{:.1}", row.served),
            format!("{:.1}", row.slack * 100.0),
            format!("{:.1}", row.latency_ms),
            row.slo_ms.to_string(),
        ]
    })?;
    warn(std::slice::from_ref(set));
    Ok(())
}

fn headline(set: &Packed<'_>) -> String {
    let mut text = format!("set {}: {} GPUs, {} slices", set.number, set.verdict.gpus, set.verdict.slices);
    if let Some(PackReport { lower, proved, bound, states, .. }) = set.report {
        let Bound { fractional_slices, fractional_gpus, priced, .. } = bound;
        text.push_str(&if proved {
            ", proved to be the fewest\n".to_owned()
        } else {
            format!(", not proved; at least {lower} GPUs\n")
        });
        text.push_str(&format!(
            "  at least {fractional_slices:.1} slices of {fractional_gpus} GPUs if instances were cut at will, {priced:.3} \
             GPUs by prices; {states} sums\n"
        ));
    } else {
        text.push('\n');
    }
    text.push_str(&format!("  took {:.1} ms\n", set.wall_s * 1e3));
    text
}

fn printed(set: &Packed<'_>) -> Printed {
    let instance = |instance: &plan::packing::Instance| InstanceRow {
        gpu: instance.gpu,
        start: instance.start,
        slices: instance.size.slices(),
        model: instance.model.clone(),
        batch: instance.batch,
        processes: instance.processes,
    };
    let tenant = |(score, tenant): (&plan::packing::TenantScore, &Tenant)| TenantRow {
        model: score.model.clone(),
        instances: score.instances,
        slices: score.slices,
        rate: tenant.rate,
        served: score.served,
        slack: score.slack,
        latency_ms: score.latency_ms,
        slo_ms: score.slo_ms,
    };
    let bound = |report: PackReport| BoundRow {
        fractional_slices: report.bound.fractional_slices,
        fractional_gpus: report.bound.fractional_gpus,
        priced_gpus: report.bound.priced,
        lower_gpus: report.lower,
        gap: f64::from(report.gpus.saturating_sub(report.lower)) / f64::from(report.gpus.max(1)),
        proved: report.proved,
        sums: report.states,
    };
    Printed {
        set: set.number,
        gpus: set.verdict.gpus,
        slices: set.verdict.slices,
        instances: set.deployment.instances.iter().map(instance).collect(),
        tenants: set.verdict.tenants.iter().zip(set.tenants).map(tenant).collect(),
        bound: set.report.map(bound),
        faults: set.verdict.faults.iter().map(ToString::to_string).collect(),
        wall_s: set.wall_s,
    }
}
