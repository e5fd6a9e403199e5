//! The world under a random policy, the pair theorem against brute force, Synergy's promise.

use super::pair::{Member, queued, shared};
use super::policy::{Choice, Order, Random, Synergy, Tune};
use super::*;
use crate::{Policy, World, journal, turn};
use proptest::prelude::*;
use vocab::{Bytes, ModelId, Span, Time};

fn node(id: u32, gpus: u8) -> Event {
    let spec = NodeSpec {
        node: NodeId(id),
        rack: id / 2,
        kind: id % 2,
        gpus,
        slots: 2,
        cpu_milli: u64::from(gpus) * 3_000,
        memory: Bytes(u64::from(gpus) * 60),
        gpu_memory: Bytes(100),
    };
    Event::NodeAdded { spec }
}

fn job(id: u32, gpus: u32, cpu_milli: u64, memory: u64) -> Event {
    let gpu = GpuNeed { fixed: Bytes(10), per_row: Bytes(2), rows: 32, step_fixed_milli: 100 };
    let spec = JobSpec {
        job: JobId(id),
        model: ModelId(id % 3),
        arrival: Time::ZERO,
        gpus,
        elastic: (gpus.saturating_sub(id % 2).max(1), gpus),
        solo: Span::from_ns(1_000 + u64::from(id)),
        cpu_milli: cpu_milli * u64::from(gpus),
        memory: Bytes(memory * u64::from(gpus)),
        gpu,
        spread_milli: [1_000, 1_200, 1_500],
    };
    Event::JobArrived { spec }
}

fn fact() -> impl Strategy<Value = Event> {
    let id = 0u32..12;
    prop_oneof![
        3 => (id.clone(), 1u32..12, 0u64..9_000, 0u64..150).prop_map(|(id, g, c, m)| job(id, g, c, m)),
        1 => id.clone().prop_map(|id| Event::JobFinished { job: JobId(id) }),
        1 => id.clone().prop_map(|id| Event::JobFailed { job: JobId(id) }),
        1 => id.clone().prop_map(|id| Event::JobCancelled { job: JobId(id) }),
        1 => (id, 0u64..900).prop_map(|(id, left)| {
            Event::JobProgressed { job: JobId(id), left: Span::from_ns(left) }
        }),
        1 => (0u32..4).prop_map(|id| Event::NodeLost { node: NodeId(id) }),
        1 => (0u32..12, 1u64..900).prop_map(|(id, left)| Event::StepsCounted { job: JobId(id), left }),
        2 => (0u32..12, prop::collection::vec(1u64..900, 0..9)).prop_map(|(id, steps)| Event::SpeedMeasured {
            job: JobId(id),
            steps: steps.into_iter().map(Span::from_ns).collect(),
        }),
        1 => (
            0u64..9,
            prop::collection::vec((0u32..12, prop::collection::vec(0.0f64..1.0, 2)), 0..9),
            prop::collection::vec((0u32..12, 0u32..12, prop::collection::vec(0.0f64..1.0, 2)), 0..4),
        )
            .prop_map(|(number, shares, pairs)| {
                let real = |shares: Vec<f64>| shares.into_iter().map(Real::of).collect();
                let shares = shares.into_iter().map(|(id, shares)| (JobId(id), real(shares))).collect();
                let pair = |(a, b, shares)| PairShares { jobs: (JobId(a), JobId(b)), shares: real(shares) };
                let pairs = pairs.into_iter().map(pair).collect();
                Event::PlanReady { number, shares, pairs }
            }),
        1 => (0u32..12, 1u64..90).prop_map(|(id, ns)| {
            Event::RoundDone { job: JobId(id), took: Real::of(ns as f64 / 1e9) }
        }),
        1 => (0u32..12, prop::collection::vec(0u64..3, 2)).prop_map(|(id, micro)| {
            Event::RatesMeasured { job: JobId(id), micro }
        }),
        2 => (0u32..4, 1u8..9).prop_map(|(id, gpus)| node(id, gpus)),
        1 => (0u32..3, 0u32..3, 1_000u32..3_000).prop_map(|(model, beside, slowdown_milli)| {
            Event::PairMeasured { model: ModelId(model), beside: ModelId(beside), slowdown_milli }
        }),
    ]
}

fn policies() -> Vec<(bool, Box<dyn Policy<ClusterWorld>>)> {
    let mut all: Vec<(bool, Box<dyn Policy<ClusterWorld>>)> = vec![(false, Box::new(Random::new(7)))];
    for name in Choice::NAMES {
        all.push((true, Choice::named(name).expect("a listed name is known").build()));
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// The invariants hold whatever happens and whatever is decided, and real policies decide nothing impossible.
    #[test]
    fn the_world_keeps_its_books(turns in prop::collection::vec(prop::collection::vec(fact(), 0..6), 1..25)) {
        for (correct, mut policy) in policies() {
            let mut world = ClusterWorld::new();
            let mut journal = journal::Writer::new(Vec::new(), &()).unwrap();
            let mut now = Time::ZERO;
            for events in &turns {
                now += Span::from_ns(7);
                let taken = turn(&mut world, &mut *policy, now, events);
                world.check();
                prop_assert!(!correct || taken.refused.is_empty(), "{}: {:?}", policy.name(), taken.refused);
                journal.append(now, events, &taken.accepted).unwrap();
            }
            prop_assert!(!journal.into_inner().is_empty());
        }
    }

    /// A policy that comes in the middle decides nothing impossible, whoever ran before it.
    #[test]
    fn any_policy_can_take_over(
        before in prop::collection::vec(prop::collection::vec(fact(), 0..6), 1..12),
        after in prop::collection::vec(prop::collection::vec(fact(), 0..6), 1..12),
        first in 0..Choice::NAMES.len(),
    ) {
        let choice = Choice::named(Choice::NAMES[first]).expect("a listed name is known");
        // What shares GPUs goes on only under what shares them.
        prop_assume!(!matches!(choice, Choice::Sharing { .. }));
        for (_, mut policy) in policies() {
            let (mut world, mut now, mut old) = (ClusterWorld::new(), Time::ZERO, choice.build());
            for events in &before {
                now += Span::from_ns(7);
                turn(&mut world, &mut *old, now, events);
            }
            for (at, events) in after.iter().enumerate() {
                now += Span::from_ns(7);
                let mut events = events.clone();
                if at == 0 {
                    events.insert(0, Event::PolicyChanged);
                }
                let taken = turn(&mut world, &mut *policy, now, &events);
                world.check();
                let correct = policy.name() != "random";
                prop_assert!(!correct || taken.refused.is_empty(), "{}: {:?}", policy.name(), taken.refused);
            }
        }
    }

    /// Joining at no moment in between is better than at once or never, and the two costs are those of a simulation.
    #[test]
    fn the_pair_theorem_holds(a in 1u64..2_000, b in 1u64..2_000, xa in 1_000u64..4_000, xb in 1_000u64..4_000) {
        let new = Member { left: Span::from_ns(a), slowdown_milli: xa };
        let run = Member { left: Span::from_ns(b), slowdown_milli: xb };
        let (now, later) = (shared(new, run) as f64 / 1e3, queued(new, run) as f64 / 1e3);
        let at = |wait: f64| brute(wait, a as f64, b as f64, xa as f64 / 1e3, xb as f64 / 1e3);
        prop_assert!((now - at(0.0)).abs() < 0.01 && (later - at(b as f64)).abs() < 0.01);
        for step in 0..=50u32 {
            let between = at(b as f64 * f64::from(step) / 50.0);
            prop_assert!(between + 0.01 >= now.min(later), "{between} < {now}, {later} at step {step}");
        }
    }

    /// Tune runs every job that the GPUs suffice for, each with its even part or all it asked for.
    #[test]
    fn tune_is_never_below_proportional(wants in prop::collection::vec((1u32..5, 0u64..13_000, 0u64..250), 1..20)) {
        let mut events = vec![node(0, 8), node(1, 8), node(2, 8)];
        for (id, (gpus, cpu, memory)) in (0u32..).zip(&wants) {
            events.push(job(id, *gpus, *cpu, *memory));
        }
        let mut world = ClusterWorld::new();
        let mut policy = Synergy::new(Order::Arrival, Tune::Tune, Span::from_ns(300));
        turn(&mut world, &mut policy, Time::ZERO, &events);
        world.check();
        let mut room = 24;
        for job in (0..wants.len()).map(|id| world.known(JobId(u32::try_from(id).unwrap()))) {
            let gpus = job.spec.gpus;
            if gpus > room {
                continue;
            }
            room -= gpus;
            let grant = job.grant();
            prop_assert!(grant.is_some(), "{} waits though GPUs suffice", job.spec.job);
            let grant = grant.unwrap();
            let even = 3_000 * u64::from(gpus);
            prop_assert!(grant.cpu_milli() >= job.spec.cpu_milli.min(even));
            prop_assert!(grant.memory().0 >= job.spec.memory.0.min(60 * u64::from(gpus)));
        }
    }
}

/// Sum of both completion times when the newcomer joins after `wait`, by following the two clocks.
fn brute(wait: f64, mut a: f64, mut b: f64, xa: f64, xb: f64) -> f64 {
    b -= wait;
    if a * xa <= b * xb {
        let end = wait + a * xa;
        b -= a * xa / xb;
        end + end + b
    } else {
        let end = wait + b * xb;
        a -= b * xb / xa;
        end + end + a
    }
}

#[test]
fn equal_jobs_share_below_one_and_a_half() {
    let pays = |slowdown_milli| {
        let one = Member { left: Span::from_ns(1_000), slowdown_milli };
        shared(one, one) < queued(one, one)
    };
    assert!(pays(1_499) && !pays(1_500));
    let short = Member { left: Span::from_ns(100), slowdown_milli: 3_000 };
    let long = Member { left: Span::from_ns(1_000), slowdown_milli: 3_000 };
    assert!(shared(short, long) < queued(short, long), "a short newcomer gains even at three times slower");
}

#[test]
fn a_journal_replays_to_the_same_decisions() {
    let choice = Choice::named("srtf").unwrap();
    let mut writer = journal::Writer::new(Vec::new(), &choice).unwrap();
    let (mut world, mut policy) = (ClusterWorld::new(), choice.build());
    let mut events = vec![node(0, 4), node(1, 4)];
    for step in 0..40u32 {
        let now = Time::from_ns(u64::from(step) * 10);
        events.push(job(step, 1 + step % 6, 0, 0));
        if step % 3 == 0 {
            events.push(Event::JobFinished { job: JobId(step / 2) });
        }
        let taken = turn(&mut world, &mut *policy, now, &events);
        writer.append(now, &events, &taken.accepted).unwrap();
        events.clear();
    }
    let bytes = writer.into_inner();
    let (mut reader, choice) = journal::Reader::new::<Choice>(&bytes[..]).unwrap();
    let replay = journal::replay(&mut reader, &mut ClusterWorld::new(), &mut *choice.build()).unwrap();
    assert!(matches!(replay, journal::Replay::Same { turns: 40, decisions } if decisions > 10), "{replay:?}");
}

#[test]
fn a_lease_ends_by_itself_unless_extended() {
    let mut world = ClusterWorld::new();
    world.apply(Time::ZERO, &node(0, 2));
    world.apply(Time::ZERO, &job(0, 1, 0, 0));
    let piece = Piece { node: NodeId(0), gpus: GpuMask(1), cpu_milli: 0, memory: Bytes(0) };
    let (id, at) = (JobId(0), Time::from_ns);
    let start = Decision::Start { job: id, grant: Grant::whole(vec![piece]), lease: Some(at(10)) };
    world.admit(Time::ZERO, &start).unwrap();
    world.admit(at(5), &Decision::Extend { job: id, until: at(20) }).unwrap();
    assert_eq!(world.forced(at(10)), []);
    assert_eq!(world.wake(), Some(at(20)));
    assert_eq!(world.forced(at(20)), [Decision::Stop { job: id }]);
}

#[test]
fn a_story_tells_why_a_job_waited() {
    let mut story = explain::Story::of(JobId(1));
    let mut policy = Choice::named("srtf").unwrap().build();
    let mut world = ClusterWorld::new();
    let mut take = |now: u64, events: &[Event]| {
        let now = Time::from_ns(now);
        let taken = turn(&mut world, &mut *policy, now, events);
        story.turn(now, events, &taken.accepted);
    };
    take(0, &[node(0, 4), job(0, 3, 0, 0), job(1, 3, 0, 0)]);
    take(10, &[Event::JobFinished { job: JobId(0) }]);
    take(20, &[job(2, 2, 0, 0), Event::JobProgressed { job: JobId(1), left: Span::from_ns(9_000) }]);
    take(30, &[Event::JobFinished { job: JobId(2) }]);
    take(40, &[Event::NodeLost { node: NodeId(0) }]);
    take(50, &[node(0, 4)]);
    take(60, &[Event::JobFinished { job: JobId(1) }]);
    let lines: Vec<String> = story.lines.iter().map(|(at, why)| format!("{} {why}", at.ns())).collect();
    expect_test::expect![[r#"
        0 waits: needs 2 GPUs at once, 1 are free, 1 jobs hold the others
        10 runs on 3 GPUs of 1 nodes
        20 was stopped while j2 started
        30 runs on 3 GPUs of 1 nodes
        40 lost a node it ran on, or failed
        50 runs on 3 GPUs of 1 nodes
        60 ended"#]]
    .assert_eq(&lines.join("\n"));
}

/// A profile from few points is within a tenth of the whole table, and takes fewer measurements.
#[test]
fn optimistic_profiles_are_close_and_cheap() {
    let axis = [1, 2, 3, 4, 5, 6, 9, 12, 24];
    let memories = [20, 60, 125, 187, 250].map(|gb| Bytes(gb << 30));
    let mut told = String::new();
    for (name, per_cpu, gpu) in [("image", 500, 6_000), ("language", 4_000, 4_000), ("speech", 900, 4_500)] {
        let truth = |cpus: u32| (u64::from(cpus) * per_cpu).min(gpu) * 1_000;
        let mut count = 0;
        let by_cpu = minio::optimistic(&axis, |cpus| {
            count += 1;
            truth(cpus)
        });
        let measured =
            minio::Measured { by_cpu, data: Bytes(150 << 30), item: Bytes(110_000), store: Bytes(500 << 20) };
        for cpus in axis {
            let (found, exact) = (measured.rate(cpus, memories[4]), truth(cpus));
            assert!(found.abs_diff(exact) * 10 <= exact, "{name} with {cpus} CPUs: {found}, truly {exact}");
            for memory in memories {
                let rate = measured.rate(cpus, memory);
                assert!(rate <= measured.rate(cpus, memories[4]) && rate <= measured.rate(24, memory));
            }
        }
        let (cpus, memory) = measured.demand(&axis, &memories, 1).unwrap();
        told += &format!("{name}: {count} of 45 points, wants {cpus} CPUs and {} GiB\n", memory.0 >> 30);
    }
    expect_test::expect![[r#"
        image: 9 of 45 points, wants 12 CPUs and 60 GiB
        language: 2 of 45 points, wants 1 CPUs and 20 GiB
        speech: 6 of 45 points, wants 5 CPUs and 20 GiB
    "#]]
    .assert_eq(&told);
}

/// The index prefers fresh jobs where most are short, and old ones where jobs end at a known age.
#[test]
fn gittins_knows_the_shape_of_what_ended() {
    let spans = |values: &[u64]| values.iter().map(|value| Span::from_ns(*value)).collect::<Vec<_>>();
    let heavy = policy::indices(&spans(&[1, 1, 1, 1, 1, 1, 1, 1_000, 1_000, 1_000]), 10);
    assert!(heavy.first().unwrap().1 > heavy.last().unwrap().1, "{heavy:?}");
    let known = policy::indices(&spans(&[90, 95, 99, 100, 100, 101, 102, 105, 108, 110]), 4);
    assert!(known[1..].iter().all(|(_, index)| *index > known[0].1), "{known:?}");
    assert_eq!(policy::indices(&[], 4), [(Span::ZERO, 0)]);
}

#[test]
fn a_job_that_waits_too_long_is_promoted() {
    let mut policy = policy::Las::new(vec![Span::from_ns(10)], true, 2, policy::Place::Anywhere);
    let mut world = ClusterWorld::new();
    let at = Time::from_ns;
    turn(&mut world, &mut policy, at(0), &[node(0, 1), job(0, 1, 0, 0)]);
    // It is demoted at 20, stopped for a newcomer that is always fresh, and promoted after twice its 20 ns.
    let mut wakes = Vec::new();
    for step in 1..=12u64 {
        let newcomer = JobId(u32::try_from(step).unwrap());
        let mut events = vec![job(newcomer.0, 1, 0, 0)];
        if step > 1 {
            events.push(Event::JobFinished { job: JobId(newcomer.0 - 1) });
        }
        turn(&mut world, &mut policy, at(step * 20), &events);
        wakes.push(world.known(JobId(0)).grant().is_some());
    }
    assert!(!wakes[0] && wakes.contains(&true), "{wakes:?}");
}
