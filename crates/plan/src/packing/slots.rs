//! Where MIG instances may lie on a GPU.
//!
//! A GPU of the A100, H100 or H200 kind has 7 compute slices and 8 memory slots. An instance takes its compute slices
//! anywhere, but memory slots in a row from a start that its size allows:
//!
//! ```text
//! size    1 slice   2        3     4   7
//! slots   1         2        4     4   8
//! starts  0 … 6     0, 2, 4  0, 4  0   0
//! ```
//!
//! So every size can lie where a larger one lay, and how many GPUs some instances need has a closed form.

use serde::{Deserialize, Serialize};

/// Compute slices of a GPU.
pub const SLICES: u32 = 7;

/// Memory slots of a GPU.
const SLOTS: u8 = 8;

/// Sizes of instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub enum Size {
    /// One slice.
    One,
    /// Two slices.
    Two,
    /// Three slices.
    Three,
    /// Four slices.
    Four,
    /// The whole GPU.
    Seven,
}

impl Size {
    /// Every size, ascending.
    pub const ALL: [Self; 5] = [Self::One, Self::Two, Self::Three, Self::Four, Self::Seven];

    /// Its place in [`Size::ALL`].
    #[must_use]
    pub fn place(self) -> usize {
        self as usize
    }

    /// Compute slices it takes.
    #[must_use]
    pub fn slices(self) -> u32 {
        [1, 2, 3, 4, 7][self.place()]
    }

    /// Memory slots it takes.
    #[must_use]
    pub fn width(self) -> u8 {
        [1, 2, 4, 4, 8][self.place()]
    }

    /// Memory slots it may begin at.
    #[must_use]
    pub fn starts(self) -> &'static [u8] {
        match self {
            Self::One => &[0, 1, 2, 3, 4, 5, 6],
            Self::Two => &[0, 2, 4],
            Self::Three => &[0, 4],
            Self::Four | Self::Seven => &[0],
        }
    }
}

impl TryFrom<u32> for Size {
    type Error = String;

    fn try_from(slices: u32) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|size| size.slices() == slices);
        found.ok_or_else(|| format!("no instance has {slices} slices; sizes are 1, 2, 3, 4 and 7"))
    }
}

impl From<Size> for u32 {
    fn from(size: Size) -> Self {
        size.slices()
    }
}

/// How many instances of each size, in the order of [`Size::ALL`].
pub type Counts = [u32; 5];

/// The sizes that fit a GPU together and leave no room: every legal set of instances is one of them, or one of them with
/// instances made smaller or left out.
pub const FULL: [Counts; 12] = [
    [0, 0, 0, 0, 1],
    [0, 0, 1, 1, 0],
    [1, 1, 0, 1, 0],
    [3, 0, 0, 1, 0],
    [0, 0, 2, 0, 0],
    [0, 2, 1, 0, 0],
    [2, 1, 1, 0, 0],
    [4, 0, 1, 0, 0],
    [1, 3, 0, 0, 0],
    [3, 2, 0, 0, 0],
    [5, 1, 0, 0, 0],
    [7, 0, 0, 0, 0],
];

/// The fewest GPUs that hold so many instances.
#[must_use]
pub fn gpus_needed(counts: &Counts) -> u32 {
    split(counts).gpus
}

/// How GPUs are shared out to hold some instances.
struct Split {
    gpus: u32,
    /// GPUs with an instance of four and one of three.
    four_three: u32,
    /// GPUs with two instances of three.
    pairs: u32,
    /// GPUs without one of three or more.
    free: u32,
}

/// Tries how many instances of three lie beside one of four, and how many in pairs; the rest follows. Instances of one and
/// two share what is left: 3 slots beside one of four, 4 beside one of three, 7 of a GPU of their own, of which at most 1, 2
/// and 3 instances of two.
fn split(&[ones, twos, threes, fours, sevens]: &Counts) -> Split {
    let mut best: Option<Split> = None;
    for four_three in 0..=threes.min(fours) {
        for pairs in 0..=(threes - four_three) / 2 {
            let (alone, beside) = (threes - four_three - 2 * pairs, fours - four_three);
            let slots = (2 * twos + ones).saturating_sub(3 * beside + 4 * alone).div_ceil(SLICES);
            let free = slots.max(twos.saturating_sub(beside + 2 * alone).div_ceil(3));
            let gpus = sevens + fours + pairs + alone + free;
            if best.as_ref().is_none_or(|best| gpus < best.gpus) {
                best = Some(Split { gpus, four_three, pairs, free });
            }
        }
    }
    best.expect("no instance of three beside one of four, and no pair, is always a way")
}

/// Places so many instances on the fewest GPUs: for each size, in the order of [`Size::ALL`], GPU and start of each.
#[must_use]
pub fn arrange(counts: &Counts) -> [Vec<(u32, u8)>; 5] {
    let Split { four_three, pairs, free, .. } = split(counts);
    let [ones, twos, threes, fours, sevens] = *counts;
    let mut places: [Vec<(u32, u8)>; 5] = Default::default();
    // GPUs with room for instances of one and two: from which slot, and how many.
    let mut room: Vec<(u32, u8, u8)> = Vec::new();
    let mut gpu = 0..;
    let mut next = || gpu.next().unwrap_or(u32::MAX);
    for _ in 0..sevens {
        places[4].push((next(), 0));
    }
    for number in 0..fours {
        let gpu = next();
        places[3].push((gpu, 0));
        if number < four_three {
            places[2].push((gpu, 4));
        } else {
            room.push((gpu, 4, 3));
        }
    }
    for _ in 0..pairs {
        let gpu = next();
        places[2].extend([(gpu, 0), (gpu, 4)]);
    }
    for _ in 0..threes - four_three - 2 * pairs {
        let gpu = next();
        places[2].push((gpu, 4));
        room.push((gpu, 0, 4));
    }
    for _ in 0..free {
        room.push((next(), 0, 7));
    }
    for (size, wanted, width) in [(1, twos, 2), (0, ones, 1)] {
        let mut left = wanted;
        for (gpu, from, slots) in &mut room {
            while left > 0 && *slots >= width {
                places[size].push((*gpu, *from));
                (*from, *slots, left) = (*from + width, *slots - width, left - 1);
            }
        }
    }
    places
}

/// Which of some instances on one GPU lie where their size may not begin, or on slots of an instance before them in the
/// list, and whether all take more compute slices than there are.
#[must_use]
pub fn misplaced(instances: &[(Size, u8)]) -> (Vec<usize>, bool) {
    let mut taken = 0u16;
    let mut wrong = Vec::new();
    for (at, (size, start)) in instances.iter().enumerate() {
        let legal = size.starts().contains(start) && start + size.width() <= SLOTS;
        let mask = if legal { ((1u16 << size.width()) - 1) << start } else { 0 };
        if !legal || taken & mask != 0 {
            wrong.push(at);
        }
        taken |= mask;
    }
    let slices: u32 = instances.iter().map(|(size, _)| size.slices()).sum();
    (wrong, slices > SLICES)
}
