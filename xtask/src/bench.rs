//! Measurements: each experiment is a program that prints its bars and leaves its files in `experiments/NAME`.

use crate::{cargo, root};
use anyhow::bail;

/// Experiments and what they need beyond this workspace.
const EXPERIMENTS: [(&str, &str); 7] = [
    ("spine", "the scheduling core, the simulator and the CPU engine"),
    ("pipeswitch", "the CUDA engine: judges the tables measured on a GPU (see `cargo xtask gpu`)"),
    ("knee", "where more units of a device stop paying: public tables, and this machine's cores"),
    ("dstack", "sharing a device in parts: D-STACK and its rivals on mixes of models, simulated"),
    ("sgprs", "periodic tasks on a pool of contexts, simulated"),
    ("packing", "tenants on MIG instances: ParvaGPU's deployments, and the fewest GPUs"),
    ("plan", "planners: optima, islands, pipelines and schedules"),
];

pub(crate) fn run(words: &[&str]) -> anyhow::Result<()> {
    let [name, rest @ ..] = words else {
        let list: Vec<String> =
            EXPERIMENTS.iter().map(|(name, what)| format!("  {name:<12} {what}")).collect();
        bail!("name an experiment:\n{}", list.join("\n"));
    };
    if !EXPERIMENTS.iter().any(|(known, _)| known == name) {
        bail!("no experiment is called {name:?}; `cargo xtask bench` lists them");
    }
    // The whole workspace is built so that dependencies keep the features they have everywhere else.
    crate::run(cargo().args(["build", "--workspace", "--bins"]))?;
    crate::run(
        std::process::Command::new(crate::target().join("debug/experiment"))
            .arg(name)
            .args(rest)
            .current_dir(root()),
    )
}
