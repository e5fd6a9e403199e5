//! Weights on devices: what the world refuses, what eviction keeps, and what is told of it.

use super::*;
use vocab::{Bytes, DeviceId};

const GPU: DeviceId = DeviceId(0);

fn groups(megabytes: &[u64]) -> Vec<WeightGroup> {
    let group = |(first_segment, size): (u32, &u64)| WeightGroup {
        bytes: Bytes(size << 20),
        transfer: ms(*size / 10),
        first_segment,
    };
    (0..).zip(megabytes).map(group).collect()
}

/// One partition on a device of 600 MiB; models of 3 × 100, 2 × 200 and 100 MiB, and one of 700.
fn gpu() -> NodeWorld {
    let mut world = NodeWorld::new();
    let sizes: [(&[u64], &[u64]); 4] =
        [(&[10, 10, 10], &[100, 100, 100]), (&[5, 5], &[200, 200]), (&[2], &[100]), (&[9], &[700])];
    for event in first_events(&sizes) {
        world.apply(Time::ZERO, &event);
    }
    world
}

fn first_events(models: &[(&[u64], &[u64])]) -> Vec<Event> {
    let partitions = vec![PartitionId(0)];
    let mut events = vec![
        Event::PartitionAdded { partition: PartitionId(0), name: "gpu0".into() },
        Event::DeviceAdded { device: GPU, name: "gpu".into(), memory: Bytes(600 << 20), partitions },
    ];
    for (id, (segments, weights)) in (0..).zip(models) {
        events.push(Event::ModelAdded { spec: spec(id, segments) });
        events.push(Event::WeightsStored { model: ModelId(id), groups: groups(weights) });
    }
    events
}

fn load(model: u32) -> Decision {
    decide(Act::Load { model: ModelId(model), device: GPU })
}

fn evict(model: u32, keep: u32) -> Decision {
    decide(Act::Evict { model: ModelId(model), device: GPU, keep })
}

fn arrived(model: u32, groups: u32) -> Event {
    Event::GroupsArrived { model: ModelId(model), device: GPU, groups }
}

/// A decision in a few words.
fn told(decision: &Decision) -> String {
    match &decision.act {
        Act::Start { run, model, .. } => format!("start {run} of {model}"),
        Act::Load { model, .. } => format!("load {model}"),
        Act::Evict { model, keep, .. } => format!("evict {model} but for {keep}"),
        other => format!("{other:?}"),
    }
}

fn evicted(model: u32) -> Event {
    Event::ModelEvicted { model: ModelId(model), device: GPU }
}

#[test]
fn memory_is_reserved_before_it_is_used() {
    let mut world = gpu();
    for (id, model) in [0, 1, 2].into_iter().enumerate() {
        world.apply(Time::ZERO, &request(id as u64, model, 1, None, Time::ZERO));
    }
    let mut said = Vec::new();
    let mut attempt = |world: &mut NodeWorld, decision: Decision| {
        let outcome =
            world.admit(at(1), &decision).map_or_else(|refusal| refusal.to_string(), |()| "ok".into());
        let free = world.memory().free(GPU);
        said.push(format!("{}: {outcome}; {free} free", told(&decision)));
        world.check();
    };
    attempt(&mut world, start(0, 0, &[0]));
    attempt(&mut world, load(0));
    attempt(&mut world, load(0));
    attempt(&mut world, load(1));
    attempt(&mut world, evict(0, 0));
    // On its way suffices: the run begins, and waits on the device for what it needs.
    attempt(&mut world, start(0, 0, &[0]));
    world.apply(at(2), &arrived(0, 2));
    world.apply(at(3), &arrived(0, 3));
    attempt(&mut world, evict(0, 1));
    world.apply(at(4), &Event::RunStarted { run: RunId(0) });
    world.apply(at(5), &Event::RunFinished { run: RunId(0), segments: vec![] });
    attempt(&mut world, evict(0, 3));
    attempt(&mut world, evict(0, 1));
    attempt(&mut world, load(0));
    attempt(&mut world, load(1));
    world.apply(at(6), &evicted(0));
    world.apply(at(6), &arrived(1, 2));
    attempt(&mut world, load(0));
    attempt(&mut world, start(1, 1, &[1]));
    attempt(&mut world, evict(1, 0));
    attempt(&mut world, decide(Act::Load { model: ModelId(1), device: DeviceId(9) }));
    attempt(&mut world, evict(2, 0));
    attempt(&mut world, load(77));
    expect![[r#"
        start run0 of m0: model m0 is neither on d0 nor on its way there; load it first; 600.0 MiB free
        load m0: ok; 300.0 MiB free
        load m0: model m0 is on d0, or on its way, already; 300.0 MiB free
        load m1: model "model1" needs 400.0 MiB, 300.0 MiB free of 600.0 MiB on d0; evict others first; 300.0 MiB free
        evict m0 but for 0: model m0 is being moved on d0; wait until that has ended; 300.0 MiB free
        start run0 of m0: ok; 300.0 MiB free
        evict m0 but for 1: run0 needs the weights of model m0 on d0; 300.0 MiB free
        evict m0 but for 3: model m0 holds 3 group(s) on d0, nothing beyond 3 to evict; 300.0 MiB free
        evict m0 but for 1: ok; 500.0 MiB free
        load m0: model m0 is being moved on d0; wait until that has ended; 500.0 MiB free
        load m1: ok; 100.0 MiB free
        load m0: model "model0" needs 200.0 MiB, 100.0 MiB free of 600.0 MiB on d0; evict others first; 100.0 MiB free
        start run1 of m1: ok; 100.0 MiB free
        evict m1 but for 0: run1 needs the weights of model m1 on d0; 100.0 MiB free
        load m1: there is no device d9; 100.0 MiB free
        evict m2 but for 0: model m2 holds 0 group(s) on d0, nothing beyond 0 to evict; 100.0 MiB free
        load m77: model m77 is not served; 100.0 MiB free"#]].assert_eq(&said.join("\n"));
}

#[test]
fn a_model_that_fits_nowhere_is_refused_with_the_numbers() {
    let mut world = gpu();
    let mut policy = Choice::Fifo.build();
    let Turn { accepted, .. } = turn(&mut world, &mut *policy, at(1), &[request(0, 3, 1, None, at(1))]);
    let said: Vec<String> = accepted.iter().map(|d| format!("{:?} because {}", d.act, d.why)).collect();
    world.check();
    expect!["Reject { request: RequestId(0) } because its model needs 700.0 MiB, the largest device has 600.0 MiB; free some or serve it elsewhere"].assert_eq(&said.join("\n"));
}

#[test]
fn a_load_that_fails_or_a_device_that_forgets_frees_its_memory() {
    let mut world = gpu();
    world.admit(at(1), &load(0)).unwrap();
    world.apply(at(2), &arrived(0, 1));
    world.apply(at(3), &Event::LoadFailed { model: ModelId(0), device: GPU, why: "link".into() });
    world.check();
    let place = world.memory().residency(GPU, ModelId(0));
    assert_eq!((place.present, place.reserved, place.failed), (1, 1, true));
    assert_eq!(world.memory().missing(GPU, ModelId(0)), Bytes(200 << 20));
    world.admit(at(4), &load(0)).unwrap();
    world.apply(at(5), &evicted(0));
    world.check();
    assert_eq!(world.memory().free(GPU), Bytes(600 << 20));
    // Facts about what is not there change nothing.
    for event in [evicted(0), arrived(0, 3), arrived(2, 1), evicted(1)] {
        world.apply(at(6), &event);
    }
    world.check();
    assert_eq!(world.memory().free(GPU), Bytes(600 << 20));
}

#[test]
fn what_a_cold_run_loses_shrinks_as_groups_arrive() {
    let mut world = gpu();
    // 30 ms of compute, 30 ms of travel: what no compute can hide is the first group.
    assert_eq!(world.cold(at(0), ModelId(0), 1), ms(10));
    assert_eq!(world.cold(at(0), ModelId(1), 1), ms(30), "40 ms of travel behind 10 ms of compute");
    world.admit(at(0), &load(0)).unwrap();
    assert_eq!(world.cold(at(4), ModelId(0), 1), ms(6));
    world.apply(at(10), &arrived(0, 1));
    assert_eq!(world.cold(at(10), ModelId(0), 1), Span::ZERO);
    assert_eq!(world.cold(at(10), ModelId(2), 1), ms(10));
}

/// The policy's decisions on a node where one model after the other is asked for.
fn alternation(policy: &str, turns: &[(u64, Vec<Event>)]) -> Vec<u8> {
    let choice = Choice::named(policy).unwrap();
    let (mut world, mut policy) = (NodeWorld::new(), choice.build());
    let mut writer = Writer::new(Vec::new(), &choice).unwrap();
    let first = (0, first_events(&[(&[10, 10, 10], &[100, 100, 100]), (&[5, 5], &[200, 200])]));
    for (now, events) in std::iter::once(&first).chain(turns) {
        let turn = turn(&mut world, &mut *policy, at(*now), events);
        assert!(turn.refused.is_empty(), "{:?}", turn.refused);
        world.check();
        writer.append(at(*now), events, &turn.accepted).unwrap();
    }
    writer.into_inner()
}

fn decisions(journal: &[u8]) -> String {
    let line = |record: Record<Event, Decision>| {
        let said = record
            .decisions
            .iter()
            .map(|d| format!("{:<3} {}, because {}\n", record.now.ns() / 1_000_000, told(d), d.why));
        said.collect::<String>()
    };
    records(journal).into_iter().map(line).collect()
}

#[test]
fn pipeswitch_starts_while_groups_travel_and_fifo_waits_for_all() {
    let turns =
        [(1, vec![request(0, 0, 1, None, at(1))]), (11, vec![arrived(0, 1)]), (31, vec![arrived(0, 3)])];
    let told =
        ["pipeswitch", "fifo"].map(|policy| format!("{policy}\n{}", decisions(&alternation(policy, &turns))));
    expect![[r#"
        pipeswitch
        1   load m0, because r0 is about to run
        1   start run0 of m0, because it came first in class 1, the strictest that waits
        fifo
        1   load m0, because r0 is about to run
        31  start run0 of m0, because it had waited longest
    "#]]
    .assert_eq(&told.concat());
}

/// Model 0 runs; model 1 stands by, where 100 MiB of model 0 must go only once its run has ended.
fn standby() -> Vec<u8> {
    alternation(
        "pipeswitch",
        &[
            (1, vec![request(0, 0, 2, None, at(1))]),
            (2, vec![Event::RunStarted { run: RunId(0) }]),
            (5, vec![request(1, 1, 1, None, at(5))]),
            (12, vec![arrived(0, 3)]),
            (32, vec![Event::RunFinished { run: RunId(0), segments: vec![ms(10), ms(10), ms(10)] }]),
            (33, vec![evicted(0), Event::RunStarted { run: RunId(1) }, request(2, 0, 2, None, at(33))]),
            (73, vec![arrived(1, 2)]),
            (78, vec![Event::RunFinished { run: RunId(1), segments: vec![ms(5), ms(5)] }]),
            (79, vec![evicted(1), Event::RunStarted { run: RunId(2) }]),
        ],
    )
}

#[test]
fn eviction_keeps_the_first_groups_where_memory_allows() {
    expect![[r#"
        1   load m0, because r0 is about to run
        1   start run0 of m0, because it came first in class 2, the strictest that waits
        32  evict m0 but for 2, because model m1 needs 400.0 MiB, 300.0 MiB were free, and it was used least recently
        32  load m1, because r1 is about to run
        32  start run1 of m1, because it came first in class 1, the strictest that waits
        78  evict m1 but for 1, because model m0 needs 100.0 MiB, 0 B were free, and it was used least recently
        78  load m0, because r2 is about to run
        78  start run2 of m0, because it came first in class 2, the strictest that waits
    "#]].assert_eq(&decisions(&standby()));
}

#[test]
fn stories_and_timelines_show_loads_and_evictions() {
    let journal = standby();
    expect![[r#"
        +0 ns         arrived for model1: class 1, 1 row(s), no deadline
        +0 ns         waits: gpu0 runs run0 of model0 (class 2)
        +27.00 ms     400.0 MiB of its weights sent to gpu: r1 is about to run
        +27.00 ms     chosen for run1 on gpu0 with 0 other(s): it came first in class 1, the strictest that waits
        +28.00 ms     run1 began on the device
        +68.00 ms     all its weights are on gpu
        +73.00 ms     run1 finished: answered
    "#]].assert_eq(&explain(records(&journal), RequestId(1)).unwrap());
    expect![[r#"
        +0 ns         arrived for model0: class 2, 1 row(s), no deadline
        +0 ns         waits: gpu0 runs run1 of model1 (class 1)
        +45.00 ms     100.0 MiB of its weights sent to gpu: r2 is about to run
        +45.00 ms     chosen for run2 on gpu0 with 0 other(s): it came first in class 2, the strictest that waits
        +46.00 ms     run2 began on the device
    "#]].assert_eq(&explain(records(&journal), RequestId(2)).unwrap());
    let mut timeline = Timeline::new(Vec::new()).unwrap();
    for record in records(&journal) {
        timeline.turn(&record).unwrap();
    }
    let json: serde_json::Value = serde_json::from_slice(&timeline.finish().unwrap()).unwrap();
    let shown = json["traceEvents"].as_array().unwrap().iter().filter(|event| event["pid"] == 3);
    let line = |event: &serde_json::Value| {
        let (phase, ts) = (event["ph"].as_str().unwrap(), event["ts"].as_f64().unwrap_or_default() / 1e3);
        format!("{ts:<4} {phase} {} {}", event["name"].as_str().unwrap(), event["args"])
    };
    expect![[r#"
        0    M process_name {"name":"device memory"}
        0    M thread_name {"name":"gpu"}
        0    C reserved on d0 {"bytes":0}
        1    b load model0 {"bytes":314572800,"why":"r0 is about to run"}
        1    C reserved on d0 {"bytes":314572800}
        12   e load model0 {}
        32   i evict model0 {"groups_kept":2,"why":"model m1 needs 400.0 MiB, 300.0 MiB were free, and it was used least recently"}
        32   b load model1 {"bytes":419430400,"why":"r1 is about to run"}
        32   C reserved on d0 {"bytes":629145600}
        73   e load model1 {}
        78   i evict model1 {"groups_kept":1,"why":"model m0 needs 100.0 MiB, 0 B were free, and it was used least recently"}
        78   b load model0 {"bytes":104857600,"why":"r2 is about to run"}
        78   C reserved on d0 {"bytes":524288000}"#]].assert_eq(&shown.map(line).collect::<Vec<_>>().join("\n"));
}

#[test]
fn nobody_waits_for_ever_for_a_load_that_fails() {
    let failed = || Event::LoadFailed { model: ModelId(0), device: GPU, why: "link down".into() };
    for policy in Choice::NAMES {
        let first = alternation(policy, &[(1, vec![request(0, 0, 1, None, at(1))])]);
        let waited = decisions(&first).lines().count() == 1;
        let mut turns = vec![(1, vec![request(0, 0, 1, None, at(1))])];
        if waited {
            turns.push((5, vec![failed()]));
        }
        // A run of it has begun now in any case, and fails with its weights.
        turns.push((9, vec![Event::RunFailed { run: RunId(0), why: "no weights".into() }, failed()]));
        let journal = alternation(policy, &turns);
        let last = records(&journal).pop().unwrap();
        assert!(last.decisions.is_empty(), "{policy}: {:?}", last.decisions);
        let story = explain(records(&journal), RequestId(0)).unwrap();
        assert!(story.contains("run0 failed: no weights"), "{policy}: {story}");
        if policy == "fifo" {
            expect![[r#"
                +0 ns         arrived for model0: class 1, 1 row(s), no deadline
                +0 ns         300.0 MiB of its weights sent to gpu: r0 is about to run
                +0 ns         waits: gpu0 receives its weights
                +4.00 ms      its weights did not reach gpu: link down
                +4.00 ms      300.0 MiB of its weights sent to gpu: r0 is about to run
                +4.00 ms      chosen for run0 on gpu0 with 0 other(s): it had waited longest
                +8.00 ms      run0 failed: no weights
            "#]]
            .assert_eq(&story);
        }
    }
}

#[test]
fn a_higher_class_is_loaded_while_the_lower_one_stops() {
    // Model 2 fits beside model 0.
    let choice = Choice::named("pipeswitch").unwrap();
    let (mut world, mut policy) = (gpu(), choice.build());
    let mut said = String::new();
    let turns = [
        (1, vec![request(0, 0, 3, None, at(1))]),
        (2, vec![Event::RunStarted { run: RunId(0) }, arrived(0, 3)]),
        (5, vec![request(1, 2, 1, None, at(5))]),
        (12, vec![Event::RunParked { run: RunId(0), next_segment: 1, segments: vec![ms(10)] }]),
        (15, vec![arrived(2, 1)]),
        (18, vec![Event::RunFinished { run: RunId(1), segments: vec![ms(2)] }]),
    ];
    for (now, events) in turns {
        let turn = turn(&mut world, &mut *policy, at(now), &events);
        world.check();
        for decision in turn.accepted {
            said += &format!("{now:<3} {}, because {}\n", told(&decision), decision.why);
        }
    }
    expect![[r#"
        1   load m0, because r0 is about to run
        1   start run0 of m0, because it came first in class 3, the strictest that waits
        5   Park { run: RunId(0) }, because r1 of class 1 waits
        5   load m2, because r1 runs next
        12  start run1 of m2, because it came first in class 1, the strictest that waits
        18  Resume { run: RunId(0) }, because it came first in class 3, the strictest that waits
    "#]]
    .assert_eq(&said);
}
