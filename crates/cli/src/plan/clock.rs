//! How long planning took, and how long it may take.

use serde::Serialize;
use std::time::{Duration, Instant};

/// Longest time limit.
const LIMIT_SECONDS_MAX: f64 = 86_400.0;

/// What planning took.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct TimeUsed {
    /// Seconds from the start to the plan, reading the graph left out.
    pub(crate) wall_s: f64,
    /// Seconds that this process and a solver computed, everything counted, as far as the system says.
    pub(crate) cpu_s: Option<f64>,
    /// Most memory that this process held, as far as the system says.
    pub(crate) peak_bytes: Option<u64>,
}

/// A running clock with a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    limit: Duration,
}

impl Clock {
    /// Starts; the limit is `seconds`.
    pub(crate) fn start(seconds: f64) -> anyhow::Result<Self> {
        anyhow::ensure!(
            seconds.is_finite() && seconds > 0.0 && seconds <= LIMIT_SECONDS_MAX,
            "a time limit of {seconds} s; give one above 0 and up to {LIMIT_SECONDS_MAX}"
        );
        Ok(Self { start: Instant::now(), limit: Duration::from_secs_f64(seconds) })
    }

    /// Whether a part of the limit has passed.
    pub(crate) fn passed(&self, part: f64) -> bool {
        self.start.elapsed() >= self.limit.mul_f64(part)
    }

    /// What is left.
    pub(crate) fn left(&self) -> Duration {
        self.limit.saturating_sub(self.start.elapsed())
    }

    /// What has been used.
    pub(crate) fn used(&self) -> TimeUsed {
        TimeUsed {
            wall_s: self.start.elapsed().as_secs_f64(),
            cpu_s: cpu_seconds(),
            peak_bytes: peak_bytes(),
        }
    }
}

/// User and system time of this process and of children it has waited for; the system counts hundredths of a second.
fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name may hold anything, so fields are counted from behind its bracket.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    Some((ticks(11)? + ticks(12)? + ticks(13)? + ticks(14)?) / 100.0)
}

fn peak_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}
