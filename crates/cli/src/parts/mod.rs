//! `raddle parts`: what this machine can be shared out as, and what each way isolates.

use crate::args::{Format, PartsArgs};
use crate::confine::{self, Chosen};
use crate::output;
use cuda::{
    CudaError, Daemon, DaemonState, Enclosure, Instance, Instances as _, ManagedGpu, Mode, Nvml, Offer,
    Percentage, Profile,
};
use engine::{Capabilities, CpuDevice, Device as _, Surrounding, online_cores};
use serde::Serialize;
use std::collections::BTreeMap;
use vocab::Bytes;

#[cfg(test)]
mod tests;

/// What was found out, for [`rows`] to lay out.
#[derive(Debug, Default)]
struct Facts {
    /// Devices of the driver that this process sees.
    offers: Vec<(usize, Offer)>,
    /// GPUs of the machine with their instances.
    gpus: Vec<ManagedGpu>,
    /// The control daemon, where there is a GPU it could serve.
    daemon: Option<DaemonState>,
    /// What of a GPU this process has.
    enclosure: Enclosure,
    /// The processor's cores and its memory.
    cores: Option<(Vec<usize>, Bytes)>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Row {
    /// What to type for it.
    part: String,
    /// What it is, or why it is not there.
    what: String,
    units: Option<u32>,
    /// Units come in multiples of this.
    step: Option<u32>,
    bytes: Option<u64>,
    /// Who the neighbours are that it is, or is not, isolated from.
    beside: &'static str,
    /// What of theirs it is isolated from; nothing to say about what cannot be had.
    isolates: Option<BTreeMap<&'static str, bool>>,
}

pub(crate) fn run(args: &PartsArgs, format: Format) -> anyhow::Result<()> {
    let facts = match &args.device {
        None if args.mps_percentage.is_some() => {
            anyhow::bail!("--mps-percentage needs --device cuda:N or --device mig:NAME")
        }
        None => everything()?,
        Some(device) => match confine::confine(device, args.mps_percentage)? {
            Chosen::Cpu => Facts { cores: Some(processor()?), ..Facts::default() },
            Chosen::Cuda(gpus, enclosure) => Facts {
                offers: gpus
                    .ordinals()?
                    .into_iter()
                    .map(|ordinal| Ok((ordinal, cuda::offer(ordinal)?)))
                    .collect::<anyhow::Result<_>>()?,
                daemon: Some(confine::daemon().state()),
                enclosure,
                ..Facts::default()
            },
        },
    };
    output::rows(format, "parts", &COLUMNS, &rows(&facts), cells)
}

/// What the table says of each part.
const COLUMNS: [&str; 12] = [
    "part",
    "what",
    "units",
    "step",
    "size",
    "beside",
    "compute",
    "cache",
    "bandwidth",
    "copies",
    "memory",
    "faults",
];

/// All that this machine has. What cannot be asked is said on the log, and the rest is listed.
fn everything() -> anyhow::Result<Facts> {
    let mut facts = Facts { cores: Some(processor()?), ..Facts::default() };
    for ordinal in 0..cuda::devices() {
        match cuda::offer(ordinal) {
            Ok(offer) => facts.offers.push((ordinal, offer)),
            Err(error) => tracing::warn!("{error}"),
        }
    }
    match Nvml::find().and_then(|library| library.gpus()) {
        Ok(gpus) => facts.gpus = gpus,
        Err(error) if facts.offers.is_empty() => tracing::debug!("{error}"),
        Err(error) => tracing::warn!("{error}; MIG instances are not listed"),
    }
    if facts.offers.is_empty() && facts.gpus.is_empty() {
        // Asking for a device says best what is missing.
        let why = match cuda::offer(0) {
            Err(CudaError::NoDevice { .. }) => "the CUDA driver sees no device".into(),
            Err(error) => error.to_string(),
            Ok(_) => "it came a moment ago; ask again".into(),
        };
        tracing::warn!("no GPU here: {why}; sets of cores are listed");
    } else {
        facts.daemon = Some(confine::daemon().state());
        facts.enclosure.percentage = confine::implied();
    }
    Ok(facts)
}

fn processor() -> anyhow::Result<(Vec<usize>, Bytes)> {
    Ok((online_cores()?, CpuDevice::whole()?.info().memory))
}

/// A row for each way to have something.
fn rows(facts: &Facts) -> Vec<Row> {
    let mut rows = Vec::new();
    for (ordinal, offer) in &facts.offers {
        rows.extend(device_rows(facts, *ordinal, offer));
    }
    for gpu in &facts.gpus {
        rows.extend(instance_rows(gpu));
    }
    if let Some((cores, memory)) = &facts.cores {
        let units = u32::try_from(cores.len()).ok();
        let whole = Surrounding { others: "other processes", capabilities: Capabilities::FAULTS };
        let sets = Surrounding { others: "other sets", capabilities: Capabilities::COMPUTE };
        rows.push(row("cpu", format!("cores {}", ranges(cores)), &whole).sized(units, Some(*memory)));
        rows.push(row("cpu --cpu-partitions", "sets of cores", &sets).sized(units, None).stepped(Some(1)));
    }
    rows
}

/// A device of the driver, its parts, and it as a client of MPS.
fn device_rows(facts: &Facts, ordinal: usize, offer: &Offer) -> Vec<Row> {
    let enclosure = &facts.enclosure;
    let name = match &enclosure.instance {
        Some(instance) => format!("mig:{}", instance.ordinal),
        None => format!("cuda:{ordinal}"),
    };
    let limit = enclosure.percentage.map(|limit| format!(" --mps-percentage {limit}")).unwrap_or_default();
    let surroundings = enclosure.surroundings();
    let mut rows: Vec<Row> = surroundings
        .iter()
        .map(|beside| {
            row(format!("{name}{limit}"), &offer.kind, beside).sized(Some(offer.units), Some(offer.memory))
        })
        .collect();
    let parts = Surrounding { others: "other parts", capabilities: Capabilities::COMPUTE };
    let part = format!("{name}{limit} --gpu-grid, --gpu-parts");
    rows.push(match offer.parts {
        _ if enclosure.percentage.is_some_and(|limit| limit != Percentage::ALL) => {
            row(part, "not to be had: MPS overrules them", &parts).absent()
        }
        Some(offered) => {
            row(part, "green contexts", &parts).sized(Some(offered.units), None).stepped(Some(offered.step))
        }
        None => row(part, "not to be had: the driver knows no green contexts", &parts).absent(),
    });
    if enclosure.percentage.is_none() {
        let what = match &facts.daemon {
            Some(DaemonState::Answers(Some(limit))) => format!("1 to {limit} %, a daemon answers"),
            Some(DaemonState::Answers(None)) => "1 to 100 %, a daemon answers".into(),
            Some(DaemonState::Absent(why)) => format!("no daemon: {why}"),
            None => "not asked for".into(),
        };
        rows.push(row(format!("{name} --mps-percentage"), what, &Daemon::surrounding()));
    }
    rows
}

/// The instances of a GPU, and the profiles it could have.
fn instance_rows(gpu: &ManagedGpu) -> Vec<Row> {
    let instances = Surrounding { others: "other MIG instances", capabilities: Capabilities::EVERYTHING };
    let mode = match gpu.mode {
        Mode::Unsupported => "not on this kind of GPU".into(),
        Mode::Off => "off".into(),
        Mode::On => format!("on, {} instance(s) made", gpu.instances.len()),
    };
    let ManagedGpu { index, kind, uuid, memory, .. } = gpu;
    let what = format!("{kind} {uuid}: MIG {mode}");
    let state = row(format!("mig: on GPU {index}"), what, &instances).sized(None, Some(*memory));
    let mut rows = vec![state.absent()];
    for instance in &gpu.instances {
        let Instance { ordinal, profile, uuid, units, memory, .. } = instance;
        let of = |beside| {
            row(format!("mig:{ordinal}"), format!("{profile} {uuid}"), beside)
                .sized(Some(*units), Some(*memory))
        };
        rows.extend(instance.surroundings().iter().map(of));
    }
    for profile in &gpu.profiles {
        let Profile { name, units, memory, most, free } = profile;
        let what = match free {
            Some(free) => format!("profile on GPU {index}: room for {free} more of {most}"),
            None => format!("profile on GPU {index}: at most {most}"),
        };
        rows.push(row(format!("mig:{name}"), what, &instances).sized(Some(*units), Some(*memory)));
    }
    rows
}

fn row(part: impl Into<String>, what: impl Into<String>, beside: &Surrounding) -> Row {
    Row {
        part: part.into(),
        what: what.into(),
        units: None,
        step: None,
        bytes: None,
        beside: beside.others,
        isolates: Some(beside.capabilities.each().into_iter().collect()),
    }
}

impl Row {
    fn sized(self, units: Option<u32>, memory: Option<Bytes>) -> Self {
        Self { units, bytes: memory.map(|memory| memory.0), ..self }
    }

    /// Said to be no part.
    fn absent(self) -> Self {
        Self { isolates: None, ..self }
    }

    fn stepped(self, step: Option<u32>) -> Self {
        Self { step, ..self }
    }
}

fn cells(row: &Row) -> Vec<String> {
    let number = |number: Option<u32>| number.map_or_else(|| "-".into(), |number| number.to_string());
    let size = row.bytes.map_or_else(|| "-".into(), |bytes| Bytes(bytes).to_string());
    let mut cells = vec![
        row.part.clone(),
        row.what.clone(),
        number(row.units),
        number(row.step),
        size,
        row.beside.to_owned(),
    ];
    let isolated = |name: &str| match &row.isolates {
        Some(isolates) if isolates[name] => "yes".to_owned(),
        Some(_) => "no".into(),
        None => "-".into(),
    };
    cells.extend(["compute", "cache", "bandwidth", "copies", "memory", "faults"].map(isolated));
    cells
}

/// Cores as ranges: `0-3,6`.
fn ranges(cores: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for core in cores {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *core => *last = *core,
            _ => ranges.push((*core, *core)),
        }
    }
    let text = |(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}
