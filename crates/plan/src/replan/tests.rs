//! Changes of a running plan, and matching against every permutation.

use super::*;
use crate::operators::Operator;
use expect_test::{Expect, expect};
use proptest::prelude::*;

/// Operators in a row, a millisecond and ten bytes each, with cheap transfers.
fn chain(length: u64) -> OperatorGraph {
    let operator = |id| Operator {
        id,
        name: String::new(),
        accelerator_ms: Some(1.0),
        cpu_ms: Some(100.0),
        resident_bytes: 10,
        parameter_bytes: None,
        output_bytes: None,
        transfer_ms: 0.01,
        color: None,
        backward: false,
    };
    let edges: Vec<(u64, u64)> = (1..length).map(|id| (id - 1, id)).collect();
    OperatorGraph::new((0..length).map(operator).collect(), &edges).unwrap()
}

fn told(changes: &[(usize, Change)], samples: f64) -> String {
    let graph = chain(12);
    let devices = Devices::uniform(3, 0, 100);
    let (running, _) = place(&graph, &devices, Communication::Serial, Limits::default()).unwrap();
    let moving = Moving { bytes_per_second: 1e4, samples };
    let ways =
        replan(&graph, (&devices, &running), changes, Communication::Serial, moving, Limits::default());
    let ways = match ways {
        Ok(ways) => ways,
        Err(error) => return error.to_string(),
    };
    let mut lines = Vec::new();
    for way in ways {
        assert_eq!(judge(&graph, &way.devices, Communication::Serial, &way.placement).faults, []);
        let parts: Vec<String> = way
            .placement
            .parts
            .iter()
            .zip(&way.device_of)
            .map(|(part, devices)| format!("{}@{devices:?}", part.operators.len()))
            .collect();
        lines.push(format!(
            "{:?}: {:.2} ms a sample, proved {}, moves {} bytes in {} ms, {:.1} ms in all: {}",
            way.how,
            way.value_ms,
            way.proved,
            way.moved_bytes,
            way.moving_ms,
            way.total_ms,
            parts.join(" ")
        ));
    }
    lines.join("\n")
}

fn check(changes: &[(usize, Change)], samples: f64, expected: &Expect) {
    expected.assert_eq(&told(changes, samples));
}

#[test]
fn a_slower_device_is_given_less_when_that_pays() {
    check(
        &[(1, Change::Speed(0.5))],
        100.0,
        &expect![[r#"
        Shift: 5.01 ms a sample, proved true, moves 20 bytes in 1 ms, 502.0 ms in all: 5@[0] 2@[1] 5@[2]
        Anew: 5.01 ms a sample, proved true, moves 20 bytes in 1 ms, 502.0 ms in all: 5@[0] 2@[1] 5@[2]
        Keep: 8.02 ms a sample, proved false, moves 0 bytes in 0 ms, 802.0 ms in all: 4@[0] 4@[1] 4@[2]"#]],
    );
    check(
        &[(1, Change::Speed(0.5))],
        0.1,
        &expect![[r#"
            Keep: 8.02 ms a sample, proved false, moves 0 bytes in 0 ms, 0.8 ms in all: 4@[0] 4@[1] 4@[2]
            Shift: 5.01 ms a sample, proved true, moves 20 bytes in 1 ms, 1.5 ms in all: 5@[0] 2@[1] 5@[2]
            Anew: 5.01 ms a sample, proved true, moves 20 bytes in 1 ms, 1.5 ms in all: 5@[0] 2@[1] 5@[2]"#]],
    );
}

#[test]
fn what_was_on_a_lost_device_moves() {
    check(
        &[(0, Change::Lost)],
        100.0,
        &expect![[r#"
        Shift: 6.01 ms a sample, proved true, moves 60 bytes in 4 ms, 605.0 ms in all: 6@[1] 6@[2]
        Anew: 6.01 ms a sample, proved true, moves 60 bytes in 4 ms, 605.0 ms in all: 6@[1] 6@[2]"#]],
    );
    check(
        &[(2, Change::Memory(20))],
        100.0,
        &expect![[r#"
        Shift: 5.01 ms a sample, proved true, moves 70 bytes in 4 ms, 505.0 ms in all: 5@[0] 2@[2] 5@[1]
        Anew: 5.01 ms a sample, proved true, moves 70 bytes in 4 ms, 505.0 ms in all: 5@[0] 2@[2] 5@[1]"#]],
    );
    check(
        &[(0, Change::Added(Group::accelerators(1, 100)))],
        100.0,
        &expect![[r#"
        Shift: 3.02 ms a sample, proved true, moves 40 bytes in 3 ms, 305.0 ms in all: 3@[0] 3@[1] 3@[3] 3@[2]
        Anew: 3.02 ms a sample, proved true, moves 40 bytes in 3 ms, 305.0 ms in all: 3@[0] 3@[1] 3@[3] 3@[2]
        Keep: 4.02 ms a sample, proved false, moves 0 bytes in 0 ms, 402.0 ms in all: 4@[0] 4@[1] 4@[2]"#]],
    );
}

#[test]
fn changes_that_cannot_be_are_told() {
    check(
        &[(7, Change::Lost), (0, Change::Lost), (0, Change::Lost), (1, Change::Speed(0.0))],
        1.0,
        &expect![[r#"
            there is no device 7, only 3
            device 0 is lost already
            device 1 cannot have speed 0; say that it is lost"#]],
    );
    check(
        &[(0, Change::Lost), (1, Change::Lost)],
        1.0,
        &expect!["120 bytes must be on accelerators, which hold 100; use more of them"],
    );
    check(&[], 0.0, &expect!["moving 10000 bytes a second for 0 samples; both are positive numbers"]);
}

proptest! {
    #[test]
    fn no_matching_keeps_more(
        (seats, devices, gains) in (1usize..5).prop_flat_map(|devices| {
            (1..=devices, Just(devices), prop::collection::vec(0u64..20, devices * devices))
        })
    ) {
        let found = matching::best(seats, devices, |seat, device| gains[seat * devices + device]);
        let mut once = found.clone();
        once.sort_unstable();
        once.dedup();
        prop_assert_eq!(once.len(), seats);
        let gain = |of: &[usize]| -> u64 {
            of.iter().enumerate().map(|(seat, device)| gains[seat * devices + device]).sum()
        };
        for code in 0..devices.pow(u32::try_from(seats).unwrap()) {
            let other: Vec<usize> =
                (0..seats).map(|seat| code / devices.pow(u32::try_from(seat).unwrap()) % devices).collect();
            let mut distinct = other.clone();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert!(distinct.len() < seats || gain(&other) <= gain(&found));
        }
    }
}
