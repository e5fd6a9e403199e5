//! Packing, knees, and profiles of parts of a device.

use super::{check, folder, said, write};
use expect_test::expect;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// Two models on instances of 1, 2, 3 and 7 slices.
fn tables(folder: &Path) {
    std::fs::create_dir_all(folder.join("tables")).unwrap();
    let header = "Mig instance,Batch size,Workload Number,Throughput,Latency\n";
    let cat = "1,1,1,10,0.010\n1,4,1,16,0.040\n1,4,2,9,0.060\n2,4,1,30,0.020\n3,4,1,46,0.015\n7,4,1,90,0.008\n1,8,1,0,0\n";
    let dog = "1,1,1,5,0.020\n2,1,1,11,0.015\n3,1,1,17,0.010\n7,1,1,30,0.005\n";
    write(folder, "tables/cat.csv", &format!("{header}{cat}"));
    write(folder, "tables/dog.csv", &format!("{header}{dog}"));
    write(folder, "slo.csv", "100,100\n100,N/A\n");
    write(folder, "rates.csv", "95,40\n30,N/A\n");
}

/// What is said, but for columns of times.
fn timeless(folder: &Path, arguments: &str) -> String {
    let lines = said(folder, arguments);
    let cut = |line: &str| line.rsplit_once(',').map_or(line.to_owned(), |(left, _)| left.to_owned());
    lines.lines().map(cut).collect::<Vec<_>>().join("\n")
}

#[test]
fn tenants_are_packed_and_judged() {
    let folder = folder("packing");
    tables(&folder);
    let given = "--profiles tables --slo slo.csv --rates rates.csv";
    check(
        &folder,
        &format!("pack {given} --set 1 -o best.csv --svg best.svg"),
        &expect![[r#"
        set 1: 2 GPUs, 14 slices, proved to be the fewest
          at least 13.0 slices of 2 GPUs if instances were cut at will, 2.000 GPUs by prices; 11 sums

        model  instances  slices  requests/s  served/s  slack %  batch ms  SLO ms
        cat            6       6          95      96.0      1.1      40.0     100
        dog            3       8          40      45.0     12.5      15.0     100"#]],
    );
    assert!(std::fs::read_to_string(folder.join("best.svg")).unwrap().starts_with("<svg"));
    expect![[r#"
        Num instance,Num GPU,Model,Placement,Instance size,Batch size,Num proc
        0,0,dog,0,2,1,1
        0,0,cat,2,1,4,1
        0,0,cat,3,1,4,1
        0,0,dog,4,3,1,1
        0,1,cat,0,1,4,1
        0,1,cat,1,1,4,1
        0,1,cat,2,1,4,1
        0,1,cat,3,1,4,1
        0,1,dog,4,3,1,1
    "#]]
    .assert_eq(&std::fs::read_to_string(folder.join("best.csv")).unwrap());
    check(
        &folder,
        &format!("pack {given} --set 1 --mode parvagpu -o theirs.csv"),
        &expect![[r#"
        set 1: 2 GPUs, 14 slices

        model  instances  slices  requests/s  served/s  slack %  batch ms  SLO ms
        cat            6       6          95      96.0      1.1      40.0     100
        dog            3       8          40      45.0     12.5      15.0     100"#]],
    );
    expect![[r#"
        set,GPUs,instances,slices,at least,by slices,by prices,proved
        1,2,9,14,2,2,2.000,yes
        2,1,1,2,1,1,0.286,yes"#]]
    .assert_eq(&timeless(&folder, &format!("pack {given} --format csv")));
    check(
        &folder,
        &format!("pack {given} --set 1 --judge best.csv"),
        &expect![[r#"
        set 1: 2 GPUs, 14 slices

        model  instances  slices  requests/s  served/s  slack %  batch ms  SLO ms
        cat            6       6          95      96.0      1.1      40.0     100
        dog            3       8          40      45.0     12.5      15.0     100"#]],
    );
    write(&folder, "bad.csv", "Num instance\n0,0,cat,2,3,4,1\n0,0,dog,3,1,9,1\n");
    check(
        &folder,
        &format!("pack {given} --set 1 --judge bad.csv"),
        &expect![[r#"
        set 1: 1 GPUs, 4 slices

        model  instances  slices  requests/s  served/s  slack %  batch ms  SLO ms
        cat            1       3          95      46.0    -51.6      15.0     100
        dog            0       0          40       0.0   -100.0       0.0     100
        error: GPU 0: an instance of 3 slices begins at slot 2, where it may not or another lies; the GPU holds these sizes in other slots
        GPU 0: dog was not measured on 1 slices with batch 9 and 1 processes
        cat: 46.0 of 95 requests/s are served
        dog: 0.0 of 40 requests/s are served"#]],
    );
}

#[test]
fn who_cannot_be_packed_is_told() {
    let folder = folder("unpacked");
    tables(&folder);
    write(&folder, "tight.csv", "15,9\n100,N/A\n");
    write(&folder, "named.csv", "cat,bird\n100,100\n");
    write(&folder, "one.csv", "cat,bird\n10,10\n");
    let given = "--profiles tables --rates rates.csv";
    check(
        &folder,
        &format!("pack {given} --slo tight.csv --set 1"),
        &expect![[r#"
        error: set 1 cannot be packed:
        cat: fastest latency 8.0 ms (7 slices, batch 4, 1 processes) is not below 6.8 ms, what a batch may take of the SLO of 15 ms
        dog: fastest latency 5.0 ms (7 slices, batch 1, 1 processes) is not below 4.0 ms, what a batch may take of the SLO of 9 ms"#]],
    );
    check(
        &folder,
        "pack --profiles tables --slo named.csv --rates one.csv",
        &expect![[r#"
        error: set 1 cannot be packed:
        bird: nothing was measured of it; give its table"#]],
    );
    check(
        &folder,
        &format!("pack {given} --slo slo.csv --gpus 1 --set 1"),
        &expect![[r#"
        error: set 1 cannot be packed:
        dog: 40 requests/s are above the 39.7 that 1 GPUs compute at most; use more GPUs"#]],
    );
    check(
        &folder,
        &format!("pack {given} --slo named.csv"),
        &expect![[r#"
        error: promises and rates name different models in their first line
        there are 1 sets of promises and 2 of rates"#]],
    );
    check(
        &folder,
        &format!("pack {given} --slo slo.csv --set 3"),
        &expect!["error: there is no set 3, there are 2"],
    );
    check(
        &folder,
        &format!("pack {given} --slo slo.csv --latency-part 1.5"),
        &expect!["error: --latency-part 1.5 is no part of a promise; give one above 0 and up to 1"],
    );
    check(
        &folder,
        "pack --profiles nowhere --slo slo.csv --rates rates.csv",
        &expect!["error: cannot read nowhere: No such file or directory (os error 2)"],
    );
}

/// A profile of one segment, with a part that is slower than a smaller one and a batch that one part lacks.
fn profile() -> Value {
    let times = |pairs: &[(u32, u64)]| -> Value {
        let batch = |(batch, us): &(u32, u64)| json!({"batch": batch, "segment_ns": [us * 1000]});
        pairs.iter().map(batch).collect()
    };
    json!({
        "model": "cat", "device": "toy",
        "segments": [{"name": "a", "flops": 1, "weight_bytes": 1, "activation_bytes": 1}],
        "batches": times(&[(1, 3000), (4, 6000)]),
        "spatial": {"units": 8, "shares": [
            {"units": 1, "batches": times(&[(1, 10000), (4, 36000)])},
            {"units": 2, "batches": times(&[(1, 5500), (4, 18500)])},
            {"units": 4, "batches": times(&[(1, 3500)])},
            {"units": 6, "batches": times(&[(1, 3600), (4, 7000)])},
        ]},
    })
}

#[test]
fn knees_and_optima_are_found() {
    let folder = folder("knees");
    tables(&folder);
    write(&folder, "cat.json", &profile().to_string());
    write(
        &folder,
        "whole.json",
        &json!({"model": "w", "device": "toy", "segments": [], "batches": []}).to_string(),
    );
    check(
        &folder,
        "knee cat.json --slo-ms 40 --rate 100 --svg knee.svg",
        &expect![[r#"
        cat on toy: 8 units
          execution-time model: off by 2.8 % (median), 8.5 % at most (batch 1 on 6 units)
          best: batch 1 on 4 units: 3.500 ms after gathering 0.000 ms, 285.7 rows/s
          not as measured: batch 1 on 6 units: 3.600 ms measured, 3.500 ms of a smaller part is used
          not as measured: batch 4 on 4 units was not measured, 9.875 ms from its neighbours is used

        model  batch  knee 1/(L²·S)     ms  knee within ε     ms  knee of the fit  whole device ms
        cat        1              4  3.500              8  3.000                3            3.000
        cat        4              8  6.000              8  6.000                8            6.000"#]],
    );
    assert!(std::fs::read_to_string(folder.join("knee.svg")).unwrap().starts_with("<svg"));
    check(
        &folder,
        "knee tables/cat.csv --format csv --epsilon 0.5",
        &expect![[r#"
        model,batch,knee 1/(L²·S),ms,knee within ε,ms,knee of the fit,whole device ms
        cat,1,1,10.000,1,10.000,-,10.000
        cat,4,7,8.000,7,8.000,-,8.000"#]],
    );
    check(
        &folder,
        "knee cat.json whole.json --slo-ms 5 --format csv",
        &expect![[r#"
        model,batch,knee 1/(L²·S),ms,knee within ε,ms,knee of the fit,whole device ms
        cat,1,4,3.500,8,3.000,3,3.000
        cat,4,8,6.000,8,6.000,8,6.000
        error: whole.json: there are no times on parts of the device; measure them with `raddle profile --spatial`
        cat cannot be served: fastest latency 3.000 ms at 8 units and batch 1 is above half the SLO of 5.000 ms"#]],
    );
    check(
        &folder,
        "knee cat.json --slo-ms 40 --rate 1000 --format csv",
        &expect![[r#"
        model,batch,knee 1/(L²·S),ms,knee within ε,ms,knee of the fit,whole device ms
        cat,1,4,3.500,8,3.000,3,3.000
        cat,4,8,6.000,8,6.000,8,6.000
        error: cat cannot be served: 1000 requests/s are above the 666.7 that 8 units at batch 4 compute within the SLO of 40.000 ms"#]],
    );
    check(
        &folder,
        "knee cat.json --slo-ms 0",
        &expect!["error: --slo-ms 0 is no promise; give a positive time"],
    );
    let json: Value =
        serde_json::from_str(&said(&folder, "knee cat.json --slo-ms 40 --format json")).unwrap();
    assert_eq!(json["schema_version"], 1);
    assert_eq!(json["models"][0]["corrections"].as_array().unwrap().len(), 2);
}

fn raddle(folder: &Path, arguments: &str) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_raddle"));
    command.args(arguments.split_whitespace()).current_dir(folder).env("RADDLE_LOG", "error");
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn parts_of_the_processor_are_measured() {
    let folder = folder("parts");
    raddle(&folder, "zoo tiny_cnn").unwrap();
    let model = "tiny_cnn/1/model.onnx";
    let spatial = format!("profile {model} --spatial --repeats 2 --batches 1,2,4");
    expect![[r#"
        error: there are no parts of 0, 9999 cores of 1
    "#]]
    .assert_eq(&raddle(&folder, &format!("{spatial} --parts 0,9999 --cores 0")).unwrap_err());
    expect![[r#"
        error: one core has no smaller part; measure on more cores
    "#]]
    .assert_eq(&raddle(&folder, &format!("{spatial} --cores 0")).unwrap_err());
    expect![[r#"
        error: two models need a core each; measure on more cores
    "#]]
    .assert_eq(&raddle(&folder, &format!("{spatial} --cores 0 --against {model}")).unwrap_err());
    let refused = raddle(&folder, &format!("{spatial} --against {model} --output p.json")).unwrap_err();
    expect![[r#"
        error: --against measures pairs, not a profile; leave out --output, --svg and --parts
    "#]]
    .assert_eq(&refused);
    if std::thread::available_parallelism().unwrap().get() < 2 {
        let refused = raddle(&folder, &spatial).unwrap_err();
        assert!(refused.contains("one core has no smaller part"), "{refused}");
        return;
    }
    let told =
        raddle(&folder, &format!("{spatial} --parts 1 --output p.json --svg p.svg --format csv")).unwrap();
    let places: Vec<Vec<&str>> = told.lines().skip(1).map(|line| line.split(',').take(2).collect()).collect();
    assert_eq!(places[..3], [["1", "1"], ["1", "2"], ["1", "4"]]);
    assert_eq!(places.len(), 6);
    let profile: vocab::Profile =
        serde_json::from_str(&std::fs::read_to_string(folder.join("p.json")).unwrap()).unwrap();
    profile.check().unwrap();
    assert_eq!(profile.spatial.unwrap().units.to_string(), places[5][0]);
    assert!(std::fs::read_to_string(folder.join("p.svg")).unwrap().starts_with("<svg"));
    let told = raddle(&folder, "plan knee p.json --format json").unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&told).unwrap()["models"][0]["knees"].as_array().unwrap().len(),
        3
    );
    // The same table twice: what was measured later stays.
    for _ in 0..2 {
        raddle(&folder, &format!("{spatial} --against {model} --interference t.json")).unwrap();
    }
    let table: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("t.json")).unwrap()).unwrap();
    assert_eq!((table["device"].as_str(), table["pairs"].as_array().unwrap().len()), (Some("cpu"), 1));
    assert!(table["pairs"][0]["slowdown"].as_f64().unwrap() > 0.0);
    let told = raddle(&folder, &format!("{spatial} --against {model} --shared --format json")).unwrap();
    let pair = &serde_json::from_str::<Value>(&told).unwrap()["pairs"][0];
    assert_eq!((pair["shared"].as_bool(), pair["units"] == pair["beside_units"]), (Some(true), true));
    let refused =
        raddle(&folder, &format!("{spatial} --against {model} --shared --interference t.json")).unwrap_err();
    assert!(refused.contains("cannot be used with '--interference"), "{refused}");
}
