//! A runtime that serves networks of the zoo, and clients that ask it at given times.

use crate::spine::live::inputs;
use anyhow::Context as _;
use engine::Device;
use graph::zoo::{self, ZooOptions};
use graph::{ImportLimits, SegmentOptions};
use sched::node::policy::Choice;
use server::live::{
    Calibration, Handle, Limits, Observer, Outcome, Readiness, Runtime, RuntimeOptions, Shelf, Submission,
};
use server::metrics::Metrics;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vocab::{Bytes, Span};

/// Requests a second that one client sends at most; more are sent by several.
const CLIENT_MAX: f64 = 2_000.0;

/// Writes a network of the zoo with its configuration into the repository `folder`.
pub(crate) fn model(
    folder: &Path,
    name: &str,
    batch_max: u32,
    (key, value): (&str, u64),
) -> anyhow::Result<()> {
    let version = folder.join(name).join("1");
    // Two processes may write the same repository: files appear whole.
    let own = |name: &str| folder.join(format!("{name}.{}", std::process::id()));
    if !version.join("model.onnx").exists() {
        std::fs::create_dir_all(&version)?;
        zoo::write(name, &own(name), &ZooOptions::default())?;
        std::fs::rename(own(name), version.join("model.onnx"))?;
    }
    let config = format!(
        "max_batch_size: {batch_max}\nparameters {{ key: \"{key}\" value: {{ string_value: \"{value}\" }} }}\n"
    );
    std::fs::write(own("config"), config)?;
    Ok(std::fs::rename(own("config"), folder.join(name).join("config.pbtxt"))?)
}

/// Serves the repository `folder` on these devices and waits until every model is ready or known not to be. Models that lie on
/// the shelf are not prepared again.
pub(crate) fn start(
    devices: &[Arc<dyn Device>],
    folder: &Path,
    observers: Vec<Observer>,
    choice: &Choice,
    shelf: &Arc<Shelf>,
) -> anyhow::Result<Runtime> {
    let repository = server::repository::scan(folder)?;
    let options = RuntimeOptions {
        devices: devices.to_vec(),
        policy: choice.clone(),
        observers,
        limits: Limits { in_flight: 1 << 16, in_flight_bytes: 32 << 30, ..Limits::default() },
        import: ImportLimits::default(),
        batch_default: 1,
        segments: SegmentOptions::default(),
        calibration: Calibration { repeats: 5, patience: Span::from_ms(5_000) },
        staging: Bytes(1 << 30),
        rules: Vec::new(),
        shelf: Some(shelf.clone()),
    };
    let runtime = Runtime::start(options, repository.entries, Arc::new(Metrics::new()))?;
    while runtime.handle().readiness() != Readiness::Ready {
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(runtime)
}

/// Sends a request of one row at each of these times, in seconds from now, ascending, from as many threads as the rate
/// asks for, and waits for all answers. The latency of each that was answered.
pub(super) fn send(
    (handle, tokio): (&Handle, &tokio::runtime::Handle),
    name: &str,
    times: &[f64],
) -> anyhow::Result<Vec<Span>> {
    let model = handle.model(name, None).with_context(|| format!("{name} is not served"))?;
    let inputs = inputs(&model, 1)?;
    let rate = times.len() as f64 / times.last().copied().unwrap_or(1.0).max(1e-3);
    // Few clients: their number is small.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
    let clients = (rate / CLIENT_MAX).ceil().clamp(1.0, 16.0) as usize;
    let begin = Instant::now();
    let client = |first: usize| {
        let mut waiting = Vec::new();
        for at in times.iter().skip(first).step_by(clients) {
            let due = begin + Duration::from_secs_f64(*at);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let submission = Submission {
                model: model.clone(),
                inputs: inputs.clone(),
                rows: 1,
                class: None,
                timeout: None,
            };
            let sent = Instant::now();
            let ticket = handle.submit(submission)?;
            waiting.push(tokio.spawn(async move {
                matches!(ticket.outcome().await, Outcome::Done(_)).then(|| Span::from(sent.elapsed()))
            }));
        }
        let mut spans = Vec::with_capacity(waiting.len());
        for one in waiting {
            spans.extend(tokio.block_on(one)?);
        }
        anyhow::Ok(spans)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|first| scope.spawn(move || client(first))).collect();
        let mut spans = Vec::new();
        for thread in threads {
            spans.extend(thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a client panicked")))?);
        }
        Ok(spans)
    })
}
