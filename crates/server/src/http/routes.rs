//! Every route, and what a path, a method and a model's name lead to.

use super::body::discard;
use super::catalog::is_ready;
use super::infer::infer;
use super::respond::{Failure, json, reply};
use super::{Front, Inner};
use crate::kserve::{ModelMetadata, ModelReady, ServerLive, ServerMetadata, ServerReady};
use crate::live::{ModelInfo, Readiness};
use crate::metrics::ModelStatistics;
use crate::repository::config_json;
use axum::Router;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use prometheus_client::encoding::prometheus_text;
use serde::Serialize;
use std::sync::Arc;

/// The routes of KServe v2 and `/metrics`.
pub(super) fn router(front: Front) -> Router {
    let mut router = Router::new()
        .route("/v2/health/live", get(live))
        .route("/v2/health/ready", get(ready))
        .route("/v2", get(server))
        .route("/v2/models/stats", get(all_stats))
        .route("/v2/repository/index", post(index))
        .route("/metrics", get(metrics));
    for model in ["/v2/models/{name}", "/v2/models/{name}/versions/{version}"] {
        router = router
            .route(model, get(model_metadata))
            .route(&format!("{model}/ready"), get(model_ready))
            .route(&format!("{model}/config"), get(model_config))
            .route(&format!("{model}/stats"), get(model_stats))
            .route(&format!("{model}/infer"), post(model_infer));
    }
    finish(router, front)
}

/// Only `/metrics`, for a port of its own.
pub(super) fn metrics_router(front: Front) -> Router {
    finish(Router::new().route("/metrics", get(metrics)), front)
}

fn finish(router: Router<Front>, front: Front) -> Router {
    router
        .fallback(|| async { Failure::new(StatusCode::NOT_FOUND, "Not Found").into_response() })
        .method_not_allowed_fallback(|| async {
            Failure::new(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed").into_response()
        })
        .layer(middleware::from_fn_with_state(front.clone(), count))
        .with_state(front)
}

async fn count(State(front): State<Front>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    front.inner.metrics.responded(response.status().as_u16());
    response
}

async fn live() -> Response {
    json(StatusCode::OK, &ServerLive { live: true })
}

async fn ready(State(front): State<Front>) -> Response {
    let ready = front.inner.handle.readiness() == Readiness::Ready;
    json(if ready { StatusCode::OK } else { StatusCode::BAD_REQUEST }, &ServerReady { ready })
}

async fn server() -> Response {
    json(StatusCode::OK, &ServerMetadata::THIS)
}

async fn index(State(front): State<Front>) -> Response {
    json(StatusCode::OK, &front.inner.catalog.index(&front.inner.handle.models()))
}

async fn metrics(State(front): State<Front>) -> Response {
    let content_type = HeaderValue::from_static(prometheus_text::CONTENT_TYPE);
    reply(StatusCode::OK, content_type, front.inner.metrics.render())
}

#[derive(Serialize)]
struct Statistics {
    model_stats: Vec<ModelStatistics>,
}

async fn all_stats(State(front): State<Front>) -> Response {
    json(StatusCode::OK, &Statistics { model_stats: front.inner.metrics.stats(|_, _| true) })
}

/// A model's name and, where the path has one, its version.
type ModelPath = Result<Path<Vec<String>>, PathRejection>;

async fn model_stats(State(front): State<Front>, path: ModelPath) -> Response {
    with_model(&front.inner, path, |model, versioned| {
        let wanted = |name: &str, version| name == model.name && (!versioned || version == model.version);
        json(StatusCode::OK, &Statistics { model_stats: front.inner.metrics.stats(wanted) })
    })
}

async fn model_metadata(State(front): State<Front>, path: ModelPath) -> Response {
    with_model(&front.inner, path, |model, _| {
        let models = front.inner.handle.models();
        let versions: Vec<u64> =
            models.iter().filter(|other| other.name == model.name).map(|other| other.version).collect();
        json(StatusCode::OK, &ModelMetadata::new(&model, &versions, "onnxruntime_onnx"))
    })
}

async fn model_config(State(front): State<Front>, path: ModelPath) -> Response {
    with_model(&front.inner, path, |model, _| {
        json(StatusCode::OK, &config_json(&front.inner.catalog.get(&model).config, &model))
    })
}

async fn model_ready(State(front): State<Front>, path: ModelPath) -> Response {
    let not_ready = || Failure::new(StatusCode::BAD_REQUEST, "Model version not ready").into_response();
    match find(&front.inner, path) {
        Ok((model, _)) if is_ready(&model) && front.inner.handle.readiness() != Readiness::Draining => {
            json(StatusCode::OK, &ModelReady { name: model.name.clone(), ready: true })
        }
        _ => not_ready(),
    }
}

async fn model_infer(
    State(front): State<Front>,
    path: ModelPath,
    headers: HeaderMap,
    mut body: Body,
) -> Response {
    match find(&front.inner, path) {
        Ok((model, _)) => infer(&front, model, &headers, body).await,
        Err(failure) => {
            discard(&mut body).await;
            failure.into_response()
        }
    }
}

fn with_model(
    front: &Inner,
    path: ModelPath,
    reply: impl FnOnce(Arc<ModelInfo>, bool) -> Response,
) -> Response {
    match find(front, path) {
        Ok((model, versioned)) => reply(model, versioned),
        Err(failure) => failure.into_response(),
    }
}

/// The model a path names, and whether it names a version.
fn find(front: &Inner, path: ModelPath) -> Result<(Arc<ModelInfo>, bool), Failure> {
    let Ok(Path(parts)) = path else {
        return Err(Failure::new(StatusCode::BAD_REQUEST, "the path is not valid UTF-8"));
    };
    let (name, version) = (parts.first().map_or("", String::as_str), parts.get(1));
    let Some(newest) = front.handle.model(name, None) else {
        return Err(Failure::unknown_model(&shorten(name)));
    };
    let Some(version) = version else { return Ok((newest, false)) };
    // Only the one way a number is written names it: not +1, not 01.
    let number = version.parse().ok().filter(|number: &u64| number.to_string() == *version);
    let model = number.and_then(|number| front.handle.model(name, Some(number)));
    model.map(|model| (model, true)).ok_or_else(|| Failure::unknown_version(name, &shorten(version)))
}

/// The beginning of what a client sent, short enough to send back.
fn shorten(text: &str) -> String {
    text.chars().take(255).collect()
}
