//! What a node has.

use serde::{Deserialize, Serialize};
use std::fmt;
use vocab::Bytes;

/// A node of the cluster; drivers number nodes from zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u32);

impl NodeId {
    /// Its place in a table of nodes.
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("n{}", self.0))
    }
}

/// A node's resources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// The node.
    pub node: NodeId,
    /// The rack it stands in.
    pub rack: u32,
    /// The kind of its GPUs.
    pub kind: u32,
    /// GPUs; at most 64.
    pub gpus: u8,
    /// Jobs that may share one GPU.
    pub slots: u8,
    /// CPUs in thousandths.
    pub cpu_milli: u64,
    /// Main memory.
    pub memory: Bytes,
    /// Memory of each GPU.
    pub gpu_memory: Bytes,
}
