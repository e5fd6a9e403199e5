//! The built `raddle` end to end: real model files, the real tritonclient, hostile bytes, signals, and what its tools
//! make of the journal afterwards.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bad_files;
mod bad_requests;
mod client;
mod drain;
mod parts;
mod real_models;
mod support;
mod tools;
