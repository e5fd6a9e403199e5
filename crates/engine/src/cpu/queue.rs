//! A partition's queue: launches run on the calling thread and the partition's cores, one after the other.

use super::program::{CpuProgram, CpuState};
use crate::{EngineError, Poll, Program, Queue, State, Ticket};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;
use tract_linalg::multithread::{Executor, multithread_tract_scope};
use vocab::{PartitionId, Span};

pub(super) struct CpuQueue {
    partition: PartitionId,
    executor: Executor,
    latest: Ticket,
    /// Times of the latest launches, the newest last: a launch is over when it returns.
    spans: VecDeque<Span>,
}

/// Launches whose times are remembered: more than a run ever launches ahead.
const REMEMBERED: usize = 256;

impl CpuQueue {
    /// Pins the calling thread and its helpers to `cores`.
    pub(super) fn open(partition: PartitionId, cores: &[usize]) -> Result<Self, EngineError> {
        let unavailable = |why: String| EngineError::Unavailable { partition, why };
        pin(cores).map_err(|errno| unavailable(format!("cores {cores:?} cannot be pinned: {errno}")))?;
        let executor = if cores.len() == 1 { Executor::SingleThread } else { pool(partition, cores)? };
        Ok(Self { partition, executor, latest: Ticket(0), spans: VecDeque::new() })
    }
}

/// One worker a core. The calling thread waits while they work.
fn pool(partition: PartitionId, cores: &[usize]) -> Result<Executor, EngineError> {
    let own: Vec<usize> = cores.to_vec();
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(cores.len())
        .thread_name(move |worker| format!("{partition} worker {worker}"))
        // A worker that cannot be pinned still computes, only less predictably.
        .start_handler(move |worker| {
            let _ = pin(&own[worker..=worker]);
        })
        .build();
    let pool = pool.map_err(|error| EngineError::Unavailable { partition, why: error.to_string() })?;
    Ok(Executor::MultiThread(Arc::new(pool)))
}

fn pin(cores: &[usize]) -> nix::Result<()> {
    let mut set = nix::sched::CpuSet::new();
    for core in cores {
        set.set(*core)?;
    }
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set)
}

impl Queue for CpuQueue {
    fn partition(&self) -> PartitionId {
        self.partition
    }

    fn launch(
        &mut self,
        program: &dyn Program,
        segment: usize,
        state: &mut dyn State,
    ) -> Result<Ticket, EngineError> {
        let program = program.as_any().downcast_ref::<CpuProgram>().ok_or_else(foreign)?;
        let state = state.as_any().downcast_mut::<CpuState>().ok_or_else(foreign)?;
        let begin = Instant::now();
        let run = || program.run_segment(segment, state);
        // The state of a run whose segment panicked is dropped by the caller, so it is never seen half-changed.
        let outcome = catch_unwind(AssertUnwindSafe(|| multithread_tract_scope(self.executor.clone(), run)));
        match outcome {
            Ok(result) => result?,
            Err(_) => {
                let segment = program.segments()[segment].name.clone();
                return Err(EngineError::Execute { segment, why: "the operator panicked".into() });
            }
        }
        self.latest = Ticket(self.latest.0 + 1);
        self.spans.push_back(Span::from(begin.elapsed()));
        if self.spans.len() > REMEMBERED {
            self.spans.pop_front();
        }
        Ok(self.latest)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Poll, EngineError> {
        self.wait(ticket).map(Poll::Over)
    }

    fn wait(&mut self, ticket: Ticket) -> Result<Span, EngineError> {
        let back = self.latest.0.checked_sub(ticket.0).and_then(|back| usize::try_from(back).ok());
        let span = back.and_then(|back| self.spans.iter().rev().nth(back));
        span.copied().ok_or(EngineError::Order { act: "wait for an old launch", state: "past it" })
    }
}

fn foreign() -> EngineError {
    super::buffer::mismatch("program", "one prepared by this device", "one of another backend")
}
