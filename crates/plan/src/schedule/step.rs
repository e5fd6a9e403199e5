//! Steps, lanes and schedules, and how they are written: `0F3` is stage 0's forward pass of microbatch 3, `0>F3` sends its
//! output on, `1<F3` receives it.

use super::STEPS_MAX;
use std::fmt::{self, Display, Formatter};
use thiserror::Error;

/// Which way something goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pass {
    /// Activations, to later stages.
    Forward,
    /// Gradients, to earlier stages.
    Backward,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Act {
    /// The forward pass.
    Forward,
    /// The backward pass.
    Backward,
    /// The gradients of weights, where they are apart.
    Weight,
    /// Sends what the stage made.
    Send(Pass),
    /// Receives what the stage needs.
    Receive(Pass),
}

/// One step of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Step {
    /// The stage, from 0.
    pub stage: usize,
    /// What is done.
    pub act: Act,
    /// The microbatch, from 0.
    pub microbatch: usize,
}

impl Step {
    /// A step.
    #[must_use]
    pub const fn new(stage: usize, act: Act, microbatch: usize) -> Self {
        Self { stage, act, microbatch }
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let act = match self.act {
            Act::Forward => "F",
            Act::Backward => "B",
            Act::Weight => "W",
            Act::Send(Pass::Forward) => ">F",
            Act::Send(Pass::Backward) => ">B",
            Act::Receive(Pass::Forward) => "<F",
            Act::Receive(Pass::Backward) => "<B",
        };
        write!(f, "{}{act}{}", self.stage, self.microbatch)
    }
}

/// Who runs what in which order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Stages.
    pub stages: usize,
    /// Microbatches.
    pub microbatches: usize,
    /// Steps of each device, in order.
    pub lanes: Vec<Vec<Step>>,
}

/// Why a text is not a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", .0.join("\n"))]
pub struct ParseError(pub Vec<String>);

/// Faults that are told; the rest are counted.
const FAULTS_MAX: usize = 50;

/// Stages and microbatches that may be named.
const NUMBER_MAX: usize = 1 << 20;

impl Schedule {
    /// Reads a schedule: a line a device, steps between blanks; lines that start with `#` are not read.
    ///
    /// # Errors
    ///
    /// Every word that is no step, and too many steps.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut faults = Vec::new();
        let mut lanes = Vec::new();
        let mut steps = 0;
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let mut lane = Vec::new();
            for word in line.split_whitespace() {
                match step(word) {
                    Some(step) => lane.push(step),
                    None => faults
                        .push(format!("line {}: {word:?} is no step; write 0F3, 0>F3, 1<F3", number + 1)),
                }
            }
            steps += lane.len();
            lanes.push(lane);
        }
        if steps > STEPS_MAX {
            faults.push(format!("the schedule has {steps} steps, at most {STEPS_MAX} are simulated"));
        }
        if steps == 0 && faults.is_empty() {
            faults.push("the schedule has no step; write a line a device".to_owned());
        }
        let more = faults.len().saturating_sub(FAULTS_MAX);
        if more > 0 {
            faults.truncate(FAULTS_MAX);
            faults.push(format!("and {more} more"));
        }
        if !faults.is_empty() {
            return Err(ParseError(faults));
        }
        let all = || lanes.iter().flatten();
        let stages = all().map(|step| step.stage + 1).max().unwrap_or(0);
        let microbatches = all().map(|step| step.microbatch + 1).max().unwrap_or(0);
        Ok(Self { stages, microbatches, lanes })
    }

    /// Whether backward passes leave the gradients of weights to steps of their own.
    #[must_use]
    pub fn splits(&self) -> bool {
        self.lanes.iter().flatten().any(|step| step.act == Act::Weight)
    }

    /// The device that runs each stage's passes of each microbatch, stage by stage; the last one named where several do.
    pub(super) fn homes(&self) -> Vec<Vec<Option<usize>>> {
        let mut homes = vec![vec![None; self.microbatches]; self.stages];
        for (device, lane) in self.lanes.iter().enumerate() {
            for step in lane.iter().filter(|step| step.act == Act::Forward) {
                homes[step.stage][step.microbatch] = Some(device);
            }
        }
        homes
    }

    /// The schedule with every transfer between devices as steps: sent when made, received when needed. One that has
    /// such steps stays as it is.
    #[must_use]
    pub fn with_transfers(&self) -> Self {
        let moves = |step: &Step| matches!(step.act, Act::Send(_) | Act::Receive(_));
        if self.lanes.iter().flatten().any(moves) {
            return self.clone();
        }
        let homes = self.homes();
        let lanes = self.lanes.iter().enumerate().map(|(device, lane)| {
            let away = |stage: Option<usize>, microbatch: usize| {
                stage.and_then(|stage| homes.get(stage)?[microbatch]).is_some_and(|home| home != device)
            };
            let mut steps = Vec::with_capacity(lane.len() * 2);
            for &step in lane {
                let Step { stage, act, microbatch } = step;
                let (before, behind) = (stage.checked_sub(1), Some(stage + 1));
                let (pass, from, to) = match act {
                    Act::Forward => (Pass::Forward, before, behind),
                    Act::Backward => (Pass::Backward, behind, before),
                    _ => {
                        steps.push(step);
                        continue;
                    }
                };
                if away(from, microbatch) {
                    steps.push(Step::new(stage, Act::Receive(pass), microbatch));
                }
                steps.push(step);
                if away(to, microbatch) {
                    steps.push(Step::new(stage, Act::Send(pass), microbatch));
                }
            }
            steps
        });
        Self { lanes: lanes.collect(), ..*self }
    }
}

impl Display for Schedule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for lane in &self.lanes {
            let words: Vec<String> = lane.iter().map(ToString::to_string).collect();
            writeln!(f, "{}", words.join(" "))?;
        }
        Ok(())
    }
}

fn step(word: &str) -> Option<Step> {
    let at = word.find(|letter: char| !letter.is_ascii_digit())?;
    let (stage, rest) = word.split_at(at);
    let acts = [
        (">F", Act::Send(Pass::Forward)),
        (">B", Act::Send(Pass::Backward)),
        ("<F", Act::Receive(Pass::Forward)),
        ("<B", Act::Receive(Pass::Backward)),
        ("F", Act::Forward),
        ("B", Act::Backward),
        ("W", Act::Weight),
    ];
    let (act, microbatch) = acts.iter().find_map(|(name, act)| Some((*act, rest.strip_prefix(name)?)))?;
    let number = |text: &str| text.parse::<usize>().ok().filter(|number| *number < NUMBER_MAX);
    Some(Step::new(number(stage)?, act, number(microbatch)?))
}
