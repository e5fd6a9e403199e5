//! Public traces on this machine.

use super::Settings;
use anyhow::Context as _;
use sim::cluster::{Applications, Throughputs, Trace, trace};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

pub(super) fn text(settings: &Settings, path: &str) -> anyhow::Result<String> {
    let path = Path::new(&settings.data).join(path);
    std::fs::read_to_string(&path).with_context(|| {
        format!("cannot read {}; public traces are kept beside the workspace", path.display())
    })
}

pub(super) fn muri(settings: &Settings, name: &str) -> anyhow::Result<Trace> {
    Ok(trace::muri(&text(settings, &format!("muri/{name}.csv"))?)?)
}

pub(super) fn throughputs(settings: &Settings, name: &str) -> anyhow::Result<Arc<Throughputs>> {
    Ok(Arc::new(Throughputs::parse(&text(settings, &format!("gavel/{name}_throughputs.json"))?)?))
}

pub(super) fn applications(settings: &Settings) -> anyhow::Result<Arc<Applications>> {
    let folder = Path::new(&settings.data).join("pollux/traces");
    let mut files = Vec::new();
    let list =
        |path: &Path| std::fs::read_dir(path).with_context(|| format!("cannot list {}", path.display()));
    for application in list(&folder)? {
        let application = application?;
        for file in list(&application.path())? {
            let file = file?;
            let name =
                [application.file_name(), file.file_name()].map(|name| name.to_string_lossy().into_owned());
            files.push((name.join("/"), std::fs::read_to_string(file.path())?));
        }
    }
    files.sort();
    Ok(Arc::new(Applications::parse(&files)?))
}

/// Seconds of processor that this thread has had, so that others on the machine do not count; nothing where the system does
/// not tell.
pub(super) fn processor_s() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let ns: u64 = text.split(' ').next()?.parse().ok()?;
    Some(ns as f64 / 1e9)
}

/// What `run` gives, and the seconds of processor it took (of the clock where those are not told).
pub(super) fn timed<T>(run: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(T, f64)> {
    let (begin, before) = (Instant::now(), processor_s());
    let result = run()?;
    let took = processor_s().zip(before).map(|(after, before)| after - before);
    Ok((result, took.unwrap_or_else(|| begin.elapsed().as_secs_f64())))
}

/// Runs at most, and seconds of processor at least, for a time that is told: the system counts processor in steps of some
/// milliseconds.
const RUNS: (usize, f64) = (100, 0.25);

/// What `run` gives, and the mean of the seconds of processor that its repeats took, at least `repeats`.
pub(super) fn repeated<T>(repeats: usize, run: impl Fn() -> anyhow::Result<T>) -> anyhow::Result<(T, f64)> {
    let (mut result, mut all) = timed(&run)?;
    let mut runs = 1;
    while runs < RUNS.0 && (runs < repeats || all < RUNS.1) {
        let (again, seconds) = timed(&run)?;
        (result, all, runs) = (again, all + seconds, runs + 1);
    }
    Ok((result, all / runs as f64))
}
