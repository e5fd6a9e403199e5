//! What the command makes of its arguments and of small traces.

use super::{ClusterArgs, jobs_csv, load, replay, run, what_if};
use crate::args::Format;
use clap::Parser;
use std::path::PathBuf;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: ClusterArgs,
}

/// A folder of its own for one test, with a trace in it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, trace: &str) -> Self {
        let path = std::env::temp_dir().join(format!("raddle-cluster-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("trace.csv"), trace).unwrap();
        Self(path)
    }

    fn args(&self, more: &[&str]) -> ClusterArgs {
        let trace = self.0.join("trace.csv").display().to_string();
        Line::try_parse_from(["cluster", &trace].into_iter().chain(more.iter().copied())).unwrap().args
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder left behind harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const TRACE: &str =
    "job_id,num_gpu,submit_time,model_name,duration\n0,2,100,a,50\n1,4,110,b,20\n2,1,110,a,5\n";

fn error(folder: &Folder, more: &[&str]) -> String {
    let error = load::case(&folder.args(more)).err().map(|error| format!("{error:#}"));
    let policies = sched::cluster::policy::Choice::NAMES.join(", ");
    error
        .unwrap_or_default()
        .replace(&folder.0.display().to_string(), "FOLDER")
        .replace(&policies, "POLICIES")
}

#[test]
fn wrong_arguments_are_named_with_what_would_be_right() {
    let folder = Folder::new("wrong", TRACE);
    let told = [
        &["--policy", "best"][..],
        &["--nodes", "8"],
        &["--nodes", "2x4:8"],
        &["--nodes", "0x4"],
        &["--nodes", "1x2"],
        &["--belief", "noisy:x"],
        &["--lose", "0@a"],
        &["--window", "5..2"],
        &["--trace-format", "gavel"],
        &["--policy", "sjf-bsbf"],
    ]
    .map(|more| error(&folder, more));
    expect_test::expect![[r#"
        no policy is called "best"; there are POLICIES
        --nodes has "8"; write COUNTxGPUS or COUNTxGPUS:CPUS:GB, as 16x8:24:500
        --nodes has "2x4:8"; write COUNTxGPUS or COUNTxGPUS:CPUS:GB, as 16x8:24:500
        --nodes has "0x4"; write COUNTxGPUS or COUNTxGPUS:CPUS:GB, as 16x8:24:500
        cannot use FOLDER/trace.csv: the trace has 1 problems:
        line 3: job "1" needs 4 GPUs at once, of 2
        --belief is "noisy:x", not exact, learned or noisy:SPREAD with a spread from 0 to 5
        --lose has "0@a"; write NODE@SECONDS or NODE@SECONDS+BACK_AFTER_SECONDS
        --window is "5..2"; write FROM..TO, as 4000..5000
        cannot use FOLDER/trace.csv: traces of this format need Gavel's throughputs (simulation_throughputs.json)
        policies that share GPUs need measured pairs; give --throughputs"#]].assert_eq(&told.join("\n"));
}

#[test]
fn all_bad_lines_are_told_and_can_be_skipped() {
    let folder = Folder::new("bad", &format!("{TRACE}3,9,1,a,7\n4,1,x,a,7\n4,0,1,a\n"));
    expect_test::expect![[r#"
        cannot use FOLDER/trace.csv: the trace has 3 problems:
        line 5: job "3" needs 9 GPUs at once, of 4
        line 6: submit_time is "x", not a number of at least 0
        line 7: 4 cells, but the header names 5"#]]
    .assert_eq(&error(&folder, &["--nodes", "1x4"]));
    let args = folder.args(&["--nodes", "1x4", "--skip-bad"]);
    assert_eq!(load::case(&args).unwrap().trace.jobs.len(), 3);
}

#[test]
fn policies_and_seeds_come_out_the_same_on_any_number_of_threads() {
    let folder = Folder::new("threads", TRACE);
    let outcomes = ["1", "3"].map(|threads| {
        let args =
            folder.args(&["--seeds", "4", "--threads", threads, "--nodes", "1x4", "--lose", "0@120+10"]);
        let results = run::all(&args, &load::case(&args).unwrap()).unwrap();
        jobs_csv(&load::case(&args).unwrap().trace, &results)
    });
    assert_eq!(outcomes[0], outcomes[1]);
    assert_eq!(outcomes[0].lines().count(), 1 + 3 * 4 * 3);
    expect_test::expect![[r#"
        policy,seed,job,line,model,gpus,arrival_s,started_s,ended_s,jct_s,solo_s,rho,starts
        fifo,0,2,4,a,1,110,110,115,5,5,1.0000,1
        fifo,0,0,2,a,2,100,100,160,60,50,1.2000,2
        fifo,0,1,3,b,4,110,160,180,70,20,1.9600,1"#]]
    .assert_eq(&outcomes[0].lines().take(4).collect::<Vec<_>>().join("\n"));
}

#[test]
fn a_report_is_drawn_and_a_journal_replays() {
    let folder = Folder::new("report", TRACE);
    let [svg, html, journal] =
        ["r.svg", "r.html", "journal"].map(|name| folder.0.join(name).display().to_string());
    for report in [&svg, &html] {
        let args = folder.args(&["--report", report, "--policy", "las", "--journal", &journal]);
        run(&args, Format::Json).unwrap();
        assert!(std::fs::read_to_string(report).unwrap().contains("finish-time fairness"));
    }
    replay(journal.as_ref(), Format::Table).unwrap();
}

#[test]
fn what_if_needs_policies_that_can_go_on() {
    let folder = Folder::new("what-if", TRACE);
    let go_on = |more: &[&str], at: u64| {
        let case = load::case(&folder.args(more)).unwrap();
        what_if::run(&case, at, Format::Json).map_err(|error| format!("{error:#}"))
    };
    let told = [
        go_on(&["--policy", "fifo,gavel"], 105),
        go_on(&["--policy", "fifo,srtf"], 100_000),
        go_on(&["--policy", "srtf,muri-srtf"], 105),
    ];
    let told: Vec<String> = told.into_iter().filter_map(Result::err).collect();
    expect_test::expect![[r#"
        gavel counts time in its own simulator's way; it cannot go on from a run of fifo
        all jobs have ended by 100000 s under fifo; give an earlier --what-if-at
        muri-srtf counts time in its own simulator's way; it cannot go on from a run of srtf"#]]
    .assert_eq(&told.join("\n"));
}
