//! The planners against HiGHS, which solves the programs that `plan` writes.

use crate::data;
use plan::formats::read_placement;
use plan::{
    Communication, Devices, Group, Limits, Model, Operator, OperatorGraph, Report, place, place_islands,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use vocab::Rng;

/// Solves each program named, and prints the least value of each.
const SOLVE: &str = "
import sys, highspy
for path in sys.argv[1:]:
    highs = highspy.Highs()
    highs.setOptionValue('output_flag', False)
    highs.setOptionValue('threads', 1)
    highs.setOptionValue('mip_rel_gap', 0.0)
    highs.readModel(path)
    highs.run()
    state = highs.modelStatusToString(highs.getModelStatus())
    print(highs.getInfo().objective_function_value if state == 'Optimal' else state)
";

/// The Python that has highspy.
fn python() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/python/bin/python");
    let python = std::env::var_os("RADDLE_PYTHON").map_or(own, PathBuf::from);
    assert!(python.exists(), "{} is missing; run `cargo xtask python`", python.display());
    python
}

/// The least values of programs, or what HiGHS says instead.
fn solved(name: &str, models: &[Model]) -> Vec<String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("milp").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let mut paths = Vec::new();
    for (number, model) in models.iter().enumerate() {
        paths.push(folder.join(format!("{number}.lp")));
        std::fs::write(&paths[number], model.text()).unwrap();
    }
    let output = Command::new(python()).args(["-c", SOLVE]).args(&paths).output().unwrap();
    assert!(
        output.status.success(),
        "highspy failed: {}; run `cargo xtask python`",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    // HiGHS itself may say something first.
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    assert!(lines.len() >= models.len(), "{text}");
    lines[lines.len() - models.len()..].to_vec()
}

fn check(name: &str, cases: &[(Model, Option<f64>)]) {
    let models: Vec<Model> = cases.iter().map(|(model, _)| model.clone()).collect();
    for (number, (said, (_, expected))) in solved(name, &models).iter().zip(cases).enumerate() {
        match expected {
            Some(expected) => {
                let value: f64 =
                    said.parse().unwrap_or_else(|_| panic!("{name} {number}: {said}, not {expected}"));
                let near = (value - expected).abs() <= 1e-6 * expected.max(1.0);
                assert!(near, "{name} {number}: HiGHS finds {value}, the planner {expected}");
            }
            None => assert_eq!(said, "Infeasible", "{name} {number}"),
        }
    }
}

/// A graph of up to eight operators, and memory that may be short.
fn small(rng: &mut Rng) -> (OperatorGraph, u64) {
    let count = 2 + rng.below(7);
    let operator = |id: u64, rng: &mut Rng| Operator {
        id,
        name: String::new(),
        accelerator_ms: Some(1.0 + rng.below(8) as f64),
        cpu_ms: Some(1.0 + rng.below(30) as f64),
        resident_bytes: rng.below(6),
        parameter_bytes: None,
        output_bytes: None,
        transfer_ms: rng.below(5) as f64 / 2.0,
        color: None,
        backward: false,
    };
    let operators: Vec<Operator> = (0..count).map(|id| operator(id, rng)).collect();
    let pairs = (0..count).flat_map(|target| (0..target).map(move |source| (source, target)));
    let edges: Vec<(u64, u64)> = pairs.filter(|_| rng.below(3) == 0).collect();
    (OperatorGraph::new(operators, &edges).unwrap(), 5 + rng.below(14))
}

/// A report that knows nothing, so that the solver has to find out.
fn nothing_known(report: Report) -> Report {
    Report { lower_ms: 0.0, ..report }
}

fn communication(number: u64) -> Communication {
    if number.is_multiple_of(2) { Communication::Serial } else { Communication::Overlapped }
}

#[test]
fn contiguous_optima_of_small_graphs_are_those_of_the_program() {
    let mut rng = Rng::new(5);
    let mut cases = Vec::new();
    for number in 0..60 {
        let (graph, memory_bytes) = small(&mut rng);
        let accelerators = if number % 3 == 0 { 3 } else { 2 };
        let devices = Devices::uniform(accelerators, 0, memory_bytes);
        let model = Model::in_order(&graph, &devices, communication(number), 0.0).unwrap();
        let placed = place(&graph, &devices, communication(number), Limits::default());
        cases.push((model, placed.ok().map(|(_, report)| report.value_ms)));
    }
    assert!(cases.iter().any(|case| case.1.is_none()), "some should not fit");
    check("contiguous", &cases);
}

#[test]
fn islands_of_small_graphs_are_those_of_the_program() {
    let mut rng = Rng::new(6);
    let mut cases = Vec::new();
    for number in 0..60 {
        let (graph, memory_bytes) = small(&mut rng);
        let mut devices = Devices::uniform(2, 1, memory_bytes);
        devices.groups.push(Group { speed: 0.5, link: 2.0, ..Group::accelerators(1, memory_bytes) });
        let (_, report) =
            place_islands(&graph, &devices, communication(number), Limits::default(), (1, 10_000)).unwrap();
        let model = Model::new(&graph, &devices, communication(number), &nothing_known(report)).unwrap();
        cases.push((model, Some(report.value_ms)));
    }
    check("islands", &cases);
}

#[test]
fn published_workloads_are_those_of_the_program() {
    let mut cases = Vec::new();
    for name in ["bert_l-3_inference", "bert_l-3_training"] {
        let text = data::text(&format!("dnn-partitioning/throughput-inputs/OperatorGraphs/{name}.json"));
        let file = read_placement(&text).unwrap();
        let serial = Communication::Serial;
        let (_, report) =
            place_islands(&file.graph, &file.devices, serial, Limits::default(), (0, 2_000_000)).unwrap();
        let model = Model::new(&file.graph, &file.devices, serial, &nothing_known(report)).unwrap();
        cases.push((model, Some(report.value_ms)));
        let mut accelerators = file.devices.clone();
        accelerators.groups[1].count = 0;
        let (_, report) = place(&file.graph, &accelerators, serial, Limits::default()).unwrap();
        let model = Model::in_order(&file.graph, &accelerators, serial, 0.0).unwrap();
        cases.push((model, Some(report.value_ms)));
    }
    check("published", &cases);
}
