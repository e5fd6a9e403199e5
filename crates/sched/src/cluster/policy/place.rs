//! Where a gang goes.

use crate::cluster::{Free, FreeNode, JobSpec, Piece};
use serde::{Deserialize, Serialize};
use vocab::Bytes;

/// A placement rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// Any free GPUs, nodes in order.
    Anywhere,
    /// On the first node with room; a gang larger than a node takes whole nodes and the rest on one more (Tiresias,
    /// Muri's "yarn").
    Consolidated,
    /// On the node with the most free GPUs, again and again (Pollux's simulator).
    MostFree,
}

/// CPUs and memory a job takes with each GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// CPUs, in thousandths.
    pub cpu_milli: u64,
    /// Main memory.
    pub memory: Bytes,
}

impl Share {
    /// What `spec` asks for, a GPU.
    #[must_use]
    pub fn asked(spec: &JobSpec) -> Self {
        let gpus = u64::from(spec.gpus.max(1));
        Self { cpu_milli: spec.cpu_milli / gpus, memory: Bytes(spec.memory.0 / gpus) }
    }

    /// Takes `gpus` GPUs of `node` with this share each.
    pub(super) fn take(self, node: &mut FreeNode, gpus: u32) -> Piece {
        let count = u64::from(gpus);
        node.take(gpus, self.cpu_milli * count, Bytes(self.memory.0 * count))
    }

    /// GPUs of `node` that can be had with this share each.
    pub(super) fn room(self, node: &FreeNode) -> u32 {
        let by = |has: u64, needs: u64| has.checked_div(needs).unwrap_or(u64::MAX);
        let bound = by(node.cpu_milli, self.cpu_milli).min(by(node.memory.0, self.memory.0));
        node.gpus.count().min(u32::try_from(bound).unwrap_or(u32::MAX))
    }
}

impl Place {
    /// Takes `gpus` GPUs out of `free`, or nothing.
    pub fn take(self, free: &mut Free, gpus: u32, share: Share) -> Option<Vec<Piece>> {
        match self {
            Self::Anywhere => anywhere(free, gpus, share),
            Self::Consolidated => consolidated(free, gpus, share),
            Self::MostFree => most_free(free, gpus, share),
        }
    }
}

fn anywhere(free: &mut Free, gpus: u32, share: Share) -> Option<Vec<Piece>> {
    let mut left = gpus;
    let mut counts = Vec::new();
    for (at, node) in free.nodes.iter().enumerate() {
        let here = share.room(node).min(left);
        if here > 0 {
            counts.push((at, here));
            left -= here;
        }
        if left == 0 {
            break;
        }
    }
    (left == 0).then(|| counts.into_iter().map(|(at, here)| share.take(&mut free.nodes[at], here)).collect())
}

fn consolidated(free: &mut Free, gpus: u32, share: Share) -> Option<Vec<Piece>> {
    let largest = free.nodes.iter().map(|node| node.size).max()?;
    if gpus <= largest {
        let node = free.nodes.iter_mut().find(|node| share.room(node) >= gpus)?;
        return Some(vec![share.take(node, gpus)]);
    }
    let (whole, rest) = (gpus / largest, gpus % largest);
    let idle = |node: &FreeNode| node.size == largest && share.room(node) == largest;
    let mut counts: Vec<(usize, u32)> = Vec::new();
    for (at, _) in free.nodes.iter().enumerate().filter(|(_, node)| idle(node)).take(whole as usize) {
        counts.push((at, largest));
    }
    if counts.len() < whole as usize {
        return None;
    }
    if rest > 0 {
        let taken = |at: usize| counts.iter().any(|(whole, _)| *whole == at);
        let fits = |(at, node): &(usize, &FreeNode)| !taken(*at) && share.room(node) >= rest;
        let (at, _) = free.nodes.iter().enumerate().find(fits)?;
        counts.push((at, rest));
    }
    Some(counts.into_iter().map(|(at, here)| share.take(&mut free.nodes[at], here)).collect())
}

fn most_free(free: &mut Free, gpus: u32, share: Share) -> Option<Vec<Piece>> {
    if free.nodes.iter().map(|node| share.room(node)).sum::<u32>() < gpus {
        return None;
    }
    let (mut left, mut pieces) = (gpus, Vec::new());
    while left > 0 {
        // The first of the roomiest.
        let roomiest = |best: usize, at: usize| {
            if share.room(&free.nodes[at]) > share.room(&free.nodes[best]) { at } else { best }
        };
        let best = (0..free.nodes.len()).reduce(roomiest)?;
        let here = share.room(&free.nodes[best]).min(left);
        pieces.push(share.take(&mut free.nodes[best], here));
        left -= here;
    }
    Some(pieces)
}
