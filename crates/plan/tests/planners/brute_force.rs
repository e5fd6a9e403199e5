//! Small random graphs against every possible placement, scored by the judge.

use plan::{
    Communication, Devices, Group, Limits, Operator, OperatorGraph, Part, PlaceError, Placement, judge, place,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Case {
    graph: OperatorGraph,
    devices: Devices,
    communication: Communication,
}

/// What a case is made of: times, memory, transfers and colours a layer, edges, and whether there is a backward pass;
/// accelerators of two speeds and sizes, a CPU, and perhaps replication.
fn cases() -> impl Strategy<Value = Case> {
    (1usize..=5, any::<bool>(), any::<bool>()).prop_flat_map(|(layers, training, overlapped)| {
        let layer = (0u32..8, 0u32..8, 0u64..6, 0u32..5, prop::option::weighted(0.4, 0i64..3), 0u32..10);
        (
            prop::collection::vec(layer, layers),
            prop::collection::vec(any::<bool>(), layers * layers),
            (0usize..=2, 0usize..=1, 3u64..20),
            prop::option::weighted(0.4, 3u64..20),
            prop::option::weighted(0.4, 1u32..4),
        )
            .prop_filter("devices", |(_, _, (accelerators, cpus, _), slow, _)| {
                accelerators + cpus > 0 || slow.is_some()
            })
            .prop_map(move |(layers, wanted, (accelerators, cpus, memory_bytes), slow, exchange)| {
                let graph = graph(&layers, &wanted, training);
                let communication =
                    if overlapped { Communication::Overlapped } else { Communication::Serial };
                let mut devices = Devices::uniform(accelerators, cpus, memory_bytes);
                if let Some(memory_bytes) = slow {
                    let group = Group { speed: 0.5, link: 0.25, ..Group::accelerators(1, memory_bytes) };
                    devices.groups.push(group);
                }
                // Milliseconds stay short in binary, so that every order of a sum gives the same digits.
                devices.exchange_bytes_per_second = exchange.map(|speed| f64::from(1 << speed) * 1e3);
                Case { graph, devices, communication }
            })
    })
}

type Layer = (u32, u32, u64, u32, Option<i64>, u32);

fn graph(layers: &[Layer], wanted: &[bool], training: bool) -> OperatorGraph {
    let count = layers.len();
    let mut operators = Vec::new();
    let mut edges = Vec::new();
    for (place, &(accelerator, cpu, bytes, transfer, color, support)) in layers.iter().enumerate() {
        let id = u64::try_from(place).unwrap();
        // Layers without a colour get one of their own, so that twins stay together.
        let color = color.or(Some(100 + i64::try_from(place).unwrap()));
        let forward = Operator {
            id,
            name: String::new(),
            accelerator_ms: (support != 0).then_some(f64::from(accelerator)),
            cpu_ms: (support != 1).then_some(f64::from(cpu) * 2.0),
            resident_bytes: bytes,
            parameter_bytes: None,
            output_bytes: None,
            transfer_ms: f64::from(transfer),
            color,
            backward: false,
        };
        if training {
            operators.push(Operator { id: id + 100, backward: true, ..forward.clone() });
            edges.push((id, id + 100));
        }
        operators.push(forward);
        for other in 0..place {
            if wanted[other * count + place] {
                let other = u64::try_from(other).unwrap();
                edges.push((other, id));
                if training {
                    edges.push((id + 100, other + 100));
                }
            }
        }
    }
    OperatorGraph::new(operators, &edges).unwrap()
}

/// Every way to use the devices: groups and replicas of parts, for all devices or fewer.
fn teams(devices: &Devices) -> Vec<Vec<(usize, usize)>> {
    let mut all = vec![Vec::new()];
    for (group, content) in devices.groups.iter().enumerate() {
        let most = if devices.exchange_bytes_per_second.is_some() { content.count } else { 1 };
        let mut ways = vec![Vec::new()];
        for _ in 0..content.count {
            for way in ways.clone() {
                let used: usize = way.iter().map(|(_, replicas)| replicas).sum();
                for replicas in 1..=most.min(content.count - used) {
                    ways.push([way.clone(), vec![(group, replicas)]].concat());
                }
            }
        }
        all = all
            .iter()
            .flat_map(|team| ways.iter().map(move |way| [team.clone(), way.clone()].concat()))
            .collect();
    }
    all.sort();
    all.dedup();
    all
}

/// The least value over all placements whose parts can be put in order, if there is one.
fn brute_force(case: &Case, contiguous: bool) -> Option<f64> {
    let layers = case.graph.operators().iter().filter(|operator| !operator.backward).count();
    let mut best: Option<f64> = None;
    for team in teams(&case.devices) {
        for code in 0..team.len().pow(u32::try_from(layers).unwrap()) {
            let part_of = |id: u64| code / team.len().pow(u32::try_from(id % 100).unwrap()) % team.len();
            let part = |&(group, replicas): &(usize, usize)| Part { group, replicas, operators: Vec::new() };
            let mut parts: Vec<Part> = team.iter().map(part).collect();
            for (place, operator) in case.graph.operators().iter().enumerate() {
                parts[part_of(operator.id)].operators.push(place);
            }
            parts.retain(|part| !part.operators.is_empty());
            let verdict = judge(&case.graph, &case.devices, case.communication, &Placement { parts });
            if verdict.faults.is_empty()
                && (verdict.acyclic || !contiguous)
                && best.is_none_or(|best| verdict.value_ms < best)
            {
                best = Some(verdict.value_ms);
            }
        }
    }
    best
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn placements_are_the_best_of_all(case in cases()) {
        let best = brute_force(&case, true);
        match place(&case.graph, &case.devices, case.communication, Limits::default()) {
            Ok((placement, report)) => {
                let verdict = judge(&case.graph, &case.devices, case.communication, &placement);
                prop_assert_eq!(&verdict.faults, &[]);
                prop_assert!(verdict.contiguous());
                prop_assert!(report.proved);
                let close = best.is_some_and(|best| (report.value_ms - best).abs() <= 1e-12 * best);
                prop_assert!(close, "{} {:?}", report.value_ms, best);
            }
            Err(PlaceError::Infeasible(_)) => prop_assert_eq!(best, None),
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn bounds_hold_when_only_orders_are_searched(case in cases()) {
        let few = Limits { bytes_max: 0, ..Limits::default() };
        if let Ok((placement, report)) = place(&case.graph, &case.devices, case.communication, few) {
            let verdict = judge(&case.graph, &case.devices, case.communication, &placement);
            prop_assert_eq!(&verdict.faults, &[]);
            prop_assert!(verdict.contiguous());
            let best = brute_force(&case, true).unwrap();
            prop_assert!(report.lower_ms <= best * (1.0 + 1e-12) && best <= report.value_ms * (1.0 + 1e-12));
            prop_assert!(!report.proved || report.value_ms <= best * (1.0 + 1e-12));
        }
    }
}
