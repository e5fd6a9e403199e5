//! Measured throughputs in Gavel's format (OSDI'20): steps a second of each model on each kind of GPU, alone and beside
//! another on the same GPUs.

use serde_json::Value;
use std::collections::BTreeMap;

/// A model at a number of GPUs: a row of the file.
type Row = (String, u32);

/// Steps a second of the first and the second of two rows.
type Pair = BTreeMap<(Row, Row), (f64, f64)>;

/// Steps a second, alone and in pairs, by kind of GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Throughputs {
    alone: BTreeMap<String, BTreeMap<Row, f64>>,
    pairs: BTreeMap<String, Pair>,
}

/// Why throughputs cannot be read: everything that is wrong.
#[derive(Debug, thiserror::Error)]
pub enum ThroughputsError {
    /// Not JSON, or not an object of objects.
    #[error("the throughputs are not JSON")]
    Json(#[from] serde_json::Error),
    /// Entries that are not what the format says.
    #[error("the throughputs have {} bad entries, the first: {}", .0.len(), .0.first().map_or("", String::as_str))]
    Entries(Vec<String>),
}

impl Throughputs {
    /// Reads the file's text.
    ///
    /// # Errors
    /// When it is no JSON, or naming every entry that is not `"('MODEL', GPUS)": {"null": RATE, PAIR: [RATE, RATE], …}`.
    pub fn parse(text: &str) -> Result<Self, ThroughputsError> {
        let kinds: BTreeMap<String, BTreeMap<String, BTreeMap<String, Value>>> =
            serde_json::from_str(&quoted(text))?;
        let (mut this, mut bad) = (Self::default(), Vec::new());
        for (kind, rows) in kinds {
            let alone = this.alone.entry(kind.clone()).or_default();
            let pairs = this.pairs.entry(kind.clone()).or_default();
            for (name, cells) in rows {
                let Some(row) = sized(&name) else {
                    bad.push(format!("{kind}: {name} is not ('MODEL', GPUS)"));
                    continue;
                };
                for (other, value) in cells {
                    let number = |value: &Value| value.as_str().and_then(|text| text.parse::<f64>().ok());
                    let rate = |value: &Value| number(value).filter(|rate| rate.is_finite() && *rate >= 0.0);
                    let both = |value: &Value| Some((rate(value.get(0)?)?, rate(value.get(1)?)?));
                    if other == "null" {
                        match rate(&value) {
                            Some(rate) => drop(alone.insert(row.clone(), rate)),
                            None => bad.push(format!(
                                "{kind}: {name} alone is {}, not steps a second",
                                bare(&value)
                            )),
                        }
                    } else {
                        match sized(&other).zip(both(&value)) {
                            Some((other, rates)) => drop(pairs.insert((row.clone(), other), rates)),
                            None => bad.push(format!("{kind}: {name} beside {other} is {}", bare(&value))),
                        }
                    }
                }
            }
        }
        if bad.is_empty() { Ok(this) } else { Err(ThroughputsError::Entries(bad)) }
    }

    /// Steps a second of `model` alone on `gpus` GPUs of `kind`; 0 is "does not fit".
    #[must_use]
    pub fn alone(&self, kind: &str, model: &str, gpus: u32) -> Option<f64> {
        self.alone.get(kind)?.get(&(model.to_owned(), gpus)).copied()
    }

    /// Steps a second of `first` and `second` on the same GPUs of `kind`; nothing where they do not fit together or were not
    /// measured.
    #[must_use]
    pub fn together(&self, kind: &str, first: (&str, u32), second: (&str, u32)) -> Option<(f64, f64)> {
        let row = |(model, gpus): (&str, u32)| (model.to_owned(), gpus);
        let both = self.pairs.get(kind)?.get(&(row(first), row(second))).copied();
        both.filter(|(first, second)| *first > 0.0 && *second > 0.0)
    }

    /// How many times slower `model` is beside `beside`, both on one GPU of `kind`; nothing where it does not fit or was
    /// not measured.
    #[must_use]
    pub fn slowdown(&self, kind: &str, model: &str, beside: &str) -> Option<f64> {
        let key = ((model.to_owned(), 1), (beside.to_owned(), 1));
        let (together, _) = *self.pairs.get(kind)?.get(&key)?;
        let alone = self.alone(kind, model, 1)?;
        (together > 0.0 && alone > 0.0).then(|| (alone / together).max(1.0))
    }
}

/// A value as the file has it.
fn bare(value: &Value) -> String {
    value.to_string().replace('"', "")
}

/// The text with its numbers as strings, so that they can be read to the last bit: on ties it decides who goes first, and the
/// reader of JSON rounds some.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    let (mut inside, mut escaped, mut number) = (false, false, false);
    for c in text.chars() {
        let part =
            !inside && (c.is_ascii_digit() || (number && matches!(c, '.' | 'e' | 'E' | '+')) || c == '-');
        if part != number {
            out.push('"');
            number = part;
        }
        out.push(c);
        if c == '"' && !escaped {
            inside = !inside;
        }
        escaped = inside && c == '\\' && !escaped;
    }
    out
}

/// Reads `('MODEL', GPUS)`.
fn sized(text: &str) -> Option<Row> {
    let inside = text.strip_prefix("('")?.strip_suffix(')')?;
    let (model, gpus) = inside.rsplit_once("', ")?;
    Some((model.to_owned(), gpus.trim().parse().ok()?))
}
