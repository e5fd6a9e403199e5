//! Which dimension of the inputs counts rows, and whether the model keeps rows apart: only then may the rows of different
//! requests share a run.

use tract_onnx::prelude::{DatumType, InferenceModel, Symbol, TDim, TVec, ToDim, TractResult, TypedModel};
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

/// Why rows may not be told apart; `None` when every value keeps them apart and every output leads with them.
///
/// The rule: rows stand alone on an axis, or lead it (`rows · k` on axis 0, where row-major order keeps a row's elements
/// together), on one axis of each value, and no layer combines elements along that axis.
pub(super) fn mixed_rows(model: &TypedModel, symbol: &Symbol) -> TractResult<Option<String>> {
    let counts_rows = |dim: &TDim| dim.symbols().contains(symbol);
    for id in model.eval_order()? {
        let node = model.node(id);
        let reads_rows = model.node_input_facts(id)?.iter().any(|fact| fact.shape.iter().any(&counts_rows));
        for output in &node.outputs {
            if output.fact.datum_type == DatumType::TDim || output.fact.konst.is_some() {
                continue;
            }
            let axes: Vec<usize> =
                (0..output.fact.rank()).filter(|axis| counts_rows(&output.fact.shape[*axis])).collect();
            let apart = match axes.as_slice() {
                [] => !reads_rows,
                [axis] => stands_apart(&output.fact.shape[*axis], *axis, symbol)?,
                _ => false,
            };
            if !apart {
                let shape = output.fact.shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                return Ok(Some(format!("layer \"{}\" gives [{shape}], which mixes rows", node.name)));
            }
        }
        let facts = model.node_input_facts(id)?;
        if let Some(axis) = combined_axes(node.op.as_ref()).into_iter().find(|axis| {
            facts.first().is_some_and(|fact| *axis < fact.rank() && counts_rows(&fact.shape[*axis]))
        }) {
            return Ok(Some(format!(
                "layer \"{}\" combines elements along axis {axis}, which counts rows",
                node.name
            )));
        }
    }
    for at in 0..model.outputs.len() {
        let shape = &model.output_fact(at)?.shape;
        if shape.iter().next() != Some(&symbol.to_dim()) {
            let shape = shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return Ok(Some(format!("output {at} has shape [{shape}], which does not begin with the rows")));
        }
    }
    Ok(None)
}

fn stands_apart(dim: &TDim, axis: usize, symbol: &Symbol) -> TractResult<bool> {
    if *dim == symbol.to_dim() {
        return Ok(true);
    }
    Ok(axis == 0 && dim.substitute(symbol, &0.to_dim())? == 0.to_dim())
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
