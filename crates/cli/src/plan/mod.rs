//! `raddle plan`: where to cut a network and what to place where, and judging such plans.

mod amounts;
pub(crate) mod args;
mod clock;
mod input;
mod judge;
pub(crate) mod knee;
pub(crate) mod knee_picture;
mod latency;
mod onnx;
mod pack;
mod pipeline;
mod place;
mod replan;
mod schedule;
mod solver;

use crate::args::Format;
use anyhow::Context as _;
use args::{PlanArgs, PlanCommand};
use plan::{OperatorGraph, picture};
use std::path::Path;

pub(crate) fn run(args: &PlanArgs, format: Format) -> anyhow::Result<()> {
    match &args.command {
        PlanCommand::Place(args) => place::run(args, format),
        PlanCommand::Pipeline(args) => pipeline::run(args, format),
        PlanCommand::Judge(args) => judge::run(args, format),
        PlanCommand::Schedule(args) => schedule::run(args, format),
        PlanCommand::Replan(args) => replan::run(args, format),
        PlanCommand::Pack(args) => pack::run(args, format),
        PlanCommand::Knee(args) => knee::run(args, format),
    }
}

/// Draws `parts` (places of operators) of a graph into a file.
fn draw(
    path: &Path,
    graph: &OperatorGraph,
    title: &str,
    parts: &[&[usize]],
    legend: &[String],
) -> anyhow::Result<()> {
    let mut part_of = vec![None; graph.operators().len()];
    for (number, part) in parts.iter().enumerate() {
        for &operator in *part {
            if let Some(part) = part_of.get_mut(operator) {
                *part = Some(number);
            }
        }
    }
    // Backward operators go where their class goes.
    let mut part_of_color = std::collections::BTreeMap::new();
    for (operator, part) in graph.operators().iter().zip(&part_of) {
        if let (Some(color), Some(part)) = (operator.color, part) {
            part_of_color.insert(color, *part);
        }
    }
    for (operator, part) in graph.operators().iter().zip(&mut part_of) {
        if part.is_none() {
            *part = operator.color.and_then(|color| part_of_color.get(&color).copied());
        }
    }
    write(path, &picture::draw(graph, title, &part_of, legend)?)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Bytes for people.
fn size(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} B") } else { format!("{value:.2} {}", UNITS[unit]) }
}
