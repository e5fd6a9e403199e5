//! The ideal that D-STACK is measured against (in our reading): a run may stop after every segment, every segment has its
//! own knee, and at each instant those ready segments run that together fill most of the device. Needs a device that
//! changes parts at no cost: a bound for the simulator. So that it is one where more is asked than can be done, a run begins
//! only if the unit-time of all that were begun still suffices for their deadlines, and what was begun goes first.

use super::starts::{Point, Sizes, Starts, next_hopeless, optimum, units_of};
use crate::Policy;
use crate::node::{Decision, NodeWorld, Run, RunState, Why};
use vocab::{ModelId, PartitionId, RequestId, RunId, Span, Time};

/// Ready segments of which every combination is tried; those beyond are filled in by deadline.
const COMBINED_MAX: usize = 12;

/// Exhaustive choice among ready segments.
#[derive(Clone, Debug, Default)]
pub struct Ideal {
    next: Option<Time>,
}

/// Something that could run now.
#[derive(Clone, Debug)]
struct Ready {
    model: ModelId,
    deadline: Time,
    /// The run that goes on, or the requests that begin one.
    work: Work,
    segment: u32,
    units: u32,
}

#[derive(Clone, Debug)]
enum Work {
    Resume(RunId),
    Start(Vec<RequestId>),
}

/// The size of part at which a segment makes most of its units: the least time squared times units.
fn knee(world: &NodeWorld, sizes: &Sizes, model: ModelId, rows: u32, segment: u32) -> u32 {
    let costs = world.costs(model);
    let point = |units: u32| {
        let time = costs.span_of(rows, segment, segment + 1, sizes.share(units));
        Point { rows, units, time }
    };
    let points = sizes.open_to(world, model).into_iter().map(point);
    points.max_by(|a, b| a.efficacy().total_cmp(&b.efficacy())).map_or(sizes.whole, |point| point.units)
}

/// Unit-time that a run of `rows` rows needs from `segment` on, every segment at its knee, and its time.
fn work(world: &NodeWorld, sizes: &Sizes, model: ModelId, rows: u32, segment: u32) -> (u128, Span) {
    let costs = world.costs(model);
    let (mut work, mut time) = (0, Span::ZERO);
    for at in segment..costs.segments() {
        let units = knee(world, sizes, model, rows, at);
        let span = costs.span_of(rows, at, at + 1, sizes.share(units));
        work += u128::from(span.ns()) * u128::from(units);
        time += span;
    }
    (work, time)
}

/// Whether the device has unit-time enough for all runs, each before its deadline, one more included.
fn suffices(starts: &Starts<'_>, sizes: &Sizes, extra: (Time, u128)) -> bool {
    let left = |run: &Run| {
        let all = work(starts.world, sizes, run.model, run.rows, run.next_segment).0;
        (run.deadline.unwrap_or(Time::FOREVER), all)
    };
    let mut due: Vec<(Time, u128)> = starts.world.runs().map(left).chain([extra]).collect();
    due.sort_unstable();
    let mut sum = 0u128;
    due.into_iter().all(|(deadline, work)| {
        sum += work;
        sum <= u128::from(deadline.since(starts.now).ns()) * u128::from(sizes.whole)
    })
}

fn ready(starts: &Starts<'_>, sizes: &Sizes) -> Vec<Ready> {
    let world = starts.world;
    let mut found = Vec::new();
    for run in world.runs().filter(|run| matches!(run.state, RunState::Parked { .. })) {
        found.push(Ready {
            model: run.model,
            deadline: run.deadline.unwrap_or(Time::FOREVER),
            work: Work::Resume(run.id),
            segment: run.next_segment,
            units: knee(world, sizes, run.model, run.rows, run.next_segment),
        });
    }
    for spec in world.models() {
        let best = optimum(starts.now, world, spec.id, sizes);
        // A model with a run under way begins another only with a full batch.
        if starts.rows(spec.id) == 0 || (starts.is_active(spec.id) && starts.rows(spec.id) < best.rows) {
            continue;
        }
        let (needs, time) = work(world, sizes, spec.id, best.rows, 0);
        let (requests, rows) = starts.batch_until(spec.id, best.rows, starts.now + time);
        let deadline = requests.iter().filter_map(|id| world.request(*id)?.deadline).min();
        if requests.is_empty() || !suffices(starts, sizes, (deadline.unwrap_or(Time::FOREVER), needs)) {
            continue;
        }
        found.push(Ready {
            model: spec.id,
            deadline: deadline.unwrap_or(Time::FOREVER),
            work: Work::Start(requests),
            segment: 0,
            units: knee(world, sizes, spec.id, rows, 0),
        });
    }
    found.sort_by_key(|ready| (ready.deadline, ready.model, ready.segment));
    found
}

/// The combination that fills most of `free` units; among equals the one with the earliest deadlines.
fn choose(ready: &[Ready], free: u32) -> Vec<usize> {
    let tried = ready.len().min(COMBINED_MAX);
    let mut best = (0u32, 0u32);
    for code in 0u32..1 << tried {
        let units: u32 = (0..tried).filter(|at| code >> at & 1 == 1).map(|at| ready[at].units).sum();
        // Bits count from the earliest deadline, so of two equal sums the reversed number that is greater holds earlier ones.
        let rank = code.reverse_bits();
        if units <= free && (units, rank) > best {
            best = (units, rank);
        }
    }
    let code = best.1.reverse_bits();
    let mut chosen: Vec<usize> = (0..tried).filter(|at| code >> at & 1 == 1).collect();
    let mut left = free - best.0;
    for (at, more) in ready.iter().enumerate().skip(tried) {
        if more.units <= left {
            left -= more.units;
            chosen.push(at);
        }
    }
    chosen
}

impl Policy<NodeWorld> for Ideal {
    fn name(&self) -> &'static str {
        "ideal"
    }

    fn decide(&mut self, now: Time, world: &NodeWorld) -> Vec<Decision> {
        let sizes = Sizes::of(world);
        let mut starts = Starts::new(now, world);
        starts.reject_hopeless();
        self.next = next_hopeless(now, world);
        let Some(any) = world.partitions().map(|(id, _)| id).next() else { return starts.decisions };
        loop {
            let free = sizes.whole.saturating_sub(starts.parts.units_held(any));
            let ready = ready(&starts, &sizes);
            let resumed = |run: &RunId| starts.decisions.iter().any(|decision| names(decision, *run));
            let ready: Vec<Ready> = ready
                .into_iter()
                .filter(|ready| !matches!(&ready.work, Work::Resume(run) if resumed(run)))
                .collect();
            let mut progress = false;
            // What was begun goes first; where a combination does not fit as the parts lie, others may.
            let (begun, fresh): (Vec<Ready>, Vec<Ready>) =
                ready.into_iter().partition(|ready| matches!(ready.work, Work::Resume(_)));
            let first = choose(&begun, free);
            let spent: u32 = first.iter().map(|at| begun[*at].units).sum();
            let second = choose(&fresh, free - spent);
            let chosen: Vec<usize> =
                first.into_iter().chain(second.into_iter().map(|at| at + begun.len())).collect();
            let ready: Vec<Ready> = begun.into_iter().chain(fresh).collect();
            let others: Vec<usize> = (0..ready.len()).filter(|at| !chosen.contains(at)).collect();
            for at in chosen.into_iter().chain(others) {
                let Ready { model, ref work, segment, units, .. } = ready[at];
                let reached = |id: PartitionId| match work {
                    Work::Resume(run) => starts.reaches(*run, id),
                    Work::Start(_) => true,
                };
                let fits = |id: &PartitionId| {
                    units_of(world, *id, &sizes) == units
                        && reached(*id)
                        && starts.parts.is_alone(*id)
                        && starts.may_begin(model, *id)
                };
                let partition =
                    starts.parts.idle().filter(fits).min_by_key(|id| starts.parts.idle_beside(*id));
                let Some(partition) = partition else { continue };
                let why = Why::Fills { units };
                let run = match work {
                    Work::Resume(run) => {
                        starts.resume(*run, partition, &why);
                        *run
                    }
                    Work::Start(requests) => starts.start(model, partition, requests.clone(), why.clone()),
                };
                starts.until(model, run, segment + 1, &why);
                progress = true;
            }
            if !progress {
                return starts.decisions;
            }
        }
    }

    fn wake(&self, now: Time) -> Option<Time> {
        self.next.filter(|at| *at > now)
    }
}

fn names(decision: &Decision, run: RunId) -> bool {
    matches!(decision.act, crate::node::Act::Resume { run: known } if known == run)
}
