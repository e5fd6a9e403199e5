//! A stream of Synergy's jobs (OSDI'22): model, GPUs, the CPUs and memory asked for, arrival, iterations.

use super::table::Table;
use super::{Trace, TraceError, TraceJob};
use serde::Deserialize;
use std::collections::BTreeMap;
use vocab::{Bytes, Span, Time};

/// What Synergy measured of its models, of `profiles.json`.
#[derive(Deserialize)]
struct Profiles {
    sets: BTreeMap<String, Server>,
}

/// Models on one kind of server.
#[derive(Deserialize)]
struct Server {
    models: BTreeMap<String, Profile>,
}

#[derive(Clone, Copy, Deserialize)]
struct Profile {
    ideal_cpus_per_gpu: f64,
    ideal_mem_gb_per_gpu: f64,
    iter_time_s_at_proportional: f64,
    speedup_ideal_vs_proportional: f64,
}

/// Reads a job stream, with its models' speeds from `profiles` (servers of 3 CPUs a GPU).
///
/// # Errors
/// When anything is wrong with either: every problem, with its line; those of the profiles are on line 0.
pub fn synergy(text: &str, profiles: &str) -> Result<Trace, TraceError> {
    let needed = ["job_id", "model", "gpus", "ideal_cpus", "ideal_mem_gb", "arrival_s", "iterations"];
    let mut table = Table::new(text, &needed);
    let sets = profiles_of(&mut table, profiles);
    let found = |model: &str| sets.get("models")?.models.get(&format!("{model}_1")).copied();
    let (jobs, problems) = table.read(|row| {
        let (gpus, arrival) = (row.gpus("gpus"), row.number("arrival_s"));
        let (cpus, memory) = (row.number("ideal_cpus"), row.number("ideal_mem_gb"));
        let iterations = row.whole("iterations");
        let model = row.text("model").to_owned();
        let profile = found(&model);
        if profile.is_none() {
            row.problem(format!("model \"{model}\" is not in the profiles"));
        }
        let profile = profile?;
        // Fixed-point numbers share the conversion of times: both are rounded to 1e-9.
        let nano = |number: f64| Span::from_secs_f64(number).ns();
        Some(TraceJob {
            line: row.line,
            name: row.text("job_id").to_owned(),
            arrival: Time::ZERO + Span::from_secs_f64(arrival?),
            gpus: gpus?,
            iterations: iterations?,
            iteration: Span::from_secs_f64(profile.iter_time_s_at_proportional),
            restart: Span::ZERO,
            model,
            cpu_milli: nano(cpus?) / 1_000_000,
            memory: Bytes(nano(memory?)),
            speedup_micro: nano(profile.speedup_ideal_vs_proportional) / 1_000,
            batch: 0,
        })
    });
    Trace::checked(jobs, problems)
}

/// Reads a trace that Synergy's authors deployed: job, model, arrival, iterations, GPUs; no header. What a job asks for is
/// its model's ideal share in `profiles`.
///
/// # Errors
/// When anything is wrong with either: every problem, with its line; those of the profiles are on line 0.
pub fn synergy_deployed(text: &str, profiles: &str) -> Result<Trace, TraceError> {
    let columns = ["job_id", "model", "arrival_s", "iterations", "gpus"];
    let mut table = Table::bare(text, &columns, ',');
    let sets = profiles_of(&mut table, profiles);
    let (jobs, problems) = table.read(|row| {
        let (gpus, arrival) = (row.gpus("gpus"), row.number("arrival_s"));
        let iterations = row.whole("iterations");
        let model = row.text("model").to_owned();
        let profile = sets.get("models").and_then(|set| set.models.get(&format!("{model}_1"))).copied();
        if profile.is_none() {
            row.problem(format!("model \"{model}\" is not in the profiles"));
        }
        let (profile, gpus) = (profile?, gpus?);
        let each = |number: f64| Span::from_secs_f64(number).ns() * u64::from(gpus);
        Some(TraceJob {
            line: row.line,
            name: row.text("job_id").to_owned(),
            arrival: Time::ZERO + Span::from_secs_f64(arrival?),
            gpus,
            iterations: iterations?,
            iteration: Span::from_secs_f64(profile.iter_time_s_at_proportional),
            restart: Span::ZERO,
            model,
            cpu_milli: each(profile.ideal_cpus_per_gpu) / 1_000_000,
            memory: Bytes(each(profile.ideal_mem_gb_per_gpu)),
            speedup_micro: Span::from_secs_f64(profile.speedup_ideal_vs_proportional).ns() / 1_000,
            batch: 0,
        })
    });
    Trace::checked(jobs, problems)
}

fn profiles_of(table: &mut Table<'_>, profiles: &str) -> BTreeMap<String, Server> {
    match serde_json::from_str::<Profiles>(profiles) {
        Ok(profiles) => profiles.sets,
        Err(error) => {
            let what = format!("the profiles cannot be read: {error}");
            table.problems.push(super::Problem { line: 0, what });
            BTreeMap::new()
        }
    }
}
