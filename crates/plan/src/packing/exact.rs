//! The fewest GPUs, proved where the search ends.
//!
//! Tenants meet only in how many instances of each size there are together ([`gpus_needed`]). For each tenant the sets of
//! instances that serve it and hold nothing to spare are listed. Sums over tenants are built tenant by tenant, for a number
//! of GPUs that grows from the lower bound: a sum is dropped when at some prices it and the cheapest sets of the tenants to
//! come cost more than these GPUs. When no sum is left, so few GPUs cannot do. A narrow search, which also drops all but
//! the cheapest sums, finds an answer first; a wide one proves that there is none below, or finds it.

use super::bound::{Bound, Prices, TOLERANCE, cheapest, cost, fractional, priced, priced_at_will, vertices};
use super::choices::{Choice, Terms, UnservedError, choices};
use super::deployment::{Deployment, Instance};
use super::judge::{PackVerdict, judge_packing};
use super::published::published;
use super::slots::{Counts, Size, arrange, gpus_needed};
use super::tables::{ModelTable, Tenant};
use thiserror::Error;

/// Sets of instances that are listed for a tenant.
const OPTIONS_MAX: usize = 20_000;

/// Counts that are tried for a tenant.
const TRIED_MAX: usize = 2_000_000;

/// Sums that a narrow search keeps for a number of tenants.
const NARROW: usize = 3_000;

/// Sums that a wide search keeps.
const WIDE: usize = 300_000;

/// Instances of the best size that are taken as given before a tenant's sets are listed, where they would be too many: what
/// is left for the list.
const LISTED_INSTANCES: f64 = 6.0;

/// What is known about a deployment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PackReport {
    /// GPUs it uses.
    pub gpus: u32,
    /// What was known before.
    pub bound: Bound,
    /// No deployment on the same terms uses fewer GPUs than this.
    pub lower: u32,
    /// Whether `gpus` is that.
    pub proved: bool,
    /// Sums that were looked at.
    pub states: u64,
}

/// Why there is no deployment.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PackError {
    /// Some tenants cannot be served at all.
    #[error(transparent)]
    Unserved(#[from] UnservedError),
    /// All together need too much.
    #[error(
        "{tenants} tenants need at least {lower} GPUs together, there are {gpus}; use more GPUs or serve fewer"
    )]
    Gpus {
        /// How many tenants there are.
        tenants: usize,
        /// The lower bound.
        lower: u32,
        /// GPUs there are.
        gpus: u32,
    },
    /// The search found nothing on the GPUs there are, and did not prove that there is nothing.
    #[error("nothing was found on {gpus} GPUs; use more GPUs")]
    NoneFound {
        /// GPUs there are.
        gpus: u32,
    },
}

/// Sets of instances that may serve each tenant on a number of GPUs.
struct Lists {
    sets: Vec<Vec<Counts>>,
    /// Whether they hold every set that a deployment on so few GPUs may use.
    complete: bool,
    /// Prices at which no GPU costs more than 1; the best of all last.
    prices: Vec<Prices>,
    /// What the cheapest sets cost at these.
    priced: f64,
}

/// Lists sets.
struct Lister<'a> {
    tenants: &'a [Tenant],
    per_s: Vec<[f64; 5]>,
    vertices: Vec<Prices>,
    /// The best prices for instances cut at will, and what these cost then.
    at_will: (f64, Prices),
}

/// A sum of instances over the tenants so far, and how it came about.
#[derive(Clone, Copy)]
struct State {
    counts: Counts,
    from: u32,
    option: u32,
}

/// The deployment on the fewest GPUs; ParvaGPU's, with slots that do not overlap, where the search is cut short and that
/// uses fewer. `stop` ends the search early.
///
/// # Errors
/// Every tenant that cannot be served, or that all together need more GPUs than there are.
pub fn pack(
    tables: &[ModelTable],
    tenants: &[Tenant],
    terms: &Terms,
    stop: &dyn Fn() -> bool,
) -> Result<(Deployment, PackReport), PackError> {
    let choices = choices(tables, tenants, terms)?;
    let lister = Lister::new(tenants, &choices);
    let mut bound = fractional(tenants, &choices).with_prices(lister.at_will.0);
    let rival = rival(tables, tenants, terms).filter(|rival| rival.gpus() <= as_usize(terms.gpus_max));
    let most = rival.as_ref().map_or(terms.gpus_max, |rival| u32::try_from(rival.gpus()).unwrap_or(u32::MAX));
    let mut search = Search { states: 0, stop };
    let first = bound.gpus;
    let narrow = (first..=most).take_while(|_| !stop()).find_map(|gpus| {
        let (found, _) = search.within(gpus, &lister.lists(gpus), NARROW);
        found.map(|chosen| (gpus, deployment(tenants, &choices, &chosen)))
    });
    let mut best = narrow.or_else(|| rival.map(|rival| (most, rival)));
    let upper = best.as_ref().map_or(most.saturating_add(1), |(gpus, _)| *gpus);
    let lists = lister.lists(upper);
    if lists.complete {
        // Whoever needs fewer GPUs uses listed sets, and these prove so many.
        bound = bound.with_prices(lists.priced.min(f64::from(upper)).max(bound.priced));
    }
    let mut lower = bound.gpus;
    let mut exact = true;
    for gpus in bound.gpus..upper {
        if stop() {
            break;
        }
        let lists = lister.lists(gpus);
        let (found, whole) = search.within(gpus, &lists, WIDE);
        if let Some(chosen) = found {
            best = Some((gpus, deployment(tenants, &choices, &chosen)));
            break;
        }
        exact &= whole && lists.complete;
        if exact {
            lower = gpus + 1;
        }
    }
    match best {
        Some((gpus, deployment)) => {
            let report = PackReport { gpus, bound, lower, proved: lower >= gpus, states: search.states };
            Ok((deployment, report))
        }
        None if lower > terms.gpus_max => {
            Err(PackError::Gpus { tenants: tenants.len(), lower, gpus: terms.gpus_max })
        }
        None => Err(PackError::NoneFound { gpus: terms.gpus_max }),
    }
}

fn as_usize(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// ParvaGPU's deployment with slots that do not overlap, if it serves all tenants.
fn rival(tables: &[ModelTable], tenants: &[Tenant], terms: &Terms) -> Option<Deployment> {
    let mut deployment = published(tables, tenants, terms).ok()?;
    let mut gpus: Vec<u32> = deployment.instances.iter().map(|instance| instance.gpu).collect();
    gpus.dedup();
    for (number, gpu) in (0u32..).zip(gpus) {
        let own = || deployment.instances.iter().filter(|instance| instance.gpu == gpu);
        let mut counts = [0; 5];
        own().for_each(|instance| counts[instance.size.place()] += 1);
        let mut places = arrange(&counts);
        let mut moved: Vec<Instance> = own().cloned().collect();
        for instance in &mut moved {
            let (beyond, start) = places[instance.size.place()].pop()?;
            if beyond > 0 {
                return None;
            }
            (instance.gpu, instance.start) = (number, start);
        }
        let mut moved = moved.into_iter();
        for instance in deployment.instances.iter_mut().filter(|instance| instance.gpu == gpu) {
            *instance = moved.next()?;
        }
    }
    let PackVerdict { faults, .. } = judge_packing(tables, tenants, terms, &deployment);
    faults.is_empty().then_some(deployment)
}

impl<'a> Lister<'a> {
    fn new(tenants: &'a [Tenant], choices: &[Choice]) -> Self {
        let per_s: Vec<[f64; 5]> = choices.iter().map(Choice::per_s).collect();
        let vertices = vertices();
        let at_will = priced_at_will(tenants, &per_s, &vertices);
        Self { tenants, per_s, vertices, at_will }
    }

    /// The sets that may serve tenants on so many GPUs: what they cost more than instances cut at will is at most what is
    /// left of the GPUs when all others are cut at will.
    fn lists(&self, gpus: u32) -> Lists {
        let (total, prices) = &self.at_will;
        let spare = f64::from(gpus) - total;
        let mut complete = true;
        let each = self.tenants.iter().zip(&self.per_s);
        let sets: Vec<Vec<Counts>> = each
            .map(|(tenant, per_s)| {
                listed(tenant.rate, per_s, prices, spare).unwrap_or_else(|| {
                    complete = false;
                    shortened(tenant.rate, per_s, prices)
                })
            })
            .collect();
        let mut all = self.vertices.clone();
        all.push(*prices);
        if sets.iter().any(Vec::is_empty) {
            return Lists { sets, complete, prices: all, priced: f64::from(gpus) + 1.0 };
        }
        let (priced, dearest) = priced(&sets, &self.vertices);
        all.push(dearest);
        Lists { sets, complete, prices: all, priced }
    }
}

/// The sets of instances that serve a rate, of which none can be left out or made smaller, and that cost at most `spare`
/// more than instances cut at will; `None` when there are too many.
fn listed(rate: f64, per_s: &[f64; 5], prices: &Prices, spare: f64) -> Option<Vec<Counts>> {
    let used: Vec<usize> = (0..5).filter(|&place| per_s[place] > 0.0).collect();
    // What a request a second costs at least on the sizes up to each.
    let mut least = f64::INFINITY;
    let mut cheapest = Vec::new();
    for &place in &used {
        least = f64::min(least, prices[place] / per_s[place]);
        cheapest.push(least);
    }
    let limit = rate * least + spare + TOLERANCE;
    let mut sets = Vec::new();
    // Counts of the larger sizes are tried one by one, those of the smallest follow.
    let mut open: Vec<(usize, Counts)> = vec![(used.len(), [0; 5])];
    let mut tried = 0usize;
    while let Some((left, counts)) = open.pop() {
        tried += 1;
        if tried > TRIED_MAX || sets.len() > OPTIONS_MAX {
            return None;
        }
        let rest = rate - served(&counts, per_s);
        if rest <= 0.0 {
            if tight(&counts, rate, per_s, &used) {
                sets.push(counts);
            }
            continue;
        }
        let Some(at) = left.checked_sub(1) else { continue };
        let place = used[at];
        let whole = (rest / per_s[place]).ceil();
        if whole > 1e5 {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most a hundred thousand"
        )]
        let whole = whole as u32;
        for count in if at == 0 { whole..=whole } else { 0..=whole } {
            let mut counts = counts;
            counts[place] = count;
            let rest = (rate - served(&counts, per_s)).max(0.0);
            let to_come = at.checked_sub(1).map_or(0.0, |smaller| rest * cheapest[smaller]);
            if cost(prices, &counts) + to_come <= limit {
                open.push((at, counts));
            }
        }
    }
    sets.sort_unstable();
    sets.dedup();
    Some(sets)
}

/// Some sets, where there are too many: the cheapest size as often as leaves a few instances, and every set for the rest.
fn shortened(rate: f64, per_s: &[f64; 5], prices: &Prices) -> Vec<Counts> {
    let offers = (0..5).filter(|&place| per_s[place] > 0.0);
    let ratio = |place: &usize| prices[*place] / per_s[*place];
    let best = offers.min_by(|a, b| ratio(a).total_cmp(&ratio(b))).unwrap_or(0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the rate is below what all GPUs do"
    )]
    let given = ((rate / per_s[best] - LISTED_INSTANCES).floor().max(0.0)) as u32;
    let left = listed(rate - f64::from(given) * per_s[best], per_s, prices, f64::INFINITY);
    let mut sets = left.unwrap_or_else(|| vec![[0; 5]]);
    sets.iter_mut().for_each(|set| set[best] += given);
    sets
}

/// What some instances serve.
fn served(counts: &Counts, per_s: &[f64; 5]) -> f64 {
    counts.iter().zip(per_s).map(|(count, per_s)| f64::from(*count) * per_s).sum()
}

/// Whether no instance can be left out or made one size smaller.
fn tight(counts: &Counts, rate: f64, per_s: &[f64; 5], used: &[usize]) -> bool {
    used.iter().enumerate().filter(|(_, place)| counts[**place] > 0).all(|(at, &place)| {
        let mut less = *counts;
        less[place] -= 1;
        if let Some(smaller) = at.checked_sub(1) {
            less[used[smaller]] += 1;
        }
        served(&less, per_s) < rate
    })
}

struct Search<'a> {
    states: u64,
    stop: &'a dyn Fn() -> bool,
}

/// What sums may cost: for each prices, what the tenants to come cost at least; and the GPUs there are.
#[derive(Clone, Copy)]
struct Budget<'a> {
    prices: &'a [Prices],
    rest: &'a [f64],
    limit: f64,
    states_max: usize,
}

impl Search<'_> {
    /// The set of each tenant on so many GPUs, if there is one; and whether all were looked at that may be.
    fn within(&mut self, gpus: u32, lists: &Lists, states_max: usize) -> (Option<Vec<Counts>>, bool) {
        let limit = f64::from(gpus) + TOLERANCE;
        let Lists { sets, prices: all_prices, .. } = lists;
        if sets.iter().any(Vec::is_empty) {
            return (None, true);
        }
        let cheapest =
            |sets: &Vec<Counts>| all_prices.iter().map(|prices| cheapest(prices, sets).0).collect();
        let least: Vec<Vec<f64>> = sets.iter().map(cheapest).collect();
        let total: Vec<f64> = (0..all_prices.len()).map(|at| least.iter().map(|own| own[at]).sum()).collect();
        if total.iter().any(|total| *total > limit) {
            return (None, true);
        }
        // What a set costs more than the cheapest leaves less for all others.
        let affordable = |(sets, least): (&Vec<Counts>, &Vec<f64>)| {
            let fits = |set: &&Counts| {
                let mut all = all_prices.iter().zip(least.iter().zip(&total));
                all.all(|(prices, (least, total))| total - least + cost(prices, set) <= limit)
            };
            sets.iter().filter(fits).copied().collect::<Vec<Counts>>()
        };
        let sets: Vec<Vec<Counts>> = sets.iter().zip(&least).map(affordable).collect();
        // Few choices first keep sums few.
        let mut order: Vec<usize> = (0..sets.len()).collect();
        order.sort_by_key(|&tenant| (sets[tenant].len(), tenant));
        let mut rest = total;
        let mut whole = true;
        let mut layers: Vec<Vec<State>> = vec![vec![State { counts: [0; 5], from: 0, option: 0 }]];
        for &tenant in &order {
            rest.iter_mut().zip(&least[tenant]).for_each(|(rest, own)| *rest -= own);
            let from = layers.last().map_or(&[][..], Vec::as_slice);
            let budget = Budget { prices: all_prices, rest: &rest, limit, states_max };
            let Some((layer, kept_all)) = self.extend(from, &sets[tenant], budget) else {
                return (None, false);
            };
            whole &= kept_all;
            layers.push(layer);
        }
        let slices = |state: &&State| {
            let sizes = Size::ALL.iter().zip(state.counts);
            sizes.map(|(size, count)| size.slices() * count).sum::<u32>()
        };
        let mut last: Vec<&State> = layers.last().map_or_else(Vec::new, |last| last.iter().collect());
        last.sort_by_key(slices);
        let fits = last.into_iter().find(|state| gpus_needed(&state.counts) <= gpus);
        let Some(mut state) = fits else { return (None, whole) };
        let mut chosen = vec![[0; 5]; sets.len()];
        for (number, &tenant) in order.iter().enumerate().rev() {
            chosen[tenant] = sets[tenant][as_usize(state.option)];
            state = &layers[number][as_usize(state.from)];
        }
        (Some(chosen), whole)
    }

    /// Adds each set to each sum; drops what cannot do. Whether nothing else was dropped; `None` when stopped.
    fn extend(&mut self, from: &[State], sets: &[Counts], budget: Budget<'_>) -> Option<(Vec<State>, bool)> {
        let dearest = budget.prices.last().zip(budget.rest.last());
        let mut layer: Vec<State> = Vec::new();
        let mut whole = true;
        for (number, state) in (0u32..).zip(from) {
            for (option, set) in (0u32..).zip(sets) {
                let mut counts = state.counts;
                counts.iter_mut().zip(set).for_each(|(sum, count)| *sum += count);
                let fits = |(prices, rest): (&Prices, &f64)| cost(prices, &counts) + rest <= budget.limit;
                if dearest.is_none_or(fits) {
                    layer.push(State { counts, from: number, option });
                }
            }
            if number % 256 == 0 && (self.stop)() {
                return None;
            }
            // Most sums come about in many ways, and are looked at once.
            if layer.len() > 16 * budget.states_max {
                whole &= self.thin(&mut layer, budget, 4 * budget.states_max);
            }
        }
        whole &= self.thin(&mut layer, budget, budget.states_max);
        Some((layer, whole))
    }

    /// Keeps one of equal sums, drops those that cost too much, and of more than `most` the dearest; whether there were
    /// not so many.
    fn thin(
        &mut self,
        layer: &mut Vec<State>,
        Budget { prices, rest, limit, .. }: Budget<'_>,
        most: usize,
    ) -> bool {
        self.states += layer.len() as u64;
        layer.sort_unstable_by_key(|state| (state.counts, state.from, state.option));
        layer.dedup_by_key(|state| state.counts);
        let dearest = |state: &State| {
            let all = prices.iter().zip(rest);
            all.map(|(prices, rest)| cost(prices, &state.counts) + rest).fold(0.0, f64::max)
        };
        let mut costs: Vec<(f64, State)> = layer.iter().map(|state| (dearest(state), *state)).collect();
        costs.retain(|(cost, _)| *cost <= limit);
        let whole = costs.len() <= most;
        if !whole {
            costs.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.counts.cmp(&b.1.counts)));
            costs.truncate(most);
        }
        layer.clear();
        layer.extend(costs.into_iter().map(|(_, state)| state));
        whole
    }
}

/// Places the chosen instances.
fn deployment(tenants: &[Tenant], choices: &[Choice], chosen: &[Counts]) -> Deployment {
    let mut sum = [0; 5];
    for counts in chosen {
        sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let places = arrange(&sum);
    let mut instances = Vec::new();
    for (at, size) in Size::ALL.into_iter().enumerate() {
        let mut free = places[at].iter();
        for ((tenant, choice), counts) in tenants.iter().zip(choices).zip(chosen) {
            for (_, (gpu, start)) in (0..counts[at]).zip(&mut free) {
                let point = choice.points[at].expect("an instance is chosen where a point is quick enough");
                let (batch, processes) = (point.batch, point.processes);
                let model = tenant.model.clone();
                instances.push(Instance { gpu: *gpu, start: *start, size, model, batch, processes });
            }
        }
    }
    instances.sort_by_key(|instance| (instance.gpu, instance.start));
    Deployment { instances }
}
