//! Definitions and rows in `state.db`: folded from the ledger, read by deciding and by everybody who asks.

pub mod at_hand;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use model::definition::{Definition, Kind};
use model::event::Event;
use model::record::{Applied, Change, Changed};
use model::{Position, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row as SqlRow, params};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Result, State};
use crate::apply::Place;
use crate::entity::catalog::Entry;
use crate::entity::find::{Index, quoted};
use crate::entity::{Catalog, Row};
use at_hand::Columns;

/// The columns of a row, in the order [`row_of`] reads them.
pub const COLUMNS: &str =
    "concept, id, space, version, created_at, created_by, updated_at, fields, sealed, since, provenance";

/// Where a row stands, and how much it holds.
pub struct RowSize {
    pub concept: String,
    pub id: String,
    pub version: Position,
    pub bytes: usize,
}

/// What the event of a change said, until its `entity.changed` is folded right after it.
pub(crate) struct Carried {
    position: Position,
    actor: String,
    fields: String,
    provenance: String,
}

impl Carried {
    /// `None` for events that are no changes of rows. Of one whose content was erased only who made it is left: an erased
    /// change is never the last one of a row, so the rest is overwritten later.
    pub fn of(event: &Event) -> Option<Carried> {
        #[derive(Deserialize)]
        struct Said<'a> {
            #[serde(borrow)]
            payload: &'a RawValue,
            #[serde(borrow)]
            provenance: &'a RawValue,
        }
        if !event.envelope.topic.starts_with("graph.node.") {
            return None;
        }
        let said: Option<Said<'_>> = event.content.payload().and_then(|said| serde_json::from_str(said).ok());
        let (fields, provenance) =
            said.map_or(("{}", "{}"), |said| (said.payload.get(), said.provenance.get()));
        Some(Carried {
            position: event.position,
            actor: event.envelope.actor.clone(),
            fields: fields.to_owned(),
            provenance: provenance.to_owned(),
        })
    }
}

impl State {
    pub(crate) fn define(&mut self, place: Place, applied: &Applied) -> Result<()> {
        let replaced = applied.set.iter().map(|set| (set.kind, &set.name));
        let replaced = replaced.chain(applied.removed.iter().map(|(kind, name)| (*kind, name)));
        for (_, name) in replaced.filter(|(kind, _)| *kind == Kind::Automation) {
            self.retire(name, place.position)?;
        }
        for (_, name) in applied.removed.iter().filter(|(kind, _)| *kind == Kind::Automation) {
            self.forget_automation(name)?;
        }
        for (kind, name) in &applied.removed {
            self.db.execute(
                "DELETE FROM definition WHERE kind = ?1 AND name = ?2",
                params![kind.as_str(), name],
            )?;
        }
        for set in &applied.set {
            let mut put = self.db.prepare_cached(
                "INSERT OR REPLACE INTO definition (kind, name, hash, managed_by, position, body)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?;
            let (kind, body) = (set.kind.as_str(), set.definition.get());
            put.execute(params![kind, set.name, set.hash, applied.managed_by, place.position, body])?;
        }
        self.open_rows += applied.set.len() + applied.removed.len() + 1;
        self.catalog = Arc::new(self.catalog.after(place.position, applied));
        self.make_room()?;
        self.index()
    }

    /// Makes the indexes that declared queries and unique fields want, and drops those nobody wants any more. They are
    /// no part of what the state says.
    pub(super) fn index(&mut self) -> Result<()> {
        let mut wanted: BTreeMap<String, String> = BTreeMap::new();
        let mut want = |index: Index| wanted.insert(index.name, index.on);
        for concept in self.catalog.concepts() {
            let by = |at: &String| format!("json_extract(fields, {})", json_path(at));
            for at in &concept.unique {
                want(Index::over(concept.id(), &[by(at)]));
            }
        }
        for (_, entry) in self.catalog.entries() {
            if let Definition::Query(query) = entry.definition.as_ref()
                && let Ok(concept) = self.catalog.concept(&query.concept)
            {
                Index::of(query, concept).map(&mut want);
            }
        }
        let mut read = self
            .db
            .prepare("SELECT name FROM sqlite_master WHERE type = 'index' AND name LIKE 'entity_by_%'")?;
        let there = read.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
        drop(read);
        for name in there.iter().filter(|name| !wanted.contains_key(*name)) {
            self.db.execute_batch(&format!("DROP INDEX {name}"))?;
        }
        for (name, on) in wanted.iter().filter(|(name, _)| !there.contains(name)) {
            self.db.execute_batch(&format!("CREATE INDEX {name} ON {on}"))?;
        }
        Ok(())
    }

    pub(crate) fn change(&mut self, place: Place, changed: &Changed) -> Result<()> {
        let version = place.position - 1;
        let carried = self.carried.take().filter(|carried| carried.position == version);
        let Changed { concept, id, space, .. } = changed;
        self.open_rows += 1;
        if changed.change == Change::Deleted {
            self.at_hand.drop_row(concept, space, id);
            return remove_row(&self.db, concept, space, id);
        }
        let (actor, fields, provenance) = carried.map_or_else(
            || (String::new(), "{}".to_owned(), "{}".to_owned()),
            |carried| (carried.actor, carried.fields, carried.provenance),
        );
        let now = place.time.to_string();
        let made = match changed.change {
            Change::Created => Some((now.clone(), actor.clone())),
            _ => self.at_hand.made(concept, space, id),
        };
        let is_known = made.is_some();
        let (created_at, created_by) = made.unwrap_or_else(|| (now.clone(), actor));
        let columns = Columns {
            concept: concept.clone(),
            id: id.clone(),
            space: space.clone(),
            version,
            created_at,
            created_by,
            updated_at: now,
            fields,
            sealed: json_or_none(&changed.sealed),
            since: json_or_none(&changed.since),
            provenance,
        };
        if !is_known {
            return columns.put(&self.db);
        }
        if self.at_hand.put(columns, true) {
            self.write_rows()?;
        }
        Ok(())
    }

    /// The row in this space, else the global one, else the only one with this id where all spaces are seen.
    pub fn row_near(&self, concept: &str, space: &str, id: &str) -> Result<Option<Row>> {
        let concept = self.catalog.concept(concept).map_or(concept, |concept| concept.id()).to_owned();
        for space in [space, "_system"] {
            if let Some(row) = self.row(&concept, space, id)? {
                return Ok(Some(row));
            }
        }
        if space == "_system" { self.only_row(&concept, id) } else { Ok(None) }
    }

    /// The row with this id, when only one space has it.
    pub fn only_row(&self, concept: &str, id: &str) -> Result<Option<Row>> {
        only_row(self.table()?, concept, id)
    }

    /// Whether a row's values are those of the event at this position.
    pub fn rests_on(&self, position: Position) -> Result<Option<(String, String)>> {
        let mut read = self.table()?.prepare_cached("SELECT concept, id FROM entity WHERE version = ?1")?;
        Ok(read.query_row([position], |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
    }

    /// Every row in a space: concept, id and version.
    pub fn rows_in(&self, space: &str) -> Result<Vec<RowSize>> {
        let sql = "SELECT concept, id, version, octet_length(fields) FROM entity WHERE space = ?1";
        let mut read = self.table()?.prepare_cached(sql)?;
        let rows = read.query_map([space], |row| {
            let (concept, id, version) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(RowSize { concept, id, version, bytes: row.get(3)? })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Another row of the concept and space with this value at `pointer`.
    pub fn holder(&self, row: &Row, pointer: &str, value: &serde_json::Value) -> Result<Option<Row>> {
        let path = json_path(pointer);
        let mut read = self.table()?.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM entity WHERE concept = {} AND space = ?1 AND id <> ?2
             AND json_extract(fields, {path}) = json_extract(?3, '$[0]') LIMIT 1",
            quoted(&row.concept)
        ))?;
        let value = serde_json::Value::Array(vec![value.clone()]).to_string();
        Ok(read.query_row(params![row.space, row.id, value], row_of).optional()?)
    }

    /// Visits every row of a concept in order.
    pub fn each_row(&self, concept: &str, mut each: impl FnMut(Row)) -> Result<()> {
        let sql = format!("SELECT {COLUMNS} FROM entity WHERE concept = ?1 ORDER BY id, space");
        let mut read = self.table()?.prepare_cached(&sql)?;
        let mut rows = read.query([concept])?;
        while let Some(row) = rows.next()? {
            each(row_of(row)?);
        }
        Ok(())
    }

    pub fn count_rows(&self, concept: &str) -> Result<u64> {
        let mut read = self.table()?.prepare_cached("SELECT count(*) FROM entity WHERE concept = ?1")?;
        Ok(read.query_row([concept], |row| row.get(0))?)
    }
}

/// One row: written out once, because it is asked for that often.
static BY_ID: LazyLock<String> =
    LazyLock::new(|| format!("SELECT {COLUMNS} FROM entity WHERE concept = ?1 AND id = ?2 AND space = ?3"));

pub fn row(db: &Connection, concept: &str, space: &str, id: &str) -> Result<Option<Row>> {
    Ok(db.prepare_cached(&BY_ID)?.query_row(params![concept, id, space], row_of).optional()?)
}

/// See [`State::only_row`].
pub fn only_row(db: &Connection, concept: &str, id: &str) -> Result<Option<Row>> {
    let sql = format!("SELECT {COLUMNS} FROM entity WHERE concept = ?1 AND id = ?2 LIMIT 2");
    let mut read = db.prepare_cached(&sql)?;
    let rows = read.query_map([concept, id], row_of)?.collect::<rusqlite::Result<Vec<Row>>>()?;
    Ok(<[Row; 1]>::try_from(rows).ok().map(|[row]| row))
}

/// Writes a row as it is, into a table that is folded from nothing.
pub fn put_row(db: &Connection, row: &Row) -> Result<()> {
    let mut put = db.prepare_cached(&format!(
        "INSERT OR REPLACE INTO entity ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)"
    ))?;
    let (created, updated) = (row.created_at.to_string(), row.updated_at.to_string());
    let fields = serde_json::json!(row.fields).to_string();
    let provenance = serde_json::json!(row.provenance).to_string();
    let (sealed, since) = (json_or_none(&row.sealed), json_or_none(&row.since));
    put.execute(params![
        row.concept,
        row.id,
        row.space,
        row.version,
        created,
        row.created_by,
        updated,
        fields,
        sealed,
        since,
        provenance
    ])?;
    Ok(())
}

pub fn remove_row(db: &Connection, concept: &str, space: &str, id: &str) -> Result<()> {
    db.prepare_cached("DELETE FROM entity WHERE concept = ?1 AND id = ?2 AND space = ?3")?
        .execute(params![concept, id, space])?;
    Ok(())
}

/// [`COLUMNS`] as they stand in the table.
struct Text<'a> {
    concept: &'a str,
    id: &'a str,
    space: &'a str,
    version: Position,
    created_at: &'a str,
    created_by: &'a str,
    updated_at: &'a str,
    fields: &'a str,
    sealed: Option<&'a str>,
    since: Option<&'a str>,
    provenance: &'a str,
}

impl<'a> Text<'a> {
    fn of(row: &'a SqlRow<'_>) -> rusqlite::Result<Text<'a>> {
        let text = |i| Ok::<_, rusqlite::Error>(row.get_ref(i)?.as_str()?);
        let optional = |i| Ok::<_, rusqlite::Error>(row.get_ref(i)?.as_str_or_null()?);
        Ok(Text {
            concept: text(0)?,
            id: text(1)?,
            space: text(2)?,
            version: row.get(3)?,
            created_at: text(4)?,
            created_by: text(5)?,
            updated_at: text(6)?,
            fields: text(7)?,
            sealed: optional(8)?,
            since: optional(9)?,
            provenance: text(10)?,
        })
    }

    fn row(&self) -> Row {
        let time = |text| Timestamp::parse(text).unwrap_or(Timestamp::EPOCH);
        let map = |text: Option<&str>| -> BTreeMap<String, String> {
            text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
        };
        Row {
            concept: self.concept.to_owned(),
            id: self.id.to_owned(),
            space: self.space.to_owned(),
            version: self.version,
            created_at: time(self.created_at),
            created_by: self.created_by.to_owned(),
            updated_at: time(self.updated_at),
            fields: serde_json::from_str(self.fields).unwrap_or_default(),
            sealed: map(self.sealed),
            since: map(self.since),
            provenance: serde_json::from_str(self.provenance).unwrap_or_default(),
        }
    }
}

/// Reads [`COLUMNS`].
pub fn row_of(row: &SqlRow<'_>) -> rusqlite::Result<Row> {
    Ok(Text::of(row)?.row())
}

/// A JSON pointer as an SQL literal for `json_extract`: `/a/b` is `'$."a"."b"'`.
pub fn json_path(pointer: &str) -> String {
    let steps = pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~"));
    let path: String = steps.map(|step| format!(".\"{}\"", step.replace('"', ""))).collect();
    format!("'${}'", path.replace('\'', "''"))
}

pub(super) fn load_catalog(db: &Connection) -> Result<Catalog> {
    let mut read =
        db.prepare("SELECT hash, managed_by, position, body FROM definition ORDER BY kind, name")?;
    let mut rows = read.query([])?;
    let mut catalog = Catalog::default();
    while let Some(row) = rows.next()? {
        let body: String = row.get(3)?;
        let definition = match Definition::from_json(&body) {
            Ok(definition) => Arc::new(definition),
            Err(err) => {
                tracing::error!(%err, "a recorded definition cannot be used");
                continue;
            }
        };
        let (hash, managed_by, position) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if let Err(problem) = catalog.put(Entry { hash, managed_by, position, definition }) {
            tracing::error!(%problem, "a recorded definition cannot be used");
        }
    }
    catalog.automations.rewire();
    Ok(catalog)
}

fn json_or_none(map: &BTreeMap<String, String>) -> Option<String> {
    (!map.is_empty()).then(|| serde_json::to_string(map).expect("a map of texts is JSON"))
}
