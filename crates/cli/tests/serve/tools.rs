//! The other commands, on files as users have them: what they print, and what they say about mistakes.

use crate::support::{Folder, models, raddle, text};
use expect_test::expect;
use serde_json::Value;

/// Two models that want one processor: pictures with a deadline, and an archive that takes what is left.
const SCENARIO: &str = r#"
seed = 7
duration_ms = 2000
launch_us = 20
noise = 0.05

[[models]]
name = "camera"
batches = [
    { rows = 1, segments_us = [1000, 1500, 500] },
    { rows = 4, segments_us = [2500, 3500, 1500] },
]

[[models]]
name = "archive"
batches = [{ rows = 8, segments_us = [9000, 9000, 9000, 9000] }]

[[loads]]
model = "camera"
class = 1
timeout_us = 20000
arrivals = { kind = "poisson", rate = 80 }

[[loads]]
model = "archive"
class = 3
rows = 8
arrivals = { kind = "closed", clients = 2 }
"#;

/// Exit code and what was said on stderr, paths of `folder` taken out.
fn refused(folder: &Folder, arguments: &[&str]) -> String {
    let output = raddle(arguments);
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    let said = String::from_utf8_lossy(&output.stderr).replace(&folder.path(""), "");
    let said: String =
        said.lines().filter(|line| !line.contains(" WARN ")).map(|line| format!("{line}\n")).collect();
    format!("{}: {said}", output.status.code().unwrap())
}

#[test]
fn a_profile_of_this_machine_is_simulated() {
    let folder = Folder::new();
    folder.zoo(&["tiny_cnn"]);
    let (model, profile, svg) =
        (folder.path("tiny_cnn/1/model.onnx"), folder.path("cnn.json"), folder.path("cnn.svg"));
    let arguments =
        ["profile", &model, "--batches", "4,1,2", "--repeats", "2", "--output", &profile, "--svg", &svg];
    let table = text(&raddle(&arguments));
    assert_eq!(table.lines().count(), 4, "{table}");
    assert!(std::fs::read_to_string(svg).unwrap().starts_with("<svg"));
    let written: vocab::Profile = serde_json::from_str(&std::fs::read_to_string(&profile).unwrap()).unwrap();
    written.check().unwrap();
    assert_eq!(written.batches.iter().map(|bucket| bucket.batch).collect::<Vec<_>>(), [1, 2, 4]);
    let scenario = "duration_ms = 100\n[[models]]\nname = \"cnn\"\nprofile = \"cnn.json\"\n[[loads]]\nmodel = \"cnn\"\n\
                    arrivals = { kind = \"trace\", at_ns = [1, 2, 3] }\n";
    folder.put("scenario.toml", scenario);
    let told = text(&raddle(&["simulate", &folder.path("scenario.toml"), "--format", "json"]));
    let told: Value = serde_json::from_str(&told).unwrap();
    let all = told["results"].as_array().unwrap().iter().find(|row| row["model"] == "all").unwrap();
    assert_eq!(all["done"], 3, "{told}");
}

#[test]
fn policies_are_compared_in_three_formats() {
    let folder = Folder::new();
    folder.put("s.toml", SCENARIO);
    let scenario = folder.path("s.toml");
    let simulate = |more: &[&str]| text(&raddle(&[&["simulate", scenario.as_str()], more].concat()));
    let table = simulate(&["--policy", "fifo,edf,timeslice,windows"]);
    expect![[r#"
        policy       model  class  requests  done  late  rejected  dropped  p50 ms  p95 ms  p99 ms  done/s  busy %  parks
        fifo        camera      1       190     0     0         0      190       -       -       -     0.0       -      -
        fifo       archive      3        57    57     0         0        0   72.25   77.68   78.45    27.6       -      -
        fifo           all      -       247    57     0         0      190   72.25   77.68   78.45    27.6   99.89      0
        edf         camera      1       190    86    27         0       77   11.15   18.09   19.56    41.4       -      -
        edf        archive      3        48    48     0         0        0   84.96  104.43  126.47    23.1       -      -
        edf            all      -       238   134    27         0       77   14.67   94.07  113.08    64.5   99.25      0
        timeslice   camera      1       190   100    60         0       30   14.30   19.04   19.67    48.4       -      -
        timeslice  archive      3        45    45     0         0        0   92.26  103.70  105.01    21.8       -      -
        timeslice      all      -       235   145    60         0       30   16.97   98.20  104.51    70.2   97.89     42
        windows     camera      1       190   190     0         0        0    9.60   15.78   16.91    93.0       -      -
        windows    archive      3        40    40     0         0        0   99.46  120.38  131.35    19.6       -      -
        windows        all      -       230   230     0         0        0   10.62  111.11  120.38   112.5   99.53     64
    "#]].assert_eq(&table);
    let csv = simulate(&["--policy", "fifo,windows", "--format", "csv"]);
    expect![[r#"
        policy,model,class,requests,done,late,rejected,dropped,p50 ms,p95 ms,p99 ms,done/s,busy %,parks
        fifo,camera,1,190,0,0,0,190,-,-,-,0.0,-,-
        fifo,archive,3,57,57,0,0,0,72.25,77.68,78.45,27.6,-,-
        fifo,all,-,247,57,0,0,190,72.25,77.68,78.45,27.6,99.89,0
        windows,camera,1,190,190,0,0,0,9.60,15.78,16.91,93.0,-,-
        windows,archive,3,40,40,0,0,0,99.46,120.38,131.35,19.6,-,-
        windows,all,-,230,230,0,0,0,10.62,111.11,120.38,112.5,99.53,64
    "#]]
    .assert_eq(&csv);
    let json: Value =
        serde_json::from_str(&simulate(&["--policy", "fifo,windows", "--format", "json"])).unwrap();
    assert_eq!(json["schema_version"], 1);
    let rows = json["results"].as_array().unwrap();
    for (row, line) in rows.iter().zip(csv.lines().skip(1)) {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(row["policy"], cells[0]);
        assert_eq!(row["requests"].to_string(), cells[3]);
        assert_eq!(row["done"].to_string(), cells[4]);
    }
    assert_eq!(rows.len(), csv.lines().count() - 1);
    // Another seed is another day; the same seed is the same day.
    let other = simulate(&["--seed", "8"]);
    assert_ne!(other, simulate(&[]));
    assert_eq!(other, simulate(&["--seed", "8"]));
}

#[test]
fn a_simulation_is_replayed_explained_and_drawn() {
    let folder = Folder::new();
    folder.put("s.toml", SCENARIO);
    let (scenario, journal, timeline) =
        (folder.path("s.toml"), folder.path("journal"), folder.path("timeline.json"));
    text(&raddle(&["simulate", &scenario, "--journal", &journal, "--timeline", &timeline]));
    let replayed = text(&raddle(&["replay", &journal]));
    let first = text(&raddle(&["explain", &journal, "r0"]));
    expect![[r#"
        windows: 778 turns replayed, all 332 decisions the same
        +0 ns         arrived for archive: class 3, 8 row(s), no deadline
        +0 ns         chosen for run0 on p0 with 0 other(s): it was the most urgent work (class 3 after ageing)
        +20.00 µs     run0 began on the device
        +3.70 ms      run0 asked to park: r2 of class 1 waits
        +9.11 ms      run0 parked before segment 1
        +9.11 ms      waits: p0 runs run1 of camera (class 1)
        +16.17 ms     run0 resumed: it was the most urgent work (class 3 after ageing)
        +16.19 ms     run0 goes on
        +18.74 ms     run0 asked to park: r5 of class 1 waits
        +25.28 ms     run0 parked before segment 2
        +25.28 ms     waits: p0 runs run2 of camera (class 1)
        +28.21 ms     run0 resumed: it was the most urgent work (class 3 after ageing)
        +28.23 ms     run0 goes on
        +46.38 ms     run0 finished: answered
    "#]].assert_eq(&(replayed + &first));
    let drawn = text(&raddle(&["timeline", &journal, "--output", &folder.path("again.json")]));
    assert!(drawn.contains("turns drawn to"), "{drawn}");
    let [one, other] =
        ["timeline.json", "again.json"].map(|name| std::fs::read_to_string(folder.path(name)).unwrap());
    assert_eq!(one, other);
    // A journal whose decisions somebody changed is found out.
    let forged = std::fs::read_to_string(&journal).unwrap().replacen("\"rows\":8", "\"rows\":7", 1);
    folder.put("forged", forged.replacen("\"windows\",\"ageing\"", "\"fifo\",\"ageing\"", 1));
    let output = raddle(&["replay", &folder.path("forged")]);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("decided differently"));
}

#[test]
fn every_fault_of_a_scenario_is_told_at_once() {
    let folder = Folder::new();
    let faults = r#"
duration_ms = 1
partitions = 0
noise = 2.0
ahead = 0
policy = "round-robin"
[[models]]
name = "a"
[[models]]
name = "a"
batch_max = 0
batches = [{ rows = 2, segments_us = [0], factors = [1.0], beside = [0, 1] }, { rows = 1, segments_us = [1, 2] }]
[[models]]
name = "p"
profile = "nowhere.json"
[[loads]]
model = "b"
class = 0
rows = 0
arrivals = { kind = "poisson", rate = -1 }
[[loads]]
model = "a"
arrivals = { kind = "closed", clients = 0 }
"#;
    folder.put("faults.toml", faults);
    folder.put("other.toml", "duration = 1\n");
    folder.put("binary.toml", [0xff, 0xfe, 0]);
    let told = ["faults.toml", "other.toml", "binary.toml", "nowhere.toml"]
        .map(|name| refused(&folder, &["simulate", &folder.path(name)]));
    expect![[r#"
        1: error: faults.toml cannot be simulated:
          profile nowhere.json of "p": No such file or directory (os error 2)
          no policy is called "round-robin"; there are fifo, edf, timeslice, windows, pipeswitch, dstack, ideal, sgprs, daris, temporal, triton, clipper, nexus, gslice, gpulet, maxthroughput, maxmin
          partitions is 0; at least one is needed
          noise is 2, it must be within 0 and 1
          ahead is 0; a device has at least the segment that runs
          model "a" has no costs; give a profile or batches
          two models are called "a"
          batches of "a" must ascend from at least 1 row
          batches of "a" list different numbers of segments
          a batch of "a" takes no time
          batch_max of "a" is 0; at least 1 is needed
          beside of "a" lists 2 numbers for 1 factors; each has one
          load 1: no model is called "b"
          load 1: class is 0; 1 goes first
          load 1: rows is 0; at least 1 is needed
          load 1: rate is -1; it must be above 0 and at most 1e9 a second
          load 2: clients is 0; between 1 and 1,000,000 make sense
        1: error: other.toml is not a scenario: TOML parse error at line 1, column 1
          |
        1 | duration = 1
          | ^^^^^^^^
        unknown field `duration`, expected one of `policy`, `seed`, `duration_ms`, `partitions`, `launch_us`, `launches_us`, `ahead`, `noise`, `factor_block`, `device`, `space`, `rules`, `slowdowns`, `models`, `loads`

        1: error: cannot read binary.toml: stream did not contain valid UTF-8
        1: error: cannot read nowhere.toml: No such file or directory (os error 2)
    "#]].assert_eq(&told.concat());
}

#[test]
fn mistakes_on_the_command_line_are_explained() {
    let folder = Folder::new();
    folder.put("s.toml", SCENARIO);
    folder.put("repository/readme.txt", "");
    folder.zoo(&["tiny_mlp"]);
    let (scenario, repository) = (folder.path("s.toml"), folder.path("repository"));
    let (model, journal) = (folder.path("tiny_mlp/1/model.onnx"), folder.path("journal"));
    text(&raddle(&["simulate", &scenario, "--journal", &journal]));
    let (picture, nowhere) = (folder.path("x.png"), folder.path("nowhere"));
    // Ends of clap's usage texts are its own; the exit code is ours to keep.
    for arguments in
        [&["simulate"][..], &["frobnicate"], &["serve"], &["replay", "a", "b"], &["zoo", "--seed", "x"]]
    {
        assert_eq!(raddle(arguments).status.code(), Some(2), "{arguments:?}");
    }
    let cases: [&[&str]; 19] = [
        &["simulate", &scenario, "--policy", "nope"],
        &["simulate", &scenario, "--policy", "fifo,edf", "--journal", &picture],
        &["explain", &journal, "r999999"],
        &["explain", &journal, "first"],
        &["explain", &scenario, "r1"],
        &["replay", &scenario],
        &["replay", &nowhere],
        &["timeline", &journal, "--output", &picture],
        &["serve", &nowhere],
        &["serve", &repository, "--policy", "nope"],
        &["serve", &repository, "--http-address", "0.0.0.0", "--http-port", "0"],
        &["serve", &repository, "--cpu-partitions", "9-1"],
        &["serve", &repository, "--cpu-partitions", "one"],
        &["serve", &repository, "--policy", "fifo", "--slice-ms", "3"],
        &["inspect", &scenario],
        &["inspect", &nowhere],
        &["inspect", &model, "--free", "height"],
        &["profile", &model, "--batches", "0"],
        &["zoo", "nope", "--output", &nowhere],
    ];
    let told: String = cases.into_iter().map(|arguments| refused(&folder, arguments)).collect();
    expect![[r#"
        1: error: no policy is called "nope"; there are fifo, edf, timeslice, windows, pipeswitch, dstack, ideal, sgprs, daris, temporal, triton, clipper, nexus, gslice, gpulet, maxthroughput, maxmin
        1: error: a journal or timeline is of one policy; name one with --policy
        1: error: request r999999 is not in journal journal
        1: error: "first" is not a request number such as 17: invalid digit found in string
        1: error: cannot read journal s.toml: line 1 of the journal is damaged: EOF while parsing a value at line 2 column 0
        1: error: cannot read journal s.toml: line 1 of the journal is damaged: EOF while parsing a value at line 2 column 0
        1: error: cannot open journal nowhere: No such file or directory (os error 2)
        1: error: x.png should end in .json (for ui.perfetto.dev) or .svg
        1: error: cannot read model repository "nowhere"; name a folder that holds models: No such file or directory (os error 2)
        1: error: no policy is called "nope"; there are fifo, edf, timeslice, windows, pipeswitch, dstack, ideal, sgprs, daris, temporal, triton, clipper, nexus, gslice, gpulet, maxthroughput, maxmin
        1: error: 0.0.0.0:0 can be reached from other machines and there is no authentication yet; use 127.0.0.1, or allow it explicitly
        1: error: "9-1" is not a range of cores; write the lower number first
        1: error: "one" in "one" is not a core number: invalid digit found in string
        1: error: --slice-ms goes with --policy timeslice, --ageing-ms with --policy windows
        1: error: not an ONNX file, or damaged; export it again: failed to decode Protobuf message: ModelProto.ir_version: invalid wire type: LengthDelimited (expected Varint)
        1: error: cannot read nowhere: No such file or directory (os error 2)
        1: error: "height" is not name=size
        1: error: batches start from 1
        1: error: the zoo has no model "nope"; choose one of alexnet, vgg16, vgg19, resnet18, resnet50, resnet101, resnet152, resnext50, inception_v3, densenet121, mobilenet_v2, squeezenet1_0, bert_base, gpt2, vit_b_16, tiny_cnn, tiny_mlp, tiny_transformer
    "#]].assert_eq(&told);
    let strict = raddle(&[
        "serve",
        &repository,
        "--exit-on-error",
        "--http-port",
        "0",
        "--policy",
        "edf",
        "--journal",
        "/",
    ]);
    assert_eq!(strict.status.code(), Some(1));
}

#[test]
fn a_strict_server_ends_with_what_it_could_not_serve() {
    let folder = Folder::new();
    folder.put("broken/1/model.onnx", "not a model");
    folder.zoo(&["tiny_mlp"]);
    let output = raddle(&["serve", &folder.path(""), "--exit-on-error", "--http-port", "0"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("error: models that cannot be served: broken: not an ONNX file"), "{said}");
}

#[test]
fn a_model_is_inspected() {
    let folder = Folder::new();
    folder.zoo(&["tiny_cnn"]);
    let model = folder.path("tiny_cnn/1/model.onnx");
    let inspect = |more: &[&str]| text(&raddle(&[&["inspect", model.as_str()], more].concat()));
    let table = inspect(&["--segments-max", "3"]);
    let csv = inspect(&["--format", "csv", "--batch", "3"]);
    expect![[r#"
        tiny_cnn: 14714 parameters, 13 layers, batch of any size
          takes input FP32[batch,3,16,16]
          gives logits FP32[batch,10]

        segment  first layer  layers  Mflop  weight bytes  alive bytes
        0              conv1      13    2.0         58668           40
        segment,first layer,layers,Mflop,weight bytes,alive bytes
        0,conv1,13,6.0,58668,120
    "#]]
    .assert_eq(&(table + &csv));
    let json: Value = serde_json::from_str(&inspect(&["--format", "json"])).unwrap();
    assert_eq!((&json["schema_version"], &json["model"]["parameters"]), (&1.into(), &14_714.into()));
    let real = models().join("yolo_320n.onnx").display().to_string();
    let sized = text(&raddle(&["inspect", &real, "--free", "height=64,width=96"]));
    assert!(sized.contains("takes images FP32[batch,3,height,width]"), "{sized}");
}

#[test]
fn the_zoo_is_listed_and_written_the_same_every_time() {
    let listed = text(&raddle(&["zoo", "--format", "csv"]));
    assert!(listed.lines().any(|line| line == "resnet50"), "{listed}");
    let [one, other, third] = ["0", "0", "1"].map(|seed| {
        let folder = Folder::new();
        text(&raddle(&["zoo", "tiny_mlp", "--output", &folder.path(""), "--seed", seed]));
        std::fs::read(folder.0.join("tiny_mlp/1/model.onnx")).unwrap()
    });
    assert!(one == other, "the same seed gave other bytes");
    assert!(one != third, "another seed gave the same bytes");
}
