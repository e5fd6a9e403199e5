//! A model at one set of free sizes: its programs by batch bucket, and how requests become runs of them.

use engine::{Buffer, Device, EngineError, Program, Residency, Run, Staged, TensorSpec};
use graph::{Dim, HostTensor, Port};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use vocab::ModelId;

/// A size for each free dimension.
pub(super) type Binding = BTreeMap<String, usize>;

/// A model at one set of free sizes.
pub(super) struct Variant {
    /// Its number in the world.
    pub(super) id: ModelId,
    /// By device.
    sites: Arc<Vec<Site>>,
    /// Whether rows of several requests may share a run.
    pub(super) batched: bool,
    /// The device on which a run of it began last: its next one may well do so too.
    latest: AtomicUsize,
}

/// A model on one device.
pub(super) struct Site {
    /// Programs by rows, ascending.
    pub(super) programs: Vec<(u32, Arc<dyn Program>)>,
    /// Weights that come and go; empty where they always lie beside the programs.
    pub(super) weights: Vec<Arc<dyn Residency>>,
}

/// Longest wait for a load that was ordered to begin.
const LOAD_WAIT: Duration = Duration::from_secs(5);

/// The weights of these programs, each once.
pub(super) fn weights(programs: &[(u32, Arc<dyn Program>)]) -> Vec<Arc<dyn Residency>> {
    let mut found: Vec<Arc<dyn Residency>> = Vec::new();
    for weights in programs.iter().filter_map(|(_, program)| program.weights()) {
        if !found.iter().any(|known| known.identity() == weights.identity()) {
            found.push(weights);
        }
    }
    found
}

/// Batch buckets up to `batch_max`: powers of two, and `batch_max` itself.
#[must_use]
pub fn buckets(batch_max: u32) -> Vec<u32> {
    let mut sizes: Vec<u32> = std::iter::successors(Some(1u32), |size| size.checked_mul(2))
        .take_while(|size| *size < batch_max)
        .collect();
    sizes.push(batch_max.max(1));
    sizes
}

/// The free sizes that tensors of these shapes imply.
///
/// # Errors
/// A sentence when two tensors disagree about one dimension.
pub(super) fn binding(ports: &[Port], tensors: &[HostTensor]) -> Result<Binding, String> {
    let mut sizes = Binding::new();
    for (port, tensor) in ports.iter().zip(tensors) {
        for (dim, size) in port.shape.iter().zip(tensor.shape()) {
            let Dim::Free(name) = dim else { continue };
            match sizes.insert(name.clone(), *size) {
                Some(other) if other != *size => {
                    return Err(format!(
                        "dimension {name} is {other} in one input and {size} in {:?}",
                        port.name
                    ));
                }
                _ => {}
            }
        }
    }
    Ok(sizes)
}

impl Variant {
    pub(super) const fn new(id: ModelId, sites: Arc<Vec<Site>>, batched: bool) -> Self {
        Self { id, sites, batched, latest: AtomicUsize::new(0) }
    }

    /// Where its next run is likely to begin.
    pub(super) fn likely(&self) -> usize {
        self.latest.load(Ordering::Relaxed)
    }

    /// Waits until the load that the scheduler ordered has begun, so that a run never begins it out of turn.
    pub(super) fn await_load(&self, device: usize) -> Result<(), EngineError> {
        self.latest.store(device, Ordering::Relaxed);
        let begin = Instant::now();
        while self.sites[device].weights.iter().any(|weights| weights.loaded() < weights.bytes()) {
            if begin.elapsed() > LOAD_WAIT {
                let why = format!("its load did not begin within {} s", LOAD_WAIT.as_secs());
                return Err(EngineError::Residency { model: self.id.to_string(), why });
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        Ok(())
    }

    /// The program that serves `rows` on a device.
    pub(super) fn program(&self, device: usize, rows: u32) -> &Arc<dyn Program> {
        let programs = &self.sites[device].programs;
        let at = programs.partition_point(|(size, _)| *size < rows).min(programs.len() - 1);
        &programs[at].1
    }
}

/// A request's rows of one input, as they wait for their run.
pub(super) enum Rows {
    /// In memory of the host; copied when the run begins.
    Host(HostTensor),
    /// Where the run fetches them from by itself.
    Staged(Arc<dyn Staged>),
}

impl Rows {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Host(tensor) => tensor.data(),
            Self::Staged(staged) => staged.bytes(),
        }
    }
}

/// A request's inputs, staged as far as the device has room for it.
pub(super) fn stage(device: &dyn Device, inputs: Vec<HostTensor>) -> Vec<Rows> {
    let one = |tensor: HostTensor| device.stage(&tensor).map_or(Rows::Host(tensor), Rows::Staged);
    inputs.into_iter().map(one).collect()
}

/// A run of `program` on the rows of each request in turn; rows left over are zero.
pub(super) fn begin(
    device: &dyn Device,
    program: Arc<dyn Program>,
    requests: &[Arc<Vec<Rows>>],
) -> Result<Run, EngineError> {
    let staged = |place: usize| {
        let one = |request: &Arc<Vec<Rows>>| match &request[place] {
            Rows::Staged(staged) => Some(staged.clone()),
            Rows::Host(tensor) => device.stage(tensor),
        };
        requests.iter().map(one).collect::<Option<Vec<_>>>()
    };
    let all: Option<Vec<_>> = (0..program.inputs().len()).map(staged).collect();
    match all {
        Some(rows) if !rows.is_empty() => Run::staged(program, rows),
        _ => {
            let inputs = gather(device, &*program, requests)?;
            Run::new(program, inputs)
        }
    }
}

/// Input buffers of `program`, filled with the rows of each request in turn; rows left over stay zero.
fn gather(
    device: &dyn Device,
    program: &dyn Program,
    requests: &[Arc<Vec<Rows>>],
) -> Result<Vec<Box<dyn Buffer>>, EngineError> {
    let one = |(place, spec): (usize, &TensorSpec)| {
        let mut buffer = device.buffer(spec)?;
        let mut offset = 0;
        for request in requests {
            let bytes = request[place].bytes();
            buffer.write(offset, bytes)?;
            offset += bytes.len();
        }
        Ok(buffer)
    };
    program.inputs().iter().enumerate().map(one).collect()
}

/// Each request's rows of every output, copied to the host.
pub(super) fn scatter(
    outputs: &[Box<dyn Buffer>],
    rows: &[u32],
    batched: bool,
) -> Result<Vec<Vec<HostTensor>>, EngineError> {
    let mut answers: Vec<Vec<HostTensor>> = rows.iter().map(|_| Vec::with_capacity(outputs.len())).collect();
    for buffer in outputs {
        let spec = buffer.spec();
        let row_bytes = spec.shape.first().map_or(0, |rows| spec.len() / rows.max(&1));
        let mut offset = 0;
        for (answer, rows) in answers.iter_mut().zip(rows) {
            let mut shape = spec.shape.clone();
            let mut length = spec.len();
            if batched {
                shape[0] = *rows as usize;
                length = row_bytes * shape[0];
            }
            let mut bytes = vec![0; length];
            buffer.read(offset, &mut bytes)?;
            offset += if batched { length } else { 0 };
            let tensor =
                HostTensor::new(spec.dtype, shape, bytes).map_err(|error| EngineError::Mismatch {
                    what: format!("output {}", spec.name),
                    expected: "as many bytes as its shape says".into(),
                    found: error.to_string(),
                })?;
            answer.push(tensor);
        }
    }
    Ok(answers)
}
