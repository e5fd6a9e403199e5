//! A request between wire and runtime: what was asked, checked against the model it is for.
//!
//! Every front end builds an [`Asked`]; [`Asked::check`] is the one place that decides whether a model can take it.

use super::error::CallError;
use super::numbers;
use crate::live::{ModelInfo, Submission};
use graph::{DType, Dim, HostTensor, Port};
use std::borrow::Cow;
use std::sync::Arc;
use vocab::{Class, Span};

/// An infer request as it was written, not yet held against a model.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    /// The client's own name for it; never empty.
    pub id: Option<String>,
    /// Its tensors, in the order given.
    pub inputs: Vec<AskedInput<'a>>,
    /// Outputs wanted; `None` or an empty list means all of them.
    pub outputs: Option<Vec<AskedOutput<'a>>>,
    /// Its parameters, each key once.
    pub parameters: Vec<(Cow<'a, str>, Parameter<'a>)>,
}

/// One tensor as it was written.
#[derive(Clone, Debug)]
pub struct AskedInput<'a> {
    /// The input it is for.
    pub name: Cow<'a, str>,
    /// Its element type's name.
    pub datatype: Cow<'a, str>,
    /// Its dimensions; may be anything.
    pub shape: Vec<i64>,
    /// Its elements.
    pub data: Data<'a>,
}

/// A tensor's elements as they were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// Valid JSON, which should be a list of numbers or of such lists.
    Json(&'a str),
    /// Little-endian bytes, row-major.
    Raw(&'a [u8]),
}

/// One output as it was asked for.
#[derive(Clone, Debug)]
pub struct AskedOutput<'a> {
    /// The output.
    pub name: Cow<'a, str>,
    /// Bytes or JSON; `None` leaves it to the request.
    pub binary: Option<bool>,
    /// Best classes wanted instead of the tensor; 0 means the tensor.
    pub classes: u32,
}

/// A parameter's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Parameter<'a> {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i128),
    /// Another number.
    Float(f64),
    /// A string.
    Text(Cow<'a, str>),
    /// Something else, of no interest here.
    Other,
}

/// What a model's configuration says about requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Classes there are, at least 1; a priority beyond the last one counts as the last.
    pub levels: u32,
    /// The class of a request that names none.
    pub default_class: Class,
    /// Which request timeouts count, by class: entry 0 is class 1. Classes beyond the list honour every timeout.
    pub timeouts: Vec<TimeoutRule>,
}

/// Whether a request's own timeout counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutRule {
    /// It counts.
    Honoured,
    /// It counts when it is shorter than this.
    AtMost(Span),
    /// It does not count.
    Ignored,
}

/// How much one request may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all input tensors together.
    pub tensor_bytes: usize,
}

/// A request that a model can take, and how its answer is to be written.
#[derive(Clone, Debug)]
pub struct Call {
    /// For the runtime.
    pub submission: Submission,
    /// For the answer.
    pub reply: Reply,
}

/// How an answer is to be written.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The model that was asked.
    pub model: Arc<ModelInfo>,
    /// The client's own name for the request.
    pub id: Option<String>,
    /// Outputs to send back, in this order.
    pub outputs: Vec<Wanted>,
}

/// One output to send back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its place in the model's outputs.
    pub port: usize,
    /// How to write it.
    pub form: Form,
    /// Best classes instead of the tensor; 0 means the tensor.
    pub classes: u32,
}

/// How a tensor is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As a JSON list.
    Json,
    /// As bytes after the JSON.
    Binary,
}

impl Asked<'_> {
    /// Holds the request against `model` and `terms`.
    ///
    /// # Errors
    /// The first thing wrong, except that all missing inputs are named together.
    pub fn check(self, model: &Arc<ModelInfo>, terms: &Terms, limits: Limits) -> Result<Call, CallError> {
        let hints = read_parameters(&self.parameters)?;
        let outputs = wanted(self.outputs.as_deref().unwrap_or(&[]), hints.binary_output, model)?;
        let places = place_inputs(&self.inputs, model)?;
        let ordered: Vec<&AskedInput<'_>> = places.iter().map(|at| &self.inputs[*at]).collect();
        let shapes = ordered
            .iter()
            .zip(&model.inputs)
            .map(|(input, port)| check_shape(input, port, model))
            .collect::<Result<Vec<_>, _>>()?;
        let rows = rows(&shapes, model)?;
        check_bytes(&shapes, model, limits)?;
        let id = self.id.as_deref().unwrap_or("<id_unknown>");
        let inputs = ordered
            .iter()
            .zip(&model.inputs)
            .zip(shapes)
            .map(|((input, port), shape)| tensor(input, port, shape, model, id))
            .collect::<Result<Vec<_>, _>>()?;
        let class = hints.class(terms);
        let timeout = hints.timeout(terms, class);
        let submission = Submission { model: Arc::clone(model), inputs, rows, class: Some(class), timeout };
        Ok(Call { submission, reply: Reply { model: Arc::clone(model), id: self.id, outputs } })
    }
}

/// What the request's parameters say.
#[derive(Default)]
struct Hints {
    binary_output: bool,
    /// 0 means the default.
    priority: u64,
    timeout_us: Option<u64>,
    slo_us: Option<u64>,
}

impl Hints {
    fn class(&self, terms: &Terms) -> Class {
        let level = u32::try_from(self.priority).unwrap_or(u32::MAX).min(terms.levels);
        Class::new(level).unwrap_or(terms.default_class)
    }

    /// The tighter of `timeout`, where the model's policy lets it count, and `slo_us`.
    fn timeout(&self, terms: &Terms, class: Class) -> Option<Span> {
        let rule = usize::try_from(class.level() - 1).ok().and_then(|at| terms.timeouts.get(at));
        let asked = self.timeout_us.map(Span::from_us);
        let timeout = match rule.copied().unwrap_or(TimeoutRule::Honoured) {
            TimeoutRule::Honoured => asked,
            TimeoutRule::AtMost(limit) => asked.filter(|span| *span < limit),
            TimeoutRule::Ignored => None,
        };
        let objective = self.slo_us.map(Span::from_us);
        [timeout, objective].into_iter().flatten().min()
    }
}

fn read_parameters(parameters: &[(Cow<'_, str>, Parameter<'_>)]) -> Result<Hints, CallError> {
    let mut hints = Hints::default();
    for (name, value) in parameters {
        let whole = |expected: &'static str| {
            match value {
                Parameter::Int(number) => u64::try_from(*number).ok(),
                _ => None,
            }
            .ok_or_else(|| CallError::Parameter { name: name.to_string(), expected })
        };
        match name.as_ref() {
            "binary_data_output" => match value {
                Parameter::Bool(wanted) => hints.binary_output = *wanted,
                _ => {
                    return Err(CallError::Parameter { name: name.to_string(), expected: "true or false" });
                }
            },
            "priority" => hints.priority = whole("a whole number: 0 for the default, 1 goes first")?,
            "timeout" => {
                hints.timeout_us =
                    Some(whole("a whole number of microseconds, 0 or more")?).filter(|us| *us > 0);
            }
            "slo_us" => {
                hints.slo_us = Some(whole("a whole number of microseconds, 0 or more")?).filter(|us| *us > 0);
            }
            reserved if reserved.starts_with("triton_") => {
                return Err(CallError::Reserved { name: name.to_string() });
            }
            _ => {}
        }
    }
    Ok(hints)
}

/// The outputs to send back: those asked for, or all.
fn wanted(asked: &[AskedOutput<'_>], binary: bool, model: &ModelInfo) -> Result<Vec<Wanted>, CallError> {
    let form = |binary: bool| if binary { Form::Binary } else { Form::Json };
    let mut outputs: Vec<Wanted> = Vec::new();
    if asked.is_empty() {
        outputs.extend((0..model.outputs.len()).map(|port| Wanted { port, form: form(binary), classes: 0 }));
    }
    for output in asked {
        let Some(port) = model.outputs.iter().position(|port| port.name == output.name) else {
            return Err(CallError::UnexpectedOutput {
                output: output.name.to_string(),
                model: model.name.clone(),
            });
        };
        if outputs.iter().any(|known| known.port == port) {
            return Err(CallError::Duplicate { name: output.name.to_string(), list: "outputs" });
        }
        outputs.push(Wanted { port, form: form(output.binary.unwrap_or(binary)), classes: output.classes });
    }
    for output in &outputs {
        let port = &model.outputs[output.port];
        if port.dtype == DType::F16 && output.form == Form::Json && output.classes == 0 {
            return Err(CallError::HalfOutput { output: port.name.clone() });
        }
    }
    Ok(outputs)
}

/// Where each of the model's inputs is in `asked`.
fn place_inputs(asked: &[AskedInput<'_>], model: &ModelInfo) -> Result<Vec<usize>, CallError> {
    let mut places = vec![None; model.inputs.len()];
    for (at, input) in asked.iter().enumerate() {
        let Some(port) = model.inputs.iter().position(|port| port.name == input.name) else {
            return Err(CallError::UnexpectedInput {
                input: input.name.to_string(),
                model: model.name.clone(),
            });
        };
        if places[port].replace(at).is_some() {
            return Err(CallError::Duplicate { name: input.name.to_string(), list: "inputs" });
        }
    }
    let missing: Vec<String> = model
        .inputs
        .iter()
        .zip(&places)
        .filter(|(_, at)| at.is_none())
        .map(|(port, _)| port.name.clone())
        .collect();
    if !missing.is_empty() {
        let (expected, found) = (model.inputs.len(), asked.len());
        return Err(CallError::MissingInputs { model: model.name.clone(), expected, found, missing });
    }
    Ok(places.into_iter().flatten().collect())
}

/// The input's type and shape, when `port` takes them.
fn check_shape(input: &AskedInput<'_>, port: &Port, model: &ModelInfo) -> Result<Vec<usize>, CallError> {
    let name = || input.name.to_string();
    let Some(found) = DType::from_kserve(&input.datatype) else {
        let datatype = input.datatype.to_string();
        return Err(match datatype.as_str() {
            "BYTES" | "BF16" => CallError::UnsupportedDatatype { input: name(), datatype },
            _ => CallError::UnknownDatatype { input: name(), datatype },
        });
    };
    if found != port.dtype {
        let (expected, found) = (port.dtype.kserve(), found.kserve());
        return Err(CallError::Datatype { input: name(), model: model.name.clone(), expected, found });
    }
    let impossible = || CallError::ImpossibleShape { input: name(), shape: shape_text(&input.shape) };
    let shape: Vec<usize> = input
        .shape
        .iter()
        .map(|dim| usize::try_from(*dim).map_err(|_| impossible()))
        .collect::<Result<_, _>>()?;
    let fits = shape.len() == port.shape.len()
        && shape.iter().zip(&port.shape).all(|(size, dim)| match dim {
            Dim::Fixed(fixed) => size == fixed,
            Dim::Batch | Dim::Free(_) => true,
        });
    if !fits {
        let (expected, found) = (port_shape_text(&port.shape), shape_text(&input.shape));
        return Err(CallError::Shape { input: name(), model: model.name.clone(), expected, found });
    }
    shape.iter().try_fold(port.dtype.size(), |bytes, dim| bytes.checked_mul(*dim)).ok_or_else(impossible)?;
    Ok(shape)
}

/// The rows all inputs agree on: the size of the batch dimension, or 1 when no input has one.
fn rows(shapes: &[Vec<usize>], model: &ModelInfo) -> Result<u32, CallError> {
    let mut rows: Option<usize> = None;
    for (shape, port) in shapes.iter().zip(&model.inputs) {
        let sizes = shape.iter().zip(&port.shape).filter(|(_, dim)| matches!(dim, Dim::Batch));
        for (size, _) in sizes {
            if *rows.get_or_insert(*size) != *size {
                return Err(CallError::BatchMismatch { input: port.name.clone(), model: model.name.clone() });
            }
        }
    }
    let limit = usize::try_from(model.batch_max.max(1)).unwrap_or(usize::MAX);
    match rows {
        None => Ok(1),
        Some(0) => Err(CallError::NoRows { model: model.name.clone() }),
        Some(rows) => u32::try_from(rows)
            .ok()
            .filter(|_| rows <= limit)
            .ok_or_else(|| CallError::BatchSize { model: model.name.clone(), limit }),
    }
}

fn check_bytes(shapes: &[Vec<usize>], model: &ModelInfo, limits: Limits) -> Result<(), CallError> {
    let needed = shapes.iter().zip(&model.inputs).fold(0_usize, |sum, (shape, port)| {
        sum.saturating_add(shape.iter().fold(port.dtype.size(), |bytes, dim| bytes.saturating_mul(*dim)))
    });
    let limit = limits.tensor_bytes;
    if needed > limit { Err(CallError::TooLarge { needed, limit }) } else { Ok(()) }
}

fn tensor(
    input: &AskedInput<'_>,
    port: &Port,
    shape: Vec<usize>,
    model: &ModelInfo,
    id: &str,
) -> Result<HostTensor, CallError> {
    let name = || input.name.to_string();
    let dtype = port.dtype;
    let count: usize = shape.iter().product();
    let expected = count * dtype.size();
    let data = match input.data {
        Data::Json(_) if dtype == DType::F16 => return Err(CallError::HalfInJson { input: name() }),
        Data::Json(json) => numbers::read(json, dtype, count)
            .map_err(|fault| fault.into_error(&input.name, &shape_text(&input.shape), count))?,
        Data::Raw(bytes) if bytes.len() != expected => {
            let (id, model, found) = (id.to_owned(), model.name.clone(), bytes.len());
            return Err(CallError::ByteSize { id, input: name(), model, expected, found });
        }
        Data::Raw(bytes) => bytes.to_vec(),
    };
    if dtype == DType::Bool
        && let Some(at) = data.iter().position(|byte| *byte > 1)
    {
        return Err(CallError::BoolByte { input: name(), at, value: data[at] });
    }
    Ok(HostTensor::new(dtype, shape, data).expect("data was read to be as long as type and shape say"))
}

/// `[1,4]`.
pub(super) fn shape_text(shape: &[i64]) -> String {
    let sizes: Vec<String> = shape.iter().map(i64::to_string).collect();
    format!("[{}]", sizes.join(","))
}

/// A port's shape as KServe writes it, -1 for a dimension of any size: `[-1,4]`.
pub(super) fn port_shape_text(shape: &[Dim]) -> String {
    shape_text(&super::metadata::shape(shape))
}
