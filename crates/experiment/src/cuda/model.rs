//! Models and inputs for the GPU experiments.

use crate::statistics::median;
use ::cuda::{CudaDevice, CudaOptions, Precision};
use anyhow::{Context as _, bail};
use engine::{Buffer, Device, Program, Queue, Run};
use graph::zoo::{self, ZooOptions};
use graph::{DType, Graph, ImportLimits, Model, Segment, SegmentOptions, Sizes, segment};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use vocab::{Bytes, Rng, Span};

/// A network of the zoo, or an ONNX file.
pub(crate) fn load(name: &str) -> anyhow::Result<Model> {
    if name.ends_with(".onnx") {
        let path = Path::new(name);
        let stem = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        return Ok(Model::import(&stem, path, &ImportLimits::default())?);
    }
    let file = zoo::build(name, &ZooOptions::default())?;
    Ok(Model::from_bytes(name, zoo::encode(&file), &ImportLimits::default())?)
}

/// The model at a batch; free dimensions get a size that its networks take.
pub(crate) fn at(model: &Model, batch: usize) -> anyhow::Result<Graph> {
    let free: BTreeMap<String, usize> =
        model.free_dims().map(|dim| (dim.to_owned(), free_size(model, dim))).collect();
    Ok(model.at(&Sizes { batch, free })?)
}

/// A recogniser reads lines 48 high; everything else takes multiples of 32.
fn free_size(model: &Model, dim: &str) -> usize {
    let height = model
        .inputs()
        .iter()
        .any(|port| matches!(port.shape.get(2), Some(graph::Dim::Free(name)) if name == dim));
    if model.name() == "ocr_rec" && height { 48 } else { 320 }
}

pub(crate) fn precisions(list: &str) -> anyhow::Result<Vec<Precision>> {
    let one = |name: &str| {
        Precision::from_name(name).with_context(|| format!("{name:?} is not fp32, tf32, fp16 or bf16"))
    };
    list.split(',').map(one).collect()
}

pub(crate) fn batches(list: &str) -> anyhow::Result<Vec<usize>> {
    list.split(',').map(|batch| batch.parse().with_context(|| format!("{batch:?} is not a batch"))).collect()
}

/// The first GPU, with a cache of compiled kernels beside the results.
pub(crate) fn gpu(precision: Precision, cache: Option<PathBuf>) -> anyhow::Result<CudaDevice> {
    open(precision, cache, false)
}

/// The same, with outputs in the precision they were computed in, as PyTorch leaves them.
pub(crate) fn gpu_as_computed(precision: Precision, cache: Option<PathBuf>) -> anyhow::Result<CudaDevice> {
    open(precision, cache, precision == Precision::Fp16)
}

fn open(precision: Precision, cache: Option<PathBuf>, half_outputs: bool) -> anyhow::Result<CudaDevice> {
    let weights = Bytes(4 << 30);
    let options = CudaOptions { precision, cache, weights, half_outputs, ..CudaOptions::default() };
    Ok(CudaDevice::open(0, &options)?)
}

/// Random inputs: floats around zero, token ids that every vocabulary has, masks of ones.
pub(crate) fn fill(buffers: &mut [Box<dyn Buffer>], seed: u64) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut rng = Rng::new(seed);
    let mut all = Vec::new();
    for buffer in buffers {
        let spec = buffer.spec().clone();
        let elements: usize = spec.shape.iter().product();
        #[expect(clippy::cast_possible_truncation, reason = "rounding to single precision is what is wanted")]
        let bytes: Vec<u8> = match spec.dtype {
            DType::F32 => (0..elements).flat_map(|_| (rng.normal() as f32).to_le_bytes()).collect(),
            DType::I64 if spec.name.contains("mask") => {
                (0..elements).flat_map(|_| 1i64.to_le_bytes()).collect()
            }
            DType::I64 => (0..elements).flat_map(|_| rng.below(2).to_le_bytes()).collect(),
            DType::I32 => {
                (0..elements).flat_map(|_| u32::try_from(rng.below(200)).unwrap_or(0).to_le_bytes()).collect()
            }
            other => bail!("no inputs of type {other}"),
        };
        buffer.write(0, &bytes)?;
        all.push(bytes);
    }
    Ok(all)
}

/// Empty inputs of a program.
pub(crate) fn inputs(device: &dyn Device, program: &dyn Program) -> anyhow::Result<Vec<Box<dyn Buffer>>> {
    Ok(program.inputs().iter().map(|spec| device.buffer(spec)).collect::<Result<_, _>>()?)
}

/// Runs to the end with every segment launched ahead; gives the outputs.
pub(crate) fn run_through(
    queue: &mut dyn Queue,
    program: &Arc<dyn Program>,
    inputs: Vec<Box<dyn Buffer>>,
) -> anyhow::Result<Vec<Box<dyn Buffer>>> {
    let mut run = Run::new(program.clone(), inputs)?;
    while !run.is_launched() {
        run.launch(queue)?;
    }
    run.settle(queue)?;
    Ok(run.finish()?)
}

/// One segment.
pub(crate) const WHOLE: SegmentOptions = SegmentOptions { segments_max: 1, flops_min: 0 };

/// Segments of about this device time each, for a model that takes `alone` in one.
pub(crate) fn segments_of(graph: &Graph, alone: Span, each: Span) -> Vec<Segment> {
    let count = usize::try_from(alone.ns().div_ceil(each.ns().max(1))).unwrap_or(1);
    segment(graph, &SegmentOptions { segments_max: count.max(1), flops_min: 0 })
}

/// Median time of a warm run from its launch to its outputs, and the median device time of each segment.
pub(crate) fn warm_time(
    device: &dyn Device,
    queue: &mut dyn Queue,
    program: &Arc<dyn Program>,
    rounds: usize,
) -> anyhow::Result<(Span, Vec<Span>)> {
    let mut whole = Vec::new();
    let mut each: Vec<Vec<Span>> = vec![Vec::new(); program.segments().len()];
    for round in 0..rounds + 3 {
        let begin = Instant::now();
        let mut run = Run::new(program.clone(), inputs(device, &**program)?)?;
        while !run.is_launched() {
            run.launch(queue)?;
        }
        run.settle(queue)?;
        let time = Span::from(begin.elapsed());
        let times = run.take_times();
        run.finish()?;
        if round >= 3 {
            whole.push(time);
            each.iter_mut().zip(times).for_each(|(all, time)| all.push(time));
        }
    }
    Ok((median(&whole), each.iter().map(|times| median(times)).collect()))
}
