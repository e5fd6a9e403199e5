//! The generator that Python's simulators shuffle with (Matsumoto and Nishimura, 1998), for orders that must agree with
//! theirs.

/// The Mersenne twister.
#[derive(Clone, Debug)]
pub(super) struct Twister {
    state: Vec<u32>,
    at: usize,
}

const SIZE: usize = 624;
const HALF: usize = 397;

impl Twister {
    /// Seeded with one number, as Python seeds with a small one.
    pub(super) fn new(seed: u32) -> Self {
        let mut state = vec![19_650_218u32];
        for at in 1..624u32 {
            let last = state[at as usize - 1];
            state.push(1_812_433_253u32.wrapping_mul(last ^ last >> 30).wrapping_add(at));
        }
        let mut at = 1;
        let step = |state: &mut Vec<u32>, at: &mut usize, factor: u32, add: u32| {
            let last = state[*at - 1];
            state[*at] = (state[*at] ^ (last ^ last >> 30).wrapping_mul(factor)).wrapping_add(add);
            *at += 1;
            if *at == SIZE {
                state[0] = state[SIZE - 1];
                *at = 1;
            }
        };
        for _ in 0..SIZE {
            step(&mut state, &mut at, 1_664_525, seed);
        }
        for _ in 1..SIZE {
            let less = u32::try_from(at).expect("a place below 624 fits");
            step(&mut state, &mut at, 1_566_083_941, 0u32.wrapping_sub(less));
        }
        state[0] = 1 << 31;
        Self { state, at: SIZE }
    }

    fn next(&mut self) -> u32 {
        if self.at == SIZE {
            for at in 0..SIZE {
                let mixed = self.state[at] & 1 << 31 | self.state[(at + 1) % SIZE] & !(1 << 31);
                let odd = if mixed & 1 == 1 { 0x9908_b0df } else { 0 };
                self.state[at] = self.state[(at + HALF) % SIZE] ^ mixed >> 1 ^ odd;
            }
            self.at = 0;
        }
        let mut word = self.state[self.at];
        self.at += 1;
        word ^= word >> 11;
        word ^= word << 7 & 0x9d2c_5680;
        word ^= word << 15 & 0xefc6_0000;
        word ^ word >> 18
    }

    /// Shuffles as Python does.
    pub(super) fn shuffle<T>(&mut self, values: &mut [T]) {
        for last in (1..values.len()).rev() {
            let bound = last + 1;
            let other = loop {
                let number = self.next() >> bound.leading_zeros().saturating_sub(usize::BITS - 32);
                let number = usize::try_from(number).expect("32 bits fit");
                if number < bound {
                    break number;
                }
            };
            values.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Twister;

    /// `random.Random(5)` shuffling [0, 1, 2] again and again.
    #[test]
    fn shuffles_are_pythons() {
        let mut twister = Twister::new(5);
        let mut values = [0, 1, 2];
        let mut shown = String::new();
        for _ in 0..12 {
            twister.shuffle(&mut values);
            shown += &values.map(|value| value.to_string()).concat();
            shown += " ";
        }
        assert_eq!(shown.trim(), "012 012 102 210 120 201 210 012 102 012 120 102");
    }
}
