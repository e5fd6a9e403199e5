//! D-STACK's execution-time model: serial work, kernels whose parallelism shrinks along the network, and memory.

use vocab::Span;

/// Kernels of a network where nobody says: how finely parallelism shrinks along it. Beside it the time of one parallel
/// operation scales, so that a fit depends on it little.
pub const KERNELS: u32 = 50;

/// The execution-time model `E_t(S, b)` of D-STACK (section 3; our reading), for `S` units and a batch of `b`:
///
/// ```text
/// N_1 = p·b,  N_i = N_{i-1} - p·b/K              parallel operations of kernel i of K
/// E_t = f + b·K·t_np                             serial: launches and the like
///         + t_p·Σ_i N_i / max(1, min(S, N_i))    units beyond N_i do nothing for kernel i
///         + b·d/(M·S)                            memory, at M bytes a second and unit
/// ```
///
/// Every kernel runs once (`R_i = 1`). The constant `f` is ours: a launch costs a batch of any size something; the paper's
/// form has none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExecutionModel {
    /// Parallel operations of the first kernel for one row (`p`).
    pub parallelism: f64,
    /// Kernels (`K`).
    pub kernels: u32,
    /// Nanoseconds of one parallel operation (`t_p`).
    pub parallel_ns: f64,
    /// Nanoseconds of a kernel's serial work for one row (`t_np`).
    pub serial_ns: f64,
    /// Nanoseconds that one unit takes to move the bytes of one row (`d/M`).
    pub memory_ns: f64,
    /// Nanoseconds of a run beside everything else (`f`).
    pub fixed_ns: f64,
}

impl ExecutionModel {
    /// Nanoseconds of a batch on so many units.
    #[must_use]
    pub fn latency_ns(&self, units: u32, batch: u32) -> f64 {
        let rows = f64::from(batch);
        self.fixed_ns
            + self.serial_ns * rows * f64::from(self.kernels)
            + self.parallel_ns * rounds(self.parallelism, self.kernels, units, batch)
            + self.memory_ns * rows / f64::from(units.max(1))
    }

    /// Latency of a batch on so many units.
    #[must_use]
    pub fn latency(&self, units: u32, batch: u32) -> Span {
        Span::from_secs_f64(self.latency_ns(units, batch) / 1e9)
    }

    /// Latency over 1 to `units_max` units.
    #[must_use]
    pub fn curve(&self, batch: u32, units_max: u32) -> Vec<(u32, Span)> {
        (1..=units_max).map(|units| (units, self.latency(units, batch))).collect()
    }
}

/// `Σ_i N_i / max(1, min(S, N_i))`.
pub(super) fn rounds(parallelism: f64, kernels: u32, units: u32, batch: u32) -> f64 {
    let first = parallelism * f64::from(batch);
    let units = f64::from(units);
    let one = |kernel: u32| {
        let parallel = first * (1.0 - f64::from(kernel) / f64::from(kernels.max(1)));
        parallel / units.min(parallel).max(1.0)
    };
    (0..kernels).map(one).sum()
}
