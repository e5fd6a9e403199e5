//! Which of several ways computes a step fastest: measured once on the device, convolutions also checked, remembered on disk.

use crate::blas::{Blas, GemmAddresses, GemmPlan, LibraryError};
use crate::dnn::{ConvAddresses, ConvPlan, Dnn, NUMBERS};
use crate::driver::{DriverError, Event, Function, Gpu, Stream};
use crate::lower::{ConvShape, Convolution, GemmShape, fingerprint};
use crate::nvrtc::Cache;
use crate::verify::{Verifier, tolerance};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vocab::Span;

/// Launches of one way that are timed together.
pub(crate) const REPEATS: usize = 8;

/// Threads that build plans at once.
const BUILDERS: usize = 12;

/// Everything a convolution's choice depends on; a product's strides are part of it.
fn text(shape: &ConvShape, product: Option<&GemmShape>) -> String {
    format!("{shape:?} {product:?}")
}

/// A convolution as it will be run.
#[derive(Debug)]
pub(crate) enum ConvWay {
    /// With everything that follows it.
    Fused(ConvPlan),
    /// Alone, then the epilogue's kernel.
    Bare(ConvPlan),
    /// As a matrix product.
    Product(Arc<GemmPlan>),
}

/// Where the operands of a step lie while its ways are tried.
pub(crate) struct ConvTrial<'t> {
    pub(crate) at: ConvAddresses,
    pub(crate) product: Option<(&'t GemmShape, GemmAddresses)>,
    pub(crate) epilogue: (&'t Function, [u32; 3], u32, Vec<u64>),
    pub(crate) dense_bytes: usize,
    pub(crate) scratch: u64,
    pub(crate) scratch_bytes: usize,
    /// Whether the operands are nobody else's, so that they may be filled.
    pub(crate) own: bool,
}

/// Chosen ways, by shape.
#[derive(Debug)]
pub(crate) struct Tuner {
    gpu: Gpu,
    pub(crate) blas: Blas,
    dnn: Mutex<Dnn>,
    gemms: Mutex<HashMap<GemmShape, Arc<GemmPlan>>>,
    convs: Mutex<HashMap<String, Arc<ConvWay>>>,
    /// Ways that wait to be measured, with their numbers.
    built: Mutex<HashMap<String, Vec<(usize, ConvWay)>>>,
    /// Spare handles for building plans.
    handles: Mutex<Vec<Dnn>>,
    /// Choices of earlier runs: the number of a way.
    known: Mutex<HashMap<u64, usize>>,
    /// Length of the file when it was last read.
    read: AtomicU64,
    file: Option<PathBuf>,
    /// The smallest parts of the device: a way that they refuse is none, since thread-block clusters that the whole device
    /// takes may not fit a part.
    smallest: Vec<Stream>,
    /// Their kind, by which choices are told apart.
    parts: String,
    pub(crate) verifier: Verifier,
}

/// What can go wrong while a step is tuned.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TuneError {
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error(transparent)]
    Library(#[from] LibraryError),
    #[error("no library computes {0}")]
    NoWay(String),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tuner {
    /// Choices are kept in a file of `folder` named after the device.
    pub(crate) fn new(
        gpu: &Gpu,
        folder: Option<&Path>,
        (cache, architecture): (&Cache, &str),
    ) -> Result<Self, TuneError> {
        let name: String =
            gpu.name()?.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let file = folder.map(|folder| folder.join(format!("{name}.ways")));
        let tuner = Self {
            gpu: gpu.clone(),
            blas: Blas::new()?,
            dnn: Mutex::new(Dnn::new()?),
            gemms: Mutex::default(),
            convs: Mutex::default(),
            built: Mutex::default(),
            handles: Mutex::default(),
            known: Mutex::default(),
            read: AtomicU64::new(0),
            file,
            smallest: Vec::new(),
            parts: String::new(),
            verifier: Verifier::new(gpu, cache.clone(), architecture)?,
        };
        tuner.learn();
        Ok(tuner)
    }

    /// Takes up choices that others have written to the file since it was read last: devices of one kind share it.
    pub(crate) fn learn(&self) {
        let Some(file) = &self.file else { return };
        let length = std::fs::metadata(file).map_or(0, |file| file.len());
        if self.read.swap(length, Ordering::Relaxed) == length {
            return;
        }
        let mut known = lock(&self.known);
        for line in std::fs::read_to_string(file).unwrap_or_default().lines() {
            if let Some((key, choice)) = line.split_once(' ')
                && let (Ok(key), Ok(choice)) = (u64::from_str_radix(key, 16), choice.parse())
            {
                // The last line of a choice counts.
                known.insert(key, choice);
            }
        }
    }

    /// Takes only ways that run on these parts too.
    pub(crate) fn confine(&mut self, smallest: Vec<Stream>, parts: &str) {
        self.blas.clusterless = !smallest.is_empty();
        self.smallest = smallest;
        parts.clone_into(&mut self.parts);
    }

    /// What a choice is remembered by; what parts refuse, the whole device may have chosen.
    fn key(&self, text: &str) -> u64 {
        let whole = fingerprint(text.as_bytes());
        if self.smallest.is_empty() {
            whole
        } else {
            fingerprint(format!("{whole} on {}", self.parts).as_bytes())
        }
    }

    fn remember(&self, key: u64, choice: usize) {
        if lock(&self.known).insert(key, choice) == Some(choice) {
            return;
        }
        // A file that cannot be written costs another measurement, nothing else.
        if let Some(file) = &self.file {
            use std::io::Write as _;
            let opened = std::fs::OpenOptions::new().create(true).append(true).open(file);
            let _ = opened.and_then(|mut file| writeln!(file, "{key:016x} {choice}"));
        }
    }

    /// Device time of one launch, from several captured together; `None` when it does not run.
    pub(crate) fn time(
        &self,
        stream: &Stream,
        launch: impl Fn(&Stream) -> Result<(), TuneError>,
    ) -> Option<Span> {
        for part in &self.smallest {
            part.capture(|| launch(part)).ok()?;
        }
        let graph = stream.capture(|| (0..REPEATS).try_for_each(|_| launch(stream))).ok()?;
        let (before, after) = (Event::timing(&self.gpu).ok()?, Event::timing(&self.gpu).ok()?);
        let mut best = None;
        for _ in 0..3 {
            before.record(stream).ok()?;
            graph.launch(stream).ok()?;
            after.record(stream).ok()?;
            after.synchronize().ok()?;
            let span = after.since(&before).ok()?;
            best = Some(best.map_or(span, |best: Span| best.min(span)));
        }
        best
    }

    /// The plan of a product, its algorithm measured on these operands.
    pub(crate) fn gemm(
        &self,
        shape: &GemmShape,
        at: GemmAddresses,
        scratch: u64,
        stream: &Stream,
    ) -> Result<Arc<GemmPlan>, TuneError> {
        if let Some(plan) = lock(&self.gemms).get(shape) {
            return Ok(plan.clone());
        }
        let mut plan = self.blas.plan(shape)?;
        let key = self.key(&format!("{shape:?}"));
        let known = lock(&self.known).get(&key).copied().filter(|choice| *choice < plan.candidates());
        plan.chosen = match known {
            Some(choice) => choice,
            None => {
                let times = (0..plan.candidates()).filter_map(|one| {
                    let launch = |stream: &Stream| Ok(self.blas.launch(&plan, one, at, scratch, stream)?);
                    Some((self.time(stream, launch)?, one))
                });
                let Some((_, best)) = times.min() else { return Err(TuneError::NoWay(format!("{shape:?}"))) };
                self.remember(key, best);
                best
            }
        };
        let plan = Arc::new(plan);
        lock(&self.gemms).insert(shape.clone(), plan.clone());
        Ok(plan)
    }

    /// Builds the plans of convolutions not seen before, several at a time: for new engines the library compiles code.
    pub(crate) fn build(&self, convs: &[&Convolution]) {
        let mut wanted: BTreeMap<String, &ConvShape> = BTreeMap::new();
        for conv in convs {
            let text = text(&conv.shape, conv.gemm.as_ref().map(|gemm| &gemm.shape));
            if !lock(&self.convs).contains_key(&text) && !lock(&self.built).contains_key(&text) {
                wanted.insert(text, &conv.shape);
            }
        }
        let queue = Mutex::new(wanted.into_iter());
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(BUILDERS);
        let work = || {
            let Some(dnn) = self.handle() else { return };
            loop {
                let Some((text, shape)) = lock(&queue).next() else { break };
                let plans = self.plans(&dnn, shape, &text);
                lock(&self.built).insert(text, plans);
            }
            lock(&self.handles).push(dnn);
        };
        std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    }

    fn handle(&self) -> Option<Dnn> {
        self.gpu.bind().ok()?;
        let spare = lock(&self.handles).pop();
        spare.or_else(|| Dnn::new().ok())
    }

    /// The libraries' ways to run a convolution with their numbers; only the one chosen earlier when it is known and this
    /// version of the library still offers it.
    fn plans(&self, dnn: &Dnn, shape: &ConvShape, text: &str) -> Vec<(usize, ConvWay)> {
        let known = lock(&self.known).get(&self.key(text)).copied();
        let ways = Self::numbered(dnn, shape, known);
        // A product, number 0, is no plan of the library's.
        let gone = ways.is_empty() && known.is_some_and(|number| number > 0);
        if gone { Self::numbered(dnn, shape, None) } else { ways }
    }

    fn numbered(dnn: &Dnn, shape: &ConvShape, known: Option<usize>) -> Vec<(usize, ConvWay)> {
        let mut ways = Vec::new();
        for (fused, first) in [(true, 1), (false, 1 + NUMBERS)] {
            let only = match known {
                Some(number) if number < first || number >= first + NUMBERS => continue,
                Some(number) => Some(number - first),
                None => None,
            };
            let plans = dnn.plans(shape, fused, only).unwrap_or_default();
            let way = |plan| if fused { ConvWay::Fused(plan) } else { ConvWay::Bare(plan) };
            ways.extend(plans.into_iter().map(|(number, plan)| (first + number, way(plan))));
        }
        ways
    }

    /// The best way to run a convolution on these operands.
    pub(crate) fn conv(
        &self,
        shape: &ConvShape,
        trial: &ConvTrial<'_>,
        stream: &Stream,
    ) -> Result<Arc<ConvWay>, TuneError> {
        let text = text(shape, trial.product.as_ref().map(|(shape, _)| *shape));
        if let Some(way) = lock(&self.convs).get(&text) {
            return Ok(way.clone());
        }
        let key = self.key(&text);
        let built = lock(&self.built).remove(&text);
        let mut ways = built.unwrap_or_else(|| self.plans(&lock(&self.dnn), shape, &text));
        if let Some((shape, at)) = &trial.product
            && let Ok(plan) = self.gemm(shape, *at, trial.scratch, stream)
        {
            ways.push((0, ConvWay::Product(plan)));
        }
        ways.retain(|(_, way)| way.workspace(trial.dense_bytes) <= trial.scratch_bytes);
        let known = lock(&self.known).get(&key).copied();
        let chosen = match ways.iter().position(|(number, _)| Some(*number) == known) {
            Some(place) => place,
            None => {
                let times = ways.iter().enumerate().filter_map(|(place, (_, way))| {
                    let launch = |stream: &Stream| self.launch_conv(way, trial, stream);
                    Some((self.time(stream, launch)?, place))
                });
                let mut times: Vec<(Span, usize)> = times.collect();
                times.sort_unstable();
                let Some(best) = self.sound(shape, trial, &ways, &times, stream) else {
                    return Err(TuneError::NoWay(text));
                };
                self.remember(key, ways[best].0);
                best
            }
        };
        let way = Arc::new(ways.swap_remove(chosen).1);
        lock(&self.convs).insert(text, way.clone());
        Ok(way)
    }

    /// The fastest of timed ways that computes the convolution; the one that is least off when none is within what its
    /// precision allows, and the fastest when it cannot be told.
    fn sound(
        &self,
        shape: &ConvShape,
        trial: &ConvTrial<'_>,
        ways: &[(usize, ConvWay)],
        times: &[(Span, usize)],
        stream: &Stream,
    ) -> Option<usize> {
        let fastest = times.first()?.1;
        let scratch = (trial.scratch, trial.scratch_bytes);
        if !trial.own || self.verifier.fill(shape, &trial.at, scratch, stream).is_none() {
            return Some(fastest);
        }
        let mut least: Option<(f64, usize)> = None;
        for (_, place) in times {
            let launch = |stream: &Stream| self.launch_conv(&ways[*place].1, trial, stream).is_ok();
            let Some(error) = self.verifier.error(shape, &trial.at, stream, launch) else {
                return Some(fastest);
            };
            if error <= tolerance(shape.precision) {
                return Some(*place);
            }
            if least.is_none_or(|(known, _)| error < known) {
                least = Some((error, *place));
            }
        }
        least.map(|(_, place)| place)
    }

    /// The number of the way chosen for a convolution.
    pub(crate) fn number(&self, conv: &Convolution) -> Option<usize> {
        let text = text(&conv.shape, conv.gemm.as_ref().map(|gemm| &gemm.shape));
        lock(&self.known).get(&self.key(&text)).copied()
    }

    /// Launches a convolution one way.
    pub(crate) fn launch_conv(
        &self,
        way: &ConvWay,
        trial: &ConvTrial<'_>,
        stream: &Stream,
    ) -> Result<(), TuneError> {
        match way {
            ConvWay::Fused(plan) => {
                // Fused kernels read what they add before the kernel before them is over: a ResNet-50 was 17 % off where that
                // one had written it.
                if plan.residual {
                    stream.fence()?;
                }
                Ok(lock(&self.dnn).launch(plan, trial.at, trial.scratch, stream)?)
            }
            ConvWay::Bare(plan) => {
                let after = trial.dense_bytes.next_multiple_of(512) as u64;
                let at = ConvAddresses { y: trial.scratch, ..trial.at };
                lock(&self.dnn).launch(plan, at, trial.scratch + after, stream)?;
                let (function, grid, block, arguments) = &trial.epilogue;
                Ok(stream.launch(function, *grid, *block, arguments)?)
            }
            ConvWay::Product(plan) => {
                let Some((_, at)) = trial.product else { return Err(TuneError::NoWay("a product".into())) };
                Ok(self.blas.launch(plan, plan.chosen, at, trial.scratch, stream)?)
            }
        }
    }
}

impl ConvWay {
    /// Bytes of scratch memory this way wants.
    fn workspace(&self, dense_bytes: usize) -> usize {
        match self {
            Self::Fused(plan) => plan.workspace,
            Self::Bare(plan) => plan.workspace.saturating_add(dense_bytes.next_multiple_of(512)),
            Self::Product(_) => crate::blas::WORKSPACE,
        }
    }

    /// What it is, for reports.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Fused(_) => "fused",
            Self::Bare(_) => "bare",
            Self::Product(_) => "product",
        }
    }
}
