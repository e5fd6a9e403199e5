//! Automation: `cargo xtask ci | demo | python | gpu | bench NAME`. Nothing here is needed to use raddle.

mod bench;
mod ci;
mod demo;
mod gpu;
mod python;
mod timings;

use anyhow::{Context as _, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "cargo xtask TASK

  ci            formatting, lints, everything tests need, all tests; what .ci/run runs
  demo          write an example repository and serve it
  python        put what tests need from Python, and real ONNX files, into .cache
  gpu           build and pack what runs on a machine with a GPU, and print the commands
  bench NAME    measure what an issue names, into experiments/NAME (see `cargo xtask bench`)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["ci"] => ci::run(),
        ["demo", rest @ ..] => demo::run(rest),
        ["python"] => python::prepare().map(drop),
        ["bench", rest @ ..] => bench::run(rest),
        ["gpu"] => gpu::run_gpu(),
        _ => Err(anyhow::anyhow!("usage: {USAGE}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("xtask: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// The workspace's root folder.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// Things fetched or made once, kept between runs, never committed.
fn cache() -> PathBuf {
    root().join(".cache")
}

/// Where cargo builds into.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Says something to the person who started the task.
#[expect(clippy::print_stderr, reason = "a task talks to the terminal")]
fn say(text: &str) {
    eprintln!("{text}");
}

/// A cargo command at the root.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs a command to its end; an error when it fails.
fn run(command: &mut Command) -> anyhow::Result<()> {
    let shown = format!("{:?}", command.get_program()).replace('"', "");
    let arguments: Vec<String> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    let line = format!(
        "{} {}",
        Path::new(&shown).file_name().unwrap_or_default().to_string_lossy(),
        arguments.join(" ")
    );
    say(&format!("$ {line}"));
    let status = command.status().with_context(|| format!("cannot start {line}"))?;
    if !status.success() {
        bail!("{line}: {status}");
    }
    Ok(())
}
