//! A GPU as an engine device.

use crate::arena::Arena;
use crate::buffer::HostPool;
use crate::driver::{self, Atoms, Chunks, DriverError, Event, Gpu, GreenContext, Library, Pinned, Stream};
use crate::enclosure::{Enclosure, EnclosureError};
use crate::gate::Gate;
use crate::lower::{self, Lowered, Precision};
use crate::nvrtc::Cache;
use crate::parts::{self, PartOptions, PartWanted};
use crate::program::{Audited, CudaProgram};
use crate::queue::CudaQueue;
use crate::staging::{Copiers, Staging};
use crate::tune::{TuneError, Tuner};
use crate::weights::{Packed, ResidencyError, Weights};
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use engine::{
    Buffer, Capabilities, Device, DeviceInfo, EngineError, PartitionInfo, Program, Queue, Staged, TensorSpec,
};
use graph::{DType, Graph, HostTensor, Segment};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;
use vocab::{Bytes, PartitionId, Span};

/// How a device is opened. Everything is reserved then; nothing is asked of the driver later.
#[derive(Clone, Debug)]
pub struct CudaOptions {
    /// The precision models compute in.
    pub precision: Precision,
    /// With [`Precision::Fp16`], what files call FP32 outputs leave as FP16, as they were computed: half the bytes for the link
    /// to the host and for who receives them.
    pub half_outputs: bool,
    /// Device memory for weights.
    pub weights: Bytes,
    /// Runs that may be alive at once: running, parked or prepared.
    pub slots: usize,
    /// Device memory for the activations of one run.
    pub slot: Bytes,
    /// Memory on the device, and as much pinned on the host, for inputs of requests that wait for their runs; inputs that
    /// find no room are copied when their runs begin.
    pub staging: Bytes,
    /// Folder for compiled kernels and measured choices; nothing is kept without one.
    pub cache: Option<PathBuf>,
    /// Parts of the device that are made beside the whole; none unless asked for.
    pub parts: Option<PartOptions>,
    /// What of a GPU this process was confined to when it began.
    pub enclosure: Enclosure,
}

impl Default for CudaOptions {
    fn default() -> Self {
        Self {
            precision: Precision::Tf32,
            half_outputs: false,
            weights: Bytes(8 << 30),
            slots: 8,
            slot: Bytes(1 << 30),
            staging: Bytes(512 << 20),
            cache: std::env::var_os("XDG_CACHE_HOME")
                .map(PathBuf::from)
                .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))
                .map(|folder| folder.join("raddle").join("cuda")),
            parts: None,
            enclosure: Enclosure::default(),
        }
    }
}

/// Why a GPU cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CudaError {
    /// No driver.
    #[error("no CUDA driver was found; install NVIDIA's, or serve on the CPU")]
    NoDriver,
    /// No such device.
    #[error("there is no CUDA device {ordinal}; there are {available}")]
    NoDevice {
        /// What was asked for.
        ordinal: usize,
        /// How many there are.
        available: usize,
    },
    /// Not enough memory for what is to be reserved.
    #[error("device {ordinal} has {free} free of {total}, {wanted} were to be reserved; ask for less")]
    Memory {
        /// The device.
        ordinal: usize,
        /// To be reserved.
        wanted: Bytes,
        /// Free.
        free: Bytes,
        /// In all.
        total: Bytes,
    },
    /// Parts that the device does not have.
    #[error("device {ordinal}: {why}")]
    Parts {
        /// The device.
        ordinal: usize,
        /// Which, and what there is.
        why: String,
    },
    /// Parts that do not go with what the process has of the GPU.
    #[error(transparent)]
    Enclosure(#[from] EnclosureError),
    /// The driver or a library failed.
    #[error("device {ordinal}: {why}")]
    Failed {
        /// The device.
        ordinal: usize,
        /// What failed.
        why: String,
    },
}

/// What programs and queues of one device share.
pub(crate) struct Shared {
    pub(crate) gpu: Gpu,
    pub(crate) architecture: String,
    pub(crate) arena: Arc<Arena>,
    pub(crate) chunks: Chunks,
    pub(crate) host: Arc<HostPool>,
    pub(crate) cache: Cache,
    pub(crate) tuner: Tuner,
    /// Room for inputs of requests that wait.
    staging: Arc<Staging>,
    /// Copy inputs to where runs want them.
    pub(crate) copiers: Copiers,
    /// Weights travel on it.
    pub(crate) copies: Stream,
    tuning: Stream,
    tuning_lock: Mutex<()>,
    models: Mutex<Vec<(String, Weak<Weights>)>>,
    precision: Precision,
    pub(crate) half_outputs: bool,
}

/// A GPU.
pub struct CudaDevice {
    shared: Arc<Shared>,
    info: DeviceInfo,
    partitions: Vec<PartitionInfo>,
    /// By partition: the part of the device, none for the whole.
    contexts: Vec<Option<Arc<GreenContext>>>,
    overlap: u32,
}

/// First unit and units of a partition, and the context it is when it is not the whole device.
type Stretch = ((u32, u32), Option<Arc<GreenContext>>);

/// How many CUDA devices this machine has; zero without a driver.
#[must_use]
pub fn devices() -> usize {
    driver::count()
}

/// Segments in flight: one that runs, and one that is ready when it ends.
pub const AHEAD: usize = 2;
/// Device time of a segment: with two in flight, an edge is never further than twice this.
const SEGMENT_TARGET: Span = Span::from_us(250);
/// Bytes of one physical chunk of weights.
const CHUNK: usize = 16 << 20;

impl CudaDevice {
    /// Opens device `ordinal` and reserves its memory.
    ///
    /// # Errors
    /// When there is no driver, no such device, or too little memory.
    pub fn open(ordinal: usize, options: &CudaOptions) -> Result<Self, CudaError> {
        options.enclosure.check(options.parts.as_ref())?;
        let failed = |error: DriverError| CudaError::Failed { ordinal, why: error.to_string() };
        let gpu = found(ordinal)?;
        let (free, total) = gpu.memory().map_err(failed)?;
        let wanted = Bytes(options.weights.0 + options.staging.0 + options.slot.0 * options.slots as u64);
        if wanted.0 > free {
            return Err(CudaError::Memory { ordinal, wanted, free: Bytes(free), total: Bytes(total) });
        }
        let units = gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).map_err(failed)?;
        let units = u32::try_from(units).unwrap_or(0);
        let (parts, overlap) = Self::parts(&gpu, ordinal, options.parts.as_ref(), units)?;
        let architecture = gpu.architecture().map_err(failed)?;
        let cache = Cache::at(options.cache.as_deref());
        let tuner = Tuner::new(&gpu, options.cache.as_deref(), (&cache, &architecture));
        let tuner =
            tuner.map_err(|error: TuneError| CudaError::Failed { ordinal, why: error.to_string() })?;
        let stage = cache.get(include_str!("kernels/stage.cu"), &architecture);
        let stage = stage.map_err(|error| CudaError::Failed { ordinal, why: error.to_string() })?;
        let bytes = |bytes: Bytes| usize::try_from(bytes.0).unwrap_or(usize::MAX);
        let mut shared = Shared {
            staging: Staging::new(&gpu, bytes(options.staging)).map_err(failed)?,
            copiers: Library::load(&gpu, &stage)
                .and_then(|library| {
                    Ok(Copiers { one: library.function("stage")?, rows: library.function("stage_rows")? })
                })
                .map_err(failed)?,
            architecture,
            arena: Arena::new(&gpu, options.slots.max(1), bytes(options.slot), parts.len())
                .map_err(failed)?,
            chunks: Chunks::new(&gpu, bytes(options.weights), CHUNK).map_err(failed)?,
            host: HostPool::new(&gpu),
            cache,
            tuner,
            copies: Stream::new(&gpu, 0).map_err(failed)?,
            tuning: Stream::new(&gpu, 0).map_err(failed)?,
            tuning_lock: Mutex::new(()),
            models: Mutex::default(),
            precision: options.precision,
            half_outputs: options.half_outputs,
            gpu,
        };
        let kind = shared.gpu.name().map_err(failed)?;
        let surroundings = options.enclosure.surroundings();
        let info = DeviceInfo { kind, memory: wanted, capabilities: Capabilities::COMPUTE, surroundings };
        let (mut partitions, mut contexts) = (Vec::new(), Vec::new());
        for ((first, units), context) in parts {
            let id = PartitionId(u16::try_from(partitions.len()).unwrap_or(u16::MAX));
            let range = if context.is_some() { format!(" from {first} on") } else { String::new() };
            let name = format!("{} {units} SMs{range}", options.enclosure.name(ordinal));
            partitions.push(PartitionInfo { id, name, first, units });
            contexts.push(context);
        }
        let least = partitions.iter().map(|part| part.units).min().unwrap_or(0);
        let smallest = partitions.iter().zip(&contexts).filter(|(part, _)| part.units == least);
        let streams = smallest.filter_map(|(_, context)| context.as_ref().map(Stream::on));
        let fine = options.parts.as_ref().is_some_and(|parts| parts.fine);
        let kind = if fine { "fine parts" } else { "parts" };
        shared.tuner.confine(streams.collect::<Result<_, _>>().map_err(failed)?, kind);
        Ok(Self { shared: Arc::new(shared), info, partitions, contexts, overlap })
    }

    /// The parts that are wanted, each with its first unit and units: a context a part, an entry a stream.
    fn parts(
        gpu: &Gpu,
        ordinal: usize,
        wanted: Option<&PartOptions>,
        units: u32,
    ) -> Result<(Vec<Stretch>, u32), CudaError> {
        let Some(wanted) = wanted else { return Ok((vec![((0, units), None)], 1)) };
        let failed = |error: DriverError| CudaError::Parts {
            ordinal,
            why: format!("its driver makes no parts ({error}); serve with the whole device"),
        };
        let atoms = Atoms::split(gpu, wanted.fine).map_err(failed)?;
        let groups = u32::try_from(atoms.len()).unwrap_or(u32::MAX);
        let layout = parts::layout(wanted, (groups, atoms.size, atoms.total));
        let layout = layout.map_err(|why| CudaError::Parts { ordinal, why })?;
        let mut made = Vec::new();
        for part in layout {
            let context = if part.units == atoms.total {
                None
            } else {
                let at = |units: u32| (units / atoms.size) as usize;
                Some(atoms.context(at(part.first), at(part.units)).map_err(failed)?)
            };
            made.extend((0..part.streams).map(|_| ((part.first, part.units), context.clone())));
        }
        Ok((made, wanted.overlap.max(1)))
    }

    /// The multiprocessors that blocks on a partition really run on, ascending: asked of the device by a kernel.
    ///
    /// # Errors
    /// When there is no such partition, or the device fails.
    pub fn multiprocessors(&self, partition: PartitionId) -> Result<Vec<u32>, EngineError> {
        const BLOCKS: u32 = 2_048;
        let part = self.part(partition)?;
        let shared = &self.shared;
        let compiled = shared.cache.get(include_str!("kernels/smid.cu"), &shared.architecture);
        let refused = |why: String| EngineError::Execute { segment: "smid".into(), why };
        let compiled = compiled.map_err(|error| refused(error.to_string()))?;
        let ask = || {
            let kernel = Library::load(&shared.gpu, &compiled)?.function("smid")?;
            let stream = part.map_or_else(|| Stream::new(&shared.gpu, 0), Stream::on)?;
            let out = Pinned::new(&shared.gpu, BLOCKS as usize * 4)?;
            stream.launch(&kernel, [BLOCKS, 1, 1], 256, &[out.address() as u64])?;
            let end = Event::ordering(&shared.gpu)?;
            end.record(&stream)?;
            end.synchronize()?;
            Ok(out.bytes().as_chunks::<4>().0.iter().map(|id| u32::from_le_bytes(*id)).collect())
        };
        let mut ids: Vec<u32> = ask().map_err(|error: DriverError| refused(error.to_string()))?;
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// How long it takes to make a part of the device anew and to be ready to run a program there: context, stream and
    /// captured graphs. What who changes the sizes of parts while serving has to wait for.
    ///
    /// # Errors
    /// When there is no such part, the program is of another backend, or the device fails.
    pub fn remake(&self, program: &dyn Program, part: PartWanted) -> Result<Span, EngineError> {
        let program = own(program)?;
        let failed = |error: DriverError| program.failed(0, &error);
        let begin = Instant::now();
        let atoms = Atoms::split(&self.shared.gpu, false).map_err(failed)?;
        let groups = u32::try_from(atoms.len()).unwrap_or(u32::MAX);
        let only = PartOptions { parts: vec![part], only: true, ..PartOptions::default() };
        parts::layout(&only, (groups, atoms.size, atoms.total)).map_err(|why| program.failed(0, &why))?;
        let at = |units: u32| (units / atoms.size.max(1)) as usize;
        let context = atoms.context(at(part.first), at(part.units)).map_err(failed)?;
        let stream = Stream::on(&context).map_err(failed)?;
        program.graphs(0, &stream)?;
        let span = Span::from(begin.elapsed());
        // Graphs are known by the part's address, which another part may get.
        program.forget();
        Ok(span)
    }

    fn part(&self, partition: PartitionId) -> Result<Option<&Arc<GreenContext>>, EngineError> {
        let part = self.contexts.get(usize::from(partition.0)).map(Option::as_ref);
        part.ok_or_else(|| EngineError::NoPartition {
            device: self.info.kind.clone(),
            partition,
            available: self.partitions.len(),
        })
    }

    /// Bytes the driver says are free on the whole device.
    ///
    /// # Errors
    /// When the driver fails.
    pub fn driver_free(&self) -> Result<Bytes, EngineError> {
        self.shared.gpu.memory().map(|(free, _)| Bytes(free)).map_err(|error| broken(&error))
    }

    /// Opens a queue whose every launch waits on the device for a gate, so that everything may be enqueued ahead and still
    /// be held at the next edge.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub fn open_gated(&self, partition: PartitionId) -> Result<(Box<dyn Queue>, Arc<Gate>), EngineError> {
        let unavailable = |error: DriverError| EngineError::Unavailable { partition, why: error.to_string() };
        let gate = Arc::new(Gate::new(&self.shared.gpu).map_err(unavailable)?);
        let part = self.part(partition)?;
        let queue = CudaQueue::open(&self.shared, partition, part).map_err(unavailable)?.behind(gate.clone());
        Ok((Box::new(queue), gate))
    }

    /// Waits until the device has nothing left to do.
    ///
    /// # Errors
    /// When something that ran on it failed.
    pub fn synchronize(&self) -> Result<(), EngineError> {
        self.shared.gpu.synchronize().map_err(|error| broken(&error))
    }
}

fn broken(error: &DriverError) -> EngineError {
    EngineError::Execute { segment: "device".into(), why: error.to_string() }
}

/// A program of this backend, for what the traits do not offer.
fn own(program: &dyn Program) -> Result<&CudaProgram, EngineError> {
    let foreign =
        || crate::buffer::mismatch("program", "one prepared by this device", "one of another backend");
    program.as_any().downcast_ref::<CudaProgram>().ok_or_else(foreign)
}

/// Where the time of a program goes: each step's kind and device time alone.
///
/// # Errors
/// When it is not a program of this backend, or a step fails.
pub fn step_times(program: &dyn Program) -> Result<Vec<(String, Span)>, EngineError> {
    let program = own(program)?;
    program.step_times(&program.shared.tuning_stream())
}

/// Every convolution of a program compared with its operands in its place; all weights must be there, and nothing else run.
///
/// # Errors
/// When it is not a program of this backend, or the device fails.
pub fn audit(program: &dyn Program) -> Result<Vec<Audited>, EngineError> {
    let program = own(program)?;
    program.audit(&program.shared.tuning_stream())
}

/// How the steps of a program are computed, each way with its number of steps.
///
/// # Errors
/// When it is not a program of this backend.
pub fn ways(program: &dyn Program) -> Result<Vec<(&'static str, usize)>, EngineError> {
    Ok(own(program)?.ways())
}

/// Device time of copying all weights of a program, which are resident, once more at the speed of the link.
///
/// # Errors
/// When it is not a program of this backend, its weights are away, or the device fails.
pub fn transfer_time(program: &dyn Program) -> Result<Span, EngineError> {
    let program = own(program)?;
    let weights = &program.weights;
    if weights.loaded() < weights.bytes {
        return Err(program.failed(0, &"its weights are away"));
    }
    let shared = &program.shared;
    let time = || {
        let (begin, end) = (Event::timing(&shared.gpu)?, Event::timing(&shared.gpu)?);
        begin.record(&shared.copies)?;
        shared.copies.upload(weights.base(), weights.host().as_ptr(), weights.bytes)?;
        end.record(&shared.copies)?;
        end.synchronize()?;
        end.since(&begin)
    };
    time().map_err(|error: DriverError| program.failed(0, &error))
}

/// What a transfer costs beside its bytes: small ones, one behind the other.
///
/// # Errors
/// When it is not a program of this backend, its weights are away, or the device fails.
pub fn transfer_latency(program: &dyn Program) -> Result<Span, EngineError> {
    const TRANSFERS: u64 = 64;
    let program = own(program)?;
    let (weights, shared) = (&program.weights, &program.shared);
    if weights.loaded() < weights.bytes {
        return Err(program.failed(0, &"its weights are away"));
    }
    let time = || {
        let (begin, end) = (Event::timing(&shared.gpu)?, Event::timing(&shared.gpu)?);
        let between = Event::ordering(&shared.gpu)?;
        begin.record(&shared.copies)?;
        for _ in 0..TRANSFERS {
            shared.copies.upload(weights.base(), weights.host().as_ptr(), weights.bytes.min(512))?;
            between.record(&shared.copies)?;
        }
        end.record(&shared.copies)?;
        end.synchronize()?;
        Ok(Span::from_ns(end.since(&begin)?.ns() / TRANSFERS))
    };
    time().map_err(|error: DriverError| program.failed(0, &error))
}

/// Begins to load a program's weights from ordinary memory instead of the pinned copy: what that copy is worth.
///
/// # Errors
/// When it is not a program of this backend, or memory does not suffice.
pub fn load_pageable(program: &dyn Program, bytes: &[u8]) -> Result<(), EngineError> {
    let program = own(program)?;
    let loaded = program.weights.load_from(bytes, &[], &program.shared.copies);
    loaded.map_err(|error| program.failed(0, &error))
}

/// A copy of a program's packed weights in ordinary memory.
///
/// # Errors
/// When it is not a program of this backend.
pub fn packed_weights(program: &dyn Program) -> Result<Vec<u8>, EngineError> {
    Ok(own(program)?.weights.host().to_vec())
}

/// Forgets a program's captured graphs: what a device without reserved addresses would have to, whenever weights move.
///
/// # Errors
/// When it is not a program of this backend.
pub fn forget_graphs(program: &dyn Program) -> Result<(), EngineError> {
    own(program)?.forget();
    Ok(())
}

/// The tuning stream, held by one at a time.
pub(crate) struct Tuning<'s> {
    stream: &'s Stream,
    _held: std::sync::MutexGuard<'s, ()>,
}

impl std::ops::Deref for Tuning<'_> {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        self.stream
    }
}

impl Shared {
    /// The type in which an output leaves that the file calls `dtype`.
    pub(crate) const fn delivers(&self, dtype: DType) -> DType {
        self.precision.delivers(dtype, self.half_outputs)
    }

    pub(crate) fn tuning_stream(&self) -> Tuning<'_> {
        let held = self.tuning_lock.lock().unwrap_or_else(PoisonError::into_inner);
        Tuning { stream: &self.tuning, _held: held }
    }

    /// The weights of a lowered graph: those of an earlier program of the model where they are the same, else pinned now.
    pub(crate) fn weights(&self, graph: &Graph, lowered: &Lowered) -> Result<Arc<Weights>, ResidencyError> {
        let packed = Packed::of(graph, lowered);
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        models.retain(|(_, weights)| weights.strong_count() > 0);
        let known = models
            .iter()
            .filter(|(name, _)| *name == graph.name)
            .filter_map(|(_, weights)| weights.upgrade());
        let weights = match known.into_iter().find(|weights| weights.same(&packed)) {
            Some(weights) => weights,
            None => {
                let weights = Arc::new(Weights::new(&self.gpu, &self.chunks, packed)?);
                models.push((graph.name.clone(), Arc::downgrade(&weights)));
                weights
            }
        };
        Ok(weights)
    }
}

impl Device for CudaDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn partitions(&self) -> &[PartitionInfo] {
        &self.partitions
    }

    fn overlap(&self) -> u32 {
        self.overlap
    }

    fn buffer(&self, spec: &TensorSpec) -> Result<Box<dyn Buffer>, EngineError> {
        let buffer = self.shared.host.take(spec, true).map_err(|error| broken(&error))?;
        Ok(Box::new(buffer))
    }

    fn stage(&self, rows: &HostTensor) -> Option<Arc<dyn Staged>> {
        let staged = self.shared.staging.stage(rows.data(), &self.shared.copies);
        // A device that fails says so when the run begins.
        staged.ok().flatten().map(|staged| Arc::new(staged) as Arc<dyn Staged>)
    }

    fn delivers(&self, dtype: DType) -> DType {
        self.shared.delivers(dtype)
    }

    fn prepare(&self, graph: &Graph, segments: &[Segment]) -> Result<Arc<dyn Program>, EngineError> {
        let names = lower::unsupported(graph);
        if !names.is_empty() {
            return Err(EngineError::Unsupported { device: self.info.kind.clone(), names });
        }
        self.shared.gpu.bind().map_err(|error| broken(&error))?;
        self.shared.tuner.learn();
        let refused = |why: String| {
            let segment = segments.first().map_or_else(String::new, |segment| segment.name.clone());
            EngineError::Prepare { model: graph.name.clone(), segment, why }
        };
        let shared = &self.shared;
        let lowered =
            lower::lower(graph, segments, shared.precision, shared.half_outputs).map_err(refused)?;
        Ok(Arc::new(CudaProgram::new(&self.shared, graph, segments, &lowered)?))
    }

    fn ahead(&self) -> usize {
        AHEAD
    }

    fn segment_target(&self) -> Option<Span> {
        Some(SEGMENT_TARGET)
    }

    fn weight_memory(&self) -> Option<(Bytes, Bytes)> {
        let (free, total) = self.shared.chunks.memory();
        Some((Bytes(free as u64), Bytes(total as u64)))
    }

    fn open(&self, partition: PartitionId) -> Result<Box<dyn Queue>, EngineError> {
        let part = self.part(partition)?;
        let unavailable = |error: DriverError| EngineError::Unavailable { partition, why: error.to_string() };
        Ok(Box::new(CudaQueue::open(&self.shared, partition, part).map_err(unavailable)?))
    }
}

/// Lets these devices read each other's weights where the hardware allows it, so that a model that one has comes to another
/// without the host. To be called before anything is loaded. Pairs that can, as places in `devices`: reader and read.
///
/// # Errors
/// When a driver fails.
pub fn introduce(devices: &[&CudaDevice]) -> Result<Vec<(usize, usize)>, EngineError> {
    let mut pairs = Vec::new();
    for (reader, by) in devices.iter().enumerate() {
        for (read, of) in devices.iter().enumerate() {
            let (by, of) = (&by.shared, &of.shared);
            if reader != read && by.gpu.reaches(&of.gpu).map_err(|error| broken(&error))? {
                of.chunks.open_to(&by.gpu);
                pairs.push((reader, read));
            }
        }
    }
    Ok(pairs)
}

/// What parts of a device are made of: so many groups of so many multiprocessors each, `fine` as [`PartOptions::fine`] has
/// it. Devices of one kind may differ.
///
/// # Errors
/// When there is no such device, or its driver makes no parts.
pub fn grain(ordinal: usize, fine: bool) -> Result<(u32, u32), CudaError> {
    let failed = |error: DriverError| CudaError::Failed { ordinal, why: error.to_string() };
    let atoms = Atoms::split(&found(ordinal)?, fine).map_err(failed)?;
    Ok((u32::try_from(atoms.len()).unwrap_or(u32::MAX), atoms.size))
}

/// Device `ordinal`, opened.
pub(crate) fn found(ordinal: usize) -> Result<Gpu, CudaError> {
    if !driver::present() {
        return Err(CudaError::NoDriver);
    }
    let available = driver::count();
    if ordinal >= available {
        return Err(CudaError::NoDevice { ordinal, available });
    }
    Gpu::open(ordinal).map_err(|error| CudaError::Failed { ordinal, why: error.to_string() })
}
