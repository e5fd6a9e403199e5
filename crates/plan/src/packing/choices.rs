//! What may serve a tenant: on each size of instance the measured point with the greatest throughput within the limit.

use super::slots::Size;
use super::tables::{Measured, ModelTable, Tenant};
use std::fmt;
use thiserror::Error;

/// On what terms instances are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// The part of a promise that a batch may take. Half of it, for a request that just misses a batch waits for it and
    /// runs in the next, and of that 0.9 for what nobody measured (ParvaGPU).
    pub latency_part: f64,
    /// Processes that may share an instance.
    pub processes_max: u32,
    /// GPUs there are.
    pub gpus_max: u32,
}

impl Default for Terms {
    /// 0.45 of the promise and 5 processes, as in the published deployments, and 2000 GPUs.
    fn default() -> Self {
        Self { latency_part: 0.45, processes_max: 5, gpus_max: 2_000 }
    }
}

/// Why a tenant cannot be served.
#[derive(Clone, Debug, PartialEq)]
pub enum Unserved {
    /// Nothing was measured of its model.
    Unknown,
    /// Two tenants name one model; their rates belong together.
    Twice,
    /// Promise or rate are no positive numbers.
    Demand,
    /// Even the fastest point is too slow.
    Latency {
        /// The fastest.
        fastest: Measured,
        /// What a batch may take, ms.
        limit_ms: f64,
    },
    /// More than all GPUs together compute.
    Rate {
        /// The most that all GPUs compute for it alone.
        most: f64,
        /// GPUs there are.
        gpus: u32,
    },
}

/// Every tenant that cannot be served, and why.
#[derive(Clone, Debug, PartialEq, Error)]
pub struct UnservedError(pub Vec<(Tenant, Unserved)>);

/// The best point of each size for one tenant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Choice {
    pub(super) points: [Option<Measured>; 5],
}

impl Choice {
    /// Requests a second of an instance of each size; 0 where none is quick enough, or no better than a smaller one.
    pub(super) fn per_s(&self) -> [f64; 5] {
        let mut most = 0.0;
        let mut gains = [0.0; 5];
        for (gain, point) in gains.iter_mut().zip(&self.points) {
            let own = point.map_or(0.0, |point| point.per_s());
            if own > most {
                (*gain, most) = (own, own);
            }
        }
        gains
    }

    /// The greatest throughput of a slice.
    pub(super) fn per_slice(&self) -> f64 {
        let sizes = Size::ALL.iter().zip(self.per_s());
        sizes.map(|(size, per_s)| per_s / f64::from(size.slices())).fold(0.0, f64::max)
    }
}

/// The table of a tenant's model.
pub(super) fn table<'a>(tables: &'a [ModelTable], tenant: &Tenant) -> Option<&'a ModelTable> {
    tables.iter().find(|table| table.name == tenant.model)
}

/// What may serve each tenant.
pub(super) fn choices(
    tables: &[ModelTable],
    tenants: &[Tenant],
    terms: &Terms,
) -> Result<Vec<Choice>, UnservedError> {
    let mut faults = Vec::new();
    let mut choices = Vec::new();
    for (at, tenant) in tenants.iter().enumerate() {
        let twice = tenants[..at].iter().any(|other| other.model == tenant.model);
        let outcome = if twice { Err(Unserved::Twice) } else { choice(tables, tenant, terms) };
        match outcome {
            Ok(choice) => choices.push(choice),
            Err(why) => faults.push((tenant.clone(), why)),
        }
    }
    if faults.is_empty() { Ok(choices) } else { Err(UnservedError(faults)) }
}

fn choice(tables: &[ModelTable], tenant: &Tenant, terms: &Terms) -> Result<Choice, Unserved> {
    let positive = |value: f64| value.is_finite() && value > 0.0;
    if !(positive(tenant.slo_ms) && positive(tenant.rate)) {
        return Err(Unserved::Demand);
    }
    let limit_ms = tenant.slo_ms * terms.latency_part;
    let table = table(tables, tenant).ok_or(Unserved::Unknown)?;
    let usable = || table.measured.iter().filter(|point| point.processes <= terms.processes_max);
    let mut points = [None; 5];
    for point in usable().filter(|point| point.latency_ms() < limit_ms) {
        let best: &mut Option<Measured> = &mut points[point.size.place()];
        let rank = |point: &Measured| (point.per_s(), -point.latency_s);
        if best.is_none_or(|best| rank(point) > rank(&best)) {
            *best = Some(*point);
        }
    }
    let choice = Choice { points };
    if points.iter().all(Option::is_none) {
        let fastest = usable().copied().min_by(|a, b| a.latency_s.total_cmp(&b.latency_s));
        return Err(fastest.map_or(Unserved::Unknown, |fastest| Unserved::Latency { fastest, limit_ms }));
    }
    let most = choice.per_slice() * 7.0 * f64::from(terms.gpus_max);
    if most < tenant.rate {
        return Err(Unserved::Rate { most, gpus: terms.gpus_max });
    }
    Ok(choice)
}

impl fmt::Display for UnservedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (Tenant { model, slo_ms, rate }, why)) in self.0.iter().enumerate() {
            f.write_str(if number == 0 { "" } else { "\n" })?;
            match why {
                Unserved::Unknown => write!(f, "{model}: nothing was measured of it; give its table")?,
                Unserved::Twice => write!(f, "{model} is listed twice; add the rates up")?,
                Unserved::Demand => {
                    write!(
                        f,
                        "{model}: a promise of {slo_ms} ms and {rate} requests/s must both be positive"
                    )?;
                }
                Unserved::Latency { fastest, limit_ms } => write!(
                    f,
                    "{model}: fastest latency {:.1} ms ({} slices, batch {}, {} processes) is not below {limit_ms:.1} ms, \
                     what a batch may take of the SLO of {slo_ms} ms",
                    fastest.latency_ms(),
                    fastest.size.slices(),
                    fastest.batch,
                    fastest.processes
                )?,
                Unserved::Rate { most, gpus } => write!(
                    f,
                    "{model}: {rate} requests/s are above the {most:.1} that {gpus} GPUs compute at most; use more GPUs"
                )?,
            }
        }
        Ok(())
    }
}
