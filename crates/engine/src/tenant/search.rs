//! Finding events: by position, by id, by what they are about. Bounded in time; a long search gives a cursor to go on.

mod lineage;
mod narrow;

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use lang::filter::Filter;
use model::event::{Event, Subject};
use model::topic::{Pattern, is_house};
use model::{Code, Position, Problem, Timestamp};

use super::{Tenant, audit};
use crate::authority::Sight;
use crate::read;

/// A search is cut after this long and says where it stopped.
const SEARCH_MAX: Duration = Duration::from_secs(1);
/// Positions looked at in one step backwards; the first steps of a search are shorter, and those over large events.
const STEP: u64 = 1_024;
const STEP_FIRST: u64 = 32;
/// Events read in one step that are more than this are many.
const STEP_BYTES: usize = 4 << 20;

pub struct Query {
    pub topic: Option<Pattern>,
    pub space: Option<String>,
    pub subject: Option<Subject>,
    pub after: Option<Position>,
    pub before: Option<Position>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub filter: Option<Filter>,
    pub descending: bool,
    pub limit: usize,
    /// About how many bytes of events a page holds; one event it holds, however large.
    pub bytes_max: usize,
    pub cursor: Option<String>,
    /// What lies outside is not found.
    pub sight: Sight,
}

impl Default for Query {
    fn default() -> Query {
        Query {
            topic: None,
            space: None,
            subject: None,
            after: None,
            before: None,
            since: None,
            until: None,
            filter: None,
            descending: false,
            limit: 100,
            bytes_max: usize::MAX,
            cursor: None,
            sight: Sight::default(),
        }
    }
}

impl Query {
    /// Whether a sidecar can narrow it.
    fn is_narrow(&self) -> bool {
        self.topic.is_some() || self.subject.is_some() || self.since.is_some() || self.until.is_some()
    }

    /// Where a page ended, written `position-sum`: the sum is of topic and order, so that a cursor is not taken for
    /// another search, where it would skip events without a word.
    fn cursor_at(&self, position: Position) -> String {
        let topic = self.topic.as_ref().map_or("", |topic| topic.as_str());
        // FNV-1a, over the topic and one byte for the order.
        let sum = topic.bytes().chain([u8::from(self.descending)]);
        let sum = sum.fold(0x811c_9dc5u32, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        format!("{position}-{sum:08x}")
    }

    fn opened(&self, cursor: &str) -> Option<Position> {
        let position = cursor.split_once('-')?.0.parse().ok()?;
        (self.cursor_at(position) == cursor).then_some(position)
    }

    fn wants(&self, event: &Event) -> bool {
        let envelope = &event.envelope;
        // Who asks for everything means what was published, not who administered it.
        let topic = match &self.topic {
            Some(pattern) => pattern.receives(&envelope.topic),
            None => !envelope.topic.starts_with(audit::PREFIX) && !is_house(&envelope.topic),
        };
        topic
            && self.sight.sees_event(event)
            && self.space.as_ref().is_none_or(|space| *space == envelope.space)
            && self.subject.as_ref().is_none_or(|subject| envelope.subject.as_ref() == Some(subject))
            && self.since.is_none_or(|since| event.time() >= since)
            && self.until.is_none_or(|until| event.time() < until)
            && self.filter.as_ref().is_none_or(|filter| filter.test(&event.to_value()).unwrap_or(false))
    }
}

#[derive(Default)]
pub struct Page {
    pub events: Vec<Arc<Event>>,
    /// Where to go on; absent at the end.
    pub next: Option<String>,
    /// Of the events.
    bytes: usize,
}

impl Page {
    /// Takes events until it is full: then it goes on with the first that it has no room for.
    fn fill(&mut self, query: &Query, events: impl Iterator<Item = Arc<Event>>) -> Filled {
        for event in events.filter(|event| query.wants(event)) {
            let bytes = self.bytes + event.size();
            let too_large = bytes > query.bytes_max && !self.events.is_empty();
            if self.events.len() == query.limit || too_large {
                self.next = Some(query.cursor_at(event.position));
                return Filled::Full;
            }
            self.bytes = bytes;
            self.events.push(event);
        }
        Filled::HasRoom
    }
}

#[derive(PartialEq)]
enum Filled {
    Full,
    HasRoom,
}

/// Publishes that wait for their time, each as text, and where to go on.
pub type Deferred = (Vec<String>, Option<String>);

fn deferred_cursor(text: &str) -> Result<(Timestamp, Position), Problem> {
    let parts = text.rsplit_once('-').and_then(|(nanos, at)| Some((nanos.parse().ok()?, at.parse().ok()?)));
    let (nanos, at) = parts.ok_or_else(|| {
        Problem::new(Code::RequestInvalid, "\"cursor\" is not one that was given out")
            .hint("go on with what \"next\" said, or begin without one")
            .with("parameter", "cursor")
    })?;
    Ok((Timestamp::from_nanos(nanos), at))
}

impl Tenant {
    /// Publishes that wait for their time, soonest first, each as text: `{"until":…,"event":…}`, the event as it will be
    /// recorded, without the position that it will only get then.
    pub fn deferred(&self, limit: usize) -> Result<Vec<String>, Problem> {
        Ok(self.deferred_seen(limit, None, &Sight::default())?.0)
    }

    /// As [`Tenant::deferred`], from where a page ended; a cursor is the time and place of its last one.
    pub(super) fn deferred_seen(
        &self,
        limit: usize,
        cursor: Option<&str>,
        sight: &Sight,
    ) -> Result<Deferred, Problem> {
        let after = cursor.map(deferred_cursor).transpose()?.unwrap_or((Timestamp::MIN, 0));
        self.with_writer(|writer| {
            let soonest: Vec<_> =
                writer.state.deferred.range((Bound::Excluded(after), Bound::Unbounded)).copied().collect();
            let (mut shown, mut last) = (Vec::new(), after);
            for (until, at) in soonest {
                if shown.len() == limit {
                    return Ok((shown, Some(format!("{}-{}", last.0.nanos(), last.1))));
                }
                last = (until, at);
                let kept =
                    writer.state.deferred_at(at).map_err(|fault| crate::writer::Fatal::from(fault).0)?;
                let Some((envelope, content)) = kept else { continue };
                let event = Event { position: 0, recorded_at: until, envelope, content };
                if !sight.sees_event(&event) {
                    continue;
                }
                shown.push(format!("{{\"until\":\"{until}\",\"event\":{}}}", event.to_json()));
            }
            Ok((shown, None))
        })
    }

    /// Events in order that the query wants. May hold fewer than `limit`, even none, while there is a `next`.
    pub fn find(&self, query: &Query) -> Result<Page, Problem> {
        // All of it was trimmed: "nothing there" would be untrue.
        let below =
            query.before.is_some_and(|before| before > 1 && before <= self.first() && self.first() > 1);
        if below || query.after.is_some_and(|after| after.saturating_add(1) < self.first()) {
            return Err(read::gone(self.first()));
        }
        let mut low = query.after.map_or(self.first(), |after| after.saturating_add(1)).max(self.first());
        let mut high = query.before.map_or(self.head(), |before| before.saturating_sub(1)).min(self.head());
        if let Some(cursor) = &query.cursor {
            let at = query.opened(cursor).ok_or_else(|| {
                Problem::new(Code::RequestInvalid, "\"cursor\" is not one that was given out for this search")
                    .hint(
                        "go on with the same topic and order that the cursor came from, or begin without one",
                    )
                    .with("parameter", "cursor")
            })?;
            match query.descending {
                true => high = high.min(at),
                false => low = low.max(at),
            }
        }
        match query.descending {
            true => self.find_down(query, low, high),
            false => self.find_up(query, low, high),
        }
    }

    fn find_up(&self, query: &Query, mut low: Position, high: Position) -> Result<Page, Problem> {
        let started = self.real();
        let mut page = Page::default();
        let sealed = self.sealed_for(query)?;
        while low <= high {
            let (events, through) = self.step_up(query, &sealed, (low, high))?;
            if page.fill(query, events.into_iter()) == Filled::Full {
                return Ok(page);
            }
            low = through + 1;
            if low <= high && self.real().saturating_sub(started) > SEARCH_MAX {
                page.next = Some(query.cursor_at(low));
                return Ok(page);
            }
        }
        Ok(page)
    }

    fn find_down(&self, query: &Query, low: Position, mut high: Position) -> Result<Page, Problem> {
        let started = self.real();
        let (mut page, mut step) = (Page::default(), STEP_FIRST);
        let sealed = self.sealed_for(query)?;
        while high >= low && high > 0 {
            let lowest = high.saturating_sub(step - 1).max(low);
            let (events, from) = self.step_down(query, &sealed, (low, high), lowest)?;
            let bytes: usize = events.iter().map(|event| event.size()).sum();
            step = if bytes > STEP_BYTES { (step / 2).max(1) } else { (step * 2).min(STEP) };
            if page.fill(query, events.into_iter().rev()) == Filled::Full {
                return Ok(page);
            }
            high = from - 1;
            if high >= low && high > 0 && self.real().saturating_sub(started) > SEARCH_MAX {
                page.next = Some(query.cursor_at(high));
                return Ok(page);
            }
        }
        Ok(page)
    }

    fn events_between(&self, mut from: Position, to: Position) -> Result<Vec<Arc<Event>>, Problem> {
        let mut all = Vec::new();
        while from <= to {
            let (events, through) = self.events_from(from, to, STEP as usize)?;
            all.extend(events);
            from = through + 1;
        }
        Ok(all)
    }

    /// One event, by its position (digits only) or its id.
    pub fn event(&self, id_or_position: &str) -> Result<Arc<Event>, Problem> {
        self.event_that(id_or_position, &|_| true)
    }

    /// As [`Tenant::event`], of those that are `wanted`; any other is not there.
    pub(super) fn event_that(
        &self,
        id_or_position: &str,
        wanted: &dyn Fn(&Event) -> bool,
    ) -> Result<Arc<Event>, Problem> {
        let absent = || {
            Problem::new(Code::EventNotFound, format!("there is no event \"{id_or_position}\""))
                .hint("give a position or an id; `everwhen events list` shows both")
        };
        // Not what else reads as a number: "+5" is an id.
        let digits = id_or_position.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(position) = id_or_position.parse::<Position>().ok().filter(|_| digits) {
            if position == 0 || position > self.head() {
                return Err(absent());
            }
            if position < self.first() {
                return Err(read::gone(self.first()));
            }
            let found = self.with_reader(|reader| read::event_at(reader, position))?;
            return found.filter(|event| wanted(event)).ok_or_else(absent);
        }
        self.event_by_id(id_or_position, wanted)?.ok_or_else(absent)
    }

    /// What led to an event, and what it led to, as contracts §2 shows it; text, so that payloads keep every digit.
    pub fn lineage(&self, id_or_position: &str) -> Result<String, Problem> {
        self.lineage_seen(id_or_position, &Sight::default())
    }

    pub(super) fn lineage_seen(&self, id_or_position: &str, sight: &Sight) -> Result<String, Problem> {
        let event = self.event_that(id_or_position, &|event| sight.sees_event(event))?;
        let mut causes = Vec::new();
        let mut cause = event.envelope.cause;
        while let Some(position) = cause.filter(|position| *position >= self.first()) {
            let found = self.with_reader(|reader| read::event_at(reader, position))?;
            let Some(found) = found else { break };
            cause = found.envelope.cause.filter(|earlier| *earlier < position);
            causes.extend(sight.sees_event(&found).then(|| found.to_json()));
        }
        let mut effects = self.effects_of(event.position)?;
        effects.retain(|effect| sight.sees_event(effect));
        let effects = self.tree(&lineage::Told { effects: &effects, sight }, event.position)?;
        let (event, causes) = (event.to_json(), causes.join(","));
        Ok(format!("{{\"event\":{event},\"causes\":[{causes}],\"effects\":[{effects}]}}"))
    }

    /// The last position recorded before `time`, by halving; 0 or the floor when all were recorded after it.
    pub(super) fn position_before(&self, time: Timestamp) -> Result<Position, Problem> {
        let (mut low, mut high) = (self.first(), self.head() + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.recorded_at(middle)? < time {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        Ok(low - 1)
    }

    /// When the record at `position` was recorded.
    pub(crate) fn recorded_at(&self, position: Position) -> Result<Timestamp, Problem> {
        self.with_reader(|reader| {
            let mut bytes = Vec::new();
            reader.read(position, 1, &mut bytes).map_err(read::problem)?;
            let line = ledger::lines(&bytes).next().ok_or_else(|| read::gone(self.first()))?;
            read::parse(line).map(|(_, time)| time)
        })
    }
}
