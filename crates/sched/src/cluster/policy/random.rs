//! Decides at random, well or badly: for testing worlds and drivers.

use crate::Policy;
use crate::cluster::{ClusterWorld, Decision, GpuMask, Grant, Job, JobId, NodeId, Piece, Regrant};
use vocab::{Bytes, Rng, Span, Time};

/// Decides at random, refused or not.
#[derive(Clone, Debug)]
pub struct Random(Rng);

impl Random {
    /// Random decisions from `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    fn number(&mut self, bound: u32) -> u32 {
        u32::try_from(self.0.below(u64::from(bound.max(1)))).expect("a number below a u32 is one")
    }

    fn grant(&mut self, world: &ClusterWorld, job: &Job) -> Grant {
        let mut left = job.spec.gpus;
        let mut pieces = Vec::new();
        let nodes: Vec<_> = world.nodes().map(|node| (node.node, node.gpus)).collect();
        for (node, gpus) in nodes {
            let mask = GpuMask(self.0.next_u64()).0 & GpuMask::all(gpus).0;
            let mask = GpuMask(mask).lowest(left);
            if mask != GpuMask::NONE {
                left -= mask.count();
                let cpu_milli = u64::from(self.number(3_000));
                pieces.push(Piece { node, gpus: mask, cpu_milli, memory: Bytes(u64::from(self.number(64))) });
            }
        }
        if self.number(20) == 0 {
            pieces.push(Piece { node: NodeId(99), gpus: GpuMask(1), cpu_milli: 0, memory: Bytes(0) });
        }
        Grant { pieces, accumulate: self.number(4) + u32::from(self.number(10) > 0) }
    }
}

impl Policy<ClusterWorld> for Random {
    fn name(&self) -> &'static str {
        "random"
    }

    fn decide(&mut self, now: Time, world: &ClusterWorld) -> Vec<Decision> {
        let mut decisions = Vec::new();
        let jobs: Vec<JobId> = world.running().chain(world.waiting()).map(|job| job.spec.job).collect();
        for id in jobs {
            let job = world.known(id);
            let until = now + Span::from_ns(u64::from(self.number(50)));
            match self.number(6) {
                0 => decisions.push(Decision::Stop { job: id }),
                1 | 2 => {
                    let (grant, lease) = (self.grant(world, job), (self.number(2) == 0).then_some(until));
                    decisions.push(Decision::Start { job: id, grant, lease });
                }
                3 => {
                    let others = world.running().map(|other| other.spec.job).collect::<Vec<_>>();
                    let count = self.number(4) as usize;
                    let changes = others.into_iter().take(count).map(|job| {
                        let grant = self.grant(world, world.known(job));
                        Regrant { job, grant }
                    });
                    decisions.push(Decision::Regrant { changes: changes.collect() });
                }
                4 => decisions.push(Decision::Extend { job: id, until }),
                _ => {}
            }
        }
        decisions
    }

    fn wake(&self, now: Time) -> Option<Time> {
        Some(now + Span::from_ns(10))
    }
}
