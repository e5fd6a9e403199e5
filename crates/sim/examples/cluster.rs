//! Prints how policies fare on a public trace:
//! `cargo run -p sim --example cluster -- muri FILE muri-srtf,muri-srsf,muri-las` or
//! `… -- synergy FILE,PROFILES synergy-tune,synergy-proportional`, `… -- tiresias FILE las,srtf`,
//! `… -- philly FILE las,fifo`.

use sched::cluster::JobId;
use sched::cluster::policy::Choice;
use sim::cluster::{ClusterSimulation, Setup, Trace, trace};
use std::error::Error;
use std::io::Write;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [format, files, policies] = &arguments[..] else {
        return Err("three arguments are needed: a format, its files and the policies".into());
    };
    let read_or_text =
        |file: &str| if file.contains(':') { Ok(file.to_owned()) } else { std::fs::read_to_string(file) };
    let text = files.split(',').map(read_or_text).collect::<Result<Vec<_>, _>>()?;
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{:22}{:>8}{:>18}{:>18}{:>18}{:>10}{:>10}",
        "policy", "jobs", "mean JCT s", "p99 JCT s", "makespan s", "restarts", "turns"
    )?;
    for name in policies.split(',') {
        let choice = Choice::named(name)
            .ok_or_else(|| format!("there is no policy \"{name}\"; known are {:?}", Choice::NAMES))?;
        let (trace, setup) = read(format, &text, name)?;
        let mut simulation = ClusterSimulation::new(&trace, &setup, &choice)?;
        if format == "synergy" {
            simulation = simulation.until(JobId(4_999));
        }
        let mut outcome = simulation.run(|_, _, _| Ok(()))?;
        if format == "synergy" {
            // The window that Synergy's authors measure.
            outcome.keep(4_000, 5_000);
        }
        let (mean, p99) = (outcome.mean_completion_s(), outcome.completion_percentile(99).as_secs_f64());
        let (makespan, jobs) = (outcome.makespan().ns() as f64 / 1e9, outcome.completed.len());
        let (restarts, turns) = (outcome.restarts(), outcome.turns);
        writeln!(out, "{name:22}{jobs:>8}{mean:>18.6}{p99:>18.6}{makespan:>18.6}{restarts:>10}{turns:>10}")?;
    }
    Ok(())
}

fn read(format: &str, text: &[String], policy: &str) -> Result<(Trace, Setup), Box<dyn Error>> {
    match (format, text) {
        ("gavel", [text, throughputs, cluster]) => {
            let throughputs = std::sync::Arc::new(sim::cluster::Throughputs::parse(throughputs)?);
            let counts: Vec<u32> = cluster.trim().split(':').map(str::parse).collect::<Result<_, _>>()?;
            let kinds: Vec<(u32, u8, &str)> =
                counts.iter().zip(["v100", "p100", "k80"]).map(|(count, name)| (*count, 1, name)).collect();
            Ok((trace::gavel(text, &throughputs)?, Setup::gavel(throughputs, &kinds)))
        }
        ("pollux", [text, ..]) => {
            let folder = std::path::Path::new("../shared/data/cluster/pollux/traces");
            let mut files = Vec::new();
            for application in std::fs::read_dir(folder)? {
                let application = application?.path();
                for file in std::fs::read_dir(&application)? {
                    let file = file?.path();
                    let name = file.strip_prefix(folder)?.display().to_string();
                    files.push((name, std::fs::read_to_string(file)?));
                }
            }
            let applications = sim::cluster::Applications::parse(&files)?;
            let trace = trace::pollux(text, &applications)?;
            Ok((trace, Setup::pollux(std::sync::Arc::new(applications))))
        }
        ("muri", [text]) => Ok((trace::muri(text)?, Setup::muri(policy != "muri-las"))),
        ("tiresias", [text]) => Ok((trace::tiresias(text)?, Setup::uniform(8, 8))),
        ("philly", [text]) => Ok((trace::philly(text, None)?, Setup::uniform(250, 8))),
        ("synergy", [stream, profiles]) => Ok((trace::synergy(stream, profiles)?, Setup::synergy())),
        _ => Err("formats are muri FILE, tiresias FILE, philly FILE, synergy FILE,PROFILES".into()),
    }
}
