//! The threads that copy answers out of what runs have computed, so that neither a partition nor the scheduler waits for
//! copies: a part is free for its next run as soon as the device is done.

use super::handle::{Answer, Outcome, Timing};
use super::runtime::{Clock, Work};
use super::scheduler::wall_ms;
use super::variant::scatter;
use crate::metrics::{End, Ended, ModelMetrics};
use engine::Buffer;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use vocab::{Span, Time};

/// Copying threads at most: outputs are small beside inputs.
const THREADS_MAX: usize = 4;

/// What a run has computed, still together, and where its time went but for queueing and copying.
pub(super) struct Computed {
    pub(super) outputs: Vec<Box<dyn Buffer>>,
    /// Rows of each of its requests.
    pub(super) rows: Vec<u32>,
    pub(super) batched: bool,
    pub(super) timing: Timing,
    /// When it was over.
    pub(super) at: Time,
}

/// A run that is over, with whom it is to answer.
pub(super) struct Finished {
    /// By request of the run; none where somebody has been answered already.
    pub(super) works: Vec<Option<Work>>,
    pub(super) computed: Computed,
    pub(super) began: Time,
    pub(super) batch_rows: u32,
    pub(super) metrics: Option<Arc<ModelMetrics>>,
}

/// The threads. At most as much waits for them as requests may be in flight.
pub(super) struct Answerers {
    inbox: Sender<Finished>,
    threads: Vec<JoinHandle<()>>,
}

impl Answerers {
    pub(super) fn start(clock: Clock) -> std::io::Result<Self> {
        let (inbox, finished) = mpsc::channel();
        let finished = Arc::new(Mutex::new(finished));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let one = |_| {
            let finished = finished.clone();
            let body = move || serve(clock, &finished);
            std::thread::Builder::new().name("answers".into()).spawn(body)
        };
        let threads = (0..cores.min(THREADS_MAX)).map(one).collect::<std::io::Result<_>>()?;
        Ok(Self { inbox, threads })
    }

    pub(super) fn answer(&self, finished: Finished) {
        if self.inbox.send(finished).is_err() {
            tracing::error!("the threads that copy answers have ended; a run's answers are lost");
        }
    }

    /// Answers what is left and ends.
    pub(super) fn stop(self) {
        drop(self.inbox);
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a thread that copies answers panicked");
            }
        }
    }
}

fn serve(clock: Clock, inbox: &Mutex<Receiver<Finished>>) {
    loop {
        let next = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(finished) = next else { return };
        finished.answer(clock);
    }
}

impl Finished {
    fn answer(self, clock: Clock) {
        let Self { works, computed, began, batch_rows, metrics } = self;
        let outputs = scatter(&computed.outputs, &computed.rows, computed.batched);
        let now = clock.now();
        let timing = Timing { output: now.since(computed.at), ..computed.timing };
        if let Some(metrics) = metrics.as_ref().filter(|_| outputs.is_ok()) {
            metrics.ran(batch_rows, timing);
        }
        let (end, mut outputs) = match outputs {
            Ok(outputs) => (End::Done, Ok(outputs.into_iter())),
            Err(error) => (End::Failed, Err(error.to_string())),
        };
        for work in works {
            let tensors = outputs.as_mut().map(|outputs| outputs.next().unwrap_or_default());
            let Some(work) = work else { continue };
            let timing = Timing { queue: began.since(work.request.arrival), ..timing };
            if let Some(metrics) = &metrics {
                let (class, rows) = (work.request.class, work.request.rows);
                let total: Span = now.since(work.request.arrival);
                metrics.ended(&Ended { end, class, rows, total, timing, wall_ms: wall_ms() });
            }
            work.answer(match tensors {
                Ok(outputs) => Outcome::Done(Answer { outputs, timing, batch_rows }),
                Err(why) => Outcome::Failed { why: why.clone() },
            });
        }
    }
}
