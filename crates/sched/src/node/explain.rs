//! Why a request waited, was refused, or was stopped for others: its story, read out of the journal's turns.

use super::{Act, Decision, Event, Moving, NodeWorld, Run, SpaceRefusal};
use crate::World;
use crate::journal::Record;
use std::fmt::Write;
use vocab::{DeviceId, ModelId, PartitionId, RequestId, RunId, Time};

/// Tells `request`'s story from the turns of a journal, one line an incident; `None` when it never arrived.
pub fn explain(
    turns: impl IntoIterator<Item = Record<Event, Decision>>,
    request: RequestId,
) -> Option<String> {
    let mut world = NodeWorld::new();
    let mut story = Story::new(request);
    for record in turns {
        for event in &record.events {
            story.before(record.now, &world, event);
            world.apply(record.now, event);
            story.after(record.now, &world, event);
        }
        let _ = world.forced(record.now);
        for decision in &record.decisions {
            story.decided(record.now, &world, decision);
            // The journal holds only accepted decisions, so this is accepted again.
            let _ = world.admit(record.now, decision);
        }
        world.settle();
        story.waiting(record.now, &world);
    }
    story.finish()
}

struct Story {
    request: RequestId,
    arrival: Option<Time>,
    model: Option<ModelId>,
    run: Option<RunId>,
    latest_wait: String,
    text: String,
}

impl Story {
    const fn new(request: RequestId) -> Self {
        Self {
            request,
            arrival: None,
            model: None,
            run: None,
            latest_wait: String::new(),
            text: String::new(),
        }
    }

    fn line(&mut self, now: Time, text: &str) {
        let at = now.since(self.arrival.unwrap_or(now));
        writeln!(self.text, "{:<12}  {text}", format!("+{at}")).expect("writing to a string succeeds");
    }

    fn before(&mut self, now: Time, world: &NodeWorld, event: &Event) {
        let ours = |run: &RunId| Some(*run) == self.run;
        match event {
            Event::RunFinished { run, .. } if ours(run) => {
                let left =
                    if world.request(self.request).is_some() { "answered" } else { "finished without it" };
                self.line(now, &format!("{run} finished: {left}"));
                self.run = None;
            }
            Event::RunFailed { run, why } if ours(run) => {
                self.line(now, &format!("{run} failed: {why}"));
                self.run = None;
            }
            Event::RunAbandoned { run } if ours(run) => {
                self.line(now, &format!("{run} was given up"));
                self.run = None;
            }
            Event::RunRefused { run } if ours(run) => {
                self.line(now, &format!("{run} missed its window on the device; the request waits again"));
                self.run = None;
            }
            Event::RequestCancelled { request } if *request == self.request => {
                self.line(now, "the client left");
            }
            _ => {}
        }
    }

    fn after(&mut self, now: Time, world: &NodeWorld, event: &Event) {
        let ours = |run: &RunId| Some(*run) == self.run;
        match event {
            Event::RequestArrived { request } if request.id == self.request => {
                self.arrival = Some(now);
                self.model = Some(request.model);
                let model = world.model(request.model).map_or("an unknown model", |spec| spec.name.as_str());
                // Its model may promise what it does not ask for.
                let deadline = world.request(request.id).map_or(request.deadline, |known| known.deadline);
                let due = deadline.map_or("no deadline".into(), |at| format!("due in {}", at.since(now)));
                let rows = request.rows;
                self.line(now, &format!("arrived for {model}: {}, {rows} row(s), {due}", request.class));
            }
            Event::RunStarted { run } if ours(run) => self.line(now, &format!("{run} began on the device")),
            Event::RunParked { run, next_segment, .. } if ours(run) => {
                self.line(now, &format!("{run} parked before segment {next_segment}"));
            }
            Event::RunResumed { run } if ours(run) => self.line(now, &format!("{run} goes on")),
            Event::GroupsArrived { model, device, .. }
                if self.concerns(world, *model) && world.memory().is_resident(*device, *model) =>
            {
                self.line(now, &format!("all its weights are on {}", device_name(world, *device)));
            }
            Event::LoadFailed { model, device, why } if self.concerns(world, *model) => {
                self.line(now, &format!("its weights did not reach {}: {why}", device_name(world, *device)));
            }
            _ => {}
        }
    }

    /// Whether weights of `model` are those of a request that has not ended.
    fn concerns(&self, world: &NodeWorld, model: ModelId) -> bool {
        self.model == Some(model) && world.request(self.request).is_some()
    }

    fn decided(&mut self, now: Time, world: &NodeWorld, decision: &Decision) {
        let why = &decision.why;
        match &decision.act {
            Act::Start { run, partition, requests, .. } if requests.contains(&self.request) => {
                self.run = Some(*run);
                let place = name(world, *partition);
                let others = requests.len() - 1;
                self.line(now, &format!("chosen for {run} on {place} with {others} other(s): {why}"));
            }
            Act::Park { run } if Some(*run) == self.run => {
                self.line(now, &format!("{run} asked to park: {why}"))
            }
            Act::Resume { run } if Some(*run) == self.run => self.line(now, &format!("{run} resumed: {why}")),
            Act::Until { run, segment } if Some(*run) == self.run => {
                self.line(now, &format!("{run} will stop before segment {segment}: {why}"));
            }
            Act::Move { run, partition } if Some(*run) == self.run => {
                self.line(now, &format!("{run} goes on on {}: {why}", name(world, *partition)));
            }
            Act::Abandon { run } if Some(*run) == self.run => {
                self.line(now, &format!("{run} given up: {why}"))
            }
            Act::Reject { request } if *request == self.request => {
                self.line(now, &format!("rejected: {why}"))
            }
            Act::Load { model, device } if self.concerns(world, *model) => {
                let (bytes, place) = (world.memory().missing(*device, *model), device_name(world, *device));
                self.line(now, &format!("{bytes} of its weights sent to {place}: {why}"));
            }
            Act::Evict { model, device, keep } if self.concerns(world, *model) => {
                let stays = if *keep > 0 { format!(" but for {keep} group(s)") } else { String::new() };
                let place = device_name(world, *device);
                self.line(now, &format!("its weights leave {place}{stays}: {why}"));
            }
            Act::Expire { request } if *request == self.request => {
                let what = if self.run.is_some() { "late" } else { "dropped" };
                self.line(now, &format!("{what}: {why}"));
            }
            _ => {}
        }
    }

    /// What it waits for, said once a change.
    fn waiting(&mut self, now: Time, world: &NodeWorld) {
        if self.arrival.is_none() || world.request(self.request).is_none() {
            return;
        }
        let parked = self.run.and_then(|run| world.run(run)).is_some_and(|run| !run.occupies());
        if self.run.is_some() && !parked {
            self.latest_wait.clear();
            return;
        }
        let holder = |(partition, run): (PartitionId, Option<&Run>)| match run {
            None => format!("{} {}", name(world, partition), self.idle_for(world, partition)),
            Some(run) => {
                let model = world.model(run.model).map_or("?", |spec| spec.name.as_str());
                format!("{} runs {} of {model} ({})", name(world, partition), run.id, run.class)
            }
        };
        let wait = self
            .parts_of(world)
            .unwrap_or_else(|| world.partitions().map(holder).collect::<Vec<_>>().join(", "));
        if wait != self.latest_wait {
            self.line(now, &format!("waits: {wait}"));
            self.latest_wait = wait;
        }
    }

    /// Where devices are shared in parts: what keeps the request's model from those that nobody holds.
    fn parts_of(&self, world: &NodeWorld) -> Option<String> {
        let model = self.model.filter(|_| !world.space().is_plain())?;
        let named = |id: ModelId| world.model(id).map_or_else(|| id.to_string(), |spec| spec.name.clone());
        let held = world.held();
        let asked = || world.idle().map(|idle| world.space().allows(model, idle, &held));
        if asked().any(|allowed| allowed.is_ok()) {
            return Some(
                "parts are open to it, and the policy keeps them for others or for a fuller batch".into(),
            );
        }
        let rule = asked().filter_map(Result::err).find_map(|refusal| match refusal {
            SpaceRefusal::Apart { beside, .. } => {
                Some(format!("{} runs, and it is never beside that", named(beside)))
            }
            SpaceRefusal::Floor { owner, units } => {
                Some(format!("a part of {units} units is kept for {}", named(owner)))
            }
            SpaceRefusal::Overlap { .. } => None,
        });
        Some(rule.unwrap_or_else(|| "others hold the units of every part".into()))
    }

    /// What an idle partition does for the request's model.
    fn idle_for(&self, world: &NodeWorld, partition: PartitionId) -> &'static str {
        let place = self.model.zip(world.memory().device_of(partition));
        match place.map(|(model, device)| world.memory().residency(device, model).moving) {
            Some(Moving::Loading { .. }) => "receives its weights",
            Some(Moving::Evicting) => "gives its weights' memory back first",
            _ => "is idle",
        }
    }

    fn finish(self) -> Option<String> {
        self.arrival.is_some().then_some(self.text)
    }
}

fn device_name(world: &NodeWorld, device: DeviceId) -> String {
    world.memory().name(device).map_or_else(|| device.to_string(), str::to_owned)
}

fn name(world: &NodeWorld, partition: PartitionId) -> String {
    world.partition_name(partition).map_or_else(|| partition.to_string(), str::to_owned)
}
