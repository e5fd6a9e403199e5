//! What is wrong with a schedule before it runs: passes that are missing or doubled, and transfers that do not meet.

use super::step::{Act, Pass, Schedule, Step};
use std::collections::BTreeMap;
use thiserror::Error;

/// Faults of one schedule that are told.
const FAULTS_MAX: usize = 50;

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ScheduleFault {
    /// A pass is not run once.
    #[error("{step} is run {times} times, not once")]
    Times {
        /// The pass.
        step: Step,
        /// How often it is run.
        times: usize,
    },
    /// The passes of a stage and microbatch are on several devices.
    #[error("{step} is on device {device}, its forward pass on device {home}; activations do not follow it")]
    Apart {
        /// The pass.
        step: Step,
        /// Where it is.
        device: usize,
        /// Where its forward pass is.
        home: usize,
    },
    /// Something is sent that nobody receives, or received that nobody sends.
    #[error("{step} on device {device} has no counterpart on device {peer}")]
    Alone {
        /// The step.
        step: Step,
        /// Where it is.
        device: usize,
        /// Where its counterpart should be.
        peer: usize,
    },
    /// Two devices do not agree on the order of transfers, where order is all that matches them.
    #[error("device {from} sends {sent} to device {to} when that expects {expected}; reorder one of the two")]
    Order {
        /// The sender.
        from: usize,
        /// The receiver.
        to: usize,
        /// The sending step.
        sent: Step,
        /// The receiving step that it meets.
        expected: Step,
    },
    /// More faults than are worth telling.
    #[error("and {0} more")]
    More(usize),
}

/// What makes `schedule` impossible. Orders of transfers count only when `in_order`.
#[must_use]
pub fn check(schedule: &Schedule, in_order: bool) -> Vec<ScheduleFault> {
    let mut faults = Vec::new();
    passes(schedule, &mut faults);
    if faults.is_empty() {
        transfers(schedule, in_order, &mut faults);
    }
    let more = faults.len().saturating_sub(FAULTS_MAX);
    if more > 0 {
        faults.truncate(FAULTS_MAX);
        faults.push(ScheduleFault::More(more));
    }
    faults
}

fn passes(schedule: &Schedule, faults: &mut Vec<ScheduleFault>) {
    let homes = schedule.homes();
    let mut times: BTreeMap<Step, usize> = BTreeMap::new();
    for (device, lane) in schedule.lanes.iter().enumerate() {
        for &step in lane {
            if !matches!(step.act, Act::Forward | Act::Backward | Act::Weight) {
                continue;
            }
            *times.entry(step).or_insert(0) += 1;
            if let Some(home) = homes[step.stage][step.microbatch].filter(|home| *home != device) {
                faults.push(ScheduleFault::Apart { step, device, home });
            }
        }
    }
    let mut acts = vec![Act::Forward, Act::Backward];
    if schedule.splits() {
        acts.push(Act::Weight);
    }
    for stage in 0..schedule.stages {
        for microbatch in 0..schedule.microbatches {
            for &act in &acts {
                let step = Step::new(stage, act, microbatch);
                let times = times.get(&step).copied().unwrap_or(0);
                if times != 1 {
                    faults.push(ScheduleFault::Times { step, times });
                }
            }
        }
    }
}

/// The step at the other end of a transfer; `None` for steps that transfer nothing and at the ends of the pipeline.
pub(super) fn counterpart(step: Step, stages: usize) -> Option<Step> {
    let Step { stage, act, microbatch } = step;
    let (stage, act) = match act {
        Act::Send(Pass::Forward) => (stage + 1, Act::Receive(Pass::Forward)),
        Act::Send(Pass::Backward) => (stage.checked_sub(1)?, Act::Receive(Pass::Backward)),
        Act::Receive(Pass::Forward) => (stage.checked_sub(1)?, Act::Send(Pass::Forward)),
        Act::Receive(Pass::Backward) => (stage + 1, Act::Send(Pass::Backward)),
        _ => return None,
    };
    (stage < stages).then_some(Step::new(stage, act, microbatch))
}

fn transfers(schedule: &Schedule, in_order: bool, faults: &mut Vec<ScheduleFault>) {
    let homes = schedule.homes();
    let home = |step: Step| homes[step.stage][step.microbatch];
    let mut channels: BTreeMap<(usize, usize), [Vec<Step>; 2]> = BTreeMap::new();
    let mut met: BTreeMap<Step, usize> = BTreeMap::new();
    for lane in &schedule.lanes {
        for &step in lane {
            *met.entry(step).or_insert(0) += 1;
        }
    }
    for stage in 1..schedule.stages {
        let apart = |microbatch: &usize| homes[stage - 1][*microbatch] != homes[stage][*microbatch];
        for microbatch in (0..schedule.microbatches).filter(apart) {
            for (stage, act) in [
                (stage - 1, Act::Send(Pass::Forward)),
                (stage, Act::Receive(Pass::Forward)),
                (stage, Act::Send(Pass::Backward)),
                (stage - 1, Act::Receive(Pass::Backward)),
            ] {
                let step = Step::new(stage, act, microbatch);
                let times = met.get(&step).copied().unwrap_or(0);
                if times != 1 {
                    faults.push(ScheduleFault::Times { step, times });
                }
            }
        }
    }
    for (device, lane) in schedule.lanes.iter().enumerate() {
        for &step in lane.iter().filter(|step| matches!(step.act, Act::Send(_) | Act::Receive(_))) {
            let other = counterpart(step, schedule.stages);
            let peer = other.and_then(home);
            match peer.filter(|peer| *peer != device) {
                None => faults.push(ScheduleFault::Alone { step, device, peer: peer.unwrap_or(device) }),
                Some(peer) => match step.act {
                    Act::Send(_) => channels.entry((device, peer)).or_default()[0].push(step),
                    _ => channels.entry((peer, device)).or_default()[1].push(step),
                },
            }
        }
    }
    if !in_order || !faults.is_empty() {
        return;
    }
    for ((from, to), [sent, expected]) in channels {
        let met = sent
            .iter()
            .zip(&expected)
            .find(|(sent, met)| counterpart(**sent, schedule.stages) != Some(**met));
        if let Some((&sent, &expected)) = met {
            faults.push(ScheduleFault::Order { from, to, sent, expected });
        }
    }
}
