//! Parts of a machine, as `raddle parts` lists them and as MIG and MPS are asked for, where there is no GPU.

use crate::support::{Folder, raddle, text};
use expect_test::expect;
use serde_json::Value;

#[test]
fn core_sets_are_listed_as_table_and_json() {
    let table = text(&raddle(&["parts", "--device", "cpu"]));
    let [header, whole, sets] = table.lines().collect::<Vec<_>>()[..] else { panic!("{table}") };
    assert!(header.starts_with("part") && header.trim_end().ends_with("faults"), "{table}");
    assert!(whole.starts_with("cpu ") && whole.contains("other processes"), "{table}");
    assert!(sets.starts_with("cpu --cpu-partitions"), "{table}");
    let told: Value =
        serde_json::from_str(&text(&raddle(&["parts", "--device", "cpu", "--format", "json"]))).unwrap();
    assert_eq!(told["schema_version"], 1);
    let row = &told["parts"][1];
    assert_eq!(row["step"], 1);
    assert_eq!(row["isolates"]["compute"], true);
    assert_eq!(row["isolates"]["cache"], false);
    // Whatever this machine is, its cores are in the list of everything.
    let all: Value = serde_json::from_str(&text(&raddle(&["parts", "--format", "json"]))).unwrap();
    assert!(all["parts"].as_array().unwrap().contains(row), "{all}");
}

/// What `raddle serve` says about a device before it has looked at one; the folder's name is taken out.
fn refused(folder: &Folder, arguments: &[&str]) -> String {
    let (pipes, models) = (folder.path(""), folder.path("models"));
    std::fs::create_dir_all(&models).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_raddle"));
    command
        .arg("serve")
        .arg(models)
        .args(arguments)
        .env("NO_COLOR", "1")
        .env("CUDA_MPS_PIPE_DIRECTORY", &pipes);
    command.env("PATH", "/nonexistent").env_remove("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).replace(pipes.trim_end_matches('/'), "FOLDER");
    // Log lines begin with a time.
    let line = |line: &str| line.split_once("  INFO ").map_or(line, |(_, rest)| rest).to_owned() + "\n";
    said.lines().filter(|line| !line.contains(" WARN ")).map(line).collect()
}

#[test]
fn what_is_no_part_is_refused_before_anything_is_read() {
    let folder = Folder::new();
    let lines = [
        refused(&folder, &["--device", "mig:MIG-1234"]),
        refused(&folder, &["--device", "gpu"]),
        refused(&folder, &["--mps-percentage", "50"]),
        refused(&folder, &["--device", "cuda:0", "--mps-percentage", "101"]),
        refused(&folder, &["--device", "cuda:0", "--mps-percentage", "50"]),
    ];
    expect![[r#"
        error: "MIG-1234" names no MIG instance; write a number (mig:0), a UUID (mig:MIG-…) or a profile (mig:1g.18gb); `raddle parts` lists them
        error: no device is called "gpu"; name cpu, cuda:N, cuda:N,N, cuda:all or mig:NAME
        error: --mps-percentage goes with --device cuda:N or --device mig:NAME
        error: MPS has no percentage 101; there are 1 to 100, nearest: 100
        error: an MPS percentage needs a control daemon, and there is no FOLDER/control; start one:
          export CUDA_MPS_PIPE_DIRECTORY=FOLDER CUDA_MPS_LOG_DIRECTORY=FOLDER-log
          mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
          nvidia-cuda-mps-control -d
        then give this command again in the same shell; `echo quit | nvidia-cuda-mps-control` ends the daemon
    "#]].assert_eq(&lines.concat());
}

#[test]
fn a_client_of_a_daemon_is_confined_before_anything_else() {
    let folder = Folder::new();
    // Whoever listens there stands in for a daemon.
    let _daemon = std::os::unix::net::UnixListener::bind(folder.0.join("control")).unwrap();
    let parts = ["--device", "cuda:0", "--mps-percentage", "40", "--gpu-grid", "8"];
    expect![[r#"
        confined by CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=40
        error: as a client of the MPS daemon in FOLDER/: parts of a device do not hold under an MPS percentage of 40: MPS overrules them; nearest: 100, or the percentage without parts
    "#]].assert_eq(&refused(&folder, &parts));
}
