//! The ideal that D-STACK is measured against (in our reading): a run may stop after every segment, every segment has its
//! own knee, and at each instant those ready segments run that together fill most of the device. Needs a device that
//! changes parts at no cost: a bound for the simulator. So that it is one where more is asked than can be done, a run begins
//! only with requests that are in time beside all that was begun, earlier deadlines first, and what was begun goes first.

use super::starts::{Point, Sizes, Starts, next_hopeless, optimum, units_of};
use crate::Policy;
use crate::node::{Decision, NodeWorld, Run, RunState, Why};
use vocab::{ModelId, PartitionId, RequestId, RunId, Span, Time};

/// Unit-time that is counted on, in hundredths.
const FILLED_PERCENT: u128 = 90;

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
    /// Unit-time that it needs to its end.
    needs: u128,
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
        Point { rows, units, time, alone: time }
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

/// Unit-time that runs which were begun still need.
fn begun(starts: &Starts<'_>, sizes: &Sizes) -> Vec<(Time, u128)> {
    let left = |run: &Run| {
        let all = work(starts.world, sizes, run.model, run.rows, run.next_segment).0;
        (run.deadline.unwrap_or(Time::FOREVER), all)
    };
    let mut due: Vec<(Time, u128)> = starts.world.runs().map(left).collect();
    due.sort_unstable();
    due
}

/// The least deadline that a run with `needs` unit-time still keeps when earlier deadlines go first; none when it would
/// make something begun late. `begun` ascends by deadline.
fn least_deadline(now: Time, whole: u32, begun: &[(Time, u128)], needs: u128) -> Option<Time> {
    // Parts that fit together seldom fill the device to the last unit.
    let rate = (u128::from(whole) * FILLED_PERCENT).max(100);
    let ends = |work: u128| {
        let span = (work * 100).div_ceil(rate);
        now + Span::from_ns(u64::try_from(span).unwrap_or(u64::MAX))
    };
    let mut before = 0u128;
    let mut found = None;
    for (deadline, work) in begun {
        // Between two deadlines it is behind all those that are earlier.
        let end = ends(before + needs);
        if found.is_none() && end <= *deadline {
            found = Some(end);
        }
        before += work;
        if found.is_some() && ends(before + needs) > *deadline {
            return None;
        }
    }
    Some(found.unwrap_or_else(|| ends(before + needs)))
}

fn ready(starts: &Starts<'_>, sizes: &Sizes, begun: &[(Time, u128)]) -> Vec<Ready> {
    let world = starts.world;
    let mut found = Vec::new();
    let resumed = |run: RunId| starts.decisions.iter().any(|decision| names(decision, run));
    let parked = |run: &&Run| matches!(run.state, RunState::Parked { .. }) && !resumed(run.id);
    for run in world.runs().filter(parked) {
        found.push(Ready {
            model: run.model,
            deadline: run.deadline.unwrap_or(Time::FOREVER),
            work: Work::Resume(run.id),
            segment: run.next_segment,
            units: knee(world, sizes, run.model, run.rows, run.next_segment),
            needs: 0,
        });
    }
    for spec in world.models() {
        let best = optimum(starts.now, world, spec.id, sizes);
        // A model with a run under way begins another only with a full batch.
        if starts.rows(spec.id) == 0 || (starts.is_active(spec.id) && starts.rows(spec.id) < best.rows) {
            continue;
        }
        let (needs, time) = work(world, sizes, spec.id, best.rows, 0);
        let Some(least) = least_deadline(starts.now, sizes.whole, begun, needs) else { continue };
        let end = least.max(starts.now + time);
        let (requests, rows) = starts.batch_until(spec.id, best.rows, end);
        let deadline = requests.iter().filter_map(|id| world.request(*id)?.deadline).min();
        if requests.is_empty() {
            continue;
        }
        found.push(Ready {
            model: spec.id,
            deadline: deadline.unwrap_or(Time::FOREVER),
            work: Work::Start(requests),
            segment: 0,
            units: knee(world, sizes, spec.id, rows, 0),
            needs,
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

/// What was begun, by deadline, then the best combination of what was not, then the rest: where a combination does not fit
/// as the parts lie, others may.
fn ordered(ready: Vec<Ready>, free: u32) -> Vec<Ready> {
    let (mut all, fresh): (Vec<Ready>, Vec<Ready>) =
        ready.into_iter().partition(|ready| matches!(ready.work, Work::Resume(_)));
    let spent = all
        .iter()
        .fold(0, |spent, ready| if spent + ready.units <= free { spent + ready.units } else { spent });
    let chosen = choose(&fresh, free - spent);
    let (first, last): (Vec<_>, Vec<_>) =
        fresh.into_iter().enumerate().partition(|(at, _)| chosen.contains(at));
    all.extend(first.into_iter().chain(last).map(|(_, ready)| ready));
    all
}

/// Where a ready segment runs: on a part of its knee.
fn place(starts: &Starts<'_>, sizes: &Sizes, ready: &Ready) -> Option<PartitionId> {
    let reached = |id: PartitionId| match &ready.work {
        Work::Resume(run) => starts.reaches(*run, id),
        Work::Start(_) => true,
    };
    let fits = |id: &PartitionId| {
        units_of(starts.world, *id, sizes) == ready.units
            && reached(*id)
            && starts.parts.is_alone(*id)
            && starts.may_begin(ready.model, *id)
    };
    let fitting = starts.parts.idle().filter(fits);
    fitting.min_by_key(|id| starts.parts.idle_beside(*id))
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
        let mut booked = begun(&starts, &sizes);
        loop {
            let free = sizes.whole.saturating_sub(starts.parts.units_held(any));
            let mut progress = false;
            for ready in ordered(ready(&starts, &sizes, &booked), free) {
                let Some(partition) = place(&starts, &sizes, &ready) else { continue };
                let Ready { model, work, segment, units, deadline, needs } = ready;
                let why = Why::Fills { units };
                let run = match work {
                    Work::Resume(run) => {
                        starts.resume(run, partition, &why);
                        run
                    }
                    Work::Start(requests) => starts.start(model, partition, requests, why.clone()),
                };
                starts.until(model, run, segment + 1, &why);
                if needs > 0 {
                    booked.push((deadline, needs));
                    booked.sort_unstable();
                }
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
