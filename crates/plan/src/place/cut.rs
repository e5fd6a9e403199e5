//! What a set of units transfers, kept up to date while units enter and leave it.

use super::problem::Problem;

/// A net that a unit touches.
#[derive(Clone, Copy)]
struct Touch {
    net: u32,
    /// The net's source; the unit itself where that is it.
    source: u32,
    consumers: u32,
    transfer_ms: f64,
}

/// A set of units, by the nets that it touches.
pub(super) struct Cut {
    /// Nets that each unit touches: where a unit's begin, and one more.
    touched: Vec<usize>,
    touches: Vec<Touch>,
    /// Units of a net's consumers that are in the set.
    inside: Vec<u32>,
    member: Vec<bool>,
    /// Units of each net as bits: words that are not 0, net by net, those first that take longest.
    words: Vec<(u32, u64)>,
    /// Transfer time of each of these nets, and where its words end.
    nets: Vec<(f64, u32)>,
}

impl Cut {
    /// The empty set.
    pub(super) fn new(problem: &Problem) -> Self {
        let mut touched = vec![0];
        let mut touches = Vec::new();
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        for unit in 0..problem.units.len() {
            let own = problem.sourced[unit].iter().map(|&net| (net, unit));
            for (net, source) in own.chain(problem.consumed[unit].iter().copied()) {
                let content = &problem.nets[net];
                let (consumers, transfer_ms) = (count(content.consumers), content.transfer_ms);
                touches.push(Touch { net: count(net), source: count(source), consumers, transfer_ms });
            }
            touched.push(touches.len());
        }
        let mut ends = vec![Vec::new(); problem.nets.len()];
        for unit in 0..problem.units.len() {
            for touch in &touches[touched[unit]..touched[unit + 1]] {
                ends[touch.net as usize].push(unit);
            }
        }
        let mut longest: Vec<usize> = (0..ends.len()).collect();
        let time = |net: usize| problem.nets[net].transfer_ms;
        longest.sort_by(|&a, &b| time(b).total_cmp(&time(a)).then(a.cmp(&b)));
        let mut words: Vec<(u32, u64)> = Vec::new();
        let mut nets = Vec::with_capacity(ends.len());
        for net in longest {
            let start = words.len();
            for &unit in &ends[net] {
                let (word, bit) = (count(unit / 64), 1 << (unit % 64));
                match words[start..].last_mut() {
                    Some(last) if last.0 == word => last.1 |= bit,
                    _ => words.push((word, bit)),
                }
            }
            nets.push((time(net), count(words.len())));
        }
        Self {
            words,
            nets,
            touched,
            touches,
            inside: vec![0; problem.nets.len()],
            member: vec![false; problem.units.len()],
        }
    }

    /// What a set given as bits transfers, whatever the set that is kept; or what some of its nets do, once that is more
    /// than `most`.
    pub(super) fn of(&self, set: &[u64], most: f64) -> f64 {
        let mut sum = 0.0;
        let mut start = 0;
        for &(transfer_ms, end) in &self.nets {
            let (mut within, mut without) = (0, 0);
            for &(word, units) in &self.words[start..end as usize] {
                let members = set[word as usize];
                within |= units & members;
                without |= units & !members;
            }
            start = end as usize;
            if within != 0 && without != 0 {
                sum += transfer_ms;
                if sum > most {
                    break;
                }
            }
        }
        sum
    }

    /// Adds a unit to the set; what its transfers grow by.
    pub(super) fn enter(&mut self, unit: usize) -> f64 {
        let mut more = 0.0;
        for touch in &self.touches[self.touched[unit]..self.touched[unit + 1]] {
            let inside = &mut self.inside[touch.net as usize];
            if touch.source as usize == unit {
                match (*inside > 0, *inside < touch.consumers) {
                    (false, true) => more += touch.transfer_ms,
                    (true, false) => more -= touch.transfer_ms,
                    _ => {}
                }
                continue;
            }
            *inside += 1;
            if self.member[touch.source as usize] {
                if *inside == touch.consumers {
                    more -= touch.transfer_ms;
                }
            } else if *inside == 1 {
                more += touch.transfer_ms;
            }
        }
        self.member[unit] = true;
        more
    }

    /// Takes a unit out of the set.
    pub(super) fn leave(&mut self, unit: usize) {
        for touch in &self.touches[self.touched[unit]..self.touched[unit + 1]] {
            if touch.source as usize != unit {
                self.inside[touch.net as usize] -= 1;
            }
        }
        self.member[unit] = false;
    }
}
