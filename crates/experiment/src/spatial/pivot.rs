//! SGPRS's pivot: how many periodic tasks a device takes before deadlines are missed, by contexts and over-subscription.

use super::device::{TURING_UNITS, resnet18_on_turing};
use super::{load, middle, simulate};
use crate::bars::Bars;
use crate::{host, plot};
use sched::node::policy::Choice;
use serde::{Deserialize, Serialize};
use sim::{Arrivals, Load, PartEntry, Scenario, SpaceEntry};
use std::path::Path;

/// What is simulated, as `run.toml` says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PivotSettings {
    /// Simulated time of each run, ms.
    duration_ms: u64,
    /// Runs of each point; medians count.
    seeds: u64,
    /// Period and deadline of each task, µs.
    period_us: u64,
    /// Numbers of tasks, ascending.
    tasks: Vec<u32>,
    /// Contexts.
    contexts: Vec<u16>,
    /// Sums of the contexts' units, of the device's.
    over: Vec<f64>,
    /// Relative standard deviation of runs.
    noise: f64,
    /// Time from a decision to the device, µs.
    launch_us: u64,
    /// Missed deadlines, of all, from which on the pivot is passed.
    pivot: f64,
}

/// A way to share the device.
struct Way {
    name: String,
    choice: Choice,
    space: SpaceEntry,
}

/// Equal contexts that together have `over` times the device's units, each with so many streams; they lie evenly over it.
fn contexts(count: u16, over: f64, streams: u16) -> SpaceEntry {
    let total = f64::from(TURING_UNITS) * over;
    // Rounded up to even, as SGPRS does.
    let each = (1..=TURING_UNITS / 2)
        .map(|half| half * 2)
        .find(|units| f64::from(*units) * f64::from(count) >= total);
    let each = each.unwrap_or(TURING_UNITS);
    let spare = TURING_UNITS - each;
    let part = |at: u16| PartEntry {
        first: Some(if count > 1 { spare * u32::from(at) / u32::from(count - 1) } else { 0 }),
        units: each,
        count: streams,
    };
    SpaceEntry { units: TURING_UNITS, overlap: 64, grid: None, parts: (0..count).map(part).collect() }
}

fn ways(settings: &PivotSettings) -> Vec<Way> {
    let named = |name: &str| Choice::named(name).expect("a policy there is");
    let mut ways =
        vec![Way { name: "one shared partition".into(), choice: named("edf"), space: contexts(1, 1.0, 4) }];
    for count in &settings.contexts {
        // Whole inferences, earliest deadline first, on disjoint parts.
        ways.push(Way {
            name: format!("naive {count} disjoint"),
            choice: named("edf"),
            space: contexts(*count, 1.0, 1),
        });
        for over in &settings.over {
            let streams = if *count <= 2 { 3 } else { 2 };
            ways.push(Way {
                name: format!("sgprs {count} contexts x {over}"),
                choice: named("sgprs"),
                space: contexts(*count, *over, streams),
            });
        }
    }
    ways
}

/// Missed deadlines, of all, and answers in time a second.
fn simulated(settings: &PivotSettings, way: &Way, tasks: u32) -> anyhow::Result<(f64, f64)> {
    let (mut missed, mut done) = (Vec::new(), Vec::new());
    for seed in 0..settings.seeds {
        let run = Scenario {
            noise: settings.noise,
            launch_us: settings.launch_us,
            space: Some(way.space.clone()),
            models: vec![resnet18_on_turing(settings.period_us)],
            loads: vec![Load { copies: tasks, ..load("resnet18", Arrivals::Periodic) }],
            seed,
            duration_ms: settings.duration_ms,
            ..Scenario::default()
        };
        let summary = simulate(&run, &way.choice)?;
        let Some(all) = summary.last() else { continue };
        missed.push(1.0 - all.done as f64 / all.requests.max(1) as f64);
        done.push(all.done as f64 / (settings.duration_ms as f64 / 1e3));
    }
    Ok((middle(missed), middle(done)))
}

/// Tasks, missed deadlines of all, and answers in time a second, by ascending tasks.
pub(super) type Points = Vec<(u32, f64, f64)>;

/// Everything; whether every bar was met.
pub(super) fn run(folder: &Path, settings: &PivotSettings) -> anyhow::Result<bool> {
    let mut lines = Vec::new();
    let mut ways: Vec<(String, Points)> = Vec::new();
    for way in self::ways(settings) {
        let mut points = Points::new();
        for tasks in &settings.tasks {
            let (missed, fps) = simulated(settings, &way, *tasks)?;
            lines.push(format!("{},{tasks},{missed:.5},{fps:.1}", way.name));
            points.push((*tasks, missed, fps));
        }
        host::say(&way.name);
        ways.push((way.name, points));
    }
    host::csv(&folder.join("pivot.csv"), "way,tasks,missed,fps", lines.into_iter())?;
    draw(folder, "", &ways, "ResNet-18 tasks")?;
    let mut bars = Bars::default();
    bars.note(&format!(
        "simulated on an RTX 2080 Ti fitted to published figures, {} ms, medians of {} seeds; a GPU's own record comes beside it",
        settings.duration_ms, settings.seeds
    ));
    judge(&mut bars, &ways, settings.pivot);
    bars.finish(folder)
}

/// Draws misses and answers over tasks into files that begin with `prefix`.
pub(super) fn draw(
    folder: &Path,
    prefix: &str,
    ways: &[(String, Points)],
    title: &str,
) -> anyhow::Result<()> {
    let wanted = |name: &str| {
        !name.starts_with("sgprs") || name.contains("3 contexts") || name.contains("2 contexts x 1.5")
    };
    let shown = |value: fn(&(u32, f64, f64)) -> f64| -> Vec<plot::Curve> {
        let curve = |points: &Points| points.iter().map(|point| (f64::from(point.0), value(point))).collect();
        let ways = ways.iter().filter(|(name, _)| wanted(name));
        ways.map(|(name, points)| (name.clone(), curve(points))).collect()
    };
    let axis = "tasks of 30 inferences a second";
    let file = |name: &str| folder.join(format!("{prefix}{name}.svg"));
    let missed = shown(|point| point.1);
    plot::lines(&file("missed"), &format!("{title}: deadlines missed"), (axis, "share"), &missed)?;
    let answered = shown(|point| point.2);
    plot::lines(&file("fps"), &format!("{title}: answers in time a second"), (axis, "a second"), &answered)
}

/// The last number of tasks before misses pass `limit`, and how fast misses grow behind it: the largest step between
/// neighbours, share of deadlines a task.
fn pivot(points: &Points, limit: f64) -> (u32, f64) {
    let kept = points.iter().take_while(|(_, missed, _)| *missed <= limit).count();
    let last = kept.checked_sub(1).map_or(0, |last| points[last].0);
    let step = |pair: &[(u32, f64, f64)]| (pair[1].1 - pair[0].1) / f64::from(pair[1].0 - pair[0].0);
    (last, points.windows(2).map(step).fold(0.0, f64::max))
}

/// The bars of ways called `one …`, `naive …` and `sgprs …`.
pub(super) fn judge(bars: &mut Bars, ways: &[(String, Points)], limit: f64) {
    let pivots: Vec<(&str, u32, f64)> = ways
        .iter()
        .map(|(name, points)| (name.as_str(), pivot(points, limit)))
        .map(|(name, (tasks, step))| (name, tasks, step))
        .collect();
    for (name, tasks, step) in &pivots {
        bars.note(&format!("{name}: {tasks} tasks without misses, steepest step {step:.4} a task"));
    }
    let best = |prefix: &str| {
        pivots.iter().filter(|(name, ..)| name.starts_with(prefix)).max_by_key(|(_, tasks, _)| *tasks)
    };
    if let (Some(ours), Some(naive), Some(one)) = (best("sgprs"), best("naive"), best("one")) {
        let over = |other: u32| f64::from(ours.1) / f64::from(other.max(1));
        bars.at_least(&format!("pivot of {} over {}", ours.0, naive.0), over(naive.1), 1.2, "");
        bars.note(&format!("pivot of {} over {}: {:.2}", ours.0, one.0, over(one.1)));
        bars.at_most(
            &format!("steepest step of {} behind its pivot, share of deadlines a task", ours.0),
            ours.2,
            naive.2,
            "",
        );
    }
}
