//! The whole server on the loopback interface: real models on the CPU device, asked by real clients.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]

mod clients;
mod drain;
mod ends;
mod parts;
mod support;
