//! Medians, quantiles and spread of measured spans.

use vocab::Span;

/// The nearest-rank quantile: the smallest value that at least `per_mille`/1000 of all do not exceed.
///
/// # Panics
/// When there is no value.
pub(crate) fn quantile(spans: &[Span], per_mille: usize) -> Span {
    let mut sorted = spans.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * per_mille).div_ceil(1_000).max(1);
    sorted[rank - 1]
}

/// The median.
pub(crate) fn median(spans: &[Span]) -> Span {
    quantile(spans, 500)
}

/// `p50 (p5 … p95)` in milliseconds.
pub(crate) fn spread_ms(spans: &[Span]) -> String {
    let at = |per_mille| quantile(spans, per_mille).as_ms_f64();
    format!("{:.2} ms ({:.2} … {:.2})", at(500), at(50), at(950))
}

/// The ratio of two spans.
pub(crate) fn ratio(a: Span, b: Span) -> f64 {
    a.as_secs_f64() / b.as_secs_f64()
}
