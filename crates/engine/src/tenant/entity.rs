//! Writes and reads of rows, on the caller's side: who writes, where, with which secrets; then the writer is asked.

mod history;
mod past;
pub(crate) mod query;
mod readers;
mod recent;

use model::definition::Scope;
use model::{Code, Position, Problem};
use rusqlite::Connection;

pub use history::{HistoryPage, Lately, Moment, Paging};
pub use query::{Asking, Found, Listing};
pub(super) use readers::RowReaders;
pub(super) use recent::Recent;
use recent::{Look, Now};

use super::publish::unexpected;
use super::{Tenant, open};
use crate::admit::Caller;
use crate::command::{Answer, Command};
use crate::deliver::lock;
use crate::entity::seal::{self, Key, place_of};
use crate::entity::{Concept, Row, Write, Written};
use crate::state::{Fault, entity as state};
use crate::writer::Fatal;

impl Tenant {
    /// Writes one row; answers when it is durable. A write that changes nothing is no event.
    pub async fn write(&self, caller: &Caller, write: Write) -> Result<Written, Problem> {
        let write = self.prepare_one(caller, write)?;
        only(self.ask(Command::Write { writes: vec![write] }).await?)
    }

    /// As [`Tenant::write`], for one of many in a row that are not waited for one by one.
    pub async fn write_queued(&self, caller: &Caller, write: Write) -> Result<Written, Problem> {
        let write = self.prepare_one(caller, write)?;
        only(self.ask_queued(Command::Write { writes: vec![write] }).await?)
    }

    /// As [`Tenant::write`], for callers that may block.
    pub fn write_blocking(&self, caller: &Caller, write: Write) -> Result<Written, Problem> {
        let write = self.prepare_one(caller, write)?;
        only(self.ask_blocking(Command::Write { writes: vec![write] })?)
    }

    /// Several writes in one commit: all of them, or none.
    pub async fn write_all(&self, caller: &Caller, writes: Vec<Write>) -> Result<Vec<Written>, Problem> {
        self.allow_events(caller, writes.len())?;
        let prepare = |(index, write)| {
            self.prepare(caller, write).map_err(|problem| problem.within(&format!("/{index}")))
        };
        let writes = writes.into_iter().enumerate().map(prepare).collect::<Result<Vec<_>, _>>()?;
        match self.ask(Command::Write { writes }).await? {
            Answer::Written(written) => Ok(written),
            _ => Err(unexpected()),
        }
    }

    /// As [`Tenant::write_all`], for callers that may block.
    pub(crate) fn write_all_blocking(
        &self,
        caller: &Caller,
        writes: Vec<Write>,
    ) -> Result<Vec<Written>, Problem> {
        self.allow_events(caller, writes.len())?;
        let prepared = writes.into_iter().map(|write| self.prepare(caller, write));
        match self.ask_blocking(Command::Write { writes: prepared.collect::<Result<_, _>>()? })? {
            Answer::Written(written) => Ok(written),
            _ => Err(unexpected()),
        }
    }

    /// As [`Tenant::prepare`], of one that comes alone: the event that it becomes is among those that the tenant may bring.
    fn prepare_one(&self, caller: &Caller, write: Write) -> Result<Write, Problem> {
        self.allow_events(caller, 1)?;
        self.prepare(caller, write)
    }

    fn prepare(&self, caller: &Caller, mut write: Write) -> Result<Write, Problem> {
        let catalog = self.catalog();
        let concept = catalog.concept_for(caller.outside, &write.concept)?;
        write.space = self.space_of(caller, concept, write.space)?;
        if !caller.sight.sees_space(&write.space) {
            return Err(caller.sight.denied(&write.space, Default::default()));
        }
        write.actor.clone_from(&caller.actor);
        write.owner = caller.outside.then(|| caller.actor.clone());
        write.trace = write.trace.or_else(|| caller.trace.clone());
        if !concept.secrets.is_empty() {
            seal::seal(self.key()?, concept, &mut write)?;
        }
        Ok(write)
    }

    /// A row's secret in the clear, for effects that need it. Never for a door.
    pub fn reveal(&self, row: &Row, pointer: &str) -> Result<Option<serde_json::Value>, Problem> {
        let Some(sealed) = row.sealed.get(pointer) else { return Ok(None) };
        let key = self.key()?;
        // A row whose id is the hash of what it says was sealed before it had one.
        let open = |id: &str| key.open(&place_of(&row.concept, &row.space, id, pointer), sealed);
        Ok(open(&row.id).or_else(|| open("")))
    }

    /// Made on first use, at the latest when a concept with a secret is declared: decisions find it, they never make it.
    pub(super) fn key(&self) -> Result<&Key, Problem> {
        if let Some(key) = self.0.key.get() {
            return Ok(key);
        }
        let mut entropy = lock(&self.0.entropy);
        let fresh = entropy.bytes();
        let key = match self.dir().and_then(|dir| dir.parent()?.parent()) {
            Some(data) => open::key_at(&data.join("keys").join(self.name()), fresh)?,
            None => Key::new(fresh),
        };
        Ok(self.0.key.get_or_init(|| key))
    }

    fn space_of(&self, caller: &Caller, concept: &Concept, space: String) -> Result<String, Problem> {
        if concept.definition.scope == Scope::Global {
            return Ok("_system".to_owned());
        }
        let meant = || caller.sight.space_meant(&self.settings().default_space).to_owned();
        let space = if space.is_empty() { meant() } else { space };
        if caller.outside && space.starts_with('_') {
            let detail = format!("space {space:?} is reserved, as all that begin with \"_\"");
            return Err(Problem::new(Code::EntityInvalid, detail).hint("choose another name").at("/space"));
        }
        Ok(space)
    }

    /// One row as it is now. Without a space: that of the default space, else the only one with this id.
    pub fn entity(
        &self,
        caller: &Caller,
        concept: &str,
        space: Option<&str>,
        id: &str,
    ) -> Result<Row, Problem> {
        let catalog = self.catalog();
        let concept = catalog.concept_for(caller.outside, concept)?;
        let global = (concept.definition.scope == Scope::Global).then_some("_system");
        let default = self.settings().default_space.as_str();
        let exactly = global.or(space).or(caller.sight.only_space());
        let found = |db: &Connection| {
            match exactly {
                Some(space) => state::row(db, concept.id(), space, id),
                None => match state::row(db, concept.id(), default, id) {
                    Ok(None) => state::only_row(db, concept.id(), id),
                    found => found,
                },
            }
            .map_err(broken)
        };
        let row = match self.0.recent.look(concept.id(), exactly.unwrap_or(default), id) {
            Look::Known(Now::Row(row)) => Some(Row::clone(&row)),
            Look::Known(Now::Gone) if exactly.is_some() => None,
            Look::Known(_) => self.with_writer(|writer| found(writer.state.table().map_err(broken)?))?,
            Look::Elsewhere if exactly.is_none() => {
                self.with_writer(|writer| found(writer.state.table().map_err(broken)?))?
            }
            Look::Elsewhere | Look::Committed => self.with_committed(found)?,
        };
        row.filter(|row| concept.shows(row, caller)).ok_or_else(|| absent(concept.id(), id))
    }

    /// What writes answered can be read from now on, without the writer.
    pub(super) fn note_rows(&self, answers: &[Result<Answer, Problem>]) {
        for answer in answers {
            if let Ok(Answer::Written(written)) = answer {
                written.iter().for_each(|written| self.0.recent.fill(written));
            }
        }
    }

    /// Whether a current row rests on the content of this event, which then cannot be erased.
    pub(crate) fn row_resting_on(&self, event: Position) -> Result<Option<(String, String)>, Problem> {
        self.with_writer(|writer| writer.state.rests_on(event).map_err(broken))
    }
}

pub(crate) fn absent(concept: &str, id: &str) -> Problem {
    Problem::new(Code::NotFound, format!("there is no \"{id}\" of \"{concept}\""))
        .hint(format!("`everwhen entity list {concept}` shows what is there"))
}

pub(crate) fn broken(fault: Fault) -> Problem {
    Fatal::from(fault).0
}

fn only(answer: Answer) -> Result<Written, Problem> {
    match answer {
        Answer::Written(mut written) if !written.is_empty() => Ok(written.swap_remove(0)),
        _ => Err(unexpected()),
    }
}
