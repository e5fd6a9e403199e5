//! What every backend must do, as data: each case takes a device and says what went wrong. A backend passes all of them
//! unchanged; its own test lists `cases()` and runs each.

use crate::{Buffer, Device, EngineError, Poll, Program, Progress, Queue, Run, TensorSpec};
use graph::zoo::{self, ZooOptions};
use graph::{DType, Graph, HostTensor, ImportLimits, Model, SegmentOptions, Sizes, segment};
use std::sync::Arc;
use vocab::{PartitionId, Rng};

/// One thing a backend must do.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// Runs it; a sentence when it fails.
    pub run: fn(&dyn Device) -> Result<(), String>,
}

/// Every case.
#[must_use]
pub fn cases() -> Vec<Case> {
    let case = |name, run| Case { name, run };
    vec![
        case("outputs equal the reference at every batch", equals_reference),
        case("segments equal the whole", segments_equal_whole),
        case("rows staged one by one equal rows in buffers", staged_rows_equal_buffers),
        case("parking at every edge changes nothing", parking_changes_nothing),
        case("two runs in turn do not mix", interleaved_runs_do_not_mix),
        case("an abandoned run leaves nothing behind", abandoning_leaves_nothing),
        case("the same inputs give the same outputs", repeatable),
        case("wrong inputs are refused by name", wrong_inputs_refused),
        case("calls out of order are refused", out_of_order_refused),
        case("buffers keep to their bounds", buffers_bounded),
        case("an unknown partition is refused", unknown_partition_refused),
        case("a launch can be asked without waiting", polling_ends),
    ]
}

/// Models the cases run: a CNN, a perceptron and a transformer, small enough for any device.
const MODELS: [&str; 3] = ["tiny_cnn", "tiny_mlp", "tiny_transformer"];

/// Relative error of an fp32 backend against the reference.
const TOLERANCE: f64 = 1e-4;

/// Relative error of summing in another order.
const ROUNDING: f64 = 1e-6;

/// As many cuts as the fusions allow.
const FINE: SegmentOptions = SegmentOptions { segments_max: 64, flops_min: 0 };

/// One segment.
const WHOLE: SegmentOptions = SegmentOptions { segments_max: 1, flops_min: 0 };

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn model(name: &str) -> Result<Model, String> {
    let file = zoo::build(name, &ZooOptions::default()).map_err(text)?;
    Model::from_bytes(name, zoo::encode(&file), &ImportLimits::default()).map_err(text)
}

fn prepare(device: &dyn Device, graph: &Graph, options: &SegmentOptions) -> Result<Arc<dyn Program>, String> {
    device.prepare(graph, &segment(graph, options)).map_err(text)
}

fn open(device: &dyn Device) -> Result<Box<dyn Queue>, String> {
    let first = device.partitions().first().ok_or("the device has no partition")?;
    device.open(first.id).map_err(text)
}

/// Fresh random inputs of `program`: floats around zero, integers below ten (token ids of the smallest vocabulary).
fn inputs(device: &dyn Device, program: &dyn Program, seed: u64) -> Result<Vec<Box<dyn Buffer>>, String> {
    let mut rng = Rng::new(seed);
    let one = |spec: &TensorSpec| {
        let mut buffer = device.buffer(spec).map_err(text)?;
        let elements = spec.len() / spec.dtype.size();
        let bytes: Vec<u8> = match spec.dtype {
            DType::F32 => (0..elements).flat_map(|_| single(rng.normal()).to_le_bytes()).collect(),
            DType::I64 => (0..elements).flat_map(|_| rng.below(10).to_le_bytes()).collect(),
            other => return Err(format!("the suite has no inputs of type {other}")),
        };
        buffer.write(0, &bytes).map_err(text)?;
        Ok(buffer)
    };
    program.inputs().iter().map(one).collect()
}

#[expect(clippy::cast_possible_truncation, reason = "rounding to single precision is what is wanted")]
const fn single(value: f64) -> f32 {
    value as f32
}

fn to_end(run: &mut Run, queue: &mut dyn Queue) -> Result<(), String> {
    while run.progress() != Progress::Finished {
        run.launch(queue).map_err(text)?;
        run.settle(queue).map_err(text)?;
    }
    Ok(())
}

fn bytes(outputs: &[Box<dyn Buffer>]) -> Result<Vec<Vec<u8>>, String> {
    let one = |buffer: &dyn Buffer| {
        let mut bytes = vec![0xA5; buffer.spec().len()];
        buffer.read(0, &mut bytes).map_err(text)?;
        Ok(bytes)
    };
    outputs.iter().map(|buffer| one(&**buffer)).collect()
}

fn run_once(
    device: &dyn Device,
    queue: &mut dyn Queue,
    program: &Arc<dyn Program>,
    seed: u64,
) -> Result<Vec<Vec<u8>>, String> {
    let mut run = Run::new(program.clone(), inputs(device, &**program, seed)?).map_err(text)?;
    to_end(&mut run, queue)?;
    bytes(&run.finish().map_err(text)?)
}

/// Largest difference relative to the reference's norm; NaN and infinities never agree.
fn relative_error(reference: &[u8], found: &[u8]) -> f64 {
    let floats = |bytes: &[u8]| -> Vec<f64> {
        bytes.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect()
    };
    let (reference, found) = (floats(reference), floats(found));
    let norm = reference.iter().map(|x| x * x).sum::<f64>().sqrt();
    let error = reference.iter().zip(&found).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
    if reference.len() == found.len() && error.is_finite() { error / norm.max(1e-30) } else { f64::INFINITY }
}

fn close(what: &str, reference: &[Vec<u8>], found: &[Vec<u8>], limit: f64) -> Result<(), String> {
    if reference.len() != found.len() {
        return Err(format!("{what}: {} outputs instead of {}", found.len(), reference.len()));
    }
    for (place, (reference, found)) in reference.iter().zip(found).enumerate() {
        let error = relative_error(reference, found);
        if error.is_nan() || error >= limit {
            return Err(format!("{what}: output {place} is off by {error:.2e} of its norm"));
        }
    }
    Ok(())
}

/// The reference is the file as it is, unfolded and uncut, on the CPU backend.
fn equals_reference(device: &dyn Device) -> Result<(), String> {
    let cpu = crate::CpuDevice::whole().map_err(text)?;
    for name in MODELS {
        let model = model(name)?;
        for batch in [1, 2, 7, 16] {
            let plain = model.unfolded(&Sizes::batch(batch)).map_err(text)?;
            let graph = model.at(&Sizes::batch(batch)).map_err(text)?;
            let seed = 100 + batch as u64;
            let reference = run_once(&cpu, &mut *open(&cpu)?, &prepare(&cpu, &plain, &WHOLE)?, seed)?;
            let found = run_once(device, &mut *open(device)?, &prepare(device, &graph, &FINE)?, seed)?;
            close(&format!("{name} at batch {batch}"), &reference, &found, TOLERANCE)?;
        }
    }
    Ok(())
}

fn segments_equal_whole(device: &dyn Device) -> Result<(), String> {
    let mut queue = open(device)?;
    for name in MODELS {
        let graph = model(name)?.at(&Sizes::batch(3)).map_err(text)?;
        let (whole, cut) = (prepare(device, &graph, &WHOLE)?, prepare(device, &graph, &FINE)?);
        if whole.segments().len() != 1 || cut.segments().len() < 2 {
            return Err(format!(
                "{name} has {} and {} segments",
                whole.segments().len(),
                cut.segments().len()
            ));
        }
        let whole = run_once(device, &mut *queue, &whole, 7)?;
        let cut = run_once(device, &mut *queue, &cut, 7)?;
        // Between the blocks of a transformer a backend may move axes from one layer into the next: a fusion of its own,
        // which a cut ends, and with it the order of a sum.
        if name == "tiny_transformer" {
            close(name, &whole, &cut, ROUNDING)?;
        } else if whole != cut {
            return Err(format!("{name}: cut outside fusions, yet not bit for bit the same"));
        }
    }
    Ok(())
}

/// A device that stages nothing passes; its runs are given buffers.
fn staged_rows_equal_buffers(device: &dyn Device) -> Result<(), String> {
    const BATCH: usize = 4;
    for name in MODELS {
        let graph = model(name)?.at(&Sizes::batch(BATCH)).map_err(text)?;
        let program = prepare(device, &graph, &WHOLE)?;
        let mut queue = open(device)?;
        // Requests of one and two rows, and one row that nobody asked for. A second round finds used places.
        for (round, requests) in [[1, 2].as_slice(), &[1, 1, 1]].into_iter().enumerate() {
            let mut buffers = inputs(device, &*program, 11 + round as u64)?;
            let mut staged = Vec::new();
            for buffer in &mut buffers {
                let spec = buffer.spec().clone();
                let row = spec.len() / BATCH;
                buffer.write(3 * row, &vec![0; row]).map_err(text)?;
                let mut bytes = vec![0; spec.len()];
                buffer.read(0, &mut bytes).map_err(text)?;
                let mut own = Vec::new();
                let mut at = 0;
                for rows in requests {
                    let shape = std::iter::once(*rows).chain(spec.shape[1..].iter().copied()).collect();
                    let part = bytes[at * row..(at + rows) * row].to_vec();
                    let Some(one) = device.stage(&HostTensor::new(spec.dtype, shape, part).map_err(text)?)
                    else {
                        return Ok(());
                    };
                    own.push(one);
                    at += rows;
                }
                staged.push(own);
            }
            let mut run = Run::staged(program.clone(), staged).map_err(text)?;
            to_end(&mut run, &mut *queue)?;
            let found = bytes(&run.finish().map_err(text)?)?;
            let mut run = Run::new(program.clone(), buffers).map_err(text)?;
            to_end(&mut run, &mut *queue)?;
            if bytes(&run.finish().map_err(text)?)? != found {
                return Err(format!("{name}: staged rows {requests:?} give other outputs than a buffer"));
            }
        }
        let too_few = Run::staged(program.clone(), Vec::new());
        if too_few.is_ok() {
            return Err(format!("{name}: a run began without its inputs"));
        }
    }
    Ok(())
}

fn parking_changes_nothing(device: &dyn Device) -> Result<(), String> {
    let mut queue = open(device)?;
    let graph = model("tiny_transformer")?.at(&Sizes::batch(2)).map_err(text)?;
    let program = prepare(device, &graph, &FINE)?;
    let straight = run_once(device, &mut *queue, &program, 11)?;
    let mut run = Run::new(program.clone(), inputs(device, &*program, 11)?).map_err(text)?;
    while run.progress() != Progress::Finished {
        run.park().map_err(text)?;
        // The device does something else meanwhile.
        run_once(device, &mut *queue, &program, 12)?;
        run.resume().map_err(text)?;
        run.launch(&mut *queue).map_err(text)?;
        run.settle(&mut *queue).map_err(text)?;
    }
    let parked = bytes(&run.finish().map_err(text)?)?;
    if parked == straight { Ok(()) } else { Err("outputs differ after parking".into()) }
}

fn interleaved_runs_do_not_mix(device: &dyn Device) -> Result<(), String> {
    let mut queue = open(device)?;
    let (cnn, mlp) = (model("tiny_cnn")?, model("tiny_mlp")?);
    let cnn = prepare(device, &cnn.at(&Sizes::batch(2)).map_err(text)?, &FINE)?;
    let mlp = prepare(device, &mlp.at(&Sizes::batch(4)).map_err(text)?, &FINE)?;
    let straight = [run_once(device, &mut *queue, &cnn, 21)?, run_once(device, &mut *queue, &mlp, 22)?];
    let mut runs = [(&cnn, 21), (&mlp, 22)]
        .into_iter()
        .map(|(program, seed)| Run::new(program.clone(), inputs(device, &**program, seed)?).map_err(text))
        .collect::<Result<Vec<Run>, String>>()?;
    while runs.iter().any(|run| run.progress() != Progress::Finished) {
        for run in &mut runs {
            if run.progress() != Progress::Finished {
                run.launch(&mut *queue).map_err(text)?;
                run.settle(&mut *queue).map_err(text)?;
            }
        }
    }
    for (run, straight) in runs.into_iter().zip(straight) {
        if bytes(&run.finish().map_err(text)?)? != straight {
            return Err("two runs in turn changed each other's outputs".into());
        }
    }
    Ok(())
}

fn abandoning_leaves_nothing(device: &dyn Device) -> Result<(), String> {
    let mut queue = open(device)?;
    let graph = model("tiny_cnn")?.at(&Sizes::batch(1)).map_err(text)?;
    let program = prepare(device, &graph, &FINE)?;
    let straight = run_once(device, &mut *queue, &program, 31)?;
    for edge in 0..program.segments().len() {
        let mut run = Run::new(program.clone(), inputs(device, &*program, 32)?).map_err(text)?;
        for _ in 0..edge {
            run.launch(&mut *queue).map_err(text)?;
            run.settle(&mut *queue).map_err(text)?;
        }
        run.abandon();
        if run_once(device, &mut *queue, &program, 31)? != straight {
            return Err(format!("outputs differ after a run was abandoned at edge {edge}"));
        }
    }
    Ok(())
}

fn repeatable(device: &dyn Device) -> Result<(), String> {
    let mut queue = open(device)?;
    for name in MODELS {
        let program = prepare(device, &model(name)?.at(&Sizes::batch(2)).map_err(text)?, &FINE)?;
        let first = run_once(device, &mut *queue, &program, 41)?;
        if first != run_once(device, &mut *queue, &program, 41)? {
            return Err(format!("{name}: the same inputs gave other outputs"));
        }
        if first == run_once(device, &mut *queue, &program, 42)? {
            return Err(format!("{name}: other inputs gave the same outputs; they are not read"));
        }
    }
    Ok(())
}

fn wrong_inputs_refused(device: &dyn Device) -> Result<(), String> {
    let program = prepare(device, &model("tiny_mlp")?.at(&Sizes::batch(2)).map_err(text)?, &WHOLE)?;
    let good = program.inputs()[0].clone();
    let mut wrong_shape = good.clone();
    wrong_shape.shape[0] += 1;
    let wrong_type = TensorSpec { dtype: DType::I64, ..good };
    let attempts: [(&str, Vec<TensorSpec>); 3] =
        [("no input", vec![]), ("a wrong shape", vec![wrong_shape]), ("a wrong type", vec![wrong_type])];
    for (what, specs) in attempts {
        let buffers = specs.iter().map(|spec| device.buffer(spec).map_err(text));
        match Run::new(program.clone(), buffers.collect::<Result<_, _>>()?) {
            Err(EngineError::Mismatch { .. }) => {}
            Err(other) => return Err(format!("{what} was refused as something else: {other}")),
            Ok(_) => return Err(format!("{what} was accepted")),
        }
    }
    Ok(())
}

fn out_of_order_refused(device: &dyn Device) -> Result<(), String> {
    let mut queue = open(device)?;
    let program = prepare(device, &model("tiny_mlp")?.at(&Sizes::batch(1)).map_err(text)?, &FINE)?;
    let begin = || Run::new(program.clone(), inputs(device, &*program, 51)?).map_err(text);
    let refused = |outcome: Result<(), EngineError>, what: &str| match outcome {
        Err(EngineError::Order { .. }) => Ok(()),
        other => Err(format!("{what}: {other:?}")),
    };
    refused(begin()?.finish().map(drop), "finishing before the end")?;
    refused(begin()?.resume(), "resuming what is not parked")?;
    let mut parked = begin()?;
    parked.park().map_err(text)?;
    refused(parked.launch(&mut *queue), "launching while parked")?;
    refused(parked.park(), "parking twice")?;
    let mut over = begin()?;
    to_end(&mut over, &mut *queue)?;
    refused(over.launch(&mut *queue), "launching past the end")
}

fn buffers_bounded(device: &dyn Device) -> Result<(), String> {
    let spec = TensorSpec { name: "x".into(), dtype: DType::F32, shape: vec![2, 3] };
    let mut buffer = device.buffer(&spec).map_err(text)?;
    let mut zeros = [1u8; 24];
    buffer.read(0, &mut zeros).map_err(text)?;
    if zeros != [0; 24] {
        return Err("a fresh buffer is not zero".into());
    }
    buffer.write(20, &[1, 2, 3, 4]).map_err(text)?;
    let mut last = [0; 4];
    buffer.read(20, &mut last).map_err(text)?;
    if last != [1, 2, 3, 4] {
        return Err("what was written was not read back".into());
    }
    let outside =
        [buffer.write(21, &[0; 4]), buffer.write(usize::MAX, &[0; 4]), buffer.read(25, &mut [0; 1])];
    if outside.iter().any(Result::is_ok) {
        return Err("a buffer let itself be passed".into());
    }
    Ok(())
}

fn unknown_partition_refused(device: &dyn Device) -> Result<(), String> {
    match device.open(PartitionId(u16::MAX)).map(|queue| queue.partition()) {
        Err(EngineError::NoPartition { .. }) => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

fn polling_ends(device: &dyn Device) -> Result<(), String> {
    let mut queue = open(device)?;
    let program = prepare(device, &model("tiny_cnn")?.at(&Sizes::batch(1)).map_err(text)?, &WHOLE)?;
    let mut state = program.begin(inputs(device, &*program, 61)?).map_err(text)?;
    let ticket = queue.launch(&*program, 0, &mut *state).map_err(text)?;
    // A poll takes far more than a nanosecond, so this bounds the wait by seconds.
    for _ in 0..1_000_000_000u64 {
        if let Poll::Over(span) = queue.poll(ticket).map_err(text)? {
            return if span.ns() > 0 { Ok(()) } else { Err("a segment took no time".into()) };
        }
    }
    Err("the launch never ended".into())
}
