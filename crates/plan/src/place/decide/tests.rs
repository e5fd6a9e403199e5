//! Decisions against the search for values, which is tested by brute force.

use super::*;
use crate::operators::{Operator, OperatorGraph};
use crate::place::search::Search;
use crate::place::{Group, Limits};
use proptest::prelude::*;

fn graph(times: &[(u32, u32, u64)], wanted: &[bool]) -> OperatorGraph {
    let operator = |(id, &(accelerator, transfer, bytes)): (u64, &(u32, u32, u64))| Operator {
        id,
        name: String::new(),
        // A unit that accelerators cannot run, now and then.
        accelerator_ms: (accelerator < 9).then(|| f64::from(accelerator)),
        cpu_ms: Some(f64::from(accelerator) * 2.0),
        resident_bytes: bytes,
        parameter_bytes: None,
        output_bytes: None,
        transfer_ms: f64::from(transfer) / 3.0,
        color: None,
        backward: false,
    };
    let operators: Vec<Operator> = (0u64..).zip(times).map(operator).collect();
    let mut edges = Vec::new();
    for target in 0..times.len() {
        for source in 0..target {
            if wanted[source * times.len() + target] {
                edges.push((operators[source].id, operators[target].id));
            }
        }
    }
    OperatorGraph::new(operators, &edges).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_value_is_beaten_exactly_when_the_search_beats_it(
        times in prop::collection::vec((1u32..10, 0u32..4, 0u64..5), 1..=9),
        wanted in prop::collection::vec(prop::bool::weighted(0.3), 81),
        overlapped in any::<bool>(),
        memory_bytes in 6u64..20,
        (accelerators, cpus, slow) in (0usize..4, 0usize..2, 0usize..2),
        known_max in prop::sample::select(vec![0, 3, 512]),
        factor in prop::sample::select(vec![0.8, 1.0, 1.0 + 1e-6, 1.3]),
    ) {
        let graph = graph(&times, &wanted);
        let mut devices = Devices::uniform(accelerators, cpus, memory_bytes);
        let slow = slow.max(1 - (accelerators + cpus).min(1));
        devices.groups.push(Group { speed: 0.5, link: 2.0, ..Group::accelerators(slow, memory_bytes) });
        let communication = if overlapped { Communication::Overlapped } else { Communication::Serial };
        let problem = Problem::new(&graph, &devices);
        let limits = Limits::default();
        let lattice = Lattice::of_ideals(&problem, &devices, limits).unwrap();
        let mut budget = Budget::new(limits);
        let found = Search::new(&problem, &lattice, &devices, communication, f64::INFINITY, 0.0).run(&mut budget);
        prop_assert!(found.complete);
        let least = found.split.as_ref().map_or(f64::INFINITY, |split| split.value);
        let upper = if least.is_finite() { least * factor } else { 100.0 };
        match decide_by(&problem, &lattice, (&devices, communication), (upper, known_max), &mut budget) {
            Decision::None => prop_assert!(least >= upper * (1.0 - 1e-9), "{least} is below {upper}"),
            Decision::Better(split) => {
                prop_assert!(least <= split.value * (1.0 + 1e-9) && split.value < upper);
                let placement = problem.placement(&split);
                let verdict = crate::judge(&graph, &devices, communication, &placement);
                prop_assert_eq!(&verdict.faults, &[]);
                prop_assert!(verdict.contiguous() && (verdict.value_ms - split.value).abs() < 1e-9);
            }
            Decision::Open => prop_assert!(false, "nothing is left open here"),
        }
    }
}
