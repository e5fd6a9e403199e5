//! Synergy (OSDI'22): CPUs and memory are shared out by need beside a fixed number of GPUs, anew in each round.
//!
//! Proportional gives each GPU its even part. Greedy gives each job what it asks for and passes over those that do not
//! fit. Tune gives what is asked for, else the even part, and if need be takes back what others hold beyond theirs: so
//! every job that the GPUs suffice for runs, and none gets less than its even part. Best asks the driver for the CPUs and
//! memory that make the sum of speeds largest, as if all servers were one, and places those so that as few jobs as can be are
//! split; where no such placement of all is found, each is placed as Tune places what is asked for.

use super::fragments::{self, Gang};
use super::ordered::reach;
use super::{Order, Place, Share};
use crate::Policy;
use crate::cluster::{Claim, ClusterWorld, Decision, Free, FreeNode, Goal, Grant, Job, JobId, Piece, Real};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use vocab::{Bytes, Span, Time};

/// How CPUs and memory are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tune {
    /// Evenly, by GPUs.
    Proportional,
    /// By need; who does not fit is passed over.
    Greedy,
    /// By need, and never less than evenly.
    Tune,
    /// As a linear program over all jobs says (Synergy's OPT), and never less than evenly.
    Best,
}

/// CPUs and memory beside fixed GPUs, in rounds.
#[derive(Clone, Debug)]
pub struct Synergy {
    order: Order,
    tune: Tune,
    round: Span,
    busy: bool,
    /// Questions asked so far, and when the latest was.
    asked: (u64, Time),
}

/// A round's plan while it is made.
struct Draft<'w> {
    world: &'w ClusterWorld,
    even: Share,
    free: Free,
    rows: Vec<Row>,
    /// Rows on each node of `free`, in the order of their latest sorting.
    on_node: Vec<Vec<usize>>,
    /// What jobs ask for on each GPU, where that was worked out.
    asked: BTreeMap<JobId, Share>,
    /// Jobs that were placed together.
    placed: BTreeSet<JobId>,
}

struct Row {
    job: JobId,
    pieces: Vec<Piece>,
}

impl Synergy {
    /// Rounds of length `round`, first come first served.
    #[must_use]
    pub const fn new(order: Order, tune: Tune, round: Span) -> Self {
        Self { order, tune, round, busy: false, asked: (0, Time::ZERO) }
    }
}

impl Policy<ClusterWorld> for Synergy {
    fn name(&self) -> &'static str {
        match self.tune {
            Tune::Proportional => "synergy-proportional",
            Tune::Greedy => "synergy-greedy",
            Tune::Tune => "synergy-tune",
            Tune::Best => "synergy-opt",
        }
    }

    fn decide(&mut self, now: Time, world: &ClusterWorld) -> Vec<Decision> {
        let mut queue: Vec<&Job> = world.running().chain(world.waiting()).collect();
        self.busy = !queue.is_empty();
        queue.sort_by_key(|job| (self.order.key(job), job.spec.job));
        let Some(mut draft) = Draft::new(world) else { return Vec::new() };
        let gpus = draft.free.gpus();
        if self.tune == Tune::Best && !queue.is_empty() {
            let answer = world.plan().filter(|plan| (plan.number, now) == self.asked && plan.number > 0);
            let Some(plan) = answer else {
                self.asked = (self.asked.0 + 1, now);
                let jobs = runnable(&queue, gpus).map(|job| claim(now, job)).collect();
                return vec![Decision::Replan {
                    number: self.asked.0,
                    goal: Goal::Speed,
                    packed: false,
                    jobs,
                }];
            };
            draft.asked = plan.shares.iter().filter_map(|(job, share)| asked(world, *job, share)).collect();
            draft.place(&runnable(&queue, gpus).collect::<Vec<&Job>>());
        }
        let mut room = gpus;
        for job in queue {
            if room == 0 {
                break;
            }
            if job.spec.gpus <= room && (draft.holds(job.spec.job) || draft.add(job, self.tune)) {
                room -= job.spec.gpus;
            }
        }
        let wanted = draft.rows.into_iter().map(|row| (row.job, Grant::whole(row.pieces))).collect();
        reach(world, wanted, None)
    }

    fn wake(&self, now: Time) -> Option<Time> {
        self.busy.then(|| now + self.round)
    }
}

/// The first of `queue` that the GPUs suffice for.
fn runnable<'q>(queue: &'q [&Job], gpus: u32) -> impl Iterator<Item = &'q Job> {
    let mut room = gpus;
    queue.iter().copied().filter(move |job| {
        let fits = job.spec.gpus <= room;
        room -= if fits { job.spec.gpus } else { 0 };
        fits
    })
}

fn claim(now: Time, job: &Job) -> Claim {
    let age = now.since(job.spec.arrival);
    Claim { job: job.spec.job, weight_milli: 1_000, age, steps_left: job.steps_left.unwrap_or(1) }
}

/// A job's part of an answer, on each of its GPUs; nothing when the answer is not of this kind.
fn asked(world: &ClusterWorld, job: JobId, share: &[Real]) -> Option<(JobId, Share)> {
    let ([cpu, memory], spec) = (share, &world.job(job)?.spec) else { return None };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates at what no node has"
    )]
    let each = |all: &Real| all.value().max(0.0) as u64 / u64::from(spec.gpus.max(1));
    Some((job, Share { cpu_milli: each(cpu), memory: Bytes(each(memory)) }))
}

impl<'w> Draft<'w> {
    /// An empty plan; nothing when there is no node.
    fn new(world: &'w ClusterWorld) -> Option<Self> {
        let free = world.empty();
        let part = |node: &FreeNode| {
            let gpus = u64::from(node.size.max(1));
            (node.cpu_milli / gpus, node.memory.0 / gpus)
        };
        let even = Share {
            cpu_milli: free.nodes.iter().map(|node| part(node).0).min()?,
            memory: Bytes(free.nodes.iter().map(|node| part(node).1).min()?),
        };
        let on_node = vec![Vec::new(); free.nodes.len()];
        Some(Self {
            world,
            even,
            free,
            rows: Vec::new(),
            on_node,
            asked: BTreeMap::new(),
            placed: BTreeSet::new(),
        })
    }

    /// Places all of `jobs` with what they ask for, or none.
    fn place(&mut self, jobs: &[&Job]) {
        let gang = |job: &&Job| Gang { gpus: job.spec.gpus, share: self.asked_by(job) };
        let gangs: Vec<Gang> = jobs.iter().map(gang).collect();
        for (job, pieces) in jobs.iter().zip(fragments::place(&self.free, &gangs).into_iter().flatten()) {
            pieces.iter().for_each(|piece| self.take(piece));
            self.enter(job.spec.job, pieces);
        }
        self.placed = self.rows.iter().map(|row| row.job).collect();
    }

    /// Whether `job` was placed with the others.
    fn holds(&self, job: JobId) -> bool {
        self.placed.contains(&job)
    }

    fn take(&mut self, piece: &Piece) {
        let at = self.place_of(piece);
        let node = &mut self.free.nodes[at];
        node.gpus = node.gpus.without(piece.gpus);
        node.cpu_milli -= piece.cpu_milli;
        node.memory.0 -= piece.memory.0;
    }

    /// Notes what a job gets.
    fn enter(&mut self, job: JobId, pieces: Vec<Piece>) {
        for piece in &pieces {
            let at = self.place_of(piece);
            self.on_node[at].push(self.rows.len());
        }
        self.rows.push(Row { job, pieces });
    }

    /// Finds room for `job`; false when there is none.
    fn add(&mut self, job: &Job, tune: Tune) -> bool {
        let gpus = job.spec.gpus;
        let asked = self.asked_by(job);
        let pieces = match tune {
            Tune::Proportional => Place::Anywhere.take(&mut self.free, gpus, self.even),
            Tune::Greedy => Place::Anywhere.take(&mut self.free, gpus, asked),
            Tune::Tune | Tune::Best => {
                let modest = self.modest(asked);
                Place::Anywhere
                    .take(&mut self.free, gpus, asked)
                    .or_else(|| Place::Anywhere.take(&mut self.free, gpus, modest))
                    .or_else(|| {
                        self.make_room(gpus, modest);
                        Place::Anywhere.take(&mut self.free, gpus, modest)
                    })
            }
        };
        let Some(pieces) = pieces else { return false };
        self.enter(job.spec.job, pieces);
        true
    }

    /// What a job asks for on each GPU.
    fn asked_by(&self, job: &Job) -> Share {
        self.asked.get(&job.spec.job).copied().unwrap_or_else(|| Share::asked(&job.spec))
    }

    fn place_of(&self, piece: &Piece) -> usize {
        let at = self.free.nodes.binary_search_by_key(&piece.node, |node| node.node);
        at.expect("a plan is made of the nodes it began with")
    }

    /// A share without what is beyond the even one.
    fn modest(&self, share: Share) -> Share {
        Share {
            cpu_milli: share.cpu_milli.min(self.even.cpu_milli),
            memory: share.memory.min(self.even.memory),
        }
    }

    /// Nodes that would take `gpus` GPUs, chosen by GPUs alone, and how many each.
    fn targets(&self, gpus: u32) -> Vec<(usize, u32)> {
        let free = |at: usize| self.free.nodes[at].gpus.count();
        let nodes = 0..self.free.nodes.len();
        if gpus > 1
            && let Some(at) = nodes.clone().find(|at| free(*at) >= gpus)
        {
            return vec![(at, gpus)];
        }
        let mut tightest: Vec<usize> = nodes.filter(|at| free(*at) > 0).collect();
        tightest.sort_by_key(|at| (free(*at), *at));
        let mut left = gpus;
        let take = |at: usize| {
            let here = free(at).min(left);
            left -= here;
            (at, here)
        };
        tightest.into_iter().map(take).filter(|(_, here)| *here > 0).collect()
    }

    /// Takes back what jobs on the target nodes hold beyond their even part, the fattest first, until enough is free.
    fn make_room(&mut self, gpus: u32, share: Share) {
        for (at, here) in self.targets(gpus) {
            let count = u64::from(here);
            let node = &self.free.nodes[at];
            let mut cpu = (share.cpu_milli * count).saturating_sub(node.cpu_milli);
            let mut memory = (share.memory.0 * count).saturating_sub(node.memory.0);
            if cpu == 0 && memory == 0 {
                continue;
            }
            let mut order = std::mem::take(&mut self.on_node[at]);
            order.sort_by_key(|row| {
                let pieces = &self.rows[*row].pieces;
                let gpus = pieces.iter().map(|piece| u64::from(piece.gpus.count())).sum::<u64>();
                let cpus = pieces.iter().map(|piece| piece.cpu_milli).sum::<u64>();
                let memory = pieces.iter().map(|piece| piece.memory.0).sum::<u64>();
                (pieces.len(), Reverse(cpus / gpus), Reverse(memory / gpus))
            });
            for row in &order {
                let (cpu_back, memory_back) = self.reduce(*row, at);
                cpu = cpu.saturating_sub(cpu_back);
                memory = memory.saturating_sub(memory_back);
                if cpu == 0 && memory == 0 {
                    break;
                }
            }
            self.on_node[at] = order;
        }
    }

    /// Takes from a row, on all its nodes, what it holds beyond its even part; how much that was on node `at`.
    fn reduce(&mut self, row: usize, at: usize) -> (u64, u64) {
        let modest = self.modest(self.asked_by(self.world.known(self.rows[row].job)));
        let mut back = (0, 0);
        let mut pieces = std::mem::take(&mut self.rows[row].pieces);
        for piece in &mut pieces {
            let count = u64::from(piece.gpus.count());
            let cpu = piece.cpu_milli - modest.cpu_milli * count;
            let memory = piece.memory.0 - modest.memory.0 * count;
            let place = self.place_of(piece);
            if place == at {
                back = (cpu, memory);
            }
            piece.cpu_milli -= cpu;
            piece.memory.0 -= memory;
            self.free.nodes[place].cpu_milli += cpu;
            self.free.nodes[place].memory.0 += memory;
        }
        self.rows[row].pieces = pieces;
        back
    }
}
