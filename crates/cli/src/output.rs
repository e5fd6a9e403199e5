//! Printing: tables, JSON and CSV on stdout, complaints and progress on stderr.

use crate::args::Format;
use anyhow::Context as _;
use serde::Serialize;
use std::io::Write as _;

/// Version of every JSON document printed.
const SCHEMA_VERSION: u32 = 1;

/// Prints rows in the asked format. `columns` name the values that `cells` gives for each row.
pub(crate) fn rows<T: Serialize>(
    format: Format,
    kind: &str,
    columns: &[&str],
    rows: &[T],
    cells: impl Fn(&T) -> Vec<String>,
) -> anyhow::Result<()> {
    let text = match format {
        Format::Json => json(kind, &rows)?,
        Format::Csv => {
            let line =
                |cells: Vec<String>| cells.iter().map(|cell| quoted(cell)).collect::<Vec<_>>().join(",");
            let header = line(columns.iter().map(|name| (*name).to_owned()).collect());
            std::iter::once(header)
                .chain(rows.iter().map(|row| line(cells(row))))
                .collect::<Vec<_>>()
                .join("\n")
        }
        Format::Table => table(columns, rows.iter().map(cells)),
    };
    print(&text)
}

/// One JSON document.
pub(crate) fn json<T: Serialize>(kind: &str, value: &T) -> anyhow::Result<String> {
    let document = serde_json::json!({"schema_version": SCHEMA_VERSION, kind: value});
    serde_json::to_string_pretty(&document).context("writing JSON failed")
}

/// Aligned columns: the first to the left, the others to the right.
pub(crate) fn table(columns: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_header(columns.to_vec());
    for row in rows {
        table.add_row(row);
    }
    for (place, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if place > 0 {
            column.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// Writes `text` and a line end to stdout; a reader that has gone is no error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("writing to stdout failed"),
    }
}

/// Tells on stderr what went wrong, with its causes.
pub(crate) fn complain(error: &anyhow::Error) {
    // Nothing is left to tell if even stderr is gone.
    let _ = writeln!(std::io::stderr().lock(), "error: {error:#}");
}

/// A number for people, or `-`.
pub(crate) fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.2}"))
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.into() }
}

/// A progress bar on stderr; hidden when stderr is no terminal.
pub(crate) fn progress(length: u64, what: &str) -> indicatif::ProgressBar {
    let style = indicatif::ProgressStyle::with_template("{msg:>24} [{bar:40}] {pos}/{len} {eta}");
    let bar = indicatif::ProgressBar::new(length).with_message(what.to_owned());
    match style {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}
