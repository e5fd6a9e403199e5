//! The node's world, its costs, and what journals tell.

use super::timeline::Timeline;
use super::*;
use crate::journal::{JournalError, Reader, Record, Replay, Writer, replay};
use crate::node::policy::Choice;
use crate::{Turn, World, turn};
use expect_test::{Expect, expect};
use std::collections::BTreeMap;
use vocab::{Class, ModelId, PartitionId, Request, RequestId, RunId, Span, Time};

mod parts;
mod residency;

fn ms(ms: u64) -> Span {
    Span::from_ms(ms)
}

fn at(at_ms: u64) -> Time {
    Time::ZERO + ms(at_ms)
}

fn spec(id: u32, segments_ms: &[u64]) -> ModelSpec {
    let segments = segments_ms.iter().map(|length| ms(*length)).collect();
    ModelSpec {
        id: ModelId(id),
        name: format!("model{id}"),
        class: Class::FIRST,
        batch_max: 2,
        queue_delay: Span::ZERO,
        queue_max: 0,
        costs: vec![BucketCost { rows: 2, segments }],
        parts: PartCosts::default(),
        promise: Promise::default(),
    }
}

fn request(id: u64, model: u32, class: u32, deadline_ms: Option<u64>, now: Time) -> Event {
    let request = Request {
        id: RequestId(id),
        model: ModelId(model),
        class: Class::new(class).unwrap(),
        rows: 1,
        arrival: now,
        deadline: deadline_ms.map(at),
    };
    Event::RequestArrived { request }
}

/// One partition, model 0 with three segments of 10 ms and model 1 with one of 2 ms.
fn world() -> NodeWorld {
    let mut world = NodeWorld::new();
    world.apply(Time::ZERO, &Event::PartitionAdded { partition: PartitionId(0), name: "p0".into() });
    world.apply(Time::ZERO, &Event::ModelAdded { spec: spec(0, &[10, 10, 10]) });
    world.apply(Time::ZERO, &Event::ModelAdded { spec: spec(1, &[2]) });
    world
}

fn start(run: u64, model: u32, requests: &[u64]) -> Decision {
    let act = Act::Start {
        run: RunId(run),
        model: ModelId(model),
        partition: PartitionId(0),
        requests: requests.iter().map(|id| RequestId(*id)).collect(),
        window: Window::from(Time::ZERO),
    };
    Decision { act, why: Why::Oldest }
}

fn decide(act: Act) -> Decision {
    Decision { act, why: Why::RoundRobin }
}

#[test]
fn the_world_refuses_what_does_not_fit() {
    let mut world = world();
    for id in 0..4 {
        world.apply(Time::ZERO, &request(id, 0, 1, None, Time::ZERO));
    }
    world.apply(Time::ZERO, &request(4, 1, 1, None, Time::ZERO));
    let mut closed = start(0, 0, &[0]);
    let Act::Start { window, partition, .. } = &mut closed.act else { unreachable!() };
    (window.latest, *partition) = (Time::ZERO, PartitionId(0));
    let mut elsewhere = start(0, 0, &[0]);
    let Act::Start { partition, .. } = &mut elsewhere.act else { unreachable!() };
    *partition = PartitionId(9);
    let attempts = [
        start(0, 7, &[0]),
        elsewhere,
        start(0, 0, &[]),
        start(0, 0, &[1, 1]),
        start(0, 0, &[9]),
        start(0, 0, &[4]),
        start(0, 0, &[0, 1, 2]),
        closed,
        decide(Act::Park { run: RunId(0) }),
        decide(Act::Reject { request: RequestId(9) }),
        decide(Act::Expire { request: RequestId(0) }),
    ];
    let mut said: Vec<String> =
        attempts.iter().map(|decision| world.admit(at(1), decision).unwrap_err().to_string()).collect();
    world.admit(at(1), &start(0, 0, &[0])).unwrap();
    let late = [
        start(1, 0, &[1]),
        decide(Act::Park { run: RunId(0) }),
        decide(Act::Resume { run: RunId(0) }),
        decide(Act::Reject { request: RequestId(0) }),
    ];
    said.extend(late.iter().map(|decision| world.admit(at(1), decision).unwrap_err().to_string()));
    world.check();
    expect![[r#"
        model m7 is not served
        there is no partition p9
        a run needs requests, each once
        a run needs requests, each once
        there is no request r9, or it has ended
        r4 is for model m1
        3 rows are more than the model's 2
        the window has closed
        there is no run run0, or it has ended
        there is no request r9, or it has ended
        the deadline of r0 has not passed
        partition p0 is held by run0
        run0 cannot do that in state Ordered
        run0 cannot do that in state Ordered
        r0 does not wait"#]]
    .assert_eq(&said.join("\n"));
}

#[test]
fn a_run_that_failed_or_was_refused_leaves_nothing_behind() {
    let mut world = world();
    for id in 0..2 {
        world.apply(Time::ZERO, &request(id, 0, 1, None, Time::ZERO));
    }
    world.admit(at(1), &start(0, 0, &[0])).unwrap();
    world.apply(at(2), &Event::RunRefused { run: RunId(0) });
    assert_eq!(world.queue(ModelId(0)).by_arrival().count(), 2, "a refused run's request waits again");
    world.admit(at(3), &start(1, 0, &[0, 1])).unwrap();
    world.apply(at(4), &Event::RunStarted { run: RunId(1) });
    world.apply(at(5), &Event::RunFailed { run: RunId(1), why: "broken".into() });
    // Whatever is told about a run that is over changes nothing.
    for event in [
        Event::RunFinished { run: RunId(1), segments: vec![] },
        Event::RunParked { run: RunId(1), next_segment: 1, segments: vec![] },
        Event::RequestCancelled { request: RequestId(0) },
    ] {
        world.apply(at(6), &event);
    }
    world.check();
    assert_eq!(*world.ends(), Ends { failed: 2, ..Ends::default() });
    assert_eq!(world.idle().count(), 1);
}

#[test]
fn a_model_that_is_removed_rejects_its_queue_and_what_comes_later() {
    let mut world = world();
    let mut policy = Choice::Fifo.build();
    let events = [
        request(0, 0, 1, None, Time::ZERO),
        Event::ModelRemoved { model: ModelId(0) },
        request(1, 0, 1, None, Time::ZERO),
        request(2, 77, 1, None, Time::ZERO),
    ];
    let Turn { accepted, .. } = turn(&mut world, &mut *policy, at(1), &events);
    let said: Vec<String> = accepted.iter().map(|d| format!("{:?} because {}", d.act, d.why)).collect();
    world.check();
    assert_eq!(world.ends().rejected, 3);
    expect![[r#"
        Reject { request: RequestId(0) } because model m0 is not served
        Reject { request: RequestId(1) } because model m0 is not served
        Reject { request: RequestId(2) } because model m77 is not served"#]]
    .assert_eq(&said.join("\n"));
}

#[test]
fn costs_believe_the_worst_of_the_latest_ten() {
    let bucket = |rows: u32, length: u64| BucketCost { rows, segments: vec![ms(length), ms(3 * length)] };
    let mut costs = Costs::new(&[bucket(1, 10), bucket(4, 20)]);
    assert_eq!([1, 2, 4, 9].map(|rows| costs.of(rows)), [ms(40), ms(80), ms(80), ms(80)]);
    assert_eq!(costs.from_segment(1, 1), ms(30));
    costs.learn(3, ms(160));
    assert_eq!((costs.of(1), costs.of(4)), (ms(40), ms(160)), "each bucket learns for itself");
    assert_eq!(costs.from_segment(4, 1), ms(120), "what is left keeps the profile's proportions");
    for _ in 0..10 {
        costs.learn(4, ms(70));
    }
    assert_eq!(costs.of(4), ms(70), "an old outlier is forgotten");
}

/// A journal of a preemption: a low run is parked for a high request and goes on.
fn journal() -> Vec<u8> {
    let choice = Choice::named("windows").unwrap();
    let (mut world, mut policy) = (NodeWorld::new(), choice.build());
    let mut writer = Writer::new(Vec::new(), &choice).unwrap();
    let mut take = |now_ms: u64, events: Vec<Event>| {
        let turn = turn(&mut world, &mut *policy, at(now_ms), &events);
        world.check();
        writer.append(at(now_ms), &events, &turn.accepted).unwrap();
    };
    take(
        0,
        vec![
            Event::PartitionAdded { partition: PartitionId(0), name: "p0".into() },
            Event::ModelAdded { spec: spec(0, &[10, 10, 10]) },
            Event::ModelAdded { spec: spec(1, &[2]) },
        ],
    );
    take(1, vec![request(0, 0, 3, None, at(1))]);
    take(2, vec![Event::RunStarted { run: RunId(0) }]);
    take(5, vec![request(1, 1, 1, Some(100), at(5)), request(2, 1, 1, Some(6), at(5))]);
    take(12, vec![Event::RunParked { run: RunId(0), next_segment: 1, segments: vec![ms(10)] }]);
    take(13, vec![Event::RunStarted { run: RunId(1) }]);
    take(15, vec![Event::RunFinished { run: RunId(1), segments: vec![ms(2)] }]);
    take(16, vec![Event::RunResumed { run: RunId(0) }]);
    take(36, vec![Event::RunFinished { run: RunId(0), segments: vec![ms(10), ms(10)] }]);
    writer.into_inner()
}

fn records(journal: &[u8]) -> Vec<Record<Event, Decision>> {
    let (mut reader, _) = Reader::new::<Choice>(journal).unwrap();
    std::iter::from_fn(|| reader.next_turn().unwrap()).collect()
}

fn check_story(id: u64, expected: Expect) {
    expected.assert_eq(&explain(records(&journal()), RequestId(id)).unwrap());
}

#[test]
fn the_story_of_a_parked_request_names_who_it_was_parked_for() {
    check_story(
        0,
        expect![[r#"
            +0 ns         arrived for model0: class 3, 1 row(s), no deadline
            +0 ns         chosen for run0 on p0 with 0 other(s): it was the most urgent work (class 3 after ageing)
            +1.00 ms      run0 began on the device
            +4.00 ms      run0 asked to park: r1 of class 1 waits
            +11.00 ms     run0 parked before segment 1
            +11.00 ms     waits: p0 runs run1 of model1 (class 1)
            +14.00 ms     run0 resumed: it was the most urgent work (class 3 after ageing)
            +15.00 ms     run0 goes on
            +35.00 ms     run0 finished: answered
        "#]],
    );
}

#[test]
fn the_story_of_a_waiting_request_names_what_it_waited_for() {
    check_story(
        1,
        expect![[r#"
            +0 ns         arrived for model1: class 1, 1 row(s), due in 95.00 ms
            +0 ns         waits: p0 runs run0 of model0 (class 3)
            +7.00 ms      chosen for run1 on p0 with 0 other(s): it was the most urgent work (class 1 after ageing)
            +8.00 ms      run1 began on the device
            +10.00 ms     run1 finished: answered
        "#]],
    );
}

#[test]
fn the_story_of_a_refused_request_names_the_reason() {
    check_story(
        2,
        expect![[r#"
            +0 ns         arrived for model1: class 1, 1 row(s), due in 1.00 ms
            +0 ns         rejected: its answer needs 2.00 ms with the work ahead of it, its deadline leaves 1.00 ms
        "#]],
    );
    assert_eq!(explain(records(&journal()), RequestId(99)), None);
}

#[test]
fn a_timeline_is_balanced_and_shows_the_gap() {
    let mut timeline = Timeline::new(Vec::new()).unwrap();
    for record in records(&journal()) {
        timeline.turn(&record).unwrap();
    }
    let json: serde_json::Value = serde_json::from_slice(&timeline.finish().unwrap()).unwrap();
    let mut open: BTreeMap<(u64, u64), i64> = BTreeMap::new();
    let mut slices = Vec::new();
    for event in json["traceEvents"].as_array().unwrap() {
        let track = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        match event["ph"].as_str().unwrap() {
            "B" => {
                *open.entry(track).or_default() += 1;
                slices.push(format!("{} at {} µs", event["name"].as_str().unwrap(), event["ts"]));
            }
            "E" => *open.entry(track).or_default() -= 1,
            "i" => slices.push(format!("({} at {} µs)", event["name"].as_str().unwrap(), event["ts"])),
            _ => {}
        }
    }
    assert!(open.values().all(|depth| *depth == 0), "{open:?}");
    expect![[r#"
        (r2 rejected at 5000.0 µs)
        (park run0 at 5000.0 µs)
        model0 ×1 at 2000.0 µs
        segment 0 at 2000.0 µs
        model1 ×1 at 13000.0 µs
        segment 0 at 13000.0 µs
        model0 ×1 at 16000.0 µs
        segment 1 at 16000.0 µs
        segment 2 at 26000.0 µs"#]]
    .assert_eq(&slices.join("\n"));
}

#[test]
fn journals_replay_and_differences_are_found() {
    let journal = journal();
    let (mut reader, choice) = Reader::new::<Choice>(journal.as_slice()).unwrap();
    let same = replay(&mut reader, &mut NodeWorld::new(), &mut *choice.build()).unwrap();
    assert_eq!(same, Replay::Same { turns: 9, decisions: 5 });
    let (mut reader, _) = Reader::new::<Choice>(journal.as_slice()).unwrap();
    let other = replay(&mut reader, &mut NodeWorld::new(), &mut *Choice::Fifo.build()).unwrap();
    assert!(matches!(other, Replay::Differs { turn: 2, .. }), "{other:?}");
}

#[test]
fn damaged_journals_say_where() {
    let good = journal();
    let lines: Vec<&[u8]> = good.split_inclusive(|byte| *byte == b'\n').collect();
    let mut broken = lines[..2].concat();
    broken.extend(b"{\"now\": oops}\n");
    broken.extend(lines[2]);
    let read = |bytes: &[u8]| -> Result<usize, JournalError> {
        let (mut reader, _) = Reader::new::<Choice>(bytes)?;
        let mut turns = 0;
        while reader.next_turn::<Event, Decision>()?.is_some() {
            turns += 1;
        }
        Ok(turns)
    };
    let cut = &good[..good.len() - 5];
    assert_eq!(read(cut).unwrap(), lines.len() - 2, "a last line cut short by a crash ends the journal");
    let faults =
        [read(&broken), read(b""), read(b"{\"journal\":99,\"policy\":{}}\n"), read(b"not a journal\n")];
    let said: Vec<String> = faults.into_iter().map(|fault| fault.unwrap_err().to_string()).collect();
    expect![[r#"
        line 3 of the journal is damaged
        the journal is empty
        this is journal format 99, this raddle reads format 1
        line 1 of the journal is damaged"#]]
    .assert_eq(&said.join("\n"));
}

#[test]
fn a_rate_falls_when_nobody_asks_any_more() {
    let mut world = world();
    assert_eq!((world.row_gap(at(5), ModelId(0)), world.silence(at(5), ModelId(0))), (None, None));
    for id in 0..100u32 {
        world.apply(at(10 * u64::from(id)), &request(id.into(), 0, 1, None, at(10 * u64::from(id))));
    }
    // The latest 64 arrivals, until 990 ms.
    assert_eq!(world.row_gap(at(990), ModelId(0)), Some(ms(10)));
    assert_eq!(world.silence(at(1_010), ModelId(0)), Some(ms(20)));
    // Chance does that, and no more than it.
    let gap = |now: u64| world.row_gap(at(now), ModelId(0)).unwrap().as_ms_f64();
    assert!(gap(1_030) < 11.0, "{}", gap(1_030));
    assert!((gap(1_990) - 250.0).abs() < 1e-9, "{}", gap(1_990));
}
