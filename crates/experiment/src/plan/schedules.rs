//! Bubbles and memory of schedules with equal stages, against their closed forms.

use crate::bars::Bars;
use crate::host;
use plan::schedule::{Kind, Settings, StageCost, generate, simulate};
use std::path::Path;
use vocab::{Bytes, Span};

const DEVICES: u64 = 8;
const MICROBATCHES: u64 = 24;
const PASS_MS: u64 = 10;

pub(super) fn run(folder: &Path, bars: &mut Bars) -> anyhow::Result<()> {
    let (p, m, t) = (DEVICES, MICROBATCHES, PASS_MS);
    let work = 3 * m * t;
    // What each device idles between its first and its last step, by the closed form, and stages of a device.
    let kinds = [
        ("gpipe", Kind::Gpipe, 1, 3 * (p - 1) * t),
        ("1f1b", Kind::OneForwardOneBackward, 1, 3 * (p - 1) * t),
        ("interleaved, 2 stages a device", Kind::Interleaved { chunks: 2 }, 2, 3 * (p - 1) * t / 2),
        ("zb-h1", Kind::ZeroBubbleH1, 1, (p - 1) * t),
        ("zb-v", Kind::ZeroBubbleV, 2, 0),
    ];
    let mut exact = 0u32;
    let mut lines = Vec::new();
    for (name, kind, stages, expected) in &kinds {
        // Stages of one device share its work.
        let pass = Span::from_ms(t / stages);
        let cost = StageCost {
            forward: pass,
            backward: pass,
            weight: pass,
            activation_bytes: Bytes(2 / stages),
            weight_stash_bytes: Bytes(2 / stages),
            ..StageCost::default()
        };
        let costs = vec![cost; usize::try_from(p * stages)?];
        let schedule = generate(kind, &costs, usize::try_from(m)?)?;
        let run = simulate(&schedule, &costs, Settings::default())?;
        let span = run.devices.iter().map(|device| device.span).max().unwrap_or(Span::ZERO);
        let idle = span.saturating_sub(Span::from_ms(work));
        exact += u32::from(idle == Span::from_ms(*expected));
        let peak = run.devices.iter().map(|device| device.peak_bytes.0).max().unwrap_or(0) as f64 / 2.0;
        bars.note(&format!(
            "{name}: idle {:.1} ms of {:.1} ms (closed form {expected} ms), at most {peak} microbatches' activations",
            idle.as_ms_f64(),
            span.as_ms_f64()
        ));
        lines.push(format!("{name},{},{},{expected},{peak}", span.as_ms_f64(), idle.as_ms_f64()));
    }
    bars.at_least("schedules whose bubble is the closed form", f64::from(exact), kinds.len() as f64, "");
    host::csv(
        &folder.join("schedules.csv"),
        "schedule,longest_span_ms,idle_ms,closed_form_ms,peak_microbatches",
        lines.into_iter(),
    )
}
