//! From a validated file to tract's typed graph: once, with symbols for what varies, if tract can carry them through;
//! otherwise anew for each set of sizes.

use super::ImportLimits;
use super::batch::{self, Batch, Plan};
use super::bounds::{bounded, nameable, oversized};
use super::error::{ImportError, Stage};
use super::isolate::isolated;
use super::ports::{parameters, port, port_of};
use crate::model::{Dim, Port};
use std::collections::{BTreeMap, HashMap};
use tract_onnx::pb::ModelProto;
use tract_onnx::prelude::{
    InferenceModel, InferenceModelExt, Symbol, TDim, ToDim, TractError, TractResult, TypedModel,
};
use tract_onnx::tract_core::internal::DimLike;
use tract_onnx::tract_hir::infer::{DimFact, Factoid};
use tract_onnx::tract_hir::internal::{InferenceFact, ShapeFactoid};

/// Rows at which a model without symbols is analysed to see what depends on them: no layer has such sizes by itself.
const ROWS: (usize, usize) = (5, 7);
/// Sizes at which open dimensions are tried when tract cannot leave them open: image sides and text lengths in common
/// use, all of them whole numbers of a usual step.
const PROBES: [usize; 8] = [64, 48, 224, 320, 32, 416, 512, 640];

/// What an import gives.
#[derive(Debug)]
pub(crate) struct Typed {
    pub(crate) source: Source,
    pub(crate) batch: Batch,
    pub(crate) batch_symbol: Option<Symbol>,
    pub(crate) inputs: Vec<Port>,
    pub(crate) outputs: Vec<Port>,
    /// Dimensions other than the batch that the caller chooses.
    pub(crate) free: BTreeMap<String, Symbol>,
    pub(crate) parameters: u64,
}

/// Where the typed graph at some sizes comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// Analysed once; symbols are replaced.
    Symbolic(TypedModel),
    /// Analysed anew for each set of sizes, from these facts of the inputs.
    Sized(InferenceModel, Vec<InferenceFact>),
}

impl Source {
    /// The typed graph with every symbol replaced, constants folded.
    pub(crate) fn at(
        &self,
        sizes: &HashMap<Symbol, TDim>,
        limits: &ImportLimits,
    ) -> Result<TypedModel, ImportError> {
        match self {
            Self::Symbolic(model) => {
                let sized = isolated(Stage::Size, || model.set_symbols(sizes))?;
                folded(sized, Stage::Size, limits)
            }
            Self::Sized(model, facts) => {
                let facts =
                    isolated(Stage::Size, || facts.iter().map(|fact| substituted(fact, sizes)).collect())?;
                attempt(model, facts, limits)
            }
        }
    }
}

/// What is the same under every reading of the file.
struct File<'a> {
    parsed: InferenceModel,
    output_names: Vec<String>,
    parameters: u64,
    limits: &'a ImportLimits,
}

/// A reading of the file that failed: why, and whether because rows are not kept apart.
enum Failure {
    Mixed(String),
    Error(ImportError),
}

impl From<ImportError> for Failure {
    fn from(error: ImportError) -> Self {
        Self::Error(error)
    }
}

/// Has tract analyse the model under each reading of its batch, and keeps the first that works.
///
/// `output_names` are the names the file gives its outputs.
pub(super) fn analyse(
    proto: ModelProto,
    output_names: Vec<String>,
    limits: &ImportLimits,
) -> Result<Typed, ImportError> {
    let graph = proto.graph.as_ref();
    let parameters = graph.map_or(0, parameters);
    let parsed = isolated(Stage::Parse, || parse(&proto))?;
    drop(proto);
    let plans = isolated(Stage::Parse, || batch::plans(&parsed))?;
    let file = File { parsed, output_names, parameters, limits };
    let last = plans.len() - 1;
    let mut why: Option<String> = None;
    for (at, plan) in plans.iter().enumerate() {
        let failure = match file.symbolic(plan, why.as_deref()) {
            Ok(typed) => return Ok(typed),
            Err(Failure::Error(error @ ImportError::Invalid { .. })) => return Err(error),
            Err(failure) => failure,
        };
        let failure = match (failure, file.sized(plan, why.as_deref())) {
            (_, Ok(typed)) => return Ok(typed),
            (mixed @ Failure::Mixed(_), _) | (_, Err(Some(mixed @ Failure::Mixed(_)))) => mixed,
            (failure, _) => failure,
        };
        match failure {
            Failure::Error(error) if at == last => return Err(error),
            Failure::Error(error) => {
                why.get_or_insert(format!("with any number of rows, {}", first_words(&error.to_string())));
            }
            Failure::Mixed(reason) => {
                why.get_or_insert(reason);
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

impl File<'_> {
    /// Analyses the model with symbols for whatever `plan` leaves open.
    fn symbolic(&self, plan: &Plan, why: Option<&str>) -> Result<Typed, Failure> {
        let model = attempt(&self.parsed, plan.facts.clone(), self.limits)?;
        if let Some(symbol) = &plan.symbol
            && let Some(reason) = isolated(Stage::Analyse, || batch::mixed_rows(&model, symbol))?
        {
            return Err(Failure::Mixed(reason));
        }
        let mut outputs = Vec::new();
        for (name, outlet) in self.output_names.iter().zip(&model.outputs) {
            let fact = model.outlet_fact(*outlet).map_err(refused)?;
            outputs.push(port(name, fact.datum_type, &fact.shape.to_tvec(), plan.symbol.as_ref())?);
        }
        Ok(self.typed(plan, Source::Symbolic(model), outputs, why)?)
    }

    /// Analyses the model at a few sizes instead. `None` says that no size has worked.
    fn sized(&self, plan: &Plan, why: Option<&str>) -> Result<Typed, Option<Failure>> {
        let free = free(plan).map_err(Failure::Error)?;
        if plan.symbol.is_none() && free.is_empty() {
            return Err(None);
        }
        let probes = if free.is_empty() { &PROBES[..1] } else { &PROBES[..] };
        for probe in probes {
            let mut sizes: HashMap<Symbol, TDim> =
                free.values().map(|symbol| (symbol.clone(), probe.to_dim())).collect();
            let mut model_at = |rows: usize| {
                if let Some(symbol) = &plan.symbol {
                    sizes.insert(symbol.clone(), rows.to_dim());
                }
                let facts =
                    plan.facts.iter().map(|fact| substituted(fact, &sizes)).collect::<TractResult<_>>();
                attempt(&self.parsed, facts.map_err(refused)?, self.limits)
            };
            let (Ok(a), Ok(b)) = (model_at(ROWS.0), model_at(ROWS.1)) else { continue };
            if plan.symbol.is_some() {
                let mixed = isolated(Stage::Analyse, || batch::mixed_between((&a, ROWS.0), (&b, ROWS.1)));
                if let Some(reason) = mixed.map_err(Failure::Error)? {
                    return Err(Some(Failure::Mixed(reason)));
                }
            }
            let outputs = self.sized_outputs(&a, &b, plan, free.is_empty()).map_err(Failure::Error)?;
            let source = Source::Sized(self.parsed.clone(), plan.facts.clone());
            return Ok(self.typed(plan, source, outputs, why).map_err(Failure::Error)?);
        }
        Err(None)
    }

    /// Ports of a model analysed at two numbers of rows. With open dimensions, a length seen at one size says little.
    fn sized_outputs(
        &self,
        a: &TypedModel,
        b: &TypedModel,
        plan: &Plan,
        closed: bool,
    ) -> Result<Vec<Port>, ImportError> {
        let mut outputs = Vec::new();
        for ((name, in_a), in_b) in self.output_names.iter().zip(&a.outputs).zip(&b.outputs) {
            let (in_a, in_b) =
                (a.outlet_fact(*in_a).map_err(refused)?, b.outlet_fact(*in_b).map_err(refused)?);
            let dims = in_a.shape.iter().zip(in_b.shape.iter()).enumerate().map(|(axis, (a, b))| {
                match (a.to_usize(), b.to_usize()) {
                    (Ok(a), Ok(b)) if a != b && plan.symbol.is_some() => Dim::Batch,
                    (Ok(a), Ok(_)) if closed => Dim::Fixed(a),
                    _ => Dim::Free(format!("{name}_{axis}")),
                }
            });
            outputs.push(port_of(name, in_a.datum_type, dims.collect())?);
        }
        Ok(outputs)
    }

    fn typed(
        &self,
        plan: &Plan,
        source: Source,
        outputs: Vec<Port>,
        why: Option<&str>,
    ) -> Result<Typed, ImportError> {
        let mut inputs = Vec::new();
        for (outlet, fact) in self.parsed.inputs.iter().zip(&plan.facts) {
            let name = &self.parsed.node(outlet.node).name;
            let datum = fact.datum_type.concretize();
            let untyped =
                || ImportError::Refused { stage: Stage::Type, why: format!("input \"{name}\" has no type") };
            let dims: Vec<TDim> = fact.shape.dims().filter_map(DimFact::concretize).collect();
            inputs.push(port(name, datum.ok_or_else(untyped)?, &dims, plan.symbol.as_ref())?);
        }
        let batch = match (&plan.symbol, plan.rows) {
            (Some(_), _) => Batch::Symbolic,
            (None, None) => Batch::None,
            (None, Some(rows)) => {
                let fixed = || format!("the file fixes the first dimension at {rows}");
                Batch::Baked { rows, why: why.map_or_else(fixed, str::to_owned) }
            }
        };
        let (batch_symbol, parameters) = (plan.symbol.clone(), self.parameters);
        Ok(Typed { source, batch, batch_symbol, inputs, outputs, free: free(plan)?, parameters })
    }
}

fn refused(error: TractError) -> ImportError {
    ImportError::Refused { stage: Stage::Type, why: format!("{error:#}") }
}

/// The symbols of a plan's inputs other than its rows, by name.
fn free(plan: &Plan) -> Result<BTreeMap<String, Symbol>, ImportError> {
    let dims = plan.facts.iter().flat_map(|fact| fact.shape.dims().filter_map(DimFact::concretize));
    let symbols = dims.flat_map(|dim| dim.symbols()).filter(|symbol| Some(symbol) != plan.symbol.as_ref());
    Ok(symbols.map(|symbol| (symbol.to_string(), symbol)).collect())
}

/// A fact with symbols replaced by sizes.
fn substituted(fact: &InferenceFact, sizes: &HashMap<Symbol, TDim>) -> TractResult<InferenceFact> {
    if fact.shape.is_open() {
        return Ok(fact.clone());
    }
    let dims = fact.shape.dims().filter_map(DimFact::concretize).map(|dim| dim.substitute_all(sizes));
    let dims: Vec<TDim> = dims.collect::<TractResult<_>>()?;
    let shape: ShapeFactoid = dims.into_iter().collect();
    Ok(fact.clone().with_shape(shape))
}

/// The typed graph for these facts of the inputs, constants folded.
fn attempt(
    parsed: &InferenceModel,
    facts: Vec<InferenceFact>,
    limits: &ImportLimits,
) -> Result<TypedModel, ImportError> {
    let mut model = parsed.clone();
    isolated(Stage::Analyse, || {
        facts.into_iter().enumerate().try_for_each(|(at, fact)| model.set_input_fact(at, fact))
    })?;
    bounded(&model, limits)?;
    let typed = isolated(Stage::Analyse, || model.into_typed())?;
    let typed = folded(typed, Stage::Type, limits)?;
    nameable(&typed)?;
    Ok(typed)
}

fn folded(mut typed: TypedModel, stage: Stage, limits: &ImportLimits) -> Result<TypedModel, ImportError> {
    oversized(&typed, limits)?;
    let typed = isolated(stage, || {
        typed.prop_consts()?;
        typed.compact()?;
        Ok(typed)
    })?;
    oversized(&typed, limits)?;
    Ok(typed)
}
