//! What is free, as a scratch copy that a plan takes from.

use super::{GpuMask, Grant, NodeId, Piece};
use vocab::Bytes;

/// What is free on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeNode {
    /// The node.
    pub node: NodeId,
    /// The kind of its GPUs.
    pub kind: u32,
    /// GPUs it has, free or not.
    pub size: u32,
    /// GPUs no job is on.
    pub gpus: GpuMask,
    /// CPUs, in thousandths.
    pub cpu_milli: u64,
    /// Main memory.
    pub memory: Bytes,
}

impl FreeNode {
    /// Takes `gpus` of the free ones, lowest first, with their CPUs and memory.
    ///
    /// # Panics
    /// When that much is not free.
    pub fn take(&mut self, gpus: u32, cpu_milli: u64, memory: Bytes) -> Piece {
        assert!(self.fits(gpus, cpu_milli, memory), "a plan takes what it has seen to be free");
        let taken = self.gpus.lowest(gpus);
        self.gpus = self.gpus.without(taken);
        self.cpu_milli -= cpu_milli;
        self.memory.0 -= memory.0;
        Piece { node: self.node, gpus: taken, cpu_milli, memory }
    }

    /// Whether that much is free.
    #[must_use]
    pub const fn fits(&self, gpus: u32, cpu_milli: u64, memory: Bytes) -> bool {
        self.gpus.count() >= gpus && self.cpu_milli >= cpu_milli && self.memory.0 >= memory.0
    }
}

/// What is free on every live node, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Free {
    /// The nodes.
    pub nodes: Vec<FreeNode>,
}

impl Free {
    /// Free GPUs in all.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        self.nodes.iter().map(|node| node.gpus.count()).sum()
    }

    /// One node.
    pub fn node_mut(&mut self, id: NodeId) -> Option<&mut FreeNode> {
        let at = self.nodes.binary_search_by_key(&id, |node| node.node).ok()?;
        self.nodes.get_mut(at)
    }

    /// Takes what `grant` holds, as far as it is free.
    pub fn take(&mut self, grant: &Grant) {
        for piece in &grant.pieces {
            let Some(node) = self.node_mut(piece.node) else { continue };
            node.gpus = node.gpus.without(piece.gpus);
            node.cpu_milli = node.cpu_milli.saturating_sub(piece.cpu_milli);
            node.memory.0 = node.memory.0.saturating_sub(piece.memory.0);
        }
    }

    /// Gives `grant` back.
    pub fn give(&mut self, grant: &Grant) {
        for piece in &grant.pieces {
            let Some(node) = self.node_mut(piece.node) else { continue };
            node.gpus = node.gpus.with(piece.gpus);
            node.cpu_milli += piece.cpu_milli;
            node.memory.0 += piece.memory.0;
        }
    }
}
