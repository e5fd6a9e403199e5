//! HiGHS, when a Python with highspy is found at run time: `RADDLE_PYTHON`, or `.cache/python` here or above.

use crate::plan::clock::Clock;
use anyhow::{Context as _, bail};
use plan::{Answer, Model};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = include_str!("highs.py");

/// What a solver may take beyond its limit: to read the program and to tell its answer.
const GRACE: Duration = Duration::from_secs(15);

/// Longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 1 << 28;

#[derive(Deserialize)]
struct Said {
    values: BTreeMap<String, f64>,
    bound: Option<f64>,
    state: String,
}

/// A Python that has highspy.
pub(crate) fn find() -> Option<PathBuf> {
    let named = std::env::var_os("RADDLE_PYTHON").map(PathBuf::from);
    let here = std::env::current_dir().ok()?;
    let cached = here.ancestors().map(|folder| folder.join(".cache/python/bin/python"));
    let candidates = named.into_iter().chain(cached.filter(|path| path.is_file()));
    candidates.into_iter().find(|python| {
        let mut command = Command::new(python);
        command
            .args(["-c", "import highspy"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}

/// Solves `model` in what is left of the time.
pub(crate) fn solve(
    python: &PathBuf,
    model: &Model,
    start: &BTreeMap<String, f64>,
    clock: &Clock,
) -> anyhow::Result<Answer> {
    let seconds = clock.left();
    let path = std::env::temp_dir().join(format!("raddle-plan-{}.lp", std::process::id()));
    std::fs::write(&path, model.text()).with_context(|| format!("cannot write {}", path.display()))?;
    let answer = ask(python, &path, start, seconds);
    // A file that stays behind in the temporary folder harms nobody.
    let _ = std::fs::remove_file(&path);
    answer
}

fn ask(
    python: &PathBuf,
    path: &PathBuf,
    start: &BTreeMap<String, f64>,
    seconds: Duration,
) -> anyhow::Result<Answer> {
    let mut child = Command::new(python)
        .args(["-c", PROGRAM])
        .arg(path)
        .arg(format!("{:.3}", seconds.as_secs_f64()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", python.display()))?;
    let mut input = child.stdin.take().context("the solver has no input")?;
    let mut output = child.stdout.take().context("the solver has no output")?;
    let mut complaints = child.stderr.take().context("the solver has no error output")?;
    input.write_all(serde_json::to_string(start)?.as_bytes()).context("the solver does not listen")?;
    drop(input);
    let read = std::thread::spawn(move || {
        let mut text = String::new();
        output.by_ref().take(ANSWER_BYTES_MAX).read_to_string(&mut text).map(|_| text)
    });
    let complain = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = complaints.by_ref().take(1 << 16).read_to_string(&mut text);
        text
    });
    let ended = wait(&mut child, seconds + GRACE)?;
    let text = read.join().map_err(|_| anyhow::anyhow!("reading the solver's answer failed"))??;
    let said = complain.join().unwrap_or_default();
    if !ended {
        bail!("the solver did not end in {:.0} s", (seconds + GRACE).as_secs_f64());
    }
    let said: Said = serde_json::from_str(text.lines().last().unwrap_or_default()).with_context(|| {
        format!("the solver failed: {}", said.lines().last().unwrap_or("no reason given"))
    })?;
    tracing::debug!("HiGHS ended: {}", said.state);
    Ok(Answer { values: said.values, bound: said.bound })
}

/// Waits so long; whether the child ended by itself.
fn wait(child: &mut Child, limit: Duration) -> anyhow::Result<bool> {
    let start = Instant::now();
    while start.elapsed() < limit {
        if child.try_wait()?.is_some() {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().context("the solver cannot be stopped")?;
    child.wait()?;
    Ok(false)
}
