//! `raddle plan` from the outside: answers, and what is said about bad input.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod hierarchy;
mod parts;

use expect_test::{Expect, expect};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder of this test's own, emptied first.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plan").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).unwrap();
}

/// What `raddle plan …` prints, and complains about; lines with times are left out, for they differ.
fn said(folder: &Path, arguments: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_raddle"))
        .arg("plan")
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .env("RADDLE_LOG", "error")
        .env_remove("RADDLE_PYTHON")
        .output()
        .unwrap();
    let mut lines: Vec<String> = Vec::new();
    for text in [&output.stdout, &output.stderr] {
        let text = String::from_utf8_lossy(text).into_owned();
        lines.extend(
            text.lines().filter(|line| !line.contains(" took ")).map(|line| line.trim_end().to_owned()),
        );
    }
    lines.join("\n")
}

fn check(folder: &Path, arguments: &str, expected: &Expect) {
    expected.assert_eq(&said(folder, arguments));
}

/// Operators in a row of `times`, four bytes and a transfer of half a millisecond each.
fn chain(times: &[f64], extra: &str) -> String {
    let node = |(id, time): (usize, &f64)| {
        format!(
            r#"{{"id": {id}, "supportedOnFpga": 1, "fpgaLatency": {time}, "cpuLatency": {}, "isBackwardNode": 0, "size": 4{extra}}}"#,
            time * 10.0
        )
    };
    let nodes: Vec<String> = times.iter().enumerate().map(node).collect();
    let edge = |id: usize| format!(r#"{{"sourceId": {}, "destId": {id}, "cost": 0.5}}"#, id - 1);
    let edges: Vec<String> = (1..times.len()).map(edge).collect();
    format!(
        r#"{{"maxSizePerFPGA": 8, "maxFPGAs": 2, "maxCPUs": 0, "nodes": [{}], "edges": [{}]}}"#,
        nodes.join(","),
        edges.join(",")
    )
}

const PROFILE: &str = "node1 -- A -- forward_compute_time=10, backward_compute_time=20, activation_size=100, parameter_size=1000\n\
    node2 -- B -- forward_compute_time=10, backward_compute_time=20, activation_size=100, parameter_size=1000\n\
    node3 -- C -- forward_compute_time=20, backward_compute_time=40, activation_size=100, parameter_size=1000\n\
    \tnode1 -- node2\n\tnode2 -- node3\n";

#[test]
fn placements_are_made_judged_and_made_anew() {
    let folder = folder("placements");
    write(&folder, "g.json", &chain(&[1.0, 2.0, 3.0, 1.0], ""));
    check(
        &folder,
        "place g.json -o plan.json --svg g.svg",
        &expect![[r#"
        g: 4.5000000000 ms a sample, proved to be the least
          held up by computing on part 1

        device         load ms  computing ms  transfers ms  keeps  operators  contiguous
        accelerator 0   3.5000        3.0000        0.5000    8 B          2         yes
        accelerator 1   4.5000        4.0000        0.5000    8 B          2         yes"#]],
    );
    assert!(std::fs::read_to_string(folder.join("g.svg")).unwrap().starts_with("<svg"));
    check(
        &folder,
        "judge g.json plan.json",
        &expect![[r#"
        g: 4.5000000000 ms a sample, contiguous

        device         load ms  computing ms  transfers ms  keeps  operators  contiguous
        accelerator 0   3.5000        3.0000        0.5000    8 B          2         yes
        accelerator 1   4.5000        4.0000        0.5000    8 B          2         yes"#]],
    );
    check(
        &folder,
        "judge g.json plan.json --devices 1x8",
        &expect![[r#"
        g: 4.5000000000 ms a sample, contiguous

        device         load ms  computing ms  transfers ms  keeps  operators  contiguous
        accelerator 0   3.5000        3.0000        0.5000    8 B          2         yes
        accelerator 1   4.5000        4.0000        0.5000    8 B          2         yes
        error: the plan plan.json is impossible:
        2 devices of group 0 are used, there are 1"#]],
    );
    check(
        &folder,
        "--format csv place g.json --islands --solver none --moves 1000",
        &expect![[r#"
        device,load ms,computing ms,transfers ms,keeps,operators,contiguous
        accelerator 0,3.5000,3.0000,0.5000,8 B,2,yes
        accelerator 1,4.5000,4.0000,0.5000,8 B,2,yes"#]],
    );
    check(
        &folder,
        "place g.json --devices 1x16,1x16@0.5,1cpu",
        &expect![[r#"
        g: 6.5000000000 ms a sample, proved to be the least
          held up by computing on part 1

        device           load ms  computing ms  transfers ms  keeps  operators  contiguous
        accelerator 1.0   2.5000        2.0000        0.5000    4 B          1         yes
        accelerator 0.0   6.5000        6.0000        0.5000   12 B          3         yes"#]],
    );
    let anew = said(
        &folder,
        "replan g.json plan.json --change 1:speed=0.25 --change 1:memory=20 --change 0:memory=20",
    );
    let anew: Vec<&str> = anew.lines().skip(2).collect();
    expect![[r#"
        way               ms a sample  proved  moves  moving ms  total ms  devices
        shift boundaries       6.5000     yes   12 B      0.000   65000.0      1 0
        anew                   6.5000     yes   12 B      0.000   65000.0      1 0
        keep                  16.5000      no    0 B      0.000  165000.0      0 1"#]]
    .assert_eq(&anew.join("\n"));
}

#[test]
fn one_samples_time_is_planned_and_judged() {
    let folder = folder("latency");
    write(&folder, "g.json", &chain(&[1.0, 2.0, 3.0, 1.0], ""));
    check(
        &folder,
        "place g.json --objective latency --calls 2 -o plan.json",
        &expect![[r#"
            g: 8.000000 ms from arrival to end, proved to be the least
              0 operators on the host

            accelerator  start ms  end ms  keeps  operators
            0              3.5000  8.0000    8 B          2
            1              0.0000  3.5000    8 B          2"#]],
    );
    check(
        &folder,
        "judge g.json plan.json",
        &expect![[r#"
            g: 8.000000 ms from arrival to end
              0 operators on the host

            accelerator  start ms  end ms  keeps  operators
            0              3.5000  8.0000    8 B          2
            1              0.0000  3.5000    8 B          2"#]],
    );
    check(
        &folder,
        "place g.json --objective latency --islands",
        &expect![
            "error: the time of one sample knows no islands, overlap or replicas; leave --islands, --overlap and --exchange out"
        ],
    );
}

#[test]
fn bad_placements_are_refused_with_every_reason() {
    let folder = folder("refusals");
    write(&folder, "g.json", &chain(&[1.0, 2.0, 3.0, 1.0], ""));
    write(&folder, "unknown.json", &chain(&[1.0], r#", "heat": 3"#));
    write(
        &folder,
        "cycle.json",
        &chain(&[1.0, 1.0], "")
            .replace(r#""edges": ["#, r#""edges": [{"sourceId": 1, "destId": 0, "cost": 0.5},"#),
    );
    check(
        &folder,
        "place unknown.json",
        &expect![
            "error: unknown.json cannot be planned: the file is not of the expected shape: unknown field `heat`, expected one of `id`, `name`, `supportedOnFpga`, `fpgaLatency`, `cpuLatency`, `isBackwardNode`, `colorClass`, `size`, `layerId` at line 1 column 167"
        ],
    );
    check(
        &folder,
        "place cycle.json",
        &expect![
            "error: cycle.json cannot be planned: operators form a cycle, 1 -> 0 -> 1, and could never run; break it"
        ],
    );
    check(
        &folder,
        "place missing.json",
        &expect!["error: cannot read missing.json: No such file or directory (os error 2)"],
    );
    check(
        &folder,
        "place g.json --devices 0x8",
        &expect!["error: there is no device; ask for an accelerator or a cpu"],
    );
    check(
        &folder,
        "place g.json --devices 1x7,2xbig",
        &expect![[r#"error: "big" is not a number of bytes; write 16GiB or 80GB"#]],
    );
    check(
        &folder,
        "place g.json --devices 3x4",
        &expect!["error: 16 bytes must be on accelerators, which hold 12; use more of them"],
    );
    check(
        &folder,
        "place g.json --time-limit 0",
        &expect!["error: a time limit of 0 s; give one above 0 and up to 86400"],
    );
    check(
        &folder,
        "place g.json --islands --exchange 1GB/s",
        &expect!["error: islands are not replicated; leave out --exchange or --islands"],
    );
    check(
        &folder,
        "judge g.json g.json",
        &expect![
            "error: g.json is not a plan: the file is not of the expected shape: unknown field `maxSizePerFPGA`, expected one of `maxLoad`, `cpus`, `fpgas` at line 1 column 17"
        ],
    );
}

#[test]
fn pipelines_are_planned_judged_and_run() {
    let folder = folder("pipelines");
    write(&folder, "g.txt", PROFILE);
    check(
        &folder,
        "pipeline g.txt --machines 2x1MB/s -o plan.json",
        &expect![[r#"
        g: 0.0600000 s a minibatch, proved to be the least
          held up by computing of stage 0

        stage  devices  computing s  communicating s  in flight     keeps  layers  first layer
        0            2    0.1200000        0.0030000          1  6.15 KiB       3            1"#]],
    );
    check(
        &folder,
        "judge g.txt plan.json",
        &expect![[r#"
        g: 0.0600000 s a minibatch

        stage  devices  computing s  communicating s  in flight     keeps  layers  first layer
        0            2    0.1200000        0.0030000          1  6.15 KiB       3            1"#]],
    );
    check(
        &folder,
        "pipeline g.txt --machines 2x1MB/s --discipline flush --minibatches 4",
        &expect![[r#"
        g: 0.0607500 s a minibatch, not proved; at least 0.0600000 s, gap 1.23 %
          held up by filling and draining the pipeline

        stage  devices  computing s  communicating s  in flight     keeps  layers  first layer
        0            2    0.1200000        0.0007500          1  6.15 KiB       3            1"#]],
    );
    check(
        &folder,
        "schedule --graph g.txt --pipeline plan.json --order 1f1b-rr --microbatches 4",
        &expect![[r#"
            1 stages, 4 microbatches: 240.0000 ms, bubble 0.00 %; 0 transfers, which waited 0.0000 ms for links

            device   busy ms  idle ms  from first to last ms  peak memory  microbatches held
            0       240.0000   0.0000               240.0000     6.15 KiB                  1
            1       240.0000   0.0000               240.0000     6.15 KiB                  1"#]],
    );
    check(
        &folder,
        "pipeline g.txt --machines 2xfast,0",
        &expect![[r#"
        error: "fast" is not a speed; write 12GB/s or 100Gbit/s
        "0" is not MEMBERSxSPEED; write 4x12GB/s"#]],
    );
    check(
        &folder,
        "pipeline g.txt --machines 2x1MB/s --memory 1kB",
        &expect!["error: no pipeline fits devices of 1000 bytes; use larger ones or more of them"],
    );
}

#[test]
fn schedules_are_run_and_deadlocks_told() {
    let folder = folder("schedules");
    write(&folder, "dead.txt", "0F0 0<B0 0>F0 0B0\n1<F0 1F0 1B0 1>B0\n");
    check(
        &folder,
        "schedule --order zb-h1 --stages 2 --microbatches 3 --timeline t.json",
        &expect![[r#"
        2 stages, 3 microbatches: 10.0000 ms, bubble 10.00 %; 6 transfers, which waited 0.0000 ms for links

        device  busy ms  idle ms  from first to last ms  peak memory  microbatches held
        0        9.0000   1.0000                10.0000     2.00 MiB                  2
        1        9.0000   1.0000                 9.0000     2.00 MiB                  1"#]],
    );
    let timeline = std::fs::read_to_string(folder.join("t.json")).unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(&timeline).unwrap()["traceEvents"].is_array());
    check(
        &folder,
        "schedule --text dead.txt",
        &expect![
            "error: deadlock: device 0 at 0<B0 waits for 1>B0 of device 1; device 1 at 1<F0 waits for 0>F0 of device 0"
        ],
    );
    check(
        &folder,
        "schedule --stages 2 --microbatches 2 --print",
        &expect![[r#"
        0F0 0>F0 0F1 0>F1 0<B0 0B0 0<B1 0B1
        1<F0 1F0 1B0 1>B0 1<F1 1F1 1B1 1>B1"#]],
    );
    check(
        &folder,
        "schedule --times 1,2",
        &expect![[r#"error: "1,2" are not three times; write forward,backward,weights in ms"#]],
    );
}
