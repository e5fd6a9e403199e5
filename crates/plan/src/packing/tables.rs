//! Tables as text: what a model does on each instance, and what tenants ask for. All faults of a text are told at once.

use super::slots::Size;
use std::collections::BTreeSet;
use thiserror::Error;

/// What was measured on one instance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The instance's size.
    pub size: Size,
    /// Rows of a batch.
    pub batch: u32,
    /// Processes that share the instance (MPS).
    pub processes: u32,
    /// Requests a second of one of these processes.
    pub each_per_s: f64,
    /// Seconds that a batch takes.
    pub latency_s: f64,
}

impl Measured {
    /// Requests a second of all processes.
    #[must_use]
    pub fn per_s(&self) -> f64 {
        self.each_per_s * f64::from(self.processes)
    }

    /// Milliseconds that a batch takes.
    #[must_use]
    pub fn latency_ms(&self) -> f64 {
        self.latency_s * 1e3
    }
}

/// What a model does on every instance that was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelTable {
    /// The model.
    pub name: String,
    /// What was measured, in the table's order.
    pub measured: Vec<Measured>,
    /// Instances, batches and processes that the table lists without a throughput: what did not fit in memory.
    pub holes: Vec<(Size, u32, u32)>,
}

/// What a tenant asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenant {
    /// The model.
    pub model: String,
    /// Latest answer after a request's arrival, ms.
    pub slo_ms: f64,
    /// Requests a second.
    pub rate: f64,
}

/// What is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", .0.join("\n"))]
pub struct TableError(pub Vec<String>);

impl ModelTable {
    /// Reads a table of ParvaGPU's form: a header, then lines of slices, batch, processes, throughput of one process in
    /// requests a second, and latency in seconds. A line of two zeros is a hole.
    ///
    /// # Errors
    /// All faults at once, each with its line.
    pub fn parse(name: &str, text: &str) -> Result<Self, TableError> {
        let mut table = Self { name: name.to_owned(), measured: Vec::new(), holes: Vec::new() };
        let mut faults = Vec::new();
        let mut seen = BTreeSet::new();
        for (number, line) in text.lines().enumerate().skip(1).filter(|(_, line)| !line.trim().is_empty()) {
            let at = || format!("{name}, line {}", number + 1);
            match row(line) {
                Ok(row) if !seen.insert((row.size, row.batch, row.processes)) => {
                    faults.push(format!("{}: this instance, batch and processes are listed twice", at()));
                }
                Ok(row) if row.each_per_s == 0.0 && row.latency_s == 0.0 => {
                    table.holes.push((row.size, row.batch, row.processes));
                }
                Ok(row) if row.each_per_s > 0.0 && row.latency_s > 0.0 => table.measured.push(row),
                Ok(_) => faults.push(format!("{}: throughput or latency is no positive number", at())),
                Err(why) => faults.push(format!("{}: {why}", at())),
            }
        }
        if faults.is_empty() && table.measured.is_empty() {
            faults.push(format!("{name}: nothing was measured; the table has only a header or holes"));
        }
        if faults.is_empty() { Ok(table) } else { Err(TableError(faults)) }
    }
}

fn row(line: &str) -> Result<Measured, String> {
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    let [slices, batch, processes, each_per_s, latency_s] = cells[..] else {
        return Err(format!("{} columns, not slices, batch, processes, throughput, latency", cells.len()));
    };
    let whole = |text: &str| text.parse::<u32>().ok().filter(|number| *number > 0);
    let real = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    Ok(Measured {
        size: Size::try_from(whole(slices).ok_or_else(|| format!("{slices:?} is no number of slices"))?)?,
        batch: whole(batch).ok_or_else(|| format!("{batch:?} is no batch"))?,
        processes: whole(processes).ok_or_else(|| format!("{processes:?} is no number of processes"))?,
        each_per_s: real(each_per_s).ok_or_else(|| format!("{each_per_s:?} is no throughput"))?,
        latency_s: real(latency_s).ok_or_else(|| format!("{latency_s:?} is no latency"))?,
    })
}

/// Reads sets of tenants: one line a set, one column a model, in `slos` the promises in ms, in `rates` requests a second;
/// `N/A` or 0 where a model has no tenant. Columns are `models` in their order, unless both texts begin with a line of names.
///
/// # Errors
/// All faults at once.
pub fn demands(slos: &str, rates: &str, models: &[String]) -> Result<Vec<Vec<Tenant>>, TableError> {
    let mut faults = Vec::new();
    let (slo_names, slos) = grid("promises", slos, &mut faults);
    let (rate_names, rates) = grid("rates", rates, &mut faults);
    if slo_names != rate_names {
        faults.push("promises and rates name different models in their first line".into());
    }
    if slos.len() != rates.len() {
        faults.push(format!("there are {} sets of promises and {} of rates", slos.len(), rates.len()));
    }
    let names = slo_names.unwrap_or_else(|| models.to_vec());
    let mut sets = Vec::new();
    for (number, (slos, rates)) in slos.iter().zip(&rates).enumerate() {
        for (what, row) in [("promises", slos), ("rates", rates)] {
            if row.len() != names.len() {
                faults.push(format!(
                    "{what}, set {}: {} columns for {} models",
                    number + 1,
                    row.len(),
                    names.len()
                ));
            }
        }
        let mut set = Vec::new();
        for (model, (slo, rate)) in names.iter().zip(slos.iter().zip(rates)) {
            match (slo, rate) {
                (Some(slo_ms), Some(rate)) => {
                    set.push(Tenant { model: model.clone(), slo_ms: *slo_ms, rate: *rate });
                }
                (None, None) => {}
                _ => faults.push(format!("set {}: {model} has a promise or a rate, not both", number + 1)),
            }
        }
        sets.push(set);
    }
    if sets.is_empty() {
        faults.push("there is no set of tenants".into());
    }
    if faults.is_empty() { Ok(sets) } else { Err(TableError(faults)) }
}

/// The names in the first line, if there are, and the numbers of each other line.
fn grid(what: &str, text: &str, faults: &mut Vec<String>) -> (Option<Vec<String>>, Vec<Vec<Option<f64>>>) {
    let absent = |cell: &str| cell.is_empty() || cell.eq_ignore_ascii_case("n/a");
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).peekable();
    let named =
        |line: &str| line.split(',').map(str::trim).all(|cell| !absent(cell) && cell.parse::<f64>().is_err());
    let names = lines.next_if(|(_, line)| named(line));
    let names = names.map(|(_, line)| line.split(',').map(|cell| cell.trim().to_owned()).collect());
    let mut cell = |number: usize, cell: &str| match cell.parse::<f64>() {
        _ if absent(cell) => None,
        Ok(0.0) => None,
        Ok(value) if value.is_finite() && value > 0.0 => Some(value),
        _ => {
            faults.push(format!("{what}, line {}: {cell:?} is no positive number", number + 1));
            // Something, so that the same cell is not complained about twice.
            Some(1.0)
        }
    };
    let rows = lines.map(|(number, line)| line.split(',').map(|text| cell(number, text.trim())).collect());
    (names, rows.collect())
}
