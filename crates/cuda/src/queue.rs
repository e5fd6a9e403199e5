//! A partition's queue: graphs launched on a stream, with an event on either side of each.

use crate::buffer::mismatch;
use crate::device::Shared;
use crate::driver::{DriverError, Event, GreenContext, Stream};
use crate::gate::Gate;
use crate::program::{CudaProgram, CudaState};
use engine::{EngineError, Poll, Program, Queue, State, Ticket};
use std::collections::VecDeque;
use std::sync::Arc;
use vocab::{PartitionId, Span};

pub(crate) struct CudaQueue {
    shared: Arc<Shared>,
    partition: PartitionId,
    stream: Stream,
    latest: Ticket,
    /// Launches whose times may still be asked for, oldest first.
    launches: VecDeque<Launched>,
    spare: Vec<Arc<Event>>,
    gate: Option<Arc<Gate>>,
}

struct Launched {
    ticket: Ticket,
    segment: String,
    begin: Arc<Event>,
    end: Arc<Event>,
}

/// Launches remembered: more than a run ever has in flight.
const REMEMBERED: usize = 256;

impl CudaQueue {
    /// On the whole device, or on a part of it.
    pub(crate) fn open(
        shared: &Arc<Shared>,
        partition: PartitionId,
        part: Option<&Arc<GreenContext>>,
    ) -> Result<Self, DriverError> {
        let stream = part.map_or_else(|| Stream::new(&shared.gpu, 0), Stream::on)?;
        let (latest, launches) = (Ticket(0), VecDeque::new());
        Ok(Self {
            shared: shared.clone(),
            partition,
            stream,
            latest,
            launches,
            spare: Vec::new(),
            gate: None,
        })
    }

    /// With a gate before each launch.
    pub(crate) fn behind(mut self, gate: Arc<Gate>) -> Self {
        self.gate = Some(gate);
        self
    }

    fn event(&mut self) -> Result<Arc<Event>, DriverError> {
        // An event still waited for by somebody is not used again.
        while let Some(event) = self.spare.pop() {
            if Arc::strong_count(&event) == 1 {
                return Ok(event);
            }
        }
        Ok(Arc::new(Event::timing(&self.shared.gpu)?))
    }

    fn enqueue(
        &mut self,
        program: &CudaProgram,
        segment: usize,
        state: &mut CudaState,
    ) -> Result<(Arc<Event>, Arc<Event>), EngineError> {
        let failed = |error: DriverError| program.failed(segment, &error);
        let slot = program.slot(state, self.partition)?;
        let graphs = program.graphs(slot, &self.stream)?;
        let mut uploaded = false;
        if program.weights.loaded() < program.needs(segment) {
            // Inputs travel first: they are small, and the first segment needs them.
            if segment == 0 {
                program.upload(state, slot, &self.stream).map_err(failed)?;
                let there = Event::ordering(&self.shared.gpu).map_err(failed)?;
                there.record(&self.stream).and_then(|()| self.shared.copies.wait(&there)).map_err(failed)?;
                uploaded = true;
            }
            let loaded = program.weights.load(&program.travel(), &self.shared.copies);
            loaded.map_err(|error| program.failed(segment, &error))?;
        }
        let arrival = program
            .weights
            .arrival(program.needs(segment))
            .map_err(|error| program.failed(segment, &error))?;
        let (begin, end) = (self.event().map_err(failed)?, self.event().map_err(failed)?);
        if segment == 0 && !uploaded {
            program.upload(state, slot, &self.stream).map_err(failed)?;
        }
        if let Some(arrival) = arrival {
            self.stream.wait(&arrival).map_err(failed)?;
        }
        if let Some(gate) = &self.gate {
            gate.guard(&self.stream).map_err(failed)?;
        }
        begin.record(&self.stream).map_err(failed)?;
        graphs[segment].launch(&self.stream).map_err(failed)?;
        if segment + 1 == graphs.len() {
            program.download(state, slot, &self.stream).map_err(failed)?;
        }
        end.record(&self.stream).map_err(failed)?;
        Ok((begin, end))
    }

    fn find(&self, ticket: Ticket) -> Result<&Launched, EngineError> {
        let found = self.launches.iter().find(|launched| launched.ticket == ticket);
        found.ok_or(EngineError::Order { act: "wait for an old launch", state: "past it" })
    }

    fn span(launched: &Launched) -> Result<Span, EngineError> {
        let failed = |error: DriverError| EngineError::Execute {
            segment: launched.segment.clone(),
            why: error.to_string(),
        };
        // A segment quicker than the clock still takes some time.
        Ok(launched.end.since(&launched.begin).map_err(failed)?.max(Span::from_ns(1)))
    }
}

impl Queue for CudaQueue {
    fn partition(&self) -> PartitionId {
        self.partition
    }

    fn launch(
        &mut self,
        program: &dyn Program,
        segment: usize,
        state: &mut dyn State,
    ) -> Result<Ticket, EngineError> {
        let foreign = || mismatch("program", "one prepared by this device", "one of another backend");
        let program = program.as_any().downcast_ref::<CudaProgram>().ok_or_else(foreign)?;
        let state = state.as_any().downcast_mut::<CudaState>().ok_or_else(foreign)?;
        let (begin, end) = self.enqueue(program, segment, state)?;
        state.latest = Some(end.clone());
        state.launched = segment + 1;
        self.latest = Ticket(self.latest.0 + 1);
        let segment = program.segments()[segment].name.clone();
        self.launches.push_back(Launched { ticket: self.latest, segment, begin, end });
        if self.launches.len() > REMEMBERED
            && let Some(old) = self.launches.pop_front()
        {
            self.spare.extend([old.begin, old.end]);
        }
        Ok(self.latest)
    }

    fn warm(&mut self, program: &dyn Program, moves: bool) -> Result<(), EngineError> {
        let foreign = || mismatch("program", "one prepared by this device", "one of another backend");
        let program = program.as_any().downcast_ref::<CudaProgram>().ok_or_else(foreign)?;
        let arena = &self.shared.arena;
        let graphs = |slot| program.graphs(slot, &self.stream).map(drop);
        if moves {
            return (0..arena.slots()).try_for_each(graphs);
        }
        arena.usual(usize::from(self.partition.0)).try_for_each(graphs)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Poll, EngineError> {
        let launched = self.find(ticket)?;
        let failed = |error: DriverError| EngineError::Execute {
            segment: launched.segment.clone(),
            why: error.to_string(),
        };
        if !launched.end.is_over().map_err(failed)? {
            return Ok(Poll::Pending);
        }
        Self::span(launched).map(Poll::Over)
    }

    fn wait(&mut self, ticket: Ticket) -> Result<Span, EngineError> {
        let launched = self.find(ticket)?;
        let failed = |error: DriverError| EngineError::Execute {
            segment: launched.segment.clone(),
            why: error.to_string(),
        };
        launched.end.synchronize().map_err(failed)?;
        Self::span(launched)
    }
}
