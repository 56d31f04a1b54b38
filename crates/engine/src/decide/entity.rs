//! Decides writes of rows: merge, check by the concept, and for each change its event, the change itself and what derives.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::definition::Scope;
use model::event::{Content, Envelope, Event, Subject};
use model::record::{Changed, Record};
use model::{Code, Position, Problem};
use serde_json::{Map, Value};

use super::{Decided, Entry, Ground, Refusal, raised};
use crate::command::Answer;
use crate::entity::check::{Fill, check};
use crate::entity::payload::Changing;
use crate::entity::row::owned_by;
use crate::entity::{self, Action, Concept, Expect, MASK, ROW_BYTES_MAX, Row, Write, Written, seal};
use crate::faults::planted;
use crate::state::State;

type Key = (String, String, String);

/// The state and, before it is folded, what this same commit has written.
struct Rows<'a> {
    state: &'a State,
    cause: Option<Cause<'a>>,
    /// More than one write: the later ones see the earlier.
    several: bool,
    written: BTreeMap<Key, Option<Row>>,
}

/// What a change was made by, when that was a run: its event's position, the depth of what it causes, its id.
pub type Cause<'a> = (Position, u32, Option<&'a str>);

/// As [`write`], for the writes of a run.
pub fn write_caused(
    state: &State,
    writes: Vec<Write>,
    cause: Cause<'_>,
    ground: &mut Ground<'_>,
) -> Result<(Vec<Entry>, Vec<Written>), Refusal> {
    write_all(state, writes, Some(cause), ground)
}

/// All or none, in one commit.
pub(super) fn write(state: &State, writes: Vec<Write>, ground: &mut Ground<'_>) -> Result<Decided, Refusal> {
    let (entries, written) = write_all(state, writes, None, ground)?;
    Ok(Decided { entries, answer: Answer::Written(written), sync: true })
}

fn write_all(
    state: &State,
    writes: Vec<Write>,
    cause: Option<Cause<'_>>,
    ground: &mut Ground<'_>,
) -> Result<(Vec<Entry>, Vec<Written>), Refusal> {
    let several = writes.len() > 1;
    let mut rows = Rows { state, cause, several, written: BTreeMap::new() };
    let (mut entries, mut answers) = (Vec::new(), Vec::with_capacity(writes.len()));
    for (index, write) in writes.into_iter().enumerate() {
        let written = write_one(&mut rows, write, &mut entries, ground).map_err(|refusal| match refusal {
            Refusal::Problem(problem) if several => problem.within(&format!("/{index}")).into(),
            refusal => refusal,
        })?;
        answers.push(written);
    }
    Ok((entries, answers))
}

fn write_one(
    rows: &mut Rows<'_>,
    write: Write,
    entries: &mut Vec<Entry>,
    ground: &mut Ground<'_>,
) -> Result<Written, Refusal> {
    let concept = rows.state.catalog.concept_for(false, &write.concept)?.clone();
    let space = space_of(&concept, &write)?;
    let id = match &write.id {
        Some(id) => id.clone(),
        None => hash_id(&concept, &write)?,
    };
    entity::check_id(&id)?;
    let key = (concept.id().to_owned(), space, id);
    let prev = rows.get(&key)?;
    if let (Some(row), Some(field), Some(owner)) = (&prev, concept.owner(), &write.owner)
        && !row.belongs_to(field, owner)
    {
        return Err(absent(&key).into());
    }
    expect(&write, prev.as_ref(), &key)?;
    let next = match next_row(rows.state, &concept, &write, prev.as_ref(), &key, ground)? {
        Next::Same(row) => return Ok(Written { row, change: None }),
        Next::Row(row) => {
            unique(rows, &concept, &row, write.owner.as_deref())?;
            Some(row)
        }
        Next::Gone => None,
    };
    let changing = Changing {
        concept: &concept,
        prev: prev.as_ref(),
        next: next.as_ref(),
        actor: &write.actor,
        provenance: &write.provenance,
        now: ground.now,
    };
    let delta = changing.delta();
    let since = since(&changing, &delta);
    let (change, version) = record(rows, &changing, (&delta, &since), &write, entries, ground);
    let next = next.map(|row| Row { version, since, ..row });
    if rows.several {
        rows.written.insert(key.clone(), next.clone());
    }
    let gone = prev.map(|row| Row { provenance: write.provenance, ..row });
    let row = next.or(gone).ok_or_else(|| absent(&key))?;
    Ok(Written { row, change: Some(change) })
}

enum Next {
    Same(Row),
    Row(Row),
    Gone,
}

/// The row after the write, checked; its version is still missing, and since when each field is what it is.
fn next_row(
    state: &State,
    concept: &Concept,
    write: &Write,
    prev: Option<&Row>,
    key: &Key,
    ground: &Ground<'_>,
) -> Result<Next, Refusal> {
    let (fields, fill) = match (&write.action, prev) {
        (Action::Delete, Some(_)) => return Ok(Next::Gone),
        (Action::Delete | Action::Patch(_), None) => return Err(absent(key).into()),
        (Action::Put(fields), _) => (fields.clone(), Fill::All),
        (Action::Insert { fields, told }, Some(row)) => return collapse(state, write, (fields, told), row),
        (Action::Insert { fields, .. }, None) => (fields.clone(), Fill::All),
        (Action::Upsert(patch), None) => (merged(Map::new(), patch), Fill::All),
        (Action::Patch(patch) | Action::Upsert(patch), Some(row)) => {
            (merged(row.fields.clone(), patch), Fill::Required)
        }
    };
    let fields = with_owner(concept, write, check(concept, fields, fill)?)?;
    check_size(&fields)?;
    let sealed = seals(concept, &fields, write, prev)?;
    if let Some(prev) = prev {
        immutable(state, concept, prev, (&fields, &sealed))?;
        if entity::same_fields(&prev.fields, &fields) && prev.sealed == sealed && !write.force {
            return Ok(Next::Same(prev.clone()));
        }
    }
    Ok(Next::Row(Row {
        concept: key.0.clone(),
        space: key.1.clone(),
        id: key.2.clone(),
        version: 0,
        created_at: prev.map_or(ground.now, |row| row.created_at),
        created_by: prev.map_or(write.actor.clone(), |row| row.created_by.clone()),
        updated_at: ground.now,
        since: BTreeMap::new(),
        provenance: write.provenance.clone(),
        fields,
        sealed,
    }))
}

fn merged(mut fields: Map<String, Value>, patch: &Map<String, Value>) -> Map<String, Value> {
    entity::merge(&mut fields, patch.clone());
    fields
}

/// A repeated insert is the same row; one that says something else is refused.
fn collapse(
    state: &State,
    write: &Write,
    (fields, told): (&Map<String, Value>, &[String]),
    row: &Row,
) -> Result<Next, Refusal> {
    let differs = told.iter().find(|name| {
        let said = fields.get(*name).filter(|value| !value.is_null());
        said.is_some_and(|said| !row.fields.get(*name).is_some_and(|there| entity::same(said, there)))
    });
    let name_of = |pointer: &str| pointer.trim_start_matches('/').replace('/', ".");
    // Behind their masks secrets look alike.
    let is_same = |pointer: &str, now: &str| {
        row.sealed.get(pointer).is_some_and(|seal| seal == now || opened(state, row, pointer, now, seal))
    };
    let secret = || write.sealed.iter().find(|(pointer, now)| !is_same(pointer, now));
    match differs.cloned().or_else(|| secret().map(|(pointer, _)| name_of(pointer))) {
        None => Ok(Next::Same(row.clone())),
        Some(name) => {
            let detail = format!("\"{}\" of \"{}\" is there with another \"{name}\"", row.id, row.concept);
            Err(Problem::new(Code::EntityExists, detail)
                .hint("update it, upsert it, or insert under another id")
                .with("version", row.version)
                .into())
        }
    }
}

/// Rows that belong to their owner name it; a writer who does not is taken for the owner.
fn with_owner(
    concept: &Concept,
    write: &Write,
    mut fields: Map<String, Value>,
) -> Result<Map<String, Value>, Problem> {
    let (Some(field), Some(actor)) = (concept.owner(), &write.owner) else { return Ok(fields) };
    if !fields.contains_key(field) {
        fields.insert(field.to_owned(), actor.clone().into());
    }
    if owned_by(&fields, field, actor) {
        return Ok(fields);
    }
    let detail =
        format!("rows of \"{}\" belong to who \"{field}\" names, and that is not {actor}", concept.id());
    Err(Problem::new(Code::AuthDenied, detail)
        .hint("write rows of your own")
        .at(format!("/{}", entity::token(field))))
}

/// The row's sealed secrets: new ones as they came, masked ones as they were.
fn seals(
    concept: &Concept,
    fields: &Map<String, Value>,
    write: &Write,
    prev: Option<&Row>,
) -> Result<BTreeMap<String, String>, Problem> {
    let mut sealed = BTreeMap::new();
    for pointer in concept.secrets.iter().filter(|pointer| value_at(fields, pointer).is_some()) {
        let kept = prev.and_then(|row| row.sealed.get(pointer));
        match write.sealed.get(pointer).or(kept) {
            Some(seal) => _ = sealed.insert(pointer.clone(), seal.clone()),
            None => {
                let detail = format!("\"{MASK}\" at \"{pointer}\" is what a secret reads as, not its value");
                return Err(Problem::new(Code::EntityInvalid, detail)
                    .hint("give the secret itself")
                    .at(pointer.as_str()));
            }
        }
    }
    Ok(sealed)
}

/// Secrets all read as the mask: whether one stays is told by its seal, or by what that opens to.
fn immutable(
    state: &State,
    concept: &Concept,
    prev: &Row,
    (fields, sealed): (&Map<String, Value>, &BTreeMap<String, String>),
) -> Result<(), Problem> {
    for pointer in &concept.immutable {
        let Some(before) = value_at(&prev.fields, pointer) else { continue };
        let stays = value_at(fields, pointer).is_some_and(|now| entity::same(before, now));
        let mut within = prev.sealed.iter().filter(|(at, _)| {
            at.strip_prefix(pointer.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        let same_secret = |(at, seal): (&String, &String)| {
            sealed.get(at).is_some_and(|now| now == seal || opened(state, prev, at, now, seal))
        };
        if !stays || !within.all(same_secret) {
            let name = pointer.trim_start_matches('/').replace('/', ".");
            let detail = format!("field \"{name}\" of \"{}\" is set once and stays", concept.id());
            return Err(Problem::new(Code::EntityInvalid, detail)
                .hint("make a new row instead")
                .at(pointer.as_str()));
        }
    }
    Ok(())
}

/// Whether two seals of one field hold the same: a row whose id is the hash of what it says was sealed before it had one.
fn opened(state: &State, row: &Row, pointer: &str, now: &str, before: &str) -> bool {
    let Some(key) = state.key.get() else { return false };
    let open = |sealed: &str| {
        let at = |id: &str| key.open(&seal::place_of(&row.concept, &row.space, id, pointer), sealed);
        at(&row.id).or_else(|| at(""))
    };
    open(before).is_some_and(|before| open(now) == Some(before))
}

/// A row that was just made is as old as its fields, and says nothing of them.
fn since(changing: &Changing<'_>, delta: &Map<String, Value>) -> BTreeMap<String, String> {
    let (Some(prev), Some(_)) = (changing.prev, changing.next) else { return BTreeMap::new() };
    let mut since = prev.since.clone();
    since.extend(delta.keys().map(|name| (name.clone(), changing.now.to_string())));
    since
}

/// `owner` is who writes and sees rows of their own only: one of somebody else is not named to them.
fn unique(rows: &Rows<'_>, concept: &Concept, row: &Row, owner: Option<&str>) -> Result<(), Refusal> {
    for pointer in &concept.unique {
        let Some(value) = value_at(&row.fields, pointer) else { continue };
        let here = rows.written.values().flatten().find(|other| {
            other.concept == row.concept
                && other.space == row.space
                && other.id != row.id
                && value_at(&other.fields, pointer) == Some(value)
        });
        let holder = match here {
            Some(other) => Some(other.clone()),
            // A row that this commit has already changed is judged by what it says now.
            None => rows.state.holder(row, pointer, value)?.filter(|other| {
                !rows.written.contains_key(&(row.concept.clone(), row.space.clone(), other.id.clone()))
            }),
        };
        if let Some(holder) = holder {
            let name = pointer.trim_start_matches('/').replace('/', ".");
            let is_seen =
                concept.owner().zip(owner).is_none_or(|(field, actor)| holder.belongs_to(field, actor));
            let holder = if is_seen { format!("\"{}\"", holder.id) } else { "another row".to_owned() };
            let detail =
                format!("field \"{name}\" of \"{}\" is unique, and {holder} has {value}", row.concept);
            return Err(Problem::new(Code::EntityInvalid, detail)
                .hint("choose another value")
                .at(pointer.as_str())
                .into());
        }
    }
    Ok(())
}

/// The event of the change, the change itself, and the events it derives. Gives the kind and the new version.
fn record(
    rows: &Rows<'_>,
    changing: &Changing<'_>,
    (delta, since): (&Map<String, Value>, &BTreeMap<String, String>),
    write: &Write,
    entries: &mut Vec<Entry>,
    ground: &mut Ground<'_>,
) -> (model::record::Change, Position) {
    if entries.is_empty() {
        entries.extend(raised(rows.state, ground));
    }
    let change = changing.change();
    let payload = changing.payload(delta);
    let Some(row) = changing.next.or(changing.prev) else { return (change, 0) };
    let version = ground.next + entries.len() as u64;
    let envelope = Envelope {
        topic: format!("graph.node.{}.{}", change.as_str(), row.concept),
        space: row.space.clone(),
        actor: write.actor.clone(),
        subject: Some(Subject { kind: row.concept.clone(), id: row.id.clone() }),
        trace: write.trace.clone(),
        cause: rows.cause.map(|(position, ..)| position).filter(|position| *position > 0),
        depth: rows.cause.map_or(0, |(_, depth, _)| depth),
        run: rows.cause.and_then(|(.., run)| run.map(str::to_owned)),
        ..Envelope::default()
    };
    let derived = changing.concept.derived(
        changing.prev.map(|row| &row.fields),
        changing.next.map(|row| &row.fields),
        delta,
    );
    entries.push(event(envelope.clone(), &payload, version, ground));
    let changed = Changed {
        change,
        concept: row.concept.clone(),
        space: row.space.clone(),
        id: row.id.clone(),
        prev: changing.prev.map(|row| row.version),
        since: since.clone(),
        sealed: changing.next.map(|row| row.sealed.clone()).unwrap_or_default(),
    };
    if !planted("event_without_change") {
        entries.push(Entry::new(Record::EntityChanged(Box::new(changed)), ground.entropy));
    }
    for topic in derived {
        let envelope = Envelope {
            topic: topic.to_owned(),
            cause: Some(version),
            depth: envelope.depth + 1,
            ..envelope.clone()
        };
        let position = ground.next + entries.len() as u64;
        entries.push(event(envelope, &payload, position, ground));
    }
    (change, version)
}

fn event(envelope: Envelope, payload: &str, position: Position, ground: &mut Ground<'_>) -> Entry {
    let envelope = Envelope { id: model::id::ulid(ground.now, ground.entropy.bytes()), ..envelope };
    let content = Content::new(payload, None);
    let event = Event { position, recorded_at: ground.now, envelope, content };
    Entry::new(Record::Event(Arc::new(event)), ground.entropy)
}

fn space_of(concept: &Concept, write: &Write) -> Result<String, Problem> {
    if concept.definition.scope == Scope::Global {
        return Ok("_system".to_owned());
    }
    if write.space.is_empty() {
        return Err(Problem::new(
            Code::EventSpaceRequired,
            "the write names no space and there is no default",
        )
        .hint("add \"space\", or set events.default_space"));
    }
    Ok(write.space.clone())
}

/// The id of a row that was given none: what it says is what it is.
fn hash_id(concept: &Concept, write: &Write) -> Result<String, Problem> {
    let (Action::Put(fields) | Action::Upsert(fields) | Action::Insert { fields, .. }) = &write.action else {
        return Err(Problem::new(Code::EntityInvalid, "a patch or delete names the row by its id").at("/id"));
    };
    let (name, row) = (Value::from(concept.id()).to_string(), Value::Object(fields.clone()).to_string());
    let sealed = serde_json::json!(write.sealed).to_string();
    let hash = model::json::canonical_hash([name.as_str(), &row, &sealed]);
    Ok(model::id::hex(&hash[..16]))
}

fn expect(write: &Write, prev: Option<&Row>, key: &Key) -> Result<(), Problem> {
    let (concept, _, id) = key;
    let detail = match (&write.expect, prev) {
        (Expect::Anything, _) | (Expect::Present, Some(_)) | (Expect::Absent, None) => return Ok(()),
        (Expect::Version(version), Some(row)) if row.version == *version => return Ok(()),
        (Expect::OneOf(versions), Some(row)) if versions.contains(&row.version) => return Ok(()),
        (Expect::Version(_), Some(_)) if planted("ignore_if_match") => return Ok(()),
        (Expect::Version(version), Some(row)) => {
            format!("\"{id}\" of \"{concept}\" is at version {}, not {version}", row.version)
        }
        (Expect::OneOf(_), Some(row)) => {
            format!("\"{id}\" of \"{concept}\" is at version {}, none of those", row.version)
        }
        (Expect::Version(_) | Expect::OneOf(_) | Expect::Present, None) => {
            format!("there is no \"{id}\" of \"{concept}\"")
        }
        (Expect::Absent, Some(row)) => {
            format!("\"{id}\" of \"{concept}\" is there, at version {}", row.version)
        }
    };
    let problem = Problem::new(Code::IfMatchFailed, detail).hint("read it again and decide anew");
    Err(prev.map_or(problem.clone(), |row| problem.with("version", row.version)))
}

fn absent((concept, _, id): &Key) -> Problem {
    Problem::new(Code::NotFound, format!("there is no \"{id}\" of \"{concept}\""))
        .hint(format!("`everwhen entity list {concept}` shows what is there"))
}

pub(crate) fn value_at<'a>(fields: &'a Map<String, Value>, pointer: &str) -> Option<&'a Value> {
    let mut steps = pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~"));
    let first = fields.get(&steps.next()?)?;
    steps.try_fold(first, |value, step| value.get(&step)).filter(|value| !value.is_null())
}

impl Rows<'_> {
    fn get(&self, key: &Key) -> Result<Option<Row>, Refusal> {
        match self.written.get(key) {
            Some(row) => Ok(row.clone()),
            None => Ok(self.state.row(&key.0, &key.1, &key.2)?),
        }
    }
}

/// Rows are bounded, because their events carry them several times.
fn check_size(fields: &Map<String, Value>) -> Result<(), Problem> {
    let bytes = model::json::length(fields);
    if bytes <= ROW_BYTES_MAX {
        return Ok(());
    }
    let detail = format!("the row has {bytes} bytes, more than {ROW_BYTES_MAX}");
    Err(Problem::new(Code::BodyTooLarge, detail).hint("keep large values elsewhere and their names here"))
}
