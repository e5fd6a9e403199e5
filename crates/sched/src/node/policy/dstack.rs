//! D-STACK (IEEE TCC 12(4), 2024, in our reading): every model runs at its knee, often enough for its promise, in a
//! timetable of parts and times; what the timetable leaves idle goes to whoever was served least.
//!
//! ```text
//! units |  C  |           |  C  |          mandatory: each model once a promise, spread over the session
//!       |     A     |     A     |
//!       |  B  |(B)  |  B  |(D)  |          opportunistic: over before the next reservation of those units
//!         session = the longest promise
//! ```
//!
//! The timetable is made for each session anew, from what runs are believed to take and the rates seen. Ours, not the
//! paper's: where those rates leave no slack, the units a row takes count more than the knee's haste; and arrivals come by
//! chance, so that reservations hold only for who needs them (docs/decisions/0014).

use super::starts::{Point, Sizes, Starts, Terms, best_point, promise, row_gap, units_of};
use crate::Policy;
use crate::node::{Decision, NodeWorld, Rule, Why};
use std::collections::{BTreeMap, BTreeSet};
use vocab::{ModelId, PartitionId, RequestId, Span, Time};

/// Sessions that the scoreboard remembers: each takes a tenth off what came before.
const REMEMBERED: u128 = 10;

/// Most runs of one model in a session's timetable.
const RUNS_MAX: u64 = 64;

/// Knee, timetable, and fair shares of what is left.
#[derive(Clone, Debug, Default)]
pub struct DStack {
    session: Option<(Time, Time)>,
    timetable: Vec<Reservation>,
    /// Unit-time given to each model lately.
    served: BTreeMap<ModelId, u128>,
    /// Models that waited or ran after the turn before.
    active: BTreeSet<ModelId>,
    /// Where each model runs in this session.
    points: BTreeMap<ModelId, Point>,
    terms: Terms,
}

#[derive(Clone, Copy, Debug)]
struct Reservation {
    model: ModelId,
    partition: PartitionId,
    begin: Time,
    end: Time,
    rows: u32,
}

/// How much answering soon may count, most first.
const HASTES: [f64; 5] = [1.0, 0.75, 0.5, 0.25, 0.0];

/// The part of the units that the rates seen may need for a haste to be affordable.
const AFFORDED: f64 = 0.7;

/// The part of the units that the rates seen may need where models run for units to count as scarce.
const SCARCE: f64 = 0.85;

/// What a unit must do, of what it does at the model's point, where units are scarce: another has a use for it.
const WORTHWHILE: f64 = 0.875;

/// A session that is outrun is planned anew after one of so many parts of it.
const REPLANS: u64 = 8;

/// Who is due within so many runs goes first.
const DUE: u64 = 3;

/// A run that could begin now.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    point: Point,
    partition: PartitionId,
    /// Units that stay idle right beside it: the fewer the less is cut up.
    beside: u32,
}

impl DStack {
    /// A session begins: everything is planned anew.
    fn plan(&mut self, now: Time, world: &NodeWorld, sizes: &Sizes) {
        for score in self.served.values_mut() {
            *score -= *score / REMEMBERED;
        }
        self.timetable.clear();
        let asked = |model: ModelId| {
            // Models that nobody asks have no place in the timetable.
            let soon = |span: Span| span <= promise(world, model) * 2;
            let expected =
                row_gap(now, world, model).is_some_and(soon) && world.silence(now, model).is_some_and(soon);
            !world.queue(model).is_empty() || expected
        };
        let mut models: Vec<(Span, ModelId)> = world
            .models()
            .filter(|spec| asked(spec.id))
            .map(|spec| (promise(world, spec.id), spec.id))
            .collect();
        models.sort_unstable();
        let Some((length, _)) = models.last().copied() else { return };
        self.choose(now, world, sizes);
        self.session = Some((now, now + length));
        if self.is_scarce(now, world, sizes) {
            return;
        }
        for (within, model) in models {
            let point = self.point(now, world, model, sizes);
            let runs = (length.ns() / within.ns().max(1)).clamp(1, RUNS_MAX);
            let mut earliest = now;
            for run in 0..runs {
                let opens = now + within * run;
                let latest = (opens + within).before(point.time);
                let Some(found) = self.place(world, sizes, model, &point, earliest.max(opens), latest) else {
                    continue;
                };
                earliest = found.begin + within;
                self.timetable.push(found);
            }
        }
        self.timetable.sort_by_key(|reservation| (reservation.begin, reservation.model));
    }

    /// Who comes back begins where the least served of the others are: to have asked nothing for a while is no claim. Where
    /// nobody was there all begin alike.
    fn welcome(&mut self, world: &NodeWorld) {
        let running = world.runs().map(|run| run.model);
        let waiting = world.models().map(|spec| spec.id).filter(|model| !world.queue(*model).is_empty());
        let active: BTreeSet<ModelId> = running.chain(waiting).collect();
        if active.is_disjoint(&self.active) {
            self.served.clear();
        }
        let served = |model: &ModelId| self.served.get(model).copied().unwrap_or(0);
        let least = active.intersection(&self.active).map(served).min().unwrap_or(0);
        for model in active.difference(&self.active) {
            let own = self.served.entry(*model).or_default();
            *own = least.max(*own);
        }
        self.active = active;
    }

    /// Whether rates have risen beyond what the session's points can serve, it has lasted for some time, and less haste can
    /// be made.
    fn is_outrun(&self, now: Time, world: &NodeWorld, sizes: &Sizes) -> bool {
        let Some((begin, end)) = self.session else { return false };
        self.terms.haste > 0.0
            && now >= begin + end.since(begin).scale(1, REPLANS)
            && self.needed(now, world) > f64::from(sizes.whole)
    }

    /// Units that the rates seen need where models run now.
    fn needed(&self, now: Time, world: &NodeWorld) -> f64 {
        let known = self.points.iter().filter(|(model, _)| world.model(**model).is_some());
        let units = |(model, point): (&ModelId, &Point)| {
            let gap = row_gap(now, world, *model)?;
            Some(1.0 / (point.rate() * gap.as_secs_f64().max(1e-9)))
        };
        known.filter_map(units).sum()
    }

    /// Whether the rates seen take nearly all units, or more, though haste counts for nothing: then nothing is reserved, and
    /// only runs that are worth their units begin.
    fn is_scarce(&self, now: Time, world: &NodeWorld, sizes: &Sizes) -> bool {
        self.terms.haste <= 0.0 && self.needed(now, world) > SCARCE * f64::from(sizes.whole)
    }

    /// Whether the rates seen leave slack: then a small batch, which costs more units a row, is better than a late answer.
    fn has_spare(&self) -> bool {
        self.terms.haste >= 1.0
    }

    /// Chooses where models run: at the points of greatest efficacy (section 5), as long as the units suffice for the rates
    /// seen; the less they do, the more it counts how few units a row takes.
    fn choose(&mut self, now: Time, world: &NodeWorld, sizes: &Sizes) {
        let shortest = world.models().map(|spec| promise(world, spec.id)).min().unwrap_or(Span::MAX);
        for haste in HASTES {
            // Small parts run long: nobody is to wait for a run of a model that is in less of a hurry.
            let longest = if haste < 1.0 { shortest } else { Span::MAX };
            self.choose_on(now, world, sizes, Terms { haste, longest });
            if self.needed(now, world) <= AFFORDED * f64::from(sizes.whole) {
                return;
            }
        }
        if self.is_scarce(now, world, sizes) {
            self.choose_on(now, world, sizes, Terms { haste: 0.0, longest: Span::MAX });
        }
    }

    fn choose_on(&mut self, now: Time, world: &NodeWorld, sizes: &Sizes, terms: Terms) {
        let known = world.models().map(|spec| spec.id).filter(|model| row_gap(now, world, *model).is_some());
        self.points = known.map(|model| (model, best_point(now, world, model, sizes, terms))).collect();
        self.terms = terms;
    }

    /// Where a model runs in this session.
    fn point(&mut self, now: Time, world: &NodeWorld, model: ModelId, sizes: &Sizes) -> Point {
        let terms = self.terms;
        *self.points.entry(model).or_insert_with(|| best_point(now, world, model, sizes, terms))
    }

    /// The first time from `earliest` to `latest` at which a part of the point's size is free.
    fn place(
        &self,
        world: &NodeWorld,
        sizes: &Sizes,
        model: ModelId,
        point: &Point,
        earliest: Time,
        latest: Time,
    ) -> Option<Reservation> {
        let space = world.space();
        let ends = self.timetable.iter().map(|other| other.end);
        let running = world.runs().map(|run| earliest + world.remaining(earliest, run));
        let mut times: Vec<Time> =
            ends.chain(running).chain([earliest]).filter(|at| (earliest..=latest).contains(at)).collect();
        times.sort_unstable();
        times.dedup();
        let fitting: Vec<PartitionId> = world
            .partitions()
            .map(|(id, _)| id)
            .filter(|id| units_of(world, *id, sizes) == point.units && space.is_open(model, *id))
            .collect();
        for begin in times {
            let end = begin + point.time;
            let free = |partition: &&PartitionId| {
                let meets = |other: &Reservation| {
                    other.begin < end
                        && begin < other.end
                        && in_the_way(world, (model, **partition), (other.model, other.partition))
                };
                !self.timetable.iter().any(meets)
                    && fits_sum(world, sizes, &self.timetable, **partition, begin, end)
            };
            if let Some(partition) = fitting.iter().find(free) {
                return Some(Reservation { model, partition: *partition, begin, end, rows: point.rows });
            }
        }
        None
    }

    /// Begins what the timetable has now; what nobody waits for is struck out.
    fn mandatory(&mut self, starts: &mut Starts<'_>, sizes: &Sizes) {
        let now = starts.now;
        let mut timetable = std::mem::take(&mut self.timetable);
        timetable.retain(|entry| {
            if entry.begin > now {
                return true;
            }
            if starts.rows(entry.model) == 0 {
                return false;
            }
            if !starts.parts.is_alone(entry.partition) || !starts.may_begin(entry.model, entry.partition) {
                return now < entry.end;
            }
            let units = units_of(starts.world, entry.partition, sizes);
            let (requests, rows, _) = self.batch(starts, sizes, entry.model, (entry.rows, units));
            if requests.is_empty() {
                return false;
            }
            starts.start(entry.model, entry.partition, requests, Why::Reserved { units });
            self.account(starts.world, entry.model, rows, entry.partition, units);
            false
        });
        self.timetable = timetable;
    }

    fn account(&mut self, world: &NodeWorld, model: ModelId, rows: u32, partition: PartitionId, units: u32) {
        let time = world.cost_on(model, rows, partition);
        *self.served.entry(model).or_default() += u128::from(time.ns()) * u128::from(units);
    }

    /// Gives idle units away, to the model served least first.
    fn opportunistic(&mut self, starts: &mut Starts<'_>, sizes: &Sizes) {
        if !starts.parts.idle().any(|partition| starts.parts.is_alone(partition)) {
            return;
        }
        let mut models: Vec<ModelId> = starts.world.models().map(|spec| spec.id).collect();
        let mut begun: Vec<ModelId> = Vec::new();
        models.retain(|model| starts.rows(*model) > 0);
        while !models.is_empty() {
            // Without units to spare a full batch goes before one that may yet fill, and who is due soon before all others.
            let mut order: Vec<(bool, bool, u128, ModelId)> = Vec::with_capacity(models.len());
            for model in &models {
                let point = self.point(starts.now, starts.world, *model, sizes);
                let soon = starts.now + point.time * DUE;
                let waits = starts.head_deadline(*model).is_none_or(|deadline| deadline > soon);
                let fills =
                    !self.has_spare() && starts.rows(*model) < point.rows && can_wait(starts, *model, &point);
                order.push((waits, fills, self.served.get(model).copied().unwrap_or(0), *model));
            }
            let Some((_, _, _, model)) = order.into_iter().min() else { break };
            models.retain(|other| *other != model);
            let point = self.point(starts.now, starts.world, model, sizes);
            // A model with a run under way takes more units only for a full batch, or for who cannot wait for its end.
            let busy = starts.is_active(model) || begun.contains(&model);
            if busy && starts.rows(model) < point.rows && can_wait(starts, model, &point) {
                continue;
            }
            let Some(found) = self.best(starts, sizes, model, &point) else { continue };
            // While something runs its end comes, and with it another turn.
            let poor = found.point.worth(0.0) < WORTHWHILE * point.worth(0.0);
            let others = !begun.is_empty() || starts.world.runs().next().is_some();
            if poor && others && self.is_scarce(starts.now, starts.world, sizes) {
                continue;
            }
            let (requests, rows, _) = self.batch(starts, sizes, model, (found.point.rows, found.point.units));
            if requests.is_empty() {
                continue;
            }
            let units = found.point.units;
            starts.start(model, found.partition, requests, Why::Idle { units });
            self.account(starts.world, model, rows, found.partition, units);
            begun.push(model);
            if starts.rows(model) > 0 {
                models.push(model);
            }
        }
    }

    /// The batch of at most `rows` rows that is worth most on a part of `units` units among those answered in time, its rows,
    /// and how long it takes. Without units to spare two full buckets are better than a larger one that is half full.
    fn batch(
        &self,
        starts: &Starts<'_>,
        sizes: &Sizes,
        model: ModelId,
        (rows, units): (u32, u32),
    ) -> (Vec<RequestId>, u32, Span) {
        let share = sizes.share(units);
        if self.has_spare() {
            return starts.batch_in_time(model, rows, share, true);
        }
        let mut best = starts.batch_in_time(model, rows, share, false);
        let worth = |rows| match rows {
            0 => 0.0,
            _ => Point::of(starts.world, model, sizes, (rows, units)).worth(self.terms.haste),
        };
        for bucket in starts.world.costs(model).bucket_sizes().rev().filter(|bucket| *bucket < rows) {
            let other = starts.batch_in_time(model, bucket, share, false);
            if worth(other.1) > worth(best.1) {
                best = other;
            }
        }
        best
    }

    /// The best run of `model` on units that are idle: over before they are reserved, and in time for its requests.
    fn best(&self, starts: &Starts<'_>, sizes: &Sizes, model: ModelId, point: &Point) -> Option<Candidate> {
        let (world, now) = (starts.world, starts.now);
        let mut best: Option<Candidate> = None;
        // Parts of one size come one after another.
        let mut size: Option<Point> = None;
        for partition in starts.parts.idle() {
            let units = units_of(world, partition, sizes);
            if units > point.units {
                continue;
            }
            if size.is_none_or(|size: Point| size.units != units) {
                let (_, rows, time) = self.batch(starts, sizes, model, (point.rows, units));
                size = Some(Point { time, ..Point::of(world, model, sizes, (rows, units)) });
            }
            let Some(found) = size.filter(|size| size.rows > 0) else { continue };
            let candidate = Candidate { point: found, partition, beside: 0 };
            let worth = |candidate: &Candidate| candidate.point.worth(self.terms.haste);
            let worse = |best: &Candidate| worth(best) > worth(&candidate) * (1.0 + 1e-9);
            if best.as_ref().is_some_and(worse) {
                continue;
            }
            if !starts.parts.is_alone(partition)
                || !starts.may_begin(model, partition)
                || !self.leaves_reserved(starts, sizes, (model, partition), now, now + found.time)
            {
                continue;
            }
            let candidate = Candidate { beside: starts.parts.idle_beside(partition), ..candidate };
            let better = best.as_ref().is_none_or(|best| {
                let (a, b) = (worth(&candidate), worth(best));
                a > b * (1.0 + 1e-9) || (a > b * (1.0 - 1e-9) && candidate.beside < best.beside)
            });
            if better {
                best = Some(candidate);
            }
        }
        best
    }

    /// Whether a run from `begin` to `end` leaves the units of every reservation free that somebody needs: whose most urgent
    /// request would be late by the run after it. Reservations of its own model it serves ahead of time.
    fn leaves_reserved(
        &self,
        starts: &Starts<'_>,
        sizes: &Sizes,
        (model, partition): (ModelId, PartitionId),
        begin: Time,
        end: Time,
    ) -> bool {
        let world = starts.world;
        let late = |entry: &Reservation| {
            let next = entry.end + entry.end.since(entry.begin);
            starts.head_deadline(entry.model).is_some_and(|deadline| deadline < next)
        };
        let others = |entry: &&Reservation| {
            entry.model != model && entry.begin < end && begin < entry.end && late(entry)
        };
        let reserved: Vec<Reservation> = self.timetable.iter().filter(others).copied().collect();
        reserved.iter().all(|entry| !in_the_way(world, (model, partition), (entry.model, entry.partition)))
            && fits_sum(world, sizes, &reserved, partition, begin, end)
    }
}

/// Whether the most urgent request of `model` is still answered in time if it waits for the end of a run under way.
fn can_wait(starts: &Starts<'_>, model: ModelId, point: &Point) -> bool {
    let (now, world) = (starts.now, starts.world);
    let own = world.runs().filter(|run| run.model == model);
    let soonest = own.map(|run| world.remaining(now, run)).min().unwrap_or(point.time);
    starts.head_deadline(model).is_none_or(|deadline| now + soonest + point.time <= deadline)
}

/// Whether two runs cannot be at the same time: they share units, or their models are to be apart.
fn in_the_way(world: &NodeWorld, a: (ModelId, PartitionId), b: (ModelId, PartitionId)) -> bool {
    let apart =
        |rule: &Rule| matches!(rule, Rule::Apart(x, y) if (*x, *y) == (a.0, b.0) || (*y, *x) == (a.0, b.0));
    !world.space().are_disjoint(a.1, b.1) || world.space().rules().iter().any(apart)
}

/// Whether floating parts reserved from `begin` to `end` leave the units of `partition` free: they have no places, so
/// their sum counts.
fn fits_sum(
    world: &NodeWorld,
    sizes: &Sizes,
    reserved: &[Reservation],
    partition: PartitionId,
    begin: Time,
    end: Time,
) -> bool {
    if world.space().part(partition).is_none_or(|part| part.first.is_some()) {
        return true;
    }
    let meets = |entry: &&Reservation| entry.begin < end && begin < entry.end;
    let during: u32 =
        reserved.iter().filter(meets).map(|entry| units_of(world, entry.partition, sizes)).sum();
    // A bound on their sum at any one time, exact where they all meet.
    during + units_of(world, partition, sizes) <= sizes.whole
}

impl Policy<NodeWorld> for DStack {
    fn name(&self) -> &'static str {
        "dstack"
    }

    fn decide(&mut self, now: Time, world: &NodeWorld) -> Vec<Decision> {
        let sizes = Sizes::of(world);
        let mut starts = Starts::new(now, world);
        starts.reject_hopeless();
        self.welcome(world);
        if self.session.is_none_or(|(_, end)| now >= end) || self.is_outrun(now, world, &sizes) {
            self.session = None;
            if world.waiting_len() > 0 {
                self.plan(now, world, &sizes);
            }
        }
        self.mandatory(&mut starts, &sizes);
        self.opportunistic(&mut starts, &sizes);
        starts.decisions
    }

    fn wake(&self, now: Time) -> Option<Time> {
        let reserved = self.timetable.iter().map(|entry| entry.begin);
        let over = self.timetable.iter().map(|entry| entry.end);
        let session = self.session.map(|(_, end)| end).filter(|_| !self.timetable.is_empty());
        reserved.chain(over).chain(session).filter(|at| *at > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::World as _;
    use crate::node::{BucketCost, Event, ModelSpec, Part, PartCost, PartCosts, Promise};
    use vocab::{Class, Request, RequestId};

    fn ms(ms: u64) -> Span {
        Span::from_ms(ms)
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_ms(ms)
    }

    /// Two models on two units or one of them; each takes so many ms by rows on all, twice that on half.
    fn world(costs: &[(u32, u64)]) -> NodeWorld {
        let mut world = NodeWorld::new();
        let parts = [(0, 0, 2), (1, 0, 1), (2, 1, 1)].map(|(id, first, units)| {
            let partition = PartitionId(id);
            world.apply(at(0), &Event::PartitionAdded { partition, name: format!("{units} from {first}") });
            (partition, Part { first: Some(first), units })
        });
        world.apply(at(0), &Event::PartsShared { units: 2, overlap: 1, parts: parts.to_vec() });
        let times = |slower: u64| -> Vec<BucketCost> {
            let one =
                |(rows, time): &(u32, u64)| BucketCost { rows: *rows, segments: vec![ms(time * slower)] };
            costs.iter().map(one).collect()
        };
        for id in 0..2 {
            let spec = ModelSpec {
                id: ModelId(id),
                name: format!("model{id}"),
                class: Class::FIRST,
                batch_max: costs.last().map_or(1, |(rows, _)| *rows),
                queue_delay: Span::ZERO,
                queue_max: 0,
                costs: times(1),
                parts: PartCosts { units: 2, parts: vec![PartCost { units: 1, costs: times(2) }] },
                promise: Promise { deadline: Some(ms(200)), ..Promise::default() },
            };
            world.apply(at(0), &Event::ModelAdded { spec });
        }
        world
    }

    fn ask(world: &mut NodeWorld, id: u64, model: u32, now: Time) {
        let request = Request {
            id: RequestId(id),
            model: ModelId(model),
            class: Class::FIRST,
            rows: 1,
            arrival: now,
            deadline: Some(now + ms(200)),
        };
        world.apply(now, &Event::RequestArrived { request });
    }

    #[test]
    fn a_full_bucket_goes_before_one_half_full() {
        let mut world = world(&[(1, 4), (4, 10), (8, 19)]);
        (0..6).for_each(|id| ask(&mut world, id, 0, at(0)));
        let (starts, sizes) = (Starts::new(at(0), &world), Sizes::of(&world));
        let rows = |haste| {
            let policy = DStack { terms: Terms { haste, ..Terms::default() }, ..DStack::default() };
            policy.batch(&starts, &sizes, ModelId(0), (8, 2)).1
        };
        assert_eq!(rows(1.0), 6, "with units to spare all are answered at once");
        assert_eq!(rows(0.0), 4, "six would take as long as eight");
    }

    #[test]
    fn reservations_hold_for_who_would_be_late() {
        let mut world = world(&[(1, 40)]);
        ask(&mut world, 0, 0, at(0));
        let reserved = |begin: u64| {
            let (begin, end) = (at(begin), at(begin + 80));
            Reservation { model: ModelId(0), partition: PartitionId(1), begin, end, rows: 1 }
        };
        let free = |begin: u64| {
            let (starts, sizes) = (Starts::new(at(0), &world), Sizes::of(&world));
            let policy = DStack { timetable: vec![reserved(begin)], ..DStack::default() };
            let run = (ModelId(1), PartitionId(0));
            policy.leaves_reserved(&starts, &sizes, run, at(0), at(70))
        };
        assert!(free(20), "the run after it, until 180 ms, would still do");
        assert!(!free(50), "that would be 210 ms, and the promise is of 200");
    }

    #[test]
    fn nothing_is_reserved_for_who_fell_silent() {
        let mut world = world(&[(1, 10)]);
        let mut asks = |id: u64, model: u32, now: Time| {
            ask(&mut world, id, model, now);
            if model == 1 {
                world.apply(now, &Event::RequestCancelled { request: RequestId(id) });
            }
        };
        // Fifty a second until 1.26 s.
        (0..64).for_each(|id| asks(id, 1, at(20 * id)));
        asks(64, 0, at(1_500));
        let reserved = |now: Time| {
            let mut policy = DStack::default();
            policy.plan(now, &world, &Sizes::of(&world));
            policy.timetable.iter().map(|entry| entry.model.0).collect::<BTreeSet<u32>>()
        };
        assert_eq!(reserved(at(1_500)), BTreeSet::from([0, 1]), "it may come again within two promises");
        assert_eq!(reserved(at(1_700)), BTreeSet::from([0]));
    }
}
