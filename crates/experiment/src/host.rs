//! The machine an experiment runs on, and the terminal it talks to.

use std::path::Path;

/// Says something beside the results.
#[expect(clippy::print_stderr, reason = "an experiment talks to the terminal")]
pub(crate) fn say(text: &str) {
    eprintln!("{text}");
}

/// Prints a result.
#[expect(clippy::print_stdout, reason = "an experiment prints its results")]
pub(crate) fn print(text: &str) {
    println!("{text}");
}

/// Processor and cores, as one line.
pub(crate) fn describe() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown processor");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("?");
    format!("{}, {cores} cores, load average {load} at the start", model.trim_start_matches(['\t', ' ', ':']))
}

/// Writes rows of text as CSV.
pub(crate) fn csv(path: &Path, header: &str, rows: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let mut text = format!("{header}\n");
    for row in rows {
        text.push_str(&row);
        text.push('\n');
    }
    std::fs::write(path, text)?;
    Ok(())
}
