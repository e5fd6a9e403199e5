//! Which crates took longest to build, so that a slow dependency is seen the day it comes in.

use crate::{say, target};
use serde_json::Value;

/// How many are printed.
const SHOWN: usize = 8;

/// Prints the slowest crates of the latest `cargo build --timings`; nothing when nothing was built.
pub(crate) fn print_slowest() {
    let report = target().join("cargo-timings/cargo-timing.html");
    let Ok(html) = std::fs::read_to_string(report) else { return };
    let Some(mut units) = units(&html) else { return };
    units.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let total: f64 = units.iter().map(|(seconds, _)| seconds).sum();
    if total < 1.0 {
        return;
    }
    say(&format!("\n{total:.0} s of compilation; the slowest crates:"));
    for (seconds, name) in units.iter().take(SHOWN) {
        say(&format!("{seconds:>8.1} s  {name}"));
    }
}

/// Seconds and name of each unit that cargo wrote into its report.
fn units(html: &str) -> Option<Vec<(f64, String)>> {
    let begin = html.find("const UNIT_DATA = ")? + "const UNIT_DATA = ".len();
    let end = begin + html[begin..].find("];")? + 1;
    let units: Vec<Value> = serde_json::from_str(&html[begin..end]).ok()?;
    let unit = |unit: &Value| Some((unit["duration"].as_f64()?, unit["name"].as_str()?.to_owned()));
    Some(units.iter().filter_map(unit).collect())
}
