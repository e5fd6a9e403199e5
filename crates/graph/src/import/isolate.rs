//! Runs tract where it can do no harm: in a thread with a deep stack, because shapes are trees it walks recursively, and
//! with its panics caught.

use super::error::{ImportError, Stage};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use tract_onnx::prelude::TractResult;

/// Address space of the stack; only the part in use becomes memory.
const STACK_BYTES: usize = 512 << 20;

/// What `work` gives, or its error or panic as ours.
pub(crate) fn isolated<T: Send>(
    stage: Stage,
    work: impl FnOnce() -> TractResult<T> + Send,
) -> Result<T, ImportError> {
    let guarded = || {
        catch_unwind(AssertUnwindSafe(work))
            .map_err(|panic| ImportError::Panicked { stage, why: message(panic.as_ref()) })?
            .map_err(|error| ImportError::Refused { stage, why: format!("{error:#}") })
    };
    thread::scope(|scope| {
        let started = thread::Builder::new()
            .name("import".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, guarded);
        let worker = started.map_err(|error| ImportError::Refused { stage, why: error.to_string() })?;
        worker.join().map_err(|panic| ImportError::Panicked { stage, why: message(panic.as_ref()) })?
    })
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("no message").to_owned()
}
