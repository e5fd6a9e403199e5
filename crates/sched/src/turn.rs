//! One turn: fold every ready event into the world, let the policy decide once, check each decision.
//!
//! ```text
//! events ──▶ World::apply ──▶ World::forced ──▶ Policy::decide ──▶ World::admit ──▶ accepted, refused, wake
//! ```

use std::fmt::Debug;
use vocab::Time;

/// Everything known about what is shared. It changes only by events, and books what it admits.
pub trait World {
    /// A fact, in the past tense.
    type Event: Debug + Clone;
    /// A choice, in the imperative.
    type Decision: Debug + Clone + PartialEq;
    /// Why a decision was refused.
    type Refusal: Debug + Clone;

    /// Folds one fact. Facts are true: this cannot fail, and a fact about something already gone changes nothing.
    fn apply(&mut self, now: Time, event: &Self::Event);

    /// Decisions that follow from promises alone, whatever the policy: expiries, abandoned work.
    fn forced(&mut self, now: Time) -> Vec<Self::Decision>;

    /// Books `decision`, so that it cannot be decided twice. Its effect is known only when its event comes back.
    ///
    /// # Errors
    /// When the decision does not fit the world; nothing changes then.
    fn admit(&mut self, now: Time, decision: &Self::Decision) -> Result<(), Self::Refusal>;

    /// Ends the turn: what was new to the policy is new no longer.
    fn settle(&mut self);

    /// When [`World::forced`] will next have something to say, if no event comes first.
    fn wake(&self) -> Option<Time>;
}

/// A pure choice. It may keep state of its own, made only from what it was shown.
pub trait Policy<W: World>: Send {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What to do now. Called once a turn, after all ready events were folded.
    fn decide(&mut self, now: Time, world: &W) -> Vec<W::Decision>;

    /// When it wants to be asked again after the decision it has just taken, if no event comes first. Waking too often is
    /// harmless.
    fn wake(&self, now: Time) -> Option<Time>;
}

/// What a turn gave.
#[derive(Clone, Debug)]
pub struct Turn<W: World> {
    /// Decisions to carry out, in order.
    pub accepted: Vec<W::Decision>,
    /// Decisions the world refused, each with its reason. A correct policy on a current world has none.
    pub refused: Vec<(W::Decision, W::Refusal)>,
    /// When to take the next turn, if no event comes first; later than `now`.
    pub wake: Option<Time>,
}

/// Takes one turn at `now`. `now` never goes back between turns of one world.
pub fn turn<W: World>(world: &mut W, policy: &mut dyn Policy<W>, now: Time, events: &[W::Event]) -> Turn<W> {
    for event in events {
        world.apply(now, event);
    }
    let mut accepted = Vec::new();
    let mut refused = Vec::new();
    let mut admit = |world: &mut W, decision: W::Decision| match world.admit(now, &decision) {
        Ok(()) => accepted.push(decision),
        Err(refusal) => refused.push((decision, refusal)),
    };
    for decision in world.forced(now) {
        admit(world, decision);
    }
    for decision in policy.decide(now, world) {
        admit(world, decision);
    }
    world.settle();
    let just_after = now + vocab::Span::from_ns(1);
    let wake = [world.wake(), policy.wake(now)].into_iter().flatten().min();
    Turn { accepted, refused, wake: wake.map(|at| at.max(just_after)) }
}
