//! Correctness on the GPU: the conformance suite, and every model against the CPU backend.

use super::model::{WHOLE, at, batches, fill, gpu, inputs, load, precisions, run_through, unfolded};
use crate::host;
use ::cuda::Precision;
use engine::conformance::cases;
use engine::{CpuDevice, Device as _};
use graph::{DType, SegmentOptions, segment};
use std::fmt::Write as _;
use std::path::Path;
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

fn floats(bytes: &[u8], dtype: DType) -> Vec<f64> {
    match dtype {
        DType::F32 => {
            bytes.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect()
        }
        _ => bytes.iter().map(|byte| f64::from(*byte)).collect(),
    }
}

/// An output's bytes and type.
type Output = (Vec<u8>, DType);

/// Largest relative norm of the difference over all outputs.
fn error(reference: &[Output], found: &[Output]) -> f64 {
    let one = |((a, dtype), (b, _)): (&Output, &Output)| {
        let (a, b) = (floats(a, *dtype), floats(b, *dtype));
        let norm = a.iter().map(|x| x * x).sum::<f64>().sqrt();
        let off = a.iter().zip(&b).map(|(x, y)| (x - y) * (x - y)).sum::<f64>().sqrt();
        if a.len() == b.len() && off.is_finite() { off / norm.max(1e-30) } else { f64::INFINITY }
    };
    reference.iter().zip(found).map(one).fold(0.0, f64::max)
}

/// Every model at every precision and batch against the CPU backend's unfolded graph, on fresh inputs.
pub(crate) fn run(out: &Path, kinds: &str, sizes: &str, models: &[&str]) -> anyhow::Result<bool> {
    std::fs::create_dir_all(out)?;
    let cpu = CpuDevice::whole()?;
    let mut cpu_queue = cpu.open(PartitionId(0))?;
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    let mut table = String::from("model,batch,precision,relative_error,limit\n");
    let mut passed = true;
    let devices = precisions(kinds)?
        .into_iter()
        .map(|precision| Ok((precision, gpu(precision, Some(out.join("cache")))?)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    for name in models {
        let model = match load(name) {
            Ok(model) => model,
            Err(error) => {
                host::print(&format!("{name}: {error}"));
                passed = false;
                continue;
            }
        };
        let baked = match model.batch() {
            graph::Batch::Baked { rows, .. } => Some(vec![*rows]),
            graph::Batch::None => Some(vec![1]),
            graph::Batch::Symbolic => None,
        };
        for batch in baked.map_or_else(|| batches(sizes), Ok)? {
            let plain = unfolded(&model, batch)?;
            let program = cpu.prepare(&plain, &segment(&plain, &WHOLE))?;
            let mut given = inputs(&cpu, &*program)?;
            let bytes = fill(&mut given, seed + batch as u64)?;
            let reference = read(&run_through(&mut *cpu_queue, &program, given)?)?;
            let graph = at(&model, batch)?;
            for (precision, device) in &devices {
                let outcome = (|| {
                    let segments = segment(&graph, &SegmentOptions::default());
                    let program = device.prepare(&graph, &segments)?;
                    let mut queue = device.open(PartitionId(0))?;
                    let mut given = inputs(device, &*program)?;
                    for (buffer, bytes) in given.iter_mut().zip(&bytes) {
                        buffer.write(0, bytes)?;
                    }
                    read(&run_through(&mut *queue, &program, given)?)
                })();
                let limit = tolerance(*precision);
                let (shown, ok) = match outcome {
                    Ok(found) => {
                        let error = error(&reference, &found);
                        writeln!(table, "{name},{batch},{},{error:e},{limit:e}", precision.name())?;
                        (format!("{error:.2e}"), error < limit)
                    }
                    Err(error) => (error.to_string(), false),
                };
                passed &= ok;
                let verdict = if ok { "ok" } else { "SHORT" };
                host::print(&format!("{name:<20} b{batch:<3} {:<5} {shown} {verdict}", precision.name()));
            }
        }
    }
    std::fs::write(out.join("check.csv"), table)?;
    Ok(passed)
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
