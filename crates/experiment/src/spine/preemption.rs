//! A high-class network beside a saturating low-class batch network on one core, under three policies: what its p99 is,
//! against its time alone plus the other's longest segment.

use super::Settings;
use super::live::{Live, ask, submission, waiter};
use crate::bars::Bars;
use crate::statistics::{median, quantile, ratio, spread_ms};
use crate::{host, plot};
use sched::journal::Record;
use sched::node::policy::Choice;
use sched::node::{Act, Decision, Event};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vocab::{Rng, RunId, Span};

const LIMIT: f64 = 1.3;
const HIGH: u32 = 1;
const LOW: u32 = 3;

/// What one policy gave.
struct Outcome {
    high: Vec<Span>,
    low_runs: usize,
    longest_segment: Span,
}

pub(super) fn run(folder: &Path, settings: &Settings, bars: &mut Bars) -> anyhow::Result<()> {
    let alone = measure(settings, "windows", 0, settings.high_requests)?.high;
    bars.note(&format!(
        "{} alone: {}, p99 {}",
        settings.high_model,
        spread_ms(&alone),
        quantile(&alone, 990)
    ));
    let mut curves = vec![("alone".to_owned(), milliseconds(&alone))];
    let mut rows: Vec<String> = alone.iter().map(|span| format!("alone,{}", span.ns())).collect();
    for name in ["windows", "fifo", "timeslice"] {
        let requests = if name == "windows" { settings.high_requests } else { settings.rival_requests };
        let Outcome { high, low_runs, longest_segment } =
            measure(settings, name, settings.low_clients, requests)?;
        let p99 = quantile(&high, 990);
        let allowed = median(&alone) + longest_segment;
        let what = format!("high-class p99 under {name} / (alone + longest segment)");
        let value = ratio(p99, allowed);
        if name == "windows" {
            bars.at_most(&what, value, LIMIT, "×");
        } else {
            bars.note(&format!("{what}: {value:.3}×"));
        }
        bars.note(&format!(
            "{name}: high {}, p99 {p99}; alone {}, longest low segment {longest_segment}; {low_runs} low runs",
            spread_ms(&high),
            median(&alone)
        ));
        rows.extend(high.iter().map(|span| format!("{name},{}", span.ns())));
        curves.push((name.to_owned(), milliseconds(&high)));
    }
    host::csv(&folder.join("preemption.csv"), "policy,latency_ns", rows.into_iter())?;
    let title =
        format!("{} beside saturating {} ×{}", settings.high_model, settings.low_model, settings.low_rows);
    plot::distributions(&folder.join("preemption.svg"), &title, &curves)
}

fn milliseconds(spans: &[Span]) -> Vec<f64> {
    spans.iter().map(|span| span.as_ms_f64()).collect()
}

/// High requests at random times beside `low_clients` that keep the partition busy.
fn measure(
    settings: &Settings,
    policy: &str,
    low_clients: usize,
    requests: usize,
) -> anyhow::Result<Outcome> {
    let choice = Choice::named(policy).expect("the policies measured exist");
    let networks = [settings.high_model.as_str(), settings.low_model.as_str()];
    let live = Live::start(&networks, settings.core, settings.low_rows, &choice)?;
    let handle = live.handle();
    let stop = AtomicBool::new(false);
    let high = std::thread::scope(|scope| {
        let low = |_| {
            scope.spawn(|| -> anyhow::Result<()> {
                let tokio = waiter()?;
                while !stop.load(Ordering::Relaxed) {
                    ask(&tokio, &handle, submission(&handle, &settings.low_model, settings.low_rows, LOW)?)?;
                }
                Ok(())
            })
        };
        let low: Vec<_> = (0..low_clients).map(low).collect();
        let high = high_requests(settings, &handle, requests);
        stop.store(true, Ordering::Relaxed);
        for thread in low {
            thread.join().map_err(|_| anyhow::anyhow!("a low client panicked"))??;
        }
        high
    })?;
    let records = live.stop()?;
    let (low_runs, longest_segment) = low_segments(&records, settings);
    Ok(Outcome { high, low_runs, longest_segment })
}

fn high_requests(
    settings: &Settings,
    handle: &server::live::Handle,
    requests: usize,
) -> anyhow::Result<Vec<Span>> {
    let tokio = waiter()?;
    let mut rng = Rng::new(5);
    let mut spans = Vec::with_capacity(requests);
    for request in 0..requests + 3 {
        let gap = settings.high_gap_ms as f64 / 1e3 * rng.exponential();
        std::thread::sleep(Duration::from_secs_f64(gap));
        let span = ask(&tokio, handle, submission(handle, &settings.high_model, 1, HIGH)?)?;
        // The first few warm caches up.
        if request >= 3 {
            spans.push(span);
        }
    }
    Ok(spans)
}

/// Finished low runs, and the longest of their segments: each segment by its median over all runs, parked ones included.
fn low_segments(records: &[Record<Event, Decision>], settings: &Settings) -> (usize, Span) {
    let mut low = None;
    let mut next: BTreeMap<RunId, usize> = BTreeMap::new();
    let mut samples: BTreeMap<usize, Vec<Span>> = BTreeMap::new();
    let mut finished = 0;
    let mut take = |begin: usize, segments: &[Span]| {
        for (place, span) in segments.iter().enumerate() {
            samples.entry(begin + place).or_default().push(*span);
        }
    };
    for record in records {
        for event in &record.events {
            match event {
                Event::ModelAdded { spec } if spec.name == settings.low_model => low = Some(spec.id),
                Event::RunParked { run, segments, .. } => {
                    if let Some(begin) = next.get_mut(run) {
                        take(*begin, segments);
                        *begin += segments.len();
                    }
                }
                Event::RunFinished { run, segments } => {
                    if let Some(begin) = next.remove(run) {
                        take(begin, segments);
                        finished += 1;
                    }
                }
                _ => {}
            }
        }
        for decision in &record.decisions {
            if let Act::Start { run, model, .. } = decision.act
                && Some(model) == low
            {
                next.insert(run, 0);
            }
        }
    }
    (finished, samples.values().map(|spans| median(spans)).max().unwrap_or(Span::ZERO))
}
