//! The KServe v2 dialect that Triton speaks, as plain values: no socket, no HTTP type, no runtime thread.
//!
//! ```text
//! body ──request──▶ Asked ──check(model, terms)──▶ Call { Submission, what to send back } ──▶ runtime
//! body ◀──reply──── Answer ◀────────────────────────────────────────────────────────────────┘
//! ```
//!
//! `request` reads the JSON and binary form of HTTP; a gRPC front end builds [`Asked`] itself and shares the rest.

mod call;
mod classify;
mod error;
mod metadata;
mod numbers;
mod reply;
mod request;

pub use call::{
    Asked, AskedInput, AskedOutput, Call, Data, Form, Limits, Parameter, Reply, Terms, TimeoutRule, Wanted,
};
pub use error::{CallError, ReplyError, Trouble};
pub use metadata::{
    IndexEntry, ModelMetadata, ModelReady, ServerLive, ServerMetadata, ServerReady, TensorMetadata,
};
pub use reply::{Encoded, Labels, encode};
pub use request::{HEADER_LENGTH, parse, parse_raw};

#[cfg(test)]
mod tests;
