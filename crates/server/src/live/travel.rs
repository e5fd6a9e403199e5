//! What it takes to bring a model's weights to a device: measured, and the groups that are best for it.

use engine::{Device, EngineError, Program, Queue, Residency, Run};
use plan::transfer::Link;
use std::sync::Arc;
use std::time::Instant;
use vocab::{Bytes, Span};

/// The link to a device and how a model's weights best travel over it.
#[derive(Clone, Debug)]
pub struct Travel {
    /// Bandwidth of one transfer of all weights, bytes a second.
    pub bytes_per_s: f64,
    /// What a transfer costs beside its bytes.
    pub latency: Span,
    /// What a segment costs beside its time on the device when all are launched ahead.
    pub gap: Span,
    /// Ends of the groups, in bytes from the beginning, by the exact program of [`plan::transfer`].
    pub ends: Vec<Bytes>,
    /// When the last segment of a run is over that begins with the transfer, as foretold.
    pub finish: Span,
}

/// Times of each kind that are measured; medians count.
const TIMED: usize = 5;

/// Measures the link to `device` and what lies between segments of `program`, whose segments take `times`; leaves its weights
/// there. `None` where weights always lie beside programs, or there are none.
///
/// # Errors
/// When the device fails, or has no room for the weights.
pub fn measure_travel(
    device: &dyn Device,
    queue: &mut dyn Queue,
    program: &Arc<dyn Program>,
    times: &[Span],
) -> Result<Option<Travel>, EngineError> {
    let (Some(weights), needs) = (program.weights(), program.needs()) else { return Ok(None) };
    if weights.bytes() == Bytes(0) || needs.len() != times.len() {
        return Ok(None);
    }
    let gap = gap(device, queue, program)?;
    let Some((latency, bytes_per_s)) = link(&*weights, &needs)? else { return Ok(None) };
    let Ok(link) = Link::new(latency, bytes_per_s) else { return Ok(None) };
    let (ends, finish) = plan::transfer::travel(&needs, times, link, gap);
    Ok(Some(Travel { bytes_per_s, latency, gap, ends, finish }))
}

fn middle(mut times: Vec<Span>) -> Span {
    times.sort_unstable();
    times[times.len() / 2]
}

fn gap(device: &dyn Device, queue: &mut dyn Queue, program: &Arc<dyn Program>) -> Result<Span, EngineError> {
    let mut once = || {
        let inputs = program.inputs().iter().map(|spec| device.buffer(spec));
        let mut run = Run::new(program.clone(), inputs.collect::<Result<_, EngineError>>()?)?;
        let begin = Instant::now();
        while !run.is_launched() {
            run.launch(queue)?;
        }
        run.settle(queue)?;
        let whole = Span::from(begin.elapsed());
        let computed: Span = run.take_times().into_iter().sum();
        Ok(whole.saturating_sub(computed))
    };
    let beside = (0..TIMED).map(|_| once()).collect::<Result<Vec<_>, EngineError>>()?;
    Ok(Span::from_ns(middle(beside).ns() / program.segments().len() as u64))
}

/// Latency and bandwidth: the latter from a transfer of everything at once, the former from what one a segment takes longer.
fn link(weights: &dyn Residency, needs: &[Bytes]) -> Result<Option<(Span, f64)>, EngineError> {
    let timed = |groups: &[Bytes]| {
        let once = || {
            weights.evict(Bytes(0))?;
            let begin = Instant::now();
            weights.load(groups)?;
            while !weights.is_resident()? {
                std::hint::spin_loop();
            }
            Ok(Span::from(begin.elapsed()))
        };
        Ok(middle((0..TIMED).map(|_| once()).collect::<Result<Vec<_>, EngineError>>()?))
    };
    let (whole, parted) = (timed(&[weights.bytes()])?, timed(needs)?);
    if whole == Span::ZERO {
        return Ok(None);
    }
    let more = (needs.len() as u64 - 1).max(1);
    let latency = Span::from_ns(parted.saturating_sub(whole).ns() / more);
    Ok(Some((latency, weights.bytes().0 as f64 / whole.as_secs_f64())))
}
