//! How much slower a model runs beside another on a disjoint part: measured in pairs, or estimated from traffic.
//!
//! Parts share caches and memory bandwidth. What nobody measured counts as no slowdown, unless an estimate is asked for.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use thiserror::Error;

/// Slowdown of models beside each other, as `raddle profile --spatial --against` writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interference {
    /// Version of the file's format: 1.
    pub schema_version: u32,
    /// The kind of device, as profiles name it.
    pub device: String,
    /// What was measured.
    pub pairs: Vec<Pair>,
}

/// What one model suffers from one neighbour.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// The model that is slowed down.
    pub model: String,
    /// The neighbour, which runs without a pause.
    pub beside: String,
    /// Units that the model had.
    pub units: u32,
    /// Units that the neighbour had.
    pub beside_units: u32,
    /// Latency beside the neighbour over latency alone, on the same units.
    pub slowdown: f64,
}

/// What is wrong with a table.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum InterferenceFault {
    /// A format that this program does not know.
    #[error("the table has schema_version {found}, known is 1")]
    Version {
        /// What the file says.
        found: u32,
    },
    /// No positive number.
    #[error(
        "{model:?} beside {beside:?} has slowdown {slowdown}, which is no positive number; measure it again"
    )]
    Slowdown {
        /// The model.
        model: String,
        /// The neighbour.
        beside: String,
        /// What the table says.
        slowdown: f64,
    },
    /// Two entries for one pair on the same units.
    #[error("{model:?} beside {beside:?} is listed twice for {units} and {beside_units} units")]
    Twice {
        /// The model.
        model: String,
        /// The neighbour.
        beside: String,
        /// Units of the model.
        units: u32,
        /// Units of the neighbour.
        beside_units: u32,
    },
    /// A part without units.
    #[error("{model:?} beside {beside:?} names a part of no units")]
    Units {
        /// The model.
        model: String,
        /// The neighbour.
        beside: String,
    },
}

impl Interference {
    /// An empty table for a kind of device.
    #[must_use]
    pub fn new(device: &str) -> Self {
        Self { schema_version: 1, device: device.to_owned(), pairs: Vec::new() }
    }

    /// Everything that is wrong with it.
    #[must_use]
    pub fn check(&self) -> Vec<InterferenceFault> {
        let mut faults = Vec::new();
        if self.schema_version != 1 {
            faults.push(InterferenceFault::Version { found: self.schema_version });
        }
        let mut seen = BTreeSet::new();
        for Pair { model, beside, units, beside_units, slowdown } in &self.pairs {
            let names = || (model.clone(), beside.clone());
            if !(slowdown.is_finite() && *slowdown > 0.0) {
                let (model, beside) = names();
                faults.push(InterferenceFault::Slowdown { model, beside, slowdown: *slowdown });
            }
            if *units == 0 || *beside_units == 0 {
                let (model, beside) = names();
                faults.push(InterferenceFault::Units { model, beside });
            }
            if !seen.insert((model, beside, units, beside_units)) {
                let ((model, beside), (units, beside_units)) = (names(), (*units, *beside_units));
                faults.push(InterferenceFault::Twice { model, beside, units, beside_units });
            }
        }
        faults
    }

    /// The worst slowdown measured of `model` beside `beside`; `None` when that was not measured. Less than 1 is chance
    /// and counts as 1.
    #[must_use]
    pub fn measured(&self, model: &str, beside: &str) -> Option<f64> {
        let pairs = self.pairs.iter().filter(|pair| pair.model == model && pair.beside == beside);
        pairs.map(|pair| pair.slowdown.max(1.0)).max_by(f64::total_cmp)
    }

    /// The worst slowdown measured of `model` beside `beside`; 1 when that was not measured.
    #[must_use]
    pub fn slowdown(&self, model: &str, beside: &str) -> f64 {
        self.measured(model, beside).unwrap_or(1.0)
    }

    /// Puts a pair in, over what it said before of the same units.
    pub fn put(&mut self, pair: Pair) {
        let place = |own: &Pair| {
            own.model == pair.model
                && own.beside == pair.beside
                && (own.units, own.beside_units) == (pair.units, pair.beside_units)
        };
        match self.pairs.iter().position(place) {
            Some(at) => self.pairs[at] = pair,
            None => self.pairs.push(pair),
        }
    }
}

/// How much of the shared cache and memory bandwidth a model uses, each from 0 to 1, on the part that it has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// Of the last-level cache.
    pub cache: f64,
    /// Of memory bandwidth.
    pub memory: f64,
}

/// An estimate of slowdown, linear in the traffic of both (gpulet's form).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearInterference {
    /// Weight of the model's own cache traffic.
    pub cache_own: f64,
    /// Weight of the neighbour's.
    pub cache_other: f64,
    /// Weight of the model's own memory traffic.
    pub memory_own: f64,
    /// Weight of the neighbour's.
    pub memory_other: f64,
    /// Slowdown without traffic.
    pub constant: f64,
}

impl LinearInterference {
    /// The coefficients in gpulet's public code, fitted there on an RTX 2080 Ti.
    pub const RTX_2080_TI: Self = Self {
        cache_own: 0.113,
        cache_other: 0.716,
        memory_own: 0.355,
        memory_other: 0.088,
        constant: 0.895,
    };

    /// Slowdown of a model with traffic `own` beside one with traffic `other`; at least 1.
    #[must_use]
    pub fn slowdown(&self, own: Traffic, other: Traffic) -> f64 {
        let cache = self.cache_own * own.cache + self.cache_other * other.cache;
        let memory = self.memory_own * own.memory + self.memory_other * other.memory;
        (cache + memory + self.constant).max(1.0)
    }
}
