//! Searches for fast plans: units move between the host and calls; slower plans are accepted ever more seldom.

use crate::place::{Group, LatencyProblem, Limits};
use vocab::Rng;

/// Moves between two questions whether to stop.
const MOVES_PER_CHECK: u64 = 64;

/// How much slower a plan may be with even chance, as a part of the best, first and last.
const WARM: f64 = 0.03;
const COLD: f64 = 0.000_1;

/// Most units that move together, as a power of two.
const TOGETHER_LOG: u64 = 6;

pub(super) struct Search<'a> {
    problem: &'a LatencyProblem,
    accelerators: &'a [Group],
    host: Option<Group>,
    calls: usize,
    /// The slot of each unit, device by device; `None` is the host.
    slot_of: Vec<Option<usize>>,
    kept: Vec<u64>,
    /// Room for one evaluation: spans, starts and open feeders of every runner; slots first, then units.
    spans: Vec<f64>,
    starts: Vec<f64>,
    waits: Vec<usize>,
    members: Vec<Vec<usize>>,
    next_of: Vec<Option<usize>>,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        problem: &'a LatencyProblem,
        accelerators: &'a [Group],
        host: Option<Group>,
        calls: usize,
    ) -> Self {
        let (slots, units) = (accelerators.len() * calls, problem.operators.len());
        Self {
            problem,
            accelerators,
            host,
            calls,
            slot_of: vec![None; units],
            kept: vec![0; accelerators.len()],
            spans: vec![0.0; slots + units],
            starts: vec![0.0; slots + units],
            waits: vec![0; slots + units],
            members: vec![Vec::new(); slots],
            next_of: vec![None; slots],
        }
    }

    /// The best plan met: units of the host (`None`) and of every slot in use, slots ascending.
    pub(super) fn run(
        &mut self,
        floor: f64,
        (seed, moves_max): (u64, u64),
        limits: Limits<'_>,
    ) -> Option<Vec<(Option<usize>, Vec<usize>)>> {
        let mut best: Option<(f64, Vec<Option<usize>>)> = None;
        for start in self.beginnings() {
            self.slot_of = start;
            self.count();
            let value = if self.fits() { self.evaluate() } else { f64::INFINITY };
            if value.is_finite() && best.as_ref().is_none_or(|best| value < best.0) {
                best = Some((value, self.slot_of.clone()));
            }
        }
        let (mut least, mut kept) = best?;
        self.slot_of.clone_from(&kept);
        self.count();
        let mut value = least;
        let mut rng = Rng::new(seed);
        for step in 0..moves_max {
            if step.is_multiple_of(MOVES_PER_CHECK) && (least <= floor * (1.0 + 1e-9) || (limits.stop)()) {
                break;
            }
            let warmth = least * WARM * (COLD / WARM).powf(step as f64 / moves_max as f64);
            let Some(moves) = self.pick(&mut rng) else { continue };
            let before: Vec<(usize, Option<usize>)> =
                moves.iter().map(|&(unit, _)| (unit, self.slot_of[unit])).collect();
            self.shift(&moves);
            let after = if self.fits() { self.evaluate() } else { f64::INFINITY };
            if after <= value || rng.unit() < ((value - after) / warmth).exp() {
                value = after;
                if value < least * (1.0 - 1e-12) {
                    least = value;
                    kept.clone_from(&self.slot_of);
                }
            } else {
                self.shift(&before);
            }
        }
        let mut slots = std::collections::BTreeMap::new();
        for (unit, slot) in kept.into_iter().enumerate() {
            slots.entry(slot).or_insert_with(Vec::new).push(unit);
        }
        Some(slots.into_iter().collect())
    }

    /// Everything on the host; accelerators filled one after the other in order, the host taking the rest; one alone.
    fn beginnings(&self) -> Vec<Vec<Option<usize>>> {
        let units = self.slot_of.len();
        let mut all = vec![vec![None; units]];
        let mut filled = vec![None; units];
        let mut device = 0;
        let mut kept = 0u64;
        for (unit, slot) in filled.iter_mut().enumerate() {
            let bytes = self.problem.bytes[unit];
            while device < self.accelerators.len() {
                if self.accelerators[device].fits(kept.saturating_add(bytes)) {
                    break;
                }
                device += 1;
                kept = 0;
            }
            if device < self.accelerators.len() && self.problem.times[unit][0].is_finite() {
                *slot = Some(device * self.calls);
                kept = kept.saturating_add(bytes);
            }
        }
        all.push(filled);
        for device in 0..self.accelerators.len() {
            all.push(vec![Some(device * self.calls); units]);
        }
        all
    }

    fn count(&mut self) {
        self.kept.fill(0);
        for (unit, slot) in self.slot_of.iter().enumerate() {
            if let Some(slot) = slot {
                let kept = &mut self.kept[slot / self.calls];
                *kept = kept.saturating_add(self.problem.bytes[unit]);
            }
        }
    }

    fn shift(&mut self, moves: &[(usize, Option<usize>)]) {
        for &(unit, slot) in moves {
            let bytes = self.problem.bytes[unit];
            if let Some(from) = self.slot_of[unit] {
                self.kept[from / self.calls] -= bytes;
            }
            if let Some(to) = slot {
                self.kept[to / self.calls] += bytes;
            }
            self.slot_of[unit] = slot;
        }
    }

    fn fits(&self) -> bool {
        self.accelerators.iter().zip(&self.kept).all(|(group, &kept)| group.fits(kept))
    }

    fn runs(&self, unit: usize, slot: Option<usize>) -> bool {
        let [accelerator_ms, cpu_ms] = self.problem.times[unit];
        match slot {
            None => self.host.is_some() && cpu_ms.is_finite(),
            Some(_) => accelerator_ms.is_finite(),
        }
    }

    /// A unit, perhaps with those around it, and where it could go.
    fn pick(&self, rng: &mut Rng) -> Option<Vec<(usize, Option<usize>)>> {
        let index = |drawn: u64| usize::try_from(drawn).unwrap_or(0);
        let unit = index(rng.below(self.slot_of.len() as u64));
        let from = self.slot_of[unit];
        let beside = &self.problem.neighbours[unit];
        let slots = self.accelerators.len() * self.calls;
        let to = if beside.is_empty() || rng.below(3) == 0 {
            let drawn = index(rng.below(slots as u64 + 1));
            (drawn < slots).then_some(drawn)
        } else {
            self.slot_of[beside[index(rng.below(beside.len() as u64))]]
        };
        if to == from {
            return None;
        }
        let together = 1usize << rng.below(TOGETHER_LOG + 1);
        let mut moved = vec![unit];
        let mut at = 0;
        while moved.len() < together && at < moved.len() {
            for &next in &self.problem.neighbours[moved[at]] {
                if moved.len() < together && self.slot_of[next] == from && !moved.contains(&next) {
                    moved.push(next);
                }
            }
            at += 1;
        }
        moved
            .iter()
            .all(|&unit| self.runs(unit, to))
            .then(|| moved.into_iter().map(|unit| (unit, to)).collect())
    }

    /// When the last unit ends; infinite when something cannot run, or calls wait for each other.
    fn evaluate(&mut self) -> f64 {
        let slots = self.members.len();
        let runner = |slot_of: &[Option<usize>], unit: usize| slot_of[unit].unwrap_or(slots + unit);
        self.spans.fill(0.0);
        self.starts.fill(0.0);
        self.waits.fill(0);
        self.members.iter_mut().for_each(Vec::clear);
        for unit in 0..self.slot_of.len() {
            let slot = self.slot_of[unit];
            if !self.runs(unit, slot) {
                return f64::INFINITY;
            }
            let [accelerator_ms, cpu_ms] = self.problem.times[unit];
            let group = slot.map_or(self.host, |slot| Some(self.accelerators[slot / self.calls]));
            let time = group.map_or(f64::INFINITY, |group| group.time(accelerator_ms, cpu_ms));
            self.spans[runner(&self.slot_of, unit)] += time;
            if let Some(slot) = slot {
                self.members[slot].push(unit);
            }
        }
        for (source, consumers, transfer_ms) in &self.problem.nets {
            let own = self.slot_of[*source];
            let mut payers: Vec<usize> = consumers
                .iter()
                .filter(|&&unit| self.slot_of[unit] != own || own.is_none())
                .filter_map(|&unit| self.slot_of[unit])
                .collect();
            if let Some(own) = own.filter(|_| consumers.iter().any(|&unit| self.slot_of[unit] != own)) {
                payers.push(own);
            }
            payers.sort_unstable();
            payers.dedup();
            for slot in payers {
                self.spans[slot] += transfer_ms / self.accelerators[slot / self.calls].link;
            }
        }
        self.replay()
    }

    /// Runs everything in the order in which it can start.
    fn replay(&mut self) -> f64 {
        let slots = self.members.len();
        let runner = |slot_of: &[Option<usize>], unit: usize| slot_of[unit].unwrap_or(slots + unit);
        self.next_of.fill(None);
        for device in 0..self.accelerators.len() {
            let mut before = None;
            for slot in device * self.calls..(device + 1) * self.calls {
                if self.members[slot].is_empty() {
                    continue;
                }
                if let Some(before) = before.replace(slot) {
                    self.next_of[before] = Some(slot);
                    self.waits[slot] += 1;
                }
            }
        }
        for unit in 0..self.slot_of.len() {
            let to = runner(&self.slot_of, unit);
            let fed = self.problem.feeders[unit].iter();
            self.waits[to] += fed.filter(|&&feeder| runner(&self.slot_of, feeder) != to).count();
        }
        let mut open: Vec<usize> = (0..slots).filter(|&slot| !self.members[slot].is_empty()).collect();
        open.extend(
            (0..self.slot_of.len()).filter(|&unit| self.slot_of[unit].is_none()).map(|unit| slots + unit),
        );
        let all = open.len();
        open.retain(|&at| self.waits[at] == 0);
        let mut done = 0;
        let mut last = 0.0f64;
        while let Some(at) = open.pop() {
            done += 1;
            let end = self.starts[at] + self.spans[at];
            last = last.max(end);
            let single = [at.wrapping_sub(slots)];
            let members: &[usize] = if at < slots { &self.members[at] } else { &single };
            let mut release = |to: usize, starts: &mut [f64], waits: &mut [usize]| {
                starts[to] = starts[to].max(end);
                waits[to] -= 1;
                if waits[to] == 0 {
                    open.push(to);
                }
            };
            for &unit in members {
                for &next in &self.problem.followers[unit] {
                    let to = runner(&self.slot_of, next);
                    if to != at {
                        release(to, &mut self.starts, &mut self.waits);
                    }
                }
            }
            if let Some(next) = self.next_of.get(at).copied().flatten() {
                release(next, &mut self.starts, &mut self.waits);
            }
        }
        if done == all { last } else { f64::INFINITY }
    }
}
