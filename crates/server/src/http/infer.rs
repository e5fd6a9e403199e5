//! One infer request: body to call, call to runtime, outcome to reply.

use super::body::{self, Held};
use super::catalog::{Known, is_ready};
use super::listen::Stop;
use super::respond::{Failure, reply, unanswered};
use super::{Front, Inner};
use crate::kserve::{self, Call, CallError, Encoded, Form, Limits, Reply};
use crate::live::{ModelInfo, ModelState, Outcome, Ticket};
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use graph::HostTensor;
use std::sync::Arc;

/// Bodies and answers above this are decoded and written off the network threads.
const INLINE_BYTES: usize = 256 << 10;

/// The reply's header that tells the request's number in journals, for `raddle explain`.
const REQUEST_NUMBER: &str = "raddle-request";

/// Answers one infer request. Dropping the future cancels the request in the runtime.
pub(super) async fn infer(front: &Front, model: Arc<ModelInfo>, headers: &HeaderMap, body: Body) -> Response {
    match answer(&front.inner, model, headers, body).await {
        Ok(response) => response,
        Err(failure) => failure.into_response(),
    }
}

async fn answer(
    front: &Inner,
    model: Arc<ModelInfo>,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    let held = body::read(front, headers, body).await?;
    let json_len = header_length(headers)?;
    if !is_ready(&model) {
        return Err(not_ready(&model));
    }
    let known = front.catalog.get(&model);
    let limits = Limits { tensor_bytes: front.limits.body_bytes };
    let (call, _held) = decode(held, json_len, model, known.clone(), limits).await?;
    let ticket = front.handle.submit(call.submission)?;
    let number = HeaderValue::from(ticket.request.0);
    let settled = settle(front, ticket, call.reply, known).await;
    let mut response = settled.unwrap_or_else(Failure::into_response);
    response.headers_mut().insert(REQUEST_NUMBER, number);
    Ok(response)
}

/// Waits for a request's end and tells it.
async fn settle(front: &Inner, ticket: Ticket, wanted: Reply, known: Known) -> Result<Response, Failure> {
    let mut stop = front.stop.clone();
    let outcome = tokio::select! {
        outcome = ticket.outcome() => outcome,
        _ = stop.wait_for(|stop| *stop == Stop::Now) => return Err(stopped()),
    };
    if let Some(failure) = unanswered(&outcome) {
        return Err(failure);
    }
    let Outcome::Done(answer) = outcome else { unreachable!("every other outcome is a failure") };
    let encoded = encode(wanted, answer.outputs, known).await?;
    Ok(written(encoded))
}

/// The value of `Inference-Header-Content-Length`, when there.
fn header_length(headers: &HeaderMap) -> Result<Option<usize>, Failure> {
    let Some(value) = headers.get(kserve::HEADER_LENGTH) else { return Ok(None) };
    let digits = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let length = digits.and_then(|digits| digits.parse().ok());
    length.map(Some).ok_or_else(|| CallError::HeaderLengthText.into())
}

fn not_ready(model: &ModelInfo) -> Failure {
    let why = match &model.state {
        ModelState::Unavailable(why) => why.as_str(),
        ModelState::Loading => "it is loading",
        ModelState::Ready => "",
    };
    let error = format!(
        "Request for unknown model: '{}' version {} is not at ready state: {why}",
        model.name, model.version
    );
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, error)
}

fn stopped() -> Failure {
    let error = "the server stopped before the answer was ready; retry on another replica";
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, error)
}

/// Reads the body as a call. Returns the body's place in memory too, to be kept until the request ends.
async fn decode(
    held: Held,
    json_len: Option<usize>,
    model: Arc<ModelInfo>,
    known: Known,
    limits: Limits,
) -> Result<(Call, Held), Failure> {
    let large = held.bytes.len() > INLINE_BYTES;
    let work = move || {
        let asked = match json_len {
            Some(0) => kserve::parse_raw(&held.bytes, &model)?,
            json_len => kserve::parse(&held.bytes, json_len)?,
        };
        let call = asked.check(&model, &known.terms, limits)?;
        Ok::<_, CallError>((call, held))
    };
    let decoded = if large { off_thread(work).await? } else { work() };
    let (call, mut held) = decoded?;
    // The tensors are copies: only the place of the body is still needed.
    held.bytes = Bytes::new();
    Ok((call, held))
}

async fn encode(wanted: Reply, outputs: Vec<HostTensor>, known: Known) -> Result<Encoded, Failure> {
    let bytes: usize = outputs.iter().map(|output| output.data().len()).sum();
    let json = wanted.outputs.iter().any(|output| output.form == Form::Json || output.classes > 0);
    let work = move || kserve::encode(&wanted, &outputs, &known.labels);
    let encoded = if json && bytes > INLINE_BYTES { off_thread(work).await? } else { work() };
    Ok(encoded?)
}

async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "a request could not be translated");
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the request could not be translated; this is a bug")
    })
}

fn written(encoded: Encoded) -> Response {
    let Some(json_len) = encoded.json_len else {
        return reply(StatusCode::OK, HeaderValue::from_static("application/json"), encoded.body);
    };
    let octets = HeaderValue::from_static("application/octet-stream");
    let mut response = reply(StatusCode::OK, octets, encoded.body);
    response.headers_mut().insert(kserve::HEADER_LENGTH, HeaderValue::from(json_len));
    response
}
