//! Requests' inputs on the device before their runs begin. Whoever submits a request copies its rows into pinned memory,
//! from where the copy engine takes them to the device at once; a run then only puts them one behind the other. While
//! weights travel, which the copy engine serves in order, rows stay in pinned memory and the run fetches them from there.

use crate::buffer::class;
use crate::driver::{DriverError, Event, Function, Gpu, Pinned, Slab, Stream};
use engine::Staged;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Room on both sides, as much on the host as on the device, and the stream that joins them.
#[derive(Debug)]
pub(crate) struct Staging {
    gpu: Gpu,
    /// Rows travel on it.
    stream: Stream,
    room: Mutex<Room>,
    /// Where all places of the device lie.
    _device: Slab,
}

#[derive(Debug)]
struct Room {
    /// Never used: the end of the host's side, and where it begins on the device.
    rest: Pinned,
    next: u64,
    /// Used before, by size.
    free: BTreeMap<usize, Vec<Place>>,
}

/// Room for one request's rows.
#[derive(Debug)]
struct Place {
    host: Pinned,
    device: u64,
    /// The end of the latest copy to the device.
    there: Event,
}

/// A place may be this many times as large as what is put there.
const LARGER: usize = 4;

/// Rows of so many requests are put together by one launch.
const PIECES: usize = 32;

/// Blocks for each request's rows in such a launch.
const ROW_BLOCKS: u32 = 16;

/// Blocks that keep the link busy.
const LINK_BLOCKS: u32 = 128;

/// Copies inputs to where a run wants them.
#[derive(Debug)]
pub(crate) struct Copiers {
    pub(crate) one: Function,
    pub(crate) rows: Function,
}

impl Staging {
    pub(crate) fn new(gpu: &Gpu, bytes: usize) -> Result<Arc<Self>, DriverError> {
        let device = Slab::new(gpu, bytes)?;
        let room = Room { rest: Pinned::new(gpu, bytes)?, next: device.base(), free: BTreeMap::new() };
        let (gpu, stream) = (gpu.clone(), Stream::new(gpu, 0)?);
        Ok(Arc::new(Self { gpu, stream, room: Mutex::new(room), _device: device }))
    }

    fn lock(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for `bytes`; none while there is no room.
    fn place(&self, bytes: usize) -> Result<Option<Place>, DriverError> {
        let size = class(bytes);
        let mut room = self.lock();
        if let Some(place) = room.free.get_mut(&size).and_then(Vec::pop) {
            return Ok(Some(place));
        }
        if let Some(host) = room.rest.cut(size) {
            let device = room.next;
            room.next += size as u64;
            return Ok(Some(Place { host, device, there: Event::ordering(&self.gpu)? }));
        }
        Ok(room.free.range_mut(size..=LARGER * size).find_map(|(_, places)| places.pop()))
    }

    /// Takes rows in, and sends them on unless weights are on the way on `busy`. `None` while there is no room.
    pub(crate) fn stage(
        self: &Arc<Self>,
        rows: &[u8],
        busy: &Stream,
    ) -> Result<Option<CudaStaged>, DriverError> {
        self.gpu.bind()?;
        let Some(place) = self.place(rows.len())? else { return Ok(None) };
        // Given back also when something fails.
        let mut staged =
            CudaStaged { place: Some(place), bytes: rows.len(), sent: false, staging: self.clone() };
        let Some(place) = &mut staged.place else { return Ok(None) };
        place.host.bytes_mut()[..rows.len()].copy_from_slice(rows);
        if busy.is_idle()? {
            self.stream.upload(place.device, place.host.address(), rows.len())?;
            place.there.record(&self.stream)?;
            staged.sent = true;
        }
        Ok(Some(staged))
    }
}

/// One request's rows of one input.
#[derive(Debug)]
pub(crate) struct CudaStaged {
    /// Present until dropped.
    place: Option<Place>,
    bytes: usize,
    /// Whether they are on the device or on their way.
    sent: bool,
    staging: Arc<Staging>,
}

impl Drop for CudaStaged {
    fn drop(&mut self) {
        // A copy to the device may still be on its way; the next one into this place is behind it in the same stream.
        if let Some(place) = self.place.take() {
            let size = place.host.bytes().len();
            self.staging.lock().free.entry(size).or_default().push(place);
        }
    }
}

impl Staged for CudaStaged {
    fn bytes(&self) -> &[u8] {
        self.place.as_ref().map_or(&[], |place| &place.host.bytes()[..self.bytes])
    }
}

impl CudaStaged {
    /// Where the device of `stream` reads them; it waits until they are there. Another device reads them from the host.
    fn source(&self, stream: &Stream) -> Result<u64, DriverError> {
        let here = self.sent && stream.gpu().device() == self.staging.gpu.device();
        match &self.place {
            Some(place) if here => stream.wait(&place.there).map(|()| place.device),
            Some(place) => Ok(place.host.address() as u64),
            None => Ok(0),
        }
    }
}

/// Enqueues what puts the rows of several requests one behind the other at `to`, and zeros from there to `end`.
pub(crate) fn put(
    all: &[Arc<CudaStaged>],
    (mut to, end): (u64, u64),
    copiers: &Copiers,
    stream: &Stream,
) -> Result<(), DriverError> {
    let bytes = all.first().map_or(0, |first| first.bytes);
    let alike = bytes.is_multiple_of(16) && bytes > 0 && all.iter().all(|one| one.bytes == bytes);
    if alike && to.is_multiple_of(16) {
        for several in all.chunks(PIECES) {
            let mut from = [0u64; PIECES];
            for (place, one) in from.iter_mut().zip(several) {
                *place = one.source(stream)?;
            }
            let mut words = (bytes / 16) as u64;
            let count = u32::try_from(several.len()).unwrap_or(u32::MAX);
            let blocks = u32::try_from(words.div_ceil(256)).unwrap_or(u32::MAX).min(ROW_BLOCKS);
            let mut arguments = [from.as_mut_ptr().cast(), (&raw mut to).cast(), (&raw mut words).cast()];
            stream.launch_with(&copiers.rows, [blocks, count, 1], 256, &mut arguments)?;
            to += (bytes * several.len()) as u64;
        }
    } else {
        for one in all {
            let from = one.source(stream)?;
            if to.is_multiple_of(16) {
                // What this writes beyond the rows belongs to the next, or is cleared, or nobody's.
                fetch((from, to), one.bytes, copiers, stream)?;
            } else {
                stream.copy(to, from, one.bytes)?;
            }
            to += one.bytes as u64;
        }
    }
    if to < end { stream.clear(to, usize::try_from(end - to).unwrap_or(0)) } else { Ok(()) }
}

/// Enqueues a copy by the multiprocessors, in words of 16 bytes: it may read and write up to 15 bytes more.
pub(crate) fn fetch(
    (from, to): (u64, u64),
    bytes: usize,
    copiers: &Copiers,
    stream: &Stream,
) -> Result<(), DriverError> {
    let words = bytes.div_ceil(16);
    if words == 0 {
        return Ok(());
    }
    let blocks = u32::try_from(words.div_ceil(256)).unwrap_or(u32::MAX).min(LINK_BLOCKS);
    stream.launch(&copiers.one, [blocks, 1, 1], 256, &[from, to, words as u64])
}
