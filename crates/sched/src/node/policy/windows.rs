//! Windows of admissible start, strict classes, preemption at segment edges.
//!
//! Every action has an earliest start (its batch is full, or has waited long enough for more rows) and a latest start
//! (the most pressing deadline of its batch less what it is believed to cost), after Clockwork (OSDI 2020). A request
//! whose latest start has passed, or that cannot be reached in time behind the work ahead of it, is refused at once.
//! Stricter classes go first and stop running work of looser ones at its next segment edge; waiting promotes. A model
//! that is not on the device is loaded while it runs.

use super::batch::rows_max;
use super::parts::Parts;
use super::residency::Rooms;
use crate::Policy;
use crate::node::{Act, Decision, ModelSpec, NodeWorld, Run, Why, Window};
use vocab::{Class, ModelId, PartitionId, Request, RequestId, RunId, Span, Time};

/// Windows of admissible start.
#[derive(Clone, Debug)]
pub struct Windows {
    ageing: Span,
    next_wake: Option<Time>,
}

/// The most urgent waiting request of a model, and when it may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    class: Class,
    latest: Time,
    id: RequestId,
    model: ModelId,
    earliest: Time,
}

impl Windows {
    /// A request gains one class for each `ageing` it has waited; zero means never.
    #[must_use]
    pub const fn new(ageing: Span) -> Self {
        Self { ageing, next_wake: None }
    }

    fn aged(&self, class: Class, waited: Span) -> Class {
        let levels = waited.ns().checked_div(self.ageing.ns()).unwrap_or(0);
        class.promoted(u32::try_from(levels).unwrap_or(u32::MAX))
    }

    fn class_of(&self, now: Time, request: &Request) -> Class {
        self.aged(request.class, now.since(request.arrival))
    }

    /// A run keeps the class it had aged to when it last began: it cannot be stopped by those it has outwaited.
    fn class_of_run(&self, run: &Run) -> Class {
        self.aged(run.class, run.waited)
    }

    /// The most urgent request of `spec` that is not `refused`: the first by class and deadline, or an aged older one.
    fn head(&self, now: Time, world: &NodeWorld, spec: &ModelSpec, refused: &[RequestId]) -> Option<Head> {
        let queue = world.queue(spec.id);
        let urgent = queue.by_urgency().find(|id| !refused.contains(id))?;
        let oldest = queue.by_arrival().find(|id| !refused.contains(id))?;
        // The batch waits for more rows as long as its oldest request may, whoever leads it.
        let fuller = world.request(oldest)?.arrival + spec.queue_delay;
        let full = queue.rows() >= u64::from(spec.batch_max);
        let head = |id: RequestId| {
            let request = world.request(id)?;
            let needs = alone(now, world, spec.id, request.rows);
            let latest = request.deadline.map_or(Time::FOREVER, |at| at.before(needs));
            // Half of what the deadline leaves, so that there is time to begin when the wait is over.
            let half = request.arrival + latest.since(request.arrival).scale(1, 2);
            let earliest = if full { now } else { fuller.min(half) };
            Some(Head { class: self.class_of(now, request), latest, id, model: spec.id, earliest })
        };
        if urgent == oldest { head(urgent) } else { head(urgent).min(head(oldest)) }
    }

    /// Refusals: requests past their latest start, and new ones that the work ahead of them makes too late.
    fn refuse(now: Time, world: &NodeWorld) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for spec in world.models() {
            let costs = world.costs(spec.id);
            for (deadline, id) in world.queue(spec.id).by_deadline() {
                // Costs grow with rows, so the smallest bucket bounds how far to look.
                if deadline >= now + costs.of(spec.batch_max) + world.cold(now, spec.id, 1) {
                    break;
                }
                let rows = world.request(id).map_or(1, |request| request.rows);
                let needs = alone(now, world, spec.id, rows);
                let left = deadline.since(now);
                if needs > left {
                    let why = Why::CannotMeet { needs, left };
                    decisions.push(Decision { act: Act::Reject { request: id }, why });
                }
            }
        }
        if world.fresh().any(|request| request.deadline.is_some()) && may_be_out_of_reach(now, world) {
            decisions.extend(out_of_reach(now, world));
        }
        decisions
    }

    /// What an idle partition does next: a parked run of its own, or the most urgent waiting work.
    fn occupy(&self, now: Time, world: &NodeWorld, partition: PartitionId, plan: &mut Plan<'_>) {
        let ready = |head: &Head| {
            head.earliest <= now
                && plan.parts.fits(head.model, partition)
                && plan.rooms.way(head.model, partition).is_some()
        };
        let head = plan.heads.iter().copied().filter(ready).min();
        let urgency = |run: &Run| {
            let waited = match run.state {
                crate::node::RunState::Parked { since } => run.waited + now.since(since),
                _ => run.waited,
            };
            let latest = run.deadline.map_or(Time::FOREVER, |at| at.before(world.remaining(now, run)));
            (self.aged(run.class, waited), latest, run.requests[0])
        };
        let here = |run: &&Run| run.partition == partition && plan.parts.fits(run.model, partition);
        let parked = world.parked().filter(here).min_by_key(|run| urgency(run));
        if let Some(run) = parked
            && head.is_none_or(|head| urgency(run) <= (head.class, head.latest, head.id))
        {
            let why = Why::MostUrgent { class: urgency(run).0 };
            plan.decisions.push(Decision { act: Act::Resume { run: run.id }, why });
            plan.parts.take(run.model, partition);
            return;
        }
        let Some(head) = head else { return };
        plan.heads.retain(|other| other.model != head.model);
        let (requests, rows, deadline) = self.batch(now, world, &head, plan, partition);
        plan.parts.take(head.model, partition);
        let needs = world.cost_on(head.model, rows, partition);
        let latest = deadline.map_or(Time::FOREVER, |at| at.before(needs));
        let window = Window { earliest: now, latest: latest.max(now) };
        let run = plan.next_run;
        plan.next_run = RunId(run.0 + 1);
        plan.started.extend(&requests);
        if let Some(way) = plan.rooms.way(head.model, partition) {
            let why = Why::NeededBy { request: head.id };
            plan.rooms.take(head.model, &way, why, &mut plan.decisions);
            plan.rooms.keep(head.model, partition);
        }
        let act = Act::Start { run, model: head.model, partition, requests, window };
        plan.decisions.push(Decision { act, why: Why::MostUrgent { class: head.class } });
        if let Some(next) =
            world.model(head.model).and_then(|spec| self.head(now, world, spec, &plan.started))
        {
            plan.heads.push(next);
        }
    }

    /// The batch around `head`: as many rows as keep its deadline and let the other heads of its class or stricter
    /// begin in time; room left in the bucket is given to anyone of the same model.
    fn batch(
        &self,
        now: Time,
        world: &NodeWorld,
        head: &Head,
        plan: &Plan<'_>,
        partition: PartitionId,
    ) -> (Vec<RequestId>, u32, Option<Time>) {
        let costs = world.costs(head.model);
        let needs = |rows| world.cost_on(head.model, rows, partition);
        let rivals = plan.heads.iter().filter(|other| other.class <= head.class);
        let rival_latest = rivals.map(|other| other.latest).filter(|latest| *latest >= now).min();
        let mut requests = vec![head.id];
        let first = world.request(head.id).expect("a head waits");
        let (mut rows, mut deadline) = (first.rows, first.deadline);
        for id in world.queue(head.model).by_urgency() {
            if id == head.id || plan.started.contains(&id) {
                continue;
            }
            let request = world.request(id).expect("a queued request has not ended");
            let grown = rows.saturating_add(request.rows);
            if grown > rows_max(world, head.model) {
                break;
            }
            let due = deadline.into_iter().chain(request.deadline).min();
            if costs.bucket_rows(grown) > costs.bucket_rows(rows) {
                let finish = now + needs(grown);
                let in_time = due.is_none_or(|due| finish <= due);
                let rivals_start = rival_latest.is_none_or(|latest| finish <= latest);
                if !in_time || !rivals_start || self.class_of(now, request) > head.class {
                    break;
                }
            } else if due != deadline && due.is_some_and(|due| now + needs(grown) > due) {
                continue;
            }
            requests.push(id);
            (rows, deadline) = (grown, due);
        }
        (requests, rows, deadline)
    }

    /// Parks running work of looser classes for heads that found no partition, loosest first.
    fn preempt(&self, world: &NodeWorld, now: Time, plan: &mut Plan<'_>) {
        let mut waiting: Vec<Head> = plan.heads.iter().copied().filter(|head| head.earliest <= now).collect();
        if waiting.is_empty() {
            return;
        }
        waiting.sort_unstable();
        let coming = world.runs().filter(|run| {
            matches!(
                run.state,
                crate::node::RunState::Parking { .. } | crate::node::RunState::Abandoning { held: true }
            )
        });
        // Partitions already being freed serve the first heads.
        let served = coming.count();
        let mut victims: Vec<(Class, RunId, PartitionId)> = world
            .runs()
            .filter(|run| matches!(run.state, crate::node::RunState::Running { .. }))
            .map(|run| (self.class_of_run(run), run.id, run.partition))
            .collect();
        victims.sort_unstable();
        for head in waiting.into_iter().skip(served) {
            if victims.last().is_none_or(|(loosest, _, _)| *loosest <= head.class) {
                break;
            }
            // A parked run keeps its weights; where the head finds no room beside them, parking would gain nothing.
            let gains = |(loose, _, partition): &(Class, RunId, PartitionId)| {
                *loose > head.class && plan.rooms.fits_beside_runs(head.model, *partition)
            };
            let Some(place) = victims.iter().rposition(gains) else { continue };
            let (_, run, _) = victims.remove(place);
            let why = Why::Preempted { by: head.id, class: head.class };
            plan.decisions.push(Decision { act: Act::Park { run }, why });
        }
    }
}

/// A turn's decisions in the making.
struct Plan<'w> {
    rooms: Rooms<'w>,
    parts: Parts<'w>,
    decisions: Vec<Decision>,
    heads: Vec<Head>,
    started: Vec<RequestId>,
    next_run: RunId,
}

impl Policy<NodeWorld> for Windows {
    fn name(&self) -> &'static str {
        "windows"
    }

    fn decide(&mut self, now: Time, world: &NodeWorld) -> Vec<Decision> {
        let decisions = Self::refuse(now, world);
        let refused = |decision: &Decision| match decision.act {
            Act::Reject { request } => Some(request),
            _ => None,
        };
        let gone: Vec<RequestId> = decisions.iter().filter_map(refused).collect();
        let heads = world.models().filter_map(|spec| self.head(now, world, spec, &gone)).collect();
        let (rooms, parts, next_run) = (Rooms::new(world), Parts::new(world), world.next_run());
        let mut plan = Plan { rooms, parts, decisions, heads, started: gone, next_run };
        for partition in world.idle() {
            self.occupy(now, world, partition, &mut plan);
        }
        self.preempt(world, now, &mut plan);
        let fuller = plan.heads.iter().map(|head| head.earliest).filter(|at| *at > now).min();
        self.next_wake = next_refusal(now, world).into_iter().chain(fuller).min();
        plan.decisions
    }

    fn wake(&self, now: Time) -> Option<Time> {
        self.next_wake.filter(|at| *at > now)
    }
}

/// When a request will have passed its latest start.
fn next_refusal(now: Time, world: &NodeWorld) -> Option<Time> {
    let due = |spec: &ModelSpec| {
        let (deadline, _) = world.queue(spec.id).by_deadline().next()?;
        Some(deadline.before(alone(now, world, spec.id, 1)) + Span::from_ns(1))
    };
    world.models().filter_map(due).filter(|at| *at > now).min()
}

/// What a run of `rows` rows needs that nothing delays, weights that have yet to travel included.
fn alone(now: Time, world: &NodeWorld, model: ModelId, rows: u32) -> Span {
    world.costs(model).of(rows) + world.cold(now, model, rows)
}

/// Whether any new request could miss its deadline even if everything else that waits went first: if not, there is no
/// need to ask in which order they go.
fn may_be_out_of_reach(now: Time, world: &NodeWorld) -> bool {
    let all: Span = world.models().map(|spec| row_cost(world, spec.id) * world.queue(spec.id).rows()).sum();
    let ahead = all.scale(1, partitions(world)) + blocked(now, world, Class::FIRST.max(loosest(world)));
    world.fresh().any(|request| {
        let needs = ahead + alone(now, world, request.model, request.rows);
        request.deadline.is_some_and(|deadline| needs > deadline.since(now))
    })
}

fn partitions(world: &NodeWorld) -> u64 {
    (world.partitions().count() as u64).max(1)
}

/// The loosest class on a partition: no request waits longer for a partition than one that may stop nobody.
fn loosest(world: &NodeWorld) -> Class {
    world.partitions().filter_map(|(_, holder)| Some(holder?.class)).max().unwrap_or(Class::FIRST)
}

/// New requests that cannot be answered in time even if all work ahead of them ran in its most efficient batches: an
/// optimistic bound, so nobody is refused who could have been served.
fn out_of_reach(now: Time, world: &NodeWorld) -> Vec<Decision> {
    let partitions = partitions(world);
    let mut line: Vec<(Class, Time, RequestId, u32, ModelId)> = Vec::with_capacity(world.waiting_len());
    for spec in world.models() {
        let entries = world.queue(spec.id).by_urgency_with_rows();
        line.extend(entries.map(|(class, deadline, id, rows)| (class, deadline, id, rows, spec.id)));
    }
    line.sort_unstable();
    let mut per_row: Vec<Span> = Vec::new();
    for spec in world.models() {
        per_row.resize(spec.id.index() + 1, Span::ZERO);
        per_row[spec.id.index()] = row_cost(world, spec.id);
    }
    // New requests are numbered after all others that wait, or nearly so; the set decides.
    let fresh: std::collections::BTreeSet<RequestId> = world.fresh().map(|request| request.id).collect();
    let first_fresh = fresh.first().copied().unwrap_or(RequestId(u64::MAX));
    let mut ahead = Span::ZERO;
    let mut decisions = Vec::new();
    for (class, deadline, id, rows, model) in line {
        if deadline < Time::FOREVER && id >= first_fresh && fresh.contains(&id) {
            let alone = alone(now, world, model, rows);
            let needs = blocked(now, world, class) + ahead.scale(1, partitions) + alone;
            let left = deadline.since(now);
            // Past its latest start even alone: refused by the caller already.
            if needs > left && alone <= left {
                let why = Why::CannotMeet { needs, left };
                decisions.push(Decision { act: Act::Reject { request: id }, why });
                continue;
            }
        }
        ahead += per_row[model.index()] * u64::from(rows);
    }
    decisions
}

/// Time until some partition is free of runs that `class` may not stop.
fn blocked(now: Time, world: &NodeWorld, class: Class) -> Span {
    let until = |holder: Option<&Run>| match holder {
        Some(run) if run.class <= class => world.remaining(now, run),
        _ => Span::ZERO,
    };
    world.partitions().map(|(_, holder)| until(holder)).min().unwrap_or(Span::ZERO)
}

/// Device time of one row in the model's most efficient batch.
fn row_cost(world: &NodeWorld, model: ModelId) -> Span {
    let costs = world.costs(model);
    let limit = rows_max(world, model);
    let sizes = costs.bucket_sizes().filter(|rows| *rows <= limit);
    sizes.map(|rows| costs.of(rows).scale(1, u64::from(rows.max(1)))).min().unwrap_or(costs.of(1))
}
