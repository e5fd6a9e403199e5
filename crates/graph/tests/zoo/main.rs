//! The zoo against the published figures of its networks, and against onnxruntime.

mod onnxruntime;
mod published;
mod weights;
