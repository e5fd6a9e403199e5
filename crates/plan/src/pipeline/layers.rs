//! A training graph as its layers: forward operators with the time of both passes.

use super::PipelineError;
use crate::operators::{OperatorGraph, adjacency, topological};
use std::collections::{BTreeMap, BTreeSet};

/// Layers that are planned for; what each leads to is kept.
const LAYERS_MAX: usize = 4_000;

/// One layer.
pub(super) struct Layer {
    /// Its place in the graph.
    pub place: usize,
    /// Milliseconds of the forward pass, and of the backward pass.
    pub milliseconds: [f64; 2],
    pub output_bytes: f64,
    pub parameter_bytes: f64,
}

/// Layers in the graph's order and the forward edges between them.
pub(super) struct Layers {
    pub layers: Vec<Layer>,
    pub followers: Vec<Vec<usize>>,
    /// All layers that each layer leads to, and all that lead to it.
    pub descendants: Vec<BTreeSet<usize>>,
    pub ancestors: Vec<BTreeSet<usize>>,
}

impl Layers {
    /// The layers of a graph without its inputs (whose time is that of loading data) and outputs that nobody uses.
    pub(super) fn computing(graph: &OperatorGraph) -> Result<Self, PipelineError> {
        Self::kept(graph, |name, fed, feeding| {
            (fed || !name.starts_with("Input")) && (feeding || !name.starts_with("__getitem__"))
        })
    }

    /// All layers of a graph. Inputs take no time, for the host loads their data.
    pub(super) fn all(graph: &OperatorGraph) -> Result<Self, PipelineError> {
        let mut layers = Self::kept(graph, |_, _, _| true)?;
        for (layer, ancestors) in layers.layers.iter_mut().zip(&layers.ancestors) {
            if ancestors.is_empty() && graph.operators()[layer.place].name.starts_with("Input") {
                layer.milliseconds = [0.0; 2];
            }
        }
        Ok(layers)
    }

    /// The layers that `keep` wants, told a name, whether the layer is fed, and whether it feeds.
    fn kept(graph: &OperatorGraph, keep: impl Fn(&str, bool, bool) -> bool) -> Result<Self, PipelineError> {
        let operators = graph.operators();
        let forward: Vec<(usize, usize)> = graph
            .edges()
            .iter()
            .copied()
            .filter(|edge| !operators[edge.0].backward && !operators[edge.1].backward)
            .collect();
        let fed: BTreeSet<usize> = forward.iter().map(|edge| edge.1).collect();
        let feeding: BTreeSet<usize> = forward.iter().map(|edge| edge.0).collect();
        let mut kept: Vec<usize> = (0..operators.len()).filter(|&place| !operators[place].backward).collect();
        kept.retain(|place| keep(&operators[*place].name, fed.contains(place), feeding.contains(place)));
        if kept.is_empty() {
            return Err(PipelineError::Empty);
        }
        if kept.len() > LAYERS_MAX {
            return Err(PipelineError::Layers { found: kept.len(), limit: LAYERS_MAX });
        }
        let mut backward_ms: BTreeMap<Option<i64>, f64> = BTreeMap::new();
        for operator in operators.iter().filter(|operator| operator.backward) {
            let time = operator.accelerator_ms.ok_or(PipelineError::Time { id: operator.id })?;
            *backward_ms.entry(operator.color).or_insert(0.0) += time;
        }
        let mut layers = Vec::with_capacity(kept.len());
        for &place in &kept {
            let operator = &operators[place];
            let forward_ms = operator.accelerator_ms.ok_or(PipelineError::Time { id: operator.id })?;
            let sizes = operator.output_bytes.zip(operator.parameter_bytes);
            let (output, parameters) = sizes.ok_or(PipelineError::Sizes { id: operator.id })?;
            layers.push(Layer {
                place,
                // The first layer of a colour class carries the class's backward time.
                milliseconds: [forward_ms, backward_ms.remove(&operator.color).unwrap_or(0.0)],
                output_bytes: output as f64,
                parameter_bytes: parameters as f64,
            });
        }
        let place_of: BTreeMap<usize, usize> =
            kept.iter().enumerate().map(|(layer, &place)| (place, layer)).collect();
        let edges: Vec<(usize, usize)> = forward
            .iter()
            .filter_map(|(source, target)| Some((*place_of.get(source)?, *place_of.get(target)?)))
            .collect();
        Ok(Self::linked(layers, &edges))
    }

    fn linked(layers: Vec<Layer>, edges: &[(usize, usize)]) -> Self {
        let count = layers.len();
        let followers = adjacency(count, edges.iter().copied());
        let order = topological(count, edges).unwrap_or_else(|_| (0..count).collect());
        let mut descendants = vec![BTreeSet::new(); count];
        for &layer in order.iter().rev() {
            let mut reached = BTreeSet::new();
            for &follower in &followers[layer] {
                reached.insert(follower);
                reached.extend(&descendants[follower]);
            }
            descendants[layer] = reached;
        }
        let mut ancestors = vec![BTreeSet::new(); count];
        for (layer, reached) in descendants.iter().enumerate() {
            for &reached in reached {
                ancestors[reached].insert(layer);
            }
        }
        Self { layers, followers, descendants, ancestors }
    }

    /// The layers that no layer feeds, in the graph's order.
    pub(super) fn sources(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.layers.len()).filter(|&layer| self.ancestors[layer].is_empty())
    }
}
