//! Which dimension of the inputs counts rows, and whether the model keeps rows apart: only then may the rows of different
//! requests share a run.

use tract_onnx::prelude::{
    DatumType, InferenceModel, OutletId, ShapeFact, Symbol, TDim, TVec, ToDim, TractError, TractResult,
    TypedModel, TypedNode,
};
use tract_onnx::tract_core::internal::DimLike;
use tract_onnx::tract_core::internal::TypedOp;
use tract_onnx::tract_core::ops::array::CumSum;
use tract_onnx::tract_core::ops::nn::{Reduce, Softmax};
use tract_onnx::tract_hir::infer::{DimFact, Factoid};
use tract_onnx::tract_hir::internal::{InferenceFact, ShapeFactoid};

/// Whether runs may take a varying number of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Batch {
    /// The first dimension of every input and output is the batch, of any size.
    Symbolic,
    /// The model runs a fixed number of rows.
    Baked {
        /// The rows of its first input.
        rows: usize,
        /// What stands in the way of another number.
        why: String,
    },
    /// No input has a dimension that could count rows.
    None,
}

/// One way to read the inputs' dimensions.
#[derive(Clone)]
pub(super) struct Plan {
    /// A fact for each input.
    pub(super) facts: Vec<InferenceFact>,
    /// The symbol that counts rows, if they vary under this plan.
    pub(super) symbol: Option<Symbol>,
    /// Rows, if they do not vary.
    pub(super) rows: Option<usize>,
}

/// The first dimension of an input.
#[derive(Clone, PartialEq)]
enum Lead {
    Named(Symbol),
    Unknown,
    Fixed(usize),
    /// A scalar, an unknown rank or an expression: not ours to change.
    Other,
}

/// The readings to try, the most useful first. The last has a fixed number of rows, unless nothing counts rows.
pub(super) fn plans(model: &InferenceModel) -> TractResult<Vec<Plan>> {
    let count = model.inputs.len();
    let leads = (0..count).map(|at| lead(model, at)).collect::<TractResult<Vec<Lead>>>()?;
    let named: Vec<&Symbol> = leads
        .iter()
        .filter_map(|lead| if let Lead::Named(symbol) = lead { Some(symbol) } else { None })
        .collect();
    let symbol = batch_symbol(model, &named);
    let variable = |lead: &Lead| matches!(lead, Lead::Named(_) | Lead::Unknown);
    let one = |lead: &Lead| *lead == Lead::Fixed(1);
    let plan = |row: TDim, varies: &dyn Fn(&Lead) -> bool| -> TractResult<Vec<InferenceFact>> {
        leads
            .iter()
            .enumerate()
            .map(|(at, lead)| fact(model, at, varies(lead).then_some(&row), &named, &row))
            .collect()
    };
    let mut plans = Vec::new();
    if leads.iter().any(|lead| variable(lead) || one(lead)) {
        let facts = plan(symbol.to_dim(), &|lead| variable(lead) || one(lead))?;
        plans.push(Plan { facts, symbol: Some(symbol.clone()), rows: None });
    }
    if leads.iter().any(variable) && leads.iter().any(one) {
        let facts = plan(symbol.to_dim(), &variable)?;
        plans.push(Plan { facts, symbol: Some(symbol), rows: None });
    }
    let rows = leads.iter().find_map(|lead| match lead {
        Lead::Fixed(rows) => Some(*rows),
        Lead::Named(_) | Lead::Unknown => Some(1),
        Lead::Other => None,
    });
    plans.push(Plan { facts: plan(1.to_dim(), &variable)?, symbol: None, rows });
    Ok(plans)
}

fn lead(model: &InferenceModel, at: usize) -> TractResult<Lead> {
    let shape = &model.input_fact(at)?.shape;
    if shape.is_open() {
        return Ok(Lead::Other);
    }
    Ok(match shape.dims().next().map(DimFact::concretize) {
        None => Lead::Other,
        Some(None) => Lead::Unknown,
        Some(Some(TDim::Sym(symbol))) => Lead::Named(symbol),
        Some(Some(dim)) => {
            dim.as_i64().and_then(|rows| usize::try_from(rows).ok()).map_or(Lead::Other, Lead::Fixed)
        }
    })
}

/// A symbol that the file does not use for anything but the first dimension.
fn batch_symbol(model: &InferenceModel, named: &[&Symbol]) -> Symbol {
    if let Some(first) = named.first() {
        return (*first).clone();
    }
    let used = model.symbols.all_symbols();
    let mut name = "N".to_owned();
    while used.iter().any(|symbol| symbol.to_string() == name) {
        name.push('_');
    }
    model.symbols.sym(&name)
}

/// The fact of an input: its first dimension replaced if `row` says so, every symbol in `named` replaced by `rows`
/// wherever it stands, and a symbol of its own for each dimension the file leaves open.
fn fact(
    model: &InferenceModel,
    at: usize,
    row: Option<&TDim>,
    named: &[&Symbol],
    rows: &TDim,
) -> TractResult<InferenceFact> {
    let fact = model.input_fact(at)?;
    if fact.shape.is_open() {
        return Ok(fact.clone());
    }
    let name = &model.node(model.inputs[at].node).name;
    let mut dims: TVec<TDim> = TVec::new();
    for (axis, dim) in fact.shape.dims().enumerate() {
        let mut dim = match (axis, row, dim.concretize()) {
            (0, Some(row), _) => row.clone(),
            (_, _, Some(dim)) => dim,
            (_, _, None) => model.symbols.sym(&format!("{name}_{axis}")).to_dim(),
        };
        for symbol in named {
            dim = dim.substitute(symbol, rows)?;
        }
        dims.push(dim);
    }
    let shape: ShapeFactoid = dims.into_iter().collect();
    Ok(fact.clone().with_shape(shape))
}

/// What the length of an axis has to do with rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Length {
    /// Nothing.
    Other,
    /// It is their number.
    Rows,
    /// It is a multiple of their number.
    Multiple,
    /// It depends on their number in another way.
    Mixed,
}

/// Why rows may not be told apart in a model whose rows are `symbol`; `None` when every value keeps them apart and every
/// output leads with them.
pub(super) fn mixed_rows(model: &TypedModel, symbol: &Symbol) -> TractResult<Option<String>> {
    mixed(model, &|outlet, axis| {
        let dim = &model.outlet_fact(outlet)?.shape[axis];
        Ok(if !dim.symbols().contains(symbol) {
            Length::Other
        } else if *dim == symbol.to_dim() {
            Length::Rows
        } else if dim.substitute(symbol, &0.to_dim())? == 0.to_dim() {
            Length::Multiple
        } else {
            Length::Mixed
        })
    })
}

/// As [`mixed_rows`], for a model that has been analysed at two numbers of rows instead of a symbol.
pub(super) fn mixed_between(a: (&TypedModel, usize), b: (&TypedModel, usize)) -> TractResult<Option<String>> {
    let same = |(a, b): (&TypedNode, &TypedNode)| a.name == b.name && a.inputs == b.inputs;
    if a.0.nodes().len() != b.0.nodes().len() || !a.0.nodes().iter().zip(b.0.nodes()).all(same) {
        return Ok(Some("its layers depend on the number of rows".to_owned()));
    }
    let length = |at: (&TypedModel, usize), outlet: OutletId, axis: usize| -> TractResult<usize> {
        at.0.outlet_fact(outlet)?.shape.get(axis).and_then(|dim| dim.to_usize().ok()).ok_or_else(|| {
            TractError::msg(format!("the size of a value of node {} depends on data", outlet.node))
        })
    };
    mixed(a.0, &|outlet, axis| {
        let (in_a, in_b) = (length(a, outlet, axis)?, length(b, outlet, axis)?);
        Ok(if in_a == in_b {
            Length::Other
        } else if (in_a, in_b) == (a.1, b.1) {
            Length::Rows
        } else if in_a.checked_mul(b.1) == in_b.checked_mul(a.1) {
            Length::Multiple
        } else {
            Length::Mixed
        })
    })
}

/// The rule: rows stand alone on an axis, or lead it (a multiple of their number on axis 0, where row-major order keeps
/// a row's elements together), on one axis of each value, and no layer combines elements along that axis.
fn mixed(
    model: &TypedModel,
    length: &dyn Fn(OutletId, usize) -> TractResult<Length>,
) -> TractResult<Option<String>> {
    let row_axes = |outlet: OutletId| -> TractResult<Vec<(usize, Length)>> {
        let rank = model.outlet_fact(outlet)?.rank();
        let all = (0..rank).map(|axis| Ok((axis, length(outlet, axis)?))).collect::<TractResult<Vec<_>>>()?;
        Ok(all.into_iter().filter(|(_, length)| *length != Length::Other).collect())
    };
    for id in model.eval_order()? {
        let node = model.node(id);
        let mut reads_rows = false;
        for input in &node.inputs {
            reads_rows |= !row_axes(*input)?.is_empty();
        }
        for (slot, output) in node.outputs.iter().enumerate() {
            if output.fact.datum_type == DatumType::TDim || output.fact.konst.is_some() {
                continue;
            }
            let apart = match row_axes(OutletId::new(id, slot))?.as_slice() {
                [] => !reads_rows,
                [(axis, length)] => *length == Length::Rows || (*axis == 0 && *length == Length::Multiple),
                _ => false,
            };
            if !apart {
                let (name, shape) = (&node.name, shown(&output.fact.shape));
                return Ok(Some(format!("layer \"{name}\" gives {shape}, which mixes rows")));
            }
        }
        let combined = combined_axes(node.op.as_ref());
        if let Some(input) = node.inputs.first().filter(|_| !combined.is_empty())
            && let Some((axis, _)) = row_axes(*input)?.into_iter().find(|(axis, _)| combined.contains(axis))
        {
            let name = &node.name;
            let why = format!("layer \"{name}\" combines elements along axis {axis}, which counts rows");
            return Ok(Some(why));
        }
    }
    for (at, outlet) in model.outputs.iter().enumerate() {
        if row_axes(*outlet)?.first() != Some(&(0, Length::Rows)) {
            let shape = shown(&model.outlet_fact(*outlet)?.shape);
            return Ok(Some(format!("output {at} has shape {shape}, which does not begin with the rows")));
        }
    }
    Ok(None)
}

fn shown(shape: &ShapeFact) -> String {
    format!("[{}]", shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
}

fn combined_axes(op: &dyn TypedOp) -> Vec<usize> {
    if let Some(reduce) = op.downcast_ref::<Reduce>() {
        return reduce.axes.to_vec();
    }
    if let Some(softmax) = op.downcast_ref::<Softmax>() {
        return softmax.axes.to_vec();
    }
    op.downcast_ref::<CumSum>().map_or(Vec::new(), |sum| vec![sum.axis])
}
