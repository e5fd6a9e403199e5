//! A program on the device: its steps resolved to addresses, captured once per slot of the arena, and the state of a run.

mod audit;

pub use audit::Audited;

use crate::arena::{self, Slot};
use crate::blas::{GemmAddresses, GemmPlan};
use crate::buffer::{CudaBuffer, mismatch};
use crate::device::Shared;
use crate::dnn::ConvAddresses;
use crate::driver::{Event, Executable, Function, Library, Stream};
use crate::lower::{Convolution, Gemm, Launch, Lowered, Operand, Place, Step, View, lifetimes};
use crate::staging::{self, CudaStaged};
use crate::tune::{ConvTrial, ConvWay, TuneError};
use crate::weights::Weights;
use engine::{Buffer, EngineError, Program, Residency, SegmentInfo, Staged, State, TensorSpec};
use graph::{Graph, Segment, ValueId};
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use vocab::{Bytes, PartitionId};

pub(crate) struct CudaProgram {
    name: String,
    pub(crate) shared: Arc<Shared>,
    pub(crate) weights: Arc<Weights>,
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
    infos: Vec<SegmentInfo>,
    /// Bytes of weights, from the beginning, that each segment needs.
    needs: Vec<usize>,
    steps: Vec<Vec<Ready>>,
    /// Offsets of the arena buffers in a slot, then of scratch memory.
    offsets: Vec<usize>,
    scratch: usize,
    /// All of a run's memory in a slot.
    run_bytes: usize,
    input_offsets: Vec<usize>,
    output_offsets: Vec<usize>,
    /// Captured graphs by slot and part of the device, one a segment: a graph runs where it was captured.
    graphs: Mutex<HashMap<GraphKey, Arc<Vec<Executable>>>>,
}

/// A slot of the arena and the address of a part of the device; none for the whole.
type GraphKey = (usize, Option<usize>);

/// A step with its way chosen.
enum Ready {
    Kernel { function: Function, launch: Launch },
    Gemm { plan: Arc<GemmPlan>, gemm: Gemm },
    Conv { way: Arc<ConvWay>, conv: Box<Convolution>, epilogue: Function },
}

/// A run's memory on both sides.
pub(crate) struct CudaState {
    /// Its activations; from the first launch on.
    slot: Option<Slot>,
    pub(crate) inputs: Inputs,
    pub(crate) outputs: Vec<CudaBuffer>,
    weights: Arc<Weights>,
    /// The end of the latest launch: memory is not given back before.
    pub(crate) latest: Option<Arc<Event>>,
    /// Segments launched.
    pub(crate) launched: usize,
}

/// Inputs of a run on the host's side.
pub(crate) enum Inputs {
    /// One buffer an input.
    Whole(Vec<CudaBuffer>),
    /// For each input the rows of several requests.
    Staged(Vec<Vec<Arc<CudaStaged>>>),
}

impl Drop for CudaState {
    fn drop(&mut self) {
        if let Some(event) = self.latest.take() {
            // An error here is reported by the next call that uses the device.
            let _ = event.synchronize();
        }
        self.weights.release();
    }
}

impl State for CudaState {
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Bases that turn operands into addresses.
struct Bases<'p> {
    slot: u64,
    offsets: &'p [usize],
    scratch: u64,
    weights: &'p Weights,
    /// Stands for every weight while ways are measured: what is multiplied does not matter, and weights may be away.
    stand_in: Option<u64>,
    /// Whether what stands in is nobody else's.
    own: bool,
}

impl Bases<'_> {
    fn address(&self, operand: Operand) -> u64 {
        match operand {
            Operand::At { place: Place::Buffer(buffer), bytes } => {
                self.slot + (self.offsets[buffer] + bytes) as u64
            }
            Operand::At { place: Place::Weight(weight), bytes } => match self.stand_in {
                Some(base) => base + bytes as u64,
                None => self.weights.base() + (self.weights.offsets[weight] + bytes) as u64,
            },
            Operand::Scratch { bytes } => self.scratch + bytes as u64,
        }
    }

    fn all(&self, operands: &[Operand]) -> Vec<u64> {
        operands.iter().map(|operand| self.address(*operand)).collect()
    }

    fn gemm(&self, gemm: &Gemm) -> GemmAddresses {
        GemmAddresses {
            a: self.address(gemm.a),
            b: self.address(gemm.b),
            out: self.address(gemm.out),
            bias: gemm.bias.map(|operand| self.address(operand)),
            residual: gemm.residual.map(|operand| self.address(operand)),
        }
    }

    fn conv<'t>(&self, conv: &'t Convolution, epilogue: &'t Function, scratch_bytes: usize) -> ConvTrial<'t> {
        ConvTrial {
            at: ConvAddresses {
                x: self.address(conv.x),
                w: self.address(conv.w),
                y: self.address(conv.y),
                bias: conv.bias.map(|operand| self.address(operand)),
                residual: conv.residual.map(|operand| self.address(operand)),
            },
            product: conv.gemm.as_ref().map(|gemm| (&gemm.shape, self.gemm(gemm))),
            epilogue: (epilogue, conv.epilogue.grid, conv.epilogue.block, self.all(&conv.epilogue.arguments)),
            dense_bytes: conv.dense_bytes,
            scratch: self.scratch,
            scratch_bytes,
            own: self.own,
        }
    }
}

/// Scratch memory beside what a bare convolution keeps: for the libraries.
const SCRATCH: usize = 64 << 20;

fn spec(graph: &Graph, id: ValueId) -> TensorSpec {
    let value = graph.value(id);
    TensorSpec { name: value.name.clone(), dtype: value.dtype, shape: value.shape.clone() }
}

impl CudaProgram {
    /// Resolves a lowered graph: compiles its kernels, plans its memory, chooses the way of each step.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        graph: &Graph,
        segments: &[Segment],
        lowered: &Lowered,
    ) -> Result<Self, EngineError> {
        let refused = |why: String| EngineError::Prepare {
            model: graph.name.clone(),
            segment: segments.first().map_or_else(String::new, |segment| segment.name.clone()),
            why,
        };
        let functions = functions(shared, lowered).map_err(refused)?;
        let weights = shared.weights(graph, lowered).map_err(|error| refused(error.to_string()))?;
        let (offsets, bytes) = arena::plan(&lowered.buffers, &lives(lowered));
        let scratch_bytes = SCRATCH + dense_most(lowered);
        let most = shared.arena.slot_bytes();
        if bytes + scratch_bytes > most {
            return Err(refused(format!(
                "it needs {} bytes for activations, a slot of the arena has {most}; open the device with larger slots or \
                 serve smaller batches",
                bytes + scratch_bytes
            )));
        }
        let at = |view: &View| match view.place {
            Place::Buffer(buffer) => offsets[buffer],
            Place::Weight(_) => 0,
        };
        let info = |segment: &Segment| SegmentInfo {
            name: segment.name.clone(),
            flops: segment.flops,
            weight_bytes: segment.weight_bytes,
            activation_bytes: segment.activation_bytes,
        };
        let mut program = Self {
            name: graph.name.clone(),
            shared: shared.clone(),
            inputs: graph.inputs.iter().map(|id| spec(graph, *id)).collect(),
            outputs: graph
                .outputs
                .iter()
                .map(|id| spec(graph, *id))
                .map(|spec| TensorSpec { dtype: shared.delivers(spec.dtype), ..spec })
                .collect(),
            infos: segments.iter().map(info).collect(),
            needs: needs(lowered, &weights),
            steps: Vec::new(),
            input_offsets: lowered.inputs.iter().map(at).collect(),
            output_offsets: lowered.outputs.iter().map(at).collect(),
            offsets,
            scratch: bytes,
            run_bytes: bytes + scratch_bytes,
            weights,
            graphs: Mutex::default(),
        };
        program.steps =
            program.choose(lowered, &functions, scratch_bytes).map_err(|error| refused(error.to_string()))?;
        Ok(program)
    }

    fn bases(&self, slot: usize) -> Bases<'_> {
        let base = self.shared.arena.base(slot);
        let scratch = base + self.scratch as u64;
        Bases {
            slot: base,
            offsets: &self.offsets,
            scratch,
            weights: &self.weights,
            stand_in: None,
            own: false,
        }
    }

    /// Chooses the way of each step, measuring those not known on a slot of the arena.
    fn choose(
        &self,
        lowered: &Lowered,
        functions: &[Function],
        scratch_bytes: usize,
    ) -> Result<Vec<Vec<Ready>>, TuneError> {
        let busy = || TuneError::NoWay("a free slot of the arena to measure in; stop a run first".into());
        let slot = self.shared.arena.take(None).ok_or_else(busy)?;
        let widest =
            lowered.weights.iter().map(|weight| weight.elements * weight.kind.size()).max().unwrap_or(0);
        let arena = &self.shared.arena;
        let room = arena.slot_bytes().saturating_sub(self.scratch + scratch_bytes);
        let mut bases = self.bases(slot.number);
        if widest > arena.bytes() {
            let bytes = arena.bytes();
            return Err(TuneError::NoWay(format!("{widest} bytes of a weight in an arena of {bytes}")));
        }
        let beside = bases.scratch + scratch_bytes as u64;
        // It is only read: where a slot has no room beside its activations, any memory will do.
        let anywhere = if widest <= room { beside } else { arena.base(0) };
        let stream = self.shared.tuning_stream();
        let convs: Vec<&Convolution> = (lowered.segments.iter().flatten())
            .filter_map(|step| if let Step::Conv(conv) = step { Some(&**conv) } else { None })
            .collect();
        self.shared.tuner.build(&convs);
        let mut all = Vec::with_capacity(lowered.segments.len());
        for steps in &lowered.segments {
            let mut ready = Vec::with_capacity(steps.len());
            for step in steps {
                ready.push(match step {
                    Step::Kernel(launch) => {
                        Ready::Kernel { function: functions[launch.kernel].clone(), launch: launch.clone() }
                    }
                    Step::Gemm(gemm) => {
                        bases.stand_in = Some(anywhere);
                        let plan =
                            self.shared.tuner.gemm(&gemm.shape, bases.gemm(gemm), bases.scratch, &stream)?;
                        Ready::Gemm { plan, gemm: gemm.clone() }
                    }
                    Step::Conv(conv) => {
                        let epilogue = functions[conv.epilogue.kernel].clone();
                        let elements = conv.shape.w.iter().product::<usize>().max(conv.shape.y[1]);
                        bases.own = elements * conv.shape.kind.size() <= room;
                        bases.stand_in = Some(if bases.own { beside } else { anywhere });
                        let trial = bases.conv(conv, &epilogue, scratch_bytes);
                        let way = self.shared.tuner.conv(&conv.shape, &trial, &stream)?;
                        Ready::Conv { way, conv: conv.clone(), epilogue }
                    }
                });
            }
            all.push(ready);
        }
        Ok(all)
    }

    fn launch_step(&self, step: &Ready, bases: &Bases<'_>, stream: &Stream) -> Result<(), TuneError> {
        let tuner = &self.shared.tuner;
        match step {
            Ready::Kernel { function, launch } => {
                Ok(stream.launch(function, launch.grid, launch.block, &bases.all(&launch.arguments))?)
            }
            Ready::Gemm { plan, gemm } => {
                Ok(tuner.blas.launch(plan, plan.chosen, bases.gemm(gemm), bases.scratch, stream)?)
            }
            Ready::Conv { way, conv, epilogue } => {
                tuner.launch_conv(way, &bases.conv(conv, epilogue, usize::MAX), stream)
            }
        }
    }

    /// The captured graphs of a slot on the stream's part of the device, captured now if they are not yet.
    pub(crate) fn graphs(&self, slot: usize, stream: &Stream) -> Result<Arc<Vec<Executable>>, EngineError> {
        let mut graphs = self.graphs.lock().unwrap_or_else(PoisonError::into_inner);
        // Parts live as long as their device; their addresses tell them apart.
        let key = (slot, stream.part().map(|part| Arc::as_ptr(part).addr()));
        if let Some(captured) = graphs.get(&key) {
            return Ok(captured.clone());
        }
        let bases = self.bases(slot);
        let mut captured = Vec::with_capacity(self.steps.len());
        for (number, steps) in self.steps.iter().enumerate() {
            let graph =
                stream.capture(|| steps.iter().try_for_each(|step| self.launch_step(step, &bases, stream)));
            captured.push(graph.map_err(|error: TuneError| self.failed(number, &error))?);
        }
        let captured = Arc::new(captured);
        graphs.insert(key, captured.clone());
        Ok(captured)
    }

    /// Drops captured graphs; no run may be alive.
    pub(crate) fn forget(&self) {
        self.graphs.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(crate) fn failed(&self, segment: usize, error: &dyn std::fmt::Display) -> EngineError {
        EngineError::Execute { segment: self.infos[segment].name.clone(), why: error.to_string() }
    }

    /// Ends of the groups in which a launch loads weights: those planned, or one a segment.
    pub(crate) fn travel(&self) -> Vec<usize> {
        self.weights.planned().unwrap_or_else(|| self.needs.clone())
    }

    /// Bytes of weights, from the beginning, that a segment needs.
    pub(crate) fn needs(&self, segment: usize) -> usize {
        self.needs[segment]
    }

    /// The slot of a run, taken now for one that begins on `partition`.
    pub(crate) fn slot(&self, state: &mut CudaState, partition: PartitionId) -> Result<usize, EngineError> {
        let arena = &self.shared.arena;
        if state.slot.is_none() {
            state.slot = arena.take(Some(usize::from(partition.0)));
        }
        let full = || {
            let slots = arena.slots();
            let why = format!("all {slots} slots of the arena hold runs; let one finish, or open more slots");
            self.failed(0, &why)
        };
        state.slot.as_ref().map(|slot| slot.number).ok_or_else(full)
    }

    /// Enqueues the copies of a run's inputs to where its kernels read them: by a kernel, because the copy engine serves
    /// transfers of weights in order.
    pub(crate) fn upload(
        &self,
        state: &CudaState,
        slot: usize,
        stream: &Stream,
    ) -> Result<(), crate::driver::DriverError> {
        let base = self.shared.arena.base(slot);
        let copiers = &self.shared.copiers;
        let places = self.input_offsets.iter().map(|offset| base + *offset as u64);
        match &state.inputs {
            // Buffers on both sides are longer than 16 rounds up to.
            Inputs::Whole(buffers) => buffers.iter().zip(places).try_for_each(|(buffer, to)| {
                staging::fetch((buffer.address() as u64, to), buffer.spec().len(), copiers, stream)
            }),
            Inputs::Staged(all) => {
                all.iter().zip(&self.inputs).zip(places).try_for_each(|((rows, spec), to)| {
                    staging::put(rows, (to, to + spec.len() as u64), copiers, stream)
                })
            }
        }
    }

    /// Enqueues the copies of a run's outputs to the host.
    pub(crate) fn download(
        &self,
        state: &CudaState,
        slot: usize,
        stream: &Stream,
    ) -> Result<(), crate::driver::DriverError> {
        let base = self.shared.arena.base(slot);
        for (buffer, offset) in state.outputs.iter().zip(&self.output_offsets) {
            if !buffer.spec().is_empty() {
                stream.download(buffer.address(), base + *offset as u64, buffer.spec().len())?;
            }
        }
        Ok(())
    }

    /// Whether it takes so many inputs.
    fn count(&self, inputs: usize) -> Result<(), EngineError> {
        let own = self.inputs.len();
        let wrong = || mismatch("number of inputs", &own.to_string(), &inputs.to_string());
        (inputs == own).then_some(()).ok_or_else(wrong)
    }

    /// A run's beginning.
    fn state(&self, inputs: Inputs) -> Result<Box<dyn State>, EngineError> {
        let take = |spec: &TensorSpec| self.shared.host.take(spec, false);
        let outputs: Result<Vec<_>, _> = self.outputs.iter().map(take).collect();
        let outputs = outputs.map_err(|error| self.failed(0, &error))?;
        self.weights.hold();
        let weights = self.weights.clone();
        Ok(Box::new(CudaState { slot: None, inputs, outputs, weights, latest: None, launched: 0 }))
    }

    /// How its steps are computed, for reports: `kernel`, `gemm`, and the ways of convolutions, with their numbers.
    pub(crate) fn ways(&self) -> Vec<(&'static str, usize)> {
        let mut counts: std::collections::BTreeMap<&'static str, usize> = std::collections::BTreeMap::new();
        for step in self.steps.iter().flatten() {
            let name = match step {
                Ready::Kernel { .. } => "kernel",
                Ready::Gemm { .. } => "gemm",
                Ready::Conv { way, .. } => way.name(),
            };
            *counts.entry(name).or_default() += 1;
        }
        counts.into_iter().collect()
    }

    /// Device time of each step alone, in order, with what it is: where a model's time goes.
    pub(crate) fn step_times(&self, stream: &Stream) -> Result<Vec<(String, vocab::Span)>, EngineError> {
        let slot =
            self.shared.arena.take(None).ok_or_else(|| self.failed(0, &"no free slot of the arena"))?;
        let bases = self.bases(slot.number);
        let mut times = Vec::new();
        for (number, step) in
            self.steps.iter().enumerate().flat_map(|(n, steps)| steps.iter().map(move |s| (n, s)))
        {
            let name = match step {
                Ready::Kernel { launch, .. } => format!("kernel {} {:?}", launch.kernel, launch.grid),
                Ready::Gemm { gemm, .. } => {
                    format!("gemm {}x{}x{}", gemm.shape.m, gemm.shape.n, gemm.shape.k)
                }
                Ready::Conv { way, conv, .. } => {
                    format!(
                        "conv {} x{:?} w{:?} /{}",
                        way.name(),
                        conv.shape.x,
                        conv.shape.w,
                        conv.shape.strides[0]
                    )
                }
            };
            let time = self.shared.tuner.time(stream, |stream| self.launch_step(step, &bases, stream));
            let time = time.ok_or_else(|| self.failed(number, &"a step cannot be timed"))?;
            times.push((name, vocab::Span::from_ns(time.ns() / crate::tune::REPEATS as u64)));
        }
        Ok(times)
    }
}

/// Kernels of the graph, loaded.
fn functions(shared: &Shared, lowered: &Lowered) -> Result<Vec<Function>, String> {
    if lowered.kernels.is_empty() {
        return Ok(Vec::new());
    }
    let source = crate::nvrtc::source(&lowered.kernels);
    let binary = shared.cache.get(&source, &shared.architecture).map_err(|error| error.to_string())?;
    let library = Library::load(&shared.gpu, &binary).map_err(|error| error.to_string())?;
    let function =
        |kernel: &crate::lower::Kernel| library.function(&kernel.name).map_err(|error| error.to_string());
    lowered.kernels.iter().map(function).collect()
}

/// Lifetimes of buffers: inputs from the beginning, outputs to the end.
fn lives(lowered: &Lowered) -> std::collections::BTreeMap<usize, (usize, usize)> {
    let mut lives = lifetimes(&lowered.segments);
    let end = lowered.segments.iter().map(Vec::len).sum::<usize>();
    for (views, input) in [(&lowered.inputs, true), (&lowered.outputs, false)] {
        for view in views {
            if let Place::Buffer(buffer) = view.place {
                let life = lives.entry(buffer).or_insert(if input { (0, 0) } else { (end, end) });
                *life = if input { (0, life.1) } else { (life.0, end) };
            }
        }
    }
    lives
}

/// Most dense bytes a bare convolution keeps.
fn dense_most(lowered: &Lowered) -> usize {
    let dense = |step: &Step| if let Step::Conv(conv) = step { conv.dense_bytes } else { 0 };
    lowered.segments.iter().flatten().map(dense).max().unwrap_or(0).next_multiple_of(512)
}

/// Bytes of weights, from the beginning, that each segment needs.
fn needs(lowered: &Lowered, weights: &Weights) -> Vec<usize> {
    let mut needs = vec![0; lowered.segments.len()];
    for (number, steps) in lowered.segments.iter().enumerate() {
        for operand in steps.iter().flat_map(Step::operands) {
            if let Operand::At { place: Place::Weight(weight), .. } = operand {
                let end = weights.offsets.get(weight + 1).copied().unwrap_or(weights.bytes);
                needs[number] = needs[number].max(end);
            }
        }
    }
    for number in 1..needs.len() {
        needs[number] = needs[number].max(needs[number - 1]);
    }
    needs
}

impl Program for CudaProgram {
    fn inputs(&self) -> &[TensorSpec] {
        &self.inputs
    }

    fn outputs(&self) -> &[TensorSpec] {
        &self.outputs
    }

    fn segments(&self) -> &[SegmentInfo] {
        &self.infos
    }

    fn begin(&self, inputs: Vec<Box<dyn Buffer>>) -> Result<Box<dyn State>, EngineError> {
        self.count(inputs.len())?;
        let mut own = Vec::with_capacity(inputs.len());
        for (spec, buffer) in self.inputs.iter().zip(inputs) {
            if buffer.spec().shape != spec.shape || buffer.spec().dtype != spec.dtype {
                return Err(mismatch("input", &spec.to_string(), &buffer.spec().to_string()));
            }
            let Ok(buffer) = buffer.into_any().downcast::<CudaBuffer>() else {
                return Err(mismatch("input", "a buffer of this device", "one of another backend"));
            };
            own.push(*buffer);
        }
        self.state(Inputs::Whole(own))
    }

    fn begin_staged(&self, rows: Vec<Vec<Arc<dyn Staged>>>) -> Result<Box<dyn State>, EngineError> {
        self.count(rows.len())?;
        let mut own = Vec::with_capacity(rows.len());
        for (spec, rows) in self.inputs.iter().zip(rows) {
            let row = spec.len() / spec.shape.first().map_or(1, |rows| (*rows).max(1));
            let found: usize = rows.iter().map(|one| one.bytes().len()).sum();
            if found > spec.len() || !rows.iter().all(|one| one.bytes().len().is_multiple_of(row.max(1))) {
                let found = format!("{found} bytes from {} requests", rows.len());
                return Err(mismatch("input", &format!("rows of {spec}"), &found));
            }
            let one =
                |one: Arc<dyn Staged>| (one as Arc<dyn Any + Send + Sync>).downcast::<CudaStaged>().ok();
            let rows: Option<Vec<_>> = rows.into_iter().map(one).collect();
            let foreign = || mismatch("input", "rows staged by this device", "some of another backend");
            own.push(rows.ok_or_else(foreign)?);
        }
        self.state(Inputs::Staged(own))
    }

    fn finish(&self, state: Box<dyn State>) -> Result<Vec<Box<dyn Buffer>>, EngineError> {
        let Ok(mut state) = state.into_any().downcast::<CudaState>() else {
            return Err(mismatch("state", "one of this device", "one of another backend"));
        };
        if state.launched < self.steps.len() {
            return Err(EngineError::Order { act: "finish", state: "missing an output" });
        }
        let outputs = std::mem::take(&mut state.outputs);
        Ok(outputs.into_iter().map(|buffer| Box::new(buffer) as Box<dyn Buffer>).collect())
    }

    fn weights(&self) -> Option<Arc<dyn Residency>> {
        Some(Arc::new(Resident {
            model: self.name.clone(),
            shared: self.shared.clone(),
            weights: self.weights.clone(),
            groups: self.needs.clone(),
        }))
    }

    fn run_memory(&self) -> Bytes {
        Bytes(self.run_bytes as u64)
    }

    fn needs(&self) -> Vec<Bytes> {
        self.needs.iter().map(|bytes| Bytes(*bytes as u64)).collect()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn ends(groups: &[Bytes]) -> Vec<usize> {
    groups.iter().map(|end| usize::try_from(end.0).unwrap_or(usize::MAX)).collect()
}

/// A program's weights as the engine moves them.
struct Resident {
    model: String,
    shared: Arc<Shared>,
    weights: Arc<Weights>,
    /// Bytes that each segment needs.
    groups: Vec<usize>,
}

impl Resident {
    /// Ends of the groups in which loads travel that name none.
    fn travel(&self) -> Vec<usize> {
        self.weights.planned().unwrap_or_else(|| self.groups.clone())
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> EngineError {
        EngineError::Residency { model: self.model.clone(), why: error.to_string() }
    }
}

impl Residency for Resident {
    fn bytes(&self) -> Bytes {
        Bytes(self.weights.bytes as u64)
    }

    fn groups(&self) -> Vec<Bytes> {
        let chunk = self.shared.chunks.chunk();
        vec![Bytes(chunk as u64); self.weights.bytes.div_ceil(chunk)]
    }

    fn identity(&self) -> usize {
        Arc::as_ptr(&self.weights) as usize
    }

    fn loaded(&self) -> Bytes {
        Bytes(self.weights.loaded() as u64)
    }

    fn is_resident(&self) -> Result<bool, EngineError> {
        self.weights.is_resident().map_err(|error| self.failed(&error))
    }

    fn plan(&self, groups: &[Bytes]) {
        self.weights.plan(ends(groups));
    }

    fn load(&self, groups: &[Bytes]) -> Result<(), EngineError> {
        let ends = if groups.is_empty() { self.travel() } else { ends(groups) };
        self.weights.load(&ends, &self.shared.copies).map_err(|error| self.failed(&error))
    }

    fn load_from(&self, source: &dyn Residency) -> Result<bool, EngineError> {
        let Some(source) = source.as_any().downcast_ref::<Self>() else { return Ok(false) };
        let begun = self.weights.load_from_peer(&source.weights, &self.travel(), &self.shared.copies);
        begun.map_err(|error| self.failed(&error))
    }

    fn evict(&self, kept: Bytes) -> Result<(), EngineError> {
        let kept = usize::try_from(kept.0).unwrap_or(usize::MAX);
        self.weights.evict(kept).map_err(|error| self.failed(&error))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
