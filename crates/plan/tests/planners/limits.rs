//! What is said when nothing fits, and what is answered when a graph is too large to be searched whole.

use expect_test::{Expect, expect};
use plan::{Communication, Devices, Limits, Operator, OperatorGraph, PlaceError, judge, place};

/// Operators in a row, a millisecond and so many bytes each.
fn chain(length: u64, bytes: u64) -> OperatorGraph {
    let operator = |id| Operator {
        id,
        name: String::new(),
        accelerator_ms: Some(1.0),
        cpu_ms: Some(50.0),
        resident_bytes: bytes,
        parameter_bytes: None,
        output_bytes: None,
        transfer_ms: 0.5,
        color: None,
        backward: false,
    };
    let edges: Vec<(u64, u64)> = (1..length).map(|id| (id - 1, id)).collect();
    OperatorGraph::new((0..length).map(operator).collect(), &edges).unwrap()
}

fn check(graph: &OperatorGraph, (accelerators, cpus, memory_bytes): (usize, usize, u64), expected: &Expect) {
    let devices = Devices { accelerators, cpus, memory_bytes };
    let text = match place(graph, devices, Communication::Serial, Limits::default()) {
        Ok((placement, report)) => {
            assert_eq!(judge(graph, devices, Communication::Serial, &placement).faults, []);
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
        &expect!["7 parts, 16684.5 ms, at least 14285.7 ms, unproved, Compute { part: 0 }"],
    );
}

#[test]
fn limits_that_allow_nothing_find_nothing() {
    let devices = Devices { accelerators: 2, cpus: 0, memory_bytes: 1 << 30 };
    let none = Limits { pairs_max: 0, ..Limits::default() };
    let outcome = place(&chain(40, 1), devices, Communication::Serial, none);
    assert_eq!(outcome, Err(PlaceError::NoneFound));
}
