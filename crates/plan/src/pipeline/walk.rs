//! PipeDream's states: antichains met by a walk from the graph's first source, each standing for all that leads to it.

use super::PipelineError;
use super::layers::Layers;
use std::collections::{BTreeMap, BTreeSet};

/// States that are searched.
const STATES_MAX: usize = 2_000;

/// One place where the graph may be cut.
pub(super) struct State {
    /// Layers before the cut.
    pub prefix: BTreeSet<usize>,
    /// Layers whose output is still needed at the cut.
    pub live: BTreeSet<usize>,
    /// Earlier states from which the walk leads here, transitively.
    pub earlier: Vec<usize>,
}

/// All states, each after those that lead to it.
pub(super) fn states(layers: &Layers) -> Result<Vec<State>, PipelineError> {
    let first = layers.sources().next().ok_or(PipelineError::Empty)?;
    let start = BTreeSet::from([first]);
    let mut number: BTreeMap<BTreeSet<usize>, usize> = BTreeMap::from([(start.clone(), 0)]);
    let mut found = vec![start];
    let mut followers: Vec<Vec<usize>> = Vec::new();
    while followers.len() < found.len() {
        let antichain = found[followers.len()].clone();
        let mut next = Vec::new();
        for following in following(layers, &antichain) {
            let fresh = found.len();
            let at = *number.entry(following.clone()).or_insert(fresh);
            if at == fresh {
                found.push(following);
            }
            if !next.contains(&at) {
                next.push(at);
            }
        }
        followers.push(next);
        if found.len() > STATES_MAX {
            return Err(PipelineError::Cuts { limit: STATES_MAX });
        }
    }
    let order = finishing_order(&followers);
    let mut place = vec![0; order.len()];
    for (at, &state) in order.iter().enumerate() {
        place[state] = at;
    }
    let mut earlier: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); order.len()];
    for &state in &order {
        let mut reaching = earlier[place[state]].clone();
        reaching.insert(place[state]);
        for &follower in &followers[state] {
            earlier[place[follower]].extend(&reaching);
        }
    }
    let states = order.iter().zip(earlier).map(|(&state, earlier)| {
        let antichain = &found[state];
        let mut prefix = antichain.clone();
        for &layer in antichain {
            prefix.extend(&layers.ancestors[layer]);
        }
        State { prefix, live: live(layers, antichain), earlier: earlier.into_iter().collect() }
    });
    Ok(states.collect())
}

/// The antichain with those ancestors of a member that also feed something outside that member's ancestors.
fn live(layers: &Layers, antichain: &BTreeSet<usize>) -> BTreeSet<usize> {
    let mut live = antichain.clone();
    for &member in antichain {
        let ancestors = &layers.ancestors[member];
        let needed = |ancestor: &&usize| {
            layers.followers[**ancestor].iter().any(|next| *next != member && !ancestors.contains(next))
        };
        live.extend(ancestors.iter().filter(needed));
    }
    live
}

fn following(layers: &Layers, antichain: &BTreeSet<usize>) -> Vec<BTreeSet<usize>> {
    let live = live(layers, antichain);
    let mut all = Vec::new();
    for &layer in &live {
        for &next in &layers.followers[layer] {
            if antichain.contains(&next) || !layers.descendants[next].is_disjoint(&live) {
                continue;
            }
            let mut members = live.clone();
            members.remove(&layer);
            members.insert(next);
            let passed = |member: &usize| layers.descendants[*member].is_disjoint(&members);
            all.push(members.iter().copied().filter(passed).collect());
        }
    }
    all
}

/// States in the reverse of the order in which a depth-first walk from the first finishes them.
fn finishing_order(followers: &[Vec<usize>]) -> Vec<usize> {
    let mut seen = vec![false; followers.len()];
    let mut order = Vec::with_capacity(followers.len());
    for start in 0..followers.len() {
        let mut path = if seen[start] { Vec::new() } else { vec![(start, 0)] };
        seen[start] = true;
        while let Some((state, next)) = path.pop() {
            let Some(&follower) = followers[state].get(next) else {
                order.push(state);
                continue;
            };
            path.push((state, next + 1));
            if !std::mem::replace(&mut seen[follower], true) {
                path.push((follower, 0));
            }
        }
    }
    order.reverse();
    order
}
