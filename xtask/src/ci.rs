//! Everything that must be true of a commit, in the order that fails soonest.

use crate::{cargo, python, say, timings};
use std::process::{Command, Stdio};

fn run_all(steps: &mut [(&str, Command)]) -> anyhow::Result<()> {
    for (what, command) in steps {
        say(&format!("\n== {what}"));
        crate::run(command)?;
    }
    Ok(())
}

pub(crate) fn run() -> anyhow::Result<()> {
    let step = |arguments: &[&str]| {
        let mut command = cargo();
        command.args(arguments);
        command
    };
    run_all(&mut [
        ("formatting", step(&["fmt", "--all", "--check"])),
        ("building, tests included", step(&["build", "--workspace", "--all-targets", "--timings"])),
    ])?;
    timings::print_slowest();
    let python = python::prepare()?;
    let clippy = step(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    let mut tests = if has_nextest() {
        step(&["nextest", "run", "--workspace", "--no-fail-fast"])
    } else {
        step(&["test", "--workspace", "--no-fail-fast"])
    };
    // Property tests draw the same cases on every machine here, and new ones wherever else they run.
    tests.env("RADDLE_PYTHON", &python).env("PROPTEST_RNG_SEED", "2026");
    run_all(&mut [("lints", clippy), ("tests", tests)])
}

/// nextest runs tests in parallel processes and kills those that hang; plain `cargo test` passes too.
fn has_nextest() -> bool {
    let quiet = |command: &mut Command| command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet(cargo().args(["nextest", "--version"])).is_ok_and(|status| status.success())
}
