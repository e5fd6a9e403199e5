//! Every plan of a small graph: where a search may miss what is fastest, and need not.

use super::{Call, LatencyPlan, accelerators, judge_latency};
use crate::operators::OperatorGraph;
use crate::place::Devices;

/// Most plans that are all judged: well under a second.
const PLANS_MAX: usize = 20_000;

/// The fastest of all plans and its milliseconds, `Some(None)` when no plan is possible; `None` when there are too many to
/// judge them all.
pub(super) fn fastest(
    graph: &OperatorGraph,
    devices: &Devices,
    calls: usize,
) -> Option<Option<(LatencyPlan, f64)>> {
    let operators = graph.operators().len();
    let slots = accelerators(devices).len() * calls;
    let plans = (slots + 1).checked_pow(u32::try_from(operators).ok()?)?;
    if plans > PLANS_MAX {
        return None;
    }
    let mut best: Option<(LatencyPlan, f64)> = None;
    for code in 0..plans {
        let plan = decoded(code, operators, slots, calls);
        let verdict = judge_latency(graph, devices, calls, &plan);
        let faster = best.as_ref().is_none_or(|(_, least)| verdict.value_ms < *least);
        if verdict.faults.is_empty() && verdict.value_ms.is_finite() && faster {
            best = Some((plan, verdict.value_ms));
        }
    }
    Some(best)
}

/// The plan whose operators' runners are the digits of `code`: zero is the host.
fn decoded(code: usize, operators: usize, slots: usize, calls: usize) -> LatencyPlan {
    let mut plan = LatencyPlan::default();
    let mut filled: Vec<Vec<usize>> = vec![Vec::new(); slots];
    let mut rest = code;
    for place in 0..operators {
        match rest % (slots + 1) {
            0 => plan.host.push(place),
            slot => filled[slot - 1].push(place),
        }
        rest /= slots + 1;
    }
    let used = filled.into_iter().enumerate().filter(|(_, operators)| !operators.is_empty());
    plan.calls = used.map(|(slot, operators)| Call { device: slot / calls, operators }).collect();
    plan
}
