//! The journal: every turn of a run, one JSON line each, from which the same decisions can be made again.
//!
//! ```text
//! {"journal":1,"policy":{"name":"windows",…}}                     the header
//! {"now":12,"events":[…],"decisions":[…]}                         a turn
//! ```

use crate::{Policy, World, turn};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Read, Write};
use vocab::Time;

/// The journal format this code writes and reads.
pub const FORMAT: u32 = 1;

/// Longest line read back, in bytes; a turn with tens of thousands of requests stays below it.
const LINE_MAX: u64 = 64 << 20;

/// The first line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header<P> {
    /// [`FORMAT`].
    pub journal: u32,
    /// The policy and its parameters.
    pub policy: P,
}

/// One turn: what was known new, and what was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record<E, D> {
    /// When.
    pub now: Time,
    /// New facts, in the order they were folded.
    pub events: Vec<E>,
    /// Decisions the world accepted, in order.
    pub decisions: Vec<D>,
}

/// Why a journal cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Reading failed.
    #[error("reading the journal failed at line {line}")]
    Read {
        /// The line, from 1.
        line: u64,
        /// The cause.
        source: std::io::Error,
    },
    /// A line is not what it should be.
    #[error("line {line} of the journal is damaged")]
    Damaged {
        /// The line, from 1.
        line: u64,
        /// The cause.
        source: serde_json::Error,
    },
    /// A line is longer than any turn.
    #[error("line {line} of the journal is longer than {LINE_MAX} bytes")]
    TooLong {
        /// The line, from 1.
        line: u64,
    },
    /// Another format, or no journal at all.
    #[error("this is journal format {found}, this raddle reads format {FORMAT}")]
    Format {
        /// The format found.
        found: u32,
    },
    /// No line at all.
    #[error("the journal is empty")]
    Empty,
}

/// Writes turns as they are taken.
#[derive(Debug)]
pub struct Writer<W: Write>(W);

impl<W: Write> Writer<W> {
    /// Begins a journal on `sink` with its header.
    ///
    /// # Errors
    /// When writing fails.
    pub fn new<P: Serialize>(mut sink: W, policy: &P) -> std::io::Result<Self> {
        write_line(&mut sink, &Header { journal: FORMAT, policy })?;
        Ok(Self(sink))
    }

    /// Appends one turn.
    ///
    /// # Errors
    /// When writing fails; the journal ends before this turn then.
    pub fn append<E: Serialize, D: Serialize>(
        &mut self,
        now: Time,
        events: &[E],
        decisions: &[D],
    ) -> std::io::Result<()> {
        #[derive(Serialize)]
        struct Line<'a, E, D> {
            now: Time,
            events: &'a [E],
            decisions: &'a [D],
        }
        write_line(&mut self.0, &Line { now, events, decisions })
    }

    /// Hands buffered lines on to the sink.
    ///
    /// # Errors
    /// When writing fails.
    pub fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }

    /// Ends the journal and hands its sink back.
    pub fn into_inner(self) -> W {
        self.0
    }
}

fn write_line<T: Serialize>(sink: &mut impl Write, line: &T) -> std::io::Result<()> {
    serde_json::to_writer(&mut *sink, line)?;
    sink.write_all(b"\n")
}

/// Reads turns back, one at a time. A last line cut short by a crash ends the journal.
#[derive(Debug)]
pub struct Reader<R> {
    lines: R,
    line: u64,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// When there is none, or it is of another format.
    pub fn new<P: DeserializeOwned>(source: R) -> Result<(Self, P), JournalError> {
        let mut reader = Self { lines: source, line: 0 };
        let Some(text) = reader.next_line()? else { return Err(JournalError::Empty) };
        #[derive(Deserialize)]
        struct Format {
            journal: u32,
        }
        let damaged = |source| JournalError::Damaged { line: 1, source };
        let Format { journal } = serde_json::from_slice(&text).map_err(damaged)?;
        if journal != FORMAT {
            return Err(JournalError::Format { found: journal });
        }
        let header: Header<P> = serde_json::from_slice(&text).map_err(damaged)?;
        Ok((reader, header.policy))
    }

    /// The next turn; `None` at the end.
    ///
    /// # Errors
    /// When reading fails or a line is damaged.
    pub fn next_turn<E: DeserializeOwned, D: DeserializeOwned>(
        &mut self,
    ) -> Result<Option<Record<E, D>>, JournalError> {
        let Some(text) = self.next_line()? else { return Ok(None) };
        let line = self.line;
        match serde_json::from_slice(&text) {
            Ok(record) => Ok(Some(record)),
            Err(_) if !text.ends_with(b"\n") => Ok(None),
            Err(source) => Err(JournalError::Damaged { line, source }),
        }
    }

    fn next_line(&mut self) -> Result<Option<Vec<u8>>, JournalError> {
        self.line += 1;
        let line = self.line;
        let mut text = Vec::new();
        let mut bounded = (&mut self.lines).take(LINE_MAX);
        let read =
            bounded.read_until(b'\n', &mut text).map_err(|source| JournalError::Read { line, source })?;
        if read as u64 == LINE_MAX {
            return Err(JournalError::TooLong { line });
        }
        Ok((read > 0).then_some(text))
    }
}

/// What a replay found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replay<D> {
    /// Every decision came out the same.
    Same {
        /// Turns replayed.
        turns: u64,
        /// Decisions compared.
        decisions: u64,
    },
    /// A turn decided differently: a bug, or another version of the policy.
    Differs {
        /// The turn, from 1.
        turn: u64,
        /// When it was taken.
        now: Time,
        /// What the journal holds.
        recorded: Vec<D>,
        /// What was decided now.
        replayed: Vec<D>,
    },
}

/// Takes every turn of a journal again, on `world` and `policy` as they were at its beginning.
///
/// # Errors
/// When the journal cannot be read.
pub fn replay<W, R>(
    reader: &mut Reader<R>,
    world: &mut W,
    policy: &mut dyn Policy<W>,
) -> Result<Replay<W::Decision>, JournalError>
where
    W: World,
    W::Event: DeserializeOwned,
    W::Decision: DeserializeOwned,
    R: BufRead,
{
    let (mut turns, mut decisions) = (0, 0);
    while let Some(record) = reader.next_turn::<W::Event, W::Decision>()? {
        turns += 1;
        let replayed = turn(world, policy, record.now, &record.events).accepted;
        if replayed != record.decisions {
            let (now, recorded) = (record.now, record.decisions);
            return Ok(Replay::Differs { turn: turns, now, recorded, replayed });
        }
        decisions += record.decisions.len() as u64;
    }
    Ok(Replay::Same { turns, decisions })
}
