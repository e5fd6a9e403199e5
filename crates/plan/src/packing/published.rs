//! ParvaGPU's scheduler (SC24), as its public code does it: single-precision arithmetic, promises and rates cut to whole
//! numbers, slots counted by where instances begin. Its deployments come out line for line.
//!
//! 1. For each tenant the point with the greatest throughput a slice, as often as the rate holds it, and the smallest
//!    instance for the rest.
//! 2. Instances from the largest down, each on the GPU where it leaves least, the first of equals.
//! 3. GPUs with at most 4 slices in use, from the last: their instances are taken off, and what they served is served by
//!    instances of one and two slices in the gaps of others.
//!
//! Two things that the code leaves undefined are defined here: an instance that no slot is left for goes to the next
//! GPU, and one without a point of one or two slices stays where it is in step 3.

use super::choices::{Choice, Terms, UnservedError, choices, table};
use super::deployment::{Deployment, Instance};
use super::slots::Size;
use super::tables::{Measured, ModelTable, Tenant};
use std::collections::VecDeque;

/// The order in which a slot is looked for.
const SLOT_ORDER: [&[usize]; 5] = [&[0, 6, 4, 1, 2, 3, 5], &[0, 4, 2], &[4], &[0], &[0]];

/// GPUs with so many slices in use or fewer are packed again.
const SPARSE: u32 = 4;

/// A measured point as the published code holds it.
#[derive(Clone, Copy, Debug)]
struct Single {
    size: Size,
    batch: u32,
    processes: u32,
    per_s: f32,
}

/// What the published code knows of one tenant.
struct Service {
    /// The point with the greatest throughput a slice.
    best: Single,
    /// How often it is used.
    count: u32,
    /// What serves the rest.
    last: Option<Single>,
    points: [Option<Single>; 5],
}

/// A GPU by the slots where instances begin: the tenant and the size.
#[derive(Clone, Default)]
struct Gpu {
    used: u32,
    begins: [Option<(usize, Size)>; 7],
}

/// The deployment that ParvaGPU's public code makes.
///
/// # Errors
/// Every tenant that cannot be served, and why.
pub fn published(
    tables: &[ModelTable],
    tenants: &[Tenant],
    terms: &Terms,
) -> Result<Deployment, UnservedError> {
    let choices = choices(tables, tenants, terms)?;
    let services: Vec<Service> =
        tenants.iter().zip(&choices).map(|(tenant, choice)| service(tables, tenant, terms, choice)).collect();
    let mut queues: [VecDeque<usize>; 5] = Default::default();
    for (tenant, service) in services.iter().enumerate() {
        let best = (0..service.count).map(|_| service.best.size);
        for size in best.chain(service.last.map(|last| last.size)) {
            queues[size.place()].push_back(tenant);
        }
    }
    let mut gpus = Vec::new();
    place(&mut queues, &mut gpus);
    repack(&services, &mut gpus, &mut queues);
    Ok(deployment(tenants, &services, &gpus))
}

/// Instances from the largest down, first come first served.
fn place(queues: &mut [VecDeque<usize>; 5], gpus: &mut Vec<Gpu>) {
    for size in Size::ALL.into_iter().rev() {
        while let Some(tenant) = queues[size.place()].pop_front() {
            let (gpu, slot) = fit(gpus, size);
            if gpu == gpus.len() {
                gpus.push(Gpu::default());
            }
            gpus[gpu].begins[slot] = Some((tenant, size));
            gpus[gpu].used += size.slices();
        }
    }
}

/// The GPU where an instance leaves least, and the slot; the first GPU without an instance if no other has room.
fn fit(gpus: &[Gpu], size: Size) -> (usize, usize) {
    let slots = SLOT_ORDER[size.place()];
    let empty = (7 - size.slices(), gpus.len(), slots[0]);
    let room = |(number, gpu): (usize, &Gpu)| {
        let left = (7 - gpu.used).checked_sub(size.slices())?;
        let slot = slots.iter().copied().find(|slot| gpu.begins[*slot].is_none())?;
        Some((left, number, slot))
    };
    let best = gpus.iter().enumerate().filter_map(room).chain([empty]).min();
    let (_, gpu, slot) = best.unwrap_or(empty);
    (gpu, slot)
}

/// Step 3.
fn repack(services: &[Service], gpus: &mut Vec<Gpu>, queues: &mut [VecDeque<usize>; 5]) {
    let mut owed = vec![0.0f32; services.len()];
    for number in (0..gpus.len()).rev() {
        if gpus[number].used > SPARSE {
            continue;
        }
        for slot in 0..7 {
            let Some((tenant, size)) = gpus[number].begins[slot] else { continue };
            let service = &services[tenant];
            let [one, two, ..] = service.points;
            if one.is_none() && two.is_none() {
                continue;
            }
            let served = if size == service.best.size { Some(service.best) } else { service.last };
            owed[tenant] += served.unwrap_or(service.best).per_s;
            gpus[number].used -= size.slices();
            gpus[number].begins[slot] = None;
            let mut ask = |point: Single, round: fn(f32) -> f32| {
                for _ in 0..whole(round(owed[tenant] / point.per_s)) {
                    queues[point.size.place()].push_back(tenant);
                    owed[tenant] -= point.per_s;
                }
            };
            match (one, two) {
                (None, Some(two)) => ask(two, f32::ceil),
                (Some(one), Some(two)) if two.per_s / 2.0 > one.per_s => ask(two, f32::floor),
                _ => {}
            }
            if let Some(one) = one {
                ask(one, f32::ceil);
            }
            place(queues, gpus);
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rounded count; nothing below 0 is 0"
)]
fn whole(count: f32) -> u32 {
    count as u32
}

fn service(tables: &[ModelTable], tenant: &Tenant, terms: &Terms, choice: &Choice) -> Service {
    let (slo_ms, rate) = (single(tenant.slo_ms.trunc()), single(tenant.rate.trunc()));
    let limit_ms = single(f64::from(slo_ms / 2.0) * (terms.latency_part * 2.0));
    let mut measured: Vec<Measured> =
        table(tables, tenant).map(|table| table.measured.clone()).unwrap_or_default();
    measured.retain(|point| point.processes <= terms.processes_max);
    measured.sort_by_key(|point| (point.size, point.batch, point.processes));
    let mut points: [Option<Single>; 5] = [None; 5];
    for point in measured.iter().filter(|point| single(point.latency_s) * 1000.0 < limit_ms) {
        let own = held(point);
        let best = &mut points[own.size.place()];
        if best.is_none_or(|best| a_slice(own) > a_slice(best)) {
            *best = Some(own);
        }
    }
    // Promises of whole milliseconds may leave nothing where the exact ones leave something.
    if points.iter().all(Option::is_none) {
        points = choice.points.map(|point| point.as_ref().map(held));
    }
    let mut best: Option<Single> = None;
    for point in points.into_iter().flatten() {
        if best.is_none_or(|best| a_slice(point) > a_slice(best)) {
            best = Some(point);
        }
    }
    let best = best.expect("a tenant that can be served has a point");
    let mut count = whole((rate / best.per_s).floor());
    if f64::from(rate) % f64::from(best.per_s) == 0.0 {
        count = count.saturating_sub(1);
    }
    let rest = rate - best.per_s * single(f64::from(count));
    let last = points.into_iter().flatten().find(|point| rest <= point.per_s);
    Service { best, count, last, points }
}

fn held(point: &Measured) -> Single {
    let per_s = single(point.each_per_s) * single(f64::from(point.processes));
    Single { size: point.size, batch: point.batch, processes: point.processes, per_s }
}

fn a_slice(point: Single) -> f32 {
    point.per_s / single(f64::from(point.size.slices()))
}

#[expect(clippy::cast_possible_truncation, reason = "the published code computes in single precision")]
fn single(value: f64) -> f32 {
    value as f32
}

/// GPU by GPU, the largest instances first; equals in the order that swapping leaves them in.
fn deployment(tenants: &[Tenant], services: &[Service], gpus: &[Gpu]) -> Deployment {
    let mut instances = Vec::new();
    for (number, gpu) in (0u32..).zip(gpus) {
        let begins = (0u8..).zip(&gpu.begins);
        let mut own: Vec<(u8, usize, Size)> =
            begins.filter_map(|(start, held)| held.map(|(tenant, size)| (start, tenant, size))).collect();
        for first in 0..own.len() {
            let mut largest = first;
            for other in first + 1..own.len() {
                if own[other].2 > own[largest].2 {
                    largest = other;
                }
            }
            own.swap(first, largest);
        }
        instances.extend(own.into_iter().map(|(start, tenant, size)| {
            let service = &services[tenant];
            let last = service.last.filter(|last| last.size == size);
            let point = if size == service.best.size {
                Some(service.best)
            } else {
                last.or(service.points[size.place()])
            };
            let point = point.unwrap_or(service.best);
            let (batch, processes) = (point.batch, point.processes);
            Instance { gpu: number, start, size, model: tenants[tenant].model.clone(), batch, processes }
        }));
    }
    Deployment { instances }
}
