//! Who watches the turns: journal files and timelines. A watcher that fails is dropped with a warning; serving goes on.

use sched::journal::{Record, Writer};
use sched::node::timeline::Timeline;
use sched::node::{Decision, Event, policy::Choice};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use vocab::Time;

/// Something that is shown every turn.
pub struct Observer {
    name: String,
    kind: Kind,
    failed: bool,
}

enum Kind {
    Journal(Writer<BufWriter<File>>),
    Timeline(Option<Box<Timeline<BufWriter<File>>>>),
}

impl Observer {
    /// Records every turn in a journal file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn journal(path: &Path, policy: &Choice) -> io::Result<Self> {
        let writer = Writer::new(BufWriter::new(File::create(path)?), policy)?;
        Ok(Self { name: format!("journal {}", path.display()), kind: Kind::Journal(writer), failed: false })
    }

    /// Draws every turn into a Chrome/Perfetto timeline file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn timeline(path: &Path) -> io::Result<Self> {
        let timeline = Timeline::new(BufWriter::new(File::create(path)?))?;
        Ok(Self {
            name: format!("timeline {}", path.display()),
            kind: Kind::Timeline(Some(Box::new(timeline))),
            failed: false,
        })
    }

    pub(super) fn turn(&mut self, now: Time, events: &[Event], decisions: &[Decision]) {
        if self.failed {
            return;
        }
        let outcome = match &mut self.kind {
            Kind::Journal(writer) => writer.append(now, events, decisions),
            Kind::Timeline(timeline) => {
                let record = Record { now, events: events.to_vec(), decisions: decisions.to_vec() };
                timeline.as_mut().map_or(Ok(()), |timeline| timeline.turn(&record))
            }
        };
        self.note(outcome);
    }

    /// Hands what is buffered to the operating system.
    pub(super) fn flush(&mut self) {
        if let Kind::Journal(writer) = &mut self.kind
            && !self.failed
        {
            let outcome = writer.flush();
            self.note(outcome);
        }
    }

    /// Completes the file.
    pub(super) fn finish(mut self) {
        self.flush();
        if let Kind::Timeline(timeline) = &mut self.kind
            && let Some(timeline) = timeline.take()
        {
            let outcome = timeline.finish().and_then(|mut sink| sink.flush());
            self.note(outcome);
        }
    }

    fn note(&mut self, outcome: io::Result<()>) {
        if let Err(error) = outcome {
            tracing::warn!("{} ends here: {error}", self.name);
            self.failed = true;
        }
    }
}
