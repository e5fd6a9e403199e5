//! KServe v2 over HTTP/1.1: routes, limits, statuses. What a request means is `kserve`'s, running it is the runtime's.
//!
//! ```text
//! listener ──connection cap, header timeout──▶ routes ──▶ body limits ──▶ kserve ──▶ Handle::submit ──▶ Ticket
//!                                                              a client that leaves drops its Ticket: cancelled
//! ```
//!
//! No path, file name or setting can be given over the network.

mod body;
mod catalog;
mod infer;
mod listen;
mod respond;
mod routes;
mod serving;
mod stream;

use crate::live::Handle;
use crate::metrics::Metrics;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

pub use catalog::Catalog;
pub use listen::{ListenError, Stop};
pub use serving::{Addresses, Drained, Serving, start};

/// What one server lets its clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// Largest request body, and largest tensors decoded from one.
    pub body_bytes: usize,
    /// Bodies held at once, in bytes; requests beyond it are answered 503.
    pub held_bytes: usize,
    /// Connections open at once; more wait to be accepted.
    pub connections: usize,
    /// Longest wait for a request's header, and for each next piece of its body.
    pub read_timeout: Duration,
    /// Longest time for a body as a whole.
    pub body_timeout: Duration,
    /// Longest wait for a client to read the next piece of its reply.
    pub write_timeout: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            body_bytes: 64 << 20,
            held_bytes: 1 << 30,
            connections: 1024,
            read_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(120),
            write_timeout: Duration::from_secs(30),
        }
    }
}

/// Everything the routes need. Cheap to clone.
#[derive(Clone)]
struct Front {
    inner: Arc<Inner>,
}

struct Inner {
    handle: Handle,
    catalog: Catalog,
    metrics: Arc<Metrics>,
    limits: HttpLimits,
    /// Pieces of `held_bytes` that are free.
    held: Arc<Semaphore>,
    stop: watch::Receiver<Stop>,
}

impl Front {
    fn new(
        handle: Handle,
        catalog: Catalog,
        metrics: Arc<Metrics>,
        limits: HttpLimits,
        stop: watch::Receiver<Stop>,
    ) -> Self {
        let held = Arc::new(Semaphore::new(body::pieces(limits.held_bytes)));
        Self { inner: Arc::new(Inner { handle, catalog, metrics, limits, held, stop }) }
    }
}

#[cfg(test)]
mod tests;
