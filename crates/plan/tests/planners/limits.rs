//! What is said when nothing fits, and what is answered when a graph is too large to be searched whole.

use expect_test::{Expect, expect};
use plan::pipeline::{Discipline, Level, Pipeline, Stage, judge_pipeline, plan_pipeline};
use plan::{
    Communication, Devices, Limits, Operator, OperatorGraph, Part, PlaceError, Placement, judge, place,
};

/// Operators in a row, a millisecond and so many bytes each.
fn chain(length: u64, bytes: u64) -> OperatorGraph {
    let operator = |id| Operator {
        id,
        name: String::new(),
        accelerator_ms: Some(1.0),
        cpu_ms: Some(50.0),
        resident_bytes: bytes,
        parameter_bytes: Some(bytes),
        output_bytes: Some(bytes),
        transfer_ms: 0.5,
        color: None,
        backward: false,
    };
    let edges: Vec<(u64, u64)> = (1..length).map(|id| (id - 1, id)).collect();
    OperatorGraph::new((0..length).map(operator).collect(), &edges).unwrap()
}

fn check(graph: &OperatorGraph, (accelerators, cpus, memory_bytes): (usize, usize, u64), expected: &Expect) {
    let devices = Devices::uniform(accelerators, cpus, memory_bytes);
    let text = match place(graph, &devices, Communication::Serial, Limits::default()) {
        Ok((placement, report)) => {
            assert_eq!(judge(graph, &devices, Communication::Serial, &placement).faults, []);
            let proof = if report.proved { "proved" } else { "unproved" };
            format!(
                "{} parts, {} ms, at least {:.1} ms, {proof}, {:?}",
                placement.parts.len(),
                report.value_ms,
                report.lower_ms,
                report.binding
            )
        }
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&text);
}

#[test]
fn what_fits_nowhere_is_explained() {
    check(&chain(3, 10), (0, 0, 10), &expect!["there is no device; ask for an accelerator or a cpu"]);
    check(
        &chain(3, 10),
        (3, 0, 9),
        &expect![[r#"
            operator 0 keeps 10 bytes and fits no device; use a larger one or a cpu
            operator 1 keeps 10 bytes and fits no device; use a larger one or a cpu
            operator 2 keeps 10 bytes and fits no device; use a larger one or a cpu
            30 bytes must be on accelerators, which hold 27; use more of them"#]],
    );
    check(
        &chain(3, 10),
        (1, 0, 29),
        &expect!["30 bytes must be on accelerators, which hold 29; use more of them"],
    );
    check(
        &chain(3, 10),
        (2, 0, 15),
        &expect!["no contiguous split fits the accelerators' memory; use more or larger ones, or a cpu"],
    );
    check(
        &chain(3, 10),
        (2, 1, 15),
        &expect!["3 parts, 50 ms, at least 50.0 ms, proved, Compute { part: 0 }"],
    );
    check(&chain(3, 10), (9, 0, 30), &expect!["3 parts, 2 ms, at least 2.0 ms, proved, Compute { part: 1 }"]);
}

#[test]
fn memory_lost_to_whole_units_is_explained() {
    check(
        &chain(3, 10),
        (2, 0, 19),
        &expect!["no contiguous split fits the accelerators' memory; use more or larger ones, or a cpu"],
    );
    check(
        &chain(5, 10),
        (2, 0, 29),
        &expect!["no contiguous split fits the accelerators' memory; use more or larger ones, or a cpu"],
    );
}

#[test]
fn a_long_chain_is_answered_in_blocks() {
    check(
        &chain(100_000, 10),
        (6, 1, 1 << 30),
        &expect!["7 parts, 16684.5 ms, at least 16611.3 ms, unproved, Compute { part: 0 }"],
    );
}

#[test]
fn limits_that_allow_nothing_find_nothing() {
    let devices = Devices::uniform(2, 0, 1 << 30);
    let none = Limits { pairs_max: 0, ..Limits::default() };
    let outcome = place(&chain(40, 1), &devices, Communication::Serial, none);
    assert_eq!(outcome, Err(PlaceError::NoneFound));
}

fn lines(faults: &[impl ToString]) -> String {
    let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

#[test]
fn the_judge_names_every_fault_of_a_placement() {
    let part = |group, operators: &[usize]| Part { group, replicas: 1, operators: operators.to_vec() };
    let parts = vec![part(0, &[0, 2]), part(0, &[1, 2]), part(1, &[]), part(0, &[9])];
    let devices = Devices::uniform(2, 0, 15);
    let verdict = judge(&chain(4, 10), &devices, Communication::Serial, &Placement { parts });
    expect![[r#"
        part 2 is empty; leave the device out
        part 3 names operator place 9, the graph has fewer
        operator 2 is placed 2 times, not once
        operator 3 is placed 0 times, not once
        3 devices of group 0 are used, there are 2
        1 devices of group 1 are used, there are 0
        part 0 keeps 20 bytes, its device has 15
        part 1 keeps 20 bytes, its device has 15"#]]
    .assert_eq(&lines(&verdict.faults));

    let islands = Placement { parts: vec![part(0, &[0, 2]), part(0, &[1, 3])] };
    let devices = Devices::uniform(2, 0, 20);
    let verdict = judge(&chain(4, 10), &devices, Communication::Serial, &islands);
    assert_eq!(verdict.faults, []);
    assert!(!verdict.acyclic && verdict.parts.iter().all(|part| !part.contiguous));
}

#[test]
fn the_judge_names_every_fault_of_a_pipeline() {
    let graph = chain(4, 10);
    let levels = [Level { machines: 2, bytes_per_second: 1e3 }];
    let stage = |layers: &[usize], replicas| Stage {
        layers: layers.to_vec(),
        replicas: vec![replicas],
        within: Vec::new(),
    };
    let faults = |stages| {
        let pipeline = Pipeline { stages, seconds: 0.0, cuts: 0 };
        lines(&judge_pipeline(&graph, &levels, Some(40), Discipline::Stashing, &pipeline).unwrap().faults)
    };
    expect![[r#"
        operator 1 is in 2 stages, not in one
        operator 1 feeds 2 in an earlier stage
        operator 3 is in 0 stages, not in one
        3 members of level 0 are used together, there are 2
        stage 0 keeps more than its devices have
        stage 1 keeps more than its devices have"#]]
    .assert_eq(&faults(vec![stage(&[2], 2), stage(&[1, 0, 1], 1)]));
    expect![[r#"
        stage 0 is empty; leave it out
        stage 1 does not name a replica count and an enclosing stage for each of 1 levels"#]]
    .assert_eq(&faults(vec![stage(&[], 1), stage(&[0], 0)]));
}

#[test]
fn a_pipeline_of_too_many_layers_is_refused() {
    let levels = [Level { machines: 2, bytes_per_second: 1e3 }];
    let error = plan_pipeline(&chain(5_000, 1), &levels, None, Discipline::Stashing, &|| false).unwrap_err();
    expect!["the graph has 5000 layers, at most 4000 are planned; group them first"]
        .assert_eq(&error.to_string());
    let many = [Level { machines: 100, bytes_per_second: 1e3 }];
    let error = plan_pipeline(&chain(5, 1), &many, None, Discipline::Stashing, &|| false).unwrap_err();
    expect!["100 members on one level are too many, at most 64 are planned"].assert_eq(&error.to_string());
}
