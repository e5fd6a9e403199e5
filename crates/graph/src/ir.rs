//! The layer IR: one node a layer, every shape known, weights shared and never copied.
//!
//! ```text
//! values:  x ── conv1 ──▶ v1 ── relu ──▶ v2 ── …        layers are kept in execution order
//!               ▲ weights are values too, with their constant attached
//! ```

use crate::{DType, Op};
use std::collections::BTreeSet;
use std::sync::Arc;
use tract_onnx::prelude::Tensor;
use tract_onnx::tract_core::ops::TypedOp;
use vocab::Bytes;

/// The place of a value in [`Graph::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(pub u32);

/// A tensor of the graph: an input, a weight, or what a layer writes.
#[derive(Clone, Debug)]
pub struct Value {
    /// Unique within the graph.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Its data, when it is a weight.
    pub constant: Option<Arc<Tensor>>,
}

/// One step of the model.
#[derive(Clone, Debug)]
pub struct Layer {
    /// The ONNX node it comes from, made unique.
    pub name: String,
    /// What it computes.
    pub op: Op,
    /// What it reads, weights included, in the operator's order.
    pub inputs: Vec<ValueId>,
    /// What it writes.
    pub outputs: Vec<ValueId>,
    /// How tract spells it, while `op` is exactly what the importer read; a rewrite clears it.
    pub native: Option<Native>,
}

/// A tract operator carried along, so that the CPU backend runs what was imported without translating it twice.
#[derive(Clone, Debug)]
pub struct Native(pub Box<dyn TypedOp>);

/// A model at one set of sizes.
#[derive(Clone, Debug)]
pub struct Graph {
    /// The model's name.
    pub name: String,
    /// Rows of the batch dimension.
    pub batch: usize,
    /// Every value; [`ValueId`] indexes it.
    pub values: Vec<Value>,
    /// Every layer, in an order in which it can run.
    pub layers: Vec<Layer>,
    /// What the caller supplies, in the file's order.
    pub inputs: Vec<ValueId>,
    /// What the caller receives, in the file's order.
    pub outputs: Vec<ValueId>,
}

impl Value {
    /// Number of elements.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.shape.iter().fold(1, |count, dim| count.saturating_mul(u64::try_from(*dim).unwrap_or(u64::MAX)))
    }

    /// Bytes of its elements.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes(self.elements().saturating_mul(self.dtype.size() as u64))
    }

    /// Numbers that training would change, if this is a constant: floating-point, of at least one dimension.
    #[must_use]
    pub fn parameters(&self) -> u64 {
        let real = matches!(self.dtype, DType::F16 | DType::F32 | DType::F64);
        if real && !self.shape.is_empty() && self.constant.is_some() { self.elements() } else { 0 }
    }
}

impl ValueId {
    /// Its place, as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Graph {
    /// The value at `id`.
    ///
    /// # Panics
    /// When `id` comes from another graph.
    #[must_use]
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// The data of a value, when it is a constant.
    #[must_use]
    pub fn constant(&self, id: ValueId) -> Option<&Arc<Tensor>> {
        self.value(id).constant.as_ref()
    }

    /// Which layer writes each value; `None` for inputs and constants.
    #[must_use]
    pub fn producers(&self) -> Vec<Option<usize>> {
        let mut producers = vec![None; self.values.len()];
        for (at, layer) in self.layers.iter().enumerate() {
            for output in &layer.outputs {
                producers[output.index()] = Some(at);
            }
        }
        producers
    }

    /// Which layers read each value, ascending; a layer that reads a value twice is listed once.
    #[must_use]
    pub fn consumers(&self) -> Vec<Vec<usize>> {
        let mut consumers = vec![Vec::new(); self.values.len()];
        for (at, layer) in self.layers.iter().enumerate() {
            for input in layer.inputs.iter().collect::<BTreeSet<_>>() {
                consumers[input.index()].push(at);
            }
        }
        consumers
    }

    /// Number of learnable numbers: floating-point constants of at least one dimension that a layer reads.
    ///
    /// Folding a normalisation changes it; what the file declares is [`crate::Model::parameters`].
    #[must_use]
    pub fn parameters(&self) -> u64 {
        self.weights().iter().map(|id| self.value(*id).parameters()).sum()
    }

    /// Bytes of all constants that layers read.
    #[must_use]
    pub fn weight_bytes(&self) -> Bytes {
        self.weights().iter().map(|id| self.value(*id).bytes()).sum()
    }

    /// Every constant that a layer reads, in the order of first use: the order in which weights are needed on a device.
    #[must_use]
    pub fn weights(&self) -> Vec<ValueId> {
        let mut seen = BTreeSet::new();
        let read = self.layers.iter().flat_map(|layer| &layer.inputs);
        read.filter(|id| self.constant(**id).is_some() && seen.insert(**id)).copied().collect()
    }

    /// Adds a value, and says where it is.
    ///
    /// # Panics
    /// When there are more values than a [`ValueId`] can name, which the importer's limits exclude.
    pub(crate) fn add_value(&mut self, value: Value) -> ValueId {
        let id = u32::try_from(self.values.len()).expect("imports bound the number of values");
        self.values.push(value);
        ValueId(id)
    }
}
