//! Devices shared in parts: constraints, slow-downs, timetables and stages, as text.

use super::{check, scenario};
use crate::Simulation;
use expect_test::expect;
use sched::node::Act;
use sched::node::policy::Choice;
use std::fmt::Write as _;

#[test]
fn models_that_are_to_be_apart_take_turns() {
    let text = "
        space 4 0+2 2+2
        apart a b
        model a 1:10
        model b 1:10
        model c 1:10
        at 0 a
        at 0 b
        at 0 c";
    // The oldest that may not run holds those behind it up.
    check(
        "fifo",
        text,
        expect![[r#"
        0      start run0 of m0 on p0: r0, because it had waited longest
        20     run0 finished
        20     start run1 of m1 on p0: r1, because it had waited longest
        20     start run2 of m2 on p1: r2, because it had waited longest
        40     run1 finished
        40     run2 finished
    "#]],
    );
    check(
        "windows",
        text,
        expect![[r#"
        0      start run0 of m0 on p0: r0, because it was the most urgent work (class 1 after ageing)
        0      start run1 of m2 on p1: r2, because it was the most urgent work (class 1 after ageing)
        20     run0 finished
        20     run1 finished
        20     start run2 of m1 on p0: r1, because it was the most urgent work (class 1 after ageing)
        40     run2 finished
    "#]],
    );
}

#[test]
fn a_floor_is_kept_free_for_its_owner() {
    let text = "
        space 4 grid=1
        floor a 2
        model a 1:10
        model b 1:10
        at 0 b
        at 0 b
        at 0 b
        at 1 a";
    check(
        "maxmin",
        text,
        expect![[r#"
        0      start run0 of m1 on p3: r0, because 2 units were idle and its model had been served least
        20     run0 finished
        20     start run1 of m0 on p0: r3, because 4 units were idle and its model had been served least
        30     run1 finished
        30     start run2 of m1 on p3: r1, because 2 units were idle and its model had been served least
        50     run2 finished
        50     start run3 of m1 on p3: r2, because 2 units were idle and its model had been served least
        70     run3 finished
    "#]],
    );
}

#[test]
fn runs_on_the_same_units_slow_each_other() {
    let text = "
        space 4 0+4 0+4 overlap=2
        model a 1:10 on2:1:20
        at 0 a
        at 5 a";
    check(
        "fifo",
        text,
        expect![[r#"
        0      start run0 of m0 on p0: r0, because it had waited longest
        5      start run1 of m0 on p1: r1, because it had waited longest
        15     run0 finished
        20     run1 finished
    "#]],
    );
}

#[test]
fn a_run_whose_end_is_on_its_way_slows_nobody() {
    // The first computes from 2 to 12 and is known to be over at 14; the second has the units for itself from 12 on.
    let text = "
        launch 2
        space 4 0+4 0+4 overlap=2
        model a 1:10 on2:1:20
        at 0 a
        at 10 a";
    check(
        "fifo",
        text,
        expect![[r#"
        0      start run0 of m0 on p0: r0, because it had waited longest
        10     start run1 of m0 on p1: r1, because it had waited longest
        14     run0 finished
        24     run1 finished
    "#]],
    );
}

#[test]
fn neighbours_on_disjoint_parts_slow_each_other_as_measured() {
    let text = "
        space 4 0+2 2+2
        beside a b 1.5
        model a 1:12 on2:1:12
        model b 1:6 on2:1:6
        at 0 a
        at 0 b";
    check(
        "fifo",
        text,
        expect![[r#"
        0      start run0 of m0 on p0: r0, because it had waited longest
        0      start run1 of m1 on p1: r1, because it had waited longest
        6      run1 finished
        14     run0 finished
    "#]],
    );
}

#[test]
fn runs_on_the_same_units_slow_each_other_as_measured() {
    // An even share would end both at once.
    let text = "
        space 4 0+4 0+4 overlap=2
        beside a b 3 shared
        beside b a 1.5 shared
        model a 1:12
        model b 1:12
        at 0 a
        at 0 b";
    check(
        "fifo",
        text,
        expect![[r#"
        0      start run0 of m0 on p0: r0, because it had waited longest
        0      start run1 of m1 on p1: r1, because it had waited longest
        18     run1 finished
        24     run0 finished
    "#]],
    );
    // Half of its units are shared with the other, whose neighbourhood costs nothing beside them.
    let text = "
        space 4 0+4 2+2 overlap=2
        beside a b 3 shared
        beside b a 1 shared
        model a 1:12 on2:1:12
        model b 1:6 on2:1:6
        at 0 a
        at 0 b";
    check(
        "fifo",
        text,
        expect![[r#"
        0      start run0 of m0 on p0: r0, because it had waited longest
        0      start run1 of m1 on p1: r1, because it had waited longest
        6      run1 finished
        15     run0 finished
    "#]],
    );
}

#[test]
fn dstack_runs_models_side_by_side_at_their_knees() {
    // Both are as fast on half of the device.
    let text = "
        space 4 grid=1
        model a 1:10 on1:1:40 on2:1:10 slo=40
        model b 1:10 on1:1:40 on2:1:10 slo=40
        at 0 a
        at 0 b
        at 1 a
        at 2 b";
    check(
        "dstack",
        text,
        expect![[r#"
        0      start run0 of m0 on p3: r0, because the timetable gives it 2 units now
        0      start run1 of m1 on p5: r1, because the timetable gives it 2 units now
        10     run0 finished
        10     run1 finished
        10     start run2 of m0 on p3: r2, because 2 units were idle and its model had been served least
        10     start run3 of m1 on p5: r3, because 2 units were idle and its model had been served least
        20     run2 finished
        20     run3 finished
    "#]],
    );
}

/// The models of the first starts from `since` on, ms.
fn first_starts(text: &str, since: u64, count: usize) -> String {
    let mut found = String::new();
    let simulation = Simulation::new(&scenario(text), &Choice::DStack).checked();
    let outcome = simulation.run(|now, _, decisions| {
        for decision in decisions {
            if let Act::Start { model, .. } = decision.act
                && now.ns() >= since * 1_000_000
                && found.len() < count
            {
                found.push(if model.index() == 0 { 'a' } else { 'b' });
            }
        }
        Ok(())
    });
    outcome.unwrap();
    found
}

#[test]
fn dstack_gives_who_comes_back_no_claim_to_the_past() {
    // The first alone for two seconds, then both, at once or after a pause: each run takes the whole device.
    for pause in [0, 1_000] {
        let mut text =
            String::from("space 2 grid=1\nmodel a 1:10 on1:1:40 slo=900\nmodel b 1:10 on1:1:40 slo=900\n");
        for at in 0..200 {
            writeln!(text, "at {} a", 10 * at).unwrap();
        }
        for at in 0..40 {
            let at = 2_000 + pause + at;
            writeln!(text, "at {at} a\nat {at} b").unwrap();
        }
        let order = first_starts(&text, 2_010 + pause, 20);
        let own = order.chars().filter(|model| *model == 'b').count();
        assert!((8..=12).contains(&own), "pause {pause}: {order}");
    }
}

#[test]
fn sgprs_moves_a_run_to_the_context_that_ends_its_stage_first() {
    let text = "
        space 4 0+2 0+4 overlap=2
        model a 1:6,6 on2:1:10,10 slo=60
        at 0 a
        at 1 a";
    check(
        "sgprs",
        text,
        expect![[r#"
        0      start run0 of m0 on p1: r0, because stage 0, due at 0.029700 s, came first on its context
        0      run0 until segment 1, because stage 0, due at 0.029700 s, came first on its context
        1      start run1 of m0 on p0: r1, because stage 0, due at 0.030700 s, came first on its context
        1      run1 until segment 1, because stage 0, due at 0.030700 s, came first on its context
        8.333333 run1 parked before segment 1
        8.333333 resume run1, because stage 1, due at 0.060400 s, came first on its context
        15.666666 run1 finished
        17.333332 run0 parked before segment 1
        17.333332 resume run0, because stage 1, due at 0.059400 s, came first on its context
        27.333332 run0 finished
    "#]],
    );
}

#[test]
fn daris_refuses_what_its_contexts_have_no_time_for() {
    let text = "
        space 2 0+2
        model a 1:10 slo=20
        at 0 a class=2
        at 0 a class=2
        at 0 a class=2
        at 1 a class=1";
    check(
        "daris",
        text,
        expect![[r#"
        0      reject r1, because beside what was admitted before it would use 100.0 % of the context with most room
        0      reject r2, because beside what was admitted before it would use 100.0 % of the context with most room
        0      start run0 of m0 on p0: r0, because stage 0, due at 0.020000 s, came first on its context
        10     run0 finished
        10     start run1 of m0 on p0: r3, because it came first in class 1, the strictest that waits
        20     run1 finished
    "#]],
    );
}

#[test]
fn the_ideal_gives_every_segment_its_own_part() {
    // The first segment fills the device, the second one unit.
    let text = "
        space 4 0+4 0+1 1+1 2+1
        model a 1:4,9 on1:1:16,9 slo=100
        at 0 a
        at 0 a";
    check(
        "ideal",
        text,
        expect![[r#"
            0      start run0 of m0 on p0: r0, because it and others fill most of the device, 4 units of it
            0      run0 until segment 1, because it and others fill most of the device, 4 units of it
            4      run0 parked before segment 1
            4      move run0 to p1, because it and others fill most of the device, 1 units of it
            4      resume run0, because it and others fill most of the device, 1 units of it
            13     run0 finished
            13     start run1 of m0 on p0: r1, because it and others fill most of the device, 4 units of it
            13     run1 until segment 1, because it and others fill most of the device, 4 units of it
            17     run1 parked before segment 1
            17     move run1 to p1, because it and others fill most of the device, 1 units of it
            17     resume run1, because it and others fill most of the device, 1 units of it
            26     run1 finished
        "#]],
    );
}
