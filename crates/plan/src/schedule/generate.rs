//! Makes schedules: GPipe, 1F1B, 1F1B-RR, interleaved, ZB-H1 and ZB-V.

use super::list::{Rules, list};
use super::simulate::{Settings, simulate};
use super::step::{Act, Schedule, Step};
use super::{STEPS_MAX, StageCost};
use thiserror::Error;

/// A way to order passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All forward passes, then all backward passes (GPipe).
    Gpipe,
    /// One forward pass, one backward pass, after as many forward passes as it takes to fill the pipeline; drained at
    /// the end (PipeDream-Flush, and Megatron's default).
    OneForwardOneBackward,
    /// The same with replicated stages, to which microbatches go in turn (PipeDream's 1F1B-RR).
    RoundRobin {
        /// Replicas of each stage.
        replicas: Vec<usize>,
    },
    /// Several stages a device, every so many stages apart (Megatron's interleaved schedule).
    Interleaved {
        /// Stages of each device.
        chunks: usize,
    },
    /// Backward passes split, gradients of weights in the gaps, at 1F1B's memory (Zero Bubble's ZB-H1).
    ZeroBubbleH1,
    /// Two stages a device, laid out as a V, so that first and last stage share a device (Zero Bubble's ZB-V).
    ZeroBubbleV,
}

/// Why there is no such schedule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ScheduleError {
    /// Nothing to schedule.
    #[error("a schedule needs a stage and a microbatch, there are {stages} and {microbatches}")]
    Empty {
        /// Stages.
        stages: usize,
        /// Microbatches.
        microbatches: usize,
    },
    /// More steps than are made.
    #[error(
        "{stages} stages of {microbatches} microbatches are too many steps, at most {STEPS_MAX} are made"
    )]
    TooLarge {
        /// Stages.
        stages: usize,
        /// Microbatches.
        microbatches: usize,
    },
    /// Stages cannot be dealt out.
    #[error("{stages} stages cannot be dealt out {each} a device; give a multiple")]
    Chunks {
        /// Stages.
        stages: usize,
        /// How many each device gets.
        each: usize,
    },
    /// The interleaved order needs whole rounds.
    #[error("{microbatches} microbatches are no multiple of {devices} devices, which interleaving needs")]
    Rounds {
        /// Microbatches.
        microbatches: usize,
        /// Devices.
        devices: usize,
    },
    /// Replicas of some stages only, or none.
    #[error("replicas are given for {given} stages, each at least 1; there are {stages} stages")]
    Replicas {
        /// Stages.
        stages: usize,
        /// Stages with replicas.
        given: usize,
    },
}

/// The schedule of `kind` for stages of these costs. Costs matter only where steps are fitted into gaps.
///
/// # Errors
///
/// Numbers of stages, microbatches or replicas that the kind cannot be made for.
pub fn generate(kind: &Kind, costs: &[StageCost], microbatches: usize) -> Result<Schedule, ScheduleError> {
    let stages = costs.len();
    if stages == 0 || microbatches == 0 {
        return Err(ScheduleError::Empty { stages, microbatches });
    }
    if stages.saturating_mul(microbatches).saturating_mul(7) > STEPS_MAX {
        return Err(ScheduleError::TooLarge { stages, microbatches });
    }
    let lanes = match kind {
        Kind::Gpipe => (0..stages).map(|stage| gpipe(stage, microbatches)).collect(),
        Kind::OneForwardOneBackward => {
            let own: Vec<usize> = (0..microbatches).collect();
            (0..stages).map(|stage| alternating(stage, stages - stage - 1, &own)).collect()
        }
        Kind::RoundRobin { replicas } => round_robin(stages, microbatches, replicas)?,
        Kind::Interleaved { chunks } => interleaved(stages, *chunks, microbatches)?,
        Kind::ZeroBubbleH1 => {
            let device_of: Vec<usize> = (0..stages).collect();
            let known = (0..stages).map(|stage| delayed(stage, stages, microbatches)).collect();
            best(costs, &device_of, microbatches, known)
        }
        Kind::ZeroBubbleV => {
            if !stages.is_multiple_of(2) {
                return Err(ScheduleError::Chunks { stages, each: 2 });
            }
            let device_of: Vec<usize> = (0..stages).map(|stage| stage.min(stages - 1 - stage)).collect();
            let known = (0..stages / 2).map(|device| folded(device, stages, microbatches)).collect();
            best(costs, &device_of, microbatches, known)
        }
    };
    Ok(Schedule { stages, microbatches, lanes })
}

fn gpipe(stage: usize, microbatches: usize) -> Vec<Step> {
    let all = |act| (0..microbatches).map(move |microbatch| Step::new(stage, act, microbatch));
    all(Act::Forward).chain(all(Act::Backward)).collect()
}

/// So many forward passes first, then one of each in turn, then the backward passes that are left.
fn alternating(stage: usize, ahead: usize, own: &[usize]) -> Vec<Step> {
    let ahead = ahead.min(own.len());
    let mut lane = Vec::with_capacity(own.len() * 2);
    lane.extend(own[..ahead].iter().map(|&microbatch| Step::new(stage, Act::Forward, microbatch)));
    for (place, &microbatch) in own.iter().enumerate() {
        if let Some(&next) = own.get(place + ahead) {
            lane.push(Step::new(stage, Act::Forward, next));
        }
        lane.push(Step::new(stage, Act::Backward, microbatch));
    }
    lane
}

/// Every replica takes its turn; it runs ahead by what the devices from here on hold in flight.
fn round_robin(
    stages: usize,
    microbatches: usize,
    replicas: &[usize],
) -> Result<Vec<Vec<Step>>, ScheduleError> {
    if replicas.len() != stages || replicas.contains(&0) {
        return Err(ScheduleError::Replicas { stages, given: replicas.len() });
    }
    let mut lanes = Vec::new();
    for (stage, &count) in replicas.iter().enumerate() {
        let from_here: usize = replicas[stage..].iter().sum();
        let in_flight = from_here.div_ceil(count);
        for replica in 0..count {
            let own: Vec<usize> = (replica..microbatches).step_by(count).collect();
            lanes.push(alternating(stage, in_flight - 1, &own));
        }
    }
    Ok(lanes)
}

fn interleaved(stages: usize, chunks: usize, microbatches: usize) -> Result<Vec<Vec<Step>>, ScheduleError> {
    if chunks == 0 || !stages.is_multiple_of(chunks) {
        return Err(ScheduleError::Chunks { stages, each: chunks });
    }
    let devices = stages / chunks;
    if !microbatches.is_multiple_of(devices) {
        return Err(ScheduleError::Rounds { microbatches, devices });
    }
    // The passes of a device are numbered: rounds of as many microbatches as devices, chunk after chunk.
    let all = microbatches * chunks;
    let pass = |device: usize, act: Act, number: usize| {
        let chunk = number / devices % chunks;
        let chunk = if act == Act::Forward { chunk } else { chunks - 1 - chunk };
        let microbatch = number / (devices * chunks) * devices + number % devices;
        Step::new(chunk * devices + device, act, microbatch)
    };
    let lane = |device: usize| {
        let ahead = if chunks == 1 {
            devices - device - 1
        } else {
            2 * (devices - device - 1) + (chunks - 1) * devices
        };
        let ahead = ahead.min(all);
        let mut lane: Vec<Step> = (0..ahead).map(|number| pass(device, Act::Forward, number)).collect();
        for number in 0..all {
            if number + ahead < all {
                lane.push(pass(device, Act::Forward, number + ahead));
            }
            lane.push(pass(device, Act::Backward, number));
        }
        lane
    };
    Ok((0..devices).map(lane).collect())
}

/// ZB-H1's lane: 1F1B, with the gradients of weights as many microbatches late as the stage's number, so that gradients
/// of inputs reach the first stage without waiting for them.
fn delayed(stage: usize, stages: usize, microbatches: usize) -> Vec<Step> {
    let own: Vec<usize> = (0..microbatches).collect();
    let mut lane = Vec::with_capacity(3 * microbatches);
    for step in alternating(stage, stages - stage - 1, &own) {
        lane.push(step);
        if let Some(late) = step.microbatch.checked_sub(stage).filter(|_| step.act == Act::Backward) {
            lane.push(Step::new(stage, Act::Weight, late));
        }
    }
    let left = microbatches.saturating_sub(stage)..microbatches;
    lane.extend(left.map(|microbatch| Step::new(stage, Act::Weight, microbatch)));
    lane
}

/// ZB-V's lane, made for enough microbatches to fill the pipeline; those that are not there are left out.
///
/// A device runs an early and a late stage. Early forward passes until the first late one can start; late and early ones
/// in turn; late ones, each with its backward pass; all four passes in turn; then backward passes, with the gradients of
/// weights put off as far as they must be.
fn folded(device: usize, stages: usize, microbatches: usize) -> Vec<Step> {
    let devices = stages / 2;
    let mut lane = Folded { stages: [device, stages - 1 - device], counts: [[0; 3]; 2], steps: Vec::new() };
    let all = microbatches.max(2 * devices - 1);
    let [early, late] = [0, 1];
    for _ in 0..2 * (devices - device) - 1 {
        lane.push(early, Act::Forward);
    }
    for _ in 0..device {
        lane.push(late, Act::Forward);
        lane.push(early, Act::Forward);
    }
    for _ in 0..devices - device {
        lane.push(late, Act::Forward);
        lane.push_both(late);
    }
    while lane.counts[late][0] < lane.counts[early][0] || lane.counts[early][0] < all {
        if lane.counts[early][0] < all {
            lane.push(early, Act::Forward);
        }
        lane.push_both(early);
        lane.push(late, Act::Forward);
        lane.push_both(late);
    }
    for _ in 0..device {
        lane.push(early, Act::Backward);
        lane.push(late, Act::Backward);
    }
    for _ in 0..devices - device {
        lane.push(early, Act::Backward);
        lane.push(early, Act::Weight);
    }
    for chunk in [late, early] {
        while lane.counts[chunk][2] < lane.counts[chunk][1] {
            lane.push(chunk, Act::Weight);
        }
    }
    lane.steps.retain(|step| step.microbatch < microbatches);
    lane.steps
}

/// A lane of two stages that grows pass by pass.
struct Folded {
    stages: [usize; 2],
    /// Forward, backward and weight passes so far, of each stage.
    counts: [[usize; 3]; 2],
    steps: Vec<Step>,
}

impl Folded {
    fn push(&mut self, chunk: usize, act: Act) {
        let place = match act {
            Act::Forward => 0,
            Act::Backward => 1,
            _ => 2,
        };
        self.steps.push(Step::new(self.stages[chunk], act, self.counts[chunk][place]));
        self.counts[chunk][place] += 1;
    }

    fn push_both(&mut self, chunk: usize) {
        self.push(chunk, Act::Backward);
        self.push(chunk, Act::Weight);
    }
}

/// The best of known lanes and those that several rules list: the shortest longest span of a device, then the shortest
/// makespan.
fn best(
    costs: &[StageCost],
    device_of: &[usize],
    microbatches: usize,
    known: Vec<Vec<Step>>,
) -> Vec<Vec<Step>> {
    let schedule = Schedule { stages: costs.len(), microbatches, lanes: known };
    let measured = simulate(&schedule, costs, Settings { slots: usize::MAX, ..Settings::default() }).ok();
    let value = measured.map(|run| (run.devices.iter().map(|device| device.span).max(), run.makespan));
    let listed = Rules::all().map(|rules| list(costs, device_of, microbatches, rules));
    let listed = listed.filter(|listed| listed.complete);
    let listed = listed.min_by_key(|listed| (listed.span, listed.makespan));
    match (listed, value) {
        (Some(listed), Some(value)) if (Some(listed.span), listed.makespan) < value => listed.lanes,
        (Some(listed), None) => listed.lanes,
        _ => schedule.lanes,
    }
}
