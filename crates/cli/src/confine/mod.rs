//! Which device a command means, and confining the process to it before a driver is initialised: the program starts itself
//! again with the variables that MIG and MPS read, so that no thread has seen the process without them.

use anyhow::{Context as _, bail};
use cuda::{CudaDevice, CudaOptions, Daemon, Enclosure, InstanceName, Instances, Nvml, Percentage, choose};
use engine::Device as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use vocab::PartitionId;

/// The device or devices of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    /// The processor.
    Cpu,
    /// Devices of the CUDA driver, and what of them the process has.
    Cuda(Gpus, Enclosure),
}

/// Devices of the CUDA driver, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gpus {
    /// These, in this order; at least one, none twice.
    These(Vec<usize>),
    /// As many as there are.
    All,
}

impl Gpus {
    /// Their numbers. Initialises the driver when all are meant.
    pub(crate) fn ordinals(&self) -> anyhow::Result<Vec<usize>> {
        match self {
            Self::These(ordinals) => Ok(ordinals.clone()),
            Self::All => match cuda::devices() {
                0 => bail!(
                    "--device cuda:all: no CUDA device was found; install NVIDIA's driver, or serve on the CPU"
                ),
                count => Ok((0..count).collect()),
            },
        }
    }

    /// The only one, for what concerns a single device.
    pub(crate) fn one(&self) -> anyhow::Result<usize> {
        match self.ordinals()?[..] {
            [ordinal] => Ok(ordinal),
            ref several => bail!(
                "only `raddle serve` takes {} devices at once; name one, for example cuda:0",
                several.len()
            ),
        }
    }
}

/// Confines this process to a device, or to a percentage of it. Called before anything else is done: it may replace the
/// running program by itself.
pub(crate) fn confine(device: &str, percentage: Option<u32>) -> anyhow::Result<Chosen> {
    let library = || Ok(Box::new(Nvml::find()?) as Box<dyn Instances>);
    let chosen = chosen(device, percentage, library, &daemon(), variable(cuda::PERCENTAGE))?;
    if let Chosen::Cuda(_, enclosure) = &chosen {
        let missing = enclosure.missing(variable)?;
        if !missing.is_empty() {
            return Err(again(missing));
        }
        for (name, value) in enclosure.variables() {
            tracing::info!("confined by {name}={value}");
        }
    }
    Ok(chosen)
}

/// Opens a device inside of what the process has, and says what that is.
pub(crate) fn open_enclosed(ordinal: usize, options: &CudaOptions) -> anyhow::Result<CudaDevice> {
    let enclosure = &options.enclosure;
    let name = enclosure.name(ordinal);
    let device = CudaDevice::open(ordinal, options);
    let device = match enclosure.percentage {
        // The driver reports a daemon that sees other devices as there being none.
        Some(_) => device
            .with_context(|| format!("as a client of the MPS daemon in {}", daemon().folder().display()))?,
        None => device?,
    };
    tracing::info!("{name}: {}, {} multiprocessors", device.info().kind, device.units());
    for beside in &device.info().surroundings {
        tracing::info!("{name}, beside {}: {}", beside.others, beside.capabilities);
    }
    if enclosure.percentage.is_some() {
        let really = device.multiprocessors(PartitionId(0))?.len();
        tracing::info!("{name}: a kernel ran on {really} multiprocessors");
        if really > device.units() as usize {
            tracing::warn!("{name}: that is more than the driver says; the percentage may not be in force");
        }
    }
    Ok(device)
}

/// The limit that this process is under as it is: whoever finds a control daemon is its client.
pub(crate) fn implied() -> Option<Percentage> {
    daemon().implied(variable(cuda::PERCENTAGE).as_deref())
}

/// The control daemon this process would turn to.
pub(crate) fn daemon() -> Daemon {
    Daemon::of(std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").map(PathBuf::from))
}

/// A device as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DeviceName {
    Cpu,
    Cuda(Gpus),
    Mig(InstanceName),
}

/// The device of that name, checked against what there is.
fn chosen(
    device: &str,
    percentage: Option<u32>,
    library: impl FnOnce() -> anyhow::Result<Box<dyn Instances>>,
    daemon: &Daemon,
    set: Option<String>,
) -> anyhow::Result<Chosen> {
    let name = DeviceName::parse(device)?;
    let limit = percentage.map(Percentage::new).transpose()?;
    let (gpus, instance) = match name {
        DeviceName::Cpu if limit.is_some() => {
            bail!("--mps-percentage goes with --device cuda:N or --device mig:NAME")
        }
        DeviceName::Cpu => return Ok(Chosen::Cpu),
        DeviceName::Cuda(gpus) => (gpus, None),
        DeviceName::Mig(name) => {
            let of = || format!("--device {device}");
            let gpus = library().with_context(of)?.gpus().with_context(of)?;
            // A process sees one instance, as its first device.
            (Gpus::These(vec![0]), Some(choose(&gpus, &name).with_context(of)?))
        }
    };
    let percentage = match limit {
        None => daemon.implied(set.as_deref()),
        Some(limit) => {
            daemon.check(limit, instance.as_ref().map(|instance| instance.uuid.as_str()))?;
            Some(limit)
        }
    };
    Ok(Chosen::Cuda(gpus, Enclosure { instance, percentage }))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl DeviceName {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let (kind, name) = text.split_once(':').unwrap_or((text, "0"));
        match kind {
            "cpu" if text == "cpu" => Ok(Self::Cpu),
            "cuda" if name == "all" => Ok(Self::Cuda(Gpus::All)),
            "cuda" => {
                let mut ordinals: Vec<usize> = Vec::new();
                for one in name.split(',') {
                    let one = one.trim();
                    let ordinal =
                        one.parse().with_context(|| format!("{one:?} in {text:?} is not a number"))?;
                    if ordinals.contains(&ordinal) {
                        bail!("{text:?} names device {ordinal} twice");
                    }
                    ordinals.push(ordinal);
                }
                Ok(Self::Cuda(Gpus::These(ordinals)))
            }
            "mig" => Ok(Self::Mig(InstanceName::parse(name)?)),
            _ => bail!("no device is called {text:?}; name cpu, cuda:N, cuda:N,N, cuda:all or mig:NAME"),
        }
    }
}

/// Starts the program again with more variables. Comes back only when that fails.
fn again(variables: Vec<(&'static str, String)>) -> anyhow::Error {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "raddle".into());
    let failed = match std::env::current_exe() {
        Ok(program) => Command::new(program).arg0(name).args(arguments).envs(variables).exec(),
        Err(error) => error,
    };
    anyhow::Error::new(failed).context("the program cannot start itself again, confined")
}

#[cfg(test)]
mod tests;
