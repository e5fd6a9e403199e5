//! `raddle serve`: a repository behind KServe v2.

use crate::args::{DeviceArgs, ServeArgs};
use crate::confine::{Chosen, confine, open_enclosed};
use anyhow::{Context as _, bail};
use cuda::{CudaDevice, CudaOptions, PartOptions, PartWanted, Precision};
use engine::{CpuDevice, Device};
use graph::{ImportLimits, SegmentOptions};
use sched::node::policy::Choice;
use server::http::{self, Addresses, Catalog, HttpLimits};
use server::live::{
    Calibration, Handle, Limits, ModelState, Observer, Readiness, Runtime, RuntimeOptions, TenantRule,
};
use server::metrics::Metrics;
use server::repository::{self, Repository};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use vocab::{Bytes, Span};

pub(crate) fn run(args: ServeArgs) -> anyhow::Result<()> {
    let chosen = confine(&args.device.device, args.device.mps_percentage)?;
    let repository = repository::scan(&args.repository)?;
    report(&repository, args.exit_on_error)?;
    let choice = choice(&args)?;
    let staging = staging(&args.device, &repository);
    let cpu = (args.cpu_partitions.as_deref(), args.cpu_overlap);
    let devices = open_chosen(&args.device, chosen, cpu, staging)?;
    let rules = rules(&args, &repository, &*devices[0])?;
    let mut observers = Vec::new();
    if let Some(path) = &args.journal {
        let journal = Observer::journal(path, &choice);
        observers.push(journal.with_context(|| format!("cannot write journal {}", path.display()))?);
    }
    if let Some(path) = &args.timeline {
        let timeline = Observer::timeline(path);
        observers.push(timeline.with_context(|| format!("cannot write timeline {}", path.display()))?);
    }
    let metrics = Arc::new(Metrics::new());
    let segments = segment_options(args.segments_max);
    let options = RuntimeOptions {
        devices,
        policy: choice,
        observers,
        limits: Limits { in_flight: args.in_flight_max, ..Limits::default() },
        import: ImportLimits::default(),
        batch_default: args.max_batch_size.max(1),
        segments,
        calibration: Calibration::default(),
        staging,
        rules,
        shelf: None,
    };
    let runtime = Runtime::start(options, repository.entries.clone(), metrics.clone())?;
    let served = listen(&args, &repository, runtime.handle(), metrics);
    runtime.stop();
    served
}

/// Logs what the repository scan found; stops when nothing, or with `strict` not everything, can be served.
fn report(repository: &Repository, strict: bool) -> anyhow::Result<()> {
    for warning in &repository.warnings {
        tracing::warn!("{warning}");
    }
    for problem in &repository.problems {
        tracing::error!("{problem}");
    }
    if strict && !repository.problems.is_empty() {
        bail!("the repository has {} problem(s), listed above", repository.problems.len());
    }
    if repository.entries.is_empty() {
        tracing::warn!("the repository has no model; put NAME/1/model.onnx or NAME.onnx into it");
    }
    Ok(())
}

fn choice(args: &ServeArgs) -> anyhow::Result<Choice> {
    let known = Choice::NAMES.join(", ");
    let named = Choice::named(&args.policy);
    let mut choice =
        named.with_context(|| format!("no policy is called {:?}; there are {known}", args.policy))?;
    match (&mut choice, args.slice_ms, args.ageing_ms) {
        (Choice::TimeSlice { slice }, Some(ms), None) => *slice = Span::from_ms(ms),
        (Choice::Windows { ageing }, None, Some(ms)) => *ageing = Span::from_ms(ms),
        (_, None, None) => {}
        _ => bail!("--slice-ms goes with --policy timeslice, --ageing-ms with --policy windows"),
    }
    Ok(choice)
}

/// Constraints between tenants, checked against what there is.
fn rules(args: &ServeArgs, repository: &Repository, device: &dyn Device) -> anyhow::Result<Vec<TenantRule>> {
    let mut rules = Vec::new();
    for text in &args.apart {
        let pair =
            text.split_once(',').with_context(|| format!("--apart {text:?} is not two models: A,B"))?;
        rules.push(TenantRule::Apart(pair.0.trim().into(), pair.1.trim().into()));
    }
    let largest = device.partitions().iter().map(|part| part.units).max().unwrap_or(0);
    for text in &args.floor {
        let parts = text.split_once('=');
        let (model, units) = parts.with_context(|| format!("--floor {text:?} is not MODEL=UNITS"))?;
        let units: u32 =
            units.trim().parse().with_context(|| format!("{units:?} in --floor is not a number"))?;
        if units == 0 || units > largest {
            bail!(
                "--floor {text}: no part has {units} units, the largest has {largest}; ask for at most that"
            );
        }
        rules.push(TenantRule::Floor(model.trim().into(), units));
    }
    for name in rules.iter().flat_map(TenantRule::names) {
        if !repository.entries.iter().any(|entry| entry.name == name) {
            bail!("a constraint names {name:?}, which the repository does not have");
        }
    }
    Ok(rules)
}

/// Memory in which models are prepared on a GPU: as much as the largest file, which no scheduled load may take.
fn staging(args: &DeviceArgs, repository: &Repository) -> Bytes {
    if args.device == "cpu" {
        return Bytes(0);
    }
    let length = |entry: &repository::ModelEntry| std::fs::metadata(&entry.path).map_or(0, |file| file.len());
    let largest = repository.entries.iter().map(length).max().unwrap_or(0);
    Bytes((largest + largest / 8).max(64 << 20))
}

/// The device asked for, with `staging` beside the memory for weights. Confines the process to it first.
pub(crate) fn open(
    args: &DeviceArgs,
    cpu: (Option<&str>, Option<u32>),
    staging: Bytes,
) -> anyhow::Result<Arc<dyn Device>> {
    let chosen = confine(&args.device, args.mps_percentage)?;
    if let Chosen::Cuda(gpus, _) = &chosen {
        gpus.one()?;
    }
    open_chosen(args, chosen, cpu, staging)?.pop().context("a device was opened")
}

/// The devices that this process is confined to.
fn open_chosen(
    args: &DeviceArgs,
    chosen: Chosen,
    (cpu_partitions, cpu_overlap): (Option<&str>, Option<u32>),
    staging: Bytes,
) -> anyhow::Result<Vec<Arc<dyn Device>>> {
    let Chosen::Cuda(gpus, enclosure) = chosen else {
        return Ok(vec![Arc::new(device(cpu_partitions, cpu_overlap)?)]);
    };
    if cpu_partitions.is_some() || cpu_overlap.is_some() {
        bail!("--cpu-partitions and --cpu-overlap go with --device cpu");
    }
    let precision = Precision::from_name(&args.precision).with_context(|| {
        format!("no precision is called {:?}; there are fp32, tf32, fp16, bf16", args.precision)
    })?;
    if args.half_outputs && precision != Precision::Fp16 {
        bail!("--half-outputs goes with --precision fp16, not {}", args.precision);
    }
    let options = CudaOptions {
        precision,
        half_outputs: args.half_outputs,
        weights: Bytes((args.weights_mib << 20) + staging.0),
        slot: Bytes(args.slot_mib << 20),
        parts: gpu_parts(args)?,
        enclosure,
        ..CudaOptions::default()
    };
    let opened = gpus.ordinals()?.into_iter().map(|ordinal| open_enclosed(ordinal, &options));
    let opened = opened.collect::<anyhow::Result<Vec<CudaDevice>>>()?;
    let pairs = cuda::introduce(&opened.iter().collect::<Vec<_>>())?;
    if opened.len() > 1 {
        let of = opened.len() * (opened.len() - 1);
        tracing::info!("weights move between devices directly in {} of {of} directions", pairs.len());
    }
    Ok(opened.into_iter().map(|device| Arc::new(device) as Arc<dyn Device>).collect())
}

/// The parts of a GPU that are asked for, if any.
fn gpu_parts(args: &DeviceArgs) -> anyhow::Result<Option<PartOptions>> {
    if args.gpu_grid == 0 && args.gpu_parts.is_none() && args.gpu_overlap <= 1 {
        return Ok(None);
    }
    let part = |text: &str| {
        let wrong = || format!("{text:?} is not a part: FIRST-LAST, or FIRST-LASTxSTREAMS");
        let (range, streams) = text.trim().split_once('x').unwrap_or((text.trim(), "1"));
        let (first, last) = range.split_once('-').with_context(wrong)?;
        let number = |text: &str| text.trim().parse::<u32>().with_context(wrong);
        let (first, last, streams) = (number(first)?, number(last)?, number(streams)?);
        if last < first {
            bail!("{text:?} ends before it begins; write the lower number first");
        }
        Ok(PartWanted { first, units: last - first + 1, streams })
    };
    let texts =
        args.gpu_parts.as_deref().unwrap_or_default().split(';').filter(|text| !text.trim().is_empty());
    let parts = texts.map(part).collect::<anyhow::Result<_>>()?;
    Ok(Some(PartOptions {
        grid: args.gpu_grid,
        parts,
        overlap: args.gpu_overlap,
        only: false,
        fine: args.gpu_fine,
    }))
}

/// The processor with the partitions asked for: sets of cores separated by `;`.
pub(crate) fn device(partitions: Option<&str>, overlap: Option<u32>) -> anyhow::Result<CpuDevice> {
    let Some(text) = partitions else {
        if overlap.is_some() {
            bail!("--cpu-overlap needs --cpu-partitions, for example \"0;1;0-1\"");
        }
        return Ok(CpuDevice::whole()?);
    };
    let sets = text.split(';').map(cores).collect::<anyhow::Result<Vec<_>>>()?;
    match overlap {
        Some(runs) => Ok(CpuDevice::with_overlapping_cores(sets, runs)?),
        None => Ok(CpuDevice::with_cores(sets)?),
    }
}

/// Cores from a list such as `0,2-3`.
pub(crate) fn cores(text: &str) -> anyhow::Result<Vec<usize>> {
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
        let core = |text: &str| {
            text.parse::<usize>().with_context(|| format!("{text:?} in {part:?} is not a core number"))
        };
        let (first, last) = (core(first)?, core(last)?);
        if first > last || last - first > 4_096 {
            bail!("{part:?} is not a range of cores; write the lower number first");
        }
        cores.extend(first..=last);
    }
    Ok(cores)
}

pub(crate) fn segment_options(segments_max: Option<usize>) -> SegmentOptions {
    let default = SegmentOptions::default();
    SegmentOptions { segments_max: segments_max.unwrap_or(default.segments_max), ..default }
}

fn listen(
    args: &ServeArgs,
    repository: &Repository,
    handle: Handle,
    metrics: Arc<Metrics>,
) -> anyhow::Result<()> {
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    tokio.block_on(async {
        let address = |port| SocketAddr::new(args.http_address, port);
        let metrics_port = args.metrics_port.map(address);
        let addresses = Addresses { http: address(args.http_port), metrics: metrics_port, exposed: false };
        let read_timeout = Duration::from_secs(args.http_read_timeout_secs.max(1));
        let body_bytes = args.http_max_input_size;
        let limits = HttpLimits { body_bytes, read_timeout, ..HttpLimits::default() };
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let catalog = Catalog::new(repository);
        let serving = http::start(addresses, limits, handle.clone(), catalog, metrics).await?;
        tracing::info!("listening on http://{}", serving.addresses.http);
        let ready = tokio::spawn(announce(handle.clone(), serving.addresses.http, args.exit_on_error));
        let strict_failure = tokio::select! {
            _ = terminate.recv() => None,
            _ = interrupt.recv() => None,
            failure = ready => failure.context("announcing readiness failed")?,
        };
        if let Some(failure) = strict_failure {
            bail!(failure);
        }
        let limit = Duration::from_secs(args.exit_timeout_secs);
        // Whoever reads the line finds it true.
        handle.drain();
        tracing::info!("draining for up to {} s; a second signal stops at once", limit.as_secs());
        tokio::select! {
            drained = serving.drain(limit) => {
                if drained.cut > 0 {
                    tracing::warn!("{} request(s) were cut off after {} s", drained.cut, limit.as_secs());
                }
            }
            _ = terminate.recv() => tracing::warn!("second signal: stopping at once"),
            _ = interrupt.recv() => tracing::warn!("second signal: stopping at once"),
        }
        Ok(())
    })
}

/// Waits until models are loaded, says so with a call to try, then waits for ever; with `strict`, ends with a reason
/// when a model could not be served.
async fn announce(handle: Handle, address: SocketAddr, strict: bool) -> Option<String> {
    while handle.readiness() == Readiness::Loading {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let models = handle.models();
    let failed: Vec<String> = models
        .iter()
        .filter_map(|model| match &model.state {
            ModelState::Unavailable(why) => Some(format!("{}: {why}", model.name)),
            _ => None,
        })
        .collect();
    if strict && !failed.is_empty() {
        return Some(format!("models that cannot be served: {}", failed.join("; ")));
    }
    let ready = models.iter().filter(|model| model.state == ModelState::Ready);
    let names: Vec<&str> = ready.clone().map(|model| model.name.as_str()).collect();
    tracing::info!("ready: {} model(s): {}", names.len(), names.join(", "));
    let smallest = ready
        .filter_map(|model| Some((crate::serve_example::elements(model)?, model)))
        .min_by_key(|(size, _)| *size);
    if let Some(call) = smallest.and_then(|(_, model)| crate::serve_example::curl(model, address)) {
        // People paste this; it is data for them, on stderr with the rest of the log.
        tracing::info!("try it:\n{call}");
    }
    std::future::pending().await
}
