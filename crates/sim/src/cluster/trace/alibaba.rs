//! Alibaba's trace of pods with CPU, memory and parts of GPUs (ATC'23).
//!
//! A pod that asks for a part of one GPU needs as large a part of that GPU's memory, counted in thousandths; its model's
//! name says the part, so that policies that share GPUs can put such pods together.

use super::table::Table;
use super::{Problem, Trace, TraceError, TraceJob};
use sched::cluster::{GpuNeed, NodeId, NodeSpec};
use std::collections::BTreeMap;
use vocab::{Bytes, Span, Time};

/// Pods that may share a GPU.
const SLOTS: u8 = 4;

/// Memory of a GPU where parts are counted in thousandths.
pub const GPU_MEMORY: Bytes = Bytes(1_000);

/// Reads the pods that need a GPU and were deleted again; others are left out, and a note counts them. A pod runs from when
/// it was scheduled, or from its creation where that is not known.
///
/// # Errors
/// When anything is wrong with it: every problem, with its line.
pub fn alibaba(text: &str) -> Result<Trace, TraceError> {
    let needed = [
        "name",
        "cpu_milli",
        "memory_mib",
        "num_gpu",
        "gpu_milli",
        "creation_time",
        "deletion_time",
        "scheduled_time",
    ];
    let mut without = 0;
    let (jobs, problems) = Table::new(text, &needed).read(|row| {
        let (gpus, part) = (row.gpus("num_gpu"), row.whole("gpu_milli"));
        let (cpu_milli, memory) = (row.whole("cpu_milli"), row.whole("memory_mib"));
        let (created, deleted) = (row.number("creation_time"), row.number("deletion_time"));
        let scheduled =
            if row.text("scheduled_time").is_empty() { created } else { row.number("scheduled_time") };
        let (gpus, part, created) = (gpus?, part?, created?);
        if gpus == 0 {
            without += 1;
            return None;
        }
        if part == 0 || part > 1_000 {
            row.problem(format!("gpu_milli is {part}, not 1 to 1000"));
        }
        let ran = deleted? - scheduled?;
        if ran < 0.0 {
            row.problem("the pod was deleted before it ran".into());
            return None;
        }
        Some(TraceJob {
            line: row.line,
            name: row.text("name").to_owned(),
            arrival: Time::ZERO + Span::from_secs_f64(created),
            gpus,
            iterations: 1,
            // A pod deleted in the second it was scheduled ran for some of it.
            iteration: Span::from_secs_f64(ran.max(1.0)),
            restart: Span::ZERO,
            model: format!("gpu-{part}"),
            cpu_milli: cpu_milli?,
            memory: Bytes(memory? << 20),
            speedup_micro: 1_000_000,
            batch: 0,
        })
    });
    let trace = Trace::checked(jobs, problems)?;
    Ok(if without == 0 { trace } else { trace.noting(format!("{without} pods without a GPU left out")) })
}

/// What a pod of this model's name needs on each GPU.
#[must_use]
pub fn share_need(model: &str) -> GpuNeed {
    let part = model.strip_prefix("gpu-").and_then(|part| part.parse().ok()).unwrap_or(1_000);
    GpuNeed { fixed: Bytes(part), per_row: Bytes(0), rows: 0, step_fixed_milli: 0 }
}

/// Reads the trace's list of nodes; those without a GPU are left out.
///
/// # Errors
/// When anything is wrong with it: every problem, with its line.
pub fn alibaba_nodes(text: &str) -> Result<Vec<NodeSpec>, TraceError> {
    let needed = ["sn", "cpu_milli", "memory_mib", "gpu", "model"];
    let mut kinds: BTreeMap<String, u32> = BTreeMap::new();
    let (specs, mut problems) = Table::new(text, &needed).read(|row| {
        let (gpus, cpu_milli, memory) = (row.gpus("gpu"), row.whole("cpu_milli"), row.whole("memory_mib"));
        let gpus = u8::try_from(gpus?).ok().filter(|gpus| *gpus <= 64);
        if gpus.is_none() {
            row.problem("a node has at most 64 GPUs".into());
        }
        let (node, memory) = (NodeId(0), Bytes(memory? << 20));
        let next = u32::try_from(kinds.len()).unwrap_or(u32::MAX);
        Some(NodeSpec {
            node,
            rack: 0,
            kind: *kinds.entry(row.text("model").to_owned()).or_insert(next),
            gpus: gpus?,
            slots: SLOTS,
            cpu_milli: cpu_milli?,
            memory,
            gpu_memory: GPU_MEMORY,
        })
    });
    let mut specs: Vec<NodeSpec> = specs.into_iter().filter(|spec| spec.gpus > 0).collect();
    for (id, spec) in (0..).zip(&mut specs) {
        spec.node = NodeId(id);
    }
    if specs.is_empty() && problems.is_empty() {
        problems.push(Problem { line: 1, what: "the list names no node with a GPU".into() });
    }
    if problems.is_empty() { Ok(specs) } else { Err(TraceError { problems, rest: Trace::default() }) }
}
