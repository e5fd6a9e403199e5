//! Scenarios as text, and thousands of seeded simulations under the world's invariants.

use crate::{
    Arrivals, BatchEntry, DeviceEntry, End, Grouping, GroupingName, LinkEntry, Load, ModelEntry, ModelPart,
    PartEntry, RuleEntry, Scenario, Simulation, SlowdownEntry, SpaceEntry,
};
use expect_test::{Expect, expect};
use proptest::prelude::*;
use sched::journal::{Reader, Replay, Writer, replay};
use sched::node::policy::Choice;
use sched::node::{Act, Event, NodeWorld};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use vocab::{Rng, Span};

mod going_on;
mod memory;
mod parts;

/// Reads a scenario from lines: `model NAME ROWS:MS,MS… [onUNITS:ROWS:MS,MS…] [delay=MS] [queue=N] [slo=MS] [period=MS]
/// [weights:MB,MB…]`, `partitions N`, `at MS NAME [class=N] [rows=N] [timeout=MS]`, `device MB [count=N]` with a link of
/// 10 MB/ms, `launch MS`, `ahead SEGMENTS`, and for parts `space UNITS [FIRST+UNITS…] [grid=N] [overlap=N]`, `apart A B`,
/// `floor A UNITS`, `beside A B TIMES [shared]`.
fn scenario(text: &str) -> Scenario {
    let mut scenario = Scenario { seed: 1, duration_ms: 1_000_000, ..Scenario::default() };
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let option = |key: &str| number(&words, key);
        match words[0] {
            "partitions" => scenario.partitions = words[1].parse().unwrap(),
            "model" => scenario.models.push(model(&words)),
            "device" => {
                scenario.device = Some(DeviceEntry {
                    memory_bytes: words[1].parse::<u64>().unwrap() * 1_000_000,
                    link: Some(LinkEntry { latency_us: 0.0, bytes_per_s: 1e10 }),
                    evict_us: 0,
                    count: u16::try_from(option("count").unwrap_or(1)).unwrap(),
                });
            }
            "space" => scenario.space = Some(space(&words)),
            "ahead" => scenario.ahead = words[1].parse().unwrap(),
            "launch" => scenario.launch_us = words[1].parse::<u64>().unwrap() * 1_000,
            "apart" => scenario.rules.push(RuleEntry::Apart([words[1].into(), words[2].into()])),
            "floor" => scenario
                .rules
                .push(RuleEntry::Floor { model: words[1].into(), units: words[2].parse().unwrap() }),
            "beside" => scenario.slowdowns.push(SlowdownEntry {
                model: words[1].into(),
                beside: words[2].into(),
                times: words[3].parse().unwrap(),
                shared: words.contains(&"shared"),
                ..SlowdownEntry::default()
            }),
            "at" => scenario.loads.push(Load {
                model: words[2].into(),
                class: u32::try_from(option("class").unwrap_or(1)).unwrap(),
                rows: u32::try_from(option("rows").unwrap_or(1)).unwrap(),
                timeout_us: option("timeout").map(|ms| ms * 1_000),
                arrivals: Arrivals::at(vec![0]),
                start_ms: words[1].parse().unwrap(),
                end_ms: None,
                copies: 1,
            }),
            other => panic!("unknown line {other:?}"),
        }
    }
    assert_eq!(scenario.faults(), Vec::<String>::new());
    scenario
}

/// The number behind `key=`.
fn number(words: &[&str], key: &str) -> Option<u64> {
    words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse::<u64>().ok())
}

fn model(words: &[&str]) -> ModelEntry {
    let batch = |word: &str| {
        let (rows, ms) = word.split_once(':')?;
        let rows = rows.parse().ok()?;
        let segments_us = ms.split(',').map(|ms| ms.parse::<u64>().unwrap() * 1_000).collect();
        Some(BatchEntry { rows, segments_us, ..BatchEntry::default() })
    };
    // `on4:1:30` is 30 ms at one row on 4 units.
    let parts = words[2..].iter().filter_map(|word| {
        let (units, rest) = word.strip_prefix("on")?.split_once(':')?;
        Some(ModelPart { units: units.parse().unwrap(), batches: vec![batch(rest)?] })
    });
    let weights = words.iter().find_map(|word| word.strip_prefix("weights:"));
    let megabytes = |size: &str| size.parse::<u64>().unwrap() * 1_000_000;
    ModelEntry {
        name: words[1].into(),
        batches: words[2..].iter().filter_map(|word| batch(word)).collect(),
        queue_delay_us: number(words, "delay").unwrap_or(0) * 1_000,
        queue_max: u32::try_from(number(words, "queue").unwrap_or(0)).unwrap(),
        weight_bytes: weights.map_or_else(Vec::new, |w| w.split(',').map(megabytes).collect()),
        parts: parts.collect(),
        deadline_us: number(words, "slo").map(|ms| ms * 1_000),
        period_us: number(words, "period").map(|ms| ms * 1_000),
        ..ModelEntry::default()
    }
}

fn space(words: &[&str]) -> SpaceEntry {
    let small = |number: u64| u32::try_from(number).unwrap();
    let parts = words[2..].iter().filter_map(|word| word.split_once('+'));
    let part = |(first, units): (&str, &str)| PartEntry {
        first: first.parse().ok(),
        units: units.parse().unwrap(),
        count: 1,
    };
    SpaceEntry {
        units: words[1].parse().unwrap(),
        overlap: small(number(words, "overlap").unwrap_or(1)),
        grid: number(words, "grid").map(small),
        parts: parts.map(part).collect(),
    }
}

/// Every decision with its reason, and every end, as text.
fn check(policy: &str, text: &str, expected: Expect) {
    let mut story = String::new();
    let choice = Choice::named(policy).unwrap();
    let simulation = Simulation::new(&scenario(text), &choice).checked();
    let outcome = simulation.run(|now, events, decisions| {
        let ms = now.ns() as f64 / 1e6;
        for event in events {
            match event {
                Event::RunParked { run, next_segment, .. } => {
                    writeln!(story, "{ms:<6} {run} parked before segment {next_segment}").unwrap();
                }
                Event::RunFinished { run, .. } => writeln!(story, "{ms:<6} {run} finished").unwrap(),
                Event::RunAbandoned { run } => writeln!(story, "{ms:<6} {run} abandoned").unwrap(),
                Event::GroupsArrived { model, groups, .. } => {
                    writeln!(story, "{ms:<6} {model} has {groups} group(s)").unwrap();
                }
                _ => {}
            }
        }
        for decision in decisions {
            let act = match &decision.act {
                Act::Start { run, model, partition, requests, .. } => {
                    let requests: Vec<String> = requests.iter().map(ToString::to_string).collect();
                    format!("start {run} of {model} on {partition}: {}", requests.join(" "))
                }
                Act::Park { run } => format!("park {run}"),
                Act::Resume { run } => format!("resume {run}"),
                Act::Abandon { run } => format!("abandon {run}"),
                Act::Until { run, segment } => format!("{run} until segment {segment}"),
                Act::Move { run, partition } => format!("move {run} to {partition}"),
                Act::Reject { request } => format!("reject {request}"),
                Act::Expire { request } => format!("expire {request}"),
                Act::Load { model, device } => format!("load {model} to {device}"),
                Act::Evict { model, device, keep } => format!("evict {model} from {device} but for {keep}"),
            };
            writeln!(story, "{ms:<6} {act}, because {}", decision.why).unwrap();
        }
        Ok(())
    });
    outcome.unwrap();
    expected.assert_eq(&story);
}

#[test]
fn fifo_takes_the_oldest_and_fills_its_batch() {
    check(
        "fifo",
        "model a 1:10 4:20
         model b 1:5
         at 0 b
         at 1 a
         at 2 b
         at 3 a",
        expect![[r#"
            0      start run0 of m1 on p0: r0, because it had waited longest
            5      run0 finished
            5      start run1 of m0 on p0: r1 r3, because it had waited longest
            25     run1 finished
            25     start run2 of m1 on p0: r2, because it had waited longest
            30     run2 finished
        "#]],
    );
}

#[test]
fn edf_takes_the_earliest_deadline_and_lets_the_hopeless_expire() {
    check(
        "edf",
        "model a 1:10
         at 0 a
         at 1 a timeout=100
         at 2 a timeout=30
         at 3 a timeout=9",
        expect![[r#"
            0      start run0 of m0 on p0: r0, because its deadline came first
            10     run0 finished
            10     start run1 of m0 on p0: r3, because its deadline came first
            12     expire r3, because its deadline passed 9.00 ms after its arrival
            12     abandon run1, because nobody waits for its answers any more
            20     run1 finished
            20     start run2 of m0 on p0: r2, because its deadline came first
            30     run2 finished
            30     start run3 of m0 on p0: r1, because its deadline came first
            40     run3 finished
        "#]],
    );
}

#[test]
fn timeslice_rotates_between_models_at_segment_edges() {
    check(
        "timeslice",
        "model a 1:6,6,6
         model b 1:4,4,4
         at 0 a
         at 1 b",
        expect![[r#"
            0      start run0 of m0 on p0: r0, because it was its model's turn
            10     park run0, because its model used its slice of 10.00 ms and others wait
            12     run0 parked before segment 2
            12     start run1 of m1 on p0: r1, because it was its model's turn
            22     park run1, because its model used its slice of 10.00 ms and others wait
            24     run1 finished
            24     resume run0, because it was its model's turn
            30     run0 finished
        "#]],
    );
}

#[test]
fn windows_rejects_at_once_what_cannot_be_answered_in_time() {
    check(
        "windows",
        "model a 1:10
         at 0 a
         at 1 a timeout=25
         at 2 a timeout=25
         at 3 a timeout=9
         at 4 a timeout=60",
        expect![[r#"
            0      start run0 of m0 on p0: r0, because it was the most urgent work (class 1 after ageing)
            2      reject r2, because its answer needs 28.00 ms with the work ahead of it, its deadline leaves 25.00 ms
            3      reject r3, because its answer needs 10.00 ms with the work ahead of it, its deadline leaves 9.00 ms
            10     run0 finished
            10     start run1 of m0 on p0: r1, because it was the most urgent work (class 1 after ageing)
            20     run1 finished
            20     start run2 of m0 on p0: r4, because it was the most urgent work (class 1 after ageing)
            30     run2 finished
        "#]],
    );
}

#[test]
fn windows_parks_a_loose_class_at_its_edge_and_resumes_it() {
    check(
        "windows",
        "model slow 1:10,10,10
         model fast 1:2
         at 0 slow class=3
         at 4 fast class=1
         at 11 fast class=2",
        expect![[r#"
            0      start run0 of m0 on p0: r0, because it was the most urgent work (class 3 after ageing)
            4      park run0, because r1 of class 1 waits
            10     run0 parked before segment 1
            10     start run1 of m1 on p0: r1, because it was the most urgent work (class 1 after ageing)
            12     run1 finished
            12     start run2 of m1 on p0: r2, because it was the most urgent work (class 2 after ageing)
            14     run2 finished
            14     resume run0, because it was the most urgent work (class 3 after ageing)
            34     run0 finished
        "#]],
    );
}

#[test]
fn windows_keeps_a_batch_within_its_heads_deadline() {
    check(
        "windows",
        "model a 1:10 2:14 4:30
         at 0 a
         at 1 a timeout=26
         at 2 a timeout=80
         at 3 a timeout=80
         at 4 a timeout=80",
        expect![[r#"
            0      start run0 of m0 on p0: r0, because it was the most urgent work (class 1 after ageing)
            10     run0 finished
            10     start run1 of m0 on p0: r1 r2, because it was the most urgent work (class 1 after ageing)
            24     run1 finished
            24     start run2 of m0 on p0: r3 r4, because it was the most urgent work (class 1 after ageing)
            38     run2 finished
        "#]],
    );
}

#[test]
fn windows_waits_for_a_fuller_batch_no_longer_than_allowed() {
    check(
        "windows",
        "model a 1:10 2:12 delay=5
         at 0 a
         at 3 a
         at 20 a",
        expect![[r#"
            3      start run0 of m0 on p0: r0 r1, because it was the most urgent work (class 1 after ageing)
            15     run0 finished
            25     start run1 of m0 on p0: r2, because it was the most urgent work (class 1 after ageing)
            35     run1 finished
        "#]],
    );
}

#[test]
fn windows_lets_no_younger_request_prolong_the_wait_for_a_fuller_batch() {
    check(
        "windows",
        "model a 1:10 4:12 delay=6
         at 0 a class=3
         at 5 a class=2",
        expect![[r#"
            6      start run0 of m0 on p0: r1, because it was the most urgent work (class 2 after ageing)
            16     run0 finished
            16     start run1 of m0 on p0: r0, because it was the most urgent work (class 3 after ageing)
            26     run1 finished
        "#]],
    );
}

#[test]
fn windows_does_not_wait_for_a_fuller_batch_until_the_deadline_is_lost() {
    check(
        "windows",
        "model a 1:10 4:12 delay=50
         at 0 a timeout=16",
        expect![[r#"
            3      start run0 of m0 on p0: r0, because it was the most urgent work (class 1 after ageing)
            13     run0 finished
        "#]],
    );
}

#[test]
fn a_full_queue_and_a_late_run_say_so() {
    check(
        "fifo",
        "model a 1:10,10 queue=1
         at 0 a timeout=15
         at 1 a
         at 2 a",
        expect![[r#"
            0      start run0 of m0 on p0: r0, because it had waited longest
            2      reject r2, because its model's queue is full: 1 wait already
            15     expire r0, because its deadline passed 15.00 ms after its arrival
            15     abandon run0, because nobody waits for its answers any more
            20     run0 finished
            20     start run1 of m0 on p0: r1, because it had waited longest
            40     run1 finished
        "#]],
    );
}

#[test]
fn a_run_stops_behind_what_was_launched_ahead() {
    let lines = "model a 1:10,10,10,10
         at 0 a timeout=15";
    check(
        "fifo",
        lines,
        expect![[r#"
            0      start run0 of m0 on p0: r0, because it had waited longest
            15     expire r0, because its deadline passed 15.00 ms after its arrival
            15     abandon run0, because nobody waits for its answers any more
            20     run0 abandoned
        "#]],
    );
    check(
        "fifo",
        &format!("ahead 2\n{lines}"),
        expect![[r#"
            0      start run0 of m0 on p0: r0, because it had waited longest
            15     expire r0, because its deadline passed 15.00 ms after its arrival
            15     abandon run0, because nobody waits for its answers any more
            30     run0 abandoned
        "#]],
    );
}

#[test]
fn scenario_faults_are_reported_at_once() {
    let folder = std::env::temp_dir().join(format!("raddle-sim-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("bad.toml");
    let text = r#"
        policy = "lottery"
        duration_ms = 10
        partitions = 0
        noise = 7.0
        [[models]]
        name = "a"
        batches = [{ rows = 2, segments_us = [1] }, { rows = 1, segments_us = [1, 2] }]
        [[models]]
        name = "a"
        [[loads]]
        model = "b"
        class = 0
        arrivals = { kind = "poisson", rate = -1.0 }
    "#;
    std::fs::write(&path, text).unwrap();
    let error = Scenario::read(&path).unwrap_err().to_string();
    std::fs::remove_dir_all(&folder).unwrap();
    let text = error.lines().skip(1).map(str::trim).collect::<Vec<_>>().join("\n");
    expect![[r#"
        no policy is called "lottery"; there are fifo, edf, timeslice, windows, pipeswitch, dstack, ideal, sgprs, daris, temporal, triton, clipper, nexus, gslice, gpulet, maxthroughput, maxmin
        partitions is 0; at least one is needed
        noise is 7, it must be within 0 and 1
        batches of "a" must ascend from at least 1 row
        batches of "a" list different numbers of segments
        two models are called "a"
        model "a" has no costs; give a profile or batches
        load 1: no model is called "b"
        load 1: class is 0; 1 goes first
        load 1: rate is -1; it must be above 0 and at most 1e9 a second"#]]
    .assert_eq(&text);
}

/// A random but sensible scenario, small enough to run thousands of.
fn random_scenario(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed);
    let mut text = format!("partitions {}\n", 1 + rng.below(3));
    let models = 1 + rng.below(4);
    for model in 0..models {
        let segments = 1 + rng.below(4);
        let segment = 1 + rng.below(6);
        let times = |scale: u64| {
            (0..segments).map(|at| (segment * scale + at).to_string()).collect::<Vec<_>>().join(",")
        };
        let (delay, queue) = (rng.below(2) * rng.below(8), rng.below(3) * 5);
        writeln!(
            text,
            "model m{model} 1:{} 2:{} 4:{} delay={delay} queue={queue}",
            times(2),
            times(3),
            times(5)
        )
        .unwrap();
    }
    for _ in 0..rng.below(40) {
        let (at, model, class, rows) =
            (rng.below(120), rng.below(models), 1 + rng.below(3), 1 + rng.below(3));
        let timeout =
            if rng.below(2) == 0 { String::new() } else { format!(" timeout={}", 1 + rng.below(90)) };
        writeln!(text, "at {at} m{model} class={class} rows={rows}{timeout}").unwrap();
    }
    let mut scenario = scenario(&text);
    scenario.seed = seed;
    scenario.noise = if rng.below(2) == 0 { 0.0 } else { 0.2 };
    scenario.launch_us = rng.below(3) * 100;
    if rng.below(2) == 0 {
        give_memory(&mut scenario, &mut rng);
    }
    if rng.below(2) == 0 {
        give_space(&mut scenario, &mut rng);
    }
    assert_eq!(scenario.faults(), Vec::<String>::new());
    scenario
}

/// A device shared in parts, with constraints between tenants and slow-downs now and then.
fn give_space(scenario: &mut Scenario, rng: &mut Rng) {
    let small = |bound: u32, rng: &mut Rng| u32::try_from(rng.below(u64::from(bound))).unwrap();
    let units = 2 + small(7, rng);
    let mut parts = Vec::new();
    let located = rng.below(3) > 0;
    for _ in 0..rng.below(4) {
        let size = 1 + small(units, rng);
        let first = located.then(|| small(units - size + 1, rng));
        parts.push(PartEntry { first, units: size, count: u16::try_from(1 + rng.below(3)).unwrap() });
    }
    if !located {
        parts.extend((1..=units).map(|units| PartEntry { first: None, units, count: 2 }));
    }
    let grid = located.then(|| 1 + small(2, rng));
    scenario.space = Some(SpaceEntry { units, overlap: 1 + small(3, rng), grid, parts });
    if let Some(device) = &mut scenario.device {
        device.count = 1;
    }
    let names: Vec<String> = scenario.models.iter().map(|model| model.name.clone()).collect();
    let any = |rng: &mut Rng| names[small(u32::try_from(names.len()).unwrap(), rng) as usize].clone();
    if rng.below(3) == 0 {
        scenario.rules.push(RuleEntry::Apart([any(rng), any(rng)]));
    }
    if rng.below(3) == 0 {
        scenario.rules.push(RuleEntry::Floor { model: any(rng), units: 1 + small(units / 2, rng) });
    }
    if !scenario.faults().is_empty() {
        scenario.rules.clear();
    }
    if rng.below(2) == 0 {
        let times = 1.0 + rng.below(8) as f64 / 10.0;
        scenario.slowdowns.push(SlowdownEntry {
            model: any(rng),
            beside: any(rng),
            times,
            shared: rng.below(2) == 0,
            ..SlowdownEntry::default()
        });
    }
    if rng.below(2) == 0 {
        for model in &mut scenario.models {
            let slower = |batch: &BatchEntry| BatchEntry {
                segments_us: batch.segments_us.iter().map(|us| us * 2).collect(),
                ..batch.clone()
            };
            let batches = model.batches.iter().map(slower).collect();
            model.parts.push(ModelPart { units: 1, batches });
        }
    }
    for model in &mut scenario.models {
        model.deadline_us = (rng.below(2) == 0).then(|| (5 + rng.below(80)) * 1_000);
    }
}

/// Weights for most segments, and devices with room for at least most single models.
fn give_memory(scenario: &mut Scenario, rng: &mut Rng) {
    let mut sizes = Vec::new();
    for model in &mut scenario.models {
        let segments = model.batches[0].segments_us.len();
        model.weight_bytes = (0..segments).map(|_| rng.below(4) * rng.below(20) * 1_000_000).collect();
        if rng.below(3) == 0 {
            model.groups = Some(Grouping::Named(GroupingName::Whole));
        }
        sizes.push(model.weight_bytes.iter().sum::<u64>());
    }
    let (largest, all) = (*sizes.iter().max().unwrap(), sizes.iter().sum::<u64>());
    // One time in eight the largest model fits nowhere and is refused.
    let memory_bytes =
        if rng.below(8) == 0 { largest * 9 / 10 } else { largest + rng.below(all - largest + 1) };
    let link = Some(LinkEntry { latency_us: rng.below(3) as f64 * 50.0, bytes_per_s: 1e10 });
    let count = u16::try_from(1 + rng.below(u64::from(scenario.partitions))).unwrap();
    scenario.device = Some(DeviceEntry { memory_bytes, link, evict_us: rng.below(2) * 60, count });
}

/// Runs one seed under one policy: invariants hold after each turn, every request ends once, and the journal replays.
fn run_seed(seed: u64, choice: &Choice) -> memory::Ledger {
    let scenario = random_scenario(seed);
    let mut journal = Writer::new(Vec::new(), choice).unwrap();
    let mut bytes = Vec::new();
    let simulation = Simulation::new(&scenario, choice).checked();
    let mut ledger = memory::Ledger::default();
    let outcome = simulation.run(|now, events, decisions| {
        ledger.turn(events, decisions);
        journal.append(now, events, decisions)
    });
    let outcome = outcome.unwrap_or_else(|error| panic!("seed {seed} under {choice:?}: {error}"));
    let all = outcome.tally.summary(outcome.partitions).pop().unwrap();
    assert_eq!(all.requests, scenario.loads.len() as u64, "seed {seed}: every request has one end");
    journal.flush().unwrap();
    bytes.extend(journal.into_inner());
    let (mut reader, policy) = Reader::new::<Choice>(bytes.as_slice()).unwrap();
    let replayed = replay(&mut reader, &mut NodeWorld::new(), &mut *policy.build()).unwrap();
    assert!(matches!(replayed, Replay::Same { .. }), "seed {seed} under {choice:?}: {replayed:?}");
    ledger
}

#[test]
fn thousands_of_simulations_keep_every_invariant() {
    let mut seen: BTreeMap<&str, memory::Seen> = BTreeMap::new();
    for seed in 0..600 {
        for name in Choice::NAMES {
            *seen.entry(name).or_default() += run_seed(seed, &Choice::named(name).unwrap()).seen;
        }
        run_seed(seed, &Choice::Windows { ageing: Span::from_ms(20) });
    }
    // What the seeds must exercise for the test to mean anything.
    for (name, seen) in seen {
        assert!(seen.loads > 500 && seen.evictions > 300 && seen.partial > 50, "{name}: {seen:?}");
        assert_eq!(seen.cold_starts > 500, !matches!(name, "fifo" | "edf"), "{name}: {seen:?}");
    }
}

proptest! {
    #[test]
    fn any_seed_keeps_every_invariant(seed: u64) {
        run_seed(seed, &Choice::named("windows").unwrap());
    }
}

#[test]
fn below_capacity_windows_misses_nothing() {
    let text = r#"
        seed = 3
        duration_ms = 20000
        [[models]]
        name = "a"
        batches = [{ rows = 1, segments_us = [2000] }, { rows = 8, segments_us = [6000] }]
        [[models]]
        name = "b"
        batches = [{ rows = 1, segments_us = [1000, 1000] }]
        [[loads]]
        model = "a"
        timeout_us = 50000
        arrivals = { kind = "poisson", rate = 200.0 }
        [[loads]]
        model = "b"
        timeout_us = 30000
        arrivals = { kind = "constant", rate = 100.0 }
        [[loads]]
        model = "b"
        class = 2
        arrivals = { kind = "closed", clients = 2 }
    "#;
    let scenario: Scenario = toml::from_str(text).unwrap();
    assert_eq!(scenario.faults(), Vec::<String>::new());
    let outcome =
        Simulation::new(&scenario, &Choice::named("windows").unwrap()).run(|_, _, _| Ok(())).unwrap();
    for row in outcome.tally.summary(1) {
        assert_eq!(row.requests, row.done, "{row:?}");
    }
}

#[test]
fn ageing_lets_nobody_starve() {
    // Class 1 alone would keep the device busy for ever.
    let text = r#"
        duration_ms = 2000
        [[models]]
        name = "greedy"
        batches = [{ rows = 1, segments_us = [10000] }]
        [[models]]
        name = "patient"
        batches = [{ rows = 1, segments_us = [5000] }]
        [[loads]]
        model = "greedy"
        arrivals = { kind = "closed", clients = 3 }
        [[loads]]
        model = "patient"
        class = 3
        arrivals = { kind = "trace", at_ns = [0] }
    "#;
    let scenario: Scenario = toml::from_str(text).unwrap();
    let end_of_patient = |ageing| {
        let mut end = None;
        let mut tally = crate::Tally::default();
        Simulation::new(&scenario, &Choice::Windows { ageing })
            .run(|now, events, decisions| {
                let ended = tally.turn(now, events, decisions);
                end = end.or(ended
                    .iter()
                    .find(|e| e.request.class.level() == 3 && e.end == End::Done)
                    .map(|e| e.at));
                Ok(())
            })
            .unwrap();
        end.unwrap()
    };
    assert!(end_of_patient(Span::from_ms(50)).ns() < 200_000_000);
    assert!(end_of_patient(Span::ZERO).ns() > 2_000_000_000);
}
