//! When two jobs should share a GPU: the pair theorem of SJF-BSBF (arXiv 2407.13088).
//!
//! A newcomer beside a running job may share from now on, or wait for its end. The mean completion time is piecewise
//! linear in the moment the newcomer joins, rising at first; so one of the two ends is best, whatever lies between.

use vocab::Span;

/// A job's part of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Time left, alone.
    pub left: Span,
    /// How much slower it is beside the other, in thousandths; at least 1000.
    pub slowdown_milli: u64,
}

/// Twice the mean completion time of the two when the newcomer joins at once, from now, in thousandths of nanoseconds.
#[must_use]
pub fn shared(newcomer: Member, runner: Member) -> u128 {
    let (new, run) = (stretched(newcomer), stretched(runner));
    let (first, last) = if new >= run { (run, newcomer) } else { (new, runner) };
    // Until `first` both are slowed; what is left of the other then runs alone.
    let slowed = u128::from(last.slowdown_milli);
    let done = first * 1_000 / slowed;
    let rest = (u128::from(last.left.ns()) * 1_000).saturating_sub(done);
    first + first + rest
}

/// Twice the mean completion time of the two when the newcomer waits for the runner's end, in thousandths of nanoseconds.
#[must_use]
pub fn queued(newcomer: Member, runner: Member) -> u128 {
    (2 * u128::from(runner.left.ns()) + u128::from(newcomer.left.ns())) * 1_000
}

fn stretched(member: Member) -> u128 {
    u128::from(member.left.ns()) * u128::from(member.slowdown_milli)
}
