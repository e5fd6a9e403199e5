//! Several machines, and devices that share a layer.

use super::{chain, check, folder, write};
use expect_test::expect;

#[test]
fn parts_that_exchange_much_stay_in_one_machine() {
    let folder = folder("machines");
    write(&folder, "g.json", &chain(&[4.0, 4.0, 4.0, 4.0], ""));
    check(
        &folder,
        "place g.json --devices 2x16 --machines 2 --across 0.05 -o plan.json",
        &expect![[r#"
        g: 8.5000000000 ms a sample, not proved; at least 5.0000000000 ms, gap 41.18 %
          held up by computing on part 0

        device                    load ms  computing ms  transfers ms  keeps  operators  contiguous
        machine 1, accelerator 0   8.5000        8.0000        0.5000    8 B          2         yes
        machine 1, accelerator 1   8.5000        8.0000        0.5000    8 B          2         yes"#]],
    );
    check(
        &folder,
        "judge g.json plan.json",
        &expect![[r#"
        g: 8.5000000000 ms a sample, contiguous

        device                    load ms  computing ms  transfers ms  keeps  operators  contiguous
        machine 1, accelerator 0   8.5000        8.0000        0.5000    8 B          2         yes
        machine 1, accelerator 1   8.5000        8.0000        0.5000    8 B          2         yes"#]],
    );
    check(
        &folder,
        "place g.json --devices 2x16 --machines 2 --across 0",
        &expect![[r#"
        error: group 0 has speed across machines 0; it is a positive number
        group 1 has speed across machines 0; it is a positive number"#]],
    );
    check(
        &folder,
        "place g.json --devices 2x16 --machines 2 --across 0.5 --islands",
        &expect![
            "error: islands, and the time of one sample, are planned with one link; leave out the machines, or ask for contiguous parts"
        ],
    );
    check(
        &folder,
        "place g.json --machines 0",
        &expect!["error: 0 machines run nothing; give --machines 1 or more"],
    );
}

/// Four layers in a row, each alone or shared by two devices, with and without recomputing.
fn piper() -> String {
    let cost = |time: f64, bytes: u64| {
        let cost = |id: &str, time: f64, kept: u64| {
            format!(
                r#"{{"id": "{id}", "timePerSample": {time}, "parameterSize": {bytes}, "memoryUsageA": {kept},
                    "memoryUsageB": 1, "syncTimeFw": {{}}, "syncTimeBw": {{}}}}"#
            )
        };
        format!("[{}, {}]", cost("vanilla", time, bytes), cost("activation recomp", time * 1.5, 1))
    };
    let node = |id: u32| {
        let (alone, shared) = (cost(0.004, 40), cost(0.002, 20));
        format!(r#"{{"id": {id}, "name": "l{id}", "TMPCs": {{"1": {alone}, "2": {shared}}}}}"#)
    };
    format!(
        r#"{{"maxDevices": 4, "maxMemoryPerDevice": 100, "bandwidth": 1e9, "mbsInBatch": 8,
            "nodes": [{}, {}, {}, {}],
            "edges": [{{"sourceId": 0, "destId": 1, "communicationCost": 0}},
                {{"sourceId": 1, "destId": 2, "communicationCost": 0}},
                {{"sourceId": 2, "destId": 3, "communicationCost": 0}}]}}"#,
        node(0),
        node(1),
        node(2),
        node(3)
    )
}

#[test]
fn devices_may_share_the_layers_of_a_piper_file() {
    let folder = folder("piper");
    write(&folder, "p.json", &piper());
    write(&folder, "g.json", &chain(&[1.0], ""));
    check(
        &folder,
        "place p.json",
        &expect![[r#"
        p: 4.0000000000 ms a sample, proved to be the least
          held up by one group of operators that must stay together is the whole load; no plan is better

        device         load ms  computing ms  transfers ms  keeps  operators  contiguous
        accelerator 0   4.0000        4.0000        0.0000   41 B          2         yes
        accelerator 1   4.0000        4.0000        0.0000   41 B          2         yes
        accelerator 2   4.0000        4.0000        0.0000   41 B          2         yes
        accelerator 3   4.0000        4.0000        0.0000   41 B          2         yes"#]],
    );
    check(
        &folder,
        "place p.json --tensor-parallel 2",
        &expect![[r#"
        p: 4.0000000000 ms a sample, proved to be the least
          held up by computing on part 0

        device         load ms  computing ms  transfers ms  keeps  operators  contiguous
        accelerator 0   4.0000        4.0000        0.0000   42 B          4         yes
        accelerator 1   4.0000        4.0000        0.0000   42 B          4         yes"#]],
    );
    check(
        &folder,
        "place p.json --tensor-parallel 2 --recompute",
        &expect![[r#"
        p: 6.0000000000 ms a sample, proved to be the least
          held up by computing on part 0

        device         load ms  computing ms  transfers ms  keeps  operators  contiguous
        accelerator 0   6.0000        6.0000        0.0000    4 B          4         yes
        accelerator 1   6.0000        6.0000        0.0000    4 B          4         yes"#]],
    );
    check(
        &folder,
        "place p.json --tensor-parallel 3",
        &expect![[r#"
        error: p.json cannot be planned: node 0 has no cost "vanilla" for 3 devices; it has "vanilla" for 1, "activation recomp" for 1, "vanilla" for 2, "activation recomp" for 2
        node 1 has no cost "vanilla" for 3 devices; it has "vanilla" for 1, "activation recomp" for 1, "vanilla" for 2, "activation recomp" for 2
        node 2 has no cost "vanilla" for 3 devices; it has "vanilla" for 1, "activation recomp" for 1, "vanilla" for 2, "activation recomp" for 2
        node 3 has no cost "vanilla" for 3 devices; it has "vanilla" for 1, "activation recomp" for 1, "vanilla" for 2, "activation recomp" for 2"#]],
    );
    check(
        &folder,
        "place g.json --recompute",
        &expect![
            "error: g.json has no costs of tensor parallelism or of recomputing; leave out --tensor-parallel and --recompute"
        ],
    );
}
