//! When requests of a load arrive.

use crate::{Arrivals, Load};
use vocab::{Class, ModelId, Rng, Span, Time};

/// The stream of arrivals of one load.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) model: ModelId,
    pub(crate) class: Class,
    pub(crate) rows: u32,
    pub(crate) timeout: Option<Span>,
    arrivals: Arrivals,
    rng: Rng,
    begin: Time,
    end: Time,
    given: usize,
    exact: f64,
    /// When the latest arrival given is heard of, and how long after it arrives.
    heard: Time,
    pub(crate) lag: Span,
}

impl Stream {
    /// `period` is that of the model, if it is a periodic task; `copy` tells streams of one load apart.
    pub(crate) fn new(
        load: &Load,
        (model, period): (ModelId, Option<Span>),
        (rng, copy): (Rng, u32),
        end: Time,
    ) -> Self {
        let arrivals = match (&load.arrivals, period) {
            (Arrivals::Periodic, Some(period)) => Arrivals::Constant { rate: 1.0 / period.as_secs_f64() },
            (other, _) => other.clone(),
        };
        // Streams of one rate are spread evenly over its period.
        let phase = match arrivals {
            Arrivals::Constant { rate } => f64::from(copy) / f64::from(load.copies) / rate,
            _ => 0.0,
        };
        let begin = Time::ZERO + Span::from_ms(load.start_ms) + Span::from_secs_f64(phase);
        let own_end = load.end_ms.map_or(end, |ms| Time::ZERO + Span::from_ms(ms));
        Self {
            model,
            class: Class::new(load.class).expect("a checked load has a class"),
            rows: load.rows,
            timeout: load.timeout_us.map(Span::from_us),
            arrivals,
            rng,
            begin,
            end: end.min(own_end),
            given: 0,
            exact: begin.ns() as f64,
            heard: Time::ZERO,
            lag: Span::ZERO,
        }
    }

    /// Arrivals at the beginning that wait for nobody: one for an open stream, one a client for a closed one.
    pub(crate) fn first(&mut self) -> Vec<Time> {
        match self.arrivals {
            Arrivals::Closed { clients, .. } => vec![self.begin; clients as usize],
            _ => self.next().into_iter().collect(),
        }
    }

    /// When the next arrival of an open stream is heard of.
    pub(crate) fn next(&mut self) -> Option<Time> {
        let at = match &self.arrivals {
            Arrivals::Closed { .. } | Arrivals::Periodic => return None,
            Arrivals::Poisson { rate } => {
                self.exact += self.rng.exponential() / rate * 1e9;
                nanoseconds(self.exact)
            }
            Arrivals::Constant { rate } => {
                self.exact = self.begin.ns() as f64 + self.given as f64 / rate * 1e9;
                nanoseconds(self.exact)
            }
            Arrivals::Trace { at_ns, lag_ns } => {
                let at = self.begin + Span::from_ns(*at_ns.get(self.given)?);
                // Who asks later is not heard earlier.
                let heard =
                    (at + lag_ns.get(self.given).copied().map_or(Span::ZERO, Span::from_ns)).max(self.heard);
                (self.heard, self.lag) = (heard, heard.since(at));
                heard
            }
        };
        self.given += 1;
        (at < self.end).then_some(at)
    }

    /// Whether its clients wait for their answers.
    pub(crate) const fn is_closed(&self) -> bool {
        matches!(self.arrivals, Arrivals::Closed { .. })
    }

    /// The arrival that follows an answer at `now`, from the same client.
    pub(crate) fn after_answer(&self, now: Time) -> Option<Time> {
        let Arrivals::Closed { think_us, .. } = self.arrivals else { return None };
        let at = now + Span::from_us(think_us);
        (at < self.end).then_some(at)
    }
}

fn nanoseconds(exact: f64) -> Time {
    Time::ZERO + Span::from_secs_f64(exact / 1e9)
}
