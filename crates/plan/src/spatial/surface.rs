//! Latency over units and batch, as measured, and as it is used: a larger part is never slower than a smaller one, for it
//! can leave units idle. Everything that is not used as it was measured is listed.

use std::collections::BTreeMap;
use std::fmt;
use thiserror::Error;
use vocab::{BatchProfile, Profile, Span};

/// One measured latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// Units of the part.
    pub units: u32,
    /// Rows of the batch.
    pub batch: u32,
    /// Time of the whole model.
    pub time: Span,
}

/// A latency that is used otherwise than it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Correction {
    /// Units of the part.
    pub units: u32,
    /// Rows of the batch.
    pub batch: u32,
    /// What was measured; `None` for a hole.
    pub measured: Option<Span>,
    /// What is used instead; `None` where no smaller part was measured, so that nothing is known.
    pub used: Option<Span>,
}

/// What is wrong with measured times.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SurfaceFault {
    /// Only the whole device was measured, or not even that.
    #[error("there are no times on parts of the device; measure them with `raddle profile --spatial`")]
    NoParts,
    /// A part without units, or larger than the device.
    #[error("a part of {units} units is none of a device of {whole}")]
    Units {
        /// The part.
        units: u32,
        /// Units of the device.
        whole: u32,
    },
    /// A batch without rows.
    #[error("{units} units list a batch of no rows")]
    NoRows {
        /// The part.
        units: u32,
    },
    /// A run that takes no time.
    #[error("batch {batch} on {units} units takes no time; measure it again")]
    NoTime {
        /// The part.
        units: u32,
        /// The batch.
        batch: u32,
    },
    /// Two entries for one place.
    #[error("batch {batch} on {units} units is listed twice")]
    Twice {
        /// The part.
        units: u32,
        /// The batch.
        batch: u32,
    },
    /// Segments differ from those of other entries.
    #[error("batch {batch} on {units} units lists {found} segments, others list {expected}")]
    Segments {
        /// The part.
        units: u32,
        /// The batch.
        batch: u32,
        /// Segments it lists.
        found: usize,
        /// Segments of the first entry.
        expected: usize,
    },
}

/// Everything that is wrong with measured times.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct SurfaceError(pub Vec<SurfaceFault>);

/// One entry of a [`Surface`]: the times of a model's segments at a batch, on a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Units of the part.
    pub units: u32,
    /// The batch, and the time of each segment.
    pub times: BatchProfile,
}

/// Latency of one model over units and batch, on one kind of device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surface {
    whole: u32,
    units: Vec<u32>,
    batches: Vec<u32>,
    /// For each part, in the order of `units`, the times at each batch, in the order of `batches`.
    rows: Vec<Vec<Option<BatchProfile>>>,
    corrections: Vec<Correction>,
    measured: Vec<Point>,
}

impl Surface {
    /// The surface of a profile that `raddle profile --spatial` wrote. Unlike [`Profile::check`] it allows holes.
    ///
    /// # Errors
    /// All faults of the times at once.
    pub fn of(profile: &Profile) -> Result<Self, SurfaceError> {
        let Some(spatial) = &profile.spatial else { return Err(SurfaceError(vec![SurfaceFault::NoParts])) };
        let shares = spatial.shares.iter().map(|share| (share.units, &share.batches));
        let whole = std::iter::once((spatial.units, &profile.batches));
        let cells = shares.chain(whole).flat_map(|(units, batches)| {
            batches.iter().map(move |times| Cell { units, times: times.clone() })
        });
        Self::new(spatial.units, cells.collect())
    }

    /// The surface of a device of `whole` units from measured entries, in any order, with or without holes.
    ///
    /// # Errors
    /// All faults of the entries at once.
    pub fn new(whole: u32, cells: Vec<Cell>) -> Result<Self, SurfaceError> {
        let mut faults = faults(whole, &cells);
        let mut places: BTreeMap<(u32, u32), BatchProfile> = BTreeMap::new();
        for Cell { units, times } in cells {
            let batch = times.batch;
            if places.insert((units, batch), times).is_some() {
                faults.push(SurfaceFault::Twice { units, batch });
            }
        }
        if !faults.is_empty() {
            return Err(SurfaceError(faults));
        }
        let mut units: Vec<u32> = places.keys().map(|(units, _)| *units).collect();
        let mut batches: Vec<u32> = places.keys().map(|(_, batch)| *batch).collect();
        for list in [&mut units, &mut batches] {
            list.sort_unstable();
            list.dedup();
        }
        let point = |(&(units, batch), times): (&(u32, u32), &BatchProfile)| Point {
            units,
            batch,
            time: times.total(),
        };
        let measured = places.iter().map(point).collect();
        let row = |units: &u32| batches.iter().map(|batch| places.get(&(*units, *batch)).cloned()).collect();
        let rows = units.iter().map(row).collect();
        let mut surface = Self { whole, units, batches, rows, corrections: Vec::new(), measured };
        surface.correct();
        Ok(surface)
    }

    /// Fills holes between neighbours, and lets no part be slower than a smaller one.
    fn correct(&mut self) {
        for column in 0..self.batches.len() {
            let batch = self.batches[column];
            let measured: Vec<Option<BatchProfile>> =
                self.rows.iter().map(|row| row[column].clone()).collect();
            let mut best: Option<BatchProfile> = None;
            for (at, own) in measured.iter().enumerate() {
                let total = own.as_ref().map(BatchProfile::total);
                let slower = |other: &BatchProfile| total.is_some_and(|own| own > other.total());
                best = match (own, best) {
                    (Some(_), Some(best)) if slower(&best) => Some(best),
                    (Some(own), _) => Some(own.clone()),
                    (None, best) => best,
                };
                self.rows[at][column].clone_from(&best);
            }
            for at in (0..measured.len()).filter(|&at| measured[at].is_none()) {
                let next = (at + 1..measured.len()).find(|&later| measured[later].is_some());
                let before = (0..at).rev().find(|&earlier| measured[earlier].is_some());
                if let (Some(before), Some(next)) = (before, next) {
                    let between = self.between((before, next), self.units[at], column);
                    self.rows[at][column] = between;
                }
            }
            for (at, own) in measured.iter().enumerate() {
                let used = self.rows[at][column].as_ref().map(BatchProfile::total);
                let measured = own.as_ref().map(BatchProfile::total);
                if used != measured || used.is_none() {
                    self.corrections.push(Correction { units: self.units[at], batch, measured, used });
                }
            }
        }
    }

    /// Times on `units`, between the parts at places `before` and `next`: linear in one over the units, rounded up.
    fn between(&self, (before, next): (usize, usize), units: u32, column: usize) -> Option<BatchProfile> {
        let (small, large) = (i128::from(self.units[before]), i128::from(self.units[next]));
        let own = i128::from(units);
        let (slow, fast) = (self.rows[before][column].as_ref()?, self.rows[next][column].as_ref()?);
        // (1/own - 1/large) / (1/small - 1/large)
        let (part, of) = (small * (large - own), own * (large - small));
        let one = |(slow, fast): (&Span, &Span)| {
            let (slow, fast) = (i128::from(slow.ns()), i128::from(fast.ns()));
            let more = (slow - fast) * part;
            let rounded = more.div_euclid(of) + i128::from(more.rem_euclid(of) > 0);
            Span::from_ns(u64::try_from(fast + rounded).unwrap_or(0))
        };
        let segment_ns = slow.segment_ns.iter().zip(&fast.segment_ns).map(one).collect();
        Some(BatchProfile { batch: slow.batch, segment_ns })
    }

    /// Units of the whole device.
    #[must_use]
    pub fn whole(&self) -> u32 {
        self.whole
    }

    /// Parts that were measured, ascending.
    #[must_use]
    pub fn units(&self) -> &[u32] {
        &self.units
    }

    /// Batches that were measured, ascending.
    #[must_use]
    pub fn batches(&self) -> &[u32] {
        &self.batches
    }

    /// What is used otherwise than it was measured, batch by batch, ascending by units.
    #[must_use]
    pub fn corrections(&self) -> &[Correction] {
        &self.corrections
    }

    /// What was measured, ascending by units, then batch.
    #[must_use]
    pub fn measured(&self) -> &[Point] {
        &self.measured
    }

    /// Latencies that are used at the measured parts and batches, ascending by units, then batch.
    #[must_use]
    pub fn points(&self) -> Vec<Point> {
        let of = |(units, row): (&u32, &Vec<Option<BatchProfile>>)| {
            let point =
                |times: &BatchProfile| Point { units: *units, batch: times.batch, time: times.total() };
            row.iter().flatten().map(point).collect::<Vec<_>>()
        };
        self.units.iter().zip(&self.rows).flat_map(of).collect()
    }

    /// Latency over units at one measured batch, ascending by units.
    #[must_use]
    pub fn curve(&self, batch: u32) -> Vec<(u32, Span)> {
        let points = self.points();
        points.iter().filter(|point| point.batch == batch).map(|point| (point.units, point.time)).collect()
    }

    /// Times at every batch on any number of units: between measured parts linear in one over the units, never below
    /// the larger neighbour; above the largest part its times. Batches of which no part as small was measured are left
    /// out: nothing is known of them.
    #[must_use]
    pub fn times(&self, units: u32) -> Vec<BatchProfile> {
        let at = self.units.partition_point(|own| *own < units);
        let exact = self.units.get(at) == Some(&units);
        let column = |column: usize| {
            if exact || at == 0 {
                return exact.then(|| self.rows[at][column].clone()).flatten();
            }
            let below = self.rows[at - 1][column].clone()?;
            if at == self.units.len() { Some(below) } else { self.between((at - 1, at), units, column) }
        };
        (0..self.batches.len()).filter_map(column).collect()
    }

    /// Latency of `rows` on any number of units: that of the smallest batch that holds them. `None` where nothing is
    /// known: more rows than any batch, or fewer units than any part.
    #[must_use]
    pub fn latency(&self, units: u32, rows: u32) -> Option<Span> {
        self.times(units).iter().find(|times| times.batch >= rows).map(BatchProfile::total)
    }
}

fn faults(whole: u32, cells: &[Cell]) -> Vec<SurfaceFault> {
    let mut faults = Vec::new();
    let expected = cells.first().map_or(0, |cell| cell.times.segment_ns.len());
    for Cell { units, times } in cells {
        let (units, batch, found) = (*units, times.batch, times.segment_ns.len());
        if units == 0 || units > whole {
            faults.push(SurfaceFault::Units { units, whole });
        }
        if batch == 0 {
            faults.push(SurfaceFault::NoRows { units });
        }
        if times.total() == Span::ZERO {
            faults.push(SurfaceFault::NoTime { units, batch });
        }
        if found != expected {
            faults.push(SurfaceFault::Segments { units, batch, found, expected });
        }
    }
    if cells.iter().all(|cell| cell.units == whole) {
        faults.push(SurfaceFault::NoParts);
    }
    faults
}

impl fmt::Display for Correction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { units, batch, .. } = self;
        match (self.measured, self.used) {
            (Some(measured), Some(used)) => write!(
                f,
                "batch {batch} on {units} units: {:.3} ms measured, {:.3} ms of a smaller part is used",
                measured.as_ms_f64(),
                used.as_ms_f64()
            ),
            (None, Some(used)) => write!(
                f,
                "batch {batch} on {units} units was not measured, {:.3} ms from its neighbours is used",
                used.as_ms_f64()
            ),
            (_, None) => write!(f, "batch {batch} on {units} units was not measured, nor any smaller part"),
        }
    }
}
