//! One auction: GPUs that are free go to the bidders so that the product of their values is largest, and each pays for what
//! its presence costs the others (partial allocation: Cole, Gkatzelis and Goel, EC'13).
//!
//! ```text
//! bids ──▶ best product with everybody ──▶ who wins
//!      └─▶ best product without each winner ──▶ its payment: how much better the others would be off
//! ```
//!
//! A bidder's value is the inverse of its finish-time fairness; with nothing it is that of waiting for one more lease. A
//! gang cannot be cut, so that a payment is taken from the time it is granted for, not from its GPUs.

use super::super::Share;
use super::logarithm::{log2, power_milli};
use crate::cluster::{Free, JobId, NodeId};
use serde::{Deserialize, Serialize};

/// GPUs a bidder could hold, and what they are worth to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// GPUs on each node.
    pub parts: Vec<(NodeId, u32)>,
    /// Finish-time fairness with them, in thousandths.
    pub rho_milli: u64,
}

impl Offer {
    /// GPUs in all.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        self.parts.iter().map(|(_, gpus)| gpus).sum()
    }
}

/// A bid: one table, asked for once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bid {
    /// The job.
    pub job: JobId,
    /// Finish-time fairness when it gets nothing until the next auction, in thousandths.
    pub rho_without_milli: u64,
    /// CPUs and memory it takes with each GPU.
    pub share: Share,
    /// What it could hold, best first.
    pub offers: Vec<Offer>,
}

/// A winner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Award {
    /// Its place among the bids.
    pub bid: usize,
    /// The offer it gets.
    pub offer: usize,
    /// Part of the lease it keeps, in thousandths, from 1 to 1000; the rest is its hidden payment.
    pub kept_milli: u64,
}

/// Bidders up to which the best product is searched for, rather than approached.
const EXACT_MAX: usize = 6;

/// Rounds of exchanges after the first pass when the best product is approached.
const EXCHANGES_MAX: usize = 2;

/// Who gets what: for each bid, the offer taken.
type Taken = Vec<Option<usize>>;

/// Awards `free` to the best of `bids`.
#[must_use]
pub fn hold(free: &Free, bids: &[Bid]) -> Vec<Award> {
    let room = Room::of(free);
    let best = best(&room, bids, None, &vec![None; bids.len()]);
    let mut awards = Vec::new();
    for (at, taken) in best.iter().enumerate() {
        let Some(offer) = *taken else { continue };
        let others = score(bids, &best, Some(at));
        // Without the winner the others are at least as well off as beside it.
        let mut beside = best.clone();
        beside[at] = None;
        let without = score(bids, &self::best(&room, bids, Some(at), &beside), Some(at));
        let kept_milli = power_milli(without.saturating_sub(others)).max(1);
        awards.push(Award { bid: at, offer, kept_milli });
    }
    awards
}

/// The logarithm of the product of values over that of nobody getting anything, without bid `but`.
fn score(bids: &[Bid], taken: &Taken, but: Option<usize>) -> u64 {
    let rows = bids.iter().zip(taken).enumerate().filter(|(at, _)| Some(*at) != but);
    rows.filter_map(|(_, (bid, taken))| taken.map(|offer| gain(bid, offer))).sum()
}

/// How much an offer multiplies a bidder's value, as a logarithm.
fn gain(bid: &Bid, offer: usize) -> u64 {
    log2(bid.rho_without_milli.max(1)).saturating_sub(log2(bid.offers[offer].rho_milli.max(1)))
}

/// What is left on each node: GPUs, CPUs and memory.
#[derive(Clone, Debug)]
struct Room(Vec<(NodeId, u64, u64, u64)>);

impl Room {
    fn of(free: &Free) -> Self {
        let node = |node: &crate::cluster::FreeNode| {
            (node.node, u64::from(node.gpus.count()), node.cpu_milli, node.memory.0)
        };
        Self(free.nodes.iter().map(node).collect())
    }

    fn at(&self, id: NodeId) -> Option<usize> {
        self.0.binary_search_by_key(&id, |(node, ..)| *node).ok()
    }

    fn fits(&self, bid: &Bid, offer: usize) -> bool {
        bid.offers[offer].parts.iter().all(|(node, gpus)| {
            let count = u64::from(*gpus);
            self.at(*node).is_some_and(|at| {
                let (_, gpus, cpu, memory) = self.0[at];
                gpus >= count && cpu >= bid.share.cpu_milli * count && memory >= bid.share.memory.0 * count
            })
        })
    }

    fn change(&mut self, bid: &Bid, offer: usize, change: impl Fn(&mut u64, u64)) {
        for (node, gpus) in &bid.offers[offer].parts {
            let count = u64::from(*gpus);
            if let Some(at) = self.at(*node) {
                let (_, gpus, cpu, memory) = &mut self.0[at];
                change(gpus, count);
                change(cpu, bid.share.cpu_milli * count);
                change(memory, bid.share.memory.0 * count);
            }
        }
    }

    fn take(&mut self, bid: &Bid, offer: usize) {
        self.change(bid, offer, |has, part| *has -= part);
    }

    fn give(&mut self, bid: &Bid, offer: usize) {
        self.change(bid, offer, |has, part| *has += part);
    }
}

/// The best product, beginning from `begin`; bid `but` gets nothing.
fn best(room: &Room, bids: &[Bid], but: Option<usize>, begin: &Taken) -> Taken {
    if bids.len() <= EXACT_MAX {
        let mut search = Search { bids, but, best: begin.clone(), score: score(bids, begin, but) };
        search.from(0, &mut room.clone(), &mut vec![None; bids.len()], 0);
        return search.best;
    }
    approach(room, bids, but, begin.clone())
}

/// All ways to take offers, one bid after another.
struct Search<'b> {
    bids: &'b [Bid],
    but: Option<usize>,
    best: Taken,
    score: u64,
}

impl Search<'_> {
    fn from(&mut self, at: usize, room: &mut Room, taken: &mut Taken, so_far: u64) {
        if at == self.bids.len() {
            if so_far > self.score {
                (self.best, self.score) = (taken.clone(), so_far);
            }
            return;
        }
        let most = |bid: &Bid| (0..bid.offers.len()).map(|offer| gain(bid, offer)).max().unwrap_or(0);
        if so_far + self.bids[at..].iter().map(most).sum::<u64>() <= self.score {
            return;
        }
        if Some(at) != self.but {
            for offer in 0..self.bids[at].offers.len() {
                let bid = &self.bids[at];
                // An offer worth no more than nothing is not taken.
                if gain(bid, offer) > 0 && room.fits(bid, offer) {
                    room.take(bid, offer);
                    taken[at] = Some(offer);
                    self.from(at + 1, room, taken, so_far + gain(bid, offer));
                    taken[at] = None;
                    room.give(bid, offer);
                }
            }
        }
        self.from(at + 1, room, taken, so_far);
    }
}

/// Takes offer after offer by what a GPU of it adds, then lets losers replace a winner where that adds.
fn approach(room: &Room, bids: &[Bid], but: Option<usize>, mut taken: Taken) -> Taken {
    let mut left = room.clone();
    for (bid, taken) in bids.iter().zip(&taken) {
        if let Some(offer) = taken {
            left.take(bid, *offer);
        }
    }
    let mut order: Vec<(u64, usize, usize)> = Vec::new();
    for (at, bid) in bids.iter().enumerate().filter(|(at, _)| Some(*at) != but) {
        for (offer, offered) in bid.offers.iter().enumerate() {
            let each = gain(bid, offer) / u64::from(offered.gpus().max(1));
            order.push((u64::MAX - each, at, offer));
        }
    }
    order.sort_unstable();
    fill(&mut left, bids, &order, &mut taken);
    for _ in 0..EXCHANGES_MAX {
        let mut better = false;
        for (_, loser, offer) in &order {
            if taken[*loser].is_some() {
                continue;
            }
            for winner in 0..bids.len() {
                let Some(held) = taken[winner] else { continue };
                if gain(&bids[*loser], *offer) <= gain(&bids[winner], held) {
                    continue;
                }
                left.give(&bids[winner], held);
                if left.fits(&bids[*loser], *offer) {
                    left.take(&bids[*loser], *offer);
                    (taken[winner], taken[*loser], better) = (None, Some(*offer), true);
                    break;
                }
                left.take(&bids[winner], held);
            }
        }
        if !better {
            break;
        }
        fill(&mut left, bids, &order, &mut taken);
    }
    taken
}

fn fill(left: &mut Room, bids: &[Bid], order: &[(u64, usize, usize)], taken: &mut Taken) {
    for (_, at, offer) in order {
        let bid = &bids[*at];
        if taken[*at].is_none() && gain(bid, *offer) > 0 && left.fits(bid, *offer) {
            left.take(bid, *offer);
            taken[*at] = Some(*offer);
        }
    }
}
