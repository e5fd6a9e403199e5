//! A model repository on disk, in Triton's layout: what is there, what each model's configuration says, what is wrong.
//!
//! ```text
//! repository/
//!   resnet50.onnx                   a bare model: version 1, no configuration needed
//!   bert/model.onnx                 the same, in a folder (external data may lie beside it)
//!   gpt2/config.pbtxt
//!   gpt2/labels.txt                 named by `label_filename` of an output
//!   gpt2/1/model.onnx  gpt2/2/model.onnx
//! ```
//!
//! Reads files, starts nothing. A broken model is a [`Problem`] with its path; the others still load.

mod config;
mod json;
mod pbtxt;
mod read;
mod scan;

pub use config::{
    Batching, InstanceGroup, LEVELS_DEFAULT, LEVELS_MAX, ModelConfig, QueuePolicy, TensorConfig,
    TimeoutAction, VersionPolicy,
};
pub use json::config_json;
pub use pbtxt::{Position, SyntaxError};
pub use read::{ConfigError, Fault, parse_config};
pub use scan::{ModelEntry, Problem, Repository, ScanError, scan};

#[cfg(test)]
mod tests;
