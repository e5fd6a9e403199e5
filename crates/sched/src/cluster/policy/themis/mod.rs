//! Themis (NSDI'20): finish-time fairness by auctions of leases.
//!
//! ```text
//! leases end ──▶ worst jobs bid ──▶ auction, hidden payments ──▶ leases
//!                                └▶ what is left: jobs outside the auction, then anybody
//! ```
//!
//! A job's finish-time fairness ρ is its time from submission to its foreseen end over that on an even part of the cluster,
//! the part being among as many jobs as there were on average since it came. All leases end on one grid, so that auctions
//! are few and large; between them, what is free goes to whoever waits, the worst first, so that nothing idles. A job that
//! wins the GPUs it holds runs on without a stop.

mod auction;
mod logarithm;

pub use auction::{Award, Bid, Offer, hold};

use super::{Place, Share};
use crate::Policy;
use crate::cluster::{
    ClusterWorld, Decision, Free, GpuMask, Grant, Job, JobId, NodeId, Phase, Piece, Regrant,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use vocab::{Span, Time};

/// Finish-time fairness by auctions of leases.
#[derive(Clone, Debug)]
pub struct Themis {
    lease: Span,
    fair_milli: u32,
    /// Jobs × time until `counted`, in job nanoseconds.
    area: u128,
    counted: Time,
    live: u128,
    /// `area` when each job came.
    came: BTreeMap<JobId, u128>,
    next: Option<Time>,
    auctions: u64,
}

/// A bidder in the trail of an auction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bidder {
    /// The job.
    pub job: JobId,
    /// Its finish-time fairness if it gets nothing until the next auction, in thousandths.
    pub rho_without_milli: u64,
    /// What it offered to hold.
    pub offers: Vec<Offer>,
    /// The offer it won, by its place, and the part of the lease it keeps, in thousandths; the rest is its payment.
    pub won: Option<(usize, u64)>,
}

/// The trail of one auction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trail {
    /// Its number, from 1.
    pub auction: u64,
    /// GPUs that were offered.
    pub offered: u32,
    /// Who bid.
    pub bidders: Vec<Bidder>,
    /// GPUs given out afterwards, by job.
    pub leftovers: Vec<(JobId, u32)>,
}

/// Bidders at most: the worst of those the auction is open to.
const BIDDERS_MAX: usize = 16;

/// Offers in a bid at most.
const OFFERS_MAX: usize = 4;

/// Leases are cut to multiples of this part of them. Finer cuts scatter the ends of leases, and a large gang then never
/// finds enough GPUs in one auction; whole leases would leave payments without effect.
const LEASE_PARTS: u64 = 2;

impl Themis {
    /// Leases of length `lease`; auctions open to the worst `1000 − fair_milli` thousandths of jobs.
    #[must_use]
    pub const fn new(lease: Span, fair_milli: u32) -> Self {
        Self {
            lease,
            fair_milli,
            area: 0,
            counted: Time::ZERO,
            live: 0,
            came: BTreeMap::new(),
            next: None,
            auctions: 0,
        }
    }

    /// Counts jobs × time until `now`, and notes who came.
    fn count(&mut self, now: Time, world: &ClusterWorld) {
        self.area += self.live * u128::from(now.since(self.counted).ns());
        self.counted = now;
        let (running, waiting) = world.load();
        self.live = (running + waiting) as u128;
        for id in world.fresh() {
            self.came.insert(*id, self.area);
        }
        if self.came.len() > 2 * (running + waiting) + 1_024 {
            let live: BTreeSet<JobId> =
                world.running().chain(world.waiting()).map(|job| job.spec.job).collect();
            self.came.retain(|id, _| live.contains(id));
        }
    }

    /// A job's time on an even part, from submission to end.
    fn even(&self, now: Time, gpus: u32, job: &Job) -> u128 {
        let age = u128::from(now.since(job.spec.arrival).ns());
        let came = self.came.get(&job.spec.job).copied().unwrap_or(self.area);
        let others = ((self.area - came) * 1_000).checked_div(age).unwrap_or(self.live * 1_000);
        let crowding = others.max(1_000) * u128::from(job.spec.gpus) / u128::from(gpus.max(1));
        (u128::from(job.spec.solo.ns()) * crowding.max(1_000) / 1_000).max(1)
    }

    /// Finish-time fairness in thousandths, when what is left takes `left` after waiting for `wait`.
    fn rho(&self, now: Time, gpus: u32, job: &Job, wait: Span, left: Span) -> u64 {
        let shared = now.since(job.spec.arrival) + wait + left;
        u64::try_from(u128::from(shared.ns()) * 1_000 / self.even(now, gpus, job)).unwrap_or(u64::MAX).max(1)
    }

    /// A job's bid for what is free.
    fn bid(&self, now: Time, world: &ClusterWorld, free: &Free, gpus: u32, job: &Job) -> Bid {
        let left = |parts: &[(NodeId, u32)]| {
            let piece = |(node, _): &(NodeId, u32)| Piece {
                node: *node,
                gpus: GpuMask::NONE,
                cpu_milli: 0,
                memory: vocab::Bytes(0),
            };
            let level = world.level(&parts.iter().map(piece).collect::<Vec<_>>());
            job.left.scale(u64::from(job.spec.spread_milli[level.index()]), 1_000)
        };
        let offer = |parts: Vec<(NodeId, u32)>| {
            let rho_milli = self.rho(now, gpus, job, Span::ZERO, left(&parts));
            Offer { parts, rho_milli }
        };
        let counts = |pieces: &[Piece]| pieces.iter().map(|piece| (piece.node, piece.gpus.count())).collect();
        let share = Share::asked(&job.spec);
        let mut offers: Vec<Offer> =
            job.grant().map(|grant| offer(counts(&grant.pieces))).into_iter().collect();
        let mut tight: Vec<_> = free.nodes.iter().filter(|node| share.room(node) >= job.spec.gpus).collect();
        tight.sort_by_key(|node| (node.gpus.count(), node.node));
        let room = OFFERS_MAX - 1;
        offers.extend(tight.into_iter().take(room).map(|node| offer(vec![(node.node, job.spec.gpus)])));
        for place in [Place::Consolidated, Place::Anywhere] {
            if offers.len() < 2
                && let Some(pieces) = place.take(&mut free.clone(), job.spec.gpus, share)
            {
                offers.push(offer(counts(&pieces)));
            }
        }
        let wait = self.lease;
        let rho_without_milli = self.rho(now, gpus, job, wait, job.left);
        Bid { job: job.spec.job, rho_without_milli, share, offers }
    }

    /// When a lease that keeps `kept_milli` thousandths ends, on the grid.
    fn until(&self, now: Time, kept_milli: u64) -> Time {
        let part = (self.lease.ns() / LEASE_PARTS).max(1);
        let parts = (kept_milli * LEASE_PARTS).div_ceil(1_000).clamp(1, LEASE_PARTS);
        Time::from_ns((now.ns() / part + parts) * part)
    }
}

/// A lease's end as the world knows it comes this much after the one meant here, so that the policy speaks first.
const GRACE: Span = Span::from_ms(1_000);

/// A turn's plan while it is made.
struct Draft<'w> {
    world: &'w ClusterWorld,
    free: Free,
    /// Grants and the ends of their leases, in the order they were made.
    granted: Vec<(JobId, Grant, Time)>,
}

impl Draft<'_> {
    /// Lets a job keep what it holds, if that is still free.
    fn keep(&mut self, job: &Job, until: Time) -> bool {
        let Some(grant) = job.grant().filter(|grant| self.has(grant)) else { return false };
        self.free.take(grant);
        self.granted.push((job.spec.job, grant.clone(), until));
        true
    }

    fn has(&mut self, grant: &Grant) -> bool {
        grant.pieces.iter().all(|piece| {
            let node = self.free.node_mut(piece.node);
            node.is_some_and(|node| {
                node.gpus.holds(piece.gpus) && node.fits(0, piece.cpu_milli, piece.memory)
            })
        })
    }

    /// Gives a job these counts of GPUs; false when they are no longer free.
    fn give(&mut self, bid: &Bid, parts: &[(NodeId, u32)], until: Time) -> bool {
        let mut after = self.free.clone();
        let mut pieces = Vec::with_capacity(parts.len());
        for (node, gpus) in parts {
            let (count, share) = (u64::from(*gpus), bid.share);
            let (cpu, memory) = (share.cpu_milli * count, vocab::Bytes(share.memory.0 * count));
            let Some(node) = after.node_mut(*node).filter(|node| node.fits(*gpus, cpu, memory)) else {
                return false;
            };
            pieces.push(node.take(*gpus, cpu, memory));
        }
        self.free = after;
        self.granted.push((bid.job, Grant::whole(pieces), until));
        true
    }

    /// Places a job anywhere it fits, close together if possible.
    fn place(&mut self, job: &Job, until: Time) -> bool {
        let (gpus, share) = (job.spec.gpus, Share::asked(&job.spec));
        if gpus > self.free.gpus() {
            return false;
        }
        let pieces = Place::Consolidated
            .take(&mut self.free, gpus, share)
            .or_else(|| Place::Anywhere.take(&mut self.free, gpus, share));
        let placed = pieces.is_some();
        self.granted.extend(pieces.map(|pieces| (job.spec.job, Grant::whole(pieces), until)));
        placed
    }

    /// Stops, changes, extensions and starts that lead to the plan, for jobs whose leases ended.
    fn decisions(self, ended: &[JobId]) -> Vec<Decision> {
        let kept: BTreeSet<JobId> = self.granted.iter().map(|(id, ..)| *id).collect();
        let gone = ended.iter().filter(|id| !kept.contains(id));
        let mut decisions: Vec<Decision> = gone.map(|job| Decision::Stop { job: *job }).collect();
        let (mut changes, mut extensions, mut starts) = (Vec::new(), Vec::new(), Vec::new());
        for (job, grant, until) in self.granted {
            let until = until + GRACE;
            match self.world.known(job).grant() {
                None => starts.push(Decision::Start { job, grant, lease: Some(until) }),
                Some(held) => {
                    if *held != grant {
                        changes.push(Regrant { job, grant });
                    }
                    extensions.push(Decision::Extend { job, until });
                }
            }
        }
        if !changes.is_empty() {
            decisions.push(Decision::Regrant { changes });
        }
        decisions.append(&mut extensions);
        decisions.append(&mut starts);
        decisions
    }
}

impl Themis {
    /// The auction among the worst of `candidates` (worst first); returns its trail.
    fn auction(&mut self, now: Time, candidates: &[&Job], draft: &mut Draft<'_>) -> Trail {
        let (world, gpus) = (draft.world, draft.world.gpus());
        let open =
            u64::try_from(self.live).unwrap_or(u64::MAX).saturating_mul(u64::from(1_000 - self.fair_milli));
        let open = usize::try_from(open.div_ceil(1_000)).unwrap_or(BIDDERS_MAX).clamp(1, BIDDERS_MAX);
        let bids: Vec<Bid> =
            candidates.iter().take(open).map(|job| self.bid(now, world, &draft.free, gpus, job)).collect();
        let offered = draft.free.gpus();
        let awards = hold(&draft.free, &bids);
        let mut won: Vec<Option<(usize, u64)>> = vec![None; bids.len()];
        // Those that keep what they hold come first, so that it is still theirs.
        let keeps = |award: &Award| award.offer == 0 && world.known(bids[award.bid].job).grant().is_some();
        let (stay, go): (Vec<Award>, Vec<Award>) = awards.into_iter().partition(keeps);
        for award in stay.iter().chain(&go) {
            let bid = &bids[award.bid];
            let until = self.until(now, award.kept_milli);
            let kept = keeps(award) && draft.keep(world.known(bid.job), until);
            if kept || draft.give(bid, &bid.offers[award.offer].parts, until) {
                won[award.bid] = Some((award.offer, award.kept_milli));
            }
        }
        self.auctions += 1;
        let bidder = |(bid, won): (Bid, _)| {
            let Bid { job, rho_without_milli, offers, .. } = bid;
            Bidder { job, rho_without_milli, offers, won }
        };
        let bidders = bids.into_iter().zip(won).map(bidder).collect();
        Trail { auction: self.auctions, offered, bidders, leftovers: Vec::new() }
    }
}

/// The end of a running job's lease, as meant here.
fn lease_of(job: &Job) -> Option<Time> {
    match job.phase {
        Phase::Running { lease: Some(until), .. } => Some(until.before(GRACE)),
        Phase::Running { .. } | Phase::Waiting { .. } | Phase::Ended { .. } => None,
    }
}

impl Policy<ClusterWorld> for Themis {
    fn name(&self) -> &'static str {
        "themis"
    }

    fn decide(&mut self, now: Time, world: &ClusterWorld) -> Vec<Decision> {
        self.count(now, world);
        let over = |job: &&Job| lease_of(job).is_none_or(|until| until <= now);
        let ended: Vec<JobId> = world.running().filter(over).map(|job| job.spec.job).collect();
        let mut draft = Draft { world, free: world.free(), granted: Vec::new() };
        for id in &ended {
            draft.free.give(world.known(*id).grant().expect("a running job holds a grant"));
        }
        let (_, waiting) = world.load();
        let mut trail = None;
        if waiting == 0 {
            for id in &ended {
                draft.keep(world.known(*id), self.until(now, 1_000));
            }
        } else if draft.free.gpus() > 0 {
            let gpus = world.gpus();
            let live = ended.iter().map(|id| world.known(*id)).chain(world.waiting());
            let mut ranked: Vec<(u64, &Job)> =
                live.map(|job| (self.rho(now, gpus, job, self.lease, job.left), job)).collect();
            ranked.sort_by_key(|(rho, job)| (std::cmp::Reverse(*rho), job.spec.arrival, job.spec.job));
            let candidates: Vec<&Job> = ranked.into_iter().map(|(_, job)| job).collect();
            if !ended.is_empty() {
                trail = Some(self.auction(now, &candidates, &mut draft));
            }
            self.hand_out(now, &candidates, trail.as_mut(), &mut draft);
        }
        let mut decisions = draft.decisions(&ended);
        decisions.extend(trail.map(|trail| Decision::Record { trail }));
        let next = world.running().filter_map(lease_of).filter(|until| *until > now).min();
        let given = decisions.iter().filter_map(|decision| match decision {
            Decision::Start { lease: Some(until), .. } | Decision::Extend { until, .. } => {
                Some(until.before(GRACE))
            }
            _ => None,
        });
        self.next = given.chain(next).min();
        decisions
    }

    fn wake(&self, _now: Time) -> Option<Time> {
        self.next
    }
}

impl Themis {
    /// Gives what is left to those outside the auction, then to anybody, the worst first.
    fn hand_out(&self, now: Time, candidates: &[&Job], trail: Option<&mut Trail>, draft: &mut Draft<'_>) {
        let bidders: BTreeSet<JobId> =
            trail.iter().flat_map(|trail| trail.bidders.iter().map(|bidder| bidder.job)).collect();
        let served: BTreeSet<JobId> = draft.granted.iter().map(|(id, ..)| *id).collect();
        let (inside, outside): (Vec<&Job>, Vec<&Job>) = candidates
            .iter()
            .copied()
            .filter(|job| !served.contains(&job.spec.job))
            .partition(|job| bidders.contains(&job.spec.job));
        let before = draft.granted.len();
        // Room only shrinks: a gang of a size that failed fails again, where jobs differ in nothing else.
        let mut failed = BTreeSet::new();
        for job in outside.into_iter().chain(inside) {
            if draft.free.gpus() == 0 {
                break;
            }
            let plain = job.spec.cpu_milli == 0 && job.spec.memory.0 == 0;
            let hopeless = plain && failed.contains(&job.spec.gpus);
            let until = self.until(now, 1_000);
            if !draft.keep(job, until) && !hopeless && !draft.place(job, until) {
                failed.insert(job.spec.gpus);
            }
        }
        if let Some(trail) = trail {
            let given = draft.granted[before..].iter().map(|(id, grant, _)| (*id, grant.gpus()));
            trail.leftovers.extend(given);
        }
    }
}

#[cfg(test)]
mod tests;
