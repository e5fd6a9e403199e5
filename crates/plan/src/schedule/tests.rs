//! Schedules against closed forms, and what is said about those that do not run.

use super::*;
use expect_test::{Expect, expect};
use proptest::prelude::*;

fn even(stages: usize, forward: u64, backward: u64, weight: u64) -> Vec<StageCost> {
    let cost = StageCost {
        forward: Span::from_ns(forward),
        backward: Span::from_ns(backward),
        weight: Span::from_ns(weight),
        activation_bytes: Bytes(1),
        weight_stash_bytes: Bytes(1),
        ..StageCost::default()
    };
    vec![cost; stages]
}

fn run(kind: &Kind, costs: &[StageCost], microbatches: usize) -> Run {
    let schedule = generate(kind, costs, microbatches).unwrap();
    simulate(&schedule, costs, Settings::default()).unwrap()
}

fn peaks(run: &Run) -> Vec<u64> {
    run.devices.iter().map(|device| device.peak_bytes.0).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn makespans_and_memory_are_the_closed_forms(
        stages in 1usize..7,
        microbatches in 1usize..14,
        forward in 1u64..30,
        backward in 1u64..30,
        weight in 0u64..30,
        chunks in 1usize..4,
    ) {
        let costs = even(stages, forward, backward, weight);
        let pass = forward + backward + weight;
        let (p, m) = (stages as u64, microbatches as u64);
        let drained = (m + p - 1) * pass;
        let gpipe = run(&Kind::Gpipe, &costs, microbatches);
        prop_assert_eq!(gpipe.makespan.ns(), drained);
        prop_assert_eq!(peaks(&gpipe), vec![m; stages]);
        prop_assert!((gpipe.bubble() - (p - 1) as f64 / (m + p - 1) as f64).abs() < 1e-9);

        let alternating = run(&Kind::OneForwardOneBackward, &costs, microbatches);
        prop_assert_eq!(alternating.makespan.ns(), drained);
        prop_assert_eq!(peaks(&alternating), (0..p).map(|stage| m.min(p - stage)).collect::<Vec<_>>());

        let rounds = microbatches * stages;
        let split = run(&Kind::Interleaved { chunks }, &even(stages * chunks, forward, backward, weight), rounds);
        let work = rounds as u64 * chunks as u64 * pass;
        prop_assert_eq!(split.makespan.ns(), work + (p - 1) * pass);

        // Each of the first transfers of a pass is waited for once.
        let moved: Vec<StageCost> =
            costs.iter().map(|cost| StageCost { transfer: Span::from_ns(7), ..*cost }).collect();
        let gpipe = run(&Kind::Gpipe, &moved, microbatches);
        let fast = forward.min(backward + weight) >= 7;
        prop_assert!(!fast || gpipe.makespan.ns() == drained + 2 * (p - 1) * 7);
    }

    #[test]
    fn zero_bubble_schedules_leave_the_gaps_they_promise(
        devices in 1usize..7,
        more in 0usize..12,
        time in 1u64..20,
        less in 0u64..20,
    ) {
        let (p, m) = (devices as u64, (devices + more) as u64);
        let weight = time.saturating_sub(less);
        let run_h1 = run(&Kind::ZeroBubbleH1, &even(devices, time, time, weight), devices + more);
        prop_assert_eq!(run_h1.makespan.ns(), m * (2 * time + weight) + (p - 1) * (2 * time - weight));
        prop_assert!(peaks(&run_h1).iter().all(|&peak| peak <= p));

        let enough = 2 * devices - 1 + more;
        let folded = run(&Kind::ZeroBubbleV, &even(2 * devices, time, time, time), enough);
        for device in &folded.devices {
            prop_assert_eq!(device.span, device.busy);
            prop_assert!(device.peak_bytes.0 <= 2 * p);
        }
    }

    #[test]
    fn replicas_share_the_slowest_stage(
        stages in prop::collection::vec((1usize..4, 1u64..30), 1..5),
        alone in any::<bool>(),
    ) {
        // Every schedule is as slow as its slowest stage. Without replicas none is slower; with them, 1F1B-RR's order and
        // counts can make replicas wait for each other.
        let stages: Vec<(usize, u64)> =
            stages.into_iter().map(|(count, time)| (if alone { 1 } else { count }, time)).collect();
        let replicas: Vec<usize> = stages.iter().map(|stage| stage.0).collect();
        let costs: Vec<StageCost> = stages.iter().map(|stage| even(1, stage.1, stage.1 * 2, 0)[0]).collect();
        let microbatches = 240;
        let run = run(&Kind::RoundRobin { replicas: replicas.clone() }, &costs, microbatches);
        let ends = |microbatch: usize| {
            let all = run.devices.iter().flat_map(|device| &device.slices);
            all.filter(|slice| slice.step.microbatch < microbatch).map(|slice| slice.end).max().unwrap()
        };
        // Away from the beginning and the end, over whole rounds of 1, 2 and 3 replicas.
        let took = ends(180).since(ends(60)).ns() as f64 / 120.0;
        let slowest = stages.iter().map(|&(count, time)| 3.0 * time as f64 / count as f64).fold(0.0, f64::max);
        prop_assert!(took > 0.98 * slowest && (!alone || took < 1.02 * slowest), "{took} against {slowest}");
        let most: Vec<usize> = (0..stages.len())
            .flat_map(|stage| {
                let from_here: usize = replicas[stage..].iter().sum();
                std::iter::repeat_n(from_here.div_ceil(replicas[stage]), replicas[stage])
            })
            .collect();
        let stashed: Vec<usize> = run.devices.iter().map(|device| device.stashed_max).collect();
        prop_assert_eq!(stashed, most);
    }

    #[test]
    fn schedules_are_read_back_as_they_are_written(devices in 1usize..5, microbatches in 1usize..6) {
        let schedule = generate(&Kind::ZeroBubbleV, &even(2 * devices, 2, 2, 2), microbatches).unwrap();
        prop_assert_eq!(Schedule::parse(&schedule.to_string()).unwrap(), schedule.clone());
        let moved = schedule.with_transfers();
        prop_assert_eq!(moved.with_transfers(), moved.clone());
        prop_assert_eq!(Schedule::parse(&moved.to_string()).unwrap(), moved);
    }
}

#[test]
fn one_slot_makes_transfers_wait() {
    let costs: Vec<StageCost> =
        even(2, 10, 20, 0).iter().map(|cost| StageCost { transfer: Span::from_ns(50), ..*cost }).collect();
    let schedule = generate(&Kind::Gpipe, &costs, 3).unwrap();
    let one = simulate(&schedule, &costs, Settings { slots: 1, ..Settings::default() }).unwrap();
    assert_eq!(one.makespan.ns(), 10 + 3 * 50 + 10 + 20 + 3 * 50 + 20);
    let waited: Vec<u64> =
        one.transfers.iter().map(|transfer| transfer.start.since(transfer.asked).ns()).collect();
    assert_eq!(waited, [0, 40, 80, 0, 30, 60]);
}

fn told(text: &str, settings: Settings) -> String {
    let schedule = match Schedule::parse(text) {
        Ok(schedule) => schedule,
        Err(error) => return error.to_string(),
    };
    let costs = even(schedule.stages, 10, 20, 0);
    match simulate(&schedule, &costs, settings) {
        Ok(run) => format!("{} ns, bubble {:.3}", run.makespan.ns(), run.bubble()),
        Err(error) => error.to_string(),
    }
}

fn check_text(text: &str, settings: Settings, expected: &Expect) {
    expected.assert_eq(&told(text, settings));
}

#[test]
fn what_does_not_run_is_explained() {
    let plain = Settings::default();
    let meeting = Settings { sending: Sending::Rendezvous, ..plain };
    let ordered = Settings { matching: Matching::InOrder, ..plain };
    check_text(
        "0F0 0B0 0F1\n1F0 1B0 1Q0 1F",
        plain,
        &expect![[r#"
        line 2: "1Q0" is no step; write 0F3, 0>F3, 1<F3
        line 2: "1F" is no step; write 0F3, 0>F3, 1<F3"#]],
    );
    check_text("", plain, &expect!["the schedule has no step; write a line a device"]);
    check_text(
        "0F0 0B0 0F1\n1F0 1B0 1F1 1B1 0B1",
        plain,
        &expect!["0B1 is on device 1, its forward pass on device 0; activations do not follow it"],
    );
    check_text(
        "0B0 0F0\n1F0 1B0",
        plain,
        &expect![
            "deadlock: device 0 at 0<B0 waits for 1>B0 of device 1; device 1 at 1<F0 waits for 0>F0 of device 0"
        ],
    );
    check_text(
        "0F0 0<B0 0>F0 0B0\n1<F0 1F0 1B0 1>B0",
        plain,
        &expect![
            "deadlock: device 0 at 0<B0 waits for 1>B0 of device 1; device 1 at 1<F0 waits for 0>F0 of device 0"
        ],
    );
    check_text("0F0 0>F0 0B0\n1<F0 1F0 1B0 1>B0", plain, &expect!["0<B0 is run 0 times, not once"]);
    let swapped = "0F0 0>F0 0F1 0>F1 0<B1 0B1 0<B0 0B0\n1<F1 1<F0 1F1 1B1 1>B1 1F0 1B0 1>B0";
    check_text(swapped, plain, &expect!["100 ns, bubble 0.400"]);
    check_text(
        swapped,
        ordered,
        &expect!["device 0 sends 0>F0 to device 1 when that expects 1<F1; reorder one of the two"],
    );
    check_text(
        swapped,
        meeting,
        &expect![
            "deadlock: device 0 at 0>F0 waits for 1<F0 of device 1; device 1 at 1<F1 waits for 0>F1 of device 0"
        ],
    );
    let fine = "0F0 0>F0 0<B0 0B0\n1<F0 1F0 1B0 1>B0";
    check_text(fine, meeting, &expect!["60 ns, bubble 0.500"]);
    check_text(
        fine,
        Settings { slots: 0, ..plain },
        &expect!["a device needs a slot to exchange anything; give one"],
    );
}

#[test]
fn what_cannot_be_scheduled_is_explained() {
    let said = |kind: &Kind, stages, microbatches| {
        generate(kind, &even(stages, 1, 1, 1), microbatches).unwrap_err().to_string()
    };
    let lines = [
        said(&Kind::Gpipe, 0, 3),
        said(&Kind::Gpipe, 1_000, 1_000_000),
        said(&Kind::Interleaved { chunks: 2 }, 3, 3),
        said(&Kind::Interleaved { chunks: 2 }, 4, 3),
        said(&Kind::ZeroBubbleV, 3, 3),
        said(&Kind::RoundRobin { replicas: vec![1, 0] }, 2, 3),
    ];
    expect![[r#"
        a schedule needs a stage and a microbatch, there are 0 and 3
        1000 stages of 1000000 microbatches are too many steps, at most 4000000 are made
        3 stages cannot be dealt out 2 a device; give a multiple
        3 microbatches are no multiple of 2 devices, which interleaving needs
        3 stages cannot be dealt out 2 a device; give a multiple
        replicas are given for 2 stages, each at least 1; there are 2 stages"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn a_run_is_drawn() {
    let costs: Vec<StageCost> =
        even(2, 10, 20, 0).iter().map(|cost| StageCost { transfer: Span::from_ns(5), ..*cost }).collect();
    let run = run(&Kind::OneForwardOneBackward, &costs, 1);
    let text = String::from_utf8(timeline(&run, &costs, Vec::new()).unwrap()).unwrap();
    let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(parsed["traceEvents"].as_array().unwrap().len(), text.lines().count() - 2);
    expect![[r#"
        {"displayTimeUnit":"ms","traceEvents":[
        {"args":{"name":"devices"},"name":"process_name","ph":"M","pid":1,"tid":0},
        {"args":{"name":"links"},"name":"process_name","ph":"M","pid":2,"tid":0},
        {"args":{"name":"device 0"},"name":"thread_name","ph":"M","pid":1,"tid":0},
        {"args":{"microbatch":0,"stage":0},"name":"0F0","ph":"B","pid":1,"tid":0,"ts":0.0},
        {"ph":"E","pid":1,"tid":0,"ts":0.01},
        {"args":{"bytes":1},"name":"memory of device 0","ph":"C","pid":1,"tid":0,"ts":0.0},
        {"args":{"microbatch":0,"stage":0},"name":"0B0","ph":"B","pid":1,"tid":0,"ts":0.05},
        {"ph":"E","pid":1,"tid":0,"ts":0.07},
        {"args":{"bytes":0},"name":"memory of device 0","ph":"C","pid":1,"tid":0,"ts":0.07},
        {"args":{"name":"device 1"},"name":"thread_name","ph":"M","pid":1,"tid":1},
        {"args":{"microbatch":0,"stage":1},"name":"1F0","ph":"B","pid":1,"tid":1,"ts":0.015},
        {"ph":"E","pid":1,"tid":1,"ts":0.025},
        {"args":{"bytes":1},"name":"memory of device 1","ph":"C","pid":1,"tid":1,"ts":0.015},
        {"args":{"microbatch":0,"stage":1},"name":"1B0","ph":"B","pid":1,"tid":1,"ts":0.025},
        {"ph":"E","pid":1,"tid":1,"ts":0.045},
        {"args":{"bytes":0},"name":"memory of device 1","ph":"C","pid":1,"tid":1,"ts":0.045},
        {"args":{"name":"0 → 1"},"name":"thread_name","ph":"M","pid":2,"tid":0},
        {"args":{"waited_ns":0},"name":"0>F0","ph":"B","pid":2,"tid":0,"ts":0.01},
        {"ph":"E","pid":2,"tid":0,"ts":0.015},
        {"bp":"e","cat":"transfer","id":"0>F0","name":"transfer","ph":"s","pid":1,"tid":0,"ts":0.01},
        {"bp":"e","cat":"transfer","id":"0>F0","name":"transfer","ph":"f","pid":1,"tid":1,"ts":0.015},
        {"args":{"name":"1 → 0"},"name":"thread_name","ph":"M","pid":2,"tid":1},
        {"args":{"waited_ns":0},"name":"1>B0","ph":"B","pid":2,"tid":1,"ts":0.045},
        {"ph":"E","pid":2,"tid":1,"ts":0.05},
        {"bp":"e","cat":"transfer","id":"1>B0","name":"transfer","ph":"s","pid":1,"tid":1,"ts":0.045},
        {"bp":"e","cat":"transfer","id":"1>B0","name":"transfer","ph":"f","pid":1,"tid":0,"ts":0.05}
        ]}
    "#]]
    .assert_eq(&text);
}
