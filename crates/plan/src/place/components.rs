//! Strongly connected components, found without recursion (graphs may be a million nodes deep).

use crate::operators::adjacency;

/// The component of each node; components are numbered from 0.
pub(super) fn components(count: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut walk = Walk {
        followers: adjacency(count, edges.iter().copied()),
        entered: vec![None; count],
        low: vec![0; count],
        component: vec![None; count],
        open: Vec::new(),
        entries: 0,
        found: 0,
    };
    for start in 0..count {
        if walk.entered[start].is_none() {
            walk.from(start);
        }
    }
    walk.component.into_iter().map(Option::unwrap_or_default).collect()
}

struct Walk {
    followers: Vec<Vec<usize>>,
    /// When a node was entered.
    entered: Vec<Option<usize>>,
    /// The earliest entered open node that is reached from a node.
    low: Vec<usize>,
    component: Vec<Option<usize>>,
    /// Nodes entered whose component is not known.
    open: Vec<usize>,
    entries: usize,
    found: usize,
}

impl Walk {
    fn from(&mut self, start: usize) {
        let mut path = vec![(start, 0usize)];
        self.enter(start);
        while let Some((node, next)) = path.pop() {
            match self.followers[node].get(next).copied() {
                Some(follower) => {
                    path.push((node, next + 1));
                    match self.entered[follower] {
                        None => {
                            self.enter(follower);
                            path.push((follower, 0));
                        }
                        Some(when) if self.component[follower].is_none() => {
                            self.low[node] = self.low[node].min(when);
                        }
                        Some(_) => {}
                    }
                }
                None => {
                    self.close(node);
                    if let Some(&(parent, _)) = path.last() {
                        self.low[parent] = self.low[parent].min(self.low[node]);
                    }
                }
            }
        }
    }

    fn enter(&mut self, node: usize) {
        self.entered[node] = Some(self.entries);
        self.low[node] = self.entries;
        self.entries += 1;
        self.open.push(node);
    }

    /// Gives the open nodes from `node` on their component, when `node` is its first.
    fn close(&mut self, node: usize) {
        if self.entered[node] != Some(self.low[node]) {
            return;
        }
        while let Some(member) = self.open.pop() {
            self.component[member] = Some(self.found);
            if member == node {
                break;
            }
        }
        self.found += 1;
    }
}
