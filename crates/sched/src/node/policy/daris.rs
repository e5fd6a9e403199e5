//! DARIS (arXiv 2504.08795, in our reading): requests of the first class always run; those of looser classes are admitted
//! as long as their context has time for them beside what was admitted before, else on the context with most room, else
//! refused. Times are the worst of the latest runs. A context's streams take requests by class and deadline.

use super::sgprs::{Context, contexts};
use super::starts::{Sizes, Starts, promise};
use crate::Policy;
use crate::node::{Decision, NodeWorld, Why};
use std::collections::BTreeMap;
use vocab::{Class, ModelId, PartitionId, RequestId, RunId, Span, Time};

/// Mixed criticality with admission.
#[derive(Clone, Debug, Default)]
pub struct Daris {
    /// Requests that wait, each on its context.
    admitted: BTreeMap<RequestId, Admitted>,
    /// What runs use of their context, by run.
    running: BTreeMap<RunId, (usize, f64)>,
}

#[derive(Clone, Copy, Debug)]
struct Admitted {
    context: usize,
    model: ModelId,
    class: Class,
    due: Time,
    /// Its time over the time it has: what it uses of one stream.
    utilisation: f64,
}

impl Daris {
    /// What admitted and running requests use of a context's streams, each a number of streams.
    fn used(&self, at: usize, context: &Context, of: impl Fn(&Admitted) -> bool) -> f64 {
        let waiting = self.admitted.values().filter(|known| known.context == at && of(known));
        let running = self.running.values().filter(|(context, _)| *context == at);
        let sum =
            waiting.map(|known| known.utilisation).sum::<f64>() + running.map(|(_, used)| used).sum::<f64>();
        sum / context.streams.len().max(1) as f64
    }

    fn admit(&mut self, starts: &mut Starts<'_>, contexts: &[Context], sizes: &Sizes) {
        let world = starts.world;
        let mut fresh: Vec<(Class, RequestId, ModelId)> = Vec::new();
        for spec in world.models() {
            for (class, _, id, _) in world.queue(spec.id).by_urgency_with_rows() {
                if !self.admitted.contains_key(&id) {
                    fresh.push((class, id, spec.id));
                }
            }
        }
        fresh.sort_unstable();
        for (class, id, model) in fresh {
            let Some(request) = world.request(id) else { continue };
            let within =
                request.deadline.map_or_else(|| promise(world, model), |due| due.since(request.arrival));
            let due = request.arrival + within;
            let needs = |context: &Context| {
                let time: Span = world.costs(model).of_on(request.rows, sizes.share(context.units));
                time.as_secs_f64() / within.as_secs_f64().max(1e-9)
            };
            let with = |at: usize| {
                let context = &contexts[at];
                self.used(at, context, |_| true) + needs(context) / context.streams.len().max(1) as f64
            };
            // Worst fit: the context that stays emptiest.
            let open =
                |at: &usize| contexts[*at].streams.iter().any(|stream| world.space().is_open(model, *stream));
            let Some(context) =
                (0..contexts.len()).filter(open).min_by(|a, b| with(*a).total_cmp(&with(*b)).then(a.cmp(b)))
            else {
                continue;
            };
            let full = with(context);
            if class > Class::FIRST && full >= 1.0 {
                let milli = (1..).find(|milli| f64::from(*milli) >= full * 1_000.0).unwrap_or(u32::MAX);
                starts.reject(id, Why::NoCapacity { milli: milli.into() });
                continue;
            }
            let utilisation = needs(&contexts[context]);
            self.admitted.insert(id, Admitted { context, model, class, due, utilisation });
        }
    }
}

impl Policy<NodeWorld> for Daris {
    fn name(&self) -> &'static str {
        "daris"
    }

    fn decide(&mut self, now: Time, world: &NodeWorld) -> Vec<Decision> {
        let sizes = Sizes::of(world);
        let contexts = contexts(world, &sizes);
        let waits: Vec<RequestId> =
            world.models().flat_map(|spec| world.queue(spec.id).by_arrival()).collect();
        let waits: std::collections::BTreeSet<RequestId> = waits.into_iter().collect();
        self.admitted.retain(|id, _| waits.contains(id));
        self.running.retain(|run, _| world.run(*run).is_some());
        let mut starts = Starts::new(now, world);
        self.admit(&mut starts, &contexts, &sizes);
        for (at, context) in contexts.iter().enumerate() {
            let mut queue: Vec<(Class, Time, RequestId, ModelId, f64)> = self
                .admitted
                .iter()
                .filter(|(_, known)| known.context == at)
                .map(|(id, known)| (known.class, known.due, *id, known.model, known.utilisation))
                .collect();
            queue.sort_by_key(|(class, due, id, _, _)| (*class, *due, *id));
            let idle: Vec<PartitionId> =
                context.streams.iter().copied().filter(|stream| world.holder(*stream).is_none()).collect();
            for stream in idle {
                let fits = |(_, _, _, model, _): &(Class, Time, RequestId, ModelId, f64)| {
                    starts.may_begin(*model, stream)
                };
                let Some(place) = queue.iter().position(fits) else { continue };
                let (class, due, id, model, used) = queue.remove(place);
                let why = if class == Class::FIRST {
                    Why::FirstInClass { class }
                } else {
                    Why::Stage { stage: 0, due }
                };
                let run = starts.start(model, stream, vec![id], why);
                self.admitted.remove(&id);
                self.running.insert(run, (at, used));
            }
        }
        starts.decisions
    }

    fn wake(&self, _now: Time) -> Option<Time> {
        None
    }
}
