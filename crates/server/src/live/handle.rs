//! What a front end sees of the runtime: models, submissions and their outcomes. No protocol in here.

use graph::{HostTensor, Port};
use std::sync::Arc;
use tokio::sync::oneshot;
use vocab::{Class, RequestId, Span};

/// A model as clients see it.
#[derive(Clone, Debug)]
pub struct ModelInfo {
    /// Its name in the repository.
    pub name: String,
    /// Its version directory.
    pub version: u64,
    /// Whether it can be asked.
    pub state: ModelState,
    /// What it takes; `Dim::Batch` is the batch dimension, `Dim::Free` may be any size. Empty until loaded.
    pub inputs: Vec<Port>,
    /// What it gives. Empty until loaded.
    pub outputs: Vec<Port>,
    /// Most rows of one run; 0 when the model has no batch dimension (Triton's `max_batch_size`).
    pub batch_max: u32,
}

/// Whether a model can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelState {
    /// Being read and prepared.
    Loading,
    /// Serving.
    Ready,
    /// Not serving, and why.
    Unavailable(String),
}

/// One request, validated against the model's ports by the front end.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The model asked.
    pub model: Arc<ModelInfo>,
    /// One tensor an input, in the model's order.
    pub inputs: Vec<HostTensor>,
    /// Rows it brings: the size of the batch dimension, or 1 for a model without one.
    pub rows: u32,
    /// Strict class; `None` is the model's default.
    pub class: Option<Class>,
    /// The answer is due this long after arrival; `None` is the model's default.
    pub timeout: Option<Span>,
}

/// A submission under way. Dropping it before the outcome arrives cancels the request.
#[derive(Debug)]
pub struct Ticket {
    /// The request's number in journals and timelines.
    pub request: RequestId,
    pub(super) outcome: oneshot::Receiver<Outcome>,
    pub(super) cancel: Option<super::runtime::CancelOnDrop>,
    /// Set while its programs are being prepared, before the scheduler knows it.
    pub(super) preparing: Option<super::preparing::Preparing>,
}

impl Ticket {
    /// Waits for the request's one end.
    ///
    /// # Cancel safety
    /// Dropping the future drops the ticket and cancels the request.
    ///
    /// # Panics
    /// Outside a tokio runtime with time.
    pub async fn outcome(mut self) -> Outcome {
        let outcome = match self.preparing.take() {
            None => (&mut self.outcome).await,
            Some(preparing) => tokio::select! {
                biased;
                outcome = &mut self.outcome => outcome,
                why = preparing.expired() => Ok(Outcome::Dropped { why }),
            },
        };
        if let Some(cancel) = self.cancel.take() {
            cancel.disarm();
        }
        outcome.unwrap_or_else(|_| Outcome::Failed { why: "the runtime stopped before answering".into() })
    }
}

/// How a request ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Answered in time.
    Done(Answer),
    /// Refused before it ran: queue full, deadline out of reach, draining. `why` is a sentence for people.
    Rejected {
        /// The cause as a metrics label, for example `queue_full`.
        label: &'static str,
        /// The cause for people.
        why: String,
    },
    /// Its deadline passed while it waited.
    Dropped {
        /// How long it waited and for what.
        why: String,
    },
    /// Its deadline passed while it ran.
    Late {
        /// How far its run had come.
        why: String,
    },
    /// The device or the model failed.
    Failed {
        /// What failed.
        why: String,
    },
}

/// A request's outputs and where its time went.
#[derive(Clone, Debug)]
pub struct Answer {
    /// One tensor an output, in the model's order, this request's rows only.
    pub outputs: Vec<HostTensor>,
    /// Where its time went.
    pub timing: Timing,
    /// Rows of the whole run it was part of.
    pub batch_rows: u32,
}

/// Where a request's time went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// From arrival to the start of its run.
    pub queue: Span,
    /// Copying inputs to the device.
    pub input: Span,
    /// Running, pauses included.
    pub compute: Span,
    /// Copying outputs back.
    pub output: Span,
    /// Times its run was parked for others.
    pub parks: u32,
}

/// Why a submission was not taken at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The model is not ready.
    #[error("model {name:?} is not ready: {why}")]
    NotReady {
        /// The model.
        name: String,
        /// Why.
        why: String,
    },
    /// A shape the model cannot take (a free dimension out of its range, too many distinct shapes).
    #[error("model {name:?} cannot take these shapes: {why}")]
    Shape {
        /// The model.
        name: String,
        /// Why.
        why: String,
    },
    /// More requests are in flight than the runtime was given room for.
    #[error("Exceeds maximum queue size: {limit} requests are in flight; retry later")]
    Full {
        /// The bound.
        limit: usize,
    },
    /// The inputs of requests in flight fill the memory set aside for them.
    #[error("Exceeds maximum queue size: inputs of requests in flight fill {limit}; retry later")]
    FullBytes {
        /// The bound.
        limit: vocab::Bytes,
    },
    /// The server is shutting down.
    #[error("the server is draining and takes no new requests; retry on another replica")]
    Draining,
}

/// Whether the server should receive traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Every model that is going to load has loaded.
    Ready,
    /// Models are still loading.
    Loading,
    /// Shutting down.
    Draining,
}

/// The runtime, as front ends hold it. Cheap to clone.
#[derive(Clone)]
pub struct Handle(pub(super) Arc<super::runtime::Shared>);

impl Handle {
    /// Every model of the repository, by name then version.
    #[must_use]
    pub fn models(&self) -> Vec<Arc<ModelInfo>> {
        self.0.models()
    }

    /// One model; the highest version when `version` is `None`.
    #[must_use]
    pub fn model(&self, name: &str, version: Option<u64>) -> Option<Arc<ModelInfo>> {
        self.0.model(name, version)
    }

    /// Hands a request to the scheduler. Never blocks.
    ///
    /// # Errors
    /// When the request cannot even be queued; nothing was started then.
    pub fn submit(&self, submission: Submission) -> Result<Ticket, SubmitError> {
        self.0.submit(submission)
    }

    /// Whether the server should receive traffic.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.0.readiness()
    }

    /// Stops taking requests; those in flight go on. Returns at once; `in_flight` tells when it is over.
    pub fn drain(&self) {
        self.0.drain();
    }

    /// Requests taken and not yet ended.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.0.in_flight()
    }
}
