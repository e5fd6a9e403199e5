//! Choices for a node, each with the reason a user can read.

use serde::{Deserialize, Serialize};
use std::fmt;
use vocab::{Bytes, Class, DeviceId, ModelId, PartitionId, RequestId, RunId, Span, Time};

/// A choice and its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// What to do.
    pub act: Act,
    /// Why.
    pub why: Why,
}

/// What to do, in the imperative.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    /// Begin a run of these requests on a partition.
    Start {
        /// A number from [`super::NodeWorld::next_run`] on.
        run: RunId,
        /// The model of all the requests.
        model: ModelId,
        /// Where.
        partition: PartitionId,
        /// The batch, in row order.
        requests: Vec<RequestId>,
        /// When it may begin; the driver refuses it outside.
        window: Window,
    },
    /// Stop a run at its next segment edge and keep its state.
    Park {
        /// The run.
        run: RunId,
    },
    /// Go on with a parked run where it stopped.
    Resume {
        /// The run.
        run: RunId,
    },
    /// A run decided or resumed in the same turn parks by itself before this segment: the end of a stage.
    Until {
        /// The run.
        run: RunId,
        /// The first segment that it does not begin.
        segment: u32,
    },
    /// A parked run will go on on another partition of its device.
    Move {
        /// The run.
        run: RunId,
        /// Where.
        partition: PartitionId,
    },
    /// Stop a run at its next segment edge and forget it.
    Abandon {
        /// The run.
        run: RunId,
    },
    /// Refuse a waiting request.
    Reject {
        /// The request.
        request: RequestId,
    },
    /// Bring the missing groups of a model's weights to a device. Memory is reserved with the decision; runs of the model
    /// may begin at once, and wait on the device for the groups they need.
    Load {
        /// The model.
        model: ModelId,
        /// Where to.
        device: DeviceId,
    },
    /// Forget a model's weights on a device but for the first groups. A device carries loads and evictions out in the
    /// order of their decisions.
    Evict {
        /// The model.
        model: ModelId,
        /// Where.
        device: DeviceId,
        /// Leading groups that stay.
        keep: u32,
    },
    /// Tell the client that its deadline has passed.
    Expire {
        /// The request.
        request: RequestId,
    },
}

/// The earliest and latest time at which an action may begin (Clockwork, OSDI 2020).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Not before.
    pub earliest: Time,
    /// Not after.
    pub latest: Time,
}

impl Window {
    /// From `now` on, for ever.
    #[must_use]
    pub const fn from(now: Time) -> Self {
        Self { earliest: now, latest: Time::FOREVER }
    }
}

/// Why something was decided. `Display` is a sentence for people, [`Why::label`] a word for metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    /// It had waited longest.
    Oldest,
    /// Its deadline came first.
    EarliestDeadline,
    /// It was its model's turn.
    RoundRobin,
    /// It was the most urgent work that fits.
    MostUrgent {
        /// Class after ageing.
        class: Class,
    },
    /// A model used up its time slice and others wait.
    SliceUsed {
        /// The slice.
        slice: Span,
    },
    /// Work of a higher class waits.
    Preempted {
        /// The request it makes room for.
        by: RequestId,
        /// That request's class.
        class: Class,
    },
    /// Even if begun at its latest chance it could not be answered in time.
    CannotMeet {
        /// Believed time until its answer, work ahead included.
        needs: Span,
        /// Time left until its deadline.
        left: Span,
    },
    /// Its model's queue is full.
    QueueFull {
        /// The bound.
        limit: u32,
    },
    /// Its model is not, or no longer, served.
    NoModel {
        /// The model.
        model: ModelId,
    },
    /// Its deadline passed.
    DeadlinePassed {
        /// Time since its arrival.
        waited: Span,
    },
    /// Nobody waits for the run's answers any more.
    NobodyWaits,
    /// It had waited longest in the strictest class that waits.
    FirstInClass {
        /// The class.
        class: Class,
    },
    /// A request is about to run and needs the model's weights.
    NeededBy {
        /// The request.
        request: RequestId,
    },
    /// A request runs next and will need the model's weights.
    NeededNext {
        /// The request.
        request: RequestId,
    },
    /// Another model needs the memory, and this one was used least recently.
    RoomFor {
        /// The other model.
        model: ModelId,
        /// Bytes it needs.
        needs: Bytes,
        /// Bytes that were free.
        free: Bytes,
    },
    /// It had a place in its device's timetable.
    Reserved {
        /// Units of its part.
        units: u32,
    },
    /// Units were idle, and its model had been served least of those that fit.
    Idle {
        /// Units of its part.
        units: u32,
    },
    /// Of all combinations of ready work, the one it is part of fills most of the device.
    Fills {
        /// Units of its part.
        units: u32,
    },
    /// Its model's own part was free.
    OwnPart {
        /// Units of its part.
        units: u32,
    },
    /// Its stage came first on the context it was given to.
    Stage {
        /// The stage, from 0.
        stage: u32,
        /// When it should be over.
        due: Time,
    },
    /// Its batch gives most rows a unit and second of those that wait.
    MostRows {
        /// Units of its part.
        units: u32,
    },
    /// The work of stricter classes and of what was admitted before leaves no room for it.
    NoCapacity {
        /// Utilisation of the context that has most room, in thousandths, with it.
        milli: u64,
    },
    /// Its model fits on no device.
    TooLarge {
        /// Bytes of the model's weights.
        needs: Bytes,
        /// Bytes of the largest device.
        memory: Bytes,
    },
}

impl Why {
    /// One word, stable, for metrics labels.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Oldest => "oldest",
            Self::EarliestDeadline => "earliest_deadline",
            Self::RoundRobin => "round_robin",
            Self::MostUrgent { .. } => "most_urgent",
            Self::SliceUsed { .. } => "slice_used",
            Self::Preempted { .. } => "preempted",
            Self::CannotMeet { .. } => "cannot_meet_deadline",
            Self::QueueFull { .. } => "queue_full",
            Self::NoModel { .. } => "no_model",
            Self::DeadlinePassed { .. } => "deadline_passed",
            Self::NobodyWaits => "nobody_waits",
            Self::FirstInClass { .. } => "first_in_class",
            Self::NeededBy { .. } => "needed_now",
            Self::NeededNext { .. } => "needed_next",
            Self::RoomFor { .. } => "room_for_another",
            Self::TooLarge { .. } => "model_too_large",
            Self::Reserved { .. } => "reserved",
            Self::Idle { .. } => "idle_units",
            Self::Fills { .. } => "fills",
            Self::OwnPart { .. } => "own_part",
            Self::Stage { .. } => "stage",
            Self::MostRows { .. } => "most_rows",
            Self::NoCapacity { .. } => "no_capacity",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Oldest => f.write_str("it had waited longest"),
            Self::EarliestDeadline => f.write_str("its deadline came first"),
            Self::RoundRobin => f.write_str("it was its model's turn"),
            Self::MostUrgent { class } => write!(f, "it was the most urgent work ({class} after ageing)"),
            Self::SliceUsed { slice } => write!(f, "its model used its slice of {slice} and others wait"),
            Self::Preempted { by, class } => write!(f, "{by} of {class} waits"),
            Self::CannotMeet { needs, left } => {
                write!(f, "its answer needs {needs} with the work ahead of it, its deadline leaves {left}")
            }
            Self::QueueFull { limit } => write!(f, "its model's queue is full: {limit} wait already"),
            Self::NoModel { model } => write!(f, "model {model} is not served"),
            Self::DeadlinePassed { waited } => write!(f, "its deadline passed {waited} after its arrival"),
            Self::NobodyWaits => f.write_str("nobody waits for its answers any more"),
            Self::FirstInClass { class } => write!(f, "it came first in {class}, the strictest that waits"),
            Self::NeededBy { request } => write!(f, "{request} is about to run"),
            Self::NeededNext { request } => write!(f, "{request} runs next"),
            Self::RoomFor { model, needs, free } => {
                write!(f, "model {model} needs {needs}, {free} were free, and it was used least recently")
            }
            Self::Reserved { units } => write!(f, "the timetable gives it {units} units now"),
            Self::Idle { units } => write!(f, "{units} units were idle and its model had been served least"),
            Self::Fills { units } => write!(f, "it and others fill most of the device, {units} units of it"),
            Self::OwnPart { units } => write!(f, "the {units} units of its model were free"),
            Self::Stage { stage, due } => write!(f, "stage {stage}, due at {due}, came first on its context"),
            Self::MostRows { units } => write!(f, "its batch makes most of {units} units"),
            Self::NoCapacity { milli } => {
                let (whole, tenth) = (milli / 10, milli % 10);
                write!(
                    f,
                    "beside what was admitted before it would use {whole}.{tenth} % of the context with most room"
                )
            }
            Self::TooLarge { needs, memory } => {
                write!(
                    f,
                    "its model needs {needs}, the largest device has {memory}; free some or serve it elsewhere"
                )
            }
        }
    }
}
