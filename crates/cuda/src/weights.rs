//! A model's weights: one pinned copy on the host, packed in the order of first use, and a range of device addresses into
//! which it is loaded by groups. Pointers into the range stay valid for ever; what lies behind them comes and goes.

use crate::driver::{Chunks, DriverError, Event, Gpu, Pinned, Range, Stream};
use crate::lower::Lowered;
use crate::pack::pack;
use graph::Graph;
use std::sync::{Arc, Mutex, MutexGuard};

/// Weights on host and device, shared by the programs of a model.
#[derive(Debug)]
pub(crate) struct Weights {
    gpu: Gpu,
    host: Pinned,
    /// Where each weight begins.
    pub(crate) offsets: Vec<usize>,
    /// Bytes of all.
    pub(crate) bytes: usize,
    /// Contents, to tell whether another program's are the same.
    fingerprint: u64,
    base: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    range: Range,
    /// Loads under way or over: bytes from the beginning that have arrived once the event is over, ascending.
    groups: Vec<(usize, Arc<Event>)>,
    /// Bytes from the beginning that are on the device or on their way.
    loaded: usize,
    /// Runs that use them.
    users: usize,
    /// Ends of copies to other devices that read them.
    readers: Vec<Arc<Event>>,
    /// Ends of the groups in which they travel, when they were planned.
    planned: Option<Vec<usize>>,
}

/// Why weights cannot be loaded or evicted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResidencyError {
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error(
        "{needed} bytes of weights do not fit: {free} of {total} bytes are free; evict another model first"
    )]
    Full { needed: usize, free: usize, total: usize },
    #[error("weights in use by {0} runs cannot be evicted")]
    Used(usize),
}

const ALIGNMENT: usize = 512;

impl Weights {
    /// Pins packed weights and reserves addresses for them.
    pub(crate) fn new(gpu: &Gpu, chunks: &Chunks, packed: Packed) -> Result<Self, DriverError> {
        let Packed { bytes, offsets, fingerprint } = packed;
        let mut host = Pinned::new(gpu, bytes.len())?;
        host.bytes_mut().copy_from_slice(&bytes);
        let range = Range::reserve(chunks, bytes.len())?;
        let base = range.base();
        let state = Mutex::new(State {
            range,
            groups: Vec::new(),
            loaded: 0,
            users: 0,
            readers: Vec::new(),
            planned: None,
        });
        Ok(Self { gpu: gpu.clone(), host, offsets, bytes: bytes.len(), fingerprint, base, state })
    }

    /// Whether these are the same weights in the same places.
    pub(crate) fn same(&self, other: &Packed) -> bool {
        self.fingerprint == other.fingerprint
            && self.offsets == other.offsets
            && self.bytes == other.bytes.len()
    }

    pub(crate) const fn base(&self) -> u64 {
        self.base
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The pinned copy.
    pub(crate) const fn host(&self) -> &[u8] {
        self.host.bytes()
    }

    /// Bytes from the beginning that are on the device or on their way.
    pub(crate) fn loaded(&self) -> usize {
        self.lock().loaded
    }

    /// Whether everything has arrived.
    pub(crate) fn is_resident(&self) -> Result<bool, DriverError> {
        let state = self.lock();
        let last = state.groups.last().filter(|_| state.loaded >= self.bytes);
        Ok(self.bytes == 0 || last.map_or(Ok(state.loaded >= self.bytes), |(_, event)| event.is_over())?)
    }

    /// Enqueues the transfer of what is not loaded yet, in groups that end at these bytes; returns at once. A load that
    /// would not fit changes nothing. The first group is on its way before memory for the rest is mapped.
    pub(crate) fn load(&self, ends: &[usize], stream: &Stream) -> Result<(), ResidencyError> {
        self.load_from(self.host.bytes(), ends, stream)
    }

    /// As [`Weights::load`], from another copy of the same bytes, which must stay until the transfer is over.
    pub(crate) fn load_from(
        &self,
        source: &[u8],
        ends: &[usize],
        stream: &Stream,
    ) -> Result<(), ResidencyError> {
        let copy = |from: usize, end: usize| {
            stream.upload(self.base + from as u64, source[from..end].as_ptr(), end - from)
        };
        self.load_by(copy, ends, stream)
    }

    /// As [`Weights::load`], from the copy on another device; false when that one's memory cannot be read from here, it
    /// holds other weights, or not all of them.
    pub(crate) fn load_from_peer(
        &self,
        source: &Self,
        ends: &[usize],
        stream: &Stream,
    ) -> Result<bool, ResidencyError> {
        let alike = source.fingerprint == self.fingerprint && source.bytes == self.bytes;
        if !alike || !source.is_resident()? {
            return Ok(false);
        }
        // Held until the copy is known to whoever evicts the source.
        let mut there = source.lock();
        if there.loaded < source.bytes || !there.range.is_read_by(&self.gpu) {
            return Ok(false);
        }
        let copy = |from: usize, end: usize| {
            stream.copy_peer(
                (self.base + from as u64, &self.gpu),
                (source.base + from as u64, &source.gpu),
                end - from,
            )
        };
        self.load_by(copy, ends, stream)?;
        let over = Event::ordering(&self.gpu)?;
        over.record(stream)?;
        there.readers.retain(|event| !event.is_over().unwrap_or(true));
        there.readers.push(Arc::new(over));
        Ok(true)
    }

    fn load_by(
        &self,
        copy: impl Fn(usize, usize) -> Result<(), DriverError>,
        ends: &[usize],
        stream: &Stream,
    ) -> Result<(), ResidencyError> {
        self.gpu.bind()?;
        let mut state = self.lock();
        if state.loaded >= self.bytes {
            return Ok(());
        }
        let (free, total) = state.range.pool();
        let missing = state.range.missing(self.bytes);
        if missing > free {
            return Err(ResidencyError::Full { needed: missing, free, total });
        }
        let full = || ResidencyError::Full { needed: missing, free, total };
        let mut from = state.loaded;
        let mut first = true;
        for end in ends.iter().copied().chain(std::iter::once(self.bytes)) {
            let end = end.min(self.bytes);
            if end <= from {
                continue;
            }
            state.range.map(if first { end } else { self.bytes })?.ok_or_else(full)?;
            first = false;
            copy(from, end)?;
            let event = Event::ordering(&self.gpu)?;
            event.record(stream)?;
            state.groups.push((end, Arc::new(event)));
            from = end;
            state.loaded = end;
        }
        Ok(())
    }

    /// The event after which the first `bytes` have arrived; `None` when they have.
    pub(crate) fn arrival(&self, bytes: usize) -> Result<Option<Arc<Event>>, ResidencyError> {
        let mut state = self.lock();
        if bytes > state.loaded {
            let (free, total) = state.range.pool();
            return Err(ResidencyError::Full { needed: bytes - state.loaded, free, total });
        }
        // Groups arrive in order: those that are over need no event any more, but the last, which says how far they got.
        while state.groups.len() > 1 && state.groups[0].1.is_over()? {
            state.groups.remove(0);
        }
        let group = state.groups.iter().find(|(end, _)| *end >= bytes);
        match group {
            Some((_, event)) if !event.is_over()? => Ok(Some(event.clone())),
            _ => Ok(None),
        }
    }

    /// Ends of the groups in which they travel, when they were planned.
    pub(crate) fn planned(&self) -> Option<Vec<usize>> {
        self.lock().planned.clone()
    }

    pub(crate) fn plan(&self, ends: Vec<usize>) {
        self.lock().planned = Some(ends);
    }

    /// A run begins to use them.
    pub(crate) fn hold(&self) {
        self.lock().users += 1;
    }

    /// A run has ended.
    pub(crate) fn release(&self) {
        let mut state = self.lock();
        state.users = state.users.saturating_sub(1);
    }

    /// Gives device memory back, all but the first `kept` bytes.
    pub(crate) fn evict(&self, kept: usize) -> Result<(), ResidencyError> {
        let mut state = self.lock();
        if state.users > 0 {
            return Err(ResidencyError::Used(state.users));
        }
        state.settle()?;
        state.range.unmap(kept)?;
        state.loaded = if kept == 0 { 0 } else { state.range.resident().min(kept).min(state.loaded) };
        let loaded = state.loaded;
        state.groups.retain(|(end, _)| *end <= loaded);
        Ok(())
    }
}

impl State {
    /// Waits for copies that write or read them.
    fn settle(&mut self) -> Result<(), DriverError> {
        let last = self.groups.last().map(|(_, event)| event.clone());
        self.readers.drain(..).chain(last).try_for_each(|event| event.synchronize())
    }
}

impl Drop for Weights {
    fn drop(&mut self) {
        // Memory must not go while something is being copied. A device that fails here has lost it anyway.
        let _ = self.lock().settle();
    }
}

/// A model's weights as the device reads them, in ordinary memory.
#[derive(Debug)]
pub(crate) struct Packed {
    bytes: Vec<u8>,
    offsets: Vec<usize>,
    fingerprint: u64,
}

impl Packed {
    /// Packs the weights of a lowered graph.
    pub(crate) fn of(graph: &Graph, lowered: &Lowered) -> Self {
        let mut offsets = Vec::with_capacity(lowered.weights.len());
        let mut bytes = Vec::new();
        for weight in &lowered.weights {
            offsets.push(bytes.len());
            bytes.extend(pack(graph, weight));
            bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        }
        let fingerprint = contents(&bytes);
        Self { bytes, offsets, fingerprint }
    }
}

/// A word-wise hash of everything.
fn contents(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for word in bytes.chunks(8) {
        let mut padded = [0; 8];
        padded[..word.len()].copy_from_slice(word);
        hash = (hash ^ u64::from_le_bytes(padded)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 32;
    }
    hash
}
