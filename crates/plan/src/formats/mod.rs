//! Reading the published formats of operator graphs. Every fault of a file is reported at once.

mod document;
mod doubts;
mod pipedream;
mod piper;
mod placement;
mod split;
mod stages;
mod twins;

pub use document::{GroupDocument, KindName, PartDocument, PlacementDocument, read_document, words};
pub use doubts::{Doubt, doubts};
pub use pipedream::read_pipedream;
pub use piper::{PiperColumn, PiperFile, read_piper};
pub use placement::{PlacementFile, read_placement};
pub use split::read_split;
pub use stages::{LevelDocument, PipelineDocument, StageDocument, read_pipeline};
pub use twins::Link;

use crate::operators::GraphError;
use thiserror::Error;

/// Longest file that is read, in bytes.
pub const FILE_BYTES_MAX: usize = 1 << 28;

/// Faults of one file that are reported; the rest are counted.
const FAULTS_MAX: usize = 50;

/// Why a file is not an operator graph.
#[derive(Debug, Error)]
pub enum FormatError {
    /// The file is longer than is read.
    #[error("the file has {found} bytes, at most {FILE_BYTES_MAX} are read")]
    TooLong {
        /// Its length.
        found: usize,
    },
    /// It is not JSON of the expected shape.
    #[error("the file is not of the expected shape: {0}")]
    Json(#[from] serde_json::Error),
    /// Lines or fields are wrong; one message each, with its place.
    #[error("{}", .0.join("\n"))]
    Faults(Vec<String>),
    /// What it describes is not a graph that can be planned.
    #[error("{0}")]
    Graph(#[from] GraphError),
}

fn check_length(text: &str) -> Result<(), FormatError> {
    if text.len() > FILE_BYTES_MAX { Err(FormatError::TooLong { found: text.len() }) } else { Ok(()) }
}

fn check_faults(mut faults: Vec<String>) -> Result<(), FormatError> {
    if faults.is_empty() {
        return Ok(());
    }
    let more = faults.len().saturating_sub(FAULTS_MAX);
    if more > 0 {
        faults.truncate(FAULTS_MAX);
        faults.push(format!("and {more} more"));
    }
    Err(FormatError::Faults(faults))
}

/// A whole, not negative number of bytes that a file writes as a float, rounded up.
pub(crate) fn whole_bytes(value: f64) -> Option<u64> {
    /// Above this, a float no longer holds every whole number.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    let up = value.ceil();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number within the range"
    )]
    (0.0..=EXACT_MAX).contains(&up).then_some(up as u64)
}
