//! What the server says about itself and its models: health, metadata and the repository index.

use crate::live::{ModelInfo, ModelState};
use graph::{Dim, Port};
use serde::Serialize;

/// Reply of `/v2/health/live`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ServerLive {
    /// Always true: it answers.
    pub live: bool,
}

/// Reply of `/v2/health/ready`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ServerReady {
    /// Whether to send it requests.
    pub ready: bool,
}

/// Reply of a model's `ready`.
#[derive(Clone, Debug, Serialize)]
pub struct ModelReady {
    /// The model.
    pub name: String,
    /// Whether to send it requests.
    pub ready: bool,
}

/// Reply of `/v2`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ServerMetadata {
    /// The server's name.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// What it does beyond the core protocol; only what works.
    pub extensions: &'static [&'static str],
}

impl ServerMetadata {
    /// This server.
    pub const THIS: Self = Self {
        name: "raddle",
        version: env!("CARGO_PKG_VERSION"),
        extensions: &[
            "classification",
            "model_repository",
            "schedule_policy",
            "model_configuration",
            "binary_tensor_data",
            "parameters",
            "statistics",
        ],
    };
}

/// Reply of `/v2/models/N`.
#[derive(Clone, Debug, Serialize)]
pub struct ModelMetadata {
    /// The model.
    pub name: String,
    /// Its versions, as text.
    pub versions: Vec<String>,
    /// What kind of model it is, for example `onnxruntime_onnx`.
    pub platform: String,
    /// What it takes.
    pub inputs: Vec<TensorMetadata>,
    /// What it gives.
    pub outputs: Vec<TensorMetadata>,
}

/// A tensor of a model.
#[derive(Clone, Debug, Serialize)]
pub struct TensorMetadata {
    /// Its name.
    pub name: String,
    /// Its element type, for example `FP32`.
    pub datatype: &'static str,
    /// Its dimensions; -1 may be any size.
    pub shape: Vec<i64>,
}

impl ModelMetadata {
    /// What is said about `model`, which has `versions`.
    #[must_use]
    pub fn new(model: &ModelInfo, versions: &[u64], platform: &str) -> Self {
        Self {
            name: model.name.clone(),
            versions: versions.iter().map(u64::to_string).collect(),
            platform: platform.to_owned(),
            inputs: model.inputs.iter().map(TensorMetadata::new).collect(),
            outputs: model.outputs.iter().map(TensorMetadata::new).collect(),
        }
    }
}

impl TensorMetadata {
    fn new(port: &Port) -> Self {
        Self { name: port.name.clone(), datatype: port.dtype.kserve(), shape: shape(&port.shape) }
    }
}

/// One line of the repository index.
#[derive(Clone, Debug, Serialize)]
pub struct IndexEntry {
    /// The model.
    pub name: String,
    /// Its version, as text.
    pub version: String,
    /// `READY`, `LOADING` or `UNAVAILABLE`.
    pub state: &'static str,
    /// Why it is not ready.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl IndexEntry {
    /// The line of `model`.
    #[must_use]
    pub fn new(model: &ModelInfo) -> Self {
        let (state, reason) = match &model.state {
            ModelState::Ready => ("READY", String::new()),
            ModelState::Loading => ("LOADING", String::new()),
            ModelState::Unavailable(why) => ("UNAVAILABLE", why.clone()),
        };
        Self { name: model.name.clone(), version: model.version.to_string(), state, reason }
    }
}

/// A port's dimensions with -1 for those of any size.
pub(super) fn shape(dims: &[Dim]) -> Vec<i64> {
    dims.iter()
        .map(|dim| match dim {
            Dim::Batch | Dim::Free(_) => -1,
            Dim::Fixed(size) => i64::try_from(*size).unwrap_or(i64::MAX),
        })
        .collect()
}
