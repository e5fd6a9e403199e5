//! What looks wrong in a file that can be read: mostly units that differ. Numbers are used as they are, and said aloud.

use crate::operators::OperatorGraph;
use std::collections::BTreeMap;
use thiserror::Error;

/// A link between an accelerator and its host is slower than this, in bytes a second.
const LINK_MAX: f64 = 1e12;

/// And faster than this.
const LINK_MIN: f64 = 1e6;

/// Links of one file differ by less than this factor.
const LINKS_APART: f64 = 30.0;

/// Something that looks wrong.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Doubt {
    /// Backward operators share no colour class with a forward operator.
    #[error(
        "{count} backward operators, {first} for one, have no forward twin; they are ordered by the edges between backward operators"
    )]
    Orphans {
        /// How many there are.
        count: usize,
        /// The id of the first.
        first: u64,
    },
    /// Forward operators of a graph that trains share no colour class with a backward operator.
    #[error(
        "{count} forward operators, {first} for one, have no backward twin although the graph trains; if that is a mistake, give them a colour class with one"
    )]
    Unpaired {
        /// How many there are.
        count: usize,
        /// The id of the first.
        first: u64,
    },
    /// Transfer costs and sizes do not go together.
    #[error(
        "transfer costs against sizes mean a link of {bytes_per_second:.2e} bytes a second; check that costs are milliseconds (they are used as they are)"
    )]
    Link {
        /// What they mean.
        bytes_per_second: f64,
    },
    /// Transfer costs do not go together.
    #[error(
        "transfer costs against sizes mean links from {slowest:.2e} to {fastest:.2e} bytes a second; check that all have one unit (they are used as they are)"
    )]
    Links {
        /// The slowest.
        slowest: f64,
        /// The fastest.
        fastest: f64,
    },
    /// Times look like those of another unit.
    #[error(
        "a sample takes {seconds:.0} s of computing; if the file's times are milliseconds, say so (they are used as they are)"
    )]
    Slow {
        /// How long it takes.
        seconds: f64,
    },
}

/// What looks wrong in a graph, whatever file it came from.
#[must_use]
pub fn doubts(graph: &OperatorGraph) -> Vec<Doubt> {
    let mut sides: BTreeMap<i64, [bool; 2]> = BTreeMap::new();
    for operator in graph.operators() {
        if let Some(color) = operator.color {
            sides.entry(color).or_default()[usize::from(operator.backward)] = true;
        }
    }
    let alone = |backward: bool| {
        let paired = |color: Option<i64>| color.is_some_and(|color| sides[&color][usize::from(!backward)]);
        let alone = graph.operators().iter().filter(|op| op.backward == backward && !paired(op.color));
        let ids: Vec<u64> = alone.map(|operator| operator.id).collect();
        ids.first().map(|&first| (ids.len(), first))
    };
    let trains = graph.operators().iter().any(|operator| operator.backward);
    let mut found = Vec::new();
    found.extend(alone(true).map(|(count, first)| Doubt::Orphans { count, first }));
    // Operators that need no gradient are as common as mistakes are when most have one.
    found.extend(alone(false).filter(|_| trains).map(|(count, first)| Doubt::Unpaired { count, first }));
    found
}

/// What looks wrong in transfer costs, given pairs of bytes and milliseconds.
pub(super) fn links(pairs: impl Iterator<Item = (f64, f64)>) -> Option<Doubt> {
    let speeds = pairs.filter(|(bytes, ms)| *bytes > 0.0 && *ms > 0.0).map(|(bytes, ms)| bytes / ms * 1e3);
    let (slowest, fastest) =
        speeds.fold((f64::INFINITY, 0.0f64), |(low, high), speed| (low.min(speed), high.max(speed)));
    if slowest > fastest {
        None
    } else if fastest > LINKS_APART * slowest {
        Some(Doubt::Links { slowest, fastest })
    } else if fastest > LINK_MAX || slowest < LINK_MIN {
        Some(Doubt::Link { bytes_per_second: fastest })
    } else {
        None
    }
}
