//! Small random training graphs against every possible pipeline, scored by the judge.

use plan::pipeline::{Discipline, Level, Pipeline, PipelineError, Stage, judge_pipeline, plan_pipeline};
use plan::{Operator, OperatorGraph};
use proptest::prelude::*;

/// Forward milliseconds, parameter bytes and output bytes of a layer.
type Layer = (u32, u64, u64);

fn graph(layers: &[Layer], wanted: &[bool]) -> OperatorGraph {
    let count = layers.len();
    let mut operators = Vec::new();
    let mut edges = Vec::new();
    for (place, &(milliseconds, parameters, output)) in layers.iter().enumerate() {
        let id = u64::try_from(place).unwrap();
        operators.push(Operator {
            id,
            name: String::new(),
            accelerator_ms: Some(f64::from(milliseconds)),
            cpu_ms: None,
            resident_bytes: 0,
            parameter_bytes: Some(parameters),
            output_bytes: Some(output),
            transfer_ms: 0.0,
            color: None,
            backward: false,
        });
        for other in (0..place).filter(|other| wanted[other * count + place]) {
            edges.push((u64::try_from(other).unwrap(), id));
        }
    }
    OperatorGraph::new(operators, &edges).unwrap()
}

/// The digits of `code` in base `base`, as many as asked for.
fn digits(mut code: usize, base: usize, count: usize) -> Vec<usize> {
    let mut digits = Vec::with_capacity(count);
    for _ in 0..count {
        digits.push(code % base);
        code /= base;
    }
    digits
}

fn power(base: usize, exponent: usize) -> usize {
    base.pow(u32::try_from(exponent).unwrap())
}

/// The least time over all pipelines that the judge finds no fault with.
fn brute_force(graph: &OperatorGraph, levels: &[Level], memory: Option<u64>) -> Option<f64> {
    let layers = graph.operators().len();
    let most = levels[0].machines;
    let outer = levels.get(1).map_or(1, |level| level.machines);
    let mut best: Option<f64> = None;
    for count in 1..=layers {
        for code in 0..power(count, layers) {
            let stage_of = digits(code, count, layers);
            for replicas in 0..power(most, count) {
                let replicas = digits(replicas, most, count);
                // Which stages open a new stage of the outer level, and how often that one is replicated.
                for opening in 0..if levels.len() > 1 { power(2, count - 1) } else { 1 } {
                    let opens = digits(opening, 2, count - 1);
                    for outer_replicas in 0..power(outer, opens.iter().sum::<usize>() + 1) {
                        let outer_replicas = digits(outer_replicas, outer, count);
                        let mut group = 0;
                        let mut stages = Vec::new();
                        for stage in 0..count {
                            group += if stage > 0 { opens[stage - 1] } else { 0 };
                            let places = (0..layers).filter(|&layer| stage_of[layer] == stage).collect();
                            let mut of = Stage {
                                layers: places,
                                replicas: vec![replicas[stage] + 1],
                                within: Vec::new(),
                            };
                            if levels.len() > 1 {
                                of.replicas.push(outer_replicas[group] + 1);
                                of.within.push(group);
                            }
                            stages.push(of);
                        }
                        let pipeline = Pipeline { stages, seconds: 0.0, cuts: 0 };
                        let verdict =
                            judge_pipeline(graph, levels, memory, Discipline::Stashing, &pipeline).unwrap();
                        if verdict.faults.is_empty() && best.is_none_or(|best| verdict.seconds < best) {
                            best = Some(verdict.seconds);
                        }
                    }
                }
            }
        }
    }
    best
}

fn level(machines: usize) -> Level {
    Level { machines, bytes_per_second: 1e3 }
}

fn check(graph: &OperatorGraph, levels: &[Level], memory: Option<u64>) -> Result<(), TestCaseError> {
    let best = brute_force(graph, levels, memory);
    match plan_pipeline(graph, levels, memory, Discipline::Stashing, &|| false) {
        Ok((pipeline, report)) => {
            let verdict = judge_pipeline(graph, levels, memory, Discipline::Stashing, &pipeline).unwrap();
            prop_assert_eq!(&verdict.faults, &[]);
            prop_assert!(report.proved);
            let best = best.expect("the judge accepts the planner's pipeline");
            // Sums of the planner are differences of prefixes.
            prop_assert!((report.seconds - best).abs() <= 1e-12, "{} is not {best}", report.seconds);
        }
        Err(PipelineError::Memory { .. }) => prop_assert_eq!(best, None),
        Err(other) => prop_assert!(false, "{}", other),
    }
    Ok(())
}

fn layers(most: usize) -> impl Strategy<Value = (Vec<Layer>, Vec<bool>)> {
    (1..=most).prop_flat_map(|count| {
        let layer = (0u32..9, 0u64..9, 0u64..9);
        (prop::collection::vec(layer, count), prop::collection::vec(any::<bool>(), count * count))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn one_level_is_the_best_of_all(
        (layers, wanted) in layers(4), machines in 1usize..=3, memory in prop::option::of(5u64..60),
    ) {
        check(&graph(&layers, &wanted), &[level(machines)], memory)?;
    }

    #[test]
    fn two_levels_are_the_best_of_all((layers, wanted) in layers(3), fast in 1u32..4) {
        let inner = Level { bytes_per_second: 1e3 * f64::from(fast), ..level(2) };
        check(&graph(&layers, &wanted), &[inner, level(2)], None)?;
    }
}
