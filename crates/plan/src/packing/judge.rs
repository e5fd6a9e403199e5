//! Scores any deployment from scratch: slots, latencies and rates, by the tables alone.

use super::choices::{Terms, table};
use super::deployment::Deployment;
use super::slots::{SLICES, Size, gpus_needed, misplaced};
use super::tables::{ModelTable, Tenant};
use std::collections::BTreeMap;
use thiserror::Error;

/// What is wrong with a deployment.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PackFault {
    /// An instance lies where its size may not begin, or on slots of another.
    #[error(
        "GPU {gpu}: an instance of {} slices begins at slot {start}, where it may not or another lies{}",
        .size.slices(), remedy(*.fit)
    )]
    Slot {
        /// The GPU.
        gpu: u32,
        /// Where it begins.
        start: u8,
        /// Its size.
        size: Size,
        /// Whether the sizes fit the GPU in other slots.
        fit: bool,
    },
    /// More slices than a GPU has.
    #[error("GPU {gpu}: {slices} slices are used, there are {SLICES}")]
    Slices {
        /// The GPU.
        gpu: u32,
        /// What is used.
        slices: u32,
    },
    /// An instance serves a model that nobody asked for.
    #[error("GPU {gpu}: {model} has no tenant")]
    NoTenant {
        /// The GPU.
        gpu: u32,
        /// The model.
        model: String,
    },
    /// An instance runs what was not measured.
    #[error("GPU {gpu}: {model} was not measured on {} slices with batch {batch} and {processes} processes", .size.slices())]
    NotMeasured {
        /// The GPU.
        gpu: u32,
        /// The model.
        model: String,
        /// The instance's size.
        size: Size,
        /// Rows of a batch.
        batch: u32,
        /// Processes.
        processes: u32,
    },
    /// More processes than may share an instance.
    #[error("GPU {gpu}: {processes} processes of {model} share an instance, {most} may")]
    Processes {
        /// The GPU.
        gpu: u32,
        /// The model.
        model: String,
        /// Processes.
        processes: u32,
        /// How many may.
        most: u32,
    },
    /// A batch takes too long.
    #[error("{model}: a batch takes {latency_ms:.1} ms, {limit_ms:.1} of the SLO may pass")]
    Latency {
        /// The model.
        model: String,
        /// The slowest instance's, ms.
        latency_ms: f64,
        /// What a batch may take, ms.
        limit_ms: f64,
    },
    /// A rate is not met.
    #[error("{model}: {served:.1} of {rate} requests/s are served")]
    Rate {
        /// The model.
        model: String,
        /// Requests a second of its instances.
        served: f64,
        /// Requests a second asked for.
        rate: f64,
    },
}

fn remedy(fit: bool) -> &'static str {
    if fit { "; the GPU holds these sizes in other slots" } else { "" }
}

/// How well a tenant is served.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantScore {
    /// The model.
    pub model: String,
    /// Instances that serve it.
    pub instances: usize,
    /// Their compute slices.
    pub slices: u32,
    /// Requests a second that they serve.
    pub served: f64,
    /// What they serve beyond the rate, as a part of it.
    pub slack: f64,
    /// The slowest instance's batch, ms.
    pub latency_ms: f64,
    /// The promise, ms.
    pub slo_ms: f64,
}

/// What the judge found.
#[derive(Clone, Debug, PartialEq)]
pub struct PackVerdict {
    /// GPUs in use.
    pub gpus: usize,
    /// Compute slices in use.
    pub slices: u32,
    /// Tenants in their order.
    pub tenants: Vec<TenantScore>,
    /// Everything that is wrong.
    pub faults: Vec<PackFault>,
}

/// Scores a deployment for tenants on the terms given.
#[must_use]
pub fn judge_packing(
    tables: &[ModelTable],
    tenants: &[Tenant],
    terms: &Terms,
    deployment: &Deployment,
) -> PackVerdict {
    let mut faults = Vec::new();
    places(deployment, &mut faults);
    let mut scores: Vec<TenantScore> = tenants
        .iter()
        .map(|tenant| TenantScore {
            model: tenant.model.clone(),
            instances: 0,
            slices: 0,
            served: 0.0,
            slack: 0.0,
            latency_ms: 0.0,
            slo_ms: tenant.slo_ms,
        })
        .collect();
    for instance in &deployment.instances {
        let (gpu, model, size) = (instance.gpu, instance.model.clone(), instance.size);
        let (batch, processes) = (instance.batch, instance.processes);
        let at = tenants.iter().position(|tenant| tenant.model == model);
        let Some((tenant, score)) = at.map(|at| (&tenants[at], &mut scores[at])) else {
            faults.push(PackFault::NoTenant { gpu, model });
            continue;
        };
        if processes > terms.processes_max {
            let (model, most) = (model.clone(), terms.processes_max);
            faults.push(PackFault::Processes { gpu, model, processes, most });
        }
        let same = table(tables, tenant).and_then(|table| {
            let own = |point: &&super::Measured| {
                (point.size, point.batch, point.processes) == (size, batch, processes)
            };
            table.measured.iter().find(own)
        });
        let Some(point) = same else {
            faults.push(PackFault::NotMeasured { gpu, model, size, batch, processes });
            continue;
        };
        score.instances += 1;
        score.slices += size.slices();
        score.served += point.per_s();
        score.latency_ms = score.latency_ms.max(point.latency_ms());
    }
    for (tenant, score) in tenants.iter().zip(&mut scores) {
        score.slack = score.served / tenant.rate - 1.0;
        let limit_ms = tenant.slo_ms * terms.latency_part;
        let (model, latency_ms) = (tenant.model.clone(), score.latency_ms);
        if latency_ms >= limit_ms {
            faults.push(PackFault::Latency { model: model.clone(), latency_ms, limit_ms });
        }
        if score.served < tenant.rate {
            faults.push(PackFault::Rate { model, served: score.served, rate: tenant.rate });
        }
    }
    PackVerdict { gpus: deployment.gpus(), slices: deployment.slices(), tenants: scores, faults }
}

/// Looks at each GPU's slots.
fn places(deployment: &Deployment, faults: &mut Vec<PackFault>) {
    let mut gpus: BTreeMap<u32, Vec<(Size, u8)>> = BTreeMap::new();
    for instance in &deployment.instances {
        gpus.entry(instance.gpu).or_default().push((instance.size, instance.start));
    }
    for (gpu, instances) in gpus {
        let mut counts = [0; 5];
        instances.iter().for_each(|(size, _)| counts[size.place()] += 1);
        let fit = gpus_needed(&counts) == 1;
        let (wrong, too_many) = misplaced(&instances);
        for at in wrong {
            let (size, start) = instances[at];
            faults.push(PackFault::Slot { gpu, start, size, fit });
        }
        if too_many {
            let slices = instances.iter().map(|(size, _)| size.slices()).sum();
            faults.push(PackFault::Slices { gpu, slices });
        }
    }
}
