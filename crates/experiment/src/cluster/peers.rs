//! What other simulators print on the same files, and how far ours is from it.

use super::{Settings, choice, data, simulate};
use crate::bars::Bars;
use crate::host;
use sched::cluster::JobId;
use sim::cluster::{ClusterOutcome, ClusterSimulation, Setup, trace};
use std::path::Path;

/// A number of another simulator.
struct Peer {
    what: String,
    theirs: f64,
    ours: f64,
    unit: &'static str,
    /// Seconds of processor that they took and ours took; 0 where that was not noted.
    seconds: (f64, f64),
}

/// Gavel's numbers may differ by so many hundredths.
const GAVEL_PERCENT: f64 = 0.1;

/// Ours must be so many times faster.
const FASTER: f64 = 100.0;

pub(super) fn run(folder: &Path, settings: &Settings, bars: &mut Bars) -> anyhow::Result<()> {
    let mut exact = muri(settings)?;
    exact.extend(pollux(settings)?);
    exact.extend(synergy(settings, bars)?);
    for peer in &exact {
        // Peers print six digits after the point at most.
        let apart = ((peer.ours - peer.theirs).abs() * 1e6).round();
        let unit = format!(" ×10⁻⁶{}", peer.unit);
        bars.at_most(&format!("{}, apart from {}{}", peer.what, peer.theirs, peer.unit), apart, 0.0, &unit);
    }
    let close = gavel(settings)?;
    for peer in &close {
        let apart = (peer.ours / peer.theirs - 1.0).abs() * 100.0;
        bars.at_most(
            &format!("{}, apart from {}{}", peer.what, peer.theirs, peer.unit),
            apart,
            GAVEL_PERCENT,
            " %",
        );
    }
    for peer in exact.iter().chain(&close).filter(|peer| peer.seconds.0 > 0.0) {
        let times = peer.seconds.0 / peer.seconds.1;
        bars.at_least(
            &format!("{}, speed over the peer's recorded {} s", peer.what, peer.seconds.0),
            times,
            FASTER,
            "×",
        );
    }
    let rows = exact.iter().chain(&close).map(|peer| {
        let Peer { what, theirs, ours, unit, seconds } = peer;
        format!("{what},{theirs},{ours},{},{},{:.4}", unit.trim(), seconds.0, seconds.1)
    });
    host::csv(&folder.join("peers.csv"), "what,theirs,ours,unit,their_cpu_s,our_cpu_s", rows)
}

fn muri(settings: &Settings) -> anyhow::Result<Vec<Peer>> {
    let mut peers = Vec::new();
    let setup = Setup::uniform(8, 8);
    for (name, rows) in [
        (
            "trace3",
            [
                ("muri-srtf", 193_081.796_024, 1.42),
                ("muri-srsf", 185_021.880_164, 1.49),
                ("muri-las", 347_213.248_119, 1.62),
            ],
        ),
        (
            "trace2",
            [
                ("muri-srtf", 2_665_607.375_069, 30.01),
                ("muri-srsf", 2_213_949.687_363, 28.57),
                ("muri-las", 7_396_368.514_037, 62.59),
            ],
        ),
    ] {
        let trace = data::muri(settings, name)?;
        for (policy, theirs, cpu) in rows {
            let (outcome, seconds) = data::repeated(settings.repeats, || simulate(&trace, &setup, policy))?;
            let ours = outcome.mean_completion_s();
            let what = format!("Muri {name} {policy}");
            peers.push(Peer { what, theirs, ours, unit: " s", seconds: (cpu, seconds) });
        }
    }
    Ok(peers)
}

fn pollux(settings: &Settings) -> anyhow::Result<Vec<Peer>> {
    let applications = data::applications(settings)?;
    let trace = trace::pollux(&data::text(settings, "pollux/workloads/workload-6.csv")?, &applications)?;
    let setup = Setup::pollux(applications);
    let mut peers = Vec::new();
    for (policy, theirs, cpu) in [("pollux-las", 3_469.693_75, 12.8), ("optimus", 5_301.875, 45.5)] {
        // Once: measured applications remember what they have worked out.
        let (outcome, seconds) = data::timed(|| simulate(&trace, &setup, policy))?;
        let what = format!("Pollux workload-6 {policy}");
        peers.push(Peer {
            what,
            theirs,
            ours: outcome.mean_completion_s(),
            unit: " s",
            seconds: (cpu, seconds),
        });
    }
    Ok(peers)
}

fn synergy(settings: &Settings, bars: &mut Bars) -> anyhow::Result<Vec<Peer>> {
    let stream = data::text(settings, "synergy/fifo_9jph_20_70_10_seed42.csv")?;
    let trace = trace::synergy(&stream, &data::text(settings, "synergy/profiles.json")?)?;
    let setup = Setup::synergy();
    let mut peers = Vec::new();
    for (policy, column, theirs, cpu) in [
        ("synergy-tune", 8, 21.876_600_555_555_555, 245.0),
        ("synergy-proportional", 10, 81.088_600_555_555_56, 241.0),
    ] {
        let simulation = ClusterSimulation::new(&trace, &setup, &choice(policy)?)?.until(JobId(4_999));
        let run = || Ok(simulation.clone().run(|_, _, _| Ok(()))?);
        let (mut outcome, seconds) = data::repeated(settings.repeats, run)?;
        outcome.keep(4_000, 5_000);
        let wrong =
            recorded(&stream, column).filter(|(id, seconds)| took(&outcome, *id) != Some(*seconds)).count();
        bars.at_most(&format!("Synergy {policy}, jobs of 1000 whose time differs"), wrong as f64, 0.0, "");
        let ours = outcome.mean_completion_s() / 3_600.0;
        peers.push(Peer {
            what: format!("Synergy {policy}"),
            theirs,
            ours,
            unit: " h",
            seconds: (cpu, seconds),
        });
    }
    Ok(peers)
}

/// Jobs and their completion times in whole seconds, as recorded in `column`.
fn recorded(stream: &str, column: usize) -> impl Iterator<Item = (u32, u64)> {
    stream.lines().skip(1).filter_map(move |line| {
        let cells: Vec<&str> = line.split(',').collect();
        Some((cells.first()?.parse().ok()?, cells.get(column)?.parse().ok()?))
    })
}

fn took(outcome: &ClusterOutcome, id: u32) -> Option<u64> {
    let job = outcome.completed.iter().find(|job| job.job.0 == id)?;
    let ns = job.completion().ns();
    ns.is_multiple_of(1_000_000_000).then_some(ns / 1_000_000_000)
}

fn gavel(settings: &Settings) -> anyhow::Result<Vec<Peer>> {
    let mut peers = Vec::new();
    let clusters = |counts: [u32; 3]| [(counts[0], 1, "v100"), (counts[1], 1, "p100"), (counts[2], 1, "k80")];
    // Trace, counts, table, policy, mean in seconds, makespan in hours where it is the goal.
    let fair = "physical_cluster/max_min_fairness";
    let short = "physical_cluster/minimize_makespan";
    let stream = "generated_203jobs_multigpu_lam5400_seed0";
    for (file, counts, table, policy, mean_s, makespan_h, cpu) in [
        (fair, [8, 16, 24], "physical_cluster", "gavel", 13_766.019, 0.0, 0.0),
        (fair, [8, 16, 24], "physical_cluster", "gavel-alike", 18_705.369, 0.0, 0.0),
        (fair, [8, 16, 24], "simulation", "gavel", 14_622.82, 0.0, 0.0),
        (fair, [8, 16, 24], "simulation", "gavel-alike", 19_989.255, 0.0, 0.0),
        (short, [8, 16, 24], "physical_cluster", "gavel-makespan", 17.0471 * 3_600.0, 17.4048, 0.0),
        (short, [8, 16, 24], "physical_cluster", "gavel-makespan-alike", 19.2099 * 3_600.0, 20.7114, 0.0),
        (short, [8, 16, 24], "simulation", "gavel-makespan", 17.7152 * 3_600.0, 17.978, 0.0),
        (short, [8, 16, 24], "simulation", "gavel-makespan-alike", 19.9862 * 3_600.0, 21.2874, 0.0),
        (stream, [12, 12, 12], "simulation", "gavel", 52_396.297, 0.0, 5.87),
        (stream, [12, 12, 12], "simulation", "gavel-alike", 69_123.704, 0.0, 6.24),
        (stream, [12, 12, 12], "simulation", "gavel-isolated", 69_466.797, 0.0, 5.36),
        ("physical_cluster/artifact_evaluation", [2, 0, 4], "simulation", "gavel", 4_322.147, 0.0, 0.0),
    ] {
        let throughputs = data::throughputs(settings, table)?;
        let trace =
            trace::gavel(&data::text(settings, &format!("gavel/traces/{file}.trace"))?, &throughputs)?;
        let setup = Setup::gavel(throughputs, &clusters(counts));
        let (outcome, seconds) = data::repeated(settings.repeats, || simulate(&trace, &setup, policy))?;
        let name = file.rsplit('/').next().unwrap_or(file);
        let what = format!("Gavel {name} {table} {policy}");
        if makespan_h > 0.0 {
            let ours = outcome.makespan().ns() as f64 / 3.6e12;
            let what = format!("{what} makespan");
            peers.push(Peer { what, theirs: makespan_h, ours, unit: " h", seconds: (0.0, 0.0) });
        }
        let (theirs, ours) = (mean_s, outcome.mean_completion_s());
        peers.push(Peer { what, theirs, ours, unit: " s", seconds: (cpu, seconds) });
    }
    Ok(peers)
}
