//! What jobs of a trace cost each other on one GPU, from pairs that were measured.
//!
//! Gavel's authors measured pairs of their own models; models of other traces take the numbers of the one most like them.

use super::{Setup, Throughputs, Trace};
use sched::cluster::GpuNeed;
use vocab::{Bytes, ModelId};

/// The measured model that stands for each model of Muri's traces.
const LIKE: [(&str, &str); 8] = [
    ("resnet18", "ResNet-18 (batch size 128)"),
    ("shufflenet_v2_x1_0", "ResNet-18 (batch size 64)"),
    ("vgg16", "ResNet-50 (batch size 32)"),
    ("vgg19", "ResNet-50 (batch size 64)"),
    ("bert", "Transformer (batch size 64)"),
    ("gpt2", "Transformer (batch size 128)"),
    ("a2c", "A3C"),
    ("dqn", "A3C"),
];

/// Memory on a GPU by model, in MB, as the authors of SJF-BSBF give it for their experiments.
const MEMORY_MB: [(&str, u64); 8] = [
    ("resnet18", 6_432),
    ("shufflenet_v2_x1_0", 5_252),
    ("vgg19", 4_304),
    ("vgg16", 4_224),
    ("dqn", 2_230),
    ("a2c", 2_094),
    ("bert", 8_058),
    ("gpt2", 10_532),
];

/// Memory of models nobody gave a number for, in MB.
const MEMORY_UNKNOWN_MB: u64 = 5_000;

/// Part of a model's memory that does not shrink with its batch, in hundredths: half, for want of measurements.
const FIXED: u64 = 50;

/// Part of a step that each further sub-batch pays again, in thousandths: a tenth, for want of measurements.
const STEP_FIXED_MILLI: u32 = 100;

/// Lets `setup`'s GPUs, of `memory` each, carry two jobs of `trace`, slowed as measured on `kind`. Pairs that did not fit
/// or were not measured are slowed as the worst of those that were. Returns how many pairs were measured.
pub fn share_gpus(
    setup: &mut Setup,
    trace: &Trace,
    throughputs: &Throughputs,
    kind: &str,
    memory: Bytes,
) -> usize {
    for node in &mut setup.nodes {
        (node.slots, node.gpu_memory) = (2, memory);
    }
    let models = trace.models();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a ratio from 1 to some hundreds"
    )]
    let slowed = |model: &str, beside: &str| {
        let ratio = throughputs.slowdown(kind, &like(model), &like(beside))?;
        Some((ratio.min(1_000.0) * 1_000.0).round() as u32)
    };
    let pairs = || models.iter().flat_map(|model| models.iter().map(move |beside| (*model, *beside)));
    let worst = pairs().filter_map(|(model, beside)| slowed(model, beside)).max().unwrap_or(2_000);
    let id = |model: &str| {
        let place = models.iter().position(|known| *known == model);
        ModelId(place.and_then(|place| u32::try_from(place).ok()).expect("a pair is of models of the trace"))
    };
    let mut measured = 0;
    for (model, beside) in pairs() {
        let ratio = slowed(model, beside);
        measured += usize::from(ratio.is_some());
        setup.pairs.insert(id(model), id(beside), ratio.unwrap_or(worst));
    }
    setup.needs = models.iter().map(|model| need(trace, model)).collect();
    measured
}

/// The measured model that stands for `model`; itself where none is known.
pub(super) fn like(model: &str) -> String {
    let known = LIKE.iter().find(|(known, _)| *known == model);
    known.map_or(model, |(_, like)| like).to_owned()
}

fn need(trace: &Trace, model: &str) -> GpuNeed {
    let known = MEMORY_MB.iter().find(|(known, _)| *known == model).map_or(MEMORY_UNKNOWN_MB, |(_, mb)| *mb);
    let rows = trace.jobs.iter().find(|job| job.model == model).map_or(1, |job| job.batch.max(1));
    let fixed = known * 1_000_000 * FIXED / 100;
    let per_row = (known * 1_000_000 - fixed) / u64::from(rows);
    GpuNeed { fixed: Bytes(fixed), per_row: Bytes(per_row), rows, step_fixed_milli: STEP_FIXED_MILLI }
}
