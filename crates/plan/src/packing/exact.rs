//! The fewest GPUs, proved where the search ends.
//!
//! Tenants meet only in how many instances of each size there are together ([`gpus_needed`]). For each tenant the sets of
//! instances that serve it and hold nothing to spare are listed. Sums over tenants are built tenant by tenant, for a number
//! of GPUs that grows from the lower bound: a sum is dropped when at some extreme prices it and the cheapest sets of the
//! tenants to come cost more than these GPUs. When no sum is left, so few GPUs cannot do.

use super::bound::{Bound, Prices, TOLERANCE, bound, cheapest, cost, vertices};
use super::choices::{Choice, Terms, UnservedError, choices};
use super::deployment::{Deployment, Instance};
use super::judge::{PackVerdict, judge_packing};
use super::published::published;
use super::slots::{Counts, Size, arrange, gpus_needed};
use super::tables::{ModelTable, Tenant};
use thiserror::Error;

/// Sets of instances that are listed for a tenant.
const OPTIONS_MAX: usize = 20_000;

/// Sums that are kept for a number of tenants.
const STATES_MAX: usize = 200_000;

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

/// What one tenant may be served by.
struct Options {
    sets: Vec<Counts>,
    /// Whether the list holds every set that could be best.
    complete: bool,
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
    let listed: Vec<Options> =
        tenants.iter().zip(&choices).map(|(tenant, choice)| options(tenant.rate, choice)).collect();
    let complete = listed.iter().all(|options| options.complete);
    let sets: Vec<Vec<Counts>> = listed.into_iter().map(|options| options.sets).collect();
    let vertices = vertices();
    let mut bound = bound(tenants, &choices, &sets, &vertices);
    if !complete {
        // Prices know only the listed sets.
        (bound.priced, bound.gpus) = (f64::from(bound.fractional_gpus), bound.fractional_gpus);
    }
    let mut lower = bound.gpus;
    let too_few = |lower: u32| PackError::Gpus { tenants: tenants.len(), lower, gpus: terms.gpus_max };
    let rival = rival(tables, tenants, terms).filter(|rival| rival.gpus() <= as_usize(terms.gpus_max));
    let most = rival.as_ref().map_or(terms.gpus_max, |rival| u32::try_from(rival.gpus()).unwrap_or(u32::MAX));
    let mut search = Search { sets: &sets, vertices: &vertices, states: 0, stop };
    let mut exact = complete;
    for gpus in bound.gpus..=most {
        let (found, whole) = search.within(gpus);
        if let Some(chosen) = found {
            let deployment = deployment(tenants, &choices, &chosen);
            let report = PackReport { gpus, bound, lower, proved: lower == gpus, states: search.states };
            return Ok((deployment, report));
        }
        exact &= whole;
        if exact {
            lower = gpus + 1;
        }
        if stop() {
            break;
        }
    }
    match rival {
        Some(rival) => {
            let gpus = most;
            let report = PackReport { gpus, bound, lower, proved: lower >= gpus, states: search.states };
            Ok((rival, report))
        }
        None if lower > terms.gpus_max => Err(too_few(lower)),
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

/// Lists the sets of instances that serve a rate and of which none can be left out or made smaller.
fn options(rate: f64, choice: &Choice) -> Options {
    let per_s = choice.per_s();
    if let Some(sets) = minimal(rate, &per_s) {
        return Options { sets, complete: true };
    }
    let sizes = Size::ALL.iter().zip(per_s);
    let slice =
        |(place, (size, per_s)): (usize, (&Size, f64))| (per_s / f64::from(size.slices()), place, per_s);
    let best = sizes.enumerate().map(slice).max_by(|a, b| a.0.total_cmp(&b.0));
    let (_, place, best) = best.expect("there are five sizes");
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the rate is below what all GPUs do"
    )]
    let given = ((rate / best - LISTED_INSTANCES).floor().max(0.0)) as u32;
    let left = minimal(rate - f64::from(given) * best, &per_s).unwrap_or_else(|| vec![[0; 5]]);
    let add = |mut set: Counts| {
        set[place] += given;
        set
    };
    Options { sets: left.into_iter().map(add).collect(), complete: false }
}

/// The sets themselves; `None` when there are too many.
fn minimal(rate: f64, per_s: &[f64; 5]) -> Option<Vec<Counts>> {
    let used: Vec<usize> = (0..5).filter(|&place| per_s[place] > 0.0).collect();
    let mut sets = Vec::new();
    // Counts of the larger sizes are tried one by one, those of the smallest follow.
    let mut open: Vec<(usize, Counts, f64)> = vec![(used.len(), [0; 5], rate)];
    let mut tried = 0usize;
    while let Some((left, counts, rest)) = open.pop() {
        tried += 1;
        if tried > 50 * OPTIONS_MAX || sets.len() > OPTIONS_MAX {
            return None;
        }
        if rest <= 0.0 {
            if tight(&counts, rate, per_s, &used) {
                sets.push(counts);
            }
            continue;
        }
        let Some(at) = left.checked_sub(1) else { continue };
        let place = used[at];
        let whole = (rest / per_s[place]).ceil();
        if whole > 10_000.0 {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most ten thousand")]
        let whole = whole as u32;
        for count in if at == 0 { whole..=whole } else { 0..=whole } {
            let mut counts = counts;
            counts[place] = count;
            open.push((at, counts, rate - served(&counts, per_s)));
        }
    }
    sets.sort_unstable();
    sets.dedup();
    Some(sets)
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
    sets: &'a [Vec<Counts>],
    vertices: &'a [Prices],
    states: u64,
    stop: &'a dyn Fn() -> bool,
}

impl Search<'_> {
    /// The set of each tenant on so many GPUs, if there is one; and whether all were looked at that may be.
    fn within(&mut self, gpus: u32) -> (Option<Vec<Counts>>, bool) {
        let limit = f64::from(gpus) + TOLERANCE;
        let least: Vec<Vec<f64>> = self
            .sets
            .iter()
            .map(|sets| self.vertices.iter().map(|prices| cheapest(prices, sets).0).collect())
            .collect();
        let total: Vec<f64> =
            (0..self.vertices.len()).map(|at| least.iter().map(|own| own[at]).sum()).collect();
        if total.iter().any(|total| *total > limit) {
            return (None, true);
        }
        // What a set costs more than the cheapest leaves less for all others.
        let affordable = |(sets, least): (&Vec<Counts>, &Vec<f64>)| {
            let fits = |set: &Counts| {
                let all = self.vertices.iter().zip(least.iter().zip(&total));
                all.into_iter().all(|(prices, (least, total))| total - least + cost(prices, set) <= limit)
            };
            sets.iter().copied().filter(fits).collect::<Vec<Counts>>()
        };
        let sets: Vec<Vec<Counts>> = self.sets.iter().zip(&least).map(affordable).collect();
        // Few choices first keep sums few.
        let mut order: Vec<usize> = (0..sets.len()).collect();
        order.sort_by_key(|&tenant| (sets[tenant].len(), tenant));
        let mut rest = total;
        let mut whole = true;
        let mut layers: Vec<Vec<State>> = vec![vec![State { counts: [0; 5], from: 0, option: 0 }]];
        for &tenant in &order {
            rest.iter_mut().zip(&least[tenant]).for_each(|(rest, own)| *rest -= own);
            let from = layers.last().map_or(&[][..], Vec::as_slice);
            let (layer, kept_all) = self.extend(from, &sets[tenant], (&rest, limit));
            whole &= kept_all;
            layers.push(layer);
            if (self.stop)() {
                return (None, false);
            }
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

    /// Adds each set to each sum; drops what cannot do. Whether nothing else was dropped.
    fn extend(
        &mut self,
        from: &[State],
        sets: &[Counts],
        (rest, limit): (&[f64], f64),
    ) -> (Vec<State>, bool) {
        let dearest = |counts: &Counts| {
            let all = self.vertices.iter().zip(rest);
            all.map(|(prices, rest)| cost(prices, counts) + rest).fold(0.0, f64::max)
        };
        let mut layer: Vec<State> = Vec::new();
        let mut whole = true;
        for (number, state) in (0u32..).zip(from) {
            for (option, set) in (0u32..).zip(sets) {
                let mut counts = state.counts;
                counts.iter_mut().zip(set).for_each(|(sum, count)| *sum += count);
                layer.push(State { counts, from: number, option });
            }
            // Most sums come about in many ways, and are looked at once.
            if layer.len() > 4 * STATES_MAX {
                self.states += layer.len() as u64;
                distinct(&mut layer);
                layer.retain(|state| dearest(&state.counts) <= limit);
                if layer.len() > 2 * STATES_MAX || (self.stop)() {
                    whole = false;
                    cheapest_first(&mut layer, dearest);
                }
            }
        }
        self.states += layer.len() as u64;
        distinct(&mut layer);
        layer.retain(|state| dearest(&state.counts) <= limit);
        if layer.len() > STATES_MAX {
            whole = false;
            cheapest_first(&mut layer, dearest);
        }
        (layer, whole)
    }
}

fn distinct(layer: &mut Vec<State>) {
    layer.sort_unstable_by_key(|state| (state.counts, state.from, state.option));
    layer.dedup_by_key(|state| state.counts);
}

/// Keeps the sums that cost least with what is to come.
fn cheapest_first(layer: &mut Vec<State>, dearest: impl Fn(&Counts) -> f64) {
    layer.sort_by(|a, b| dearest(&a.counts).total_cmp(&dearest(&b.counts)).then(a.counts.cmp(&b.counts)));
    layer.truncate(STATES_MAX);
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
