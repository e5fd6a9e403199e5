//! A bound from each unit's surroundings: whatever shares its device, that device computes the set and pays the nets
//! that the set cuts. The least such load is a least cut, so it is found exactly.

use super::super::problem::Problem;
use super::super::{Communication, Devices, Limits};
use super::flow::Network;
use crate::operators::Kind;

/// Units for which cuts are sought; the heaviest first.
const UNITS_MAX: usize = 600;

/// Nodes of a network that is searched for cuts.
const NODES_MAX: usize = 60_000;

/// The greatest load that some unit forces on the device it runs on.
pub(super) fn least_load(
    problem: &Problem,
    devices: &Devices,
    communication: Communication,
    limits: Limits<'_>,
) -> f64 {
    let count = problem.units.len();
    if count + 2 * problem.nets.len() + 1 > NODES_MAX {
        return 0.0;
    }
    let mut heaviest: Vec<usize> = (0..count).collect();
    heaviest.sort_by(|&a, &b| {
        let least = |unit: usize| problem.units[unit].least_ms(devices, false);
        least(b).total_cmp(&least(a)).then(a.cmp(&b))
    });
    let mut networks: Vec<(f64, f64, Network)> = Vec::new();
    let mut bound = 0.0f64;
    for &unit in heaviest.iter().take(UNITS_MAX) {
        if (limits.stop)() {
            break;
        }
        let mut least = f64::INFINITY;
        for group in devices.groups.iter().filter(|group| group.count > 0) {
            let costs = &problem.units[unit];
            let alone = group.time(costs.accelerator_ms, costs.cpu_ms);
            let load = match group.kind {
                _ if !alone.is_finite() || !group.fits(costs.resident_bytes) => continue,
                Kind::Cpu => alone,
                Kind::Accelerator => {
                    let known =
                        networks.iter().position(|known| (known.0, known.1) == (group.speed, group.link));
                    let at = known.unwrap_or_else(|| {
                        networks.push((group.speed, group.link, network(problem, group.speed, group.link)));
                        networks.len() - 1
                    });
                    let sum = networks[at].2.clone().cut(unit, count);
                    // The greater of two times is at least their mean.
                    let whole = if communication == Communication::Overlapped { sum / 2.0 } else { sum };
                    whole.max(alone)
                }
            };
            least = least.min(load);
        }
        if least.is_finite() {
            // Sums of capacities are rounded.
            bound = bound.max(least * (1.0 - 1e-11));
        }
    }
    bound
}

/// Units, then the sink, then two nodes a net: a cut pays a unit's time if it is on the source's side, and a net's
/// transfer if units of the net are on both sides.
fn network(problem: &Problem, speed: f64, link: f64) -> Network {
    let count = problem.units.len();
    let mut network = Network::new(count + 1 + 2 * problem.nets.len());
    for (unit, costs) in problem.units.iter().enumerate() {
        let time =
            if costs.accelerator_ms.is_finite() { costs.accelerator_ms / speed } else { f64::MAX / 1e9 };
        network.add(unit, count, time);
    }
    for (net, content) in problem.nets.iter().enumerate() {
        let (enter, leave) = (count + 1 + 2 * net, count + 2 + 2 * net);
        network.add(enter, leave, content.transfer_ms / link);
    }
    let unlimited = f64::INFINITY;
    for unit in 0..count {
        let sourced = problem.sourced[unit].iter().copied();
        let nets = sourced.chain(problem.consumed[unit].iter().map(|&(net, _)| net));
        for net in nets {
            network.add(unit, count + 1 + 2 * net, unlimited);
            network.add(count + 2 + 2 * net, unit, unlimited);
        }
    }
    network
}
