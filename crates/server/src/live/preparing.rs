//! Requests whose programs are still being prepared. The scheduler does not know them yet, so whoever waits for their
//! answer keeps their deadline. Who takes such a request first decides how it goes on.
//!
//! ```text
//! submitted ──Taker::Loader──▶ the scheduler has it        ──Taker::Deadline──▶ dropped
//!                                                          ──Taker::Client────▶ cancelled
//! ```

use std::sync::{Arc, OnceLock};
use std::time::Instant;
use vocab::Span;

/// Who took a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taker {
    /// The loader, because its programs are ready or cannot be made.
    Loader,
    /// Its deadline.
    Deadline,
    /// Its client, by leaving.
    Client,
}

/// Shared by a request's ticket and the loader.
#[derive(Clone, Debug, Default)]
pub(super) struct Claim(Arc<OnceLock<Taker>>);

impl Claim {
    /// Takes the request; false when somebody was first.
    pub(super) fn take(&self, taker: Taker) -> bool {
        self.0.set(taker).is_ok()
    }

    pub(super) fn taker(&self) -> Option<Taker> {
        self.0.get().copied()
    }
}

/// A deadline as the ticket keeps it.
#[derive(Clone, Debug)]
pub(super) struct Preparing {
    pub(super) claim: Claim,
    /// When it passes and how long after arrival that is; `None` when it never does.
    pub(super) due: Option<(Instant, Span)>,
}

impl Preparing {
    /// A request that arrives now.
    pub(super) fn new(timeout: Option<Span>) -> Self {
        let due = |timeout: Span| Some((Instant::now().checked_add(timeout.into())?, timeout));
        Self { claim: Claim::default(), due: timeout.and_then(due) }
    }

    /// Waits until the deadline has passed and nobody else had taken the request; the reason for its client.
    pub(super) async fn expired(&self) -> String {
        if let Some((at, timeout)) = self.due {
            tokio::time::sleep_until(at.into()).await;
            if self.claim.take(Taker::Deadline) {
                return format!(
                    "its deadline passed {timeout} after its arrival, while programs for shapes not asked for before \
                     were being prepared; ask again soon"
                );
            }
        }
        std::future::pending().await
    }
}
