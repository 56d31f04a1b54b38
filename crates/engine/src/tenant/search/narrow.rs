//! Searches that pass over what cannot hold an answer: sealed segments tell by their sidecars, the rest is read.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::event::Event;
use model::record::Span;
use model::{Position, Problem};

use super::{Query, SEARCH_MAX, STEP, STEP_BYTES};
use crate::maintain::sidecar::{self, Clue, Sealed};
use crate::read;
use crate::tenant::Tenant;
use crate::tenant::groups::PULL_MAX;

/// Events fetched one by one in a step, when a sidecar says where they stand.
const FETCH_MAX: usize = 128;
/// Most events shown as effects of one.
const EFFECTS_MAX: usize = 1_000;

type Found = (Vec<Arc<Event>>, Position);

impl Tenant {
    /// The segments whose sidecars may help with this query.
    pub(super) fn sealed_for(&self, query: &Query) -> Result<Vec<Sealed>, Problem> {
        if query.is_narrow() { sidecar::sealed(self) } else { Ok(Vec::new()) }
    }

    /// Events from `low` on that may be wanted, and how far that looked.
    pub(super) fn step_up(
        &self,
        query: &Query,
        sealed: &[Sealed],
        (low, high): Span,
    ) -> Result<Found, Problem> {
        match self.clue(query, sealed, low) {
            Some((segment, positions)) => {
                let inside = positions.into_iter().filter(|at| (low..=high).contains(at));
                let (events, cut) = self.some_at(inside)?;
                Ok((events, cut.unwrap_or(segment.last.min(high))))
            }
            None => self.events_from(low, high, PULL_MAX),
        }
    }

    /// Events up to `high` that may be wanted, in order, and how far down that looked: to `lowest` where all is read.
    pub(super) fn step_down(
        &self,
        query: &Query,
        sealed: &[Sealed],
        (low, high): Span,
        lowest: Position,
    ) -> Result<Found, Problem> {
        match self.clue(query, sealed, high) {
            Some((segment, positions)) => {
                let inside = positions.into_iter().rev().filter(|at| (low..=high).contains(at));
                let (mut events, cut) = self.some_at(inside)?;
                events.reverse();
                Ok((events, cut.unwrap_or(segment.first.max(low))))
            }
            None => Ok((self.events_between(lowest, high)?, lowest)),
        }
    }

    /// Events at these positions, in their order, as many as a step takes; the last position if it was cut there.
    fn some_at(
        &self,
        positions: impl Iterator<Item = Position>,
    ) -> Result<(Vec<Arc<Event>>, Option<Position>), Problem> {
        let (mut events, mut bytes) = (Vec::new(), 0);
        for (before, position) in positions.enumerate() {
            let event = self.with_reader(|reader| read::event_at(reader, position))?;
            bytes += event.as_ref().map_or(0, |event| event.size());
            events.extend(event);
            if before + 1 == FETCH_MAX || bytes > STEP_BYTES {
                return Ok((events, Some(position)));
            }
        }
        Ok((events, None))
    }

    /// The sealed segment around `at` and the only positions in it worth a look; `None` when it has to be read.
    fn clue(&self, query: &Query, sealed: &[Sealed], at: Position) -> Option<(Sealed, Vec<Position>)> {
        let segment = around(sealed, at)?;
        match sidecar::find(self, segment)?.clue(query) {
            Clue::Nowhere => Some((*segment, Vec::new())),
            Clue::At(positions) => Some((*segment, positions)),
            Clue::Everywhere => None,
        }
    }

    fn events_at<'a>(
        &self,
        positions: impl IntoIterator<Item = &'a Position>,
    ) -> Result<Vec<Arc<Event>>, Problem> {
        let mut events = Vec::new();
        for position in positions {
            events.extend(self.with_reader(|reader| read::event_at(reader, *position))?);
        }
        Ok(events)
    }

    /// The newest event with this id that is wanted.
    pub(super) fn event_by_id(
        &self,
        id: &str,
        wanted: &dyn Fn(&Event) -> bool,
    ) -> Result<Option<Arc<Event>>, Problem> {
        let (low, mut high) = (self.first(), self.head());
        let sealed = sidecar::sealed(self)?;
        while high >= low && high > 0 {
            let segment = around(&sealed, high);
            let known = segment.and_then(|s| Some((s.first, sidecar::find(self, s)?.with_id(id)?)));
            let (events, from) = match known {
                Some((first, positions)) => (self.events_at(&positions)?, first.max(low)),
                None => {
                    let from = high.saturating_sub(STEP - 1).max(low);
                    (self.events_between(from, high)?, from)
                }
            };
            if let Some(event) =
                events.into_iter().rev().find(|event| event.envelope.id == id && wanted(event))
            {
                return Ok(Some(event));
            }
            high = from - 1;
        }
        Ok(None)
    }

    /// Every event that goes back to `root`, in order; one pass, because a cause stands before its effects.
    pub(super) fn effects_of(&self, root: Position) -> Result<Vec<Arc<Event>>, Problem> {
        let started = self.real();
        let mut family = BTreeSet::from([root]);
        let mut effects = Vec::new();
        let (mut from, to) = (root + 1, self.head());
        let sealed = sidecar::sealed(self)?;
        while from <= to && effects.len() < EFFECTS_MAX && self.real().saturating_sub(started) < SEARCH_MAX {
            let segment = around(&sealed, from);
            let known = segment.and_then(|s| Some((s.last, self.effects_inside(s, &family)?)));
            let (events, through) = match known {
                Some((last, positions)) => (self.events_at(&positions)?, last.min(to)),
                None => self.events_from(from, to, STEP as usize)?,
            };
            for event in events {
                if event.envelope.cause.is_some_and(|cause| family.contains(&cause)) {
                    family.insert(event.position);
                    effects.push(event);
                }
            }
            from = through + 1;
        }
        Ok(effects)
    }

    /// Positions in this segment that go back to the family, also by way of each other.
    fn effects_inside(&self, segment: &Sealed, family: &BTreeSet<Position>) -> Option<BTreeSet<Position>> {
        let sidecar = sidecar::find(self, segment)?;
        let mut found = BTreeSet::new();
        let mut asked: Vec<Position> = family.iter().copied().collect();
        while let Some(cause) = asked.pop() {
            let effects = sidecar.caused_by(cause)?;
            asked.extend(effects.into_iter().filter(|effect| found.insert(*effect)));
        }
        Some(found)
    }
}

fn around(sealed: &[Sealed], at: Position) -> Option<&Sealed> {
    let index = sealed.partition_point(|segment| segment.last < at);
    sealed.get(index).filter(|segment| segment.first <= at)
}
