//! The auction's promises, on random bids; and that nothing idles.

use super::super::{Choice, Share};
use super::{Award, Bid, Offer, hold};
use crate::cluster::{
    ClusterWorld, Decision, Event, Free, FreeNode, GpuMask, GpuNeed, JobId, JobSpec, Level, NodeId, NodeSpec,
};
use crate::turn;
use proptest::prelude::*;
use std::collections::BTreeMap;
use vocab::{Bytes, ModelId, Span, Time};

fn free(nodes: &[u8]) -> Free {
    let node = |(at, gpus): (u32, &u8)| FreeNode {
        node: NodeId(at),
        kind: 0,
        size: 8,
        gpus: GpuMask::all(*gpus),
        cpu_milli: u64::from(*gpus) * 3,
        memory: Bytes(100),
    };
    Free { nodes: (0..).zip(nodes).map(node).collect() }
}

fn bid() -> impl Strategy<Value = Bid> {
    let offer =
        (prop::collection::vec((0u32..3, 1u32..5), 1..3), 1u64..4_000).prop_map(|(parts, rho_milli)| {
            let parts: BTreeMap<u32, u32> = parts.into_iter().collect();
            Offer { parts: parts.into_iter().map(|(node, gpus)| (NodeId(node), gpus)).collect(), rho_milli }
        });
    (1u64..8_000, 0u64..4, prop::collection::vec(offer, 0..4)).prop_map(|(rho, cpu_milli, offers)| Bid {
        job: JobId(0),
        rho_without_milli: rho,
        share: Share { cpu_milli, memory: Bytes(0) },
        offers,
    })
}

fn bids(most: usize) -> impl Strategy<Value = Vec<Bid>> {
    prop::collection::vec(bid(), 1..most).prop_map(|mut bids| {
        for (id, bid) in (0..).zip(&mut bids) {
            bid.job = JobId(id);
        }
        bids
    })
}

/// The product of values over that of nothing, as a logarithm.
fn welfare(bids: &[Bid], taken: &[Option<usize>]) -> f64 {
    let gain = |(bid, taken): (&Bid, &Option<usize>)| {
        taken.map_or(0.0, |offer| (bid.rho_without_milli as f64 / bid.offers[offer].rho_milli as f64).ln())
    };
    bids.iter().zip(taken).map(gain).sum()
}

fn feasible(free: &Free, bids: &[Bid], taken: &[Option<usize>]) -> bool {
    let mut used: BTreeMap<NodeId, (u32, u64)> = BTreeMap::new();
    for (bid, offer) in
        bids.iter().zip(taken).filter_map(|(bid, taken)| taken.map(|at| (bid, &bid.offers[at])))
    {
        for (node, gpus) in &offer.parts {
            let row = used.entry(*node).or_default();
            *row = (row.0 + gpus, row.1 + bid.share.cpu_milli * u64::from(*gpus));
        }
    }
    used.iter().all(|(id, (gpus, cpu))| {
        free.nodes.iter().any(|node| node.node == *id && node.gpus.count() >= *gpus && node.cpu_milli >= *cpu)
    })
}

fn taken(bids: &[Bid], awards: &[Award]) -> Vec<Option<usize>> {
    let mut taken = vec![None; bids.len()];
    for award in awards {
        assert_eq!(taken[award.bid].replace(award.offer), None, "a bid is awarded once");
    }
    taken
}

/// The best of all ways to take offers.
fn brute(free: &Free, bids: &[Bid], taken: &mut Vec<Option<usize>>) -> f64 {
    if taken.len() == bids.len() {
        return if feasible(free, bids, taken) { welfare(bids, taken) } else { f64::MIN };
    }
    let offers = bids[taken.len()].offers.len();
    let mut best = f64::MIN;
    for choice in std::iter::once(None).chain((0..offers).map(Some)) {
        taken.push(choice);
        best = best.max(brute(free, bids, taken));
        taken.pop();
    }
    best
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// No GPU is granted twice and no payment exceeds the lease; alone, a bidder pays nothing.
    #[test]
    fn awards_fit_and_payments_are_parts(nodes in prop::collection::vec(0u8..9, 3), bids in bids(12)) {
        let free = free(&nodes);
        let awards = hold(&free, &bids);
        prop_assert!(feasible(&free, &bids, &taken(&bids, &awards)));
        prop_assert!(awards.iter().all(|award| (1..=1_000).contains(&award.kept_milli)), "{awards:?}");
        let alone = hold(&free, &bids[..1]);
        prop_assert!(alone.iter().all(|award| award.kept_milli == 1_000), "{alone:?}");
    }

    /// Up to six bidders, no other way to take offers has a larger product.
    #[test]
    fn small_auctions_are_best(nodes in prop::collection::vec(0u8..7, 3), bids in bids(6)) {
        let free = free(&nodes);
        let found = welfare(&bids, &taken(&bids, &hold(&free, &bids)));
        let best = brute(&free, &bids, &mut Vec::new());
        prop_assert!(found + 1e-4 >= best, "{found} found, {best} best");
    }

    /// Whoever reports values wrong by any factor gets the same for the same payment.
    #[test]
    fn a_wrong_scale_gains_nothing(nodes in prop::collection::vec(0u8..9, 3), bids in bids(6), liar in 0usize..6, factor in 1u64..50) {
        let free = free(&nodes);
        let liar = liar % bids.len();
        let mut lies = bids.clone();
        lies[liar].rho_without_milli *= factor;
        lies[liar].offers.iter_mut().for_each(|offer| offer.rho_milli *= factor);
        let of = |bids: &[Bid]| {
            let awards = hold(&free, bids);
            let worth = |award: &Award| {
                let bid = &bids[award.bid];
                (bid.rho_without_milli as f64 / bid.offers[award.offer].rho_milli as f64).ln()
            };
            awards.iter().find(|award| award.bid == liar).map(|award| (worth(award), award.kept_milli))
        };
        match (of(&bids), of(&lies)) {
            (None, None) => {}
            (Some((truth, kept)), Some((lie, kept_by_lie))) => {
                prop_assert!(lie <= truth + 1e-4 && kept_by_lie <= kept + 2, "{truth} {kept}, {lie} {kept_by_lie}");
            }
            // Where two ways are as good, rounding may choose the other.
            (Some((truth, _)), None) => prop_assert!(truth >= 0.0),
            (None, Some((lie, _))) => prop_assert!(lie <= 1e-3, "a loser wins by lying"),
        }
    }

    /// After a turn nobody waits who would fit, and each auction's trail is kept.
    #[test]
    fn nothing_idles(gangs in prop::collection::vec((1u32..6, 1u64..5_000_000), 1..30)) {
        let mut world = ClusterWorld::new();
        let mut policy = Choice::named("themis").unwrap().build();
        let node = |id| NodeSpec {
            node: NodeId(id), rack: 0, kind: 0, gpus: 4, slots: 1, cpu_milli: 0, memory: Bytes(0), gpu_memory: Bytes(0),
        };
        let mut events: Vec<Event> = (0..3).map(|id| Event::NodeAdded { spec: node(id) }).collect();
        for (id, (gpus, ms)) in (0..).zip(&gangs) {
            let spec = JobSpec {
                job: JobId(id), model: ModelId(0), arrival: Time::ZERO, gpus: *gpus, elastic: (*gpus, *gpus),
                solo: Span::from_ms(*ms), cpu_milli: 0, memory: Bytes(0), gpu: GpuNeed::default(),
                spread_milli: [1_000; Level::COUNT],
            };
            events.push(Event::JobArrived { spec });
        }
        let (mut now, mut auctions) = (Time::ZERO, 0);
        for _ in 0..6 {
            let taken = turn(&mut world, &mut *policy, now, &events);
            world.check();
            prop_assert!(taken.refused.is_empty(), "{:?}", taken.refused);
            events.clear();
            let free = world.free().gpus();
            prop_assert!(world.waiting().all(|job| job.spec.gpus > free), "{free} GPUs idle");
            for decision in &taken.accepted {
                if let Decision::Record { trail } = decision {
                    auctions += 1;
                    prop_assert_eq!(trail.auction, auctions);
                    prop_assert!(!trail.bidders.is_empty());
                }
            }
            match taken.wake {
                Some(wake) => now = wake,
                None => break,
            }
        }
        let asked: u32 = gangs.iter().map(|(gpus, _)| gpus).sum();
        prop_assert!(auctions > 0 || asked <= 12, "jobs wait, and no lease was auctioned");
    }
}
