//! How a training run of a measured application gets on, second by second.

use super::applications::{Application, Spread};
use sched::cluster::Grant;
use vocab::{Span, Time};

/// A training run.
#[derive(Clone, Debug, Default)]
pub(super) struct Training {
    /// Progress, in steps of the least batch.
    progress: f64,
    /// Epochs that ended.
    pub(super) epoch: usize,
    /// Seconds before it goes on after its latest start or move.
    pause: u64,
    placement: Vec<u8>,
    spread: Option<Spread>,
    /// Its batch; nothing when it is chosen anew in each epoch.
    batch: Option<u32>,
    /// When it ended.
    pub(super) ended: Option<Time>,
}

/// Seconds that a start or a move costs.
const PAUSE: u64 = 30;

impl Training {
    /// It is on `grant` from now on, with this batch or the best one.
    pub(super) fn start(&mut self, application: &Application, grant: &Grant, batch: Option<u32>) {
        self.pause = PAUSE;
        let gpus = |piece: &sched::cluster::Piece| u8::try_from(piece.gpus.count()).unwrap_or(u8::MAX);
        self.placement = grant.pieces.iter().map(gpus).collect();
        self.batch = batch;
        self.choose(application);
    }

    fn choose(&mut self, application: &Application) {
        let gpus = self.gpus();
        self.spread = Some(match self.batch {
            Some(batch) => application.spread(batch, gpus),
            None => application.best(&self.placement, self.epoch.min(application.epochs() - 1)).0,
        });
    }

    fn gpus(&self) -> u32 {
        self.placement.iter().map(|gpus| u32::from(*gpus)).sum()
    }

    /// The part of its training that is done.
    pub(super) fn done(&self, application: &Application) -> f64 {
        self.progress / application.progress(application.epochs())
    }

    /// Goes on from `since` to `now`, in rounds.
    pub(super) fn advance(&mut self, application: &Application, since: Time, now: Time, round: Span) {
        let mut at = since;
        while at < now && self.ended.is_none() {
            let until = now.min(at + round.max(Span::from_ms(1_000)));
            self.seconds(application, at, until.since(at).ns() / 1_000_000_000);
            at = until;
        }
    }

    /// Goes on for whole seconds. Sums are taken as Pollux's simulator takes them, so that roundings agree.
    fn seconds(&mut self, application: &Application, from: Time, seconds: u64) {
        let Some(mut spread) = self.spread else { return };
        let paused = self.pause.min(seconds);
        self.pause -= paused;
        let mut at = from + Span::from_ms(paused * 1_000);
        let mut left = seconds - paused;
        while left > 0 {
            let batch = self.gpus() * spread.atomic * (spread.accumulated + 1);
            let goodput =
                application.gain(batch, self.epoch) / application.step_time(&self.placement, spread);
            let next = application.progress(self.epoch + 1);
            let within = self.progress + goodput * left as f64;
            if within < next {
                self.progress = within;
                left = 0;
            } else {
                let time = Span::from_secs_f64(((next - self.progress) / goodput).round_ties_even());
                let whole = (time.ns() / 1_000_000_000).min(left);
                self.epoch += 1;
                self.progress = next;
                at += Span::from_ms(whole * 1_000);
                left -= whole;
                if self.epoch >= application.epochs() {
                    self.ended = Some(at);
                    return;
                }
            }
            self.choose(application);
            spread = self.spread.unwrap_or(spread);
        }
    }
}
