//! Estimates what a file unpacks to before it is decoded: an empty node is two bytes in the file and hundreds in memory,
//! so a small file could otherwise fill any machine. Walks the wire format without allocating.

use super::ImportLimits;
use super::error::ImportError;

/// The message types of an ONNX file that hold others.
#[derive(Clone, Copy)]
enum Kind {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    /// A message that is not entered: the worst it could unpack to is charged.
    Closed,
}

/// Bytes of the largest decoded message (a node or a tensor) with its allocations.
const MESSAGE_BYTES: u64 = 512;
/// Bytes of a decoded string or list element, allocation included.
const FIELD_BYTES: u64 = 48;
/// Bytes in memory for one byte of a message that is not entered: its smallest parts take two bytes in the file.
const CLOSED_FACTOR: u64 = 128;
/// prost refuses deeper nesting.
const DEPTH_MAX: usize = 100;

/// Refuses a file that would unpack to more than its own size and the limit together.
pub(crate) fn weigh(bytes: &[u8], limits: &ImportLimits) -> Result<(), ImportError> {
    let allowed = limits.derived.0.saturating_add(length_of(bytes));
    let mut scale = Scale { left: allowed };
    if scale.message(bytes, Kind::Model, 0).is_some() {
        Ok(())
    } else {
        Err(ImportError::Unpacks { limit: limits.derived })
    }
}

struct Scale {
    left: u64,
}

impl Scale {
    fn charge(&mut self, bytes: u64) -> Option<()> {
        self.left = self.left.checked_sub(bytes)?;
        Some(())
    }

    /// Weighs one message; `None` once the allowance is spent. Damage ends the walk: the decoder will report it.
    fn message(&mut self, mut bytes: &[u8], kind: Kind, depth: usize) -> Option<()> {
        self.charge(MESSAGE_BYTES)?;
        if matches!(kind, Kind::Closed) {
            return self.charge(length_of(bytes).saturating_mul(CLOSED_FACTOR));
        }
        if depth > DEPTH_MAX {
            return Some(());
        }
        while let Some(tag) = varint(&mut bytes) {
            let (field, wire) = (tag >> 3, tag & 7);
            match wire {
                0 => {
                    let Some(_) = varint(&mut bytes) else { break };
                    self.charge(8)?;
                }
                1 | 5 => {
                    let width = if wire == 1 { 8 } else { 4 };
                    let Some(rest) = bytes.get(width..) else { break };
                    bytes = rest;
                    self.charge(8)?;
                }
                2 => {
                    let Some(length) = varint(&mut bytes).and_then(|length| usize::try_from(length).ok())
                    else {
                        break;
                    };
                    let Some((body, rest)) = bytes.split_at_checked(length) else { break };
                    bytes = rest;
                    self.body(body, kind, field, depth)?;
                }
                _ => break,
            }
        }
        Some(())
    }

    fn body(&mut self, body: &[u8], kind: Kind, field: u64, depth: usize) -> Option<()> {
        let length = length_of(body);
        if let Some(inner) = inner(kind, field) {
            return self.message(body, inner, depth + 1);
        }
        // A packed integer is at least one byte in the file and at most eight in memory.
        let packed = matches!((kind, field), (Kind::Tensor, 1 | 5 | 7 | 11) | (Kind::Attribute, 8));
        self.charge(if packed { length.saturating_mul(8) } else { length.saturating_add(FIELD_BYTES) })
    }
}

/// The message type of a field, by its number in the ONNX schema; `None` for numbers, strings and bytes.
const fn inner(kind: Kind, field: u64) -> Option<Kind> {
    Some(match (kind, field) {
        (Kind::Model, 7) => Kind::Graph,
        (Kind::Model, 8 | 14 | 20 | 25) | (Kind::Graph, 11..=14) | (Kind::Tensor, 3 | 13) => Kind::Closed,
        (Kind::Graph, 1) => Kind::Node,
        (Kind::Graph, 5) | (Kind::Attribute, 5 | 10) => Kind::Tensor,
        (Kind::Graph, 15) | (Kind::Attribute, 14 | 15 | 22 | 23) => Kind::Closed,
        (Kind::Node, 5) => Kind::Attribute,
        (Kind::Attribute, 6 | 11) => Kind::Graph,
        _ => return None,
    })
}

fn length_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
