//! A row's past: its changes from link to link through the ledger, what it was at a position or an instant, and how often
//! a field changed of late.

use std::time::Duration;

use model::definition::Scope;
use model::record::{Change, ChangedData};
use model::{Code, Position, Problem, Timestamp};
use serde_json::{Map, Value, json};

use super::{absent, broken};
use crate::admit::Caller;
use crate::entity::{Provenance, Row};
use crate::read;
use crate::tenant::Tenant;

/// A time in a row's life.
#[derive(Clone, Copy, Debug)]
pub enum Moment {
    Position(Position),
    Time(Timestamp),
}

/// Which part of a history to read: oldest first unless said otherwise.
#[derive(Clone, Debug)]
pub struct Paging {
    pub descending: bool,
    pub limit: usize,
    /// The `next` of the page before.
    pub cursor: Option<Position>,
}

impl Default for Paging {
    fn default() -> Paging {
        Paging { descending: false, limit: 100, cursor: None }
    }
}

/// What is asked about the values of a row's fields: since when, and how often another of late.
#[derive(Clone, Debug, Default)]
pub struct Lately {
    pub in_state_since: Option<String>,
    pub transitions: Option<String>,
    /// A duration, for `transitions`.
    pub window: Option<String>,
}

/// Changes of a row.
#[derive(Clone, Debug)]
pub struct HistoryPage {
    pub changes: Vec<Value>,
    pub next: Option<Position>,
}

/// One change as the ledger has it.
pub(super) struct Past {
    position: Position,
    time: Timestamp,
    actor: String,
    pub(super) changed: ChangedData,
    /// What the event said; `None` once erased.
    pub(super) said: Option<Map<String, Value>>,
}

impl Tenant {
    /// The changes of a row, also of one that is deleted; those that were trimmed are gone. A row that was made again
    /// after its deletion begins there.
    pub fn entity_history(
        &self,
        caller: &Caller,
        (concept, space, id): (&str, Option<&str>, &str),
        paging: &Paging,
    ) -> Result<HistoryPage, Problem> {
        let catalog = self.catalog();
        let concept = catalog.concept(concept)?;
        let (row, newest) = self.newest_change(caller, concept.id(), space, id)?;
        let mut links = self.links(newest)?;
        if row.is_none() {
            let last = links.first().map(|position| self.past(*position)).transpose()?.flatten();
            if !last.is_some_and(|last| last.visible(caller, concept)) {
                return Err(absent(concept.id(), id));
            }
        }
        if !paging.descending {
            links.reverse();
        }
        let beyond = |position: &Position| match (paging.cursor, paging.descending) {
            (Some(cursor), true) => *position <= cursor,
            (Some(cursor), false) => *position >= cursor,
            (None, _) => true,
        };
        let mut wanted = links.into_iter().filter(beyond);
        let mut changes = Vec::new();
        for position in wanted.by_ref().take(paging.limit) {
            changes.extend(self.past(position)?.map(|past| past.to_json()));
        }
        Ok(HistoryPage { changes, next: wanted.next() })
    }

    /// Where the changes stand, newest first, as far as the ledger is kept.
    fn links(&self, newest: Option<Position>) -> Result<Vec<Position>, Problem> {
        let (mut at, mut links) = (newest, Vec::new());
        while let Some(position) = at.filter(|position| *position >= self.first()) {
            let changed = self.with_reader(|reader| {
                let mut bytes = Vec::new();
                reader.read(position, 1, &mut bytes).map_err(read::problem)?;
                read::changed_at(&bytes, position + 1)
            })?;
            let Some(changed) = changed else { break };
            links.push(position);
            at = changed.prev;
        }
        Ok(links)
    }

    /// The row as it was. Trimmed: `event.gone`; erased: `event.erased`.
    pub fn entity_as_of(
        &self,
        caller: &Caller,
        (concept, space, id): (&str, Option<&str>, &str),
        moment: Moment,
    ) -> Result<Row, Problem> {
        let catalog = self.catalog();
        let concept = catalog.concept(concept)?;
        let (row, mut at) = self.newest_change(caller, concept.id(), space, id)?;
        if let Some(row) = row.as_ref().filter(|row| moment.includes(row.version, row.updated_at)) {
            return Ok(row.clone());
        }
        let mut found: Option<Past> = None;
        while let Some(position) = at {
            if position < self.first() {
                return Err(read::gone(self.first()));
            }
            let Some(past) = self.past(position)? else { break };
            at = past.changed.prev;
            if moment.includes(past.position, past.time) {
                found = Some(past);
                break;
            }
        }
        let past = found.filter(|past| past.changed.change != Change::Deleted);
        let past = past.ok_or_else(|| absent(concept.id(), id))?;
        let row = self.row_of_past(&past, row.as_ref())?;
        if concept.shows(&row, caller) { Ok(row) } else { Err(absent(concept.id(), id)) }
    }

    /// The row that a change made, and who made it: the current one says so when it is still the same.
    pub(super) fn row_of_past(&self, past: &Past, current: Option<&Row>) -> Result<Row, Problem> {
        let row = past.to_row()?;
        let created_by = match current {
            Some(current) if current.created_at == row.created_at => current.created_by.clone(),
            _ => self.creator(past)?.unwrap_or_default(),
        };
        Ok(Row { created_by, ..row })
    }

    /// Who made the row that this change is one of; nobody knows once that was trimmed.
    fn creator(&self, past: &Past) -> Result<Option<String>, Problem> {
        let (mut actor, mut change, mut at) = (past.actor.clone(), past.changed.change, past.changed.prev);
        while change != Change::Created {
            let Some(before) = at.map(|position| self.past(position)).transpose()?.flatten() else {
                return Ok(None);
            };
            (actor, change, at) = (before.actor, before.changed.change, before.changed.prev);
        }
        Ok(Some(actor))
    }

    /// The row with answers beside it: `in_state_since`, an instant, and `transitions`, a number.
    pub fn entity_lately(
        &self,
        caller: &Caller,
        (concept, space, id): (&str, Option<&str>, &str),
        lately: &Lately,
    ) -> Result<(Row, Value), Problem> {
        let row = self.entity(caller, concept, space, id)?;
        let catalog = self.catalog();
        let declared = &catalog.concept(concept)?.definition;
        let known = |field: &str| {
            let there = declared.open || declared.fields.iter().any(|known| known.name == field);
            let detail = format!("\"{}\" has no field \"{field}\"", declared.id);
            if there { Ok(()) } else { Err(Problem::new(Code::RequestInvalid, detail)) }
        };
        let mut answer = row.to_json();
        if let Some(field) = &lately.in_state_since {
            known(field)?;
            answer["in_state_since"] = json!(row.in_state_since(field));
        }
        if let Some(field) = &lately.transitions {
            known(field)?;
            let window = lately.window.as_deref().and_then(model::time::parse_duration).ok_or_else(|| {
                Problem::new(Code::RequestInvalid, "\"transitions\" needs a \"window\"").hint("such as 1h")
            })?;
            let at = (concept, Some(row.space.as_str()), id);
            answer["transitions"] = self.transitions(caller, at, field, window)?.into();
        }
        Ok((row, answer))
    }

    /// How often a top-level field got another value within the window that ends now.
    pub fn transitions(
        &self,
        caller: &Caller,
        (concept, space, id): (&str, Option<&str>, &str),
        field: &str,
        window: Duration,
    ) -> Result<u64, Problem> {
        let row = self.entity(caller, concept, space, id)?;
        let since = self.moment().now.minus(window);
        let (mut at, mut count) = (Some(row.version), 0);
        while let Some(position) = at.filter(|position| *position >= self.first()) {
            let Some(past) = self.past(position)?.filter(|past| past.time > since) else { break };
            let delta = past.said.as_ref().and_then(|said| said.get("delta")).and_then(Value::as_object);
            let changed = delta.is_some_and(|delta| delta.contains_key(field));
            count += u64::from(changed && past.changed.change == Change::Updated);
            at = past.changed.prev;
        }
        Ok(count)
    }

    /// The current row, if there is one the caller may see, and where its last change stands. A deleted row's changes
    /// are found by its subject.
    fn newest_change(
        &self,
        caller: &Caller,
        concept: &str,
        space: Option<&str>,
        id: &str,
    ) -> Result<(Option<Row>, Option<Position>), Problem> {
        match self.entity(caller, concept, space, id) {
            Ok(row) => return Ok((Some(row.clone()), Some(row.version))),
            Err(problem) if problem.code() != Code::NotFound => return Err(problem),
            Err(_) => {}
        }
        let catalog = self.catalog();
        let global = catalog.concept(concept)?.definition.scope == Scope::Global;
        let space = if global { Some("_system") } else { space };
        // Somebody else's row is there: for this caller it never was.
        let theirs = self.with_writer(|writer| writer.state.only_row(concept, id).map_err(broken))?;
        if theirs.is_some_and(|row| space.is_none_or(|space| space == row.space)) {
            return Err(absent(concept, id));
        }
        Ok((None, self.last_deletion(caller, (concept, space, id))?))
    }

    fn last_deletion(
        &self,
        caller: &Caller,
        (concept, space, id): (&str, Option<&str>, &str),
    ) -> Result<Option<Position>, Problem> {
        let subject = model::event::Subject { kind: concept.to_owned(), id: id.to_owned() };
        let mut query = crate::tenant::Query {
            subject: Some(subject),
            space: space.map(str::to_owned),
            descending: true,
            sight: caller.sight.clone(),
            ..crate::tenant::Query::default()
        };
        loop {
            let page = self.find(&query)?;
            for event in &page.events {
                if self.past(event.position)?.is_some() {
                    return Ok(Some(event.position));
                }
            }
            match page.next {
                Some(cursor) => query.cursor = Some(cursor),
                None => return Ok(None),
            }
        }
    }

    /// The change whose event stands at this position; `None` when it was trimmed or the event is no change.
    pub(super) fn past(&self, position: Position) -> Result<Option<Past>, Problem> {
        if position < self.first() {
            return Ok(None);
        }
        self.with_reader(|reader| {
            let mut bytes = Vec::new();
            reader.read(position, 1, &mut bytes).map_err(read::problem)?;
            let mut event = None;
            read::events(&bytes, (position, position), |found| event = Some(found))?;
            let (Some(event), Some(changed)) = (event, read::changed_at(&bytes, position + 1)?) else {
                return Ok(None);
            };
            let said = event.content.payload().and_then(|payload| serde_json::from_str(payload).ok());
            let (time, actor) = (event.recorded_at, event.envelope.actor.clone());
            Ok(Some(Past { position, time, actor, changed, said }))
        })
    }
}

impl Moment {
    /// A position, or an instant.
    pub fn parse(text: &str) -> Result<Moment, Problem> {
        match text.parse() {
            Ok(position) => Ok(Moment::Position(position)),
            Err(_) => Ok(Moment::Time(Timestamp::parse(text)?)),
        }
    }

    pub(super) fn includes(self, position: Position, time: Timestamp) -> bool {
        match self {
            Moment::Position(moment) => position <= moment,
            Moment::Time(moment) => time <= moment,
        }
    }
}

impl Past {
    fn visible(&self, caller: &Caller, concept: &crate::entity::Concept) -> bool {
        self.to_row().map_or(!caller.outside || concept.owner().is_none(), |row| concept.shows(&row, caller))
    }

    fn to_json(&self) -> Value {
        let mut change = json!({
            "position": self.position, "time": self.time, "kind": self.changed.change, "actor": self.actor,
        });
        match &self.said {
            Some(said) => {
                for name in ["prev", "next", "delta", "changed_fields", "provenance"] {
                    change[name] = said.get(name).cloned().unwrap_or(Value::Null);
                }
            }
            None => change["erased"] = true.into(),
        }
        change
    }

    pub(super) fn to_row(&self) -> Result<Row, Problem> {
        let erased = || {
            let detail = format!("the change at position {} was erased", self.position);
            Problem::new(Code::EventErased, detail).hint("ask for another version")
        };
        let said = self.said.as_ref().ok_or_else(erased)?;
        let read = |name: &str| said.get(name).cloned().unwrap_or_default();
        let created = read("createdAt").as_str().and_then(|at| Timestamp::parse(at).ok());
        let provenance: Provenance = serde_json::from_value(read("provenance")).unwrap_or_default();
        Ok(Row {
            concept: self.changed.concept.clone(),
            space: self.changed.space.clone(),
            id: self.changed.id.clone(),
            version: self.position,
            created_at: created.unwrap_or(self.time),
            created_by: String::new(),
            updated_at: self.time,
            fields: serde_json::from_value(read("payload")).unwrap_or_default(),
            sealed: Default::default(),
            since: Default::default(),
            provenance,
        })
    }
}
