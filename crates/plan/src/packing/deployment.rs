//! A deployment: which instance of which GPU serves which model, and its text in ParvaGPU's form.

use super::slots::Size;
use std::fmt::Write as _;
use thiserror::Error;

/// GPUs of a node, by which the text numbers them.
const GPUS_OF_A_NODE: u32 = 8;

/// The text's first line.
const HEADER: &str = "Num instance,Num GPU,Model,Placement,Instance size,Batch size,Num proc";

/// One instance that serves a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// The GPU.
    pub gpu: u32,
    /// The memory slot it begins at.
    pub start: u8,
    /// Its size.
    pub size: Size,
    /// The model it serves.
    pub model: String,
    /// Rows of a batch.
    pub batch: u32,
    /// Processes that share it.
    pub processes: u32,
}

/// Instances on GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deployment {
    /// Instances, GPU by GPU.
    pub instances: Vec<Instance>,
}

/// What is wrong with a deployment's text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", .0.join("\n"))]
pub struct DeploymentError(pub Vec<String>);

impl Deployment {
    /// GPUs that hold an instance.
    #[must_use]
    pub fn gpus(&self) -> usize {
        let mut gpus: Vec<u32> = self.instances.iter().map(|instance| instance.gpu).collect();
        gpus.sort_unstable();
        gpus.dedup();
        gpus.len()
    }

    /// Compute slices of all instances.
    #[must_use]
    pub fn slices(&self) -> u32 {
        self.instances.iter().map(|instance| instance.size.slices()).sum()
    }

    /// The deployment as ParvaGPU writes it.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text = format!("{HEADER}\n");
        for Instance { gpu, start, size, model, batch, processes } in &self.instances {
            let (node, gpu) = (gpu / GPUS_OF_A_NODE, gpu % GPUS_OF_A_NODE);
            let _ = writeln!(text, "{node},{gpu},{model},{start},{},{batch},{processes}", size.slices());
        }
        text
    }

    /// Reads a deployment that ParvaGPU or [`Deployment::csv`] wrote.
    ///
    /// # Errors
    /// All faults at once, each with its line.
    pub fn parse(text: &str) -> Result<Self, DeploymentError> {
        let mut deployment = Self::default();
        let mut faults = Vec::new();
        for (number, line) in text.lines().enumerate().skip(1).filter(|(_, line)| !line.trim().is_empty()) {
            match instance(line) {
                Ok(instance) => deployment.instances.push(instance),
                Err(why) => faults.push(format!("line {}: {why}", number + 1)),
            }
        }
        if faults.is_empty() { Ok(deployment) } else { Err(DeploymentError(faults)) }
    }
}

fn instance(line: &str) -> Result<Instance, String> {
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    let [node, gpu, model, start, size, batch, processes] = cells[..] else {
        return Err(format!("{} columns, not 7", cells.len()));
    };
    let whole = |text: &str| text.parse::<u32>().map_err(|_| format!("{text:?} is no number"));
    let gpu = whole(node)?.checked_mul(GPUS_OF_A_NODE).and_then(|first| first.checked_add(whole(gpu).ok()?));
    Ok(Instance {
        gpu: gpu.ok_or_else(|| format!("{node:?} is no node"))?,
        start: start.parse().map_err(|_| format!("{start:?} is no slot"))?,
        size: Size::try_from(whole(size)?)?,
        model: model.to_owned(),
        batch: whole(batch)?,
        processes: whole(processes)?,
    })
}
