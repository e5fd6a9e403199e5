//! Latency plans of small graphs against every plan, and what is said about impossible ones.

use super::*;
use crate::operators::Operator;
use expect_test::expect;
use proptest::prelude::*;

fn graph(times: &[(u32, u32, u32, u64)], wanted: &[bool]) -> OperatorGraph {
    let operator = |(id, &(accelerator, cpu, transfer, bytes)): (u64, &(u32, u32, u32, u64))| Operator {
        id,
        name: String::new(),
        accelerator_ms: Some(f64::from(accelerator)),
        cpu_ms: Some(f64::from(cpu)),
        resident_bytes: bytes,
        parameter_bytes: None,
        output_bytes: None,
        transfer_ms: f64::from(transfer),
        color: None,
        backward: false,
    };
    let operators: Vec<Operator> = (0u64..).zip(times).map(operator).collect();
    let mut edges = Vec::new();
    for target in 0..times.len() {
        for source in (0..target).filter(|source| wanted[source * times.len() + target]) {
            edges.push((operators[source].id, operators[target].id));
        }
    }
    OperatorGraph::new(operators, &edges).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn no_plan_is_faster(
        times in prop::collection::vec((1u32..8, 1u32..20, 0u32..3, 0u64..4), 1..=5),
        wanted in prop::collection::vec(any::<bool>(), 25),
        memory_bytes in 3u64..10,
        calls in 1usize..=2,
        cpus in 0usize..=1,
    ) {
        let graph = graph(&times, &wanted);
        let devices = Devices::uniform(2, cpus, memory_bytes);
        let runners = 2 * calls + 1;
        let mut least = f64::INFINITY;
        for code in 0..runners.pow(u32::try_from(times.len()).unwrap()) {
            let mut plan = LatencyPlan::default();
            let mut slots = vec![Vec::new(); 2 * calls];
            for place in 0..times.len() {
                match code / runners.pow(u32::try_from(place).unwrap()) % runners {
                    0 => plan.host.push(place),
                    slot => slots[slot - 1].push(place),
                }
            }
            let used = slots.into_iter().enumerate().filter(|(_, operators)| !operators.is_empty());
            plan.calls = used.map(|(slot, operators)| Call { device: slot / calls, operators }).collect();
            let verdict = judge_latency(&graph, &devices, calls, &plan);
            prop_assert_eq!(verdict.faults.is_empty(), verdict.value_ms.is_finite());
            least = least.min(verdict.value_ms);
        }
        match place_latency(&graph, &devices, calls, Limits::default(), (1, 2_000)) {
            Ok((plan, report)) => {
                prop_assert!((report.value_ms - least).abs() < 1e-9 && report.proved);
                prop_assert_eq!(judge_latency(&graph, &devices, calls, &plan).faults, []);
            }
            Err(_) => prop_assert!(least.is_infinite()),
        }
        // The search may miss the fastest plan, but neither makes an impossible one nor claims too much.
        let Ok(problem) = latency_problem(&graph, &devices) else { return Ok(()) };
        match searched(&graph, &devices, &problem, calls, Limits::default(), (1, 2_000)) {
            Ok((plan, report)) => {
                prop_assert_eq!(judge_latency(&graph, &devices, calls, &plan).faults, []);
                prop_assert!(report.lower_ms <= least + 1e-9 && report.value_ms >= least - 1e-9);
                prop_assert!(!report.proved || (report.value_ms - least).abs() < 1e-6 * least);
            }
            // Nothing is found when nothing fits, or where only packing on accelerators would.
            Err(_) => prop_assert!(least.is_infinite() || cpus == 0),
        }
    }
}

/// Four operators side by side, 2 ms on one of two accelerators and 10 ms on the host.
#[test]
fn accelerators_must_hold_and_do_what_the_host_is_too_slow_for() {
    let graph = graph(&[(2, 10, 0, 4); 4], &[false; 16]);
    let lines = [16, 8, 7, 4].map(|memory_bytes| {
        let devices = Devices::uniform(2, 1, memory_bytes);
        let problem = latency_problem(&graph, &devices).unwrap();
        let least = bound(&problem, &accelerators(&devices), host(&devices).as_ref());
        format!("{memory_bytes} bytes: at least {least:.6} ms")
    });
    expect![[r#"
        16 bytes: at least 4.000000 ms
        8 bytes: at least 4.000000 ms
        7 bytes: at least 10.000000 ms
        4 bytes: at least 10.000000 ms"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn the_judge_names_every_fault() {
    let graph = graph(&[(1, 1, 1, 4); 3], &[false, true, false, false, false, true, false, false, false]);
    let devices = Devices::uniform(2, 0, 7);
    let call = |device, operators: &[usize]| Call { device, operators: operators.to_vec() };
    let said = |host: &[usize], calls: Vec<Call>| {
        let plan = LatencyPlan { host: host.to_vec(), calls };
        let verdict = judge_latency(&graph, &devices, 1, &plan);
        let faults: Vec<String> = verdict.faults.iter().map(ToString::to_string).collect();
        format!("{} ms\n{}", verdict.value_ms, faults.join("\n"))
    };
    let lines = [
        said(&[0], vec![call(0, &[0, 1]), call(5, &[2])]),
        said(&[], vec![call(0, &[0]), call(0, &[1]), call(1, &[2])]),
    ];
    expect![[r#"
        inf ms
        operator 0 cannot run where it is placed
        call 1 is empty, or names an accelerator or operator that is not there
        operator 0 is run 2 times, not once
        operator 2 is run 0 times, not once
        accelerator 0 keeps 8 bytes, it has 7
        inf ms
        accelerator 0 runs 2 calls, at most 1 are allowed
        accelerator 0 keeps 8 bytes, it has 7"#]]
    .assert_eq(&lines.join("\n"));
    let devices = Devices::uniform(2, 0, 8);
    let plan = LatencyPlan { host: Vec::new(), calls: vec![call(0, &[0, 2]), call(1, &[1])] };
    let verdict = judge_latency(&graph, &devices, 1, &plan);
    assert_eq!(verdict.faults, [LatencyFault::Cycle]);
}

#[test]
fn what_cannot_be_planned_is_said() {
    let graph = graph(&[(1, 1, 1, 4)], &[false]);
    let error = place_latency(&graph, &Devices::uniform(1, 1, 8), 0, Limits::default(), (0, 1)).unwrap_err();
    expect!["0 calls an accelerator; give 1 to 16"].assert_eq(&error.to_string());
    let error = place_latency(&graph, &Devices::uniform(1, 0, 3), 1, Limits::default(), (0, 1)).unwrap_err();
    expect![[r#"
        operator 0 keeps 4 bytes and fits no device; use a larger one or a cpu
        4 bytes must be on accelerators, which hold 3; use more of them"#]]
    .assert_eq(&error.to_string());
}
