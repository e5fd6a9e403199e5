//! `raddle plan pipeline`.

use crate::args::Format;
use crate::output;
use crate::plan::args::{DisciplineName, PipelineArgs};
use crate::plan::clock::{Clock, TimeUsed};
use crate::plan::{amounts, draw, input, size, write};
use anyhow::bail;
use plan::formats::{PipelineDocument, StageDocument};
use plan::pipeline::{
    Discipline, Level, Pipeline, PipelineReport, Transfers, judge_pipeline, plan_pipeline, plan_published,
};
use serde::Serialize;

/// What is printed as JSON.
#[derive(Serialize)]
struct Printed<'a> {
    schema_version: u32,
    graph: &'a str,
    pipeline: &'a PipelineDocument,
    cuts: usize,
    time: TimeUsed,
    doubts: &'a [String],
}

pub(crate) fn run(args: &PipelineArgs, format: Format) -> anyhow::Result<()> {
    let levels = amounts::machines(&args.machines)?;
    let memory_bytes = args.memory.as_deref().map(amounts::bytes).transpose()?;
    let mut clock = Clock::start(args.time_limit)?;
    let input = input::read(&args.graph)?;
    clock.has_read();
    if args.published {
        return published(args, &input, &levels, memory_bytes, format);
    }
    let minibatches = args.minibatches;
    let discipline = match args.discipline {
        DisciplineName::Stashing => Discipline::Stashing,
        DisciplineName::TwoVersions => Discipline::TwoVersions { minibatches },
        DisciplineName::Flush => Discipline::Flush { minibatches },
    };
    let stop = || clock.passed(1.0);
    let (pipeline, report) = plan_pipeline(&input.graph, &levels, memory_bytes, discipline, &stop)?;
    let verdict = judge_pipeline(&input.graph, &levels, memory_bytes, discipline, &pipeline)?;
    let document = PipelineDocument::new(
        &input.graph,
        &levels,
        (memory_bytes, discipline),
        (&pipeline, &report),
        &verdict,
    );
    let printed = Printed {
        schema_version: 1,
        graph: &input.name,
        pipeline: &document,
        cuts: pipeline.cuts,
        time: clock.used(),
        doubts: &input.doubts,
    };
    if let Some(path) = &args.output {
        write(path, &serde_json::to_string_pretty(&printed)?)?;
    }
    if let Some(path) = &args.svg {
        picture(path, &input, &pipeline, &document)?;
    }
    match format {
        Format::Json => return output::print(&serde_json::to_string_pretty(&printed)?),
        Format::Csv => {}
        Format::Table => output::print(&headline(&input.name, &report, &document, &printed.time))?,
    }
    rows(&document, format)
}

/// The published answer leaves inputs out, so it has a value but no report.
fn published(
    args: &PipelineArgs,
    input: &input::Input,
    levels: &[Level],
    memory_bytes: Option<u64>,
    format: Format,
) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Row {
        stage: usize,
        replicas: Vec<usize>,
        layers: Vec<u64>,
    }
    if memory_bytes.is_some() || args.output.is_some() {
        bail!(
            "the published optimiser's answer has no memory limit and is not written as a plan; leave out --memory and --output"
        );
    }
    let transfers = if args.transfers { Transfers::Counted { compression: 1.0 } } else { Transfers::Ignored };
    let pipeline = plan_published(&input.graph, levels, transfers)?;
    let id = |place: &usize| input.graph.operators()[*place].id;
    let row = |(stage, content): (usize, &plan::pipeline::Stage)| Row {
        stage,
        replicas: content.replicas.clone(),
        layers: content.layers.iter().map(id).collect(),
    };
    let rows: Vec<Row> = pipeline.stages.iter().enumerate().map(row).collect();
    if format == Format::Table {
        output::print(&format!(
            "{}: {:.7} s a minibatch, as the published optimiser counts ({} places to cut)\n",
            input.name, pipeline.seconds, pipeline.cuts
        ))?;
    }
    let columns = ["stage", "replicas", "layers", "first layer"];
    output::rows(format, "stages", &columns, &rows, |row| {
        vec![
            row.stage.to_string(),
            product(&row.replicas),
            row.layers.len().to_string(),
            row.layers.first().map_or_else(String::new, ToString::to_string),
        ]
    })
}

fn picture(
    path: &std::path::Path,
    input: &input::Input,
    pipeline: &Pipeline,
    document: &PipelineDocument,
) -> anyhow::Result<()> {
    let parts: Vec<&[usize]> = pipeline.stages.iter().map(|stage| stage.layers.as_slice()).collect();
    let line = |(number, stage): (usize, &StageDocument)| {
        format!("stage {number} on {}: {:.4} s computing", product(&stage.replicas), stage.compute_seconds)
    };
    let legend: Vec<String> = document.stages.iter().enumerate().map(line).collect();
    let title = format!("{}: {:.7} s a minibatch", input.name, document.seconds);
    draw(path, &input.graph, &title, &parts, &legend)
}

/// A row a stage.
pub(crate) fn rows(document: &PipelineDocument, format: Format) -> anyhow::Result<()> {
    let stages: Vec<(usize, &StageDocument)> = document.stages.iter().enumerate().collect();
    let columns =
        ["stage", "devices", "computing s", "communicating s", "in flight", "keeps", "layers", "first layer"];
    output::rows(format, "stages", &columns, &stages, |(number, stage)| {
        vec![
            number.to_string(),
            product(&stage.replicas),
            format!("{:.7}", stage.compute_seconds),
            format!("{:.7}", stage.communication_seconds),
            stage.in_flight.to_string(),
            size(stage.resident_bytes),
            stage.layers.len().to_string(),
            stage.layers.first().map_or_else(String::new, ToString::to_string),
        ]
    })
}

fn headline(name: &str, report: &PipelineReport, document: &PipelineDocument, time: &TimeUsed) -> String {
    let proof = if report.proved {
        "proved to be the least".to_owned()
    } else {
        let gap = 100.0 * (1.0 - report.lower_seconds / report.seconds);
        format!("not proved; at least {:.7} s, gap {gap:.2} %", report.lower_seconds)
    };
    format!(
        "{name}: {:.7} s a minibatch, {proof}\n  held up by {}\n  took {:.3} s\n",
        report.seconds, document.binding, time.wall_s
    )
}

/// Replicas on each level, innermost first: `4×2`.
fn product(replicas: &[usize]) -> String {
    replicas.iter().map(ToString::to_string).collect::<Vec<_>>().join("×")
}
