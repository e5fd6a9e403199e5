//! Amounts, time, profiles and the generator.

use crate::{
    BatchProfile, Bytes, Class, GroupProfile, Profile, ProfileError, Rng, SegmentProfile, Share,
    ShareProfile, Span, SpatialProfile, SwitchProfile, Time,
};

fn profile(batches: &[(u32, &[u64])]) -> Profile {
    let segment = |name: &str| SegmentProfile {
        name: name.into(),
        flops: 1,
        weight_bytes: Bytes(4),
        activation_bytes: Bytes(8),
    };
    Profile {
        model: "m".into(),
        device: "cpu".into(),
        segments: vec![segment("a"), segment("b")],
        batches: batches
            .iter()
            .map(|(batch, ns)| BatchProfile {
                batch: *batch,
                segment_ns: ns.iter().map(|ns| Span::from_ns(*ns)).collect(),
            })
            .collect(),
        switch: None,
        spatial: None,
    }
}

#[test]
fn buckets_round_up_and_stop_at_the_largest() {
    let p = profile(&[(1, &[10, 20]), (4, &[30, 40])]);
    p.check().unwrap();
    let totals: Vec<u64> = [1, 2, 4, 9].iter().map(|rows| p.bucket(*rows).total().ns()).collect();
    assert_eq!(totals, [30, 70, 70, 70]);
    assert_eq!(p.bucket(2).longest_segment(), Span::from_ns(40));
}

#[test]
fn faulty_profiles_are_named() {
    assert_eq!(profile(&[]).check(), Err(ProfileError::Empty));
    assert_eq!(profile(&[(2, &[1, 1]), (2, &[1, 1])]).check(), Err(ProfileError::Order { batch: 2 }));
    assert_eq!(
        profile(&[(1, &[1])]).check(),
        Err(ProfileError::SegmentCount { batch: 1, found: 1, expected: 2 })
    );
    assert_eq!(profile(&[(1, &[0, 0])]).check(), Err(ProfileError::NoTime { batch: 1 }));
    let switch = |transfer_bytes_per_s: f64, groups: &[u32]| {
        let group = |first_segment: &u32| GroupProfile { first_segment: *first_segment, bytes: Bytes(4) };
        let switch = SwitchProfile {
            transfer_latency_ns: Span::from_us(8),
            transfer_bytes_per_s,
            launch_gap_ns: Span::from_us(3),
            weight_bytes: Bytes(8),
            arena_bytes: Bytes(64),
            groups: groups.iter().map(group).collect(),
        };
        Profile { switch: Some(switch), ..profile(&[(1, &[1, 1])]) }.check()
    };
    assert_eq!(switch(5e10, &[0, 1]), Ok(()));
    assert_eq!(switch(0.0, &[]), Err(ProfileError::Bandwidth));
    assert_eq!(switch(5e10, &[1, 1]), Err(ProfileError::Groups { first_segment: 1 }));
    assert_eq!(switch(5e10, &[0, 2]), Err(ProfileError::Groups { first_segment: 2 }));
}

#[test]
fn parts_of_a_device_are_ascending_and_without_holes() {
    let part = |units, last| {
        let buckets: [(u32, &[u64]); 2] = [(1, &[3, 3]), (last, &[9, 9])];
        ShareProfile { units, batches: profile(&buckets).batches }
    };
    let check = |shares: Vec<ShareProfile>| {
        let spatial = SpatialProfile { units: 16, shares };
        Profile { spatial: Some(spatial), ..profile(&[(1, &[1, 1]), (4, &[2, 2])]) }.check()
    };
    assert_eq!(check(vec![part(4, 4), part(8, 4)]), Ok(()));
    assert_eq!(check(vec![part(4, 5)]), Err(ProfileError::Hole { units: 4 }));
    assert_eq!(check(vec![part(16, 4)]), Err(ProfileError::Units { units: 16 }));
    assert_eq!(check(vec![part(8, 4), part(8, 4)]), Err(ProfileError::Units { units: 8 }));
}

#[test]
fn time_saturates_instead_of_wrapping() {
    assert_eq!(Time::from_ns(5).since(Time::from_ns(9)), Span::ZERO);
    assert_eq!(Time::FOREVER + Span::from_ms(1), Time::FOREVER);
    assert_eq!(Span::MAX * 2, Span::MAX);
    assert_eq!(Span::from_ms(3).scale(1, 3), Span::from_ms(1));
    assert_eq!(Span::from_secs_f64(f64::NAN), Span::ZERO);
}

#[test]
fn amounts_read_well() {
    let shown = [
        Bytes(512).to_string(),
        Bytes(3 << 20).to_string(),
        Span::from_us(1_500).to_string(),
        Share::of(1, 3).unwrap().to_string(),
        Class::new(3).unwrap().promoted(9).to_string(),
    ];
    assert_eq!(shown, ["512 B", "3.0 MiB", "1.50 ms", "33.3 %", "class 1"]);
    assert_eq!(Share::of(2, 1), None);
    assert_eq!(Class::new(0), None);
}

#[test]
fn the_generator_is_the_same_everywhere() {
    let mut rng = Rng::new(42);
    assert_eq!([rng.next_u64(), rng.next_u64()], [13_679_457_532_755_275_413, 2_949_826_092_126_892_291]);
    let mean = (0..100_000).map(|_| rng.exponential()).sum::<f64>() / 1e5;
    assert!((mean - 1.0).abs() < 0.02, "{mean}");
    assert!((0..1_000).all(|_| rng.below(7) < 7));
}
