//! Where those chosen for a round go: who stays on a kind keeps its GPUs, the others are placed anew, the largest first.

use super::Unit;
use crate::cluster::policy::{Place, Share};
use crate::cluster::{
    ClusterWorld, Decision, Free, FreeNode, Grant, Job, JobId, JobSpec, NodeId, Piece, Regrant,
};
use std::cmp::Reverse;
use vocab::Bytes;

/// The decisions that lead to `chosen`.
pub(super) fn reach(world: &ClusterWorld, mut chosen: Vec<(Unit, usize)>, kinds: usize) -> Vec<Decision> {
    let jobs: usize = chosen.iter().map(|((_, second), _)| 1 + usize::from(second.is_some())).sum();
    if jobs == world.load().0 && chosen.iter().all(|(unit, kind)| kept(world, *unit, *kind).is_some()) {
        return Vec::new();
    }
    let free = world.empty();
    let of_kind = |kind: usize| free.nodes.iter().filter(move |node| node.kind as usize == kind);
    let mut free: Vec<Free> =
        (0..kinds).map(|kind| Free { nodes: of_kind(kind).copied().collect() }).collect();
    chosen.sort_by_key(|((first, _), _)| Reverse(world.known(*first).spec.gpus));
    let mut stays = Vec::with_capacity(jobs);
    chosen.retain(|((first, second), kind)| {
        let held = kept(world, (*first, *second), *kind);
        if held.is_none() {
            return true;
        }
        for job in std::iter::once(*first).chain(*second) {
            stays.push(job);
            world.known(job).grant().inspect(|grant| free.iter_mut().for_each(|nodes| nodes.take(grant)));
        }
        false
    });
    let (mut changes, mut starts) = (Vec::new(), Vec::new());
    for ((first, second), kind) in chosen {
        for (id, grant) in placed(world, &mut free[kind], first, second).into_iter().flatten() {
            stays.push(id);
            let job = world.known(id);
            if job.waits() {
                starts.push(Decision::Start { job: id, grant, lease: None });
            } else if job.grant() != Some(&grant) {
                changes.push(Regrant { job: id, grant });
            }
        }
    }
    stays.sort_unstable();
    let gone = world.running().map(|job| job.spec.job).filter(|id| stays.binary_search(id).is_err());
    let mut decisions: Vec<Decision> = gone.map(|job| Decision::Stop { job }).collect();
    if !changes.is_empty() {
        decisions.push(Decision::Regrant { changes });
    }
    decisions.append(&mut starts);
    decisions
}

/// What a unit holds of a kind, if it was the same unit before.
fn kept(world: &ClusterWorld, (first, second): Unit, kind: usize) -> Option<&Grant> {
    let held = |job: &'_ Job| job.last_kind() == Some(kind);
    let grant = world.job(first).filter(|job| held(job))?.grant()?;
    let jobs = match second {
        None => 1,
        Some(second) => {
            let other = world.job(second).filter(|job| held(job))?.grant()?;
            if !grant.same_gpus(other) {
                return None;
            }
            2
        }
    };
    let alone = |piece: &Piece| piece.gpus.iter().all(|gpu| world.holders(piece.node, gpu).len() == jobs);
    grant.pieces.iter().all(alone).then_some(grant)
}

/// Grants for a unit out of what is free; nothing when there is no room.
fn placed(
    world: &ClusterWorld,
    free: &mut Free,
    first: JobId,
    second: Option<JobId>,
) -> Option<Vec<(JobId, Grant)>> {
    let spec = &world.known(first).spec;
    let own = Share::asked(spec);
    let Some(second) = second else {
        return Some(vec![(first, Grant::whole(take(free, spec.gpus, own)?))]);
    };
    let other = &world.known(second).spec;
    let beside = Share::asked(other);
    let both =
        Share { cpu_milli: own.cpu_milli + beside.cpu_milli, memory: Bytes(own.memory.0 + beside.memory.0) };
    let mut shared = Free { nodes: fit(world, free, [spec, other]) };
    let pieces = take(&mut shared, spec.gpus, both)?;
    let part = |share: Share| {
        let piece = |piece: &Piece| {
            let gpus = u64::from(piece.gpus.count());
            let (cpu_milli, memory) = (share.cpu_milli * gpus, Bytes(share.memory.0 * gpus));
            Piece { cpu_milli, memory, ..*piece }
        };
        Grant::whole(pieces.iter().map(piece).collect())
    };
    let grants = vec![(first, part(own)), (second, part(beside))];
    grants.iter().for_each(|(_, grant)| free.take(grant));
    Some(grants)
}

fn take(free: &mut Free, gpus: u32, share: Share) -> Option<Vec<Piece>> {
    let consolidated = Place::Consolidated.take(free, gpus, share);
    consolidated.or_else(|| Place::Anywhere.take(free, gpus, share))
}

/// Free nodes whose GPUs two jobs fit on together.
fn fit(world: &ClusterWorld, free: &Free, jobs: [&JobSpec; 2]) -> Vec<FreeNode> {
    let needs: u64 = jobs.iter().map(|spec| spec.gpu.memory(1).0).sum();
    let able = world.nodes().filter(|node| node.slots > 1 && node.gpu_memory.0 >= needs);
    let able: Vec<NodeId> = able.map(|node| node.node).collect();
    free.nodes.iter().filter(|node| able.binary_search(&node.node).is_ok()).copied().collect()
}
