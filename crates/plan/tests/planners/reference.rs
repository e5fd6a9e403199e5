//! The published workloads: exact contiguous optima, and splits of the published planner scored by our judge.

use crate::data;
use expect_test::{Expect, expect};
use plan::formats::{PlacementDocument, PlacementFile, read_document, read_placement, read_split};
use plan::{Communication, Limits, judge, place};
use std::fmt::Write as _;

fn workload(name: &str) -> PlacementFile {
    let text = data::text(&format!("dnn-partitioning/throughput-inputs/{name}.json"));
    read_placement(&text).expect("a published workload")
}

const WORKLOADS: [&str; 16] = [
    "LayerGraphs/bert24_inference",
    "LayerGraphs/bert24_training",
    "LayerGraphs/gnmt_inference",
    "LayerGraphs/gnmt_training",
    "LayerGraphs/inceptionv3_inference",
    "LayerGraphs/inceptionv3_training",
    "LayerGraphs/resnet50_inference",
    "LayerGraphs/resnet50_training",
    "OperatorGraphs/bert_L-12_training",
    "OperatorGraphs/bert_l-12_inference",
    "OperatorGraphs/bert_l-3_inference",
    "OperatorGraphs/bert_l-3_training",
    "OperatorGraphs/bert_l-6_inference",
    "OperatorGraphs/bert_l-6_training",
    "OperatorGraphs/resnet50_inference",
    "OperatorGraphs/resnet50_training",
];

fn check(text: &str, expected: &Expect) {
    expected.assert_eq(text);
}

#[test]
fn contiguous_optima_are_the_published_planners_to_all_digits() {
    let mut lines = String::new();
    for name in WORKLOADS {
        let file = workload(name);
        let (placement, report) =
            place(&file.graph, &file.devices, Communication::Serial, Limits::default()).unwrap();
        let verdict = judge(&file.graph, &file.devices, Communication::Serial, &placement);
        assert_eq!(verdict.faults, [], "{name}");
        assert!(verdict.contiguous(), "{name}");
        assert!(report.proved && report.lower_ms.to_bits() == report.value_ms.to_bits(), "{name}");
        let (units, ideals) = (report.work.units, report.work.ideals);
        writeln!(lines, "{name} {:.10} {units} {ideals}", report.value_ms).unwrap();
    }
    check(
        &lines,
        &expect![[r#"
            LayerGraphs/bert24_inference 17.7899062500 28 30
            LayerGraphs/bert24_training 41.7458125000 28 30
            LayerGraphs/gnmt_inference 32.9106582031 78 17914
            LayerGraphs/gnmt_training 107.0044140625 78 17914
            LayerGraphs/inceptionv3_inference 51.5518635864 326 36596
            LayerGraphs/inceptionv3_training 122.7616162109 326 36596
            LayerGraphs/resnet50_inference 33.7746660156 177 242
            LayerGraphs/resnet50_training 78.6318125000 177 242
            OperatorGraphs/bert_L-12_training 437.9976378578 451 2938
            OperatorGraphs/bert_l-12_inference 147.4779844493 424 2906
            OperatorGraphs/bert_l-3_inference 27.9185676799 128 1428
            OperatorGraphs/bert_l-3_training 65.3031491221 138 2774
            OperatorGraphs/bert_l-6_inference 29.5795058065 227 1923
            OperatorGraphs/bert_l-6_training 72.8649663224 243 3776
            OperatorGraphs/resnet50_inference 124.3488497740 176 241
            OperatorGraphs/resnet50_training 255.1944164522 193 258
        "#]],
    );
}

#[test]
fn the_judge_scores_foreign_splits_as_their_makers_did() {
    let mut lines = String::new();
    for (name, kind) in [
        ("LayerGraphs/bert24_inference", "dp"),
        ("LayerGraphs/bert24_training", "dp"),
        ("LayerGraphs/bert24_training", "noncontig"),
        ("LayerGraphs/gnmt_training", "dp"),
        ("LayerGraphs/resnet50_training", "dp"),
        ("OperatorGraphs/bert_l-3_inference", "noncontig"),
        ("OperatorGraphs/bert_l-3_training", "dp"),
        ("OperatorGraphs/bert_l-3_training", "noncontig"),
        ("OperatorGraphs/bert_l-6_inference", "noncontig"),
        ("OperatorGraphs/resnet50_training", "dp"),
    ] {
        let file = workload(name);
        let text =
            data::text(&format!("dnn-partitioning/reference-runs/{}_{kind}.json", name.replace('/', "_")));
        let split = read_split(&text, &file.graph).unwrap();
        let verdict = judge(&file.graph, &file.devices, Communication::Serial, &split);
        assert_eq!(verdict.faults, [], "{name} {kind}");
        let contiguous = if verdict.contiguous() { "contiguous" } else { "islands" };
        writeln!(lines, "{name} {kind} {:.4} {contiguous}", verdict.value_ms).unwrap();
    }
    check(
        &lines,
        &expect![[r#"
        LayerGraphs/bert24_inference dp 17.7899 contiguous
        LayerGraphs/bert24_training dp 41.7458 contiguous
        LayerGraphs/bert24_training noncontig 39.7895 islands
        LayerGraphs/gnmt_training dp 107.0044 contiguous
        LayerGraphs/resnet50_training dp 78.6318 contiguous
        OperatorGraphs/bert_l-3_inference noncontig 21.9084 islands
        OperatorGraphs/bert_l-3_training dp 65.3031 contiguous
        OperatorGraphs/bert_l-3_training noncontig 54.2074 islands
        OperatorGraphs/bert_l-6_inference noncontig 28.3322 islands
        OperatorGraphs/resnet50_training dp 255.1944 contiguous
    "#]],
    );
}

#[test]
fn limits_end_a_search_with_an_unproved_incumbent() {
    let file = workload("LayerGraphs/inceptionv3_training");
    let few = Limits { bytes_max: 1 << 16, ..Limits::default() };
    let (placement, report) = place(&file.graph, &file.devices, Communication::Serial, few).unwrap();
    let verdict = judge(&file.graph, &file.devices, Communication::Serial, &placement);
    assert_eq!(verdict.faults, []);
    assert!(verdict.contiguous() && !report.proved && report.work.ideals == 0);
    let optimum = 122.761_616_210_9;
    assert!(report.lower_ms < optimum && optimum < report.value_ms && report.gap() > 0.0);

    let stopped = Limits { stop: &|| true, ..Limits::default() };
    let (_, report) = place(&file.graph, &file.devices, Communication::Serial, stopped).unwrap();
    assert!(!report.proved && report.value_ms >= optimum);
}

#[test]
fn a_document_is_read_back_as_it_was_written() {
    let file = workload("OperatorGraphs/bert_l-3_training");
    let mut devices = file.devices.clone();
    devices.exchange_bytes_per_second = Some(1e10);
    let communication = Communication::Overlapped;
    let (placement, report) = place(&file.graph, &devices, communication, Limits::default()).unwrap();
    let document = PlacementDocument::new(&file.graph, &devices, communication, &placement, &report);
    let text = serde_json::json!({"schema_version": 1, "placement": document}).to_string();
    let read = read_document(&text).unwrap();
    assert_eq!(read, document);
    assert_eq!((read.devices(), read.communication()), (devices, communication));
    assert_eq!(read.placement(&file.graph).unwrap(), placement);
    let other = workload("LayerGraphs/bert24_inference");
    let error = read.placement(&other.graph).unwrap_err().to_string();
    assert!(error.starts_with("operator ") && error.ends_with("and 518 more"), "{error}");
}
