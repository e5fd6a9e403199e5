//! The listener: accepts connections up to a cap, gives each its timeouts, and stops gracefully.
//!
//! ```text
//! accepting ──Stop::drain──▶ idle connections close, busy ones finish their request ──limit──▶ the rest is cut
//! ```

use super::HttpLimits;
use super::stream::Timed;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// Largest request line and headers.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// Most headers of one request.
const HEADERS_MAX: usize = 100;
/// Time to write the last replies once everything must close.
const CLOSE_TIME: Duration = Duration::from_secs(1);
/// Pause after the system refused to accept, for example because no descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Why a port cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is not this machine's own, and there is no authentication yet.
    #[error(
        "{address} can be reached from other machines and there is no authentication yet; use 127.0.0.1, or allow it explicitly"
    )]
    Exposed {
        /// The address.
        address: SocketAddr,
    },
    /// The system refused.
    #[error("cannot listen on {address}; choose another port with --http-port")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// When to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Not yet.
    Serving,
    /// Accept nothing new, finish what runs.
    Drain,
    /// Tell those who still wait that nothing comes any more, and close.
    Now,
}

/// Opens `address`, whose port the system chooses when it is 0, and which must be a loopback address unless `exposed` allows others.
///
/// # Errors
/// When it is reachable from outside and that was not allowed, or the system refuses.
pub(super) async fn bind(
    address: SocketAddr,
    exposed: bool,
) -> Result<(TcpListener, SocketAddr), ListenError> {
    if !exposed && !address.ip().is_loopback() {
        return Err(ListenError::Exposed { address });
    }
    let refused = |source| ListenError::Bind { address, source };
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let chosen = listener.local_addr().map_err(refused)?;
    Ok((listener, chosen))
}

/// Serves `router` on `listener` until `stop` says otherwise and every connection has ended.
///
/// Connections idle in keep-alive close as soon as draining begins.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: HttpLimits,
    stop: watch::Receiver<Stop>,
) {
    let room = Arc::new(Semaphore::new(limits.connections));
    let mut accepting = stop.clone();
    while *accepting.borrow_and_update() == Stop::Serving {
        let next = async {
            let place = Arc::clone(&room).acquire_owned().await.expect("the semaphore is never closed");
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            changed = accepting.changed() => {
                // A sender that is gone can never stop the server: stop it now.
                if changed.is_err() { break }
                continue
            }
            next = next => next,
        };
        match accepted {
            Ok((stream, _)) => {
                let (router, stop) = (router.clone(), stop.clone());
                tokio::spawn(async move {
                    connection(stream, router, limits, stop).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    drop(room.acquire_many(all).await);
}

/// One connection, to its end.
async fn connection(stream: TcpStream, router: Router, limits: HttpLimits, mut stop: watch::Receiver<Stop>) {
    // Replies are written whole: waiting to fill packets would only delay them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot turn off packet delay");
    }
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.read_timeout)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(
            TokioIo::new(Timed::new(stream, limits.write_timeout)),
            TowerToHyperService::new(router),
        );
    let mut served = pin!(served);
    for stage in [Stop::Drain, Stop::Now] {
        tokio::select! {
            ended = served.as_mut() => return note(ended),
            // A sender that is gone counts as `Now`: nobody is left who could say it.
            _ = stop.wait_for(|stop| *stop == stage || *stop == Stop::Now) => served.as_mut().graceful_shutdown(),
        }
    }
    if let Ok(ended) = tokio::time::timeout(CLOSE_TIME, served).await {
        note(ended);
    }
}

fn note(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
