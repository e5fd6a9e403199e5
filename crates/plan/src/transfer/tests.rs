//! Groupings against every possible one, and the sizes the search is bounded for.

use super::*;
use expect_test::expect;
use proptest::prelude::*;

fn link(latency_us: u64, bytes_per_us: f64) -> Link {
    Link::new(Span::from_us(latency_us), bytes_per_us * 1e6).unwrap()
}

fn layer(bytes: u64, compute_us: u64) -> LayerCost {
    LayerCost { weight_bytes: Bytes(bytes), compute: Span::from_us(compute_us) }
}

/// Every grouping, timed by stepping through its groups: the earliest finish.
fn brute_force(layers: &[LayerCost], link: Link, gap: Span) -> Span {
    let cuts = 1u32 << (layers.len() - 1);
    let timed = |mask: u32| {
        let (mut sent, mut transfers, mut carried) = (Bytes(0), 0, false);
        let (mut computed, mut pending) = (Span::ZERO, Span::ZERO);
        for (place, layer) in layers.iter().enumerate() {
            carried |= layer.weight_bytes.0 > 0;
            sent += layer.weight_bytes;
            pending += layer.compute;
            if place + 1 == layers.len() || mask & (1 << place) != 0 {
                transfers += u64::from(carried);
                let there = if transfers > 0 { link.arrival(sent, transfers) } else { Span::ZERO };
                computed = computed.max(there) + gap + pending;
                (carried, pending) = (false, Span::ZERO);
            }
        }
        computed
    };
    (0..cuts).map(timed).min().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn no_grouping_beats_the_one_found(
        layers in prop::collection::vec((0u64..2_000, 0u64..60), 1..=9),
        latency_us in 0u64..40,
        gap_us in 0u64..20,
        bytes_per_us in 10.0f64..400.0,
    ) {
        // A third of the layers, as of real networks, have no weights.
        let layers: Vec<LayerCost> =
            layers.into_iter().map(|(bytes, us)| layer(bytes.saturating_sub(600), us)).collect();
        let (link, gap) = (link(latency_us, bytes_per_us), Span::from_us(gap_us));
        let found = group(&layers, link, gap);
        prop_assert_eq!(found.finish, brute_force(&layers, link, gap), "{:?}", found);
        prop_assert_eq!(finish(&layers, &found.ends, link, gap), Ok(found.finish));
        prop_assert!(found.optimal && found.lower_bound <= found.finish);
        for other in [per_layer(&layers, link, gap), whole(&layers, link, gap)] {
            prop_assert!(other.finish >= found.finish);
            prop_assert!(!other.optimal || other.finish == found.finish);
            let apart = finish_unpipelined(&layers, &other.ends, link, Span::ZERO).unwrap();
            prop_assert!(apart + gap * other.ends.len() as u64 >= other.finish);
        }
        // Fewer cells than the whole search needs: still a grouping, never claimed better than it is.
        let short = group_within(&layers, link, gap, 2 * (layers.len() + 1));
        prop_assert!(short.finish >= found.finish && (!short.optimal || short.finish == found.finish));
    }
}

#[test]
fn groups_grow_while_computing_hides_the_link() {
    // 16 layers of 4 MB and 160 µs over a link of 50 GB/s: 80 µs a layer, and 20 µs for each transfer.
    let layers = vec![layer(4_000_000, 160); 16];
    let (link, gap) = (link(20, 50_000.0), Span::from_us(15));
    let best = group(&layers, link, gap);
    let rows = [
        ("best", best.clone()),
        ("per layer", per_layer(&layers, link, gap)),
        ("whole", whole(&layers, link, gap)),
    ];
    let mut text = String::new();
    for (name, grouping) in rows {
        let apart = finish_unpipelined(&layers, &grouping.ends, link, gap).unwrap();
        let Grouping { ends, finish, .. } = grouping;
        text += &format!("{name:<9} {finish} ({apart} without a pipeline): {ends:?}\n");
    }
    text += &format!("bound     {}\n", best.lower_bound);
    expect![[r#"
        best      2.73 ms (3.96 ms without a pipeline): [1, 2, 4, 8, 16]
        per layer 2.90 ms (4.17 ms without a pipeline): [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
        whole     3.88 ms (3.88 ms without a pipeline): [16]
        bound     2.67 ms
    "#]]
    .assert_eq(&text);
}

#[test]
fn ten_thousand_layers_stay_within_the_table() {
    let mut rng = vocab::Rng::new(7);
    let layers: Vec<LayerCost> = (0..10_000).map(|_| layer(1 + rng.below(200_000), rng.below(8))).collect();
    let grouping = group(&layers, link(9, 50_000.0), Span::from_us(3));
    assert!(grouping.optimal, "{} groups, the search stopped early", grouping.ends.len());
    assert!(grouping.finish.ns() < grouping.lower_bound.scale(105, 100).ns(), "{grouping:?}");
    // Free transfers make every number of groups worth a try; then the table ends the search.
    let free = group(&layers, link(0, 50_000.0), Span::ZERO);
    assert!(!free.optimal && free.ends.len() <= CELLS_MAX / 10_000);
    assert!(free.finish >= free.lower_bound);
}

#[test]
fn what_carries_nothing_costs_no_transfer() {
    let (link, gap) = (link(10, 100.0), Span::from_us(1));
    assert_eq!(group(&[], link, gap).ends, Vec::<usize>::new());
    let bare = group(&[layer(0, 5), layer(0, 7)], link, gap);
    assert_eq!((bare.ends, bare.finish), (vec![2], Span::from_us(13)));
    // The layers before the first weights compute while those travel: 10 + 20 µs.
    let late = group(&[layer(0, 25), layer(2_000, 4)], link, gap);
    assert_eq!((late.ends, late.finish, late.optimal), (vec![1, 2], Span::from_us(35), true));
}

#[test]
fn a_search_cut_short_proves_nothing_about_the_way_it_did_not_take() {
    // The layers before the first weights do best on their own, but only with more groups than the table allows.
    let layers = [layer(0, 23), layer(1, 45), layer(863, 25), layer(360, 0)];
    let (link, gap) = (link(24, 23.0683571448302), Span::from_us(5));
    let cut = group_within(&layers, link, gap, 2 * (layers.len() + 1));
    let best = group(&layers, link, gap);
    assert!(best.optimal && best.finish < cut.finish, "{best:?}, {cut:?}");
    assert!(!cut.optimal, "{cut:?}");
}

#[test]
fn faults_are_named() {
    let layers = [layer(1, 1), layer(1, 1)];
    let link = link(1, 1.0);
    let said = [
        finish(&layers, &[1], link, Span::ZERO).unwrap_err().to_string(),
        finish(&layers, &[1, 1, 2], link, Span::ZERO).unwrap_err().to_string(),
        finish(&layers, &[0, 2], link, Span::ZERO).unwrap_err().to_string(),
        finish_unpipelined(&layers, &[3], link, Span::ZERO).unwrap_err().to_string(),
        Link::new(Span::ZERO, f64::NAN).unwrap_err().to_string(),
        Link::new(Span::ZERO, -3.0).unwrap_err().to_string(),
    ];
    expect![[r#"
        the groups end at layer 1, there are 2 layers
        group 1 ends at layer 1, not after layer 1
        group 0 ends at layer 0, not after layer 0
        the groups end at layer 3, there are 2 layers
        a link of NaN bytes/s carries nothing; measure its bandwidth again
        a link of -3 bytes/s carries nothing; measure its bandwidth again"#]]
    .assert_eq(&said.join("\n"));
}
