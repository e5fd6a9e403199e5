//! Why one job of the trace waited, at each decision.

use super::load::Case;
use crate::args::Format;
use crate::output;
use anyhow::{Context as _, bail};
use sched::cluster::JobId;
use sched::cluster::explain::Story;
use serde::Serialize;
use sim::cluster::ClusterSimulation;

#[derive(Serialize)]
struct Line {
    at_s: f64,
    what: String,
}

pub(super) fn run(case: &Case, job: &str, format: Format) -> anyhow::Result<()> {
    let [(name, choice)] = &case.policies[..] else {
        bail!("a job is explained under one policy; name one with --policy");
    };
    let place = case.trace.jobs.iter().position(|traced| traced.name == job);
    let place = place.with_context(|| format!("the trace has no job {job:?}"))?;
    let id = JobId(u32::try_from(place)?);
    let setup = case.setup.clone().for_policy(name);
    let mut simulation = ClusterSimulation::new(&case.trace, &setup, choice)?;
    if let Some((_, to)) = case.window {
        simulation = simulation.until(JobId(to - 1));
    }
    let mut story = Story::of(id);
    simulation.run(|now, events, decisions| {
        story.turn(now, events, decisions);
        Ok(())
    })?;
    let traced = &case.trace.jobs[place];
    super::note(&format!(
        "job {job} (line {}, {id}): {} GPUs, {:.0} s alone, submitted at {:.0} s; it waited through {} turns of {name}",
        traced.line,
        traced.gpus,
        traced.solo().as_secs_f64(),
        traced.arrival.ns() as f64 / 1e9,
        story.turns_waited
    ));
    if story.dropped > 0 {
        super::note(&format!("{} later changes are not listed", story.dropped));
    }
    let line = |(at, why): &(vocab::Time, sched::cluster::explain::Reason)| Line {
        at_s: at.ns() as f64 / 1e9,
        what: why.to_string(),
    };
    let lines: Vec<Line> = story.lines.iter().map(line).collect();
    output::rows(format, "story", &["at s", "job"], &lines, |line| {
        vec![format!("{:.3}", line.at_s), line.what.clone()]
    })
}
