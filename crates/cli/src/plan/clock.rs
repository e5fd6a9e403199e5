//! How long planning took, and how long it may take.

use serde::Serialize;
use std::time::{Duration, Instant};

/// Longest time limit.
const LIMIT_SECONDS_MAX: f64 = 86_400.0;

/// What planning took.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct TimeUsed {
    /// Seconds that reading the graph took.
    pub(crate) read_s: f64,
    /// Seconds from then to the plan.
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
    /// What reading the graph took.
    read: Duration,
    /// What is kept for telling the answer.
    kept: Duration,
}

impl Clock {
    /// Starts, before the graph is read; the limit is `seconds`.
    pub(crate) fn start(seconds: f64) -> anyhow::Result<Self> {
        anyhow::ensure!(
            seconds.is_finite() && seconds > 0.0 && seconds <= LIMIT_SECONDS_MAX,
            "a time limit of {seconds} s; give one above 0 and up to {LIMIT_SECONDS_MAX}"
        );
        let limit = Duration::from_secs_f64(seconds);
        Ok(Self { start: Instant::now(), limit, read: Duration::ZERO, kept: Duration::ZERO })
    }

    /// The graph is read: as much time as that took is kept for telling the answer, half of the limit at most.
    pub(crate) fn has_read(&mut self) {
        self.read = self.start.elapsed();
        self.kept = self.read.min(self.limit / 2);
    }

    /// Whether a part of the limit, but for what is kept, has passed.
    pub(crate) fn passed(&self, part: f64) -> bool {
        self.start.elapsed() + self.kept >= self.limit.mul_f64(part)
    }

    /// What is left.
    pub(crate) fn left(&self) -> Duration {
        self.limit.saturating_sub(self.start.elapsed() + self.kept)
    }

    /// What has been used.
    pub(crate) fn used(&self) -> TimeUsed {
        TimeUsed {
            read_s: self.read.as_secs_f64(),
            wall_s: self.start.elapsed().saturating_sub(self.read).as_secs_f64(),
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
