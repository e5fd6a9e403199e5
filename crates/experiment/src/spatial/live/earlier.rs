//! What a live world had seen of costs when a case began: the simulated one begins with the same.

use super::seen::Turns;
use sched::node::{Act, Event, ModelSpec};
use sim::Earlier;
use std::collections::{BTreeMap, VecDeque};
use vocab::{ModelId, PartitionId, RunId, Span, Time};

/// As many of the latest runs of one model, size and bucket as beliefs may rest on.
const LATEST: usize = 32;

/// By model, units of the part and bucket of rows.
type Latest = BTreeMap<(ModelId, Option<u32>, u32), VecDeque<Span>>;

/// The latest runs before each of `begins`, which ascend, with models numbered by their place among `specs`.
pub(super) fn before(
    turns: &Turns<'_>,
    (specs, units): (&[ModelSpec], &BTreeMap<PartitionId, u32>),
    whole: u32,
    begins: &[Time],
) -> Vec<Vec<Earlier>> {
    let mut latest = Latest::new();
    let mut open: BTreeMap<RunId, (ModelId, Option<u32>, u32, Span)> = BTreeMap::new();
    let mut found = Vec::with_capacity(begins.len());
    for (now, events, decisions) in turns {
        while begins.get(found.len()).is_some_and(|begin| begin <= now) {
            found.push(list(&latest));
        }
        for event in *events {
            match event {
                Event::RunParked { run, segments, .. } => {
                    if let Some(open) = open.get_mut(run) {
                        open.3 += segments.iter().copied().sum();
                    }
                }
                Event::RunFinished { run, segments } => {
                    let Some((model, share, rows, busy)) = open.remove(run) else { continue };
                    let known = latest.entry((model, share, rows)).or_default();
                    known.push_back(busy + segments.iter().copied().sum());
                    if known.len() > LATEST {
                        known.pop_front();
                    }
                }
                _ => {}
            }
        }
        for decision in *decisions {
            let Act::Start { run, model, partition, requests, .. } = &decision.act else { continue };
            let Some(place) = specs.iter().position(|spec| spec.id == *model) else { continue };
            let share = units.get(partition).copied().filter(|units| *units < whole);
            // Models and the requests of a batch, each of one row, are few.
            let small = |count| u32::try_from(count).unwrap_or(u32::MAX);
            let own = small(requests.len());
            let bucket = specs[place].costs.iter().map(|cost| cost.rows).find(|rows| *rows >= own);
            open.insert(*run, (ModelId(small(place)), share, bucket.unwrap_or(own), Span::ZERO));
        }
    }
    found.resize_with(begins.len(), || list(&latest));
    found
}

fn list(latest: &Latest) -> Vec<Earlier> {
    let runs = latest.iter().flat_map(|((model, share, rows), known)| {
        let (model, share, rows) = (*model, *share, *rows);
        known.iter().map(move |busy| Earlier { model, rows, share, busy: *busy })
    });
    runs.collect()
}
