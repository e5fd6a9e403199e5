//! The requests of one model that wait, in the orders policies ask for.

use std::collections::{BTreeMap, BTreeSet};
use vocab::{Class, Request, RequestId, Time};

/// The waiting requests of one model.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    arrival: BTreeSet<RequestId>,
    urgency: BTreeMap<(Class, Time, RequestId), u32>,
    deadline: BTreeSet<(Time, RequestId)>,
    patient: BTreeSet<RequestId>,
    rows: u64,
}

impl Queue {
    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.arrival.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.arrival.is_empty()
    }

    /// Rows of all of them.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// Oldest first.
    pub fn by_arrival(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.arrival.iter().copied()
    }

    /// Strictest class first, then earliest deadline, then oldest.
    pub fn by_urgency(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.urgency.keys().map(|(_, _, id)| *id)
    }

    /// As [`Queue::by_urgency`], each with its class, its deadline (`Time::FOREVER` without one) and its rows.
    pub fn by_urgency_with_rows(&self) -> impl Iterator<Item = (Class, Time, RequestId, u32)> + '_ {
        self.urgency.iter().map(|((class, deadline, id), rows)| (*class, *deadline, *id, *rows))
    }

    /// Earliest deadline first; only those that have one.
    pub fn by_deadline(&self) -> impl Iterator<Item = (Time, RequestId)> + '_ {
        self.deadline.iter().copied()
    }

    /// Those without a deadline, oldest first.
    pub fn without_deadline(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.patient.iter().copied()
    }

    pub(super) fn insert(&mut self, request: &Request) {
        self.arrival.insert(request.id);
        self.urgency
            .insert((request.class, request.deadline.unwrap_or(Time::FOREVER), request.id), request.rows);
        match request.deadline {
            Some(deadline) => self.deadline.insert((deadline, request.id)),
            None => self.patient.insert(request.id),
        };
        self.rows += u64::from(request.rows);
    }

    pub(super) fn remove(&mut self, request: &Request) {
        let was_here = self.arrival.remove(&request.id);
        assert!(was_here, "{} waits in its model's queue", request.id);
        self.urgency.remove(&(request.class, request.deadline.unwrap_or(Time::FOREVER), request.id));
        match request.deadline {
            Some(deadline) => self.deadline.remove(&(deadline, request.id)),
            None => self.patient.remove(&request.id),
        };
        self.rows -= u64::from(request.rows);
    }
}
