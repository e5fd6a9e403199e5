//! The ideals of a problem: sets of units that hold all predecessors of their members, and how adding a unit leads from
//! one to the next. A linear order is the special case of a path.

use super::problem::Problem;
use super::{Devices, Limits};
use std::collections::HashMap;

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
        let mut level = vec![growth.first()];
        let mut number = 0u32;
        while !level.is_empty() {
            let mut next: Vec<Ideal> = Vec::new();
            let mut known: HashMap<Box<[u64]>, u32> = HashMap::new();
            for ideal in &level {
                for unit in bits(&ideal.addable) {
                    let members = with(&ideal.members, unit);
                    let id = *known.entry(members).or_insert_with_key(|members| {
                        made.push((narrow(unit), number));
                        next.push(growth.grow(ideal, unit, members));
                        narrow(made.len() - 1)
                    });
                    steps.push((narrow(unit), id));
                }
                starts.push(steps.len());
                number += 1;
                // Members and addable units of two levels, and the members again as keys.
                let open = (level.len() + 2 * next.len()) * 2 * words * 8;
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

/// An ideal of the level that is being grown.
struct Ideal {
    members: Box<[u64]>,
    addable: Box<[u64]>,
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

    fn first(&self) -> Ideal {
        let mut addable = vec![0; self.words].into_boxed_slice();
        for (unit, predecessors) in self.predecessors.iter().enumerate() {
            if predecessors.iter().all(|&word| word == 0) {
                set(&mut addable, unit);
            }
        }
        Ideal { members: vec![0; self.words].into_boxed_slice(), addable }
    }

    fn grow(&self, before: &Ideal, unit: usize, members: &[u64]) -> Ideal {
        let mut addable = before.addable.clone();
        addable[unit / 64] &= !(1 << (unit % 64));
        for &successor in &self.successors[unit] {
            let open =
                self.predecessors[successor].iter().zip(members).any(|(needed, have)| needed & !have != 0);
            if !open {
                set(&mut addable, successor);
            }
        }
        Ideal { members: members.into(), addable }
    }
}

fn set(bits: &mut [u64], at: usize) {
    bits[at / 64] |= 1 << (at % 64);
}

fn with(bits: &[u64], at: usize) -> Box<[u64]> {
    let mut more: Box<[u64]> = bits.into();
    set(&mut more, at);
    more
}

fn bits(words: &[u64]) -> impl Iterator<Item = usize> + '_ {
    words.iter().enumerate().flat_map(|(place, &word)| {
        (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| place * 64 + bit)
    })
}

/// Numbers of units and ideals; both are far below 2^32, bounded by the graph's size and by memory.
fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
