//! What lies between a piece of hardware and its neighbours: said, never assumed.

use std::fmt;

/// What neighbours are isolated from. What is `false` is shared with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Compute units: nobody else runs on them.
    pub isolates_compute: bool,
    /// Last-level cache.
    pub isolates_cache: bool,
    /// Memory bandwidth.
    pub isolates_bandwidth: bool,
    /// Copy engines. The link to the host is one all the same.
    pub isolates_copies: bool,
    /// Memory: each has an amount of its own, which neighbours can neither read nor use up.
    pub isolates_memory: bool,
    /// A fault in one leaves the others running.
    pub isolates_faults: bool,
}

impl Capabilities {
    /// Everything is shared.
    pub const NOTHING: Self = Self {
        isolates_compute: false,
        isolates_cache: false,
        isolates_bandwidth: false,
        isolates_copies: false,
        isolates_memory: false,
        isolates_faults: false,
    };

    /// Compute units of their own, all else shared: sets of cores, green contexts.
    pub const COMPUTE: Self = Self { isolates_compute: true, ..Self::NOTHING };

    /// A fault stays where it is, all else is shared: processes that take turns on a device.
    pub const FAULTS: Self = Self { isolates_faults: true, ..Self::NOTHING };

    /// Nothing that is listed here is shared.
    pub const EVERYTHING: Self = Self {
        isolates_compute: true,
        isolates_cache: true,
        isolates_bandwidth: true,
        isolates_copies: true,
        isolates_memory: true,
        isolates_faults: true,
    };

    /// Each thing by name, and whether it is isolated.
    #[must_use]
    pub const fn each(&self) -> [(&'static str, bool); 6] {
        [
            ("compute", self.isolates_compute),
            ("cache", self.isolates_cache),
            ("bandwidth", self.isolates_bandwidth),
            ("copies", self.isolates_copies),
            ("memory", self.isolates_memory),
            ("faults", self.isolates_faults),
        ]
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |isolated: bool| {
            let names = self.each().into_iter().filter(|(_, is)| *is == isolated).map(|(name, _)| name);
            let names: Vec<&str> = names.collect();
            if names.is_empty() { "nothing".into() } else { names.join(", ") }
        };
        f.pad(&format!("isolates {}; shares {}", named(true), named(false)))
    }
}

/// Others on the hardware of a device, outside of what Raddle schedules, and what the device is isolated from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surrounding {
    /// Who: `other processes`, `other MIG instances`.
    pub others: &'static str,
    /// What of theirs cannot be felt.
    pub capabilities: Capabilities,
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn what_is_isolated_and_what_is_not_is_said() {
        let lines = [Capabilities::NOTHING, Capabilities::COMPUTE, Capabilities::EVERYTHING];
        expect![[r"
            isolates nothing; shares compute, cache, bandwidth, copies, memory, faults
            isolates compute; shares cache, bandwidth, copies, memory, faults
            isolates compute, cache, bandwidth, copies, memory, faults; shares nothing"]]
        .assert_eq(&lines.map(|line| line.to_string()).join("\n"));
    }
}
