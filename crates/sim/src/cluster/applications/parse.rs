//! Reading an application's tables, with all problems at once.

use super::{Application, Epoch, Surface};
use crate::cluster::trace::{Problem, Table};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Why applications cannot be read: every problem of every file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the applications have {} problems, the first: {}", .0.len(), .0.first().map_or("", String::as_str))]
pub struct ApplicationsError(pub Vec<String>);

/// The largest batch a GPU can take of an application whose measurements go further than its memory.
const LOCAL_MAX: [(&str, u32); 1] = [("yolov3", 8)];

/// GPUs at most of an application that is never run on more.
const GPUS_MAX: [(&str, u32); 1] = [("ncf", 1)];

pub(super) fn applications(
    files: &[(String, String)],
) -> Result<BTreeMap<String, Application>, ApplicationsError> {
    let mut folders: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    let mut problems = Vec::new();
    for (path, text) in files {
        match path.split_once('/') {
            Some((folder, file)) => folders.entry(folder).or_default().push((file, text)),
            None => problems.push(format!("{path} is in no application's folder")),
        }
    }
    let mut all = BTreeMap::new();
    for (name, files) in folders {
        all.extend(
            application(name, &files, &mut problems).map(|application| (name.to_owned(), application)),
        );
    }
    if problems.is_empty() { Ok(all) } else { Err(ApplicationsError(problems)) }
}

fn application(name: &str, files: &[(&str, &str)], problems: &mut Vec<String>) -> Option<Application> {
    let before = problems.len();
    let (mut runs, mut placements, mut points) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut scaled = Vec::new();
    for (file, text) in files {
        let mut note = |found: Vec<Problem>| {
            problems.extend(found.iter().map(|problem| format!("{name}/{file}, {problem}")));
        };
        let batch = file.strip_prefix("validation-").and_then(|rest| rest.strip_suffix(".csv"));
        if let Some(batch) = batch.and_then(|batch| batch.parse::<u32>().ok().filter(|batch| *batch > 0)) {
            let (run, found) = epochs(text);
            note(found);
            runs.insert(batch, run);
        } else if *file == "placements.csv" {
            note(placed(text, &mut placements, &mut points));
        } else if *file == "scalability.csv" {
            note(scalability(text, &mut scaled));
        }
    }
    for (what, missing) in [
        ("validation-BATCH.csv with rows", runs.is_empty() || runs.values().any(Vec::is_empty)),
        ("placements.csv with rows", placements.is_empty()),
    ] {
        if missing {
            problems.push(format!("{name} has no {what}"));
        }
    }
    if problems.len() > before {
        return None;
    }
    let locals = || placements.values().flatten().map(|row: &[f64; 3]| row[0]);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "batches were read as u32")]
    let local = (locals().fold(f64::MAX, f64::min) as u32, locals().fold(0.0, f64::max) as u32);
    let most = LOCAL_MAX.iter().find(|(known, _)| *known == name).map_or(local.1, |(_, most)| *most);
    for rows in placements.values_mut() {
        rows.sort_by(|a, b| a[0].total_cmp(&b[0]));
    }
    let mean = |((nodes, gpus, local), sums): ((u32, u32, u32), [f64; 3])| {
        let at = [f64::from(nodes), f64::from(gpus), f64::from(local)];
        (at, [sums[0] / sums[2], sums[1] / sums[2]])
    };
    let surface = Surface(points.into_iter().map(mean).chain(scaled).collect());
    let gpus_max = GPUS_MAX.iter().find(|(known, _)| *known == name).map(|(_, most)| *most);
    Some(Application { runs, placements, surface, local: (local.0, most), gpus_max, steps: Mutex::default() })
}

fn epochs(text: &str) -> (Vec<Epoch>, Vec<Problem>) {
    let needed = ["progress", "iteration", "grad_sqr", "grad_var"];
    let mut before = 0.0;
    Table::new(text, &needed).read(|row| {
        let (progress, iteration) = (row.number("progress"), row.whole("iteration"));
        let (squared, variance) = (row.number("grad_sqr"), row.number("grad_var"));
        if progress? <= before || squared? + variance? <= 0.0 {
            row.problem("progress must rise from epoch to epoch, and the gradient be above 0".into());
        }
        before = progress?;
        Some(Epoch {
            progress: progress?,
            iteration: iteration?,
            gradient_squared: squared?,
            gradient_variance: variance?,
        })
    })
}

/// Sums of step and synchronisation times and their count, by nodes, GPUs and batch a GPU.
type Points = BTreeMap<(u32, u32, u32), [f64; 3]>;

fn placed(
    text: &str,
    placements: &mut BTreeMap<Vec<u8>, Vec<[f64; 3]>>,
    points: &mut Points,
) -> Vec<Problem> {
    let needed = ["placement", "local_bsz", "step_time", "sync_time"];
    let (rows, mut problems) = Table::new(text, &needed).read(|row| {
        let (local, step, sync) = (row.whole("local_bsz"), row.number("step_time"), row.number("sync_time"));
        let digits = row.text("placement").chars().map(|digit| u8::try_from(digit.to_digit(10)?).ok());
        let placement =
            digits.collect::<Option<Vec<u8>>>().filter(|gpus| !gpus.is_empty() && !gpus.contains(&0));
        if placement.is_none() {
            row.problem(format!(
                "placement is \"{}\", not a digit from 1 for each node",
                row.text("placement")
            ));
        }
        if local == Some(0) || step? <= 0.0 || sync? >= step? {
            row.problem("local_bsz and step_time must be above 0, sync_time below step_time".into());
        }
        Some((row.line, placement?, u32::try_from(local?).ok()?, step?, sync?))
    });
    for (line, placement, local, step, sync) in rows {
        let gpus = placement.iter().map(|gpus| u32::from(*gpus)).sum();
        let sums = points.entry((u32::try_from(placement.len()).unwrap_or(0), gpus, local)).or_default();
        *sums = [sums[0] + step, sums[1] + sync, sums[2] + 1.0];
        let rows = placements.entry(placement).or_default();
        if rows.iter().any(|row| row[0] == f64::from(local)) {
            problems.push(Problem { line, what: "this placement and batch are there twice".into() });
        }
        rows.push([f64::from(local), step, sync]);
    }
    problems
}

fn scalability(text: &str, points: &mut Vec<([f64; 3], [f64; 2])>) -> Vec<Problem> {
    let needed = ["num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time"];
    let (rows, problems) = Table::new(text, &needed).read(|row| {
        let at = ["num_nodes", "num_replicas", "local_bsz"].map(|column| row.number(column));
        let value = ["step_time", "sync_time"].map(|column| row.number(column));
        if value[0]? <= 0.0 || value[1]? >= value[0]? {
            row.problem("step_time must be above 0, sync_time below step_time".into());
        }
        Some(([at[0]?, at[1]?, at[2]?], [value[0]?, value[1]?]))
    });
    points.extend(rows);
    problems
}
