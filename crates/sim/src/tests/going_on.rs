//! Simulations that begin where another world was, and what a live run gives them: lags of arrivals, launches.

use crate::{Arrivals, Scenario, Simulation};
use sched::node::policy::Choice;
use sched::node::{Decision, Event, NodeWorld};
use sched::turn;
use vocab::{Span, Time};

type Turns = Vec<(Time, Vec<Event>, Vec<Decision>)>;

/// Two models on parts, asked at these times, ms.
fn scenario(a_ms: &[u64], b_ms: &[u64]) -> Scenario {
    let text = "
        duration_ms = 100000
        [space]
        units = 4
        grid = 1
        [[models]]
        name = \"a\"
        batches = [{ rows = 1, segments_us = [6000] }, { rows = 4, segments_us = [9000] }]
        deadline_us = 40000
        [[models]]
        name = \"b\"
        batches = [{ rows = 1, segments_us = [5000] }, { rows = 4, segments_us = [7000] }]
        deadline_us = 60000
        [[loads]]
        model = \"a\"
        arrivals = { kind = \"trace\", at_ns = [] }
        [[loads]]
        model = \"b\"
        arrivals = { kind = \"trace\", at_ns = [] }";
    let mut scenario: Scenario = toml::from_str(text).unwrap();
    for (load, times) in scenario.loads.iter_mut().zip([a_ms, b_ms]) {
        load.arrivals = Arrivals::at(times.iter().map(|ms| ms * 1_000_000).collect());
    }
    assert_eq!(scenario.faults(), Vec::<String>::new());
    scenario
}

fn turns(simulation: Simulation) -> Turns {
    let mut turns = Turns::new();
    let outcome = simulation.checked().run(|now, events, decisions| {
        turns.push((now, events.to_vec(), decisions.to_vec()));
        Ok(())
    });
    outcome.unwrap();
    turns
}

/// Where runs began, after `since`.
fn starts(turns: &Turns, since: Time) -> Vec<String> {
    let text = |now: &Time, decision: &Decision| match &decision.act {
        sched::node::Act::Start { model, partition, requests, .. } => {
            Some(format!("{} {model} on {partition}: {} rows", now.since(since), requests.len()))
        }
        _ => None,
    };
    let later = turns.iter().filter(|(now, _, _)| *now >= since);
    later.flat_map(|(now, _, decisions)| decisions.iter().filter_map(move |d| text(now, d))).collect()
}

#[test]
fn what_goes_on_from_a_journal_is_what_would_have_come() {
    let before: Vec<u64> = (0..200).map(|at| 3 * at).collect();
    let after: Vec<u64> = (0..100).map(|at| 4 * at).collect();
    let origin = Time::ZERO + Span::from_ms(1_000);
    let both = |times: &[u64]| -> Vec<u64> {
        before.iter().copied().chain(times.iter().map(|ms| ms + 1_000)).collect()
    };
    for policy in Choice::NAMES {
        let choice = Choice::named(policy).unwrap();
        let whole = turns(Simulation::new(&scenario(&both(&after), &both(&after[..50])), &choice));
        let (mut world, mut policy_now) = (NodeWorld::new(), choice.build());
        for (now, events, decisions) in whole.iter().take_while(|(now, _, _)| *now < origin) {
            assert_eq!(turn(&mut world, &mut *policy_now, *now, events).accepted, *decisions);
        }
        let state = (world.clone(), policy_now.fork() as _);
        let gone_on =
            starts(&turns(Simulation::going_on(&scenario(&after, &after[..50]), state, origin)), origin);
        assert_eq!(gone_on, starts(&whole, origin), "{policy}");
        // It can be done again from the same state.
        let state = (world, policy_now as _);
        let again =
            starts(&turns(Simulation::going_on(&scenario(&after, &after[..50]), state, origin)), origin);
        assert_eq!(gone_on, again, "{policy}");
        assert!(gone_on.len() > 20, "{policy}: {}", gone_on.len());
    }
}

#[test]
fn an_arrival_may_be_heard_of_later() {
    let mut scenario = scenario(&[10, 11], &[]);
    scenario.loads[0].arrivals =
        Arrivals::Trace { at_ns: vec![10_000_000, 11_000_000], lag_ns: vec![3_000_000, 500_000] };
    let turns = turns(Simulation::new(&scenario, &Choice::Fifo));
    let heard = turns.iter().flat_map(|(now, events, _)| {
        events.iter().filter_map(move |event| match event {
            Event::RequestArrived { request } => Some((now.ns() / 1_000, request.arrival.ns() / 1_000)),
            _ => None,
        })
    });
    // Who asks later is not heard earlier.
    assert_eq!(heard.collect::<Vec<(u64, u64)>>(), [(13_000, 10_000), (13_000, 11_000)]);
    scenario.loads[0].arrivals = Arrivals::Trace { at_ns: vec![1, 2], lag_ns: vec![3] };
    let faults = scenario.faults().join("; ");
    assert!(faults.contains("2 times and 1 lags; give one for each time, or none"), "{faults}");
}

#[test]
fn measured_launches_take_the_place_of_one() {
    let mut scenario = scenario(&[0, 100, 200, 300], &[]);
    scenario.launch_us = 50;
    scenario.launches_us = vec![1_000, 2_000];
    scenario.factor_block = 4;
    let turns = turns(Simulation::new(&scenario, &Choice::Fifo));
    let at = |wanted: fn(&Event) -> bool| -> Vec<u64> {
        let found = turns.iter().filter(|(_, events, _)| events.iter().any(wanted));
        found.map(|(now, _, _)| now.ns() / 1_000_000 % 100).collect()
    };
    let begun = at(|event| matches!(event, Event::RunStarted { .. }));
    let over = at(|event| matches!(event, Event::RunFinished { .. }));
    // A run of 6 ms with one launch before and one after it.
    assert_eq!(over, begun.iter().map(|begun| 6 + 2 * begun).collect::<Vec<_>>());
    assert!(begun == [1, 2, 1, 2] || begun == [2, 1, 2, 1], "{begun:?}");
    // Nobody is told that a run computes no more before its end is known.
    assert!(turns.iter().all(|(_, events, _)| !events.is_empty()));
}
