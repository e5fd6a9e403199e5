//! `raddle zoo`: the papers' networks as ONNX files.

use crate::args::{Format, ZooArgs};
use crate::output;
use anyhow::Context as _;
use graph::zoo;
use serde::Serialize;

#[derive(Serialize)]
struct Row {
    name: String,
    path: String,
    bytes: u64,
}

pub(crate) fn run(args: &ZooArgs, format: Format) -> anyhow::Result<()> {
    if args.names.is_empty() {
        let names: Vec<String> = zoo::names().iter().map(|name| (*name).to_owned()).collect();
        return output::rows(format, "networks", &["network"], &names, |name| vec![name.clone()]);
    }
    let bar = output::progress(args.names.len() as u64, "writing networks");
    let mut rows = Vec::new();
    for name in &args.names {
        let folder = args.output.join(name).join("1");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let path = folder.join("model.onnx");
        let options = zoo::ZooOptions { seed: args.seed, ..zoo::ZooOptions::default() };
        zoo::write(name, &path, &options)?;
        let bytes = std::fs::metadata(&path)?.len();
        rows.push(Row { name: name.clone(), path: path.display().to_string(), bytes });
        bar.inc(1);
    }
    bar.finish_and_clear();
    output::rows(format, "networks", &["network", "file", "bytes"], &rows, |row| {
        vec![row.name.clone(), row.path.clone(), row.bytes.to_string()]
    })
}
