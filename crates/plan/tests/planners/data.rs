//! The public planner data, which lies beside the repository.

use std::path::{Path, PathBuf};

/// The folder of graphs.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/graphs")
}

/// The text of a file in it.
pub(crate) fn text(path: &str) -> String {
    let file = root().join(path);
    std::fs::read_to_string(&file).unwrap_or_else(|error| {
        panic!(
            "{}: {error}; put the public planner data beside the repository, in shared/data/graphs",
            file.display()
        )
    })
}
