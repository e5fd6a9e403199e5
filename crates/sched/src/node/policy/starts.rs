//! A turn's decisions in the making, shared by the policies that divide devices: batches, runs and their numbers, rooms
//! for weights, and the sizes of parts there are.

use super::parts::Parts;
use super::residency::Rooms;
use crate::node::{Act, Decision, NodeWorld, Why, Window};
use vocab::{ModelId, PartitionId, RequestId, RunId, Span, Time};

/// Decisions of one turn.
pub(super) struct Starts<'w> {
    pub(super) now: Time,
    pub(super) world: &'w NodeWorld,
    pub(super) parts: Parts<'w>,
    rooms: Rooms<'w>,
    pub(super) decisions: Vec<Decision>,
    /// Requests that wait no longer.
    gone: Vec<RequestId>,
    next_run: RunId,
}

impl<'w> Starts<'w> {
    pub(super) fn new(now: Time, world: &'w NodeWorld) -> Self {
        let (parts, rooms, next_run) = (Parts::new(world), Rooms::new(world), world.next_run());
        Self { now, world, parts, rooms, decisions: Vec::new(), gone: Vec::new(), next_run }
    }

    /// Requests of `model` that still wait, earliest deadline first within a class.
    pub(super) fn waiting(&self, model: ModelId) -> impl Iterator<Item = RequestId> + '_ {
        self.world.queue(model).by_urgency().filter(|id| !self.gone.contains(id))
    }

    /// Rows of `model` that still wait.
    pub(super) fn rows(&self, model: ModelId) -> u32 {
        let queue = self.world.queue(model);
        if self.gone.is_empty() {
            return u32::try_from(queue.rows()).unwrap_or(u32::MAX);
        }
        let rows = queue.by_urgency_with_rows().filter(|(_, _, id, _)| !self.gone.contains(id));
        rows.fold(0u32, |sum, (_, _, _, rows)| sum.saturating_add(rows))
    }

    /// Deadline of the most urgent request of `model` that still waits; for ever without one.
    pub(super) fn head_deadline(&self, model: ModelId) -> Option<Time> {
        let head = self.waiting(model).next()?;
        Some(self.world.request(head)?.deadline.unwrap_or(Time::FOREVER))
    }

    /// Runs of `model`, those begun in this turn not counted.
    pub(super) fn is_active(&self, model: ModelId) -> bool {
        self.world.runs().any(|run| run.model == model)
    }

    /// Whether `model` may begin on `partition`: its units, constraints and room for weights.
    pub(super) fn may_begin(&self, model: ModelId, partition: PartitionId) -> bool {
        self.parts.fits(model, partition) && self.rooms.way(model, partition).is_some()
    }

    /// Whether a run may go on on `partition`: it stays on its device.
    pub(super) fn reaches(&self, run: RunId, partition: PartitionId) -> bool {
        let at = self.world.run(run).map(|run| run.partition);
        at.is_some_and(|at| self.world.space().reaches(at, partition))
    }

    /// The most urgent requests of `model` in one batch of at most `rows_max` rows; the first always goes in.
    pub(super) fn batch(&self, model: ModelId, rows_max: u32) -> (Vec<RequestId>, u32) {
        let filled = super::batch::fill(self.world, self.waiting(model), rows_max);
        (filled.requests, filled.rows)
    }

    /// As [`Starts::batch`], of requests that are answered in time by a run that is over at `end`.
    pub(super) fn batch_until(&self, model: ModelId, rows_max: u32, end: Time) -> (Vec<RequestId>, u32) {
        let in_time = |id: &RequestId| {
            let request = self.world.request(*id);
            request.is_some_and(|request| request.deadline.is_none_or(|deadline| deadline >= end))
        };
        let filled = super::batch::fill(self.world, self.waiting(model).filter(in_time), rows_max);
        (filled.requests, filled.rows)
    }

    /// The most urgent requests that a run of at most `rows_max` rows on a part of `share` units answers in time, their rows,
    /// and how long it takes. The fewer rows, the sooner it is over: with `smaller`, where a full batch would be late half of
    /// it goes, or half of that.
    pub(super) fn batch_in_time(
        &self,
        model: ModelId,
        rows_max: u32,
        share: Option<u32>,
        smaller: bool,
    ) -> (Vec<RequestId>, u32, Span) {
        let costs = self.world.costs(model);
        let mut most = rows_max.min(self.rows(model)).max(1);
        loop {
            let mut time = costs.of_on(most, share);
            loop {
                let (requests, rows) = self.batch_until(model, most, self.now + time);
                if rows == 0 {
                    break;
                }
                let own = costs.of_on(rows, share);
                if own <= time {
                    return (requests, rows, own);
                }
                // A request of more rows than that goes alone, and takes longer.
                time = own;
            }
            if most == 1 || !smaller {
                return (Vec::new(), 0, time);
            }
            most /= 2;
        }
    }

    /// Begins a run of `requests`; its number.
    pub(super) fn start(
        &mut self,
        model: ModelId,
        partition: PartitionId,
        requests: Vec<RequestId>,
        why: Why,
    ) -> RunId {
        if let (Some(way), Some(first)) = (self.rooms.way(model, partition), requests.first()) {
            self.rooms.take(model, &way, Why::NeededBy { request: *first }, &mut self.decisions);
            self.rooms.keep(model, partition);
        }
        self.parts.take(model, partition);
        self.gone.extend(&requests);
        let run = self.next_run;
        self.next_run = RunId(run.0 + 1);
        let act = Act::Start { run, model, partition, requests, window: Window::from(self.now) };
        self.decisions.push(Decision { act, why });
        run
    }

    /// A parked run goes on on `partition`.
    pub(super) fn resume(&mut self, run: RunId, partition: PartitionId, why: &Why) {
        let Some(known) = self.world.run(run) else { return };
        if known.partition != partition {
            self.decisions.push(Decision { act: Act::Move { run, partition }, why: why.clone() });
        }
        self.parts.take(known.model, partition);
        self.decisions.push(Decision { act: Act::Resume { run }, why: why.clone() });
    }

    /// A run begun or resumed in this turn parks before `segment`, unless that is its end.
    pub(super) fn until(&mut self, model: ModelId, run: RunId, segment: u32, why: &Why) {
        if segment < self.world.costs(model).segments() {
            self.decisions.push(Decision { act: Act::Until { run, segment }, why: why.clone() });
        }
    }

    pub(super) fn reject(&mut self, request: RequestId, why: Why) {
        self.gone.push(request);
        self.decisions.push(Decision { act: Act::Reject { request }, why });
    }

    /// Refuses requests that could not be answered in time even if they ran alone at once on the largest part.
    pub(super) fn reject_hopeless(&mut self) {
        for spec in self.world.models() {
            let costs = self.world.costs(spec.id);
            let hopeless: Vec<(RequestId, Span, Span)> = self
                .world
                .queue(spec.id)
                .by_deadline()
                .take_while(|(deadline, _)| *deadline < self.now + costs.of(spec.batch_max))
                .filter_map(|(deadline, id)| {
                    let rows = self.world.request(id)?.rows;
                    let (needs, left) = (costs.of(rows), deadline.since(self.now));
                    (needs > left).then_some((id, needs, left))
                })
                .collect();
            for (request, needs, left) in hopeless {
                self.reject(request, Why::CannotMeet { needs, left });
            }
        }
    }
}

/// When a request becomes hopeless next.
pub(super) fn next_hopeless(now: Time, world: &NodeWorld) -> Option<Time> {
    let due = |model: ModelId| {
        let (deadline, id) = world.queue(model).by_deadline().next()?;
        let rows = world.request(id)?.rows;
        Some(deadline.before(world.costs(model).of(rows)) + Span::from_ns(1))
    };
    world.models().filter_map(|spec| due(spec.id)).filter(|at| *at > now).min()
}

/// The sizes of parts there are. Several devices are taken to be alike.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    /// Units of a device.
    pub(super) whole: u32,
    /// Distinct sizes, ascending.
    pub(super) units: Vec<u32>,
}

impl Sizes {
    pub(super) fn of(world: &NodeWorld) -> Self {
        let space = world.space();
        let whole = world.partitions().filter_map(|(id, _)| space.device_units(id)).max().unwrap_or(1);
        let mut units: Vec<u32> =
            world.partitions().map(|(id, _)| space.part(id).map_or(whole, |part| part.units)).collect();
        units.sort_unstable();
        units.dedup();
        Self { whole, units }
    }

    /// Sizes of which constraints leave `model` some part of an empty device.
    pub(super) fn open_to(&self, world: &NodeWorld, model: ModelId) -> Vec<u32> {
        let space = world.space();
        if space.rules().is_empty() {
            return self.units.clone();
        }
        let open = |units: &u32| {
            let mut sized = world.partitions().filter(|(id, _)| units_of(world, *id, self) == *units);
            sized.any(|(id, _)| space.is_open(model, id))
        };
        self.units.iter().copied().filter(open).collect()
    }

    /// The largest size open to `model`.
    pub(super) fn largest(&self, world: &NodeWorld, model: ModelId) -> u32 {
        let largest = self.units.last().copied().unwrap_or(self.whole);
        if world.space().rules().is_empty() {
            return largest;
        }
        self.open_to(world, model).last().copied().unwrap_or(largest)
    }

    /// How costs name a part of so many units.
    pub(super) const fn share(&self, units: u32) -> Option<u32> {
        if units < self.whole { Some(units) } else { None }
    }
}

/// Units of a partition; a partition that is no part of anything is one whole device.
pub(super) fn units_of(world: &NodeWorld, partition: PartitionId, sizes: &Sizes) -> u32 {
    world.space().part(partition).map_or(sizes.whole, |part| part.units)
}

/// Where a model runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) rows: u32,
    pub(super) units: u32,
    /// What a run is believed to take.
    pub(super) time: Span,
    /// What it takes as profiled, alone: sizes are compared by it, for beliefs of those that never ran know of no neighbours.
    pub(super) alone: Span,
}

impl Point {
    /// The point of `model` at so many rows and units.
    pub(super) fn of(world: &NodeWorld, model: ModelId, sizes: &Sizes, (rows, units): (u32, u32)) -> Self {
        let (costs, share) = (world.costs(model), sizes.share(units));
        Self { rows, units, time: costs.of_on(rows, share), alone: costs.profiled_on(rows, share) }
    }

    /// Rows a unit and second, the more the sooner they are answered (D-STACK's efficacy, section 5 in our reading).
    pub(super) fn efficacy(&self) -> f64 {
        self.worth(1.0)
    }

    /// Rows a unit and second as profiled, divided by the time to that power: efficacy with a haste of 1, and with one of 0 only
    /// the units count.
    pub(super) fn worth(&self, haste: f64) -> f64 {
        let time = self.alone.as_secs_f64().max(1e-9);
        f64::from(self.rows) / (time * f64::from(self.units)) / time.powf(haste)
    }

    /// Rows a unit and second, as believed.
    pub(super) fn rate(&self) -> f64 {
        f64::from(self.rows) / (self.time.as_secs_f64().max(1e-9) * f64::from(self.units))
    }
}

/// All points at which a run of `model` keeps `limit`.
pub(super) fn points(world: &NodeWorld, model: ModelId, sizes: &Sizes, limit: Span) -> Vec<Point> {
    let (costs, rows_max) = (world.costs(model), super::batch::rows_max(world, model));
    let mut found = Vec::new();
    let open = sizes.open_to(world, model);
    for rows in costs.bucket_sizes().map(|rows| rows.min(rows_max)) {
        for units in &open {
            let point = Point::of(world, model, sizes, (rows, *units));
            if point.time <= limit {
                found.push(point);
            }
        }
    }
    found
}

/// The point of greatest efficacy at which a run takes at most half the promise, so that who just missed a batch is still
/// answered by the next, and the promise leaves time to gather the batch. Where none does, the best that keeps the
/// promise at all, or one row on everything.
pub(super) fn optimum(now: Time, world: &NodeWorld, model: ModelId, sizes: &Sizes) -> Point {
    best_point(now, world, model, sizes, Terms::default())
}

/// What counts in the choice of a point.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// How much answering soon counts beside units spent, as [`Point::worth`] has it.
    pub(super) haste: f64,
    /// How long a run may take, whatever its own promise.
    pub(super) longest: Span,
}

impl Default for Terms {
    fn default() -> Self {
        Self { haste: 1.0, longest: Span::MAX }
    }
}

/// The same on other terms than D-STACK's.
pub(super) fn best_point(now: Time, world: &NodeWorld, model: ModelId, sizes: &Sizes, terms: Terms) -> Point {
    let promise = promise(world, model);
    let gap = row_gap(now, world, model).unwrap_or(Span::ZERO);
    let best = |points: &[Point]| {
        points.iter().copied().max_by(|a, b| a.worth(terms.haste).total_cmp(&b.worth(terms.haste)))
    };
    let half = points(world, model, sizes, promise.scale(1, 2).min(terms.longest));
    let gathered = |point: &Point| point.time + gap * u64::from(point.rows) <= promise;
    let timely: Vec<Point> = half.iter().copied().filter(gathered).collect();
    let any = || best(&points(world, model, sizes, promise));
    best(&timely).or_else(|| best(&half)).or_else(any).unwrap_or_else(|| {
        let units = sizes.largest(world, model);
        Point::of(world, model, sizes, (1, units))
    })
}

/// So many rows that wait say how fast they came.
const QUEUE_TELLS: u64 = 8;

/// Time between two rows of `model`: as its latest arrivals have it or, where rates have risen since, those that wait.
pub(super) fn row_gap(now: Time, world: &NodeWorld, model: ModelId) -> Option<Span> {
    let queue = world.queue(model);
    let rows = queue.rows();
    let oldest = queue.by_arrival().next().and_then(|id| world.request(id));
    let waiting =
        oldest.filter(|_| rows >= QUEUE_TELLS).map(|oldest| now.since(oldest.arrival).scale(1, rows));
    [world.row_gap(now, model), waiting].into_iter().flatten().min()
}

/// The time a model's answers are promised within; without a promise ten times its longest run.
pub(super) fn promise(world: &NodeWorld, model: ModelId) -> Span {
    let spec = world.model(model).expect("a policy asks for models it was shown");
    spec.promise.deadline.unwrap_or_else(|| world.costs(model).of(spec.batch_max) * 10)
}
