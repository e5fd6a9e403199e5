//! How fast a job is by CPUs and memory, from few measurements (Synergy, OSDI'22).
//!
//! With a cache that never evicts within an epoch (MinIO, VLDB'21), the part of a data set that is fetched is known exactly:
//! what does not fit. So only CPUs need measuring, with all memory at hand; the rest of the table follows, the slowest of
//! the three stages deciding: fetch, prepare, compute.

use vocab::Bytes;

/// What is measured of a job on one GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Rates in thousandths of items a second with all memory, by CPUs, ascending; at least one.
    pub by_cpu: Vec<(u32, u64)>,
    /// Size of the data set; 0 is none to fetch.
    pub data: Bytes,
    /// Size of an item.
    pub item: Bytes,
    /// What the store gives a second.
    pub store: Bytes,
}

/// Two neighbouring points closer than this, in hundredths, are not divided further.
const FLAT_PERCENT: u64 = 10;

impl Measured {
    /// Items a second, in thousandths, with `cpus` CPUs and `memory` for the cache.
    #[must_use]
    pub fn rate(&self, cpus: u32, memory: Bytes) -> u64 {
        self.prepared(cpus).min(self.fetched(memory))
    }

    /// The rate of preparing and computing: linear between measured points.
    fn prepared(&self, cpus: u32) -> u64 {
        let above = self.by_cpu.partition_point(|(measured, _)| *measured < cpus);
        match (above.checked_sub(1).map(|below| self.by_cpu[below]), self.by_cpu.get(above)) {
            (Some((low, slow)), Some((high, fast))) => {
                let (part, whole) = (u64::from(cpus - low), u64::from(high - low));
                slow + fast.saturating_sub(slow) * part / whole
            }
            // Fewer CPUs than were measured prepare as much less.
            (None, Some((high, fast))) => fast * u64::from(cpus) / u64::from(*high).max(1),
            (Some((_, rate)), None) => rate,
            (None, None) => 0,
        }
    }

    /// The rate of fetching what the cache does not hold.
    fn fetched(&self, memory: Bytes) -> u64 {
        let missing = u128::from(self.data.0.saturating_sub(memory.0));
        if missing == 0 || self.item.0 == 0 {
            return u64::MAX;
        }
        let rate =
            u128::from(self.store.0) * 1_000 * u128::from(self.data.0) / (u128::from(self.item.0) * missing);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    /// The fewest of `cpus` (ascending), then the least of `memories` (ascending), that are as fast as the best, but for
    /// `tolerance_percent`: the job's demand. Nothing when either list is empty.
    #[must_use]
    pub fn demand(&self, cpus: &[u32], memories: &[Bytes], tolerance_percent: u64) -> Option<(u32, Bytes)> {
        let best = self.rate(*cpus.last()?, *memories.last()?);
        let enough = |rate: u64| {
            u128::from(rate) * 100 >= u128::from(best) * u128::from(100 - tolerance_percent.min(99))
        };
        let cpus =
            cpus.iter().find(|cpus| enough(self.rate(**cpus, *memories.last().unwrap_or(&Bytes(0)))))?;
        let memory = memories.iter().find(|memory| enough(self.rate(*cpus, **memory)))?;
        Some((*cpus, *memory))
    }
}

/// The points worth measuring of `cpus` (ascending), in the order they are measured: both ends, then the middle of any two
/// whose rates differ by a tenth or more. `measure` gives the rate with all memory.
pub fn optimistic(cpus: &[u32], mut measure: impl FnMut(u32) -> u64) -> Vec<(u32, u64)> {
    let [first, .., last] = cpus else { return cpus.iter().map(|cpus| (*cpus, measure(*cpus))).collect() };
    let mut points = vec![(*first, measure(*first)), (*last, measure(*last))];
    let mut open = vec![(0, cpus.len() - 1, points[0].1, points[1].1)];
    while let Some((low, high, slow, fast)) = open.pop() {
        let differs = fast.abs_diff(slow) * 100 >= fast.max(slow) * FLAT_PERCENT;
        if high - low < 2 || !differs {
            continue;
        }
        let middle = low + (high - low) / 2;
        let rate = measure(cpus[middle]);
        points.push((cpus[middle], rate));
        open.push((low, middle, slow, rate));
        open.push((middle, high, rate, fast));
    }
    points.sort_unstable();
    points
}
