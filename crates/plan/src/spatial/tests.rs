//! Surfaces, knees, optima and fits: examples with known answers, and brute force.

use super::*;
use expect_test::{Expect, expect};
use proptest::prelude::*;
use vocab::{BatchProfile, Span};

fn cell(units: u32, batch: u32, us: &[u64]) -> Cell {
    let segment_ns = us.iter().map(|us| Span::from_us(*us)).collect();
    Cell { units, times: BatchProfile { batch, segment_ns } }
}

/// Parts 1, 2, 4 of 4: a batch of 1 and one of 4.
fn simple() -> Surface {
    let cells = [(1, 1, 8_000), (2, 1, 5_000), (4, 1, 4_800), (1, 4, 20_000), (2, 4, 12_000), (4, 4, 9_000)];
    Surface::new(4, cells.iter().map(|&(units, batch, us)| cell(units, batch, &[us])).collect()).unwrap()
}

#[test]
fn a_larger_part_is_never_slower_and_it_is_said() {
    let cells = vec![
        cell(1, 1, &[3_000, 3_000]),
        cell(2, 1, &[4_000, 3_000]),
        cell(4, 1, &[1_000, 1_000]),
        cell(2, 2, &[5_000, 5_000]),
        cell(3, 1, &[2_000, 2_500]),
        cell(4, 2, &[2_000, 2_000]),
    ];
    let surface = Surface::new(4, cells).unwrap();
    let said: Vec<String> = surface.corrections().iter().map(ToString::to_string).collect();
    expect![[r#"
        batch 1 on 2 units: 7.000 ms measured, 6.000 ms of a smaller part is used
        batch 2 on 1 units was not measured, nor any smaller part
        batch 2 on 3 units was not measured, 6.000 ms from its neighbours is used"#]]
    .assert_eq(&said.join("\n"));
    assert_eq!(surface.latency(2, 1), Some(Span::from_ms(6)));
    assert_eq!(surface.latency(1, 2), None);
    assert_eq!(surface.latency(3, 2), Some(Span::from_ms(6)));
    assert_eq!(surface.latency(9, 1), Some(Span::from_ms(2)));
    assert_eq!(surface.times(3)[0].segment_ns, [Span::from_us(2_000), Span::from_us(2_500)]);
    assert_eq!(surface.measured().len(), 6);
}

#[test]
fn bad_times_are_all_told() {
    let cells =
        vec![cell(0, 1, &[1]), cell(5, 1, &[1]), cell(1, 0, &[1]), cell(2, 1, &[0]), cell(2, 1, &[1, 1])];
    expect![[r#"
        a part of 0 units is none of a device of 4
        a part of 5 units is none of a device of 4
        1 units list a batch of no rows
        batch 1 on 2 units takes no time; measure it again
        batch 1 on 2 units lists 2 segments, others list 1
        batch 1 on 2 units is listed twice"#]]
    .assert_eq(&Surface::new(4, cells).unwrap_err().to_string());
    expect!["there are no times on parts of the device; measure them with `raddle profile --spatial`"]
        .assert_eq(&Surface::new(4, vec![cell(4, 1, &[1])]).unwrap_err().to_string());
}

#[test]
fn knees_of_the_synthetic_networks() {
    // Our reading of the paper: 40 ns parallel, 10 ns serial, 50 kernels; knees of about 9, 24 and 31 units. The paper does
    // not say enough to be hit exactly.
    for (parallelism, published) in [(20.0, 9i64), (40.0, 24), (60.0, 31)] {
        let model = ExecutionModel {
            parallelism,
            kernels: 50,
            parallel_ns: 40.0,
            serial_ns: 10.0,
            memory_ns: 0.0,
            fixed_ns: 0.0,
        };
        let found = i64::from(efficient(&model.curve(1, 80)).unwrap());
        assert!((found - published).abs() <= 4, "p = {parallelism}: {found}, published {published}");
    }
}

#[test]
fn knees_by_both_definitions() {
    let surface = simple();
    assert_eq!(knee(&surface, 1, EPSILON), Some(Knee { efficient: 2, sufficient: 2 }));
    assert_eq!(knee(&surface, 4, EPSILON), Some(Knee { efficient: 2, sufficient: 4 }));
    assert_eq!(knee(&surface, 4, 0.4), Some(Knee { efficient: 2, sufficient: 2 }));
    assert_eq!(knee(&surface, 3, EPSILON), None);
}

fn check(slo_ms: u64, rate: Option<f64>, expected: &Expect) {
    let text = match optimum(&simple(), Demand { slo: Span::from_ms(slo_ms), rate }) {
        Ok(best) => format!(
            "{} units, batch {}, {} ms, {:.1} rows/s, gathers {:.2} ms",
            best.point.units,
            best.point.batch,
            best.point.time.as_ms_f64(),
            best.rows_per_s,
            best.assembly.as_ms_f64()
        ),
        Err(why) => why.to_string(),
    };
    expected.assert_eq(&text);
}

#[test]
fn optima_and_what_stands_against_them() {
    check(100, None, &expect!["2 units, batch 1, 5 ms, 200.0 rows/s, gathers 0.00 ms"]);
    check(100, Some(250.0), &expect!["2 units, batch 4, 12 ms, 333.3 rows/s, gathers 12.00 ms"]);
    check(100, Some(400.0), &expect!["4 units, batch 4, 9 ms, 444.4 rows/s, gathers 7.50 ms"]);
    // On the smaller part four requests would gather and run for too long.
    check(24, Some(210.0), &expect!["4 units, batch 4, 9 ms, 444.4 rows/s, gathers 14.29 ms"]);
    check(
        23,
        Some(210.0),
        &expect![
            "210 requests/s are above the 208.3 that 4 units at batch 1 compute within the SLO of 23.000 ms"
        ],
    );
    check(
        9,
        None,
        &expect!["fastest latency 4.800 ms at 4 units and batch 1 is above half the SLO of 9.000 ms"],
    );
    check(
        100,
        Some(500.0),
        &expect![
            "500 requests/s are above the 444.4 that 4 units at batch 4 compute within the SLO of 100.000 ms"
        ],
    );
    check(100, Some(0.0), &expect!["a rate of 0 requests/s is none; give a positive one"]);
}

#[test]
fn a_table_of_neighbours() {
    let pair = |model: &str, beside: &str, slowdown| Pair {
        model: model.into(),
        beside: beside.into(),
        units: 1,
        beside_units: 1,
        slowdown,
    };
    let mut table = Interference::new("cpu");
    table.put(pair("a", "b", 1.5));
    table.put(pair("a", "b", 1.25));
    table.put(pair("b", "a", 0.98));
    assert_eq!(table.check(), []);
    let read: Interference = serde_json::from_str(&serde_json::to_string(&table).unwrap()).unwrap();
    assert_eq!(read, table);
    assert_eq!(
        (table.slowdown("a", "b"), table.slowdown("b", "a"), table.slowdown("a", "a")),
        (1.25, 1.0, 1.0)
    );
    table.schema_version = 2;
    table.pairs.extend([pair("b", "a", f64::NAN), Pair { units: 0, ..pair("c", "a", 1.0) }]);
    let said: Vec<String> = table.check().iter().map(ToString::to_string).collect();
    expect![[r#"
        the table has schema_version 2, known is 1
        "b" beside "a" has slowdown NaN, which is no positive number; measure it again
        "b" beside "a" is listed twice for 1 and 1 units
        "c" beside "a" names a part of no units"#]]
    .assert_eq(&said.join("\n"));
    let (idle, busy) = (Traffic { cache: 0.0, memory: 0.0 }, Traffic { cache: 0.5, memory: 0.5 });
    let linear = LinearInterference::RTX_2080_TI;
    assert_eq!(linear.slowdown(idle, idle), 1.0);
    assert!((linear.slowdown(busy, busy) - 1.531).abs() < 1e-12);
}

#[test]
fn too_few_points_are_not_fitted() {
    let error = fit(&simple().points()[..5]).unwrap_err();
    expect!["5 points on 3 parts are too few to fit; measure at least 6 on 2 parts"]
        .assert_eq(&error.to_string());
}

fn points_of(model: ExecutionModel) -> Vec<Point> {
    let units = [2, 4, 8, 16, 24, 32, 48, 64, 80];
    let one = |units, batch| Point { units, batch, time: model.latency(units, batch) };
    units.into_iter().flat_map(|units| [1, 2, 4, 8].map(|batch| one(units, batch))).collect()
}

proptest! {
    #[test]
    fn a_model_is_found_again(
        parallelism in 1.0f64..200.0,
        times in prop::array::uniform4(0.0f64..1.0),
    ) {
        let model = ExecutionModel {
            parallelism,
            kernels: KERNELS,
            parallel_ns: 1e3 + 1e5 * times[0],
            serial_ns: 1e4 * times[1],
            memory_ns: 1e6 * times[2],
            fixed_ns: 1e6 * times[3],
        };
        let fit = fit(&points_of(model)).unwrap();
        prop_assert!(fit.error_max < 0.02, "{fit:?} of {model:?}");
    }

    #[test]
    fn between_neighbours_no_part_is_slower_or_faster_than_they_allow(
        times in prop::collection::vec(1u64..1_000_000, 5),
        units in 1u32..20,
    ) {
        let parts = [2u32, 3, 7, 10, 16];
        let cells = parts.iter().zip(&times).map(|(units, time)| cell(*units, 1, &[*time])).collect();
        let surface = Surface::new(16, cells).unwrap();
        let found = surface.latency(units, 1);
        // The fastest of all smaller parts is a bound from above, the next larger one from below.
        let least = |limit: u32| {
            let pairs = parts.iter().zip(&times).filter(|(units, _)| **units <= limit);
            pairs.map(|(_, time)| Span::from_us(*time)).min()
        };
        prop_assert_eq!(found.is_some(), units >= 2);
        if let Some(found) = found {
            prop_assert!(Some(found) <= least(units));
            let next = parts.iter().copied().find(|own| *own >= units).unwrap_or(16);
            prop_assert!(Some(found) >= least(next));
        }
    }

    #[test]
    fn optima_are_what_brute_force_finds(
        times in prop::collection::vec(1u64..60_000, 6),
        slo_ms in 1u64..120,
        rate in 1.0f64..2_000.0,
    ) {
        let places = [(1, 1), (1, 4), (2, 1), (2, 4), (4, 1), (4, 4)];
        let cells = places.iter().zip(&times).map(|(&(units, batch), us)| cell(units, batch, &[*us])).collect();
        let surface = Surface::new(4, cells).unwrap();
        let slo = Span::from_ms(slo_ms);
        let fits = |point: &&Point| {
            let latency_s = point.time.as_secs_f64();
            let gather_s = f64::from(point.batch - 1) / rate;
            point.time.ns() * 2 <= slo.ns()
                && Span::from_secs_f64(gather_s) <= slo.saturating_sub(point.time)
                && f64::from(point.batch) / latency_s >= rate
        };
        let efficacy = |point: &Point| {
            let latency_s = point.time.as_secs_f64();
            f64::from(point.batch) / latency_s / (latency_s * f64::from(point.units) / 4.0)
        };
        let best = surface.points().iter().filter(fits).map(efficacy).max_by(f64::total_cmp);
        let found = optimum(&surface, Demand { slo, rate: Some(rate) }).ok().map(|found| found.efficacy);
        prop_assert_eq!(found, best);
    }
}
