//! Reads request bodies: bounded each, bounded all together, and never for longer than the client keeps sending.
//!
//! Memory grows with the bytes that arrive; a claimed length alone reserves nothing.

use super::respond::Failure;
use super::{HttpLimits, Inner};
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, StatusCode, header};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Bytes of `held_bytes` that are counted together.
const PIECE: usize = 64 << 10;
/// After a body that is too large, so much more is read and thrown away that the client gets to see the reply.
const DISCARD_MAX: usize = 256 << 20;
/// And for no longer than this.
const DISCARD_TIME: Duration = Duration::from_secs(5);

/// A body, and its place in the memory of all bodies, which it keeps until dropped.
pub(super) struct Held {
    pub(super) bytes: Bytes,
    _place: Option<OwnedSemaphorePermit>,
}

/// Pieces that `bytes` take.
pub(super) fn pieces(bytes: usize) -> usize {
    bytes.div_ceil(PIECE).min(Semaphore::MAX_PERMITS)
}

/// Reads the whole body.
pub(super) async fn read(front: &Inner, headers: &HeaderMap, mut body: Body) -> Result<Held, Failure> {
    let limits = front.limits;
    let encoding = headers.get(header::CONTENT_ENCODING).map(|value| value.as_bytes());
    if encoding.is_some_and(|encoding| !encoding.is_empty() && encoding != b"identity") {
        let error = "compressed request bodies are not taken yet; send the body without Content-Encoding";
        discard(&mut body).await;
        return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error));
    }
    let claimed = body.size_hint().lower();
    if claimed > u64::try_from(limits.body_bytes).unwrap_or(u64::MAX) {
        discard(&mut body).await;
        return Err(too_large(limits));
    }
    match timeout(limits.body_timeout, collect(front, limits, &mut body)).await {
        Ok(Ok(held)) => Ok(held),
        Ok(Err(failure)) => {
            if matches!(failure.status, StatusCode::PAYLOAD_TOO_LARGE | StatusCode::SERVICE_UNAVAILABLE) {
                discard(&mut body).await;
            }
            Err(failure)
        }
        Err(_) => Err(too_slow(limits.body_timeout)),
    }
}

async fn collect(front: &Inner, limits: HttpLimits, body: &mut Body) -> Result<Held, Failure> {
    let mut place: Option<OwnedSemaphorePermit> = None;
    let (mut first, mut joined) = (Bytes::new(), Vec::new());
    loop {
        let frame = timeout(limits.read_timeout, poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx))).await;
        let frame = frame.map_err(|_| too_slow(limits.read_timeout))?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| {
            Failure::new(StatusCode::BAD_REQUEST, format!("the request body cannot be read: {error}"))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        let total = first.len() + joined.len() + data.len();
        if total > limits.body_bytes {
            return Err(too_large(limits));
        }
        grow(&front.held, &mut place, total)?;
        if first.is_empty() && joined.is_empty() {
            first = data;
            continue;
        }
        if joined.is_empty() {
            joined.extend_from_slice(&std::mem::take(&mut first));
        }
        joined.extend_from_slice(&data);
    }
    let bytes = if joined.is_empty() { first } else { Bytes::from(joined) };
    Ok(Held { bytes, _place: place })
}

/// Makes `place` large enough for `total` bytes.
fn grow(
    held: &Arc<Semaphore>,
    place: &mut Option<OwnedSemaphorePermit>,
    total: usize,
) -> Result<(), Failure> {
    let have = place.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
    let missing = u32::try_from(pieces(total).saturating_sub(have)).unwrap_or(u32::MAX);
    if missing == 0 {
        return Ok(());
    }
    let more = Arc::clone(held).try_acquire_many_owned(missing).map_err(|_| {
        let error = "the server holds as many request bytes as it may; retry later";
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, error)
    })?;
    match place {
        Some(place) => place.merge(more),
        None => *place = Some(more),
    }
    Ok(())
}

/// Reads on without keeping anything, so that a client still sending gets to read the reply.
pub(super) async fn discard(body: &mut Body) {
    let mut left = DISCARD_MAX;
    let reading = async {
        while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            let Some(rest) = left.checked_sub(length) else { return };
            left = rest;
        }
    };
    // Running out of time only means that the connection is closed with the reply.
    let _ = timeout(DISCARD_TIME, reading).await;
}

fn too_large(limits: HttpLimits) -> Failure {
    let error = format!(
        "the request body is larger than {} bytes; send fewer rows or raise --http-max-input-size",
        limits.body_bytes
    );
    Failure::new(StatusCode::PAYLOAD_TOO_LARGE, error)
}

fn too_slow(limit: Duration) -> Failure {
    let error = format!("the request body did not arrive within {} s", limit.as_secs());
    Failure::new(StatusCode::REQUEST_TIMEOUT, error)
}
