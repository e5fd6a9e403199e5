//! Least cuts between two nodes, by Dinic's method.

/// A network of directed edges with capacities.
#[derive(Clone)]
pub(super) struct Network {
    /// The edges that leave each node.
    leaving: Vec<Vec<usize>>,
    /// Where an edge leads, and what it can still carry; an edge and its reverse are neighbours.
    edges: Vec<(usize, f64)>,
}

/// Flow below this is rounding.
const LEAST: f64 = 1e-12;

impl Network {
    pub(super) fn new(nodes: usize) -> Self {
        Self { leaving: vec![Vec::new(); nodes], edges: Vec::new() }
    }

    pub(super) fn add(&mut self, from: usize, to: usize, capacity: f64) {
        self.leaving[from].push(self.edges.len());
        self.edges.push((to, capacity));
        self.leaving[to].push(self.edges.len());
        self.edges.push((from, 0.0));
    }

    /// The capacity of the least cut between two nodes.
    pub(super) fn cut(mut self, source: usize, sink: usize) -> f64 {
        let mut total = 0.0;
        loop {
            let distance = self.distances(source);
            if distance[sink] == usize::MAX {
                return total;
            }
            let mut next = vec![0; self.leaving.len()];
            loop {
                let pushed = self.push(source, sink, &distance, &mut next);
                if pushed <= LEAST {
                    break;
                }
                total += pushed;
            }
        }
    }

    fn distances(&self, source: usize) -> Vec<usize> {
        let mut distance = vec![usize::MAX; self.leaving.len()];
        distance[source] = 0;
        let mut open = std::collections::VecDeque::from([source]);
        while let Some(node) = open.pop_front() {
            for &edge in &self.leaving[node] {
                let (to, left) = self.edges[edge];
                if left > LEAST && distance[to] == usize::MAX {
                    distance[to] = distance[node] + 1;
                    open.push_back(to);
                }
            }
        }
        distance
    }

    /// Pushes along one shortest path; how much.
    fn push(&mut self, source: usize, sink: usize, distance: &[usize], next: &mut [usize]) -> f64 {
        let mut path: Vec<usize> = Vec::new();
        let mut at = source;
        while at != sink {
            match self.leaving[at].get(next[at]).copied() {
                Some(edge) => {
                    let (to, left) = self.edges[edge];
                    if left > LEAST && distance[to] == distance[at] + 1 {
                        path.push(edge);
                        at = to;
                    } else {
                        next[at] += 1;
                    }
                }
                None => {
                    let Some(edge) = path.pop() else { return 0.0 };
                    at = self.edges[edge ^ 1].0;
                    next[at] += 1;
                }
            }
        }
        let pushed = path.iter().map(|&edge| self.edges[edge].1).fold(f64::INFINITY, f64::min);
        for edge in path {
            self.edges[edge].1 -= pushed;
            self.edges[edge ^ 1].1 += pushed;
        }
        pushed
    }
}
