//! What the world refuses where devices are shared in parts, and what stories say of it.

use super::*;

const A: ModelId = ModelId(0);
const B: ModelId = ModelId(1);

fn part(first: u32, units: u32) -> Part {
    Part { first: Some(first), units }
}

/// Two models on four units: two halves, and the whole.
fn shared(overlap: u32, rules: &[Rule]) -> NodeWorld {
    let mut world = NodeWorld::new();
    for (id, name) in (0..).zip(["left", "right", "whole"]) {
        world.apply(Time::ZERO, &Event::PartitionAdded { partition: PartitionId(id), name: name.into() });
    }
    let parts = (0..).map(PartitionId).zip([part(0, 2), part(2, 2), part(0, 4)]).collect();
    world.apply(Time::ZERO, &Event::PartsShared { units: 4, overlap, parts });
    world.apply(Time::ZERO, &Event::RulesSet { rules: rules.to_vec() });
    for id in 0..2 {
        world.apply(Time::ZERO, &Event::ModelAdded { spec: spec(id, &[10, 10]) });
    }
    for id in 0..4 {
        let model = u32::try_from(id % 2).unwrap();
        world.apply(Time::ZERO, &request(id, model, 1, None, Time::ZERO));
    }
    world
}

/// Starts request `id` on a partition; what is said when it cannot.
fn start(world: &mut NodeWorld, id: u64, partition: u16) -> String {
    let act = Act::Start {
        run: world.next_run(),
        model: ModelId(u32::try_from(id % 2).unwrap()),
        partition: PartitionId(partition),
        requests: vec![RequestId(id)],
        window: Window::from(Time::ZERO),
    };
    let decision = Decision { act, why: Why::Oldest };
    world.admit(Time::ZERO, &decision).map_or_else(|refusal| refusal.to_string(), |()| "begun".into())
}

#[test]
fn units_and_tenants_keep_their_limits() {
    let mut lines = Vec::new();
    let mut world = shared(1, &[]);
    lines.push(start(&mut world, 0, 0));
    lines.push(start(&mut world, 1, 2));
    lines.push(start(&mut world, 1, 1));
    let mut world = shared(2, &[Rule::Apart(A, B)]);
    lines.push(start(&mut world, 0, 2));
    lines.push(start(&mut world, 2, 0));
    lines.push(start(&mut world, 1, 1));
    let mut world = shared(1, &[Rule::Floor { model: B, units: 2 }]);
    lines.push(start(&mut world, 0, 2));
    lines.push(start(&mut world, 0, 0));
    lines.push(start(&mut world, 2, 1));
    lines.push(start(&mut world, 1, 1));
    world.check();
    expect![[r#"
        begun
        4 units of partition p2 are not free: its device bears 1 run(s) a unit
        begun
        begun
        begun
        model m1 never runs beside model m0, which is running
        model m1 is promised a part of 2 units, and there would be none left
        begun
        model m1 is promised a part of 2 units, and there would be none left
        begun"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn stages_end_where_they_are_told_and_runs_stay_on_their_device() {
    let mut world = shared(1, &[]);
    assert_eq!(start(&mut world, 0, 0), "begun");
    let run = RunId(0);
    let mut tell = |act: Act| {
        let told = world.admit(at(0), &Decision { act, why: Why::Oldest });
        told.map_or_else(|refusal| refusal.to_string(), |()| "yes".into())
    };
    let lines = [
        tell(Act::Until { run, segment: 2 }),
        tell(Act::Until { run, segment: 1 }),
        tell(Act::Move { run, partition: PartitionId(1) }),
    ];
    world.apply(at(0), &Event::RunStarted { run });
    world.apply(at(10), &Event::RunParked { run, next_segment: 1, segments: vec![ms(10)] });
    let mut tell = |act: Act| {
        let told = world.admit(at(10), &Decision { act, why: Why::Oldest });
        told.map_or_else(|refusal| refusal.to_string(), |()| "yes".into())
    };
    let more = [
        tell(Act::Move { run, partition: PartitionId(9) }),
        tell(Act::Move { run, partition: PartitionId(1) }),
        tell(Act::Resume { run }),
        tell(Act::Until { run, segment: 1 }),
    ];
    assert_eq!(world.run(run).map(|run| run.partition), Some(PartitionId(1)));
    expect![[r#"
        run0 cannot stop before segment 2
        yes
        run0 cannot do that in state Ordered
        there is no partition p9
        yes
        yes
        run0 cannot stop before segment 1"#]]
    .assert_eq(&lines.into_iter().chain(more).collect::<Vec<_>>().join("\n"));
}

#[test]
fn costs_of_parts_lie_between_their_neighbours() {
    let bucket = |length: u64| vec![BucketCost { rows: 1, segments: vec![ms(length)] }];
    let parts = PartCosts {
        units: 16,
        parts: vec![PartCost { units: 4, costs: bucket(40) }, PartCost { units: 8, costs: bucket(20) }],
    };
    let mut costs = Costs::with_parts(&bucket(12), &parts);
    let on = |costs: &Costs, units| costs.of_on(1, Some(units)).as_ms_f64();
    // 12 + (20 - 12) · (1/12 - 1/16) / (1/8 - 1/16), and all of 40 ms on fewer units than were measured.
    assert_eq!([2, 4, 8, 16].map(|units| on(&costs, units)), [80.0, 40.0, 20.0, 12.0]);
    assert!((on(&costs, 12) - (12.0 + 8.0 / 3.0)).abs() < 1e-3, "{}", on(&costs, 12));
    costs.learn_on(1, Some(8), ms(30));
    assert_eq!((on(&costs, 8), costs.of(1)), (30.0, ms(12)), "each size learns for itself");
    assert!(on(&costs, 6) >= 30.0 && on(&costs, 6) <= 40.0);
}
