//! Replies: JSON bodies, `{"error": …}` with the status that belongs to it, and how each end of a request is told.

use crate::kserve::{CallError, ReplyError, Trouble};
use crate::live::{Outcome, SubmitError};
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;

/// A failure on its way to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    pub(super) error: String,
}

impl Failure {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into() }
    }

    pub(super) fn unknown_model(name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("Request for unknown model: '{name}' is not found"))
    }

    pub(super) fn unknown_version(name: &str, version: &str) -> Self {
        let error = format!("Request for unknown model: '{name}' version {version} is not found");
        Self::new(StatusCode::NOT_FOUND, error)
    }

    pub(super) fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Reply {
            error: String,
        }
        json(self.status, &Reply { error: self.error })
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self::new(status(Trouble::Invalid), error.to_string())
    }
}

impl From<ReplyError> for Failure {
    fn from(error: ReplyError) -> Self {
        Self::new(status(error.trouble()), error.to_string())
    }
}

impl From<SubmitError> for Failure {
    fn from(error: SubmitError) -> Self {
        let trouble = match error {
            SubmitError::Shape { .. } => Trouble::Invalid,
            SubmitError::NotReady { .. }
            | SubmitError::Full { .. }
            | SubmitError::FullBytes { .. }
            | SubmitError::Draining => Trouble::Unavailable,
        };
        Self::new(status(trouble), error.to_string())
    }
}

/// How an unanswered request is told; `None` for an answered one.
pub(super) fn unanswered(outcome: &Outcome) -> Option<Failure> {
    let (trouble, error) = match outcome {
        Outcome::Done(_) => return None,
        Outcome::Rejected { label: "shape", why } => (Trouble::Invalid, why.clone()),
        Outcome::Rejected { label, why } => (Trouble::Unavailable, rejected(label, why)),
        Outcome::Dropped { why } | Outcome::Late { why } => {
            (Trouble::Unavailable, format!("Request timeout expired: {why}"))
        }
        Outcome::Failed { why } => (Trouble::Internal, why.clone()),
    };
    Some(Failure::new(status(trouble), error))
}

/// Triton's words where it has some for the same cause, then ours.
fn rejected(label: &str, why: &str) -> String {
    let theirs = match label {
        "queue_full" => "Exceeds maximum queue size",
        "cannot_meet_deadline" | "deadline_passed" => "Request timeout expired",
        _ => return why.to_owned(),
    };
    if why.starts_with(theirs) { why.to_owned() } else { format!("{theirs}: {why}") }
}

pub(super) const fn status(trouble: Trouble) -> StatusCode {
    match trouble {
        Trouble::Invalid => StatusCode::BAD_REQUEST,
        Trouble::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Trouble::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// A JSON reply.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let body = serde_json::to_vec(value).expect("replies are plain structs and lists");
    reply(status, HeaderValue::from_static("application/json"), body)
}

/// A reply with a body.
pub(super) fn reply(status: StatusCode, content_type: HeaderValue, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}
