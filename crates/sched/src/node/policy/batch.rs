//! Filling a batch, shared by every policy.

use crate::node::NodeWorld;
use vocab::{ModelId, RequestId};

/// Requests and their rows.
pub(super) struct Batch {
    pub(super) requests: Vec<RequestId>,
    pub(super) rows: u32,
}

/// The longest prefix of `order` that fits `rows_max`; the first request always goes in.
pub(super) fn fill(world: &NodeWorld, order: impl Iterator<Item = RequestId>, rows_max: u32) -> Batch {
    let mut batch = Batch { requests: Vec::new(), rows: 0 };
    for id in order {
        let rows = world.request(id).expect("a queued request has not ended").rows;
        let total = batch.rows.saturating_add(rows);
        if total > rows_max && !batch.requests.is_empty() {
            break;
        }
        batch.requests.push(id);
        batch.rows = total;
        if total >= rows_max {
            break;
        }
    }
    batch
}

/// The most rows a run of `model` may have.
pub(super) fn rows_max(world: &NodeWorld, model: ModelId) -> u32 {
    world.model(model).expect("a policy batches models it was shown").batch_max
}
