//! The ideals of a problem: sets of units that hold all predecessors of their members, and how adding a unit leads from
//! one to the next. A linear order is the special case of a path.

use super::problem::Problem;
use super::{Devices, Limits};

/// Ideals numbered so that adding a unit leads to a greater number; 0 is empty, the last is everything.
pub(super) struct Lattice {
    /// Where an ideal's steps start in `steps`; one more at the end.
    starts: Vec<usize>,
    /// Units that can be added, by ascending rank, and the ideals this leads to.
    steps: Vec<(u32, u32)>,
    /// One way to make each ideal: the unit added last, and the ideal before. Unused for the empty one.
    made: Vec<(u32, u32)>,
    /// The order in which a set's units are added, so that each set is met once.
    rank: Vec<u32>,
}

/// What one ideal costs besides its values: its steps' index, how it was made, and about two steps.
const IDEAL_BYTES: usize = 32;

/// Units whose predecessor sets are kept: 32 MiB of them.
const UNITS_MAX: usize = 16_384;

impl Lattice {
    /// All ideals; `None` when they would pass the limits.
    pub(super) fn of_ideals(problem: &Problem, devices: &Devices, limits: Limits<'_>) -> Option<Self> {
        let count = problem.units.len();
        let words = count.div_ceil(64);
        let states = super::search::states(devices)?;
        let ideal_bytes = states.checked_mul(super::search::STATE_BYTES)?.checked_add(IDEAL_BYTES)?;
        if count > UNITS_MAX {
            return None;
        }
        let growth = Growth::new(problem, words);
        let mut starts = vec![0];
        let mut steps: Vec<(u32, u32)> = Vec::new();
        let mut made = vec![(0, 0)];
        let mut level = Level::new(words);
        level.push(&vec![0; words], &growth.first());
        let mut number = 0u32;
        while level.len > 0 {
            let mut next = Level::new(words);
            for ideal in 0..level.len {
                let (members, addable) = level.ideal(ideal);
                for unit in bits(addable.iter().copied()) {
                    let (place, known) = next.find(members, unit);
                    if !known {
                        made.push((narrow(unit), number));
                        growth.grow(&mut next, addable, unit);
                    }
                    let first = made.len() - next.len;
                    steps.push((narrow(unit), narrow(first + place)));
                }
                starts.push(steps.len());
                number += 1;
                // Members and addable units of two levels, and where to find them.
                let open = (level.len + next.len) * (2 * words + 2) * 8;
                let held = made.len() * ideal_bytes + steps.len() * 8 + open;
                if held > limits.bytes_max || (number.is_multiple_of(64) && (limits.stop)()) {
                    return None;
                }
            }
            level = next;
        }
        let rank = (0..count).map(narrow).collect();
        Some(Self { starts, steps, made, rank })
    }

    /// The ideals of a linear order: its beginnings.
    pub(super) fn of_order(problem: &Problem, order: &[usize]) -> Self {
        let mut rank = vec![0; problem.units.len()];
        let mut steps = Vec::with_capacity(order.len());
        let mut made = vec![(0, 0)];
        for (place, &unit) in order.iter().enumerate() {
            rank[unit] = narrow(place);
            steps.push((narrow(unit), narrow(place + 1)));
            made.push((narrow(unit), narrow(place)));
        }
        let starts = (0..=order.len()).chain([order.len()]).collect();
        Self { starts, steps, made, rank }
    }

    pub(super) fn len(&self) -> usize {
        self.made.len()
    }

    pub(super) fn steps(&self, ideal: usize) -> &[(u32, u32)] {
        &self.steps[self.starts[ideal]..self.starts[ideal + 1]]
    }

    pub(super) fn rank(&self, unit: usize) -> u32 {
        self.rank[unit]
    }

    /// The unit added last to make an ideal that is not empty, and the ideal before.
    pub(super) fn made(&self, ideal: usize) -> (usize, usize) {
        let (unit, before) = self.made[ideal];
        (unit as usize, before as usize)
    }

    /// The members of an ideal, ascending.
    pub(super) fn members(&self, mut ideal: usize) -> Vec<usize> {
        let mut members = Vec::new();
        while ideal != 0 {
            let (unit, before) = self.made(ideal);
            members.push(unit);
            ideal = before;
        }
        members.sort_unstable();
        members
    }
}

/// Ideals of one size: members and addable units of each, as bits, and where to find an ideal by its members.
struct Level {
    words: usize,
    len: usize,
    bits: Vec<u64>,
    /// Places of ideals by a hash of their members, one more than the place; 0 is nowhere. A power of two long.
    table: Vec<u32>,
}

impl Level {
    fn new(words: usize) -> Self {
        Self { words, len: 0, bits: Vec::new(), table: vec![0; 16] }
    }

    /// Members and addable units of an ideal.
    fn ideal(&self, place: usize) -> (&[u64], &[u64]) {
        let at = place * 2 * self.words;
        self.bits[at..at + 2 * self.words].split_at(self.words)
    }

    fn push(&mut self, members: &[u64], addable: &[u64]) {
        self.bits.extend(members);
        self.bits.extend(addable);
        self.len += 1;
    }

    /// The place of the ideal of `members` and `unit`, and whether it was there; otherwise its members are, and what can
    /// be added must follow.
    fn find(&mut self, members: &[u64], unit: usize) -> (usize, bool) {
        if self.len * 2 >= self.table.len() {
            self.widen();
        }
        let start = self.bits.len();
        self.bits.extend(members);
        set(&mut self.bits[start..], unit);
        let (known, new) = self.bits.split_at(start);
        let mut slot = slot(new, self.table.len());
        while let Some(place) = (self.table[slot] as usize).checked_sub(1) {
            if &known[place * 2 * self.words..][..self.words] == new {
                self.bits.truncate(start);
                return (place, true);
            }
            slot = (slot + 1) % self.table.len();
        }
        self.len += 1;
        self.table[slot] = narrow(self.len);
        (self.len - 1, false)
    }

    fn widen(&mut self) {
        let size = self.table.len() * 2;
        let mut table = vec![0; size];
        for place in 0..self.len {
            let mut slot = slot(self.ideal(place).0, size);
            while table[slot] != 0 {
                slot = (slot + 1) % size;
            }
            table[slot] = narrow(place + 1);
        }
        self.table = table;
    }
}

/// Where to look first for a set in a table of a power of two. Order does not matter anywhere, so any spread will do.
fn slot(members: &[u64], size: usize) -> usize {
    let mix = |hash: u64, &word: &u64| (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = members.iter().fold(0, mix);
    (hash >> 32) as usize % size
}

struct Growth {
    successors: Vec<Vec<usize>>,
    /// Predecessors as a set of bits.
    predecessors: Vec<Box<[u64]>>,
    words: usize,
}

impl Growth {
    fn new(problem: &Problem, words: usize) -> Self {
        let count = problem.units.len();
        let mut predecessors = vec![vec![0u64; words].into_boxed_slice(); count];
        let mut successors = vec![Vec::new(); count];
        for &(source, target) in &problem.edges {
            set(&mut predecessors[target], source);
            successors[source].push(target);
        }
        Self { successors, predecessors, words }
    }

    /// Units that can be added to nothing.
    fn first(&self) -> Vec<u64> {
        let mut addable = vec![0; self.words];
        for (unit, predecessors) in self.predecessors.iter().enumerate() {
            if predecessors.iter().all(|&word| word == 0) {
                set(&mut addable, unit);
            }
        }
        addable
    }

    /// Appends the addable units of the last ideal of `level`, whose members are there, made by adding `unit`.
    fn grow(&self, level: &mut Level, before: &[u64], unit: usize) {
        let start = level.bits.len();
        level.bits.extend(before);
        let (known, addable) = level.bits.split_at_mut(start);
        let members = &known[start - self.words..];
        addable[unit / 64] &= !(1 << (unit % 64));
        for &successor in &self.successors[unit] {
            let open =
                self.predecessors[successor].iter().zip(members).any(|(needed, have)| needed & !have != 0);
            if !open {
                set(addable, successor);
            }
        }
    }
}

fn set(bits: &mut [u64], at: usize) {
    bits[at / 64] |= 1 << (at % 64);
}

/// Places of the bits that are set, ascending.
pub(super) fn bits(words: impl Iterator<Item = u64>) -> impl Iterator<Item = usize> {
    words.enumerate().flat_map(|(place, mut word)| {
        std::iter::from_fn(move || {
            let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
            word &= word - 1;
            Some(place * 64 + bit)
        })
    })
}

/// Numbers of units and ideals; both are far below 2^32, bounded by the graph's size and by memory.
fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
