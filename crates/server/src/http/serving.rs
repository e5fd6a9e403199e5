//! Starts the listeners of one server and takes them down again.
//!
//! ```text
//! start ──▶ Serving ──drain──▶ not ready at once, no new connection, running requests end ──limit──▶ 503 for the rest
//! ```

use super::listen::{ListenError, Stop, bind, serve};
use super::routes::{metrics_router, router};
use super::{Catalog, Front, HttpLimits};
use crate::live::Handle;
use crate::metrics::Metrics;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Where to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// For everything; port 0 lets the system choose.
    pub http: SocketAddr,
    /// For `/metrics` alone, besides.
    pub metrics: Option<SocketAddr>,
    /// Whether addresses other than loopback are allowed, although nobody is asked who they are.
    pub exposed: bool,
}

/// A server that listens. Dropping it closes everything at once.
pub struct Serving {
    /// Where it listens, ports the system chose included.
    pub addresses: Addresses,
    handle: Handle,
    stop: watch::Sender<Stop>,
    tasks: JoinSet<()>,
}

/// How a server went down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Requests still running when time was up; their clients were told so.
    pub cut: usize,
}

/// Listens on `addresses` and serves the models behind `handle`, configured as `catalog` says.
///
/// # Errors
/// When an address cannot be listened on, or is reachable from outside and that was not allowed.
pub async fn start(
    addresses: Addresses,
    limits: HttpLimits,
    handle: Handle,
    catalog: Catalog,
    metrics: Arc<Metrics>,
) -> Result<Serving, ListenError> {
    let (stop, stopping) = watch::channel(Stop::Serving);
    let (http, http_address) = bind(addresses.http, addresses.exposed).await?;
    let own = match addresses.metrics {
        Some(address) => Some(bind(address, addresses.exposed).await?),
        None => None,
    };
    let metrics_address = own.as_ref().map(|(_, address)| *address);
    let addresses = Addresses { http: http_address, metrics: metrics_address, ..addresses };
    let front = Front::new(handle.clone(), catalog, metrics, limits, stopping.clone());
    let mut tasks = JoinSet::new();
    if let Some((listener, _)) = own {
        tasks.spawn(serve(listener, metrics_router(front.clone()), limits, stopping.clone()));
    }
    tasks.spawn(serve(http, router(front), limits, stopping));
    Ok(Serving { addresses, handle, stop, tasks })
}

impl Serving {
    /// Stops taking requests, waits up to `limit` for those that run, then tells the rest and closes.
    pub async fn drain(mut self, limit: Duration) -> Drained {
        self.handle.drain();
        self.stop.send_replace(Stop::Drain);
        let ending = async { while self.tasks.join_next().await.is_some() {} };
        let in_time = timeout(limit, ending).await.is_ok();
        let cut = if in_time { 0 } else { self.handle.in_flight() };
        self.stop.send_replace(Stop::Now);
        while self.tasks.join_next().await.is_some() {}
        Drained { cut }
    }
}
