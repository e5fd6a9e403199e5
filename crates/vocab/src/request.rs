//! What a client asks for, as far as scheduling needs to know: never the tensors themselves.

use crate::{ModelId, RequestId, Time};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A strict class of service: 1 goes first. Triton's `priority`, with its 0 ("default") already resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Class(u32);

impl Class {
    /// The first class.
    pub const FIRST: Self = Self(1);

    /// Class number `level`, where 1 goes first; `None` for 0, which means "the model's default".
    #[must_use]
    pub const fn new(level: u32) -> Option<Self> {
        if level == 0 { None } else { Some(Self(level)) }
    }

    /// The class number, 1 or more.
    #[must_use]
    pub const fn level(self) -> u32 {
        self.0
    }

    /// This class promoted by `levels`, stopping at the first.
    #[must_use]
    pub const fn promoted(self, levels: u32) -> Self {
        let level = self.0.saturating_sub(levels);
        if level == 0 { Self::FIRST } else { Self(level) }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("class {}", self.0))
    }
}

/// One inference request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Its number, in order of arrival.
    pub id: RequestId,
    /// The model asked for.
    pub model: ModelId,
    /// Strict class of service.
    pub class: Class,
    /// Batch rows it brings (its leading dimension); at least 1.
    pub rows: u32,
    /// When it arrived.
    pub arrival: Time,
    /// When its answer is due; after that the client is told so instead of being answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
}
