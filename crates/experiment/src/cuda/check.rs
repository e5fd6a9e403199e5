//! Correctness on the GPU: the conformance suite, and every model against onnxruntime.

use super::model::{WHOLE, at, batches, fill, gpu, inputs, load, precisions, run_through};
use crate::host;
use ::cuda::{CudaDevice, Precision};
use anyhow::Context as _;
use engine::Device as _;
use engine::conformance::cases;
use graph::{DType, Graph, Model, SegmentOptions, segment};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use vocab::PartitionId;

/// The suite every backend passes, case by case.
pub(crate) fn conformance() -> anyhow::Result<bool> {
    let device = gpu(Precision::Fp32, None)?;
    let mut passed = true;
    for case in cases() {
        match (case.run)(&device) {
            Ok(()) => host::print(&format!("ok    {}", case.name)),
            Err(why) => {
                passed = false;
                host::print(&format!("FAILED {}: {why}", case.name));
            }
        }
    }
    Ok(passed)
}

/// Relative error allowed against single precision.
const fn tolerance(precision: Precision) -> f64 {
    match precision {
        Precision::Fp32 => 1e-4,
        Precision::Tf32 => 3e-3,
        Precision::Fp16 | Precision::Bf16 => 2e-2,
    }
}

/// The numbers of a tensor.
fn floats(bytes: &[u8], dtype: DType) -> Box<dyn Iterator<Item = f64> + '_> {
    match dtype {
        DType::F32 => Box::new(bytes.as_chunks::<4>().0.iter().map(|b| f64::from(f32::from_le_bytes(*b)))),
        _ => Box::new(bytes.iter().map(|byte| f64::from(*byte))),
    }
}

/// An output's bytes and type.
type Output = (Vec<u8>, DType);

/// Largest relative norm of the difference over all outputs.
fn error(reference: &[Output], found: &[Output]) -> f64 {
    let one = |((a, dtype), (b, _)): (&Output, &Output)| {
        let (mut norm, mut off) = (0.0, 0.0);
        for (x, y) in floats(a, *dtype).zip(floats(b, *dtype)) {
            norm += x * x;
            off += (x - y) * (x - y);
        }
        let (norm, off): (f64, f64) = (f64::sqrt(norm), f64::sqrt(off));
        if a.len() == b.len() && off.is_finite() { off / norm.max(1e-30) } else { f64::INFINITY }
    };
    reference.iter().zip(found).map(one).fold(0.0, f64::max)
}

/// Inputs of one batch of a model, and the folder that onnxruntime's answers are in.
struct Asked {
    batch: usize,
    bytes: Vec<Vec<u8>>,
    folder: PathBuf,
}

/// What a model is asked: fresh inputs at every batch, answered by onnxruntime in single precision.
fn ask(
    device: &CudaDevice,
    (name, model): (&str, &Model),
    batches: &[usize],
    (out, seed): (&Path, u64),
) -> anyhow::Result<Vec<Asked>> {
    let mut asked = Vec::new();
    for &batch in batches {
        let graph = at(model, batch)?;
        let program = device.prepare(&graph, &segment(&graph, &WHOLE))?;
        let mut given = inputs(device, &*program)?;
        let bytes = fill(&mut given, seed + batch as u64)?;
        let folder = out.join("reference").join(batch.to_string());
        std::fs::create_dir_all(&folder)?;
        let mut lines = String::new();
        for (place, (spec, bytes)) in program.inputs().iter().zip(&bytes).enumerate() {
            let sizes: Vec<String> = spec.shape.iter().map(ToString::to_string).collect();
            let dtype = match spec.dtype {
                DType::F32 => "float32",
                DType::I64 => "int64",
                DType::I32 => "int32",
                other => anyhow::bail!("{name}: no reference for inputs of type {other}"),
            };
            writeln!(lines, "{},{dtype},{}", spec.name, sizes.join("x"))?;
            std::fs::write(folder.join(format!("in{place}.bin")), bytes)?;
        }
        std::fs::write(folder.join("inputs.csv"), lines)?;
        asked.push(Asked { batch, bytes, folder });
    }
    let file = if name.ends_with(".onnx") {
        PathBuf::from(name)
    } else {
        let file = out.join("reference").join("model.onnx");
        graph::zoo::write(name, &file, &graph::zoo::ZooOptions::default())?;
        file
    };
    let python = std::env::var_os("RADDLE_PYTHON").unwrap_or_else(|| "python3".into());
    let status = Command::new(python)
        .arg("experiments/pipeswitch/reference.py")
        .arg(file)
        .args(asked.iter().map(|one| &one.folder))
        .status()
        .context("Python with onnxruntime is needed for the reference")?;
    anyhow::ensure!(status.success(), "{name}: onnxruntime gave no reference");
    Ok(asked)
}

/// Every model at every precision and batch against onnxruntime, on fresh inputs.
pub(crate) fn run(out: &Path, kinds: &str, sizes: &str, models: &[&str]) -> anyhow::Result<bool> {
    std::fs::create_dir_all(out)?;
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    let mut table = String::from("model,batch,precision,relative_error,limit\n");
    let mut passed = true;
    let devices = precisions(kinds)?
        .into_iter()
        .map(|precision| Ok((precision, gpu(precision, Some(out.join("cache")))?)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let first = &devices.first().context("a precision")?.1;
    for name in models {
        let asked = load(name).and_then(|model| {
            let batches = match model.batch() {
                graph::Batch::Baked { rows, .. } => vec![*rows],
                graph::Batch::None => vec![1],
                graph::Batch::Symbolic => batches(sizes)?,
            };
            let asked = ask(first, (name, &model), &batches, (out, seed))?;
            Ok((model, asked))
        });
        let (model, asked) = match asked {
            Ok(asked) => asked,
            Err(error) => {
                host::print(&format!("{name}: {error:#}"));
                passed = false;
                continue;
            }
        };
        for one in &asked {
            let graph = at(&model, one.batch)?;
            for (precision, device) in &devices {
                let limit = tolerance(*precision);
                let (shown, ok) = match answer(device, &graph, one) {
                    Ok(error) => {
                        writeln!(table, "{name},{},{},{error:e},{limit:e}", one.batch, precision.name())?;
                        (format!("{error:.2e}"), error < limit)
                    }
                    Err(error) => (format!("{error:#}"), false),
                };
                passed &= ok;
                let verdict = if ok { "ok" } else { "SHORT" };
                let batch = one.batch;
                host::print(&format!("{name:<20} b{batch:<3} {:<5} {shown} {verdict}", precision.name()));
            }
        }
        std::fs::write(out.join("check.csv"), &table)?;
        std::fs::remove_dir_all(out.join("reference"))?;
    }
    Ok(passed)
}

/// Runs a graph and gives how far its outputs are off the reference.
fn answer(device: &CudaDevice, graph: &Graph, asked: &Asked) -> anyhow::Result<f64> {
    let segments = segment(graph, &SegmentOptions::default());
    let program = device.prepare(graph, &segments)?;
    let mut queue = device.open(PartitionId(0))?;
    let mut given = inputs(device, &*program)?;
    for (buffer, bytes) in given.iter_mut().zip(&asked.bytes) {
        buffer.write(0, bytes)?;
    }
    let found = read(&run_through(&mut *queue, &program, given)?)?;
    let reference = |(place, (_, dtype)): (usize, &Output)| -> anyhow::Result<Output> {
        Ok((std::fs::read(asked.folder.join(format!("out{place}.bin")))?, *dtype))
    };
    let reference = found.iter().enumerate().map(reference).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(error(&reference, &found))
}

fn read(outputs: &[Box<dyn engine::Buffer>]) -> anyhow::Result<Vec<Output>> {
    let one = |buffer: &dyn engine::Buffer| {
        // Poisoned, so that what is not written is seen.
        let mut bytes = vec![0xA5; buffer.spec().len()];
        buffer.read(0, &mut bytes)?;
        Ok((bytes, buffer.spec().dtype))
    };
    outputs.iter().map(|buffer| one(&**buffer)).collect()
}

/// Every convolution of networks compared with its operands, by itself and in its place.
pub(crate) fn audit(kind: &str, sizes: &str, names: &[&str]) -> anyhow::Result<bool> {
    let precision = *precisions(kind)?.first().context("no precision")?;
    let mut sound = true;
    for (name, batch) in names.iter().flat_map(|name| sizes.split(',').map(move |batch| (name, batch))) {
        let device = gpu(precision, None)?;
        let graph = at(&load(name)?, batch.parse()?)?;
        let program = device.prepare(&graph, &segment(&graph, &SegmentOptions::default()))?;
        let mut queue = device.open(PartitionId(0))?;
        let mut given = inputs(&device, &*program)?;
        fill(&mut given, 1)?;
        run_through(&mut *queue, &program, given)?;
        let found = ::cuda::audit(&*program)?;
        host::print(&format!("{name} b{batch} {}: {} convolutions", precision.name(), found.len()));
        for one in found {
            let ok = one.alone.max(one.in_place) < tolerance(precision);
            sound &= ok;
            let (alone, in_place, segment) = (one.alone, one.in_place, one.segment);
            let way = one.way.map_or_else(|| "?".to_owned(), |way| way.to_string());
            let verdict = if ok { "ok" } else { "SHORT" };
            host::print(&format!(
                "{verdict:<5} alone {alone:.1e} in place {in_place:.1e} way {way:<3} segment {segment:<3} {}",
                one.name
            ));
        }
    }
    Ok(sound)
}
