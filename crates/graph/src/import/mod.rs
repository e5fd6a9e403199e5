//! From an ONNX file to a [`crate::Model`]. Files come from strangers: every step bounds what it reads and allocates
//! before it does so, and every complaint about a file is made at once.
//!
//! ```text
//! read ──▶ weigh ──▶ decode ──▶ external data ──▶ validate ──▶ tract: analyse, typed, constants folded
//! (size)  (what it   (prost)    (own folder only, (ours: all   (in a thread of its own; a panic there
//!          unpacks to)           no link)          problems)     is an error here)
//! ```

mod batch;
mod bounds;
mod error;
mod external;
mod isolate;
mod names;
mod ports;
mod typed;
mod validate;
mod weigh;

pub use batch::Batch;
pub use error::{ImportError, Problem, Stage};
pub(crate) use typed::Typed;

use prost::Message;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use tract_onnx::pb::ModelProto;
use vocab::Bytes;

/// What an import may use. The defaults hold for any model a server would serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportLimits {
    /// Bytes of the ONNX file.
    pub file: Bytes,
    /// Bytes of all external data together.
    pub external: Bytes,
    /// Bytes the file may unpack to, beyond its own size; and bytes of constants computed from it.
    pub derived: Bytes,
    /// Bytes of a single value at any size the model is used with.
    pub value: Bytes,
    /// Nodes, those of sub-graphs included: analysis takes time in their square.
    pub nodes: usize,
    /// Sub-graphs within sub-graphs.
    pub depth: usize,
}

impl Default for ImportLimits {
    fn default() -> Self {
        const GIB: u64 = 1 << 30;
        Self {
            file: Bytes(4 * GIB),
            external: Bytes(64 * GIB),
            derived: Bytes(8 * GIB),
            value: Bytes(64 * GIB),
            nodes: 20_000,
            depth: 8,
        }
    }
}

/// Reads, checks and analyses the file at `path`.
pub(crate) fn from_path(path: &Path, limits: &ImportLimits) -> Result<Typed, ImportError> {
    let bytes = read(path, limits)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    analyse(bytes, Some(folder), limits)
}

/// Checks and analyses a file already in memory; it cannot have external data.
pub(crate) fn from_bytes(bytes: Vec<u8>, limits: &ImportLimits) -> Result<Typed, ImportError> {
    let found = Bytes::of_len(bytes.len());
    if found > limits.file {
        return Err(ImportError::FileTooLarge { found, limit: limits.file });
    }
    analyse(bytes, None, limits)
}

/// The file's bytes. What its size claims is a hint only: reading stops one byte past the limit.
fn read(path: &Path, limits: &ImportLimits) -> Result<Vec<u8>, ImportError> {
    let failed = |source| ImportError::Read { path: path.to_owned(), source };
    let about = std::fs::metadata(path).map_err(failed)?;
    if !about.is_file() {
        return Err(ImportError::NotAFile { path: path.to_owned() });
    }
    if about.len() > limits.file.0 {
        return Err(ImportError::FileTooLarge { found: Bytes(about.len()), limit: limits.file });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(about.len()).unwrap_or(0));
    let mut file = File::open(path).map_err(failed)?.take(limits.file.0.saturating_add(1));
    file.read_to_end(&mut bytes).map_err(failed)?;
    let found = Bytes::of_len(bytes.len());
    if found > limits.file {
        return Err(ImportError::FileTooLarge { found, limit: limits.file });
    }
    Ok(bytes)
}

fn analyse(bytes: Vec<u8>, folder: Option<&Path>, limits: &ImportLimits) -> Result<Typed, ImportError> {
    weigh::weigh(&bytes, limits)?;
    let mut proto = ModelProto::decode(bytes.as_slice()).map_err(|source| ImportError::Decode { source })?;
    drop(bytes);
    let mut problems = Vec::new();
    external::inline(&mut proto, folder, limits, &mut problems);
    validate::validate(&proto, limits, &mut problems);
    if !problems.is_empty() {
        return Err(ImportError::Invalid { problems });
    }
    let graph = proto.graph.as_ref();
    let outputs = graph.iter().flat_map(|graph| &graph.output).map(|port| port.name.clone()).collect();
    names::write_outputs(&mut proto);
    names::make_unique(&mut proto);
    typed::analyse(proto, outputs, limits)
}
