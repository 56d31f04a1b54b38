//! Writes and reads of rows, on the caller's side: who writes, where, with which secrets; then the writer is asked.

mod history;
mod query;

use model::definition::Scope;
use model::{Code, Position, Problem};

pub use history::{HistoryPage, Moment, Paging};
pub(super) use query::RowReaders;
pub use query::{Asking, Found, Listing};

use super::Tenant;
use super::publish::unexpected;
use crate::admit::Caller;
use crate::command::{Answer, Command};
use crate::entity::{Concept, Row, Write, Written};
use crate::state::Fault;
use crate::writer::Fatal;

impl Tenant {
    /// Writes one row; answers when it is durable. A write that changes nothing is no event.
    pub async fn write(&self, caller: &Caller, write: Write) -> Result<Written, Problem> {
        let write = self.prepare(caller, write)?;
        only(self.ask(Command::Write { writes: vec![write] }).await?)
    }

    /// As [`Tenant::write`], for one of many in a row that are not waited for one by one.
    pub async fn write_queued(&self, caller: &Caller, write: Write) -> Result<Written, Problem> {
        let write = self.prepare(caller, write)?;
        only(self.ask_queued(Command::Write { writes: vec![write] }).await?)
    }

    /// As [`Tenant::write`], for callers that may block.
    pub fn write_blocking(&self, caller: &Caller, write: Write) -> Result<Written, Problem> {
        let write = self.prepare(caller, write)?;
        only(self.ask_blocking(Command::Write { writes: vec![write] })?)
    }

    /// Several writes in one commit: all of them, or none.
    pub async fn write_all(&self, caller: &Caller, writes: Vec<Write>) -> Result<Vec<Written>, Problem> {
        let prepare = |(index, write)| {
            self.prepare(caller, write).map_err(|problem| problem.within(&format!("/{index}")))
        };
        let writes = writes.into_iter().enumerate().map(prepare).collect::<Result<Vec<_>, _>>()?;
        match self.ask(Command::Write { writes }).await? {
            Answer::Written(written) => Ok(written),
            _ => Err(unexpected()),
        }
    }

    fn prepare(&self, caller: &Caller, mut write: Write) -> Result<Write, Problem> {
        let catalog = self.catalog();
        let concept = catalog.concept(&write.concept)?;
        write.space = self.space_of(caller, concept, write.space)?;
        write.actor.clone_from(&caller.actor);
        write.owner = caller.outside.then(|| caller.actor.clone());
        write.trace = write.trace.or_else(|| caller.trace.clone());
        Ok(write)
    }

    fn space_of(&self, caller: &Caller, concept: &Concept, space: String) -> Result<String, Problem> {
        if concept.definition.scope == Scope::Global {
            return Ok("_system".to_owned());
        }
        let space = if space.is_empty() { self.settings().default_space.clone() } else { space };
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
        let concept = catalog.concept(concept)?;
        let global = (concept.definition.scope == Scope::Global).then_some("_system");
        let default = self.settings().default_space.as_str();
        let row = self.with_writer(|writer| {
            let state = &writer.state;
            match global.or(space) {
                Some(space) => state.row(concept.id(), space, id),
                None => match state.row(concept.id(), default, id) {
                    Ok(None) => state.only_row(concept.id(), id),
                    found => found,
                },
            }
            .map_err(broken)
        })?;
        row.filter(|row| may_see(caller, concept, row)).ok_or_else(|| absent(concept.id(), id))
    }

    /// Whether a current row rests on the content of this event, which then cannot be erased.
    pub(crate) fn row_resting_on(&self, event: Position) -> Result<Option<(String, String)>, Problem> {
        self.with_writer(|writer| writer.state.rests_on(event).map_err(broken))
    }
}

/// Rows that belong to an owner are as good as absent for everybody else from outside.
pub(crate) fn may_see(caller: &Caller, concept: &Concept, row: &Row) -> bool {
    !caller.outside || concept.owner().is_none_or(|field| row.belongs_to(field, &caller.actor))
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
