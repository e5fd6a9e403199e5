//! What can be wrong with a file.

use std::fmt;
use std::io;
use std::path::PathBuf;
use vocab::Bytes;

/// Why a file did not become a model.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The path names a folder, a pipe or a device.
    #[error("{} is not a regular file; name an ONNX file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file is larger than the limit.
    #[error("the file has {found}, the limit is {limit}; raise the limit if you trust the file")]
    FileTooLarge {
        /// Its size, or what was read of it.
        found: Bytes,
        /// The limit.
        limit: Bytes,
    },
    /// The file would need far more memory than its size.
    #[error("the file unpacks to more than {limit} of small parts; raise the limit if you trust the file")]
    Unpacks {
        /// The limit.
        limit: Bytes,
    },
    /// The file is not an ONNX model.
    #[error("not an ONNX file, or damaged; export it again")]
    Decode {
        /// What the decoder says.
        source: prost::DecodeError,
    },
    /// The model breaks rules, or uses what we cannot run; all of it is listed.
    #[error("{}", listed(problems))]
    Invalid {
        /// Every problem found.
        problems: Vec<Problem>,
    },
    /// tract refuses the model.
    #[error("the model fails to {stage}: {why}")]
    Refused {
        /// During what.
        stage: Stage,
        /// tract's account, causes included.
        why: String,
    },
    /// tract panicked on the model, which is a bug in it; the process is unharmed.
    #[error("the model makes the importer panic while it tries to {stage}: {why}; please report the file")]
    Panicked {
        /// During what.
        stage: Stage,
        /// The panic's message.
        why: String,
    },
    /// A value would be larger than the limit.
    #[error("value \"{value}\" of layer \"{layer}\" would need {bytes}, the limit is {limit}")]
    ValueTooLarge {
        /// The value's shape and type.
        value: String,
        /// Who computes it.
        layer: String,
        /// Bytes it would need.
        bytes: Bytes,
        /// The limit.
        limit: Bytes,
    },
}

fn listed(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    format!("{} problem{}: {}", lines.len(), if lines.len() == 1 { "" } else { "s" }, lines.join("; "))
}

/// What tract was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Turning the file's nodes into tract's.
    Parse,
    /// Working out types and shapes.
    Analyse,
    /// Settling every type and folding constants.
    Type,
    /// Replacing symbols by sizes.
    Size,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Parse => "parse",
            Self::Analyse => "analyse",
            Self::Type => "get its types settled",
            Self::Size => "take the sizes",
        })
    }
}

/// One thing wrong with a model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Problem {
    /// The file has no graph.
    #[error("the file holds no graph; export it again")]
    NoGraph,
    /// An operator that nothing here runs.
    #[error("operator {operator} is not supported (used by {}); replace it before export", some_of(nodes))]
    Operator {
        /// The operator, with its domain if not ONNX's own.
        operator: String,
        /// Names of the nodes that use it.
        nodes: Vec<String>,
    },
    /// Something of a kind that is not supported.
    #[error("{what} \"{name}\" is not supported; {remedy}")]
    Unsupported {
        /// What kind of thing.
        what: &'static str,
        /// Its name.
        name: String,
        /// What to do.
        remedy: &'static str,
    },
    /// More nodes than the limit.
    #[error("the graph has more than {limit} nodes; raise the limit if you trust the file")]
    Nodes {
        /// The limit.
        limit: usize,
    },
    /// Sub-graphs nested deeper than the limit.
    #[error("sub-graphs of node \"{node}\" are nested deeper than {limit}")]
    Depth {
        /// The node.
        node: String,
        /// The limit.
        limit: usize,
    },
    /// A tensor in the file contradicts itself.
    #[error("tensor \"{name}\": {why}")]
    Tensor {
        /// Its name.
        name: String,
        /// The contradiction.
        why: String,
    },
    /// External data that is not read.
    #[error("tensor \"{name}\": external data {why}")]
    External {
        /// The tensor.
        name: String,
        /// Why.
        why: String,
    },
    /// An input or output of the graph is malformed.
    #[error("{side} {name}: {why}")]
    Port {
        /// `input` or `output`.
        side: &'static str,
        /// Its name, quoted, or its place when it has none.
        name: String,
        /// Why.
        why: String,
    },
    /// A node reads something that nothing writes.
    #[error("node \"{node}\" reads \"{value}\", which nothing writes")]
    Missing {
        /// The node.
        node: String,
        /// What it reads.
        value: String,
    },
    /// Two things write the same value.
    #[error("\"{value}\" is written more than once, last by node \"{node}\"")]
    Duplicate {
        /// The node that writes it again.
        node: String,
        /// The value.
        value: String,
    },
    /// Nodes wait for each other.
    #[error("nodes wait for each other in a cycle: {}", some_of(nodes))]
    Cycle {
        /// The nodes that can never run.
        nodes: Vec<String>,
    },
}

/// The first few names, and how many more there are.
fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("\"{name}\"")).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
