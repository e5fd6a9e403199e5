//! Against every way to lay gangs out.

use super::{Gang, place};
use crate::cluster::policy::Share;
use crate::cluster::{Free, FreeNode, GpuMask, NodeId};
use vocab::{Bytes, Rng};

/// The fewest gangs that are split, over every way to give each GPUs of the nodes; nothing when there is none.
fn least(free: &[FreeNode], gangs: &[Gang]) -> Option<u32> {
    let Some((gang, rest)) = gangs.split_first() else { return Some(0) };
    let (mut best, mut counts) = (None, vec![0; free.len()]);
    loop {
        // The next way to count, as an odometer.
        let Some(at) = counts.iter().position(|count| *count < gang.gpus) else { return best };
        counts[..at].fill(0);
        counts[at] += 1;
        let fits = free.iter().zip(&counts).all(|(node, count)| gang.share.room(node) >= *count);
        if counts.iter().sum::<u32>() != gang.gpus || !fits {
            continue;
        }
        let mut left = free.to_vec();
        for (node, count) in left.iter_mut().zip(&counts).filter(|(_, count)| **count > 0) {
            gang.share.take(node, *count);
        }
        let parts = counts.iter().filter(|count| **count > 0).count();
        let cost = least(&left, rest).map(|split| split + u32::from(parts > 1));
        best = [best, cost].into_iter().flatten().min();
    }
}

/// Gangs split by `place`, after asserting that nothing is granted twice.
fn split(free: &Free, gangs: &[Gang]) -> Option<u32> {
    let pieces = place(free, gangs)?;
    let mut left = free.clone();
    for (gang, pieces) in gangs.iter().zip(&pieces) {
        assert_eq!(pieces.iter().map(|piece| piece.gpus.count()).sum::<u32>(), gang.gpus);
        for piece in pieces {
            let node = left.node_mut(piece.node).unwrap();
            assert!(node.gpus.holds(piece.gpus), "a GPU is granted once");
            node.gpus = node.gpus.without(piece.gpus);
            node.cpu_milli = node.cpu_milli.checked_sub(piece.cpu_milli).unwrap();
            node.memory.0 = node.memory.0.checked_sub(piece.memory.0).unwrap();
        }
    }
    Some(u32::try_from(pieces.iter().filter(|pieces| pieces.len() > 1).count()).unwrap())
}

/// Never better than the best of all ways; as good where nothing need be split, and but for few cases where something must.
#[test]
fn few_gangs_are_split() {
    let mut rng = Rng::new(9);
    let mut some = |most: u32| u32::try_from(rng.below(u64::from(most))).unwrap();
    let (mut cases, mut must, mut missed, mut more) = (0, 0, 0, 0);
    while cases < 300 {
        let node = |node| FreeNode {
            node: NodeId(node),
            kind: 0,
            size: 4,
            gpus: GpuMask::all(4),
            cpu_milli: 12_000,
            memory: Bytes(400),
        };
        let free = Free { nodes: (0..2 + some(2)).map(node).collect() };
        let mut gang = |_| {
            let share =
                Share { cpu_milli: u64::from(some(6)) * 1_000, memory: Bytes(u64::from(some(4)) * 50) };
            Gang { gpus: 1 + some(4), share }
        };
        let gangs: Vec<Gang> = (0..4).map(&mut gang).collect();
        let Some(best) = least(&free.nodes, &gangs) else {
            assert_eq!(split(&free, &gangs), None);
            continue;
        };
        cases += 1;
        let ours = split(&free, &gangs);
        assert!(ours.is_none_or(|ours| ours >= best), "{ours:?} is better than every way, {best}");
        assert!(best > 0 || ours == Some(0), "{ours:?} where nothing need be split: {gangs:?}");
        must += u32::from(best > 0);
        missed += u32::from(ours.is_none());
        more += u32::from(ours.is_some_and(|ours| ours > best));
    }
    let told =
        format!("of {must} that must split, {missed} are not placed and {more} split more than they must");
    expect_test::expect!["of 154 that must split, 22 are not placed and 0 split more than they must"]
        .assert_eq(&told);
}
