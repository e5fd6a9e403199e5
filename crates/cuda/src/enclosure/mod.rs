//! What of a GPU this process confines itself to before the driver is initialised: all of it, a MIG instance, an MPS
//! percentage of either. Nothing here initialises the driver, changes a mode or makes an instance; what cannot be had is
//! refused with the reason and the nearest that can.
//!
//! ```text
//! GPU ─▶ MIG instance ─▶ MPS percentage ─▶ green contexts        (each level may be left out; the last two exclude
//!        other instances  other clients     partitions            each other, because MPS overrules the contexts)
//! ```

mod instances;
mod mps;
mod nvml;

#[cfg(test)]
mod tests;

pub use instances::{
    Instance, InstanceName, InstanceRefusal, Instances, InstancesError, ManagedGpu, Mode, Profile, choose,
};
pub use mps::{Daemon, DaemonState, MpsError, Percentage};
pub use nvml::Nvml;

use crate::parts::PartOptions;
use engine::{Capabilities, Surrounding};

/// The variable that says which devices the driver shows to a process.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
/// The variable that limits a client of an MPS daemon.
pub const PERCENTAGE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

/// What of a GPU a process has. The default is all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Enclosure {
    /// A MIG instance, which is then the only device.
    pub instance: Option<Instance>,
    /// At most so much of the device's (or instance's) multiprocessors, as a client of an MPS daemon.
    pub percentage: Option<Percentage>,
}

/// Why a process cannot have an enclosure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnclosureError {
    /// The environment says something else already.
    #[error("{variable} is {found:?} already, {wanted:?} is asked for; unset it")]
    Contradiction {
        /// The variable.
        variable: &'static str,
        /// What it is.
        found: String,
        /// What it would have to be.
        wanted: String,
    },
    /// Parts and a percentage.
    #[error(
        "parts of a device do not hold under an MPS percentage of {0}: MPS overrules them; nearest: 100, or the percentage \
         without parts"
    )]
    Parts(Percentage),
}

impl Enclosure {
    /// Whether it is all of a device.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.instance.is_none() && self.percentage.is_none()
    }

    /// The variables that a process must have from its beginning to be confined so.
    #[must_use]
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let instance = self.instance.iter().map(|instance| (VISIBLE, instance.uuid.clone()));
        instance.chain(self.percentage.iter().map(|limit| (PERCENTAGE, limit.to_string()))).collect()
    }

    /// The variables that are still to be set, given how to look one up.
    ///
    /// # Errors
    /// When one is set to something else: nobody's limits are widened.
    pub fn missing(
        &self,
        look_up: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<(&'static str, String)>, EnclosureError> {
        let mut missing = Vec::new();
        for (variable, wanted) in self.variables() {
            match look_up(variable) {
                None => missing.push((variable, wanted)),
                Some(found) if found == wanted => {}
                Some(found) => return Err(EnclosureError::Contradiction { variable, found, wanted }),
            }
        }
        Ok(missing)
    }

    /// Checks that these parts can be made inside.
    ///
    /// # Errors
    /// When MPS would overrule them.
    pub fn check(&self, parts: Option<&PartOptions>) -> Result<(), EnclosureError> {
        let green = parts.is_some_and(|parts| parts.grid > 0 || !parts.parts.is_empty());
        match self.percentage {
            Some(percentage) if green && percentage != Percentage::ALL => {
                Err(EnclosureError::Parts(percentage))
            }
            _ => Ok(()),
        }
    }

    /// Who else is on the hardware, the nearest first, and what this process is isolated from.
    #[must_use]
    pub fn surroundings(&self) -> Vec<Surrounding> {
        let mut surroundings = Vec::new();
        if self.percentage.is_some() {
            surroundings.push(Daemon::surrounding());
        }
        match &self.instance {
            Some(instance) => surroundings.extend(instance.surroundings()),
            None if surroundings.is_empty() => surroundings
                .push(Surrounding { others: "other processes", capabilities: Capabilities::FAULTS }),
            None => {}
        }
        surroundings
    }

    /// How device `ordinal` inside is called.
    #[must_use]
    pub fn name(&self, ordinal: usize) -> String {
        let device = match &self.instance {
            Some(instance) => format!("mig:{} {}", instance.ordinal, instance.profile),
            None => format!("cuda:{ordinal}"),
        };
        match self.percentage {
            Some(limit) => format!("{device} MPS {limit} %"),
            None => device,
        }
    }
}
