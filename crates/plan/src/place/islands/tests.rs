//! The mixed-integer program against the judge, on every assignment of small graphs.

use super::*;
use crate::operators::{Operator, OperatorGraph};
use crate::place::{Group, Part};
use expect_test::expect;
use proptest::prelude::*;

fn graph(times: &[(u32, u32, u64)], wanted: &[bool]) -> OperatorGraph {
    let operator = |(id, &(accelerator, transfer, bytes)): (u64, &(u32, u32, u64))| Operator {
        id,
        name: String::new(),
        accelerator_ms: Some(f64::from(accelerator)),
        cpu_ms: Some(f64::from(accelerator) * 3.0),
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
        for source in 0..target {
            if wanted[source * times.len() + target] {
                edges.push((operators[source].id, operators[target].id));
            }
        }
    }
    OperatorGraph::new(operators, &edges).unwrap()
}

/// Every row that `values` break.
fn broken(model: &Model, values: &std::collections::BTreeMap<String, f64>) -> usize {
    let holds = |row: &model::Row| {
        let sum: f64 = row.terms.iter().map(|(factor, name)| factor * values.get(name).unwrap_or(&0.0)).sum();
        match row.sense {
            "=" => (sum - row.right).abs() < 1e-9,
            ">=" => sum >= row.right - 1e-9,
            _ => sum <= row.right + 1e-9,
        }
    };
    model.rows().iter().filter(|row| !holds(row)).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn rows_hold_exactly_when_the_judge_agrees(
        times in prop::collection::vec((1u32..6, 0u32..4, 0u64..5), 1..=5),
        wanted in prop::collection::vec(any::<bool>(), 25),
        overlapped in any::<bool>(),
        memory_bytes in 4u64..12,
    ) {
        let graph = graph(&times, &wanted);
        let mut devices = Devices::uniform(2, 1, memory_bytes);
        devices.groups.push(Group { speed: 0.5, link: 2.0, ..Group::accelerators(1, memory_bytes) });
        let communication = if overlapped { Communication::Overlapped } else { Communication::Serial };
        let mut least: Option<f64> = None;
        let none = Report {
            value_ms: f64::INFINITY,
            lower_ms: 0.0,
            proved: false,
            binding: Binding::Unit,
            work: Work::default(),
        };
        let model = Model::new(&graph, &devices, communication, &none).unwrap();
        for code in 0..4usize.pow(u32::try_from(times.len()).unwrap()) {
            let mut parts: Vec<Part> =
                [0, 0, 1, 2].map(|group| Part { group, replicas: 1, operators: Vec::new() }).to_vec();
            for place in 0..times.len() {
                parts[code / 4usize.pow(u32::try_from(place).unwrap()) % 4].operators.push(place);
            }
            parts.retain(|part| !part.operators.is_empty());
            let placement = Placement { parts };
            let verdict = judge(&graph, &devices, communication, &placement);
            let values = model.start(&placement);
            prop_assert_eq!(broken(&model, &values) == 0, verdict.faults.is_empty());
            prop_assert!((values["L"] - verdict.value_ms).abs() < 1e-9);
            if verdict.faults.is_empty() {
                least = Some(least.map_or(verdict.value_ms, |least| least.min(verdict.value_ms)));
            }
        }
        match place_islands(&graph, &devices, communication, Limits::default(), (1, 20_000)) {
            Ok((placement, report)) => {
                let least = least.unwrap();
                let verdict = judge(&graph, &devices, communication, &placement);
                prop_assert_eq!(&verdict.faults, &[]);
                prop_assert!(report.proved, "a small graph is searched whole");
                prop_assert!((report.value_ms - least).abs() < 1e-9, "{} is not {least}", report.value_ms);
            }
            Err(PlaceError::Infeasible(_)) => prop_assert!(least.is_none(), "something fits"),
            Err(error) => prop_assert!(false, "{error}"),
        }
    }
}

/// Graphs whose least value the local search alone did not find within its moves.
#[test]
fn small_graphs_are_searched_whole() {
    let times = [(3, 3, 0), (4, 1, 0), (2, 1, 0), (3, 0, 0), (2, 0, 0)];
    let all: [&[(usize, usize)]; 3] = [
        &[(0, 2), (0, 3), (1, 3), (2, 3), (3, 4)],
        &[(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3), (3, 4)],
        &[(0, 2), (1, 2), (0, 3), (1, 3), (2, 3), (1, 4), (3, 4)],
    ];
    let mut devices = Devices::uniform(2, 1, 8);
    devices.groups.push(Group { speed: 0.5, link: 2.0, ..Group::accelerators(1, 8) });
    let lines = all.map(|edges| {
        let mut wanted = vec![false; 25];
        for (source, target) in edges {
            wanted[source * 5 + target] = true;
        }
        let graph = graph(&times, &wanted);
        let report =
            place_islands(&graph, &devices, Communication::Serial, Limits::default(), (1, 20_000)).unwrap().1;
        format!("{} of {}, {}", report.value_ms, report.lower_ms, report.proved)
    });
    expect![[r#"
        8 of 8, true
        8.5 of 8.5, true
        8 of 8, true"#]]
    .assert_eq(&lines.join("\n"));
}

/// A placement of a short chain on two accelerators as if little were known of it, and its model.
fn known(times: &[(u32, u32, u64)]) -> (OperatorGraph, (Placement, Report), Model) {
    let count = times.len();
    let wanted: Vec<bool> = (0..count * count).map(|pair| pair / count + 1 == pair % count).collect();
    let graph = graph(times, &wanted);
    let devices = Devices::uniform(2, 0, 10);
    let mut known =
        place_islands(&graph, &devices, Communication::Serial, Limits::default(), (1, 0)).unwrap();
    known.1 = Report { lower_ms: known.1.lower_ms.min(6.0), proved: false, ..known.1 };
    let model = Model::new(&graph, &devices, Communication::Serial, &known.1).unwrap();
    (graph, known, model)
}

#[test]
fn a_solver_is_judged_not_believed() {
    let (graph, known, model) = known(&[(4, 1, 0), (4, 1, 0), (4, 1, 0)]);
    let say = |values: &[(&str, f64)], bound| {
        let values = values.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        let (placement, report) = model.conclude(&graph, known.clone(), &Answer { values, bound });
        let Report { value_ms, lower_ms, proved, .. } = report;
        format!("{} parts, {value_ms}, at least {lower_ms:.4}, {proved}", placement.parts.len())
    };
    let lines = [
        say(&[], None),
        say(&[("x0_0", 1.0), ("x1_0", 1.0), ("x2_0", 1.0)], None),
        say(&[("x0_0", 1.0)], Some(7.5)),
        say(&[], Some(9.0)),
    ];
    expect![[r#"
        2 parts, 9, at least 6.0000, false
        2 parts, 9, at least 6.0000, false
        2 parts, 9, at least 7.5000, false
        2 parts, 9, at least 9.0000, true"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn the_program_is_written_as_solvers_read_it() {
    let (_, _, model) = known(&[(4, 1, 6), (4, 1, 6)]);
    expect![[r#"
        minimize
         obj: L
        subject to
         r0: +1e0 x0_0
          +1e0 x0_1
         = 1e0
         r1: +1e0 x1_0
          +1e0 x1_1
         = 1e0
         r2: +1e0 y0_0
          -1e0 x1_0
          +1e0 x0_0
         >= 0e0
         r3: +1e0 y0_0
          +1e0 x1_0
          -1e0 x0_0
         >= 0e0
         r4: +1e0 y0_1
          -1e0 x1_1
          +1e0 x0_1
         >= 0e0
         r5: +1e0 y0_1
          +1e0 x1_1
          -1e0 x0_1
         >= 0e0
         r6: +6e-1 x0_0
          +6e-1 x1_0
         <= 1e0
         r7: +6e-1 x0_1
          +6e-1 x1_1
         <= 1e0
         r8: -4e0 x0_0
          -4e0 x1_0
          -1e0 y0_0
          +1e0 L
         >= 0e0
         r9: -4e0 x0_1
          -4e0 x1_1
          -1e0 y0_1
          +1e0 L
         >= 0e0
        bounds
         L >= 5e0
         x0_1 = 0
         0 <= y0_0 <= 1
         0 <= y0_1 <= 1
        binary
         x0_0
         x0_1
         x1_0
         x1_1
        end
    "#]]
    .assert_eq(&model.text());
}
