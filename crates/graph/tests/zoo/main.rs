//! The zoo against the published figures of its networks, and against onnxruntime.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests fail and report as tests do")]

mod layers;
mod onnxruntime;
mod published;
mod weights;
