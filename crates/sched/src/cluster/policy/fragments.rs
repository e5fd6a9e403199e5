//! Where gangs go so that as few as can be are split over nodes (the second program of Synergy's OPT, OSDI'22).
//!
//! Each gang is tried whole on every node that differs from those tried, the tightest first, and split last; gangs go in
//! the order of their size. What is split is placed when the rest stands. The search keeps the best placement it has seen
//! and gives up after so many steps. Where it has found none by then, it begins anew with the nodes that have most CPUs
//! left for each GPU first: tight nodes are what small jobs with many CPUs do not find room on in the end.

use super::{Place, Share};
use crate::cluster::{Free, FreeNode, Piece};
use std::cmp::Reverse;

/// A gang to place, and what each of its GPUs takes with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gang {
    pub(super) gpus: u32,
    pub(super) share: Share,
}

/// Steps of a search at most: some ten rounds over a hundred gangs.
const STEPS_MAX: u32 = 2_000;

struct Search<'g> {
    gangs: &'g [Gang],
    /// Places in `gangs`, the largest first.
    order: &'g [usize],
    /// What was free before any gang took its place, and what is left of it.
    all: &'g Free,
    free: Free,
    /// The node of each gang of `order` so far; nothing when it is split.
    chosen: Vec<Option<usize>>,
    /// Gangs that are split, and every gang's pieces.
    best: Option<(u32, Vec<Vec<Piece>>)>,
    first: First,
    steps: u32,
}

/// Which node is tried first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    Tightest,
    MostCpus,
}

/// The pieces of each of `gangs` on what is `free`; nothing when no placement of all was found.
pub(super) fn place(free: &Free, gangs: &[Gang]) -> Option<Vec<Vec<Piece>>> {
    let mut order: Vec<usize> = (0..gangs.len()).collect();
    order.sort_by_key(|at| {
        let Gang { gpus, share } = gangs[*at];
        Reverse((gpus, share.cpu_milli, share.memory))
    });
    let search = |first| {
        let (chosen, best, steps) = (Vec::with_capacity(gangs.len()), None, STEPS_MAX);
        let mut search =
            Search { gangs, order: &order, all: free, free: free.clone(), chosen, best, first, steps };
        search.descend(0);
        search.best.map(|(_, pieces)| pieces)
    };
    search(First::Tightest).or_else(|| search(First::MostCpus))
}

impl Search<'_> {
    fn descend(&mut self, split: u32) {
        if self.steps == 0 || self.best.as_ref().is_some_and(|(best, _)| *best <= split) {
            return;
        }
        self.steps -= 1;
        let Some(at) = self.order.get(self.chosen.len()) else {
            self.best = self.lay_out().map(|pieces| (split, pieces)).or_else(|| self.best.take());
            return;
        };
        let Gang { gpus, share } = self.gangs[*at];
        let most_cpus = self.first == First::MostCpus;
        let key = |node: &FreeNode| {
            let each = node.cpu_milli / u64::from(node.gpus.count().max(1));
            (Reverse(if most_cpus { each } else { 0 }), node.gpus.count(), node.cpu_milli, node.memory)
        };
        let fits = self.free.nodes.iter().enumerate().filter(|(_, node)| share.room(node) >= gpus);
        let mut nodes: Vec<_> = fits.map(|(node, free)| (key(free), node)).collect();
        nodes.sort_unstable();
        // Nodes with as much free are one.
        nodes.dedup_by_key(|(key, _)| *key);
        for (_, node) in nodes {
            let before = self.free.nodes[node];
            share.take(&mut self.free.nodes[node], gpus);
            self.chosen.push(Some(node));
            self.descend(split);
            self.chosen.pop();
            self.free.nodes[node] = before;
        }
        // One GPU cannot be split.
        if gpus > 1 {
            self.chosen.push(None);
            self.descend(split + 1);
            self.chosen.pop();
        }
    }

    /// The pieces of gangs whose nodes are chosen, and of the others over as few nodes as the roomiest first give.
    fn lay_out(&self) -> Option<Vec<Vec<Piece>>> {
        let mut free = self.all.clone();
        let mut pieces = vec![Vec::new(); self.gangs.len()];
        let rows = || self.order.iter().zip(&self.chosen);
        for (at, node) in rows().filter_map(|(at, node)| Some((*at, (*node)?))) {
            let Gang { gpus, share } = self.gangs[at];
            pieces[at] = vec![share.take(&mut free.nodes[node], gpus)];
        }
        for (at, _) in rows().filter(|(_, node)| node.is_none()) {
            let Gang { gpus, share } = self.gangs[*at];
            pieces[*at] = Place::MostFree.take(&mut free, gpus, share)?;
        }
        Some(pieces)
    }
}

#[cfg(test)]
mod tests;
