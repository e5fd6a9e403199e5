//! Decisions: which of them the world accepts, and what it books with each.

use super::{Live, NodeWorld, Place, Refusal};
use crate::node::{Act, Run, RunState, Window};
use vocab::{Class, IdMap, ModelId, PartitionId, RequestId, RunId, Span, Time};

impl NodeWorld {
    pub(super) fn admit_act(&mut self, now: Time, act: &Act) -> Result<(), Refusal> {
        match act {
            Act::Start { run, model, partition, requests, window } => {
                self.admit_start(now, *run, *model, *partition, requests, *window)
            }
            Act::Park { run } => {
                let run = self.runs.get_mut(run).ok_or(Refusal::NoRun(*run))?;
                let RunState::Running { since } = run.state else {
                    return Err(Refusal::State { run: run.id, state: run.state });
                };
                run.state = RunState::Parking { since };
                Ok(())
            }
            Act::Resume { run } => self.admit_resume(now, *run),
            Act::Until { run, segment } => self.admit_until(*run, *segment),
            Act::Move { run, partition } => self.admit_move(*run, *partition),
            Act::Abandon { run } => self.admit_abandon(*run),
            Act::Reject { request } => {
                let live = self.requests.get(request).ok_or(Refusal::NoRequest(*request))?;
                if matches!(live.place, Place::In(_)) {
                    return Err(Refusal::NotWaiting(*request));
                }
                self.end_request(*request);
                self.ends.rejected += 1;
                Ok(())
            }
            Act::Expire { request } => self.admit_expire(now, *request),
            Act::Load { model, device } => {
                let spec = self.model(*model).ok_or(Refusal::NoModel(*model))?;
                let name = spec.name.clone();
                Ok(self.memory.load(now, *device, *model, &name)?)
            }
            Act::Evict { model, device, keep } => {
                let user = self.user(*device, *model);
                Ok(self.memory.evict(*device, *model, *keep, user)?)
            }
        }
    }

    fn admit_start(
        &mut self,
        now: Time,
        id: RunId,
        model_id: ModelId,
        partition: PartitionId,
        requests: &[RequestId],
        window: Window,
    ) -> Result<(), Refusal> {
        let place = self.partitions.get(&partition).ok_or(Refusal::NoPartition(partition))?;
        if let Some(holder) = place.holder {
            return Err(Refusal::Busy { partition, holder });
        }
        self.has_room(model_id, partition)?;
        let model = self.models.get_mut(model_id.index()).and_then(Option::as_mut);
        let model = model.ok_or(Refusal::NoModel(model_id))?;
        if id < self.next_run {
            return Err(Refusal::RunNumber(id));
        }
        if window.latest < window.earliest || window.latest < now {
            return Err(Refusal::Window);
        }
        let batch = check_batch(&self.requests, model_id, requests, model.spec.batch_max)?;
        self.memory.allows(partition, model_id)?;
        let device = self.memory.device_of(partition);
        let cold = device.is_some_and(|device| !self.memory.is_resident(device, model_id));
        if let Some(device) = device {
            self.memory.used(now, device, model_id);
        }
        let run = Run {
            id,
            model: model_id,
            partition,
            requests: requests.to_vec(),
            wanted: u32::try_from(requests.len()).expect("a batch has at most batch_max requests"),
            rows: batch.rows,
            class: batch.class,
            arrival: batch.arrival,
            deadline: batch.deadline,
            state: RunState::Ordered,
            next_segment: 0,
            busy: Span::ZERO,
            waited: Span::ZERO,
            parks: 0,
            cold,
            until: None,
            moved: false,
        };
        for request in requests {
            let live = self.requests.get_mut(request).expect("the batch was just checked");
            model.queue.remove(&live.request);
            live.place = Place::In(id);
        }
        self.hold(partition, id);
        self.next_run = RunId(id.0 + 1);
        self.runs.insert(id, run);
        Ok(())
    }

    /// Whether the partition's units are free and no constraint is in the way.
    fn has_room(&self, model: ModelId, partition: PartitionId) -> Result<(), Refusal> {
        if self.space.is_plain() { Ok(()) } else { Ok(self.space.allows(model, partition, &self.held())?) }
    }

    fn hold(&mut self, partition: PartitionId, run: RunId) {
        self.partitions.get_mut(&partition).expect("it was just looked up").holder = Some(run);
    }

    fn admit_resume(&mut self, now: Time, id: RunId) -> Result<(), Refusal> {
        let run = self.runs.get(&id).ok_or(Refusal::NoRun(id))?;
        let RunState::Parked { since } = run.state else {
            return Err(Refusal::State { run: id, state: run.state });
        };
        let (model, partition) = (run.model, run.partition);
        let place = self.partitions.get(&partition).ok_or(Refusal::NoPartition(partition))?;
        if let Some(holder) = place.holder {
            return Err(Refusal::Busy { partition, holder });
        }
        self.has_room(model, partition)?;
        self.hold(partition, id);
        let run = self.runs.get_mut(&id).expect("it was just looked up");
        run.waited += now.since(since);
        run.state = RunState::Resuming;
        Ok(())
    }

    fn admit_until(&mut self, id: RunId, segment: u32) -> Result<(), Refusal> {
        let run = self.runs.get_mut(&id).ok_or(Refusal::NoRun(id))?;
        if !matches!(run.state, RunState::Ordered | RunState::Resuming) {
            return Err(Refusal::State { run: id, state: run.state });
        }
        let model = self.models[run.model.index()].as_ref().expect("a run's model was added");
        if segment <= run.next_segment || segment >= model.costs.segments() {
            return Err(Refusal::NoSegment { run: id, segment });
        }
        run.until = Some(segment);
        Ok(())
    }

    fn admit_move(&mut self, id: RunId, partition: PartitionId) -> Result<(), Refusal> {
        if !self.partitions.contains_key(&partition) {
            return Err(Refusal::NoPartition(partition));
        }
        let run = self.runs.get_mut(&id).ok_or(Refusal::NoRun(id))?;
        if !matches!(run.state, RunState::Parked { .. }) {
            return Err(Refusal::State { run: id, state: run.state });
        }
        // Its state lies in the memory of its device.
        if !self.space.reaches(run.partition, partition) {
            return Err(Refusal::OtherDevice { run: id, partition });
        }
        run.partition = partition;
        run.moved = true;
        Ok(())
    }

    fn admit_abandon(&mut self, id: RunId) -> Result<(), Refusal> {
        let run = self.runs.get_mut(&id).ok_or(Refusal::NoRun(id))?;
        if matches!(run.state, RunState::Abandoning { .. }) {
            return Err(Refusal::State { run: id, state: run.state });
        }
        run.state = RunState::Abandoning { held: run.occupies() };
        Ok(())
    }

    fn admit_expire(&mut self, now: Time, id: RequestId) -> Result<(), Refusal> {
        let live = self.requests.get(&id).ok_or(Refusal::NoRequest(id))?;
        if live.request.deadline.is_none_or(|deadline| deadline > now) {
            return Err(Refusal::NotDue(id));
        }
        let ran = matches!(live.place, Place::In(_));
        self.end_request(id);
        if ran {
            self.ends.late += 1;
        } else {
            self.ends.dropped += 1;
        }
        Ok(())
    }
}

struct Batch {
    rows: u32,
    class: Class,
    arrival: Time,
    deadline: Option<Time>,
}

fn check_batch(
    live: &IdMap<RequestId, Live>,
    model: ModelId,
    requests: &[RequestId],
    batch_max: u32,
) -> Result<Batch, Refusal> {
    let mut batch = Batch { rows: 0, class: Class::FIRST, arrival: Time::FOREVER, deadline: None };
    for (place, id) in requests.iter().enumerate() {
        let Live { request, place: at } = live.get(id).ok_or(Refusal::NoRequest(*id))?;
        // Batches are short, so looking back is quicker than a set.
        if requests[..place].contains(id) {
            return Err(Refusal::BadBatch);
        }
        if *at != Place::Waiting {
            return Err(Refusal::NotWaiting(*id));
        }
        if request.model != model {
            return Err(Refusal::WrongModel { request: *id, wants: request.model });
        }
        batch.rows = batch.rows.saturating_add(request.rows);
        batch.class = if place == 0 { request.class } else { batch.class.min(request.class) };
        batch.arrival = batch.arrival.min(request.arrival);
        batch.deadline = batch.deadline.into_iter().chain(request.deadline).min();
    }
    if requests.is_empty() {
        return Err(Refusal::BadBatch);
    }
    // A single request may bring more rows than batch_max only if the front end let it in; it runs alone.
    if batch.rows > batch_max && requests.len() > 1 {
        return Err(Refusal::TooManyRows { rows: batch.rows, batch_max });
    }
    Ok(batch)
}
