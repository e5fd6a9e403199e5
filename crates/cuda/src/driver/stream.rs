//! Streams, events, kernels and captured graphs.

use super::{DriverError, Gpu, GreenContext, driver};
use cudarc::driver::sys;
use std::ffi::CString;
use std::sync::{Arc, Mutex, PoisonError};
use vocab::Span;

/// An ordered queue of work on the device.
#[derive(Debug)]
pub(crate) struct Stream {
    gpu: Gpu,
    raw: sys::CUstream,
    /// The part of the device it stays on, if it is not the whole.
    part: Option<Arc<GreenContext>>,
    /// Addresses of the nodes of the graph being captured that must be over before any that follow them begin.
    fences: Mutex<Vec<usize>>,
}

// SAFETY: stream handles may be used from any thread; each of ours is used by one at a time.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream that waits for no other. A lower number is a higher priority.
    pub(crate) fn new(gpu: &Gpu, priority: i32) -> Result<Self, DriverError> {
        gpu.bind()?;
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        driver!(cuStreamCreateWithPriority(&raw mut raw, flags, priority))?;
        Ok(Self { gpu: gpu.clone(), raw, part: None, fences: Mutex::default() })
    }

    /// A stream that stays on a part of the device.
    pub(crate) fn on(part: &Arc<GreenContext>) -> Result<Self, DriverError> {
        let gpu = part.gpu();
        gpu.bind()?;
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        driver!(cuGreenCtxStreamCreate(&raw mut raw, part.raw(), flags, 0))?;
        Ok(Self { gpu: gpu.clone(), raw, part: Some(part.clone()), fences: Mutex::default() })
    }

    /// The part it stays on: what is captured on it runs there.
    pub(crate) const fn part(&self) -> Option<&Arc<GreenContext>> {
        self.part.as_ref()
    }

    pub(crate) const fn raw(&self) -> sys::CUstream {
        self.raw
    }

    pub(crate) fn wait(&self, event: &Event) -> Result<(), DriverError> {
        driver!(cuStreamWaitEvent(self.raw, event.raw, 0))
    }

    /// Copies to the device. `from` must stay pinned and unchanged until the copy is over.
    pub(crate) fn upload(&self, to: u64, from: *const u8, bytes: usize) -> Result<(), DriverError> {
        driver!(cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, self.raw))
    }

    /// Copies from the device. `to` must stay pinned until the copy is over.
    pub(crate) fn download(&self, to: *mut u8, from: u64, bytes: usize) -> Result<(), DriverError> {
        driver!(cuMemcpyDtoHAsync_v2(to.cast(), from, bytes, self.raw))
    }

    /// Copies from anywhere to anywhere. A source in host memory must stay pinned and unchanged until the copy is over.
    pub(crate) fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), DriverError> {
        driver!(cuMemcpyAsync(to, from, bytes, self.raw))
    }

    /// Copies from one device's memory to another's.
    pub(crate) fn copy_peer(
        &self,
        (to, there): (u64, &Gpu),
        (from, here): (u64, &Gpu),
        bytes: usize,
    ) -> Result<(), DriverError> {
        driver!(cuMemcpyPeerAsync(to, there.context(), from, here.context(), bytes, self.raw))
    }

    /// The device it is on.
    pub(crate) const fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Whether everything enqueued is over.
    pub(crate) fn is_idle(&self) -> Result<bool, DriverError> {
        over(driver!(cuStreamQuery(self.raw)))
    }

    /// Sets bytes on the device to zero.
    pub(crate) fn clear(&self, at: u64, bytes: usize) -> Result<(), DriverError> {
        driver!(cuMemsetD8Async(at, 0, bytes, self.raw))
    }

    /// Launches a kernel with pointer arguments.
    pub(crate) fn launch(
        &self,
        function: &Function,
        grid: [u32; 3],
        block: u32,
        arguments: &[u64],
    ) -> Result<(), DriverError> {
        let mut values = arguments.to_vec();
        let mut pointers: Vec<*mut std::ffi::c_void> =
            values.iter_mut().map(|value| std::ptr::from_mut(value).cast()).collect();
        self.launch_with(function, grid, block, &mut pointers)
    }

    /// Launches a kernel with these arguments, which are as large as the kernel says.
    pub(crate) fn launch_with(
        &self,
        function: &Function,
        grid: [u32; 3],
        block: u32,
        arguments: &mut [*mut std::ffi::c_void],
    ) -> Result<(), DriverError> {
        let [x, y, z] = grid;
        driver!(cuLaunchKernel(
            function.raw,
            x,
            y,
            z,
            block,
            1,
            1,
            0,
            self.raw,
            arguments.as_mut_ptr(),
            std::ptr::null_mut()
        ))
    }

    /// In a capture: what comes next begins when all before it is over. Kernels of the libraries may begin while the kernel
    /// before them ends (programmatic dependent launch), and wait for it themselves, but not for everything they read.
    pub(crate) fn fence(&self) -> Result<(), DriverError> {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let (mut nodes, mut edges, mut count) = (std::ptr::null(), std::ptr::null(), 0);
        let none = std::ptr::null_mut();
        driver!(cuStreamGetCaptureInfo_v3(
            self.raw,
            &raw mut status,
            none,
            std::ptr::null_mut(),
            &raw mut nodes,
            &raw mut edges,
            &raw mut count
        ))?;
        if status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE || count == 0 {
            return Ok(());
        }
        // SAFETY: the driver gives so many nodes, which stay valid until the next call with this stream.
        let nodes: &[sys::CUgraphNode] = unsafe { std::slice::from_raw_parts(nodes, count) };
        let mut fences = self.fences.lock().unwrap_or_else(PoisonError::into_inner);
        fences.extend(nodes.iter().map(|node| node.addr()));
        Ok(())
    }

    /// What `record` launches on this stream, as a graph.
    pub(crate) fn capture<E: From<DriverError>>(
        &self,
        record: impl FnOnce() -> Result<(), E>,
    ) -> Result<Executable, E> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        driver!(cuStreamBeginCapture_v2(self.raw, mode))?;
        let recorded = record();
        let mut graph = std::ptr::null_mut();
        let ended = driver!(cuStreamEndCapture(self.raw, &raw mut graph));
        let fences = std::mem::take(&mut *self.fences.lock().unwrap_or_else(PoisonError::into_inner));
        recorded?;
        ended?;
        let mut raw = std::ptr::null_mut();
        let made = complete(graph, &fences)
            .and_then(|()| driver!(cuGraphInstantiateWithFlags(&raw mut raw, graph, 0)));
        let _ = driver!(cuGraphDestroy(graph));
        made?;
        let executable = Executable { raw };
        driver!(cuGraphUpload(raw, self.raw))?;
        Ok(executable)
    }
}

/// Makes who follows one of `fences` wait for its end, where it would begin before that.
fn complete(graph: sys::CUgraph, fences: &[usize]) -> Result<(), DriverError> {
    if fences.is_empty() {
        return Ok(());
    }
    let whole = sys::CUgraphEdgeData { from_port: 0, to_port: 0, type_: 0, reserved: [0; 5] };
    let mut nodes = 0;
    driver!(cuGraphGetNodes(graph, std::ptr::null_mut(), &raw mut nodes))?;
    // What is captured on one stream is a chain with few branches.
    let mut count = 4 * nodes + 64;
    let (mut from, mut to) = (vec![std::ptr::null_mut(); count], vec![std::ptr::null_mut(); count]);
    let mut kinds = vec![whole; count];
    driver!(cuGraphGetEdges_v2(
        graph,
        from.as_mut_ptr(),
        to.as_mut_ptr(),
        kinds.as_mut_ptr(),
        &raw mut count
    ))?;
    for ((from, to), kind) in from.iter().zip(&to).zip(&kinds).take(count) {
        if kind.type_ != whole.type_ && fences.contains(&from.addr()) {
            driver!(cuGraphRemoveDependencies_v2(graph, from, to, kind, 1))?;
            driver!(cuGraphAddDependencies_v2(graph, from, to, &raw const whole, 1))?;
        }
    }
    Ok(())
}

/// What the driver says of something it may still be doing.
const fn over(asked: Result<(), DriverError>) -> Result<bool, DriverError> {
    match asked {
        Ok(()) => Ok(true),
        Err(DriverError { code: sys::CUresult::CUDA_ERROR_NOT_READY, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            let _ = driver!(cuStreamDestroy_v2(self.raw));
        }
    }
}

/// A captured graph, ready to be launched.
#[derive(Debug)]
pub(crate) struct Executable {
    raw: sys::CUgraphExec,
}

// SAFETY: a graph is launched by one thread at a time: the one that holds the queue.
unsafe impl Send for Executable {}
// SAFETY: as above.
unsafe impl Sync for Executable {}

impl Executable {
    pub(crate) fn launch(&self, stream: &Stream) -> Result<(), DriverError> {
        driver!(cuGraphLaunch(self.raw, stream.raw))
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        let _ = driver!(cuGraphExecDestroy(self.raw));
    }
}

/// A point in a stream.
#[derive(Debug)]
pub(crate) struct Event {
    raw: sys::CUevent,
}

// SAFETY: event handles may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event that times.
    pub(crate) fn timing(gpu: &Gpu) -> Result<Self, DriverError> {
        Self::with(gpu, sys::CUevent_flags::CU_EVENT_DEFAULT)
    }

    /// An event that only orders.
    pub(crate) fn ordering(gpu: &Gpu) -> Result<Self, DriverError> {
        Self::with(gpu, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    fn with(gpu: &Gpu, flags: sys::CUevent_flags) -> Result<Self, DriverError> {
        gpu.bind()?;
        let mut raw = std::ptr::null_mut();
        driver!(cuEventCreate(&raw mut raw, flags as u32))?;
        Ok(Self { raw })
    }

    pub(crate) fn record(&self, stream: &Stream) -> Result<(), DriverError> {
        driver!(cuEventRecord(self.raw, stream.raw))
    }

    pub(crate) fn is_over(&self) -> Result<bool, DriverError> {
        over(driver!(cuEventQuery(self.raw)))
    }

    pub(crate) fn synchronize(&self) -> Result<(), DriverError> {
        driver!(cuEventSynchronize(self.raw))
    }

    /// Device time from `earlier` to this event; both are over.
    pub(crate) fn since(&self, earlier: &Self) -> Result<Span, DriverError> {
        let mut milliseconds = 0f32;
        driver!(cuEventElapsedTime_v2(&raw mut milliseconds, earlier.raw, self.raw))?;
        Ok(Span::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = driver!(cuEventDestroy_v2(self.raw));
    }
}

/// Compiled kernels, loaded.
#[derive(Debug)]
pub(crate) struct Library {
    gpu: Gpu,
    raw: sys::CUmodule,
}

// SAFETY: module handles may be used from any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// One kernel of a library, which it keeps loaded.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    raw: sys::CUfunction,
    _library: Arc<Library>,
}

// SAFETY: function handles may be used from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Library {
    pub(crate) fn load(gpu: &Gpu, binary: &[u8]) -> Result<Arc<Self>, DriverError> {
        gpu.bind()?;
        let mut raw = std::ptr::null_mut();
        driver!(cuModuleLoadData(&raw mut raw, binary.as_ptr().cast()))?;
        Ok(Arc::new(Self { gpu: gpu.clone(), raw }))
    }

    pub(crate) fn function(self: &Arc<Self>, name: &str) -> Result<Function, DriverError> {
        let text = CString::new(name).unwrap_or_default();
        let mut raw = std::ptr::null_mut();
        driver!(cuModuleGetFunction(&raw mut raw, self.raw, text.as_ptr()))?;
        Ok(Function { raw, _library: self.clone() })
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            let _ = driver!(cuModuleUnload(self.raw));
        }
    }
}
