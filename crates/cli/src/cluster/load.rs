//! From arguments to a case: the trace, the cluster and its policies, with all that is wrong told at once.

use super::ClusterArgs;
use anyhow::{Context as _, bail};
use sched::cluster::policy::Choice;
use sched::cluster::{NodeId, NodeSpec};
use sim::cluster::trace::{Companions, Format, FormatError, alibaba_nodes, share_need};
use sim::cluster::{
    Applications, Belief, Loss, Profiles, Setup, Throughputs, Trace, TraceError, share_gpus, spread_jobs,
};
use std::path::Path;
use std::sync::Arc;
use vocab::{Bytes, Span, Time};

/// What is simulated.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) trace: Trace,
    pub(super) setup: Setup,
    pub(super) policies: Vec<(String, Choice)>,
    /// Jobs measured, by their place in the trace.
    pub(super) window: Option<(u32, u32)>,
}

pub(super) fn case(args: &ClusterArgs) -> anyhow::Result<Case> {
    let policies = args.policy.iter().map(|name| policy(name)).collect::<anyhow::Result<Vec<_>>>()?;
    let text = read(&args.trace)?;
    let format = match &args.trace_format {
        Some(name) => Format::named(name)
            .with_context(|| format!("no format is called {name:?}; there are {}", names(&Format::NAMES)))?,
        None => Format::detect(&text).ok_or(FormatError::Unknown)?,
    };
    let files = args.applications.as_deref().map(applications).transpose()?.unwrap_or_default();
    let (profiles, throughputs) =
        (optional(args.profiles.as_deref())?, optional(args.throughputs.as_deref())?);
    let with = Companions {
        profiles: profiles.as_deref(),
        throughputs: throughputs.as_deref(),
        applications: &files,
        cluster: args.virtual_cluster.as_deref(),
    };
    let read = match format.read(&text, with) {
        Ok(trace) => Ok(trace),
        Err(FormatError::Trace(error)) => Err(error),
        Err(other) => return Err(other).with_context(|| format!("cannot use {}", args.trace.display())),
    };
    let mut setup = preset(format, &files, throughputs.as_deref())?;
    if let Some(nodes) = &args.nodes {
        setup.nodes = self::nodes(nodes, format, &setup)?;
    } else if format == Format::Alibaba {
        bail!("--nodes is needed for this trace: a list of its nodes, or COUNTxGPUS:CPUS:GB");
    }
    if let Some(seconds) = args.round_s {
        setup.round = (seconds > 0).then(|| Span::from_ms(seconds * 1_000));
    }
    setup.belief = belief(&args.belief)?;
    setup.losses = args.lose.iter().map(|text| loss(text)).collect::<anyhow::Result<_>>()?;
    let trace = usable(read, &setup, args.skip_bad)
        .with_context(|| format!("cannot use {}", args.trace.display()))?;
    if args.profiled {
        setup.profiles = Some(Arc::new(Profiles::parse(profiles.as_deref().unwrap_or_default())?));
    }
    if args.spread {
        let measured = Throughputs::parse(throughputs.as_deref().unwrap_or_default())?;
        let slowed = spread_jobs(&mut setup, &trace, &measured, "v100");
        super::note(&format!("{slowed} jobs are slower when their GPUs lie on several nodes"));
    }
    if format == Format::Alibaba {
        setup.needs = trace.models().into_iter().map(share_need).collect();
    } else if policies.iter().any(|(_, choice)| matches!(choice, Choice::Sharing { .. })) {
        let throughputs =
            throughputs.context("policies that share GPUs need measured pairs; give --throughputs")?;
        let measured = share_gpus(&mut setup, &trace, &Throughputs::parse(&throughputs)?, "v100", GPU_MEMORY);
        super::note(&format!("jobs that share a GPU cost each other what {measured} measured pairs say"));
    }
    let name = args.trace.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let window = args.window.as_deref().map(window).transpose()?;
    Ok(Case { name, trace, setup, policies, window })
}

/// Memory of a GPU that two jobs share: 48 GiB cards, as in the experiments the jobs' needs come from.
const GPU_MEMORY: Bytes = Bytes(49_140_000_000);

fn policy(name: &str) -> anyhow::Result<(String, Choice)> {
    let choice = Choice::named(name)
        .with_context(|| format!("no policy is called {name:?}; there are {}", Choice::NAMES.join(", ")))?;
    Ok((name.to_owned(), choice))
}

fn names(formats: &[(&str, Format)]) -> String {
    formats.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn optional(path: Option<&Path>) -> anyhow::Result<Option<String>> {
    path.map(read).transpose()
}

/// Files of an applications folder, named APPLICATION/FILE.
pub(crate) fn applications(folder: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let list = |path: &Path| -> anyhow::Result<Vec<std::path::PathBuf>> {
        let entries = std::fs::read_dir(path).with_context(|| format!("cannot list {}", path.display()))?;
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
        paths.sort();
        Ok(paths)
    };
    let mut files = Vec::new();
    for application in list(folder)?.into_iter().filter(|path| path.is_dir()) {
        for file in list(&application)?.into_iter().filter(|path| path.is_file()) {
            let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
            let (folder, name) = (name(&application).unwrap_or_default(), name(&file).unwrap_or_default());
            files.push((format!("{folder}/{name}"), read(&file)?));
        }
    }
    Ok(files)
}

/// The cluster and timing of the trace's own simulator or study.
fn preset(format: Format, files: &[(String, String)], throughputs: Option<&str>) -> anyhow::Result<Setup> {
    Ok(match format {
        Format::Muri | Format::Tiresias => Setup::uniform(8, 8),
        Format::Philly => Setup::uniform(250, 8),
        Format::Synergy | Format::SynergyDeployed => Setup::synergy(),
        Format::Pollux => Setup::pollux(Arc::new(Applications::parse(files)?)),
        // Groups of --nodes are kinds of GPU in this order.
        Format::Gavel => {
            let throughputs = throughputs.map(Throughputs::parse).transpose()?.unwrap_or_default();
            Setup::gavel(Arc::new(throughputs), &[(12, 1, "v100"), (12, 1, "p100"), (12, 1, "k80")])
        }
        Format::Shockwave => Setup::uniform(8, 4),
        Format::Alibaba => Setup::uniform(1, 8),
    })
}

/// Reads COUNTxGPUS[:CPUS:GB],…; or a file of nodes.
fn nodes(text: &str, format: Format, setup: &Setup) -> anyhow::Result<Vec<NodeSpec>> {
    if Path::new(text).is_file() {
        return Ok(alibaba_nodes(&read(Path::new(text))?)?);
    }
    let usual = setup.nodes.first().context("a preset has nodes")?;
    let mut nodes = Vec::new();
    for (kind, group) in (0..).zip(text.split(',')) {
        let wrong =
            || format!("--nodes has {group:?}; write COUNTxGPUS or COUNTxGPUS:CPUS:GB, as 16x8:24:500");
        let mut parts = group.split(':');
        let (count, gpus) = parts.next().and_then(|size| size.split_once('x')).with_context(wrong)?;
        let count =
            count.parse::<u32>().ok().filter(|count| (1..=NODES_MAX).contains(count)).with_context(wrong)?;
        let gpus = gpus.parse::<u8>().ok().filter(|gpus| (1..=64).contains(gpus)).with_context(wrong)?;
        let mut spec = NodeSpec { gpus, kind, ..usual.clone() };
        if let Some(cpus) = parts.next() {
            spec.cpu_milli =
                cpus.parse::<u64>().ok().filter(|cpus| *cpus < 1 << 20).with_context(wrong)? * 1_000;
            let gb = parts.next().and_then(|gb| gb.parse::<u64>().ok()).filter(|gb| *gb < 1 << 20);
            spec.memory = Bytes(gb.with_context(wrong)? * 1_000_000_000);
        }
        if parts.next().is_some() {
            bail!(wrong());
        }
        for _ in 0..count {
            let node = NodeId(u32::try_from(nodes.len()).context("there are too many nodes")?);
            nodes.push(NodeSpec { node, ..spec.clone() });
        }
    }
    if format == Format::Alibaba {
        for node in &mut nodes {
            (node.slots, node.gpu_memory) = (4, sim::cluster::trace::GPU_MEMORY);
        }
    }
    Ok(nodes)
}

/// Nodes in a group at most.
const NODES_MAX: u32 = 100_000;

fn belief(text: &str) -> anyhow::Result<Belief> {
    let spread = |text: &str| text.parse::<f64>().ok().filter(|spread| (0.0..=5.0).contains(spread));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 5000")]
    let milli = |spread: f64| (spread * 1e3).round() as u32;
    match (text, text.strip_prefix("noisy:").and_then(spread)) {
        ("exact", _) => Ok(Belief::Exact),
        ("learned", _) => Ok(Belief::Learned),
        (_, Some(spread)) => Ok(Belief::Noisy { spread_milli: milli(spread), seed: 1 }),
        _ => bail!("--belief is {text:?}, not exact, learned or noisy:SPREAD with a spread from 0 to 5"),
    }
}

fn loss(text: &str) -> anyhow::Result<Loss> {
    let wrong = || format!("--lose has {text:?}; write NODE@SECONDS or NODE@SECONDS+BACK_AFTER_SECONDS");
    let (node, when) = text.split_once('@').with_context(wrong)?;
    let seconds = |text: &str| text.parse::<u64>().ok().filter(|seconds| *seconds < 1 << 32);
    let (at, back) = match when.split_once('+') {
        Some((at, back)) => (seconds(at).with_context(wrong)?, Some(seconds(back).with_context(wrong)?)),
        None => (seconds(when).with_context(wrong)?, None),
    };
    let time = |seconds: u64| Time::ZERO + Span::from_ms(seconds * 1_000);
    let node = NodeId(node.parse().with_context(wrong)?);
    Ok(Loss { node, at: time(at), back: back.map(|back| time(at + back)) })
}

fn window(text: &str) -> anyhow::Result<(u32, u32)> {
    let wrong = || format!("--window is {text:?}; write FROM..TO, as 4000..5000");
    let (from, to) = text.split_once("..").with_context(wrong)?;
    let (from, to) = (from.parse().with_context(wrong)?, to.parse().with_context(wrong)?);
    if from >= to {
        bail!(wrong());
    }
    Ok((from, to))
}

/// The trace, when nothing is wrong with it and every job fits the cluster; with `skip_bad`, the jobs without fault.
fn usable(read: Result<Trace, TraceError>, setup: &Setup, skip_bad: bool) -> anyhow::Result<Trace> {
    let (mut trace, mut problems) = match read {
        Ok(trace) => (trace, Vec::new()),
        Err(error) => (error.rest, error.problems),
    };
    let unfit = setup.check(&trace).err().map(|error| error.0).unwrap_or_default();
    trace.jobs.retain(|job| unfit.iter().all(|problem| problem.line != job.line));
    problems.extend(unfit);
    problems.sort_by_key(|problem| problem.line);
    if problems.is_empty() {
        return Ok(trace);
    }
    let error = TraceError { problems, rest: trace };
    if !skip_bad || error.rest.jobs.is_empty() {
        return Err(error.into());
    }
    super::note(&format!("{error}\ngoing on without these lines"));
    Ok(error.rest)
}
