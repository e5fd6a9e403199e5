//! Duty cycles, shared by the policies that plan whole batches in turns: how many rows each model takes a turn, and how
//! long a turn of all of them is (Nexus, SOSP 2019, section 6.1 in our reading: squishy bin packing on one node).

use super::starts::promise;
use crate::node::NodeWorld;
use vocab::{ModelId, Span, Time};

/// A model's place in a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) model: ModelId,
    /// Rows a batch.
    pub(super) rows: u32,
    /// Time of the batch.
    pub(super) time: Span,
}

/// Turns of `models` on a part of `share` units, and the length of the cycle. A model's cycle is as long as its batch takes
/// to gather; all of them take the shortest, with batches to match.
pub(super) fn cycle(
    now: Time,
    world: &NodeWorld,
    models: &[ModelId],
    share: Option<u32>,
) -> (Vec<Turn>, Span) {
    let alone = |model: ModelId| {
        let (costs, within) = (world.costs(model), promise(world, model));
        let limit = super::batch::rows_max(world, model);
        let gap = world.row_gap(now, model).unwrap_or(Span::ZERO);
        let sizes = || costs.bucket_sizes().map(|rows| rows.min(limit));
        // Gathering the batch and running it must fit the promise.
        let fits = |rows: &u32| gap * u64::from(rows.saturating_sub(1)) + costs.of_on(*rows, share) <= within;
        let rows = sizes().filter(fits).max().unwrap_or(1);
        let time = costs.of_on(rows, share);
        let gathered = gap * u64::from(rows);
        let duty = (within - time).min(gathered.max(time));
        (Turn { model, rows, time }, duty)
    };
    let turns: Vec<(Turn, Span)> = models.iter().map(|model| alone(*model)).collect();
    let Some(shortest) = turns.iter().map(|(_, duty)| *duty).min() else { return (Vec::new(), Span::ZERO) };
    let matched = |(turn, _): &(Turn, Span)| {
        let costs = world.costs(turn.model);
        let gap = world.row_gap(now, turn.model).unwrap_or(Span::ZERO);
        let needed = shortest
            .ns()
            .checked_div(gap.ns())
            .map_or(turn.rows, |rows| u32::try_from(rows + 1).unwrap_or(u32::MAX).min(turn.rows.max(1)));
        let rows = costs.bucket_rows(needed.max(1)).min(super::batch::rows_max(world, turn.model));
        Turn { rows, time: costs.of_on(rows, share), ..*turn }
    };
    let turns: Vec<Turn> = turns.iter().map(matched).collect();
    let all: Span = turns.iter().map(|turn| turn.time).sum();
    (turns, shortest.max(all))
}
