//! Placements on machines against every placement, scored by the judge.

use crate::operators::{Operator, OperatorGraph};
use crate::place::{
    Communication, DeviceFault, Devices, Group, Limits, Part, PlaceError, Placement, judge, place,
    place_islands,
};
use expect_test::expect;
use proptest::prelude::*;

fn graph(times: &[(u32, u32, u64)], edges: &[(usize, usize)]) -> OperatorGraph {
    let id = |place: usize| u64::try_from(place).unwrap();
    let operator = |(place, &(accelerator, transfer, bytes)): (usize, &(u32, u32, u64))| Operator {
        id: id(place),
        name: String::new(),
        accelerator_ms: Some(f64::from(accelerator)),
        cpu_ms: Some(f64::from(accelerator) * 4.0),
        resident_bytes: bytes,
        parameter_bytes: None,
        output_bytes: None,
        transfer_ms: f64::from(transfer),
        color: None,
        backward: false,
    };
    let edges: Vec<(u64, u64)> = edges.iter().map(|&(source, target)| (id(source), id(target))).collect();
    OperatorGraph::new(times.iter().enumerate().map(operator).collect(), &edges).unwrap()
}

/// The least value of all placements of operators on devices, those whose order is `kept` only: contiguous on devices, and,
/// when `kept`, on machines.
fn brute_force(
    graph: &OperatorGraph,
    devices: &Devices,
    communication: Communication,
    kept: bool,
) -> Option<f64> {
    let each = |(number, group): (usize, &Group)| std::iter::repeat_n(number, group.count);
    let seats: Vec<usize> = devices.groups.iter().enumerate().flat_map(each).collect();
    let count = graph.operators().len();
    let mut least: Option<f64> = None;
    for code in 0..seats.len().pow(u32::try_from(count).unwrap()) {
        let seat = |place: usize| code / seats.len().pow(u32::try_from(place).unwrap()) % seats.len();
        let machine = |place: usize| devices.groups[seats[seat(place)]].machine;
        let runs = |name: &dyn Fn(usize) -> usize| {
            let changes = (1..count).filter(|&place| name(place) != name(place - 1)).count();
            let mut names: Vec<usize> = (0..count).map(name).collect();
            names.sort_unstable();
            names.dedup();
            changes + 1 == names.len()
        };
        if kept && !(runs(&seat) && runs(&machine)) {
            continue;
        }
        let part = |&group: &usize| Part { group, replicas: 1, operators: Vec::new() };
        let mut parts: Vec<Part> = seats.iter().map(part).collect();
        for place in 0..count {
            parts[seat(place)].operators.push(place);
        }
        parts.retain(|part| !part.operators.is_empty());
        let verdict = judge(graph, devices, communication, &Placement { parts });
        if verdict.faults.is_empty() && verdict.acyclic {
            least = Some(least.map_or(verdict.value_ms, |least| least.min(verdict.value_ms)));
        }
    }
    least
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn placements_on_machines_are_the_best_of_their_order_and_their_bounds_hold(
        times in prop::collection::vec((1u32..8, 0u32..6, 0u64..5), 1..=5),
        wanted in prop::collection::vec(any::<bool>(), 25),
        chained in any::<bool>(),
        overlapped in any::<bool>(),
        memory_bytes in 5u64..20,
        across in prop::sample::select(vec![0.125, 0.5, 2.0]),
        cpus in 0usize..2,
    ) {
        let count = times.len();
        let pairs = (0..count).flat_map(|target| (0..target).map(move |source| (source, target)));
        let edges: Vec<(usize, usize)> = pairs
            .filter(|&(source, target)| wanted[source * 5 + target] || (chained && source + 1 == target))
            .collect();
        let graph = graph(&times, &edges);
        let communication = if overlapped { Communication::Overlapped } else { Communication::Serial };
        let devices = Devices::uniform(2, cpus, memory_bytes).on_machines(2, across);
        match place(&graph, &devices, communication, Limits::default()) {
            Ok((placement, report)) => {
                let verdict = judge(&graph, &devices, communication, &placement);
                prop_assert_eq!(&verdict.faults, &[]);
                prop_assert!(verdict.contiguous());
                prop_assert!((verdict.value_ms - report.value_ms).abs() < 1e-9);
                // With an edge between neighbours there is one order only, and that is searched whole.
                if chained {
                    let least = brute_force(&graph, &devices, communication, true).unwrap();
                    prop_assert!((report.value_ms - least).abs() < 1e-9, "{} is not {least}", report.value_ms);
                }
                if count < 5 || cpus == 0 {
                    let least = brute_force(&graph, &devices, communication, false).unwrap();
                    prop_assert!(report.lower_ms <= least + 1e-9 && least <= report.value_ms + 1e-9);
                    prop_assert!(!report.proved || report.value_ms <= least + 1e-9);
                }
            }
            Err(PlaceError::Infeasible(_)) => {
                prop_assert_eq!(brute_force(&graph, &devices, communication, true), None);
            }
            Err(PlaceError::NoneFound) => {
                prop_assert!(!chained || brute_force(&graph, &devices, communication, true).is_none());
            }
            Err(error) => prop_assert!(false, "{error}"),
        }
    }
}

/// Two machines of two accelerators, a chain of four, whose middle output is large.
#[test]
fn a_slow_link_keeps_a_chain_in_one_machine() {
    let graph = graph(&[(4, 1, 0), (4, 3, 0), (4, 1, 0), (4, 0, 0)], &[(0, 1), (1, 2), (2, 3)]);
    let mut lines = Vec::new();
    for across in [1.0, 0.5, 0.125] {
        let devices = Devices::uniform(2, 0, 100).on_machines(2, across);
        let (placement, report) = place(&graph, &devices, Communication::Serial, Limits::default()).unwrap();
        let parts: Vec<String> = placement
            .parts
            .iter()
            .map(|part| format!("{:?} in machine {}", part.operators, devices.groups[part.group].machine))
            .collect();
        lines.push(format!(
            "{across}: {} ms, at least {}, {}: {}",
            report.value_ms,
            report.lower_ms,
            report.proved,
            parts.join(", ")
        ));
    }
    expect![[r#"
        1: 8 ms, at least 8, true: [0] in machine 1, [1] in machine 1, [2] in machine 0, [3] in machine 0
        0.5: 11 ms, at least 8, false: [0, 1] in machine 1, [2, 3] in machine 1
        0.125: 11 ms, at least 8, false: [0, 1] in machine 1, [2, 3] in machine 1"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn what_is_planned_with_one_link_says_so() {
    let graph = graph(&[(4, 1, 0), (4, 3, 0)], &[(0, 1)]);
    let mut devices = Devices::uniform(2, 0, 100).on_machines(2, 0.5);
    let islands = place_islands(&graph, &devices, Communication::Serial, Limits::default(), (0, 1));
    assert_eq!(islands.unwrap_err(), PlaceError::Devices(vec![DeviceFault::OneLink]));
    devices.exchange_bytes_per_second = Some(1.0);
    devices.groups[2].across = 0.0;
    let error = place(&graph, &devices, Communication::Serial, Limits::default()).unwrap_err();
    expect![[r#"
        group 2 has speed across machines 0; it is a positive number
        parts are not replicated over machines with links of their own; leave out the exchange speed, or plan a pipeline"#]].assert_eq(&error.to_string());
}
