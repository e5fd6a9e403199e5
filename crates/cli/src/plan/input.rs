//! Reading a graph, whatever its format; what looks wrong is said on stderr.

use crate::plan::amounts;
use crate::plan::args::{GraphArgs, TimeUnit};
use crate::plan::onnx;
use anyhow::Context as _;
use plan::formats::{Doubt, Link, PiperColumn, doubts, read_pipedream, read_piper, read_placement};
use plan::{Devices, OperatorGraph};
use std::path::Path;

/// A graph, and the devices that its file is for.
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) graph: OperatorGraph,
    pub(crate) devices: Option<Devices>,
    pub(crate) doubts: Vec<String>,
}

/// Reads the graph that the arguments name.
pub(crate) fn read(args: &GraphArgs) -> anyhow::Result<Input> {
    let path = &args.graph;
    let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let column = PiperColumn { degree: args.tensor_parallel, recompute: args.recompute };
    let link = Link { bytes_per_second: amounts::rate(&args.link)? };
    let mut piper = false;
    let input = if path.extension().is_some_and(|extension| extension == "onnx") {
        let graph = onnx::read(args, link)?;
        Input { name, devices: None, doubts: told(&doubts(&graph)), graph }
    } else {
        let text = text(path)?;
        let read = || format!("{} cannot be planned", path.display());
        if !text.trim_start().starts_with('{') {
            let graph = read_pipedream(&text, link).map_err(|error| plain(&read(), &error))?;
            Input { name, devices: None, doubts: told(&doubts(&graph)), graph }
        } else if text.contains("\"TMPCs\"") {
            piper = true;
            let unit_ms = if args.piper_times == TimeUnit::Ms { 1.0 } else { 1e3 };
            let file = read_piper(&text, unit_ms, column).map_err(|error| plain(&read(), &error))?;
            let devices = Some(Devices::uniform(file.devices, 0, file.memory_bytes));
            Input { name, graph: file.graph, devices, doubts: told(&file.doubts) }
        } else {
            let file = read_placement(&text).map_err(|error| plain(&read(), &error))?;
            Input { name, graph: file.graph, devices: Some(file.devices), doubts: told(&file.doubts) }
        }
    };
    anyhow::ensure!(
        piper || column == PiperColumn::default(),
        "{} has no costs of tensor parallelism or of recomputing; leave out --tensor-parallel and --recompute",
        path.display()
    );
    for doubt in &input.doubts {
        tracing::warn!("{}: {doubt}", path.display());
    }
    Ok(input)
}

/// Reads the graph in a file that needs no further arguments.
pub(crate) fn read_plain(path: &Path) -> anyhow::Result<Input> {
    let words = [std::ffi::OsStr::new("graph"), path.as_os_str()];
    #[derive(clap::Parser)]
    struct Plain {
        #[command(flatten)]
        graph: GraphArgs,
    }
    read(&<Plain as clap::Parser>::try_parse_from(words)?.graph)
}

/// An error that says all it knows itself, so that its causes need not be told again.
pub(crate) fn plain(what: &str, error: &dyn std::fmt::Display) -> anyhow::Error {
    anyhow::anyhow!("{what}: {error}")
}

/// The text of a file that is not too long.
pub(crate) fn text(path: &Path) -> anyhow::Result<String> {
    let length = std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?.len();
    anyhow::ensure!(
        length <= plan::formats::FILE_BYTES_MAX as u64,
        "{} has {length} bytes, at most {} are read",
        path.display(),
        plan::formats::FILE_BYTES_MAX
    );
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn told(doubts: &[Doubt]) -> Vec<String> {
    doubts.iter().map(ToString::to_string).collect()
}
