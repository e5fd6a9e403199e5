//! Rewrites that make a graph smaller without changing what it computes: layers that do nothing go, rectifiers get a
//! name, and chains of per-channel scales and shifts (batch normalisations, mostly) fold into the convolution before
//! them or into one layer.
//!
//! Every decision depends on structure and on constants, never on the batch, so that all graphs of a model have the same
//! layers in the same places.

mod affine;
mod folded;
mod tidy;

pub(crate) use folded::Folded;

use crate::ir::{Graph, Layer, ValueId};
use std::collections::BTreeSet;

/// Applies every rewrite; constants it makes are kept in `folded` for the model's other graphs.
pub(crate) fn fold(graph: &mut Graph, folded: &Folded) {
    tidy::drop_identities(graph);
    tidy::name_rectifiers(graph);
    affine::fold_chains(graph, folded);
    affine::join_rectifiers(graph);
    tidy::drop_unused_values(graph);
}

/// Who writes and who reads each value, as a pass found them at its start.
struct Uses {
    producers: Vec<Option<usize>>,
    consumers: Vec<Vec<usize>>,
    outputs: BTreeSet<ValueId>,
}

impl Uses {
    fn of(graph: &Graph) -> Self {
        let outputs = graph.outputs.iter().copied().collect();
        Self { producers: graph.producers(), consumers: graph.consumers(), outputs }
    }

    /// The only layer that reads `value`, if nothing else needs it.
    fn only_reader(&self, value: ValueId) -> Option<usize> {
        match self.consumers[value.index()].as_slice() {
            [reader] if !self.outputs.contains(&value) => Some(*reader),
            _ => None,
        }
    }
}

/// Removes the layers that `gone` marks.
fn remove(layers: &mut Vec<Layer>, gone: &[bool]) {
    let mut at = 0;
    layers.retain(|_| {
        at += 1;
        !gone[at - 1]
    });
}
