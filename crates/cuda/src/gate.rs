//! A word the device waits for before each segment: closing it holds a queue at its next edge without the host.

use crate::driver::{DriverError, Gpu, Pinned, Stream, driver};
use cudarc::driver::sys;
use std::sync::atomic::{AtomicU32, Ordering};

/// A gate on a queue. Open at first.
#[derive(Debug)]
pub struct Gate {
    word: Pinned,
    address: sys::CUdeviceptr,
}

const OPEN: u32 = 1;
const CLOSED: u32 = 0;

impl Gate {
    pub(crate) fn new(gpu: &Gpu) -> Result<Self, DriverError> {
        let word = Pinned::new(gpu, 64)?;
        let mut address = 0;
        driver!(cuMemHostGetDevicePointer_v2(&raw mut address, word.address().cast(), 0))?;
        let gate = Self { word, address };
        gate.open();
        Ok(gate)
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: the memory is pinned, aligned to a page, lives as long as `self`, and is only used as this atomic.
        unsafe { AtomicU32::from_ptr(self.word.address().cast()) }
    }

    /// Lets the queue run.
    pub fn open(&self) {
        self.word().store(OPEN, Ordering::SeqCst);
    }

    /// Holds the queue at its next edge.
    pub fn close(&self) {
        self.word().store(CLOSED, Ordering::SeqCst);
    }

    /// Makes the stream wait until the gate is open.
    pub(crate) fn guard(&self, stream: &Stream) -> Result<(), DriverError> {
        let flags = sys::CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_EQ as u32;
        driver!(cuStreamWaitValue32_v2(stream.raw(), self.address, OPEN, flags))
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}
