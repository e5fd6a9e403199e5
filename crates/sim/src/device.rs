//! The simulated device: what really happens to a run, as against what the world believes.

use vocab::{ModelId, PartitionId, Span, Time};

/// A run on the simulated device.
#[derive(Clone, Debug)]
pub(crate) struct TrueRun {
    pub(crate) model: ModelId,
    pub(crate) partition: PartitionId,
    pub(crate) rows: u32,
    /// How much slower than its profile it is.
    pub(crate) factor: f64,
    /// From its decision to its first instruction, and from an edge to its report.
    pub(crate) launch: Span,
    /// True time of each segment on its partition with nobody in its way.
    segments: Vec<Span>,
    /// When the weights of each segment are there; empty when all are.
    arrivals: Vec<Time>,
    /// The segment it is in, or goes on with.
    pub(crate) next: usize,
    /// What is left of that segment with nobody in its way.
    left: Span,
    /// Until when all of this is reckoned; when it ended, once it has.
    at: Time,
    /// Its speed beside others; 1 with nobody in its way.
    rate: f64,
    /// When the segment it is in began.
    entered: Option<Time>,
    /// Times of the segments that ended since it last began.
    times: Vec<Span>,
    /// The segment it does not begin, and whether it is given up there.
    stop: Option<(usize, bool)>,
    /// Where it parks by itself when it next begins.
    pub(crate) until: Option<usize>,
    /// Raised whenever what was scheduled for it no longer holds.
    pub(crate) epoch: u32,
    /// Whether it is on the device.
    pub(crate) on_device: bool,
}

/// What a run does next if nothing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It finishes then.
    Finish(Time),
    /// It parks then, before this segment.
    Park(Time, usize),
    /// It is given up then.
    Abandon(Time),
}

impl TrueRun {
    /// A run whose segments take `segments` times `factor`: what makes a run slow, a neighbour or a clock, makes all of its
    /// segments slow. No segment begins before its place in `arrivals`.
    pub(crate) fn new(
        (model, partition, rows): (ModelId, PartitionId, u32),
        segments: Vec<Span>,
        (factor, launch): (f64, Span),
        arrivals: Vec<Time>,
    ) -> Self {
        let mut run = Self {
            model,
            partition,
            rows,
            factor,
            launch,
            segments: Vec::new(),
            arrivals,
            next: 0,
            left: Span::ZERO,
            at: Time::ZERO,
            rate: 1.0,
            entered: None,
            times: Vec::new(),
            stop: None,
            until: None,
            epoch: 0,
            on_device: false,
        };
        run.set_segments(segments);
        run
    }

    /// On another partition segments take other times.
    pub(crate) fn set_segments(&mut self, segments: Vec<Span>) {
        let scaled = |span: &Span| Span::from_secs_f64(span.as_secs_f64() * self.factor);
        let exact = (self.factor - 1.0).abs() < f64::EPSILON;
        self.segments = if exact { segments } else { segments.iter().map(scaled).collect() };
    }

    /// It begins or goes on.
    pub(crate) fn begin(&mut self, now: Time) {
        self.at = now;
        self.on_device = true;
        self.rate = 1.0;
        self.entered = None;
        self.times = Vec::with_capacity(self.segments.len().saturating_sub(self.next));
        self.left = self.segments.get(self.next).copied().unwrap_or(Span::ZERO);
        self.stop = self.until.take().map(|segment| (segment, false));
    }

    /// It has stopped at an edge; times of the segments since it last began.
    pub(crate) fn park(&mut self) -> Vec<Span> {
        let times = self.taken();
        self.on_device = false;
        self.stop = None;
        self.epoch += 1;
        times
    }

    /// Reckons what happened until `now`.
    pub(crate) fn reckon(&mut self, now: Time) {
        let end = self.end();
        while self.next < end {
            let ready = self.arrivals.get(self.next).copied().unwrap_or(Time::ZERO);
            let begin = self.at.max(ready);
            let entered = *self.entered.get_or_insert(begin);
            let over = begin + self.stretched(self.left);
            if over > now {
                if begin < now {
                    self.left = self.left - self.worked(now.since(begin));
                    self.at = now;
                }
                if begin >= now {
                    // Not in the segment yet: its weights are on their way.
                    self.entered = None;
                }
                return;
            }
            self.times.push(over.since(entered));
            (self.at, self.entered) = (over, None);
            self.next += 1;
            self.left = self.segments.get(self.next).copied().unwrap_or(Span::ZERO);
        }
    }

    /// Its speed from `now` on; whether that is another than before.
    pub(crate) fn set_rate(&mut self, now: Time, rate: f64) -> bool {
        if (self.rate - rate).abs() < 1e-12 {
            return false;
        }
        self.reckon(now);
        self.rate = rate;
        true
    }

    /// The first edge at or after `now` behind which nothing was launched, of `ahead` segments at once, and what follows: it
    /// stops there unless it stops earlier or that is its end.
    pub(crate) fn stop_at_edge(&mut self, now: Time, for_good: bool, ahead: usize) -> bool {
        self.reckon(now);
        // At an edge right now it stops here; within a segment, behind it.
        let at_edge = self.entered.is_none() && self.at == now && self.next > 0 && !self.times.is_empty();
        let segment = if at_edge { self.next } else { self.next + 1 };
        let segment = segment.saturating_add(ahead.saturating_sub(1));
        let segment = self.stop.map_or(segment, |(stop, _)| stop.min(segment));
        if segment >= self.segments.len() {
            return false;
        }
        self.stop = Some((segment, for_good));
        true
    }

    /// What it does next if nothing changes.
    pub(crate) fn plan(&self) -> Next {
        let mut at = self.at;
        for segment in self.next..self.end() {
            let span = if segment == self.next { self.left } else { self.segments[segment] };
            at = at.max(self.arrivals.get(segment).copied().unwrap_or(Time::ZERO)) + self.stretched(span);
        }
        match self.stop {
            None => Next::Finish(at),
            Some((_, true)) => Next::Abandon(at),
            Some((segment, false)) => Next::Park(at, segment),
        }
    }

    /// Times of all segments since it last began.
    pub(crate) fn taken(&mut self) -> Vec<Span> {
        self.reckon(Time::FOREVER);
        std::mem::take(&mut self.times)
    }

    fn end(&self) -> usize {
        self.stop.map_or(self.segments.len(), |(segment, _)| segment)
    }

    /// How long `span` of work takes at its speed.
    fn stretched(&self, span: Span) -> Span {
        if (self.rate - 1.0).abs() < 1e-12 {
            span
        } else {
            Span::from_secs_f64(span.as_secs_f64() / self.rate)
        }
    }

    /// The work done in `span` at its speed.
    fn worked(&self, span: Span) -> Span {
        if (self.rate - 1.0).abs() < 1e-12 {
            span
        } else {
            Span::from_secs_f64(span.as_secs_f64() * self.rate)
        }
    }
}
