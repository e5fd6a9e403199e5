//! Tables of text with a header: columns by name, numbers with the line they stand on.

use super::Problem;

/// A table and what is wrong with it so far.
pub(in crate::cluster) struct Table<'t> {
    columns: Vec<&'t str>,
    rows: Vec<(usize, Vec<&'t str>)>,
    pub(in crate::cluster) problems: Vec<Problem>,
}

/// A row being read; problems go to the table's list.
pub(in crate::cluster) struct Row<'r, 't> {
    pub(in crate::cluster) line: usize,
    cells: &'r [&'t str],
    columns: &'r [&'t str],
    problems: &'r mut Vec<Problem>,
}

impl<'t> Table<'t> {
    /// Splits `text` at newlines and commas. A row with another number of cells than the header is a problem.
    pub(in crate::cluster) fn new(text: &'t str, needed: &[&str]) -> Self {
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let columns = lines.next().map(|(_, line)| split(line, ',')).unwrap_or_default();
        let mut problems = Vec::new();
        for name in needed.iter().filter(|name| !columns.contains(name)) {
            problems.push(Problem { line: 1, what: format!("the header lacks the column \"{name}\"") });
        }
        let mut table = Self { columns, rows: Vec::new(), problems };
        table.fill(lines, ',', "the header names");
        if table.problems.iter().any(|problem| problem.line == 1) {
            table.rows.clear();
        }
        table
    }

    /// Splits `text`, which has no header, at newlines and `separator` into these columns.
    pub(in crate::cluster) fn bare(text: &'t str, columns: &[&'t str], separator: char) -> Self {
        let mut table = Self { columns: columns.to_vec(), rows: Vec::new(), problems: Vec::new() };
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        table.fill(lines, separator, "this format has");
        table
    }

    fn fill(&mut self, lines: impl Iterator<Item = (usize, &'t str)>, separator: char, wanted: &str) {
        for (at, line) in lines {
            let cells = split(line, separator);
            if cells.len() == self.columns.len() {
                self.rows.push((at + 1, cells));
            } else {
                let what = format!("{} cells, but {wanted} {}", cells.len(), self.columns.len());
                self.problems.push(Problem { line: at + 1, what });
            }
        }
    }

    /// Reads each row; rows for which `read` gives nothing have left a problem.
    pub(in crate::cluster) fn read<T>(
        mut self,
        mut read: impl FnMut(&mut Row<'_, 't>) -> Option<T>,
    ) -> (Vec<T>, Vec<Problem>) {
        let mut values = Vec::with_capacity(self.rows.len());
        for (line, cells) in &self.rows {
            let mut row = Row { line: *line, cells, columns: &self.columns, problems: &mut self.problems };
            values.extend(read(&mut row));
        }
        (values, self.problems)
    }
}

impl<'t> Row<'_, 't> {
    /// The cell under `column`.
    pub(in crate::cluster) fn text(&self, column: &str) -> &'t str {
        self.columns.iter().position(|name| *name == column).map_or("", |at| self.cells[at])
    }

    /// The number under `column`, at least 0; nothing, and a problem, when it is none.
    pub(in crate::cluster) fn number(&mut self, column: &str) -> Option<f64> {
        let text = self.text(column);
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
        if number.is_none() {
            self.problem(format!("{column} is \"{text}\", not a number of at least 0"));
        }
        number
    }

    /// The whole number under `column`; nothing, and a problem, when it is none.
    pub(in crate::cluster) fn whole(&mut self, column: &str) -> Option<u64> {
        let text = self.text(column);
        let number = text.parse::<u64>().ok();
        if number.is_none() {
            self.problem(format!("{column} is \"{text}\", not a whole number of at least 0"));
        }
        number
    }

    /// GPUs under `column`.
    pub(in crate::cluster) fn gpus(&mut self, column: &str) -> Option<u32> {
        let number = self.whole(column)?;
        let gpus = u32::try_from(number).ok();
        if gpus.is_none() {
            self.problem(format!("{column} is {number}, more than any cluster has"));
        }
        gpus
    }

    /// Notes that something is wrong with this row.
    pub(in crate::cluster) fn problem(&mut self, what: String) {
        self.problems.push(Problem { line: self.line, what });
    }
}

fn split(line: &str, separator: char) -> Vec<&str> {
    line.split(separator).map(str::trim).collect()
}
