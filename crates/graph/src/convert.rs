//! From tract's typed graph, every symbol replaced, to the layer IR.

use crate::import::ImportError;
use crate::ir::{Graph, Layer, Native, Value, ValueId};
use crate::model::Port;
use crate::rewrite::Folded;
use crate::translate::{dtype, read};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tract_onnx::prelude::{DatumType, OutletId, Tensor, TractResult, TypedFact, TypedModel};
use tract_onnx::tract_core::ops::konst::Const;
use tract_onnx::tract_core::ops::source::TypedSource;

/// Why a model has no graph at some sizes.
#[derive(Debug, thiserror::Error)]
pub enum SizeError {
    /// The file fixes the batch.
    #[error(
        "model \"{model}\" runs {rows} rows at a time, not {asked}: {why}; export it with a dynamic first dimension"
    )]
    Batch {
        /// The model.
        model: String,
        /// Rows it takes.
        rows: usize,
        /// Rows asked for.
        asked: usize,
        /// What fixes them.
        why: String,
    },
    /// A free dimension has no size.
    #[error("dimension \"{dim}\" has no size; give one")]
    Missing {
        /// Its name.
        dim: String,
    },
    /// A size is given for something that is no free dimension.
    #[error("the model has no free dimension \"{dim}\"")]
    Unknown {
        /// The name.
        dim: String,
    },
    /// A size is zero.
    #[error("dimension \"{dim}\" is zero; give at least one")]
    Zero {
        /// Its name.
        dim: String,
    },
    /// The size of a value depends on data, so that nothing can be reserved for it.
    #[error("layer \"{layer}\" gives {shape}, whose size depends on data; move that part out of the model")]
    Dynamic {
        /// The layer.
        layer: String,
        /// The shape, with the unknown in it.
        shape: String,
    },
    /// The model cannot take these sizes.
    #[error(transparent)]
    Refused(#[from] ImportError),
}

/// The IR of `model`, whose shapes must all be numbers.
pub(crate) fn convert(
    name: &str,
    batch: usize,
    model: &TypedModel,
    outputs: &[Port],
    shared: &Folded,
) -> Result<Graph, SizeError> {
    let order = model.eval_order().map_err(refused)?;
    let graph = Graph {
        name: name.to_owned(),
        batch,
        values: Vec::new(),
        layers: Vec::new(),
        inputs: Vec::new(),
        outputs: Vec::new(),
    };
    let mut build = Build { graph, ids: BTreeMap::new(), names: BTreeSet::new(), model, shared };
    for (port, outlet) in outputs.iter().zip(&model.outputs) {
        // Outputs keep the names the file gives them; reserving them first moves others aside.
        build.names.insert(port.name.clone());
        build.ids.entry((outlet.node, outlet.slot)).or_insert(Slot::Named(port.name.clone()));
    }
    for input in &model.inputs {
        let id = build.declare(*input, None)?;
        build.graph.inputs.push(id);
    }
    for node in order {
        build.node(node)?;
    }
    for outlet in &model.outputs {
        let id = build.declare(*outlet, None)?;
        build.graph.outputs.push(id);
    }
    Ok(build.graph)
}

fn refused(error: tract_onnx::prelude::TractError) -> SizeError {
    let why = format!("{error:#}");
    SizeError::Refused(ImportError::Refused { stage: crate::import::Stage::Size, why })
}

/// What is known of an outlet.
enum Slot {
    /// Its name is settled, it has no value yet.
    Named(String),
    /// It is this value.
    At(ValueId),
}

struct Build<'a> {
    graph: Graph,
    ids: BTreeMap<(usize, usize), Slot>,
    names: BTreeSet<String>,
    model: &'a TypedModel,
    shared: &'a Folded,
}

impl Build<'_> {
    fn node(&mut self, id: usize) -> Result<(), SizeError> {
        let node = self.model.node(id);
        if node.op_is::<TypedSource>() {
            return Ok(());
        }
        if let Some(constant) = node.op_as::<Const>() {
            self.declare(OutletId::new(id, 0), Some(constant.val()))?;
            return Ok(());
        }
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for input in &node.inputs {
            inputs.push(self.declare(*input, None)?);
        }
        let mut outputs = Vec::with_capacity(node.outputs.len());
        for slot in 0..node.outputs.len() {
            outputs.push(self.declare(OutletId::new(id, slot), None)?);
        }
        let facts = self.model.node_input_facts(id).map_err(refused)?;
        let op = read(node.op.as_ref(), &facts);
        let native = Some(Native(node.op.clone()));
        self.graph.layers.push(Layer { name: node.name.clone(), op, inputs, outputs, native });
        Ok(())
    }

    /// The value of an outlet, made at its first mention.
    fn declare(&mut self, outlet: OutletId, constant: Option<&Arc<Tensor>>) -> Result<ValueId, SizeError> {
        let key = (outlet.node, outlet.slot);
        let wanted = match self.ids.get(&key) {
            Some(Slot::At(id)) => return Ok(*id),
            Some(Slot::Named(name)) => name.clone(),
            None => self.free_name(outlet),
        };
        let fact = self.model.outlet_fact(outlet).map_err(refused)?;
        let constant =
            constant.map(|constant| self.shared.share(&self.model.node(outlet.node).name, constant));
        let value = value(wanted, &self.model.node(outlet.node).name, fact, constant.as_ref())?;
        let id = self.graph.add_value(value);
        self.ids.insert(key, Slot::At(id));
        Ok(id)
    }

    fn free_name(&mut self, outlet: OutletId) -> String {
        let node = self.model.node(outlet.node);
        let source = node.op_is::<TypedSource>() || node.op_is::<Const>();
        let label = self.model.outlet_label(outlet).filter(|_| !source);
        let wanted = label.unwrap_or(&node.name).to_owned();
        let mut name = wanted.clone();
        let mut count = outlet.slot;
        while !self.names.insert(name.clone()) {
            count += 1;
            name = format!("{wanted}:{count}");
        }
        name
    }
}

fn value(
    name: String,
    layer: &str,
    fact: &TypedFact,
    constant: Option<&Arc<Tensor>>,
) -> Result<Value, SizeError> {
    let dynamic = || SizeError::Dynamic { layer: layer.to_owned(), shape: fact.format_dt_shape() };
    if constant.is_none() && fact.datum_type == DatumType::TDim {
        return Err(dynamic());
    }
    let shape = fact.shape.as_concrete().ok_or_else(dynamic)?.to_vec();
    let dtype = dtype(fact.datum_type).ok_or_else(dynamic)?;
    let constant = constant.map(plain).transpose().map_err(refused)?;
    Ok(Value { name, dtype, shape, constant })
}

/// Shapes become plain integers: no symbol is left in them.
fn plain(constant: &Arc<Tensor>) -> TractResult<Arc<Tensor>> {
    if constant.datum_type() == DatumType::TDim {
        return Ok(Arc::new(constant.cast_to::<i64>()?.into_owned()));
    }
    Ok(constant.clone())
}
