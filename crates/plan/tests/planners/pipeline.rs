//! PipeDream's published answers for its published profiles.

use crate::data;
use expect_test::{Expect, expect};
use plan::OperatorGraph;
use plan::formats::{Link, read_pipedream};
use plan::pipeline::{Discipline, Level, Transfers, judge_pipeline, plan_pipeline, plan_published};

fn profile(name: &str) -> OperatorGraph {
    let text = data::text(&format!("pipedream/profiles/{name}.graph.txt"));
    read_pipedream(&text, Link { bytes_per_second: 1e9 }).unwrap()
}

fn levels(levels: &[(usize, f64)]) -> Vec<Level> {
    levels.iter().map(|&(machines, bytes_per_second)| Level { machines, bytes_per_second }).collect()
}

fn check(name: &str, machines: &[(usize, f64)], transfers: Transfers, expected: &Expect) {
    let graph = profile(name);
    let plan = plan_published(&graph, &levels(machines), transfers).unwrap();
    let stages: Vec<String> =
        plan.stages.iter().map(|stage| format!("{}x{:?}", stage.layers.len(), stage.replicas)).collect();
    expected.assert_eq(&format!("{:.7} s, {} cuts: {}", plan.seconds, plan.cuts, stages.join(" ")));
}

#[test]
fn one_level_gives_the_published_optimisers_digits() {
    let net = "image_classification/vgg16";
    check(net, &[(4, 1.25e9)], Transfers::Ignored, &expect!["0.1744985 s, 40 cuts: 15x[3] 25x[1]"]);
    check(
        net,
        &[(8, 1.25e9)],
        Transfers::Ignored,
        &expect!["0.0933571 s, 40 cuts: 8x[4] 10x[2] 4x[1] 18x[1]"],
    );
    check(
        net,
        &[(16, 1.25e9)],
        Transfers::Ignored,
        &expect!["0.0465875 s, 40 cuts: 12x[9] 1x[1] 5x[2] 2x[1] 5x[2] 15x[1]"],
    );
    check(
        net,
        &[(4, 1.25e9)],
        Transfers::Counted { compression: 1.0 },
        &expect!["0.1763492 s, 40 cuts: 17x[3] 23x[1]"],
    );
}

#[test]
fn two_levels_give_the_published_optimisers_digits() {
    let four_by_four = [(4, 12e9), (4, 1.25e9)];
    check(
        "image_classification/vgg16",
        &four_by_four,
        Transfers::Ignored,
        &expect!["0.0440084 s, 40 cuts: 16x[4, 3] 9x[3, 1] 15x[1, 1]"],
    );
    check(
        "image_classification/alexnet",
        &four_by_four,
        Transfers::Ignored,
        &expect!["0.0059337 s, 22 cuts: 6x[4, 2] 3x[4, 1] 4x[2, 1] 4x[1, 1] 5x[1, 1]"],
    );
    check(
        "image_classification/resnet18",
        &four_by_four,
        Transfers::Ignored,
        &expect!["0.0170321 s, 100 cuts: 18x[4, 2] 21x[4, 1] 14x[2, 1] 17x[2, 1]"],
    );
    check(
        "image_classification/resnet50",
        &four_by_four,
        Transfers::Ignored,
        &expect![
            "0.0286674 s, 240 cuts: 29x[4, 1] 39x[4, 1] 18x[2, 1] 31x[2, 1] 17x[1, 1] 10x[1, 1] 12x[1, 1] 20x[1, 1]"
        ],
    );
    check(
        "translation/gnmt",
        &four_by_four,
        Transfers::Ignored,
        &expect![
            "0.0110810 s, 99 cuts: 1x[1, 1] 1x[3, 1] 4x[3, 1] 1x[1, 1] 4x[1, 1] 6x[1, 1] 6x[1, 1] 5x[1, 1] 6x[3, 1] 3x[1, 1]"
        ],
    );
}

fn check_default(name: &str, machines: &[(usize, f64)], memory: Option<u64>, expected: &Expect) {
    let graph = profile(name);
    let levels = levels(machines);
    let text = match plan_pipeline(&graph, &levels, memory, Discipline::Stashing, &|| false) {
        Ok((plan, report)) => {
            assert_eq!(
                judge_pipeline(&graph, &levels, memory, Discipline::Stashing, &plan).unwrap().faults,
                []
            );
            let stages: Vec<String> = plan
                .stages
                .iter()
                .map(|stage| format!("{}x{:?}", stage.layers.len(), stage.replicas))
                .collect();
            let proof = if report.proved { "proved" } else { "unproved" };
            format!(
                "{:.7} s, at least {:.7} s, {proof}: {}",
                report.seconds,
                report.lower_seconds,
                stages.join(" ")
            )
        }
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&text);
}

#[test]
fn the_default_optimiser_counts_transfers_and_memory() {
    let net = "image_classification/vgg16";
    check_default(net, &[(4, 1.25e9)], None, &expect!["0.1681337 s, at least 0.1681337 s, proved: 41x[4]"]);
    check_default(
        net,
        &[(4, 12e9), (4, 1.25e9)],
        None,
        &expect!["0.0518433 s, at least 0.0518433 s, proved: 25x[4, 3] 5x[3, 1] 11x[1, 1]"],
    );
    check_default(
        net,
        &[(4, 1.25e9)],
        Some(24 << 30),
        &expect!["0.1681337 s, at least 0.1681337 s, proved: 41x[4]"],
    );
    check_default(
        net,
        &[(4, 1.25e9)],
        Some(1 << 30),
        &expect!["no pipeline fits devices of 1073741824 bytes; use larger ones or more of them"],
    );
    check_default(
        net,
        &[(4, 1.25e9), (0, 1e9)],
        None,
        &expect!["level 1 has no machine or no speed; give both"],
    );
    check_default(
        "image_classification/resnet101",
        &[(4, 12e9), (4, 1.25e9)],
        None,
        &expect!["0.0411042 s, at least 0.0411042 s, proved: 191x[4, 3] 156x[4, 1]"],
    );
    check_default(
        "translation/gnmt",
        &[(4, 12e9), (4, 1.25e9)],
        None,
        &expect![
            "0.0100663 s, at least 0.0055885 s, unproved: 2x[1, 1] 6x[3, 1] 5x[1, 1] 14x[2, 1] 6x[1, 1] 15x[4, 1]"
        ],
    );
}

#[test]
fn disciplines_keep_what_they_need_and_drain_when_they_must() {
    let graph = profile("image_classification/vgg16");
    let levels = levels(&[(4, 1.25e9)]);
    let mut lines = Vec::new();
    for discipline in [
        Discipline::Stashing,
        Discipline::TwoVersions { minibatches: 8 },
        Discipline::Flush { minibatches: 8 },
        Discipline::Flush { minibatches: 64 },
    ] {
        let (plan, report) = plan_pipeline(&graph, &levels, None, discipline, &|| false).unwrap();
        let verdict = judge_pipeline(&graph, &levels, None, discipline, &plan).unwrap();
        assert_eq!(verdict.faults, []);
        assert!(report.lower_seconds <= report.seconds);
        let stages: Vec<String> = plan
            .stages
            .iter()
            .zip(&verdict.stages)
            .map(|(stage, score)| {
                format!("{}x{:?} {:.2} GB", stage.layers.len(), stage.replicas, score.resident_bytes / 1e9)
            })
            .collect();
        lines.push(format!(
            "{discipline:?}: {:.7} s, at least {:.7} s: {}",
            report.seconds,
            report.lower_seconds,
            stages.join(", ")
        ));
    }
    expect![[r#"
        Stashing: 0.1681337 s, at least 0.1681337 s: 41x[4] 15.87 GB
        TwoVersions { minibatches: 8 }: 0.1681337 s, at least 0.1681337 s: 41x[4] 16.42 GB
        Flush { minibatches: 8 }: 0.2511483 s, at least 0.1681338 s: 41x[4] 15.87 GB
        Flush { minibatches: 64 }: 0.1785106 s, at least 0.1681338 s: 41x[4] 15.87 GB"#]]
    .assert_eq(&lines.join("\n"));
    let none = plan_pipeline(&graph, &levels, None, Discipline::Flush { minibatches: 0 }, &|| false);
    expect!["a round needs a minibatch; give at least 1"].assert_eq(&none.unwrap_err().to_string());
}
