//! What one turn costs with 1,000 requests waiting for 50 models, on every policy: the run on the only partition has just
//! finished, so that the policy must choose, and as many requests arrive as it chooses.

use super::Settings;
use crate::bars::Bars;
use crate::host;
use crate::statistics::{quantile, spread_ms};
use sched::node::policy::Choice;
use sched::node::{Act, BucketCost, Event, ModelSpec, NodeWorld, PartCosts, Promise};
use std::path::Path;
use std::time::Instant;
use vocab::{Class, ModelId, PartitionId, Request, RequestId, Rng, Span, Time};

const MODELS: u32 = 50;
const WAITING: u64 = 1_000;
const LIMIT_US: f64 = 100.0;

pub(super) fn run(folder: &Path, settings: &Settings, bars: &mut Bars) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for name in Choice::NAMES {
        let spans = measure(name, settings.turns);
        let median_us = quantile(&spans, 500).ns() as f64 / 1e3;
        bars.at_most(&format!("turn under {name}, median"), median_us, LIMIT_US, " µs");
        let p99_us = quantile(&spans, 990).ns() as f64 / 1e3;
        bars.note(&format!("turn under {name}: p99 {p99_us:.1} µs, {}", spread_ms(&spans)));
        rows.extend(spans.iter().map(|span| format!("{name},{}", span.ns())));
    }
    host::csv(&folder.join("turns.csv"), "policy,turn_ns", rows.into_iter())
}

fn measure(name: &str, turns: usize) -> Vec<Span> {
    let mut rng = Rng::new(1);
    let mut world = NodeWorld::new();
    let mut policy = Choice::named(name).expect("the names are the policies").build();
    let mut events = vec![Event::PartitionAdded { partition: PartitionId(0), name: "p0".into() }];
    events.extend((0..MODELS).map(|id| Event::ModelAdded { spec: spec(id) }));
    let mut next = 0;
    let mut arrive = |now: Time, next: &mut u64| {
        let id = RequestId(*next);
        *next += 1;
        let model = ModelId(u32::try_from(rng.below(u64::from(MODELS))).expect("it is below 50"));
        let class =
            Class::new(1 + u32::try_from(rng.below(3)).expect("it is below 3")).expect("it is above 0");
        // Far enough that nothing is refused: refusals would make the queue, and the turn, smaller.
        let deadline = (rng.below(2) == 0).then(|| now + Span::from_ms(100_000 + rng.below(100_000)));
        Event::RequestArrived { request: Request { id, model, class, rows: 1, arrival: now, deadline } }
    };
    events.extend((0..WAITING).map(|_| arrive(Time::ZERO, &mut next)));
    let mut now = Time::ZERO;
    let mut spans = Vec::with_capacity(turns);
    for turn in 0..=turns {
        let begin = Instant::now();
        let outcome = sched::turn(&mut world, &mut *policy, now, &events);
        // The first turn takes 1,000 arrivals; it is the set-up.
        if turn > 0 {
            spans.push(Span::from(begin.elapsed()));
        }
        assert!(outcome.refused.is_empty(), "{:?}", outcome.refused);
        now += Span::from_us(500);
        events.clear();
        for decision in outcome.accepted {
            if let Act::Start { run, requests, .. } = decision.act {
                sched::turn(&mut world, &mut *policy, now, &[Event::RunStarted { run }]);
                now += Span::from_us(500);
                events.push(Event::RunFinished { run, segments: vec![Span::from_us(500)] });
                events.extend(requests.iter().map(|_| arrive(now, &mut next)));
            }
        }
        assert!(!events.is_empty(), "{name} chose nothing though everything waits");
    }
    spans
}

fn spec(id: u32) -> ModelSpec {
    let bucket =
        |rows: u32| BucketCost { rows, segments: vec![Span::from_us(200 + 40 * u64::from(rows)); 8] };
    ModelSpec {
        id: ModelId(id),
        name: format!("m{id}"),
        class: Class::FIRST,
        batch_max: 8,
        queue_delay: Span::ZERO,
        queue_max: 0,
        costs: [1, 2, 4, 8].map(bucket).to_vec(),
        parts: PartCosts::default(),
        promise: Promise::default(),
    }
}
