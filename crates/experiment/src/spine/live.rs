//! A live runtime on one core with zoo networks, and clients that ask it from the other cores.

use anyhow::{Context as _, bail};
use engine::CpuDevice;
use graph::zoo::{self, ZooOptions};
use graph::{DType, Dim, HostTensor, ImportLimits, SegmentOptions};
use sched::journal::{Reader, Record};
use sched::node::policy::Choice;
use sched::node::{Decision, Event, ModelSpec};
use server::live::{
    Calibration, Handle, Limits, ModelInfo, ModelState, Observer, Outcome, Readiness, Runtime,
    RuntimeOptions, Submission,
};
use server::metrics::Metrics;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vocab::{Class, Span};

/// A running runtime with a journal.
pub(super) struct Live {
    runtime: Runtime,
    journal: PathBuf,
}

impl Live {
    /// Serves `networks` on `core` under `choice` and waits until all are ready.
    pub(super) fn start(
        networks: &[&str],
        core: usize,
        batch_max: u32,
        choice: &Choice,
    ) -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("raddle-spine-{}", std::process::id()));
        for name in networks {
            let version = folder.join(name).join("1");
            if !version.join("model.onnx").exists() {
                std::fs::create_dir_all(&version)?;
                zoo::write(name, &version.join("model.onnx"), &ZooOptions::default())?;
            }
        }
        let journal = folder.join("journal.jsonl");
        let mut repository = server::repository::scan(&folder)?;
        repository.entries.retain(|entry| networks.contains(&entry.name.as_str()));
        let options = RuntimeOptions {
            devices: vec![Arc::new(CpuDevice::with_cores(vec![vec![core]])?)],
            policy: choice.clone(),
            observers: vec![Observer::journal(&journal, choice)?],
            limits: Limits::default(),
            import: ImportLimits::default(),
            batch_default: batch_max,
            segments: SegmentOptions::default(),
            calibration: Calibration { repeats: 7, patience: Span::from_ms(20_000) },
            staging: vocab::Bytes(0),
            rules: Vec::new(),
            shelf: None,
        };
        let runtime = Runtime::start(options, repository.entries, Arc::new(Metrics::new()))?;
        while runtime.handle().readiness() != Readiness::Ready {
            std::thread::sleep(Duration::from_millis(20));
        }
        for model in runtime.handle().models() {
            if let ModelState::Unavailable(why) = &model.state {
                bail!("{} is not served: {why}", model.name);
            }
        }
        Ok(Self { runtime, journal })
    }

    pub(super) fn handle(&self) -> Handle {
        self.runtime.handle()
    }

    /// Stops the runtime and gives the turns it took.
    pub(super) fn stop(self) -> anyhow::Result<Vec<Record<Event, Decision>>> {
        self.runtime.stop();
        read(&self.journal)
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<Record<Event, Decision>>> {
    let (mut reader, _) = Reader::new::<Choice>(BufReader::new(File::open(path)?))?;
    let mut records = Vec::new();
    while let Some(record) = reader.next_turn()? {
        records.push(record);
    }
    Ok(records)
}

/// The models that a journal adds.
pub(crate) fn specs(records: &[Record<Event, Decision>]) -> Vec<ModelSpec> {
    let spec = |event: &Event| match event {
        Event::ModelAdded { spec } => Some(spec.clone()),
        _ => None,
    };
    records.iter().flat_map(|record| &record.events).filter_map(spec).collect()
}

/// A request of `rows` rows of a fixed pattern.
pub(super) fn submission(handle: &Handle, name: &str, rows: u32, class: u32) -> anyhow::Result<Submission> {
    let model = handle.model(name, None).with_context(|| format!("{name} is not served"))?;
    let inputs = inputs(&model, rows)?;
    Ok(Submission { model, inputs, rows, class: Class::new(class), timeout: None })
}

/// Inputs of `rows` rows of a fixed pattern.
pub(crate) fn inputs(model: &ModelInfo, rows: u32) -> anyhow::Result<Vec<HostTensor>> {
    let one = |port: &graph::Port| {
        let size = |dim: &Dim| match dim {
            Dim::Batch => rows as usize,
            Dim::Fixed(size) => *size,
            Dim::Free(_) => 1,
        };
        let shape: Vec<usize> = port.shape.iter().map(size).collect();
        let elements: usize = shape.iter().product();
        match port.dtype {
            DType::F32 => {
                let values: Vec<f32> =
                    (0u16..251).map(|at| f32::from(at) / 125.0 - 1.0).cycle().take(elements).collect();
                Ok(HostTensor::from_f32(shape, &values)?)
            }
            DType::I64 => Ok(HostTensor::from_i64(shape, &vec![1; elements])?),
            other => bail!("no pattern for inputs of type {other}"),
        }
    };
    model.inputs.iter().map(one).collect()
}

/// Asks once and waits; the time until the answer.
pub(super) fn ask(
    tokio: &tokio::runtime::Runtime,
    handle: &Handle,
    submission: Submission,
) -> anyhow::Result<Span> {
    let begin = Instant::now();
    let ticket = handle.submit(submission)?;
    match tokio.block_on(ticket.outcome()) {
        Outcome::Done(_) => Ok(Span::from(begin.elapsed())),
        other => bail!("the request was not answered: {other:?}"),
    }
}

/// A runtime to wait on tickets with, on the calling thread.
pub(super) fn waiter() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_time().build()?)
}
