//! Places where a graph can be cut in two: ideals of its layers, or the beginnings of one order when these are many.

use super::layers::Layers;
use crate::operators::topological;
use std::collections::BTreeSet;

/// Cuts by growing size, the first before every layer, the last behind every layer.
pub(super) struct Cuts {
    cuts: Vec<Vec<u64>>,
    /// Layers before a cut whose output is used behind it.
    live: Vec<Vec<usize>>,
    /// Whether these are all the cuts that the graph has.
    pub complete: bool,
}

impl Cuts {
    /// At most `limit` cuts.
    pub(super) fn new(layers: &Layers, limit: usize) -> Self {
        match ideals(layers, limit) {
            Some(cuts) => Self::of(layers, cuts, true),
            None => Self::few(layers, limit),
        }
    }

    /// At most `limit` cuts of one order.
    pub(super) fn few(layers: &Layers, limit: usize) -> Self {
        Self::of(layers, beginnings(layers, limit), false)
    }

    fn of(layers: &Layers, cuts: Vec<Vec<u64>>, complete: bool) -> Self {
        let count = layers.layers.len();
        let live = cuts.iter().map(|cut| {
            let used = |layer: &usize| {
                holds(cut, *layer) && layers.followers[*layer].iter().any(|&next| !holds(cut, next))
            };
            (0..count).filter(used).collect()
        });
        Self { live: live.collect(), cuts, complete }
    }

    pub(super) fn len(&self) -> usize {
        self.cuts.len()
    }

    pub(super) fn holds(&self, cut: usize, layer: usize) -> bool {
        holds(&self.cuts[cut], layer)
    }

    /// Whether everything before `inner` is before `outer`, and the two differ.
    pub(super) fn inside(&self, inner: usize, outer: usize) -> bool {
        inner < outer
            && self.cuts[inner].iter().zip(&self.cuts[outer]).all(|(inner, outer)| inner & !outer == 0)
    }

    /// Bytes that enter the layers between two cuts, and that leave them.
    pub(super) fn crossing(&self, layers: &Layers, from: usize, to: usize) -> f64 {
        let between = |layer: usize| self.holds(to, layer) && !self.holds(from, layer);
        let entering = self.live[from]
            .iter()
            .filter(|layer| layers.followers[**layer].iter().any(|&next| between(next)));
        let leaving = self.live[to].iter().filter(|layer| !self.holds(from, **layer));
        entering.chain(leaving).map(|&layer| layers.layers[layer].output_bytes).sum()
    }
}

/// All ideals by size, unless they are too many.
fn ideals(layers: &Layers, limit: usize) -> Option<Vec<Vec<u64>>> {
    let count = layers.layers.len();
    let mut all = Vec::new();
    let mut level = BTreeSet::from([vec![0u64; count.div_ceil(64)]]);
    while !level.is_empty() {
        let mut next = BTreeSet::new();
        for ideal in &level {
            let addable = (0..count).filter(|&layer| {
                !holds(ideal, layer) && layers.ancestors[layer].iter().all(|&before| holds(ideal, before))
            });
            for layer in addable {
                next.insert(with(ideal, layer));
            }
            if all.len() + level.len() + next.len() > limit {
                return None;
            }
        }
        all.extend(std::mem::replace(&mut level, next));
    }
    Some(all)
}

/// Beginnings of one order of the layers, evenly many layers apart.
fn beginnings(layers: &Layers, limit: usize) -> Vec<Vec<u64>> {
    let count = layers.layers.len();
    let mut edges = Vec::new();
    for (layer, followers) in layers.followers.iter().enumerate() {
        edges.extend(followers.iter().map(|&next| (layer, next)));
    }
    let order = topological(count, &edges).unwrap_or_else(|_| (0..count).collect());
    let apart = count.div_ceil(limit.saturating_sub(2).max(1));
    let mut at = vec![0u64; count.div_ceil(64)];
    let mut all = vec![at.clone()];
    for (placed, &layer) in (1..).zip(&order) {
        at = with(&at, layer);
        if placed % apart == 0 || placed == count {
            all.push(at.clone());
        }
    }
    all
}

fn holds(bits: &[u64], layer: usize) -> bool {
    bits[layer / 64] >> (layer % 64) & 1 == 1
}

fn with(bits: &[u64], layer: usize) -> Vec<u64> {
    let mut more = bits.to_vec();
    more[layer / 64] |= 1 << (layer % 64);
    more
}
