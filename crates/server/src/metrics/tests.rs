//! A short history of requests and runs, and what scrapers and clients then read.

use super::{End, Ended, Metrics};
use crate::live::Timing;
use expect_test::{Expect, expect};
use vocab::{Class, Span};

fn timing(queue_us: u64, compute_us: u64) -> Timing {
    let [queue, compute] = [queue_us, compute_us].map(Span::from_us);
    Timing { queue, input: Span::from_us(2), compute, output: Span::from_us(3), parks: 0 }
}

/// One answered batch of three rows in two requests, one end of every other kind, and an idle model.
fn history() -> Metrics {
    let metrics = Metrics::new();
    let model = metrics.add_model("m", 2, 2);
    metrics.add_model("idle", 1, 1);
    let ended = |end, class, rows, total_us, timing| Ended {
        end,
        class: Class::new(class).unwrap(),
        rows,
        total: Span::from_us(total_us),
        timing,
        wall_ms: 1_700_000_000_000,
    };
    model.waiting(&[(Class::FIRST, 9)].into());
    model.waiting(&[(Class::new(2).unwrap(), 3), (Class::new(7).unwrap(), 4)].into());
    model.ran(3, timing(0, 400));
    model.ended(&ended(End::Done, 1, 1, 505, timing(100, 400)));
    model.ended(&ended(End::Done, 2, 2, 1_605, timing(1_200, 400)));
    model.ended(&ended(End::Late, 2, 1, 9, timing(0, 0)));
    model.ended(&ended(End::Rejected("queue_full"), 2, 1, 1, timing(0, 0)));
    model.ended(&ended(End::Rejected("deadline"), 1, 1, 1, timing(0, 0)));
    model.ended(&ended(End::Dropped, 9, 1, 1, timing(0, 0)));
    model.ended(&ended(End::Cancelled, 1, 1, 1, timing(0, 0)));
    model.ended(&ended(End::Failed, 1, 1, 1, timing(0, 0)));
    model.preempted();
    metrics.turn_took(Span::from_us(7));
    metrics.decision_refused("no_memory");
    metrics.responded(200);
    metrics.responded(200);
    metrics
}

/// Rows without their explanations and histograms' buckets, sorted: their order in a family is not fixed.
fn check(metrics: &Metrics, wanted: &str, expected: Expect) {
    let text = metrics.render();
    let mut rows: Vec<&str> =
        text.lines().filter(|row| row.starts_with(wanted) && !row.contains("_bucket")).collect();
    rows.sort_unstable();
    expected.assert_eq(&(rows.join("\n") + "\n"));
}

#[test]
fn tritons_family() {
    check(
        &history(),
        "nv_",
        expect![[r#"
        nv_inference_compute_infer_duration_us{model="idle",version="1"} 0
        nv_inference_compute_infer_duration_us{model="m",version="2"} 800
        nv_inference_compute_input_duration_us{model="idle",version="1"} 0
        nv_inference_compute_input_duration_us{model="m",version="2"} 4
        nv_inference_compute_output_duration_us{model="idle",version="1"} 0
        nv_inference_compute_output_duration_us{model="m",version="2"} 6
        nv_inference_count{model="idle",version="1"} 0
        nv_inference_count{model="m",version="2"} 3
        nv_inference_exec_count{model="idle",version="1"} 0
        nv_inference_exec_count{model="m",version="2"} 1
        nv_inference_pending_request_count{model="idle",version="1"} 0
        nv_inference_pending_request_count{model="m",version="2"} 7
        nv_inference_queue_duration_us{model="idle",version="1"} 0
        nv_inference_queue_duration_us{model="m",version="2"} 1300
        nv_inference_request_duration_us{model="idle",version="1"} 0
        nv_inference_request_duration_us{model="m",version="2"} 2110
        nv_inference_request_failure{model="idle",version="1",reason="BACKEND"} 0
        nv_inference_request_failure{model="idle",version="1",reason="CANCELED"} 0
        nv_inference_request_failure{model="idle",version="1",reason="OTHER"} 0
        nv_inference_request_failure{model="idle",version="1",reason="REJECTED"} 0
        nv_inference_request_failure{model="m",version="2",reason="BACKEND"} 1
        nv_inference_request_failure{model="m",version="2",reason="CANCELED"} 1
        nv_inference_request_failure{model="m",version="2",reason="OTHER"} 1
        nv_inference_request_failure{model="m",version="2",reason="REJECTED"} 3
        nv_inference_request_success{model="idle",version="1"} 0
        nv_inference_request_success{model="m",version="2"} 2
    "#]],
    );
}

#[test]
fn our_family() {
    check(
        &history(),
        "raddle_",
        expect![[r#"
            raddle_batch_rows_count{model="idle",version="1"} 0
            raddle_batch_rows_count{model="m",version="2"} 1
            raddle_batch_rows_sum{model="idle",version="1"} 0.0
            raddle_batch_rows_sum{model="m",version="2"} 3.0
            raddle_http_responses_total{code="200"} 2
            raddle_preemptions_total{model="idle",version="1"} 0
            raddle_preemptions_total{model="m",version="2"} 1
            raddle_queue_depth{model="idle",version="1",class="1"} 0
            raddle_queue_depth{model="m",version="2",class="1"} 0
            raddle_queue_depth{model="m",version="2",class="2"} 7
            raddle_refused_decisions_total{reason="no_memory"} 1
            raddle_request_duration_seconds_count{model="idle",version="1",class="1"} 0
            raddle_request_duration_seconds_count{model="m",version="2",class="1"} 1
            raddle_request_duration_seconds_count{model="m",version="2",class="2"} 1
            raddle_request_duration_seconds_sum{model="idle",version="1",class="1"} 0.0
            raddle_request_duration_seconds_sum{model="m",version="2",class="1"} 0.000505
            raddle_request_duration_seconds_sum{model="m",version="2",class="2"} 0.001605
            raddle_requests_total{model="m",version="2",class="1",end="cancelled",reason="client"} 1
            raddle_requests_total{model="m",version="2",class="1",end="done",reason=""} 1
            raddle_requests_total{model="m",version="2",class="1",end="failed",reason="device"} 1
            raddle_requests_total{model="m",version="2",class="1",end="rejected",reason="deadline"} 1
            raddle_requests_total{model="m",version="2",class="2",end="done",reason=""} 1
            raddle_requests_total{model="m",version="2",class="2",end="dropped",reason="deadline"} 1
            raddle_requests_total{model="m",version="2",class="2",end="late",reason="deadline"} 1
            raddle_requests_total{model="m",version="2",class="2",end="rejected",reason="queue_full"} 1
            raddle_turn_duration_seconds_count 1
            raddle_turn_duration_seconds_sum 0.000007
        "#]],
    );
}

#[test]
fn every_row_belongs_to_a_described_family() {
    let text = history().render();
    let described: Vec<&str> = text.lines().filter_map(|row| row.strip_prefix("# TYPE ")).collect();
    for row in text.lines().filter(|row| !row.starts_with('#')) {
        let name = row.split(['{', ' ']).next().unwrap();
        let family =
            ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let known = |name: &str| described.iter().any(|family| family.split(' ').next() == Some(name));
        assert!(known(name) || known(family), "{row} has no # TYPE");
    }
}

#[test]
fn statistics_as_clients_read_them() {
    let stats = history().stats(|name, version| name == "m" && version == 2);
    expect![[r#"
        [
          {
            "batch_stats": [
              {
                "batch_size": 3,
                "compute_infer": {
                  "count": 1,
                  "ns": 400000
                },
                "compute_input": {
                  "count": 1,
                  "ns": 2000
                },
                "compute_output": {
                  "count": 1,
                  "ns": 3000
                }
              }
            ],
            "execution_count": 1,
            "inference_count": 3,
            "inference_stats": {
              "cache_hit": {
                "count": 0,
                "ns": 0
              },
              "cache_miss": {
                "count": 0,
                "ns": 0
              },
              "compute_infer": {
                "count": 2,
                "ns": 800000
              },
              "compute_input": {
                "count": 2,
                "ns": 4000
              },
              "compute_output": {
                "count": 2,
                "ns": 6000
              },
              "fail": {
                "count": 6,
                "ns": 14000
              },
              "queue": {
                "count": 2,
                "ns": 1300000
              },
              "success": {
                "count": 2,
                "ns": 2110000
              }
            },
            "last_inference": 1700000000000,
            "memory_usage": [],
            "name": "m",
            "response_stats": {},
            "version": "2"
          }
        ]
    "#]]
    .assert_eq(&format!("{:#}\n", serde_json::to_value(stats).unwrap()));
}

#[test]
fn a_removed_model_leaves_no_row() {
    let metrics = history();
    metrics.remove_model("m", 2);
    let text = metrics.render();
    assert!(!text.contains("model=\"m\""), "{text}");
    assert!(text.contains("model=\"idle\""), "{text}");
}
