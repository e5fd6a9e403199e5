//! MIG instances: what the management library tells of them, and which one a name means. Looks only; making instances and
//! turning MIG on are an administrator's.

use engine::{Capabilities, Surrounding};
use std::fmt::{self, Write as _};
use vocab::Bytes;

/// What tells of a machine's GPUs and their instances.
pub trait Instances {
    /// Every GPU that may be seen, in the library's order.
    ///
    /// # Errors
    /// When the library fails.
    fn gpus(&self) -> Result<Vec<ManagedGpu>, InstancesError>;
}

/// Why nothing is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstancesError {
    /// No library.
    #[error("NVIDIA's management library ({0}) was not found; it comes with the driver")]
    NoLibrary(String),
    /// A library that lacks a function.
    #[error("NVIDIA's management library knows no {0}; a newer driver does")]
    NoFunction(&'static str),
    /// A call failed.
    #[error("{call} failed: {why}")]
    Failed {
        /// The call.
        call: &'static str,
        /// What the library says.
        why: String,
    },
}

/// A GPU as the management library knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedGpu {
    /// Its number for the library, which need not be the driver's.
    pub index: u32,
    /// Its kind: `NVIDIA H200`.
    pub kind: String,
    /// `GPU-…`.
    pub uuid: String,
    /// Memory in all.
    pub memory: Bytes,
    /// Whether it is divided.
    pub mode: Mode,
    /// The instances on it; none unless it is divided.
    pub instances: Vec<Instance>,
    /// What instances it can have; none unless it is divided.
    pub profiles: Vec<Profile>,
}

/// Whether a GPU is divided into instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It cannot be.
    Unsupported,
    /// It can be, but is not.
    Off,
    /// It is.
    On,
}

/// A part of a GPU with memory, caches and multiprocessors of its own (a compute instance, with its GPU instance).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its number among all instances of the machine.
    pub ordinal: usize,
    /// The GPU it is on.
    pub gpu: u32,
    /// `MIG-…`.
    pub uuid: String,
    /// `1g.18gb`, or `1c.3g.71gb` where it has a part of its GPU instance only.
    pub profile: String,
    /// Its multiprocessors.
    pub units: u32,
    /// Its memory, shared with the others in its GPU instance if there are some.
    pub memory: Bytes,
    /// Slices of its GPU instance.
    pub gpu_slices: u32,
    /// Slices that it computes on.
    pub compute_slices: u32,
}

/// Instances that a GPU can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// `1g.18gb`.
    pub name: String,
    /// Multiprocessors of one.
    pub units: u32,
    /// Memory of one.
    pub memory: Bytes,
    /// How many an empty GPU has room for.
    pub most: u32,
    /// How many there is still room for; the library may tell administrators only.
    pub free: Option<u32>,
}

/// What an instance is called by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceName {
    /// Its number among all instances of the machine.
    Ordinal(usize),
    /// Its UUID, with `MIG-`.
    Uuid(String),
    /// Its profile, where only one has it.
    Profile(String),
}

/// Why there is no such instance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstanceRefusal {
    /// Not a name.
    #[error(
        "{0:?} names no MIG instance; write a number (mig:0), a UUID (mig:MIG-…) or a profile (mig:1g.18gb); `raddle parts` \
         lists them"
    )]
    NotAName(String),
    /// No GPU at all.
    #[error("there is no GPU with MIG instances here: the management library lists none")]
    NoGpu,
    /// No GPU is divided.
    #[error(
        "there are no MIG instances: {0}; nearest: cuda:N with --gpu-grid, --gpu-parts or --mps-percentage"
    )]
    Off(String),
    /// None made yet.
    #[error(
        "MIG is on, but no instance has been made{0}; an administrator makes one with nvidia-smi mig -cgi PROFILE -C"
    )]
    NoneMade(String),
    /// None of that name.
    #[error("no MIG instance is {wanted}{reason}; nearest: {nearest}")]
    Absent {
        /// What was asked for.
        wanted: InstanceName,
        /// What is known about it.
        reason: String,
        /// What there is.
        nearest: String,
    },
    /// Several of that profile.
    #[error("several MIG instances are {wanted}: {which}; name one of them")]
    Several {
        /// What was asked for.
        wanted: InstanceName,
        /// Which.
        which: String,
    },
}

impl InstanceName {
    /// Reads what follows `mig:`.
    ///
    /// # Errors
    /// When it is no name.
    pub fn parse(text: &str) -> Result<Self, InstanceRefusal> {
        if let Ok(ordinal) = text.parse() {
            return Ok(Self::Ordinal(ordinal));
        }
        let bare = text.strip_prefix("MIG-").unwrap_or(text);
        if is_uuid(bare) {
            return Ok(Self::Uuid(format!("MIG-{}", bare.to_ascii_lowercase())));
        }
        let profile = text.to_ascii_lowercase();
        if size(&profile).is_some() {
            return Ok(Self::Profile(profile));
        }
        Err(InstanceRefusal::NotAName(text.into()))
    }
}

impl fmt::Display for InstanceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ordinal(ordinal) => write!(f, "number {ordinal}"),
            Self::Uuid(name) | Self::Profile(name) => f.write_str(name),
        }
    }
}

impl Instance {
    /// What it is isolated from, the nearest neighbours first. Instances share the link to the host all the same.
    #[must_use]
    pub fn surroundings(&self) -> Vec<Surrounding> {
        let mut surroundings = Vec::new();
        if self.compute_slices < self.gpu_slices {
            let (others, capabilities) = ("other compute instances", Capabilities::COMPUTE);
            surroundings.push(Surrounding { others, capabilities });
        }
        surroundings
            .push(Surrounding { others: "other MIG instances", capabilities: Capabilities::EVERYTHING });
        surroundings
    }
}

/// The instance of that name.
///
/// # Errors
/// When there is none, with why and what is nearest.
pub fn choose(gpus: &[ManagedGpu], wanted: &InstanceName) -> Result<Instance, InstanceRefusal> {
    let instances: Vec<&Instance> = gpus.iter().flat_map(|gpu| &gpu.instances).collect();
    if instances.is_empty() {
        return Err(nothing(gpus));
    }
    let named: Vec<&Instance> = instances
        .iter()
        .copied()
        .filter(|instance| match wanted {
            InstanceName::Ordinal(ordinal) => instance.ordinal == *ordinal,
            InstanceName::Uuid(uuid) => instance.uuid.eq_ignore_ascii_case(uuid),
            InstanceName::Profile(profile) => instance.profile.eq_ignore_ascii_case(profile),
        })
        .collect();
    match named[..] {
        [instance] => Ok(instance.clone()),
        [] => Err(InstanceRefusal::Absent {
            wanted: wanted.clone(),
            reason: reason(gpus, wanted),
            nearest: listed(&nearest(&instances, wanted)),
        }),
        _ => Err(InstanceRefusal::Several { wanted: wanted.clone(), which: listed(&named) }),
    }
}

/// Why there is no instance at all.
fn nothing(gpus: &[ManagedGpu]) -> InstanceRefusal {
    if gpus.is_empty() {
        return InstanceRefusal::NoGpu;
    }
    let divided: Vec<&ManagedGpu> = gpus.iter().filter(|gpu| gpu.mode == Mode::On).collect();
    if divided.is_empty() {
        let state = |gpu: &ManagedGpu| {
            let mode = if gpu.mode == Mode::Off {
                "has MIG mode off (an administrator turns it on while it is idle)"
            } else {
                "does not know MIG"
            };
            format!("GPU {} ({}) {mode}", gpu.index, gpu.kind)
        };
        return InstanceRefusal::Off(gpus.iter().map(state).collect::<Vec<_>>().join(", "));
    }
    let mut profiles: Vec<&str> =
        divided.iter().flat_map(|gpu| &gpu.profiles).map(|profile| profile.name.as_str()).collect();
    profiles.dedup();
    let possible = if profiles.is_empty() { String::new() } else { format!(" ({})", profiles.join(", ")) };
    InstanceRefusal::NoneMade(possible)
}

/// What is known about a profile that no instance has. Of compute instances none are listed.
fn reason(gpus: &[ManagedGpu], wanted: &InstanceName) -> String {
    let InstanceName::Profile(wanted) = wanted else { return String::new() };
    if size(wanted).is_some_and(|(slices, _, computing)| computing < slices) {
        return String::new();
    }
    let profiles = || gpus.iter().flat_map(|gpu| &gpu.profiles);
    let known = profiles().filter(|profile| profile.name.eq_ignore_ascii_case(wanted));
    let Some(free) = known.map(|profile| profile.free).reduce(|one, other| Some(one? + other?)) else {
        return if profiles().next().is_none() {
            String::new()
        } else {
            ", which no GPU here can have".into()
        };
    };
    match free {
        Some(0) => ", for which there is no room beside the others".into(),
        _ => ", which a GPU here can have but an administrator has not made".into(),
    }
}

/// The instances to take instead: by profile the next smaller and the next larger, else all.
fn nearest<'i>(instances: &[&'i Instance], wanted: &InstanceName) -> Vec<&'i Instance> {
    let InstanceName::Profile(profile) = wanted else { return instances.to_vec() };
    let Some(wanted) = size(profile) else { return instances.to_vec() };
    let sizes: Vec<Size> =
        instances.iter().map(|instance| size(&instance.profile).unwrap_or_default()).collect();
    let (below, above) = beside(wanted, &sizes);
    let first = |size: Option<Size>| {
        let place = sizes.iter().position(|other| Some(*other) == size)?;
        Some(instances[place])
    };
    let mut nearest: Vec<&Instance> = [first(below), first(above)].into_iter().flatten().collect();
    nearest.dedup();
    nearest
}

/// The largest that is not above `wanted`, and the smallest that is not below.
pub(super) fn beside<T: Ord + Copy>(wanted: T, sizes: &[T]) -> (Option<T>, Option<T>) {
    let below = sizes.iter().copied().filter(|size| *size <= wanted).max();
    let above = sizes.iter().copied().filter(|size| *size >= wanted).min();
    (below, above)
}

fn listed(instances: &[&Instance]) -> String {
    let mut text = String::new();
    for instance in instances {
        let gap = if text.is_empty() { "" } else { ", " };
        let Instance { ordinal, profile, units, uuid, .. } = instance;
        // Writing to a string cannot fail.
        let _ = write!(text, "{gap}mig:{ordinal} ({profile}, {units} multiprocessors, {uuid})");
    }
    text
}

/// Slices of the GPU, gigabytes, and slices computed on: what profiles are compared by.
type Size = (u32, u32, u32);

/// The size in a profile's name: `2g.35gb`, `1c.3g.71gb`, `1g.18gb+me`.
fn size(profile: &str) -> Option<Size> {
    let (profile, _) = profile.split_once(['+', '-']).unwrap_or((profile, ""));
    let number = |text: &str, unit: &str| text.strip_suffix(unit)?.parse::<u32>().ok().filter(|it| *it > 0);
    match profile.split('.').collect::<Vec<_>>()[..] {
        [slices, memory] => {
            let slices = number(slices, "g")?;
            Some((slices, number(memory, "gb")?, slices))
        }
        [compute, slices, memory] => {
            Some((number(slices, "g")?, number(memory, "gb")?, number(compute, "c")?))
        }
        _ => None,
    }
}

/// Hexadecimal digits in groups of 8, 4, 4, 4 and 12.
fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    let hexadecimal = |group: &&str| group.bytes().all(|byte| byte.is_ascii_hexdigit());
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]) && groups.iter().all(hexadecimal)
}
