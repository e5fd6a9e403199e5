//! From a validated file to tract's typed graph, constants folded, with the batch symbolic if the model allows it.

use super::batch::{self, Batch, Plan};
use super::error::{ImportError, Problem, Stage};
use super::isolate::isolated;
use super::{ImportLimits, validate};
use crate::model::{Dim, Port};
use crate::translate::dtype;
use std::collections::{BTreeMap, BTreeSet};
use tract_onnx::pb::{GraphProto, ModelProto, TensorProto};
use tract_onnx::prelude::{
    InferenceModel, InferenceModelExt, OutletId, Symbol, TDim, TVec, TractError, TractResult, TypedFact,
    TypedModel,
};
use tract_onnx::tract_hir::infer::Factoid;
use tract_onnx::tract_hir::internal::InferenceFact;
use vocab::Bytes;

/// What an import gives.
#[derive(Debug)]
pub(crate) struct Typed {
    pub(crate) model: TypedModel,
    pub(crate) batch: Batch,
    pub(crate) batch_symbol: Option<Symbol>,
    pub(crate) inputs: Vec<Port>,
    pub(crate) outputs: Vec<Port>,
    /// Dimensions other than the batch that the caller chooses.
    pub(crate) free: BTreeMap<String, Symbol>,
    pub(crate) parameters: u64,
}

/// Has tract analyse the model under each reading of its batch, and keeps the first that works.
pub(super) fn analyse(proto: ModelProto, limits: &ImportLimits) -> Result<Typed, ImportError> {
    let graph = proto.graph.as_ref();
    let parameters = graph.map_or(0, parameters);
    let output_names: Vec<String> =
        graph.iter().flat_map(|graph| &graph.output).map(|port| port.name.clone()).collect();
    let parsed = isolated(Stage::Parse, || parse(&proto))?;
    drop(proto);
    let plans = isolated(Stage::Parse, || batch::plans(&parsed))?;
    let last = plans.len() - 1;
    let mut why: Option<String> = None;
    for (at, plan) in plans.into_iter().enumerate() {
        match attempt(&parsed, &plan, limits) {
            Ok(model) => {
                let mixed = match &plan.symbol {
                    Some(symbol) => isolated(Stage::Analyse, || batch::mixed_rows(&model, symbol))?,
                    None => None,
                };
                let Some(reason) = mixed else {
                    return finish(model, plan, why, &output_names, parameters);
                };
                why.get_or_insert(reason);
            }
            Err(error) if at == last => return Err(error),
            Err(error @ ImportError::Invalid { .. }) => return Err(error),
            Err(error) => {
                why.get_or_insert(format!("with any number of rows, {}", first_words(&error.to_string())));
            }
        }
    }
    Err(ImportError::Refused { stage: Stage::Analyse, why: why.unwrap_or_default() })
}

fn parse(proto: &ModelProto) -> TractResult<InferenceModel> {
    // Exporters leave stale shapes of inner values and outputs behind; tract works them out better by itself.
    let onnx = tract_onnx::onnx().with_ignore_output_shapes(true).with_ignore_value_info(true);
    let parsed = onnx.parse(proto, None)?;
    match parsed.unresolved_inputs.as_slice() {
        [] => Ok(parsed.model),
        [first, ..] => Err(TractError::msg(format!("nothing writes \"{first}\""))),
    }
}

/// tract's messages list whole facts; the first part says what is wrong.
fn first_words(text: &str) -> String {
    const SHOWN: usize = 400;
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

fn attempt(parsed: &InferenceModel, plan: &Plan, limits: &ImportLimits) -> Result<TypedModel, ImportError> {
    let mut model = parsed.clone();
    isolated(Stage::Analyse, || {
        for (at, fact) in plan.facts.iter().enumerate() {
            model.set_input_fact(at, fact.clone())?;
        }
        Ok(())
    })?;
    bounded(&model, limits)?;
    let mut typed = isolated(Stage::Analyse, || model.into_typed())?;
    oversized(&typed, limits)?;
    let typed = isolated(Stage::Type, || {
        typed.prop_consts()?;
        typed.compact()?;
        Ok(typed)
    })?;
    oversized(&typed, limits)?;
    nameable(&typed)?;
    Ok(typed)
}

/// A constant that would not fit.
struct Excess {
    layer: String,
    value: String,
    bytes: Bytes,
}

/// Refuses a constant expression whose value would not fit, before tract computes it: shapes are inferred first, and a
/// value is computed only once its size is known to be within the limits.
fn bounded(model: &InferenceModel, limits: &ImportLimits) -> Result<(), ImportError> {
    let limit = limits.derived;
    match isolated(Stage::Analyse, || excess(model, limit))? {
        None => Ok(()),
        Some(Excess { layer, value, bytes }) => {
            Err(ImportError::ValueTooLarge { layer, value, bytes, limit })
        }
    }
}

fn excess(model: &InferenceModel, limit: Bytes) -> TractResult<Option<Excess>> {
    let mut facts: BTreeMap<(usize, usize), InferenceFact> = BTreeMap::new();
    let mut left = limit.0;
    for id in model.eval_order()? {
        let node = model.node(id);
        let fact_of = |outlet: &OutletId| facts.get(&(outlet.node, outlet.slot)).cloned().unwrap_or_default();
        let inputs: TVec<InferenceFact> = node.inputs.iter().map(fact_of).collect();
        let observed: TVec<InferenceFact> =
            node.op.observe_outlets(model, node)?.iter().map(fact_of).collect();
        let outputs: TVec<InferenceFact> = node.outputs.iter().map(|output| output.fact.clone()).collect();
        // What an operator cannot infer, or refuses, the analysis proper will report.
        let shaped = node.op.clone().infer_facts(
            inputs.iter().collect(),
            outputs.iter().collect(),
            observed.iter().collect(),
        );
        let mut known = shaped.map_or_else(|_| outputs.clone(), |facts| facts.1);
        if !inputs.is_empty() && inputs.iter().all(|fact| fact.value.is_concrete()) {
            for fact in &known {
                let bytes = inferred_bytes(fact);
                let Some(rest) = left.checked_sub(bytes) else {
                    let (layer, value) = (node.name.clone(), fact.format_dt_shape());
                    return Ok(Some(Excess { layer, value, bytes: Bytes(bytes) }));
                };
                left = rest;
            }
            let computed = node.op.clone().infer(
                inputs.iter().collect(),
                outputs.iter().collect(),
                observed.iter().collect(),
            );
            known = computed.map_or(known, |facts| facts.1);
        }
        facts.extend(known.into_iter().enumerate().map(|(slot, fact)| ((id, slot), fact)));
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
fn nameable(model: &TypedModel) -> Result<(), ImportError> {
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

fn finish(
    model: TypedModel,
    plan: Plan,
    why: Option<String>,
    output_names: &[String],
    parameters: u64,
) -> Result<Typed, ImportError> {
    let symbol = plan.symbol;
    let input_names: Vec<String> =
        model.inputs.iter().map(|input| model.node(input.node).name.clone()).collect();
    let inputs = ports(&input_names, &model.inputs, &model, symbol.as_ref())?;
    let outputs = ports(output_names, &model.outputs, &model, symbol.as_ref())?;
    let mut free = BTreeMap::new();
    for input in &model.inputs {
        let fact = fact_of(&model, *input)?;
        for used in fact.shape.iter().flat_map(TDim::symbols).filter(|used| Some(used) != symbol.as_ref()) {
            free.insert(used.to_string(), used);
        }
    }
    let batch = match (&symbol, plan.rows) {
        (Some(_), _) => Batch::Symbolic,
        (None, None) => Batch::None,
        (None, Some(rows)) => {
            let fixed = || format!("the file fixes the first dimension at {rows}");
            Batch::Baked { rows, why: why.unwrap_or_else(fixed) }
        }
    };
    Ok(Typed { model, batch, batch_symbol: symbol, inputs, outputs, free, parameters })
}

fn ports(
    names: &[String],
    outlets: &[OutletId],
    model: &TypedModel,
    batch: Option<&Symbol>,
) -> Result<Vec<Port>, ImportError> {
    names
        .iter()
        .zip(outlets)
        .map(|(name, outlet)| {
            let fact = fact_of(model, *outlet)?;
            let dims = fact.shape.iter().map(|dim| match (dim, dim.as_i64()) {
                (_, Some(length)) => Dim::Fixed(usize::try_from(length).unwrap_or(0)),
                (TDim::Sym(symbol), None) if Some(symbol) == batch => Dim::Batch,
                (other, None) => Dim::Free(other.to_string()),
            });
            let unnamed = || {
                let (name, remedy) = (format!("{:?} of {name}", fact.datum_type), "export without it");
                ImportError::Invalid {
                    problems: vec![Problem::Unsupported { what: "element type", name, remedy }],
                }
            };
            let shape = dims.collect();
            Ok(Port { name: name.clone(), dtype: dtype(fact.datum_type).ok_or_else(unnamed)?, shape })
        })
        .collect()
}

fn fact_of(model: &TypedModel, outlet: OutletId) -> Result<&TypedFact, ImportError> {
    let refused = |error: TractError| ImportError::Refused { stage: Stage::Type, why: format!("{error:#}") };
    model.outlet_fact(outlet).map_err(refused)
}

/// Numbers that training would change: floating-point constants of at least one dimension, without the running
/// statistics of batch normalisations.
fn parameters(graph: &GraphProto) -> u64 {
    let statistics: BTreeSet<&str> = graph
        .node
        .iter()
        .filter(|node| node.op_type == "BatchNormalization")
        .flat_map(|node| node.input.iter().skip(3).map(String::as_str))
        .collect();
    let learnable =
        |tensor: &&TensorProto| matches!(tensor.data_type, 1 | 10 | 11) && !tensor.dims.is_empty();
    let named = graph.initializer.iter().filter(|tensor| !statistics.contains(tensor.name.as_str()));
    let constants = graph.node.iter().filter(|node| node.op_type == "Constant");
    let constants =
        constants.filter(|node| !node.output.iter().any(|output| statistics.contains(output.as_str())));
    let inline =
        constants.flat_map(|node| node.attribute.iter().filter_map(|attribute| attribute.t.as_ref()));
    named
        .chain(inline)
        .filter(learnable)
        .filter_map(|tensor| Some(validate::data_bytes(tensor)? / validate::width(tensor)?))
        .sum()
}
