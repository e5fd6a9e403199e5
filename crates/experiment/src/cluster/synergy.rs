//! What sharing CPUs and memory by need brings over even parts, by load (Synergy, OSDI'22).

use super::{Settings, choice, data};
use crate::bars::Bars;
use crate::host;
use crate::plot;
use sched::cluster::JobId;
use sim::cluster::{ClusterSimulation, Profiles, Setup, Summary, Trace, trace};
use std::path::Path;
use std::sync::Arc;
use vocab::{Bytes, Time};

/// The load of the job stream, in jobs an hour.
const RECORDED: f64 = 9.0;

/// The gain in mean completion time that the paper reports.
const GAIN: f64 = 3.4;

const WAYS: [&str; 3] = ["synergy-proportional", "synergy-greedy", "synergy-tune"];

pub(super) fn run(folder: &Path, settings: &Settings, bars: &mut Bars) -> anyhow::Result<()> {
    let stream = data::text(settings, "synergy/fifo_9jph_20_70_10_seed42.csv")?;
    let profiles = data::text(settings, "synergy/profiles.json")?;
    let recorded = trace::synergy(&stream, &profiles)?;
    let mut curves: Vec<plot::Curve> = WAYS.iter().map(|way| ((*way).to_owned(), Vec::new())).collect();
    let mut rows = Vec::new();
    for load in &settings.synergy_loads {
        let trace = at_load(&recorded, *load);
        let mut means = Vec::new();
        for (way, (_, points)) in WAYS.iter().zip(&mut curves) {
            let setup = Setup::synergy();
            let simulation = ClusterSimulation::new(&trace, &setup, &choice(way)?)?.until(JobId(4_999));
            let mut outcome = simulation.run(|_, _, _| Ok(()))?;
            outcome.keep(4_000, 5_000);
            let summary = Summary::of(&outcome);
            let hours = summary.mean_completion_s / 3_600.0;
            points.push((*load, hours));
            means.push(hours);
            rows.push(format!("{load},{way},{hours:.4},{:.4}", summary.p99_completion_s / 3_600.0));
        }
        let gain = means[0] / means[2];
        if (*load - RECORDED).abs() < 1e-9 {
            bars.at_least("Synergy's gain over even parts at the paper's load and split", gain, GAIN, "×");
        }
        bars.note(&format!(
            "Synergy at {load} jobs/h: {:.2} h with even parts, {:.2} greedily, {:.2} tuned ({gain:.2}×)",
            means[0], means[1], means[2]
        ));
    }
    best(&recorded, &profiles, bars)?;
    makespan(settings, &profiles, bars)?;
    plot::lines(
        &folder.join("synergy.svg"),
        "Synergy by load: mean completion time",
        ("jobs an hour", "hours"),
        &curves,
    )?;
    host::csv(&folder.join("synergy.csv"), "jobs_per_hour,way,mean_h,p99_h", rows.into_iter())
}

/// TUNE beside OPT, where jobs are as fast as the tables say at any CPUs and memory, and beliefs are optimistic profiles.
fn best(recorded: &Trace, profiles: &str, bars: &mut Bars) -> anyhow::Result<()> {
    let tables = Profiles::parse(profiles)?;
    let errors = tables.errors(EVEN_MEMORY);
    let (measured, points) = errors.iter().fold((0, 0), |(m, p), row| (m + row.1, p + row.2));
    let worst = errors.iter().map(|row| row.3).fold(0.0, f64::max);
    bars.note(&format!(
        "optimistic profiles: {measured} of {points} points measured, the others within {worst:.1} %"
    ));
    let mut setup = Setup::synergy();
    setup.profiles = Some(Arc::new(tables));
    for load in [RECORDED, 12.0] {
        let trace = at_load(recorded, load);
        let hours = |way: &str| -> anyhow::Result<f64> {
            let simulation = ClusterSimulation::new(&trace, &setup, &choice(way)?)?.until(JobId(4_999));
            let mut outcome = simulation.run(|_, _, _| Ok(()))?;
            outcome.keep(4_000, 5_000);
            Ok(outcome.mean_completion_s() / 3_600.0)
        };
        let (tuned, best) = (hours(WAYS[2])?, hours("synergy-opt")?);
        bars.note(&format!(
            "Synergy by its tables at {load} jobs/h: {tuned:.2} h tuned, {best:.2} h with the linear program (TUNE {:+.1} %)",
            (tuned / best - 1.0) * 100.0
        ));
    }
    Ok(())
}

/// A GPU's even part of a server's memory.
const EVEN_MEMORY: Bytes = Bytes(62_500_000_000);

/// The same jobs, arriving at another rate.
fn at_load(recorded: &Trace, load: f64) -> Trace {
    let mut trace = recorded.clone();
    for job in &mut trace.jobs {
        let seconds = job.arrival.since(Time::ZERO).as_secs_f64() * RECORDED / load;
        job.arrival = Time::ZERO + vocab::Span::from_secs_f64(seconds);
    }
    trace
}

/// Synergy's static trace: 100 jobs at once, on a quarter of the servers.
fn makespan(settings: &Settings, profiles: &str, bars: &mut Bars) -> anyhow::Result<()> {
    let text = data::text(settings, "synergy/deploy_trace/static_100job_6_3_1100.0.csv")?;
    let trace = trace::synergy_deployed(&text, profiles)?;
    let mut setup = Setup::synergy();
    setup.nodes.truncate(4);
    let hours = |way: &str| -> anyhow::Result<f64> {
        let outcome = ClusterSimulation::new(&trace, &setup, &choice(way)?)?.run(|_, _, _| Ok(()))?;
        Ok(outcome.makespan().ns() as f64 / 3.6e12)
    };
    let (even, tuned) = (hours(WAYS[0])?, hours(WAYS[2])?);
    bars.note(&format!(
        "Synergy's static trace on 4 servers: makespan {even:.2} h with even parts, {tuned:.2} h tuned ({:.2}×)",
        even / tuned
    ));
    Ok(())
}
