//! Bounds on what tract may allocate, checked from shapes before it does.

use super::ImportLimits;
use super::error::{ImportError, Problem, Stage};
use super::isolate::isolated;
use crate::translate::dtype;
use std::collections::{BTreeMap, BTreeSet};
use tract_onnx::prelude::{InferenceModel, OutletId, TDim, TVec, TractResult, TypedModel};
use tract_onnx::tract_hir::infer::Factoid;
use tract_onnx::tract_hir::internal::InferenceFact;
use vocab::Bytes;

/// Bytes of the largest constant that may hold lengths of other values.
const SHAPE_BYTES_MAX: u64 = 64 << 10;

/// A constant that would not fit.
struct Excess {
    layer: String,
    value: String,
    bytes: Bytes,
}

/// Refuses a constant expression whose value would not fit, before tract computes it: shapes are inferred first, and a
/// value is computed only once its size is known to be within the limits.
pub(super) fn bounded(model: &InferenceModel, limits: &ImportLimits) -> Result<(), ImportError> {
    let limit = limits.derived;
    match isolated(Stage::Analyse, || excess(model, limit))? {
        None => Ok(()),
        Some(Excess { layer, value, bytes }) => {
            Err(ImportError::ValueTooLarge { layer, value, bytes, limit })
        }
    }
}

fn excess(model: &InferenceModel, limit: Bytes) -> TractResult<Option<Excess>> {
    let mut facts: BTreeMap<OutletId, InferenceFact> = BTreeMap::new();
    let mut constants: BTreeSet<OutletId> = BTreeSet::new();
    let mut left = limit.0;
    for id in model.eval_order()? {
        let node = model.node(id);
        let fact_of = |outlet: &OutletId| facts.get(outlet).cloned().unwrap_or_default();
        let inputs: TVec<InferenceFact> = node.inputs.iter().map(fact_of).collect();
        let observed: TVec<InferenceFact> =
            node.op.observe_outlets(model, node)?.iter().map(fact_of).collect();
        let outputs: TVec<InferenceFact> = node.outputs.iter().map(|output| output.fact.clone()).collect();
        let given = || (inputs.iter().collect(), outputs.iter().collect(), observed.iter().collect());
        // What an operator cannot infer, or refuses, the analysis proper will report.
        let (a, b, c) = given();
        let shaped = node.op.clone().infer_facts(a, b, c);
        let mut known = shaped.map_or_else(|_| outputs.clone(), |facts| facts.1);
        let computed = !inputs.is_empty() && node.inputs.iter().all(|input| constants.contains(input));
        if computed {
            let mut total = 0u64;
            for fact in &known {
                let bytes = inferred_bytes(fact);
                total = total.saturating_add(bytes);
                let Some(rest) = left.checked_sub(bytes) else {
                    let (layer, value) = (node.name.clone(), fact.format_dt_shape());
                    return Ok(Some(Excess { layer, value, bytes: Bytes(bytes) }));
                };
                left = rest;
            }
            // Shapes hang on small values only; large ones need not be known here.
            if total <= SHAPE_BYTES_MAX && inputs.iter().all(|fact| fact.value.is_concrete()) {
                let (a, b, c) = given();
                known = node.op.clone().infer(a, b, c).map_or(known, |facts| facts.1);
            }
        }
        for (slot, fact) in known.into_iter().enumerate() {
            let outlet = OutletId::new(id, slot);
            if computed || (inputs.is_empty() && fact.value.is_concrete()) {
                constants.insert(outlet);
            }
            facts.insert(outlet, fact);
        }
    }
    Ok(None)
}

/// Bytes of a value whose shape is known so far; zero when it is not, which only small selections are.
fn inferred_bytes(fact: &InferenceFact) -> u64 {
    let Some(shape) = fact.shape.concretize() else { return 0 };
    let width = fact.datum_type.concretize().map_or(8, |datum| datum.size_of());
    bytes_of(shape.iter(), width).unwrap_or(0)
}

/// Bytes of a value of these dimensions; `None` while one is a symbol. Overflow counts as the largest number.
fn bytes_of<'d>(dims: impl Iterator<Item = &'d TDim>, width: usize) -> Option<u64> {
    let mut bytes = u64::try_from(width).unwrap_or(u64::MAX);
    for dim in dims {
        bytes = bytes.saturating_mul(u64::try_from(dim.as_i64()?).unwrap_or(0));
    }
    Some(bytes)
}

/// Refuses values larger than the limit, among those whose size is known.
pub(crate) fn oversized(model: &TypedModel, limits: &ImportLimits) -> Result<(), ImportError> {
    for node in model.nodes() {
        let constant = !node.inputs.is_empty()
            && node
                .inputs
                .iter()
                .all(|input| model.outlet_fact(*input).is_ok_and(|fact| fact.konst.is_some()));
        let limit = if constant { limits.derived } else { limits.value };
        for output in &node.outputs {
            let bytes = bytes_of(output.fact.shape.iter(), output.fact.datum_type.size_of()).unwrap_or(0);
            if bytes > limit.0 {
                let (layer, value) = (node.name.clone(), output.fact.format_dt_shape());
                return Err(ImportError::ValueTooLarge { layer, value, bytes: Bytes(bytes), limit });
            }
        }
    }
    Ok(())
}

/// Refuses element types that no device computes with.
pub(super) fn nameable(model: &TypedModel) -> Result<(), ImportError> {
    let mut problems = BTreeSet::new();
    for node in model.nodes() {
        if let Some(output) = node.outputs.iter().find(|output| dtype(output.fact.datum_type).is_none()) {
            let name = format!("{:?} of node {}", output.fact.datum_type, node.name);
            let remedy = "export without it";
            problems.insert(Problem::Unsupported { what: "element type", name, remedy });
        }
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(ImportError::Invalid { problems: problems.into_iter().collect() })
    }
}
