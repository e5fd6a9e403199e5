//! Tensor elements as JSON numbers, both ways, without a value per element in between.
//!
//! Reading takes text that a JSON parser has already accepted; it only has to tell numbers from the rest. Every `f32`
//! and `f64` is read and written exactly (shortest form that reads back the same).

use super::error::CallError;
use graph::DType;
use std::io::Write as _;

/// Nested lists deeper than this are refused; no tensor has more dimensions.
const NESTING_MAX: usize = 32;

/// Longest piece of a wrong element shown in an error.
const SHOWN_MAX: usize = 40;

/// Why a list of numbers is not a tensor's data. The caller adds which input it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NumberFault {
    /// The list has another length.
    Count { found: String },
    /// An element is not of the type.
    Element { at: usize, text: String, expected: &'static str },
    /// Lists in lists in lists.
    Depth,
}

/// The bytes of the `count` elements in `json`, a list of numbers or of lists of numbers.
pub(super) fn read(json: &str, dtype: DType, count: usize) -> Result<Vec<u8>, NumberFault> {
    match dtype {
        DType::Bool => scan(json, count, "true or false", |text, out| {
            let value = match text {
                "true" | "1" => 1,
                "false" | "0" => 0,
                _ => return false,
            };
            out.push(value);
            true
        }),
        DType::U8 => {
            scan(json, count, "a UINT8", |text, out| push(text.parse::<u8>().ok(), u8::to_le_bytes, out))
        }
        DType::U16 => {
            scan(json, count, "a UINT16", |text, out| push(text.parse::<u16>().ok(), u16::to_le_bytes, out))
        }
        DType::U32 => {
            scan(json, count, "a UINT32", |text, out| push(text.parse::<u32>().ok(), u32::to_le_bytes, out))
        }
        DType::U64 => {
            scan(json, count, "a UINT64", |text, out| push(text.parse::<u64>().ok(), u64::to_le_bytes, out))
        }
        DType::I8 => {
            scan(json, count, "an INT8", |text, out| push(text.parse::<i8>().ok(), i8::to_le_bytes, out))
        }
        DType::I16 => {
            scan(json, count, "an INT16", |text, out| push(text.parse::<i16>().ok(), i16::to_le_bytes, out))
        }
        DType::I32 => {
            scan(json, count, "an INT32", |text, out| push(text.parse::<i32>().ok(), i32::to_le_bytes, out))
        }
        DType::I64 => {
            scan(json, count, "an INT64", |text, out| push(text.parse::<i64>().ok(), i64::to_le_bytes, out))
        }
        DType::F32 => scan(json, count, "a finite FP32", |text, out| {
            push(
                number(text).and_then(|text| text.parse::<f32>().ok()).filter(|v| v.is_finite()),
                f32::to_le_bytes,
                out,
            )
        }),
        DType::F64 => scan(json, count, "a finite FP64", |text, out| {
            push(
                number(text).and_then(|text| text.parse::<f64>().ok()).filter(|v| v.is_finite()),
                f64::to_le_bytes,
                out,
            )
        }),
        DType::F16 => {
            Err(NumberFault::Element { at: 0, text: "JSON".into(), expected: "a way to carry FP16" })
        }
    }
}

/// `text` when it begins as a JSON number does: keeps `nan` and `inf`, which Rust parses, out.
fn number(text: &str) -> Option<&str> {
    text.starts_with(|first: char| first.is_ascii_digit() || first == '-').then_some(text)
}

fn push<T, const N: usize>(value: Option<T>, bytes: impl Fn(T) -> [u8; N], out: &mut Vec<u8>) -> bool {
    let Some(value) = value else { return false };
    out.extend_from_slice(&bytes(value));
    true
}

/// Walks the list and hands each element's text to `element`, which appends its bytes or says no.
fn scan(
    json: &str,
    count: usize,
    expected: &'static str,
    element: impl Fn(&str, &mut Vec<u8>) -> bool,
) -> Result<Vec<u8>, NumberFault> {
    // An element takes at least two characters, so the text bounds the allocation whatever the shape claims.
    let mut out = Vec::with_capacity(count.min(json.len() / 2 + 1));
    let bytes = json.as_bytes();
    let (mut at, mut depth, mut found) = (0, 0_usize, 0_usize);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'[' => {
                depth += 1;
                if depth > NESTING_MAX {
                    return Err(NumberFault::Depth);
                }
                at += 1;
            }
            b']' => {
                depth = depth.saturating_sub(1);
                at += 1;
            }
            b',' | b' ' | b'\t' | b'\n' | b'\r' => at += 1,
            _ => {
                let end = token_end(bytes, at);
                let text = &json[at..end];
                let whole = depth > 0 && found < count && element(text, &mut out);
                if !whole {
                    return Err(refused(text, found, count, depth, expected));
                }
                found += 1;
                at = end;
            }
        }
    }
    if found == count { Ok(out) } else { Err(NumberFault::Count { found: found.to_string() }) }
}

/// Where the element that begins at `at` ends: at a separator, or after a whole string or object.
fn token_end(bytes: &[u8], at: usize) -> usize {
    match bytes[at] {
        // Wrong in any case: take the rest, the message shows its beginning.
        b'"' | b'{' => bytes.len(),
        _ => bytes[at..]
            .iter()
            .position(|byte| matches!(byte, b',' | b']' | b' ' | b'\t' | b'\n' | b'\r'))
            .map_or(bytes.len(), |length| at + length),
    }
}

fn refused(text: &str, found: usize, count: usize, depth: usize, expected: &'static str) -> NumberFault {
    if depth > 0 && found >= count {
        return NumberFault::Count { found: format!("more than {count}") };
    }
    let expected = if depth == 0 { "a list" } else { expected };
    NumberFault::Element { at: found, text: shown(text), expected }
}

/// The beginning of `text`, short enough for a message.
pub(super) fn shown(text: &str) -> String {
    if text.chars().nth(SHOWN_MAX).is_none() {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(SHOWN_MAX).collect();
    cut.push('…');
    cut
}

impl NumberFault {
    /// The error a client sees, for `input` of `shape`.
    pub(super) fn into_error(self, input: &str, shape: &str, count: usize) -> CallError {
        let input = input.to_owned();
        match self {
            Self::Count { found } => {
                CallError::ElementCount { input, shape: shape.into(), expected: count, found }
            }
            Self::Element { at, text, expected } => CallError::Element { input, at, text, expected },
            Self::Depth => CallError::Depth { limit: NESTING_MAX },
        }
    }
}

/// A value that JSON cannot carry: its place and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NonFinite {
    /// Counted from 0.
    pub(super) at: usize,
    /// `NaN`, `inf` or `-inf`.
    pub(super) value: String,
}

/// Appends `data` to `out` as a flat JSON list.
pub(super) fn write(data: &[u8], dtype: DType, out: &mut Vec<u8>) -> Result<(), NonFinite> {
    out.push(b'[');
    match dtype {
        DType::Bool => list(data, |bytes: &[u8; 1]| bytes[0] != 0, out),
        DType::U8 => list(data, |b| u8::from_le_bytes(*b), out),
        DType::U16 => list(data, |b| u16::from_le_bytes(*b), out),
        DType::U32 => list(data, |b| u32::from_le_bytes(*b), out),
        DType::U64 => list(data, |b| u64::from_le_bytes(*b), out),
        DType::I8 => list(data, |b| i8::from_le_bytes(*b), out),
        DType::I16 => list(data, |b| i16::from_le_bytes(*b), out),
        DType::I32 => list(data, |b| i32::from_le_bytes(*b), out),
        DType::I64 => list(data, |b| i64::from_le_bytes(*b), out),
        DType::F16 => floats(data, |b| half::f16::from_le_bytes(*b).to_f32(), f32::is_finite, out)?,
        DType::F32 => floats(data, |b| f32::from_le_bytes(*b), f32::is_finite, out)?,
        DType::F64 => floats(data, |b| f64::from_le_bytes(*b), f64::is_finite, out)?,
    }
    out.push(b']');
    Ok(())
}

fn list<const N: usize, T: std::fmt::Display>(data: &[u8], read: impl Fn(&[u8; N]) -> T, out: &mut Vec<u8>) {
    for (at, bytes) in data.as_chunks::<N>().0.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write!(out, "{}", read(bytes)).expect("a Vec takes every write");
    }
}

fn floats<const N: usize, T: serde::Serialize + std::fmt::Display + Copy>(
    data: &[u8],
    read: impl Fn(&[u8; N]) -> T,
    finite: impl Fn(T) -> bool,
    out: &mut Vec<u8>,
) -> Result<(), NonFinite> {
    for (at, bytes) in data.as_chunks::<N>().0.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        let value = read(bytes);
        if !finite(value) {
            return Err(NonFinite { at, value: value.to_string() });
        }
        serde_json::to_writer(&mut *out, &value).expect("a finite number goes into a Vec");
    }
    Ok(())
}
