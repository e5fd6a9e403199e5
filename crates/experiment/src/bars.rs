//! The bars an issue sets, each with what was measured: printed, written to `bars.txt`, never loosened.

use crate::host;
use std::fmt::Write as _;
use std::path::Path;

/// Measured values against their limits.
#[derive(Debug, Default)]
pub(crate) struct Bars {
    text: String,
    short: bool,
}

impl Bars {
    /// `value` must be at most `limit`.
    pub(crate) fn at_most(&mut self, what: &str, value: f64, limit: f64, unit: &str) {
        self.add(what, value, &format!("≤ {limit}{unit}"), value <= limit, unit);
    }

    /// `value` must be at least `limit`.
    pub(crate) fn at_least(&mut self, what: &str, value: f64, limit: f64, unit: &str) {
        self.add(what, value, &format!("≥ {limit}{unit}"), value >= limit, unit);
    }

    fn add(&mut self, what: &str, value: f64, limit: &str, ok: bool, unit: &str) {
        let verdict = if ok { "ok" } else { "short" };
        let shown = if value >= 1_000.0 { format!("{value:.0}") } else { format!("{value:.3}") };
        self.short |= !ok;
        self.line(&format!("bar {what}: {shown}{unit} (limit {limit}) {verdict}"));
    }

    /// A figure beside the bars, without a limit.
    pub(crate) fn note(&mut self, text: &str) {
        self.line(&format!("note {text}"));
    }

    fn line(&mut self, line: &str) {
        host::print(line);
        writeln!(self.text, "{line}").expect("writing to a string succeeds");
    }

    /// Writes `bars.txt`; whether every bar was met.
    pub(crate) fn finish(self, folder: &Path) -> anyhow::Result<bool> {
        self.finish_as(&folder.join("bars.txt"))
    }

    /// Writes the bars of one part; whether all were met.
    pub(crate) fn finish_as(self, file: &Path) -> anyhow::Result<bool> {
        std::fs::write(file, self.text)?;
        Ok(!self.short)
    }
}
