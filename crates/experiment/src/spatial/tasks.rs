//! SGPRS's pivot live on a GPU: periodic tasks on contexts made at start, against one shared partition and disjoint parts.

use super::pivot::{self, Points};
use super::{middle, serving};
use crate::bars::Bars;
use crate::host;
use anyhow::Context as _;
use cuda::{CudaDevice, CudaOptions, PartOptions, PartWanted, Precision};
use engine::{CpuDevice, Device};
use sched::node::policy::Choice;
use serde::Deserialize;
use server::live::{ModelState, Runtime};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use vocab::{Bytes, Rng, Span};

/// What runs, as `live.toml` says.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    /// As `raddle serve` has it; `cpu` tries everything out on two cores.
    precision: String,
    model: String,
    /// Period and deadline of each task, µs.
    period_us: u64,
    /// Length of each run, ms.
    duration_ms: u64,
    /// Runs of each point; medians count.
    runs: u64,
    /// Contexts.
    contexts: Vec<u32>,
    /// Sums of the contexts' units, of the device's.
    over: Vec<f64>,
    /// Numbers of tasks that are run, in parts of the pivot that a search finds.
    points: Vec<f64>,
    /// Missed deadlines, of all, from which on the pivot is passed.
    pivot: f64,
    /// Tasks at most.
    most: u32,
}

/// A way to share the device.
struct Way {
    name: String,
    policy: &'static str,
    contexts: u32,
    over: f64,
    streams: u32,
}

const HEADER: &str = "way,tasks,run,missed,fps";

fn ways(settings: &Settings) -> Vec<Way> {
    let one = Way { name: "one shared partition".into(), policy: "edf", contexts: 1, over: 1.0, streams: 4 };
    let mut ways = vec![one];
    for contexts in settings.contexts.iter().copied() {
        let name = format!("naive {contexts} disjoint");
        ways.push(Way { name, policy: "edf", contexts, over: 1.0, streams: 1 });
        for over in settings.over.iter().copied() {
            let streams = if contexts <= 2 { 3 } else { 2 };
            let name = format!("sgprs {contexts} contexts x {over}");
            ways.push(Way { name, policy: "sgprs", contexts, over, streams });
        }
    }
    ways
}

/// Equal contexts that together have `over` times the units, evenly over the device, in groups of `size` of `groups`.
fn contexts(way: &Way, (groups, size): (u32, u32)) -> Vec<PartWanted> {
    let enough = |each: &u32| f64::from(*each) * f64::from(way.contexts) >= f64::from(groups) * way.over;
    let each = (1..=groups).find(enough).unwrap_or(groups);
    let spare = groups - each;
    let first = |at: u32| if way.contexts > 1 { spare * at / (way.contexts - 1) } else { 0 };
    let part = |at| PartWanted { first: first(at) * size, units: each * size, streams: way.streams };
    (0..way.contexts).map(part).collect()
}

fn device(settings: &Settings, way: &Way, out: &Path) -> anyhow::Result<Arc<dyn Device>> {
    if settings.precision == "cpu" {
        let core = |part: PartWanted| (0..part.streams).map(move |_| vec![part.first as usize % 2]);
        let cores = contexts(way, (2, 1)).into_iter().flat_map(core).collect();
        return Ok(Arc::new(CpuDevice::with_overlapping_cores(cores, 64)?));
    }
    let precision = Precision::from_name(&settings.precision)
        .with_context(|| format!("no precision is called {:?}", settings.precision))?;
    let open = |parts: Option<PartOptions>| {
        let options = CudaOptions {
            precision,
            weights: Bytes(4 << 30),
            slots: 16,
            slot: Bytes(256 << 20),
            staging: Bytes(2 << 30),
            cache: Some(out.join("cache")),
            parts,
            ..CudaOptions::default()
        };
        CudaDevice::open(0, &options)
    };
    let whole = way.contexts == 1;
    let parts = if whole {
        PartOptions { overlap: way.streams, ..PartOptions::default() }
    } else {
        PartOptions {
            grid: 0,
            parts: contexts(way, cuda::grain(0, true)?),
            overlap: 64,
            only: true,
            fine: true,
        }
    };
    Ok(Arc::new(open(Some(parts))?))
}

/// Times of `tasks` periodic tasks that began at random within a period.
fn times(settings: &Settings, tasks: u32, seed: u64) -> Vec<f64> {
    let mut rng = Rng::new(seed);
    let period = settings.period_us as f64 / 1e6;
    let mut times = Vec::new();
    for _ in 0..tasks {
        let phase = rng.unit() * period;
        let next = |at: &f64| Some(at + period);
        let all = std::iter::successors(Some(phase), next);
        times.extend(all.take_while(|at| *at < settings.duration_ms as f64 / 1e3));
    }
    times.sort_by(f64::total_cmp);
    times
}

/// Missed deadlines, of all, and answers in time a second.
fn run_once(
    settings: &Settings,
    (runtime, tokio): (&Runtime, &tokio::runtime::Runtime),
    tasks: u32,
    seed: u64,
) -> anyhow::Result<(f64, f64)> {
    let times = times(settings, tasks, seed);
    let spans = serving::send((&runtime.handle(), tokio.handle()), &settings.model, &times)?;
    let deadline = Span::from_us(settings.period_us);
    let done = spans.iter().filter(|span| **span <= deadline).count() as f64;
    Ok((1.0 - done / times.len().max(1) as f64, done / (settings.duration_ms as f64 / 1e3)))
}

/// The largest number of tasks, to a fiftieth of it, that single runs take without passing the pivot.
fn search(settings: &Settings, live: (&Runtime, &tokio::runtime::Runtime)) -> anyhow::Result<u32> {
    let fits = |tasks| anyhow::Ok(run_once(settings, live, tasks, u64::from(tasks))?.0 <= settings.pivot);
    let (mut below, mut above) = (1, 8);
    while above < settings.most && fits(above)? {
        (below, above) = (above, above * 2);
    }
    while above - below > (below / 50).max(1) {
        let middle = u32::midpoint(below, above);
        if fits(middle)? { below = middle } else { above = middle }
    }
    Ok(below)
}

/// Everything; whether every bar was met. Rows are kept as they come, so that a run cut short leaves what it had.
pub(super) fn run(folder: &Path, out: &Path) -> anyhow::Result<bool> {
    let settings = settings(folder)?;
    std::fs::create_dir_all(out)?;
    let models = std::env::temp_dir().join("raddle-live-tasks");
    serving::model(&models, &settings.model, 1, ("raddle.period_us", settings.period_us))?;
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut rows: Vec<String> = Vec::new();
    for way in ways(&settings) {
        let begin = Instant::now();
        let device = device(&settings, &way, out)?;
        let choice = Choice::named(way.policy).context("a policy there is")?;
        let runtime = serving::start(&[device], &models, Vec::new(), &choice, &Arc::default())?;
        for model in runtime.handle().models() {
            if let ModelState::Unavailable(why) = &model.state {
                anyhow::bail!("{} is not served: {why}", model.name);
            }
        }
        // Weights come, caches warm up.
        let (missed, _) = run_once(&settings, (&runtime, &tokio), 1, 0)?;
        anyhow::ensure!(missed < 1.0, "{}: not even one task is answered in time", way.name);
        let found = search(&settings, (&runtime, &tokio))?;
        let mut tasks: Vec<u32> = settings.points.iter().map(|part| scaled(found, *part)).collect();
        tasks.dedup();
        for tasks in tasks {
            for seed in 0..settings.runs {
                let (missed, fps) = run_once(&settings, (&runtime, &tokio), tasks, 1_000 + seed)?;
                rows.push(format!("{},{tasks},{seed},{missed:.5},{fps:.1}", way.name));
            }
        }
        host::csv(&out.join("live.csv"), HEADER, rows.iter().cloned())?;
        host::say(&format!("{}: about {found} tasks, {:.1} s", way.name, begin.elapsed().as_secs_f64()));
        runtime.stop();
    }
    judge(out, &settings, &rows)
}

fn scaled(tasks: u32, part: f64) -> u32 {
    // Tasks are few.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
    let scaled = (f64::from(tasks) * part).round() as u32;
    scaled.max(1)
}

fn settings(folder: &Path) -> anyhow::Result<Settings> {
    Ok(toml::from_str(&std::fs::read_to_string(folder.join("live.toml"))?)?)
}

/// Judges the recorded table again.
pub(super) fn report(folder: &Path) -> anyhow::Result<bool> {
    let text = std::fs::read_to_string(folder.join("live.csv")).context("there is no record of a GPU")?;
    let rows: Vec<String> = text.lines().skip(1).map(str::to_owned).collect();
    judge(folder, &settings(folder)?, &rows)
}

fn judge(folder: &Path, settings: &Settings, rows: &[String]) -> anyhow::Result<bool> {
    let mut ways: Vec<(String, Points)> = Vec::new();
    let parsed = |row: &String| -> Option<(String, u32, f64, f64)> {
        let fields: Vec<&str> = row.split(',').collect();
        let number = |at: usize| fields.get(at)?.parse::<f64>().ok();
        Some((fields.first()?.to_string(), fields.get(1)?.parse().ok()?, number(3)?, number(4)?))
    };
    let rows: Option<Vec<_>> = rows.iter().map(parsed).collect();
    let rows = rows.context("live.csv has a line that is no row")?;
    for (way, tasks, ..) in &rows {
        let own = || rows.iter().filter(|row| row.0 == *way && row.1 == *tasks);
        if !ways.iter().any(|(known, _)| known == way) {
            ways.push((way.clone(), Vec::new()));
        }
        let Some((_, points)) = ways.last_mut() else { continue };
        if points.last().is_none_or(|point| point.0 != *tasks) {
            let (missed, fps) = (own().map(|row| row.2).collect(), own().map(|row| row.3).collect());
            points.push((*tasks, middle(missed), middle(fps)));
        }
    }
    let mut bars = Bars::default();
    bars.note(&format!(
        "{} tasks live on the GPU, {}, period and deadline {} us, runs of {} ms, medians of {}",
        settings.model, settings.precision, settings.period_us, settings.duration_ms, settings.runs
    ));
    pivot::judge(&mut bars, &ways, settings.pivot);
    pivot::draw(folder, "live-", &ways, &format!("{} tasks on the GPU", settings.model))?;
    bars.finish_as(&folder.join("live_bars.txt"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_lie_evenly_over_the_device() {
        let way = Way { name: String::new(), policy: "sgprs", contexts: 3, over: 1.5, streams: 2 };
        let part = |first, units| PartWanted { first, units, streams: 2 };
        assert_eq!(contexts(&way, (16, 8)), [part(0, 64), part(32, 64), part(64, 64)]);
        assert_eq!(contexts(&Way { over: 1.0, ..way }, (16, 8))[2], part(80, 48));
    }
}
