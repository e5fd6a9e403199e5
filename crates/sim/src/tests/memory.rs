//! Device memory and links: stories of switches, and books kept apart from the world's.

use super::*;
use sched::node::{Decision, WeightGroup};
use std::ops::AddAssign;
use vocab::{Bytes, DeviceId, ModelId, PartitionId, RunId};

/// What a ledger has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) loads: u64,
    pub(super) evictions: u64,
    /// Evictions that kept some groups.
    pub(super) partial: u64,
    /// Runs decided before all weights were there.
    pub(super) cold_starts: u64,
}

impl AddAssign for Seen {
    fn add_assign(&mut self, other: Self) {
        self.loads += other.loads;
        self.evictions += other.evictions;
        self.partial += other.partial;
        self.cold_starts += other.cold_starts;
    }
}

/// Memory as turns tell of it, kept without the world: no device over its size, no run without weights.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    sizes: BTreeMap<DeviceId, Bytes>,
    devices: BTreeMap<PartitionId, DeviceId>,
    weights: BTreeMap<ModelId, Vec<WeightGroup>>,
    /// Groups reserved and groups there.
    places: BTreeMap<(DeviceId, ModelId), (u32, u32)>,
    runs: BTreeMap<RunId, (DeviceId, ModelId)>,
    pub(super) seen: Seen,
}

impl Ledger {
    pub(super) fn turn(&mut self, events: &[Event], decisions: &[Decision]) {
        events.iter().for_each(|event| self.event(event));
        for decision in decisions {
            self.decision(decision);
            for (device, size) in &self.sizes {
                let held = self.places.iter().filter(|((at, _), _)| at == device);
                let held: Bytes = held.map(|((_, model), (reserved, _))| self.bytes(*model, *reserved)).sum();
                assert!(held <= *size, "{device} holds {held} of {size} after {decision:?}");
            }
        }
    }

    fn groups(&self, model: ModelId) -> u32 {
        u32::try_from(self.weights.get(&model).map_or(0, Vec::len)).unwrap()
    }

    fn bytes(&self, model: ModelId, groups: u32) -> Bytes {
        self.weights[&model].iter().take(groups as usize).map(|group| group.bytes).sum()
    }

    fn there(&self, device: DeviceId, model: ModelId) -> bool {
        self.places.get(&(device, model)).map_or(0, |place| place.1) == self.groups(model)
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::DeviceAdded { device, memory, partitions, .. } => {
                self.sizes.insert(*device, *memory);
                self.devices.extend(partitions.iter().map(|partition| (*partition, *device)));
            }
            Event::WeightsStored { model, groups } => drop(self.weights.insert(*model, groups.clone())),
            Event::GroupsArrived { model, device, groups } => {
                let (reserved, there) = self.places.get_mut(&(*device, *model)).unwrap();
                assert!(*groups <= *reserved && *there < *groups, "{event:?}");
                *there = *groups;
            }
            Event::RunFinished { run, .. } => {
                if let Some((device, model)) = self.runs.remove(run) {
                    assert!(self.there(device, model), "{run} finished before its weights were there");
                }
            }
            Event::RunAbandoned { run } | Event::RunRefused { run } => drop(self.runs.remove(run)),
            _ => {}
        }
    }

    fn decision(&mut self, decision: &Decision) {
        match &decision.act {
            Act::Load { model, device } => {
                self.seen.loads += 1;
                let all = self.groups(*model);
                self.places.entry((*device, *model)).or_default().0 = all;
            }
            Act::Evict { model, device, keep } => {
                self.seen.evictions += 1;
                self.seen.partial += u64::from(*keep > 0);
                assert!(
                    !self.runs.values().any(|used| used == &(*device, *model)),
                    "{decision:?} of a model in use"
                );
                let place = self.places.get_mut(&(*device, *model)).unwrap();
                *place = (*keep, place.1.min(*keep));
            }
            Act::Start { run, model, partition, .. } => {
                let Some(device) = self.devices.get(partition).copied() else { return };
                let reserved = self.places.get(&(device, *model)).map_or(0, |place| place.0);
                assert_eq!(reserved, self.groups(*model), "{decision:?} without weights");
                self.seen.cold_starts += u64::from(!self.there(device, *model));
                self.runs.insert(*run, (device, *model));
            }
            _ => {}
        }
    }
}

/// Two models of 30 MB on a device that holds one and a half, asked in turn: 3 ms of travel, 3 ms of compute each.
const ALTERNATING: &str = "device 45
    model a 1:1,1,1 weights:10,10,10
    model b 1:1,1,1 weights:10,10,10
    at 0 a
    at 1 b
    at 20 a";

#[test]
fn fifo_loads_a_model_as_a_whole_before_it_runs() {
    check(
        "fifo",
        ALTERNATING,
        expect![[r#"
        0      load m0 to d0, because r0 is about to run
        1      m0 has 1 group(s)
        2      m0 has 2 group(s)
        3      m0 has 3 group(s)
        3      start run0 of m0 on p0: r0, because it had waited longest
        6      run0 finished
        6      evict m0 from d0 but for 1, because model m1 needs 28.6 MiB, 14.3 MiB were free, and it was used least recently
        6      load m1 to d0, because r1 is about to run
        7      m1 has 1 group(s)
        8      m1 has 2 group(s)
        9      m1 has 3 group(s)
        9      start run1 of m1 on p0: r1, because it had waited longest
        12     run1 finished
        20     evict m1 from d0 but for 1, because model m0 needs 19.1 MiB, 4.8 MiB were free, and it was used least recently
        20     load m0 to d0, because r2 is about to run
        21     m0 has 2 group(s)
        22     m0 has 3 group(s)
        22     start run2 of m0 on p0: r2, because it had waited longest
        25     run2 finished
    "#]],
    );
}

#[test]
fn pipeswitch_computes_while_weights_travel_and_keeps_the_first_groups() {
    check(
        "pipeswitch",
        ALTERNATING,
        expect![[r#"
        0      load m0 to d0, because r0 is about to run
        0      start run0 of m0 on p0: r0, because it came first in class 1, the strictest that waits
        1      m0 has 1 group(s)
        2      m0 has 2 group(s)
        3      m0 has 3 group(s)
        4      run0 finished
        4      evict m0 from d0 but for 1, because model m1 needs 28.6 MiB, 14.3 MiB were free, and it was used least recently
        4      load m1 to d0, because r1 is about to run
        4      start run1 of m1 on p0: r1, because it came first in class 1, the strictest that waits
        5      m1 has 1 group(s)
        6      m1 has 2 group(s)
        7      m1 has 3 group(s)
        8      run1 finished
        20     evict m1 from d0 but for 1, because model m0 needs 19.1 MiB, 4.8 MiB were free, and it was used least recently
        20     load m0 to d0, because r2 is about to run
        20     start run2 of m0 on p0: r2, because it came first in class 1, the strictest that waits
        21     m0 has 2 group(s)
        22     m0 has 3 group(s)
        23     run2 finished
    "#]],
    );
}

#[test]
fn pipeswitch_loads_the_next_model_while_one_runs() {
    check(
        "pipeswitch",
        "device 100
         model a 1:5,5 weights:10,10
         model b 1:5,5 weights:10,10
         at 0 a
         at 1 b
         at 2 a",
        expect![[r#"
            0      load m0 to d0, because r0 is about to run
            0      start run0 of m0 on p0: r0, because it came first in class 1, the strictest that waits
            1      m0 has 1 group(s)
            2      m0 has 2 group(s)
            2      load m1 to d0, because r1 runs next
            3      m1 has 1 group(s)
            4      m1 has 2 group(s)
            11     run0 finished
            11     start run1 of m1 on p0: r1, because it came first in class 1, the strictest that waits
            21     run1 finished
            21     start run2 of m0 on p0: r2, because it came first in class 1, the strictest that waits
            31     run2 finished
        "#]],
    );
}

#[test]
fn pipeswitch_parks_a_looser_class_and_loads_for_the_stricter_meanwhile() {
    check(
        "pipeswitch",
        "device 100
         model slow 1:10,10,10 weights:10,10,10
         model fast 1:2 weights:30
         at 0 slow class=2
         at 4 fast class=1",
        expect![[r#"
            0      load m0 to d0, because r0 is about to run
            0      start run0 of m0 on p0: r0, because it came first in class 2, the strictest that waits
            1      m0 has 1 group(s)
            2      m0 has 2 group(s)
            3      m0 has 3 group(s)
            4      park run0, because r1 of class 1 waits
            4      load m1 to d0, because r1 runs next
            7      m1 has 1 group(s)
            11     run0 parked before segment 1
            11     start run1 of m1 on p0: r1, because it came first in class 1, the strictest that waits
            13     run1 finished
            13     resume run0, because it came first in class 2, the strictest that waits
            33     run0 finished
        "#]],
    );
}

#[test]
fn what_finds_no_room_beside_a_parked_run_does_not_stop_it_again() {
    for policy in ["pipeswitch", "windows"] {
        let text = "device 50
            model slow 1:10,10 weights:30,10
            model small 1:2 weights:10
            model large 1:2 weights:20
            at 0 slow class=3
            at 4 large class=1
            at 5 small class=2";
        check(
            policy,
            text,
            if policy == "windows" {
                expect![[r#"
            0      load m0 to d0, because r0 is about to run
            0      start run0 of m0 on p0: r0, because it was the most urgent work (class 3 after ageing)
            3      m0 has 1 group(s)
            4      m0 has 2 group(s)
            5      park run0, because r2 of class 2 waits
            13     run0 parked before segment 1
            13     load m1 to d0, because r2 is about to run
            13     start run1 of m1 on p0: r2, because it was the most urgent work (class 2 after ageing)
            14     m1 has 1 group(s)
            16     run1 finished
            16     resume run0, because it was the most urgent work (class 3 after ageing)
            26     run0 finished
            26     evict m1 from d0 but for 0, because model m2 needs 19.1 MiB, 0 B were free, and it was used least recently
            26     evict m0 from d0 but for 1, because model m2 needs 19.1 MiB, 0 B were free, and it was used least recently
            26     load m2 to d0, because r1 is about to run
            26     start run2 of m2 on p0: r1, because it was the most urgent work (class 1 after ageing)
            28     m2 has 1 group(s)
            30     run2 finished
        "#]]
            } else {
                expect![[r#"
            0      load m0 to d0, because r0 is about to run
            0      start run0 of m0 on p0: r0, because it came first in class 3, the strictest that waits
            3      m0 has 1 group(s)
            4      m0 has 2 group(s)
            23     run0 finished
            23     evict m0 from d0 but for 1, because model m2 needs 19.1 MiB, 9.5 MiB were free, and it was used least recently
            23     load m2 to d0, because r1 is about to run
            23     start run1 of m2 on p0: r1, because it came first in class 1, the strictest that waits
            25     m2 has 1 group(s)
            25     evict m0 from d0 but for 0, because model m1 needs 9.5 MiB, 0 B were free, and it was used least recently
            25     load m1 to d0, because r2 runs next
            26     m1 has 1 group(s)
            27     run1 finished
            27     start run2 of m1 on p0: r2, because it came first in class 2, the strictest that waits
            29     run2 finished
        "#]]
            },
        );
    }
}

#[test]
fn timeslice_and_windows_make_room_too() {
    check(
        "timeslice",
        ALTERNATING,
        expect![[r#"
        0      load m0 to d0, because r0 is about to run
        0      start run0 of m0 on p0: r0, because it was its model's turn
        1      m0 has 1 group(s)
        2      m0 has 2 group(s)
        3      m0 has 3 group(s)
        4      run0 finished
        4      evict m0 from d0 but for 1, because model m1 needs 28.6 MiB, 14.3 MiB were free, and it was used least recently
        4      load m1 to d0, because r1 is about to run
        4      start run1 of m1 on p0: r1, because it was its model's turn
        5      m1 has 1 group(s)
        6      m1 has 2 group(s)
        7      m1 has 3 group(s)
        8      run1 finished
        20     evict m1 from d0 but for 1, because model m0 needs 19.1 MiB, 4.8 MiB were free, and it was used least recently
        20     load m0 to d0, because r2 is about to run
        20     start run2 of m0 on p0: r2, because it was its model's turn
        21     m0 has 2 group(s)
        22     m0 has 3 group(s)
        23     run2 finished
    "#]],
    );
    check(
        "windows",
        ALTERNATING,
        expect![[r#"
        0      load m0 to d0, because r0 is about to run
        0      start run0 of m0 on p0: r0, because it was the most urgent work (class 1 after ageing)
        1      m0 has 1 group(s)
        2      m0 has 2 group(s)
        3      m0 has 3 group(s)
        4      run0 finished
        4      evict m0 from d0 but for 1, because model m1 needs 28.6 MiB, 14.3 MiB were free, and it was used least recently
        4      load m1 to d0, because r1 is about to run
        4      start run1 of m1 on p0: r1, because it was the most urgent work (class 1 after ageing)
        5      m1 has 1 group(s)
        6      m1 has 2 group(s)
        7      m1 has 3 group(s)
        8      run1 finished
        20     evict m1 from d0 but for 1, because model m0 needs 19.1 MiB, 4.8 MiB were free, and it was used least recently
        20     load m0 to d0, because r2 is about to run
        20     start run2 of m0 on p0: r2, because it was the most urgent work (class 1 after ageing)
        21     m0 has 2 group(s)
        22     m0 has 3 group(s)
        23     run2 finished
    "#]],
    );
}

#[test]
fn windows_counts_the_travel_of_weights_against_the_deadline() {
    check(
        "windows",
        "device 100
         model a 1:1,1 weights:50,50
         at 0 a timeout=9
         at 1 a timeout=11
         at 20 a timeout=3",
        expect![[r#"
            0      reject r0, because its answer needs 10.00 ms with the work ahead of it, its deadline leaves 9.00 ms
            1      load m0 to d0, because r1 is about to run
            1      start run0 of m0 on p0: r1, because it was the most urgent work (class 1 after ageing)
            6      m0 has 1 group(s)
            11     m0 has 2 group(s)
            12     run0 finished
            20     start run1 of m0 on p0: r2, because it was the most urgent work (class 1 after ageing)
            22     run1 finished
        "#]],
    );
}

#[test]
fn devices_have_memory_and_links_of_their_own() {
    check(
        "pipeswitch",
        "partitions 2
         device 30 count=2
         model a 1:10 weights:30
         model b 1:10 weights:30
         at 0 a
         at 0 b
         at 30 b
         at 31 a",
        expect![[r#"
            0      load m0 to d0, because r0 is about to run
            0      start run0 of m0 on p0: r0, because it came first in class 1, the strictest that waits
            0      load m1 to d1, because r1 is about to run
            0      start run1 of m1 on p1: r1, because it came first in class 1, the strictest that waits
            3      m0 has 1 group(s)
            3      m1 has 1 group(s)
            13     run0 finished
            13     run1 finished
            30     start run2 of m1 on p1: r2, because it came first in class 1, the strictest that waits
            31     start run3 of m0 on p0: r3, because it came first in class 1, the strictest that waits
            40     run2 finished
            41     run3 finished
        "#]],
    );
}

/// What is waited for at the example's rate: the median and p99 of each model under both policies, and how often weights
/// were sent for.
#[test]
fn the_example_switches_faster_in_a_pipeline() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/pipeswitch.toml");
    let scenario = Scenario::read(&path).unwrap();
    let mut text = String::new();
    let mut medians = Vec::new();
    for policy in ["fifo", "pipeswitch"] {
        let outcome =
            Simulation::new(&scenario, &Choice::named(policy).unwrap()).run(|_, _, _| Ok(())).unwrap();
        for row in outcome.tally.summary(1) {
            let (p50, p99) = (row.p50_ms.unwrap(), row.p99_ms.unwrap());
            let loads = row.loads.map_or_else(String::new, |loads| format!(", {loads} loads"));
            writeln!(
                text,
                "{policy:<11} {:<13} {} answers, p50 {p50:.2} ms, p99 {p99:.2} ms{loads}",
                row.model, row.done
            )
            .unwrap();
            medians.push(p50);
        }
    }
    expect![[r#"
        fifo        resnet152     511 answers, p50 8.25 ms, p99 23.05 ms
        fifo        inception_v3  484 answers, p50 5.28 ms, p99 20.43 ms
        fifo        bert_base     501 answers, p50 6.08 ms, p99 20.91 ms
        fifo        all           1496 answers, p50 6.08 ms, p99 21.58 ms, 844 loads
        pipeswitch  resnet152     511 answers, p50 5.03 ms, p99 14.80 ms
        pipeswitch  inception_v3  484 answers, p50 3.24 ms, p99 12.48 ms
        pipeswitch  bert_base     501 answers, p50 4.62 ms, p99 12.37 ms
        pipeswitch  all           1496 answers, p50 4.37 ms, p99 13.15 ms, 844 loads
    "#]]
    .assert_eq(&text);
    let (fifo, pipeswitch) = medians.split_at(medians.len() / 2);
    assert!(fifo.iter().zip(pipeswitch).all(|(fifo, pipeswitch)| pipeswitch < fifo), "{medians:?}");
}

#[test]
fn a_profile_brings_weights_groups_and_the_link() {
    let folder = std::env::temp_dir().join(format!("raddle-sim-switch-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let profile = r#"{"model": "m", "device": "gpu",
        "segments": [
            {"name": "a", "flops": 1, "weight_bytes": 1000, "activation_bytes": 1},
            {"name": "b", "flops": 1, "weight_bytes": 2000, "activation_bytes": 1},
            {"name": "c", "flops": 1, "weight_bytes": 3000, "activation_bytes": 1}],
        "batches": [{"batch": 1, "segment_ns": [1000, 1000, 1000]}],
        "switch": {"transfer_latency_ns": 8000, "transfer_bytes_per_s": 1e9, "launch_gap_ns": 3000,
            "weight_bytes": 7168, "arena_bytes": 4096,
            "groups": [{"first_segment": 0, "bytes": 1024}, {"first_segment": 1, "bytes": 6144}]}}"#;
    std::fs::write(folder.join("m.json"), profile).unwrap();
    let read = |model: &str| {
        let text = format!(
            "duration_ms = 1\nloads = []\ndevice = {{ memory_bytes = 10_000 }}\n\
             [[models]]\nname = \"m\"\nprofile = \"m.json\"\n{model}"
        );
        std::fs::write(folder.join("s.toml"), text).unwrap();
        let scenario = Scenario::read(&folder.join("s.toml")).unwrap();
        let link = scenario.device.unwrap().link.unwrap();
        scenario.models[0].weight_groups(&link)
    };
    let shown = ["", "groups = \"whole\"", "groups = [2, 3]", "weight_bytes = [0, 5, 0]"].map(|model| {
        let groups = read(model).into_iter();
        let line =
            groups.map(|group| format!("{} from {} in {}", group.bytes, group.first_segment, group.transfer));
        format!("{model}: {}", line.collect::<Vec<_>>().join(", "))
    });
    std::fs::remove_dir_all(&folder).unwrap();
    expect![[r#"
        : 1.0 KiB from 0 in 9.02 µs, 6.0 KiB from 1 in 14.14 µs
        groups = "whole": 5.9 KiB from 0 in 14.00 µs
        groups = [2, 3]: 2.9 KiB from 0 in 11.00 µs, 2.9 KiB from 2 in 11.00 µs
        weight_bytes = [0, 5, 0]: 5 B from 1 in 8.01 µs"#]]
    .assert_eq(&shown.join("\n"));
}

#[test]
fn faults_of_devices_weights_and_factors_are_named() {
    let text = r#"
        duration_ms = 10
        factor_block = 0
        device = { memory_bytes = 1, count = 0, link = { latency_us = -1.0, bytes_per_s = 0.0 } }
        loads = []
        [[models]]
        name = "a"
        batches = [{ rows = 1, segments_us = [1, 2], factors = [1.0, 0.0] }]
        weight_bytes = [1, 2, 3]
        groups = [1, 1]
        [[models]]
        name = "b"
        batches = [{ rows = 1, segments_us = [1, 2] }]
        weight_bytes = [1, 2]
        groups = "whole"
    "#;
    let mut scenario: Scenario = toml::from_str(text).unwrap();
    let mut faults = scenario.faults();
    scenario.device.as_mut().unwrap().link = None;
    let without_link = scenario.faults();
    faults.push(without_link.into_iter().find(|fault| fault.contains("no link")).unwrap());
    expect![[r#"
        factor_block is 0; a block has at least one run
        device.count is 0; at least one is needed
        device.link.latency_us is -1; between 0 and 1e9 make sense
        device.link.bytes_per_s is 0; it must be above 0
        a factor of "a" is 0; factors are above 0, 1 on average
        weight_bytes of "a" lists 3 segments, its batches 2
        groups of "a" must ascend and end with its 3 segments of weights
        device has no link; give device.link, or a profile measured on a GPU"#]]
    .assert_eq(&faults.join("\n"));
}

#[test]
fn measured_factors_are_drawn_in_blocks() {
    let text = |block: u32, factors: &str| {
        format!(
            r#"
            duration_ms = 4000
            seed = 5
            factor_block = {block}
            [[models]]
            name = "a"
            batches = [{{ rows = 1, segments_us = [1000], factors = {factors} }}]
            [[loads]]
            model = "a"
            arrivals = {{ kind = "closed", clients = 1 }}
            "#
        )
    };
    let times = |text: &str| -> Vec<u64> {
        let scenario: Scenario = toml::from_str(text).unwrap();
        let mut times = Vec::new();
        let simulation = Simulation::new(&scenario, &Choice::Fifo);
        let outcome = simulation.run(|_, events, _| {
            let finished = events.iter().filter_map(|event| match event {
                Event::RunFinished { segments, .. } => Some(segments[0].ns() / 1_000),
                _ => None,
            });
            times.extend(finished);
            Ok(())
        });
        outcome.unwrap();
        times
    };
    let alone = times(&text(1, "[0.5, 1.0, 1.5]"));
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    alone.iter().for_each(|time| *counts.entry(*time).or_default() += 1);
    assert_eq!(counts.keys().copied().collect::<Vec<_>>(), [500, 1_000, 1_500]);
    assert!(counts.values().all(|count| (1_100..1_600).contains(count)), "{counts:?}");
    // In blocks of two, every other run is followed by the factor measured after its own.
    let blocks = times(&text(2, "[0.5, 1.0, 1.5]"));
    let next = |time: u64| if time == 1_500 { 500 } else { time + 500 };
    assert!(blocks.chunks_exact(2).all(|pair| pair[1] == next(pair[0])));
    assert_eq!(blocks, times(&text(2, "[0.5, 1.0, 1.5]")), "the same seed draws the same");
}
