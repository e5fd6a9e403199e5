//! Logarithms and powers of two in integers, the same on every machine.

/// Bits after the point.
const BITS: u32 = 20;

/// The logarithm to base 2 of `number`, times 2^20, rounded down.
///
/// # Panics
/// When `number` is 0.
pub(super) fn log2(number: u64) -> u64 {
    assert!(number > 0, "zero has no logarithm");
    let whole = number.ilog2();
    // A number from 1 to 2, times 2^63.
    let mut rest = u128::from(number) << (63 - whole);
    let mut sum = u64::from(whole) << BITS;
    for bit in (0..BITS).rev() {
        rest = (rest * rest) >> 63;
        if rest >= 1 << 64 {
            rest >>= 1;
            sum |= 1 << bit;
        }
    }
    sum
}

/// Two to the power of minus `exponent` / 2^20, in thousandths, rounded down.
pub(super) fn power_milli(exponent: u64) -> u64 {
    let whole = exponent >> BITS;
    if whole >= 20 {
        return 0;
    }
    let mut value: u128 = 1_000 << 40;
    // 2^(-1/2), 2^(-1/4), …, each times 2^62: square roots of one another.
    let mut factor: u128 = 1 << 61;
    for bit in (0..BITS).rev() {
        factor = (factor << 62).isqrt();
        if exponent >> bit & 1 == 1 {
            value = (value * factor) >> 62;
        }
    }
    u64::try_from(value >> (40 + whole)).unwrap_or(1_000)
}

#[cfg(test)]
mod tests {
    use super::{BITS, log2, power_milli};

    #[test]
    fn logarithms_and_powers_agree_with_real_ones() {
        for number in (1..5_000u64).chain([u64::MAX, 1 << 40, 123_456_789_012]) {
            let exact = (number as f64).log2() * f64::from(1 << BITS);
            assert!((log2(number) as f64 - exact).abs() <= 2.0, "{number}");
        }
        for exponent in (0..5_000_000u64).step_by(997) {
            let exact = (-(exponent as f64) / f64::from(1 << BITS)).exp2() * 1e3;
            assert!((power_milli(exponent) as f64 - exact).abs() <= 1.0, "{exponent}");
        }
        assert_eq!(power_milli(0), 1_000);
    }
}
