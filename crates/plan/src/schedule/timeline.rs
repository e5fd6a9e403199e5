//! Chrome/Perfetto timelines of a run, in the schema of the scheduler's own: a track a device, a counter of its memory, a
//! track a link and slot, and flows from the sending device to the receiving one. Open the file in ui.perfetto.dev.

use super::simulate::{Run, Transfer};
use super::step::Act;
use super::{StageCost, step::Step};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use vocab::Time;

const DEVICE_TRACKS: u32 = 1;
const LINK_TRACKS: u32 = 2;

/// Writes `run` on `sink`.
///
/// # Errors
///
/// When writing fails.
pub fn timeline<W: Write>(run: &Run, costs: &[StageCost], sink: W) -> std::io::Result<W> {
    let mut writer = Writer { sink, first: true };
    writer.sink.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n")?;
    for (pid, name) in [(DEVICE_TRACKS, "devices"), (LINK_TRACKS, "links")] {
        writer.emit(
            &json!({"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}}),
        )?;
    }
    for (tid, device) in run.devices.iter().enumerate() {
        writer.name(DEVICE_TRACKS, tid, &format!("device {tid}"))?;
        let splits = device.slices.iter().any(|slice| slice.step.act == Act::Weight);
        let mut stages: Vec<usize> = device.slices.iter().map(|slice| slice.step.stage).collect();
        stages.sort_unstable();
        stages.dedup();
        let mut bytes: u64 = stages.iter().map(|&stage| costs[stage].resident_bytes.0).sum();
        for slice in &device.slices {
            let step = slice.step;
            let args = json!({"stage": step.stage, "microbatch": step.microbatch});
            writer.begin(DEVICE_TRACKS, tid, slice.start, &step.to_string(), args)?;
            writer.end(DEVICE_TRACKS, tid, slice.end)?;
            let cost = &costs[step.stage];
            let late = if splits { cost.weight_stash_bytes.0.min(cost.activation_bytes.0) } else { 0 };
            let at = match step.act {
                Act::Forward => {
                    bytes = bytes.saturating_add(cost.activation_bytes.0);
                    slice.start
                }
                Act::Backward => {
                    bytes = bytes.saturating_sub(cost.activation_bytes.0 - late);
                    slice.end
                }
                _ => {
                    bytes = bytes.saturating_sub(late);
                    slice.end
                }
            };
            writer.emit(&json!({"ph": "C", "pid": DEVICE_TRACKS, "tid": tid, "ts": us(at),
                "name": format!("memory of device {tid}"), "args": {"bytes": bytes}}))?;
        }
    }
    links(run, &mut writer)?;
    writer.sink.write_all(b"\n]}\n")?;
    writer.sink.flush()?;
    Ok(writer.sink)
}

/// A track for every transfer that a link carries at a time.
fn links<W: Write>(run: &Run, writer: &mut Writer<W>) -> std::io::Result<()> {
    let mut tracks: BTreeMap<(usize, usize), Vec<(usize, Time)>> = BTreeMap::new();
    let mut named = 0;
    for transfer in &run.transfers {
        let Transfer { step, from, to, start, end, .. } = *transfer;
        let open = tracks.entry((from, to)).or_default();
        let tid = match open.iter_mut().find(|(_, free)| *free <= start) {
            Some((tid, free)) => {
                *free = end;
                *tid
            }
            None => {
                open.push((named, end));
                named += 1;
                writer.name(LINK_TRACKS, named - 1, &format!("{from} → {to}"))?;
                named - 1
            }
        };
        let waited = start.since(transfer.asked).ns();
        writer.begin(LINK_TRACKS, tid, start, &step.to_string(), json!({"waited_ns": waited}))?;
        writer.end(LINK_TRACKS, tid, end)?;
        for (phase, device, at) in [("s", from, transfer.asked), ("f", to, end)] {
            writer.flow(phase, device, at, step)?;
        }
    }
    Ok(())
}

struct Writer<W: Write> {
    sink: W,
    first: bool,
}

impl<W: Write> Writer<W> {
    fn name(&mut self, pid: u32, tid: usize, name: &str) -> std::io::Result<()> {
        self.emit(&json!({"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}}))
    }

    fn begin(&mut self, pid: u32, tid: usize, at: Time, name: &str, args: Value) -> std::io::Result<()> {
        self.emit(&json!({"ph": "B", "pid": pid, "tid": tid, "ts": us(at), "name": name, "args": args}))
    }

    fn end(&mut self, pid: u32, tid: usize, at: Time) -> std::io::Result<()> {
        self.emit(&json!({"ph": "E", "pid": pid, "tid": tid, "ts": us(at)}))
    }

    fn flow(&mut self, phase: &str, tid: usize, at: Time, step: Step) -> std::io::Result<()> {
        self.emit(
            &json!({"ph": phase, "bp": "e", "pid": DEVICE_TRACKS, "tid": tid, "ts": us(at), "cat": "transfer",
            "name": "transfer", "id": step.to_string()}),
        )
    }

    fn emit(&mut self, event: &Value) -> std::io::Result<()> {
        if !std::mem::take(&mut self.first) {
            self.sink.write_all(b",\n")?;
        }
        serde_json::to_writer(&mut self.sink, event)?;
        Ok(())
    }
}

/// Microseconds, as the format counts.
fn us(at: Time) -> f64 {
    at.ns() as f64 / 1e3
}
