//! Chrome/Perfetto timelines, read out of turns: the live server's and the simulator's have one schema.
//!
//! One track a partition: a slice from the start (or resumption) of a run to its edge, with its segments inside it, so
//! that preemption shows as a gap. One track a model: an instant for each rejected, dropped or late request, with the
//! reason. One track a device: a bar for each load of weights from its decision to their arrival, an instant for each
//! eviction. Counters: waiting requests, memory reserved. Flows tie a parked run to its resumption. Open the file in
//! ui.perfetto.dev.

use super::{Act, Decision, Event, Moving, NodeWorld, Run};
use crate::World;
use crate::journal::Record;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use vocab::{Bytes, DeviceId, ModelId, PartitionId, RequestId, RunId, Span, Time};

const DEVICE_TRACKS: u32 = 1;
const MODEL_TRACKS: u32 = 2;
const MEMORY_TRACKS: u32 = 3;

/// Writes a timeline turn by turn.
#[derive(Debug)]
pub struct Timeline<W: Write> {
    sink: W,
    world: NodeWorld,
    began: BTreeMap<RunId, Time>,
    reserved: BTreeMap<DeviceId, Bytes>,
    first: bool,
}

impl<W: Write> Timeline<W> {
    /// Begins a timeline on `sink`.
    ///
    /// # Errors
    /// When writing fails.
    pub fn new(mut sink: W) -> std::io::Result<Self> {
        sink.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n")?;
        let (world, began, reserved) = (NodeWorld::new(), BTreeMap::new(), BTreeMap::new());
        let mut timeline = Self { sink, world, began, reserved, first: true };
        for (pid, name) in [(DEVICE_TRACKS, "partitions"), (MODEL_TRACKS, "models")] {
            timeline.name_process(pid, name)?;
        }
        Ok(timeline)
    }

    /// Adds one turn.
    ///
    /// # Errors
    /// When writing fails.
    pub fn turn(&mut self, record: &Record<Event, Decision>) -> std::io::Result<()> {
        let now = record.now;
        for event in &record.events {
            self.event(now, event)?;
            self.world.apply(now, event);
        }
        let _ = self.world.forced(now);
        for decision in &record.decisions {
            self.decision(now, decision)?;
            // The journal holds only accepted decisions, so this is accepted again.
            let _ = self.world.admit(now, decision);
        }
        self.world.settle();
        self.memory(now)?;
        let waiting = self.world.waiting_len();
        self.emit(&json!({"ph": "C", "pid": MODEL_TRACKS, "tid": 0, "ts": us(now), "name": "waiting",
            "args": {"requests": waiting}}))
    }

    /// Ends the timeline and hands its sink back.
    ///
    /// # Errors
    /// When writing fails.
    pub fn finish(mut self) -> std::io::Result<W> {
        self.sink.write_all(b"\n]}\n")?;
        self.sink.flush()?;
        Ok(self.sink)
    }

    fn event(&mut self, now: Time, event: &Event) -> std::io::Result<()> {
        match event {
            Event::PartitionAdded { partition, name } => {
                self.name_track(DEVICE_TRACKS, partition.0.into(), name)
            }
            Event::ModelAdded { spec } => self.name_track(MODEL_TRACKS, spec.id.0 + 1, &spec.name),
            Event::DeviceAdded { device, name, .. } => {
                self.name_process(MEMORY_TRACKS, "device memory")?;
                self.name_track(MEMORY_TRACKS, device.0.into(), name)
            }
            Event::GroupsArrived { model, device, groups } => {
                if self.loading(*model, *device) && *groups >= self.world.memory().group_count(*model) {
                    self.load(now, *model, *device, "e", json!({}))
                } else {
                    Ok(())
                }
            }
            Event::LoadFailed { model, device, why } if self.loading(*model, *device) => {
                self.load(now, *model, *device, "e", json!({"failed": why}))
            }
            Event::ModelEvicted { model, device } if self.loading(*model, *device) => {
                self.load(now, *model, *device, "e", json!({"failed": "the device lost it"}))
            }
            Event::RunStarted { run } | Event::RunResumed { run } => {
                self.began.insert(*run, now);
                if matches!(event, Event::RunResumed { .. }) { self.flow(now, *run, "f") } else { Ok(()) }
            }
            Event::RunParked { run, segments, .. } => {
                self.slice(now, *run, segments, "parked")?;
                self.flow(now, *run, "s")
            }
            Event::RunFinished { run, segments } => self.slice(now, *run, segments, "finished"),
            Event::RunAbandoned { run } => self.slice(now, *run, &[], "given up"),
            Event::RunFailed { run, .. } => self.slice(now, *run, &[], "failed"),
            _ => Ok(()),
        }
    }

    fn decision(&mut self, now: Time, decision: &Decision) -> std::io::Result<()> {
        let why = decision.why.to_string();
        match &decision.act {
            Act::Reject { request } => self.instant(now, *request, "rejected", &why),
            Act::Expire { request } => {
                let waits = self.world.runs().all(|run| !run.requests.contains(request));
                self.instant(now, *request, if waits { "dropped" } else { "late" }, &why)
            }
            Act::Park { run } => {
                let Some(partition) = self.world.run(*run).map(|run| run.partition) else { return Ok(()) };
                self.emit(
                    &json!({"ph": "i", "s": "t", "pid": DEVICE_TRACKS, "tid": partition.0, "ts": us(now),
                    "name": format!("park {run}"), "args": {"why": why}}),
                )
            }
            Act::Load { model, device } => {
                let bytes = self.world.memory().missing(*device, *model).0;
                self.load(now, *model, *device, "b", json!({"why": why, "bytes": bytes}))
            }
            Act::Evict { model, device, keep } => {
                let name = self.model_name(*model);
                self.emit(&json!({"ph": "i", "s": "t", "pid": MEMORY_TRACKS, "tid": device.0, "ts": us(now),
                    "name": format!("evict {name}"), "args": {"why": why, "groups_kept": keep}}))
            }
            _ => Ok(()),
        }
    }

    fn loading(&self, model: ModelId, device: DeviceId) -> bool {
        matches!(self.world.memory().residency(device, model).moving, Moving::Loading { .. })
    }

    /// Loads may overlap on one link, so they are bars of their own rather than nested slices.
    fn load(
        &mut self,
        now: Time,
        model: ModelId,
        device: DeviceId,
        phase: &str,
        args: Value,
    ) -> std::io::Result<()> {
        let name = format!("load {}", self.model_name(model));
        self.emit(
            &json!({"ph": phase, "pid": MEMORY_TRACKS, "tid": device.0, "ts": us(now), "cat": "load", "name": name,
            "id": format!("{model}/{device}"), "args": args}),
        )
    }

    /// The bytes reserved on each device, where they changed.
    fn memory(&mut self, now: Time) -> std::io::Result<()> {
        let devices: Vec<DeviceId> = self.world.memory().devices().collect();
        for device in devices {
            let bytes = self.world.memory().reserved(device);
            if self.reserved.insert(device, bytes) != Some(bytes) {
                self.emit(&json!({"ph": "C", "pid": MEMORY_TRACKS, "tid": device.0, "ts": us(now),
                    "name": format!("reserved on {device}"), "args": {"bytes": bytes.0}}))?;
            }
        }
        Ok(())
    }

    fn model_name(&self, model: ModelId) -> String {
        self.world.model(model).map_or_else(|| model.to_string(), |spec| spec.name.clone())
    }

    fn slice(&mut self, now: Time, id: RunId, segments: &[Span], end: &str) -> std::io::Result<()> {
        let Some(began) = self.began.remove(&id) else { return Ok(()) };
        let Some(run) = self.world.run(id).cloned() else { return Ok(()) };
        let model = self.model_name(run.model);
        let tid = run.partition;
        let requests: Vec<u64> = run.requests.iter().map(|request| request.0).collect();
        let args = json!({"run": id.0, "class": run.class.level(), "rows": run.rows, "requests": requests,
            "ended": end, "parks": run.parks});
        self.begin(began, tid, &format!("{model} ×{}", run.rows), args)?;
        self.segments(began, now, &run, segments)?;
        self.end(now, tid)
    }

    fn segments(&mut self, began: Time, ended: Time, run: &Run, segments: &[Span]) -> std::io::Result<()> {
        let mut at = began;
        for (number, span) in (run.next_segment..).zip(segments) {
            let end = (at + *span).min(ended);
            self.begin(at, run.partition, &format!("segment {number}"), json!({}))?;
            self.end(end, run.partition)?;
            at = end;
        }
        Ok(())
    }

    fn begin(&mut self, at: Time, tid: PartitionId, name: &str, args: Value) -> std::io::Result<()> {
        self.emit(
            &json!({"ph": "B", "pid": DEVICE_TRACKS, "tid": tid.0, "ts": us(at), "name": name, "args": args}),
        )
    }

    fn end(&mut self, at: Time, tid: PartitionId) -> std::io::Result<()> {
        self.emit(&json!({"ph": "E", "pid": DEVICE_TRACKS, "tid": tid.0, "ts": us(at)}))
    }

    fn flow(&mut self, now: Time, id: RunId, phase: &str) -> std::io::Result<()> {
        let Some(run) = self.world.run(id) else { return Ok(()) };
        let (tid, parks) = (run.partition.0, run.parks + u32::from(phase == "s"));
        let flow = format!("{id}/{parks}");
        self.emit(
            &json!({"ph": phase, "bp": "e", "pid": DEVICE_TRACKS, "tid": tid, "ts": us(now), "cat": "park",
            "name": "parked", "id": flow}),
        )
    }

    fn instant(&mut self, now: Time, id: RequestId, end: &str, why: &str) -> std::io::Result<()> {
        let Some(request) = self.world.request(id) else { return Ok(()) };
        let tid = request.model.0 + 1;
        self.emit(&json!({"ph": "i", "s": "t", "pid": MODEL_TRACKS, "tid": tid, "ts": us(now),
            "name": format!("{id} {end}"), "args": {"why": why, "class": request.class.level()}}))
    }

    fn name_process(&mut self, pid: u32, name: &str) -> std::io::Result<()> {
        self.emit(&json!({"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}}))
    }

    fn name_track(&mut self, pid: u32, tid: u32, name: &str) -> std::io::Result<()> {
        self.emit(&json!({"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}}))
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
