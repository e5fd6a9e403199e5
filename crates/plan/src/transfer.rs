//! Transfer groups of a pipelined model switch: weights travel to a device group by group, and a group's layers compute
//! while later groups travel (PipeSwitch, OSDI 2020).
//!
//! ```text
//! link     |--a--group 1--|--a--group 2------|--a--group 3--|
//! device                  |g| compute 1 |    |g| compute 2 ||g| compute 3 |
//! ```
//!
//! A group costs the link a latency `a` and the device a launch gap `g`, so that many groups waste time and few hide
//! little. The finish of group `k` that ends before layer `j` is `max(finish of group k-1, a·k + bytes before j /
//! bandwidth) + g + compute of its layers`; [`group`] minimises the last one exactly. A layer without weights travels
//! with the layer before it and costs the link nothing.

use thiserror::Error;
use vocab::{Bytes, Span};

/// Cells of the table that the search keeps to find its way back: 64 MiB. Up to 4,096 layers with weights every number
/// of groups fits; 10,000 such layers are cut into at most 1,677 groups.
const CELLS_MAX: usize = 1 << 24;

/// A link to a device, as measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    latency: Span,
    bytes_per_s: f64,
}

/// Why a link cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum LinkError {
    /// The bandwidth is not a positive number.
    #[error("a link of {bytes_per_s} bytes/s carries nothing; measure its bandwidth again")]
    Bandwidth {
        /// The bandwidth.
        bytes_per_s: f64,
    },
}

/// What one layer needs before and while it computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerCost {
    /// Bytes of its weights, padding included.
    pub weight_bytes: Bytes,
    /// Its time on the device.
    pub compute: Span,
}

/// Layers cut into transfer groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grouping {
    /// For each group the place after its last layer, ascending; the last one is the number of layers.
    pub ends: Vec<usize>,
    /// Predicted time from the first transfer to the end of the last layer.
    pub finish: Span,
    /// No grouping of these layers finishes sooner than this.
    pub lower_bound: Span,
    /// Whether no other grouping finishes sooner, as proved by the search.
    pub optimal: bool,
}

/// Why a grouping cannot be judged.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GroupingFault {
    /// Ends do not ascend, or the first group is empty.
    #[error("group {group} ends at layer {end}, not after layer {after}")]
    Order {
        /// The group, from 0.
        group: usize,
        /// Its end.
        end: usize,
        /// The end of the group before it.
        after: usize,
    },
    /// The last group does not end with the last layer.
    #[error("the groups end at layer {end}, there are {layers} layers")]
    Incomplete {
        /// The last end.
        end: usize,
        /// Layers there are.
        layers: usize,
    },
}

impl Link {
    /// A link where each transfer costs `latency` beside its bytes.
    ///
    /// # Errors
    /// When `bytes_per_s` is not a positive number.
    pub fn new(latency: Span, bytes_per_s: f64) -> Result<Self, LinkError> {
        if bytes_per_s.is_finite() && bytes_per_s > 0.0 {
            Ok(Self { latency, bytes_per_s })
        } else {
            Err(LinkError::Bandwidth { bytes_per_s })
        }
    }

    /// When the `transfers`-th transfer has arrived, if all of them together carry `bytes` and follow each other closely.
    #[must_use]
    pub fn arrival(&self, bytes: Bytes, transfers: u64) -> Span {
        self.latency * transfers + Span::from_secs_f64(bytes.0 as f64 / self.bytes_per_s)
    }
}

/// The groups that finish first as bytes from the beginning, for segments that need so many of them and take so long, and
/// their predicted finish.
#[must_use]
pub fn travel(needs: &[Bytes], times: &[Span], link: Link, gap: Span) -> (Vec<Bytes>, Span) {
    let before = std::iter::once(&Bytes(0)).chain(needs);
    let layer = |((need, before), time): ((&Bytes, &Bytes), &Span)| LayerCost {
        weight_bytes: Bytes(need.0.saturating_sub(before.0)),
        compute: *time,
    };
    let layers: Vec<LayerCost> = needs.iter().zip(before).zip(times).map(layer).collect();
    let grouping = group(&layers, link, gap);
    (grouping.ends.iter().map(|end| needs[end - 1]).collect(), grouping.finish)
}

/// The grouping that finishes first.
///
/// Exact in `O(n·K)` for `n` layers with weights and `K` groups: the finish by at most `k` groups grows at least as fast
/// as the layers' compute, so that for each end only two beginnings can be best, and both move forward with the end.
/// Numbers of groups whose latencies and gaps alone exceed the best finish found are not tried. The table holds at most
/// 2²⁴ cells; when that cuts the search short, [`Grouping::optimal`] is false and the bound tells the gap.
#[must_use]
pub fn group(layers: &[LayerCost], link: Link, launch_gap: Span) -> Grouping {
    group_within(layers, link, launch_gap, CELLS_MAX)
}

/// Every layer with weights on its own: PipeSwitch's per-layer pipeline.
#[must_use]
pub fn per_layer(layers: &[LayerCost], link: Link, launch_gap: Span) -> Grouping {
    let chain = Chain::of(layers, link, launch_gap);
    if chain.units.is_empty() {
        return whole(layers, link, launch_gap);
    }
    let ends = chain.units.iter().map(|unit| unit.end).collect();
    chain.judged(layers, ends, false)
}

/// All layers in one group: nothing computes before everything has arrived.
#[must_use]
pub fn whole(layers: &[LayerCost], link: Link, launch_gap: Span) -> Grouping {
    let ends = if layers.is_empty() { Vec::new() } else { vec![layers.len()] };
    Chain::of(layers, link, launch_gap).judged(layers, ends, false)
}

/// Predicted time of these groups when the model computes, in one launch, only after the last of them has arrived.
///
/// # Errors
/// When `ends` are not the ends of groups of these layers.
pub fn finish_unpipelined(
    layers: &[LayerCost],
    ends: &[usize],
    link: Link,
    launch_gap: Span,
) -> Result<Span, GroupingFault> {
    check(layers, ends)?;
    let compute: Span = layers.iter().map(|layer| layer.compute).sum();
    let gap = if layers.is_empty() { Span::ZERO } else { launch_gap };
    let arrivals = arrivals(layers, ends, link);
    Ok(arrivals.last().copied().unwrap_or(Span::ZERO) + gap + compute)
}

/// Predicted time of these groups in a pipeline, from the first transfer to the end of the last layer.
///
/// # Errors
/// When `ends` are not the ends of groups of these layers.
pub fn finish(
    layers: &[LayerCost],
    ends: &[usize],
    link: Link,
    launch_gap: Span,
) -> Result<Span, GroupingFault> {
    check(layers, ends)?;
    let mut finish = Span::ZERO;
    let mut begin = 0;
    for (end, arrival) in ends.iter().zip(arrivals(layers, ends, link)) {
        let compute: Span = layers[begin..*end].iter().map(|layer| layer.compute).sum();
        finish = finish.max(arrival) + launch_gap + compute;
        begin = *end;
    }
    Ok(finish)
}

fn check(layers: &[LayerCost], ends: &[usize]) -> Result<(), GroupingFault> {
    let mut after = 0;
    for (group, end) in ends.iter().copied().enumerate() {
        if end <= after {
            return Err(GroupingFault::Order { group, end, after });
        }
        after = end;
    }
    if after == layers.len() {
        Ok(())
    } else {
        Err(GroupingFault::Incomplete { end: after, layers: layers.len() })
    }
}

/// When each group has arrived; a group without weights is there at once.
fn arrivals(layers: &[LayerCost], ends: &[usize], link: Link) -> Vec<Span> {
    let (mut bytes, mut transfers, mut begin) = (Bytes(0), 0, 0);
    let arrival = |end: &usize| {
        let own: Bytes = layers[begin..*end].iter().map(|layer| layer.weight_bytes).sum();
        begin = *end;
        if own > Bytes(0) {
            bytes += own;
            transfers += 1;
        }
        if transfers == 0 { Span::ZERO } else { link.arrival(bytes, transfers) }
    };
    ends.iter().map(arrival).collect()
}

/// A layer with weights and the layers without that follow it.
struct Unit {
    /// The place after its last layer.
    end: usize,
    /// Bytes of all units up to this one.
    bytes: Bytes,
    /// Compute of all units up to this one.
    compute: Span,
}

/// The layers as the search sees them.
struct Chain {
    /// Layers before the first weights, and their compute.
    head: (usize, Span),
    units: Vec<Unit>,
    link: Link,
    gap: Span,
}

/// What the search found.
struct Found {
    finish: Span,
    /// Units in each group, as ends.
    ends: Vec<usize>,
    proved: bool,
}

fn group_within(layers: &[LayerCost], link: Link, launch_gap: Span, cells_max: usize) -> Grouping {
    let chain = Chain::of(layers, link, launch_gap);
    if chain.units.is_empty() {
        let ends = if layers.is_empty() { Vec::new() } else { vec![layers.len()] };
        return chain.judged(layers, ends, true);
    }
    // Layers before the first weights compute with the first group, or at once as a group of their own.
    let joined = chain.search(Span::ZERO, chain.head.1, cells_max);
    let own = (chain.head.0 > 0).then(|| chain.search(launch_gap + chain.head.1, Span::ZERO, cells_max));
    let proved = joined.proved && own.as_ref().is_none_or(|own| own.proved);
    let own = own.filter(|own| own.finish < joined.finish);
    let mut ends = Vec::new();
    ends.extend(own.as_ref().map(|_| chain.head.0));
    ends.extend(own.unwrap_or(joined).ends.iter().map(|unit| chain.units[*unit - 1].end));
    chain.judged(layers, ends, proved)
}

impl Chain {
    fn of(layers: &[LayerCost], link: Link, gap: Span) -> Self {
        let (mut head, mut units): ((usize, Span), Vec<Unit>) = ((0, Span::ZERO), Vec::new());
        let (mut bytes, mut compute) = (Bytes(0), Span::ZERO);
        for (place, layer) in layers.iter().enumerate() {
            let end = place + 1;
            match units.last_mut() {
                Some(last) if layer.weight_bytes == Bytes(0) => {
                    compute += layer.compute;
                    (last.end, last.compute) = (end, compute);
                }
                None if layer.weight_bytes == Bytes(0) => head = (end, head.1 + layer.compute),
                _ => {
                    bytes += layer.weight_bytes;
                    compute += layer.compute;
                    units.push(Unit { end, bytes, compute });
                }
            }
        }
        Self { head, units, link, gap }
    }

    /// The best groups of all units, when the device is ready at `ready` and the first group computes `extra` besides.
    ///
    /// `best[j]` is the earliest finish of the first `j` units by at most `k` groups. Both `best` and `best` less the
    /// compute of its units grow with `j`. So of the beginnings that are ready before the group has arrived the last
    /// one is best, and of the others the first one.
    fn search(&self, ready: Span, extra: Span, cells_max: usize) -> Found {
        let count = self.units.len();
        let row = count + 1;
        let groups_max = (cells_max / row).clamp(1, count);
        let compute =
            |units: usize| if units == 0 { Span::ZERO } else { self.units[units - 1].compute + extra };
        let mut best = vec![Span::MAX; row];
        best[0] = ready;
        let mut begins: Vec<u32> = Vec::new();
        let mut proved = true;
        for groups in 1..=count {
            let least = self.least_with(groups, ready, extra);
            if least >= best[count] {
                break;
            }
            if groups > groups_max {
                proved = false;
                break;
            }
            let before = best.clone();
            begins.push(u32::MAX);
            let mut begin = 0;
            for (unit, finish) in (1..).zip(&mut best[1..]) {
                let arrival = self.link.arrival(self.units[unit - 1].bytes, groups as u64);
                while begin + 1 < unit && before[begin + 1] <= arrival {
                    begin += 1;
                }
                let mut chosen = u32::MAX;
                for from in [begin, begin + 1].into_iter().filter(|from| *from < unit) {
                    let own = compute(unit) - compute(from);
                    let reached = before[from].max(arrival) + self.gap + own;
                    if reached < *finish {
                        *finish = reached;
                        chosen = u32::try_from(from).expect("a model has fewer than 2^32 layers");
                    }
                }
                begins.push(chosen);
            }
        }
        let ends = way_back(&begins, row);
        Found { finish: best[count], ends, proved }
    }

    /// What `groups` groups take at least: all transfers and the last unit's compute, or all gaps and computes.
    fn least_with(&self, groups: usize, ready: Span, extra: Span) -> Span {
        let (Some(first), Some(last)) = (self.units.first(), self.units.last()) else { return Span::ZERO };
        let groups = groups as u64;
        let before_last =
            self.units.len().checked_sub(2).map_or(Span::ZERO, |place| self.units[place].compute);
        let own = last.compute - before_last;
        let carried = self.link.arrival(last.bytes, groups) + self.gap + own;
        let computed =
            ready.max(self.link.arrival(first.bytes, 1)) + self.gap * groups + last.compute + extra;
        carried.max(computed)
    }

    fn lower_bound(&self) -> Span {
        if self.units.is_empty() {
            return if self.head.0 == 0 { Span::ZERO } else { self.gap + self.head.1 };
        }
        // Layers before the first weights may compute while those travel, and then cost a gap of their own.
        let hidden = self.least_with(1, self.gap + self.head.1, Span::ZERO);
        self.least_with(1, Span::ZERO, self.head.1).min(hidden)
    }

    fn judged(&self, layers: &[LayerCost], ends: Vec<usize>, optimal: bool) -> Grouping {
        let finish = finish(layers, &ends, self.link, self.gap).expect("groups made here cover all layers");
        let lower_bound = self.lower_bound();
        Grouping { optimal: optimal || finish <= lower_bound, ends, finish, lower_bound }
    }
}

/// Ends of the groups that lead to the last cell of the table's last row, where a cell without a beginning means that
/// the row above is as good.
fn way_back(begins: &[u32], row: usize) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut end = row - 1;
    for level in begins.chunks_exact(row).rev() {
        if level[end] != u32::MAX {
            ends.push(end);
            end = level[end] as usize;
        }
    }
    ends.reverse();
    ends
}

#[cfg(test)]
mod tests;
