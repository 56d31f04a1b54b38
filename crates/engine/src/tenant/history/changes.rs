//! Runs and decisions as they change, from a position on: what the records of the ledger touched, as the history shows it.

use std::collections::BTreeMap;

use model::record::{OccurrenceId, Record, RunRecord};
use model::{Position, Problem};
use serde_json::Value;

use super::broken;
use crate::deliver::followers::{Place, Wants};
use crate::read;
use crate::tenant::{Tenant, closing};

/// What changes are followed of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changing {
    Runs,
    Decisions,
}

/// Which of them are told.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    pub automation: Option<String>,
    /// A status of runs, an outcome of decisions.
    pub status: Option<String>,
}

/// What became of a run or a decision by the record at a position, as it is now. One that changed several times since it
/// was last looked at is told once.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub position: Position,
    pub now: Value,
}

/// Reads on as the ledger grows. **Invariant:** whoever has seen all changes up to a position, and begins again after it,
/// misses none.
pub struct Changes {
    tenant: Tenant,
    of: Changing,
    chosen: Chosen,
    place: Place,
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.tenant.followers().leave(Wants::Runs, &self.place);
    }
}

impl Tenant {
    /// Follows what changes after `after`; `None`, or one that is not reached yet: from now.
    pub fn changes(&self, of: Changing, chosen: Chosen, after: Option<Position>) -> Result<Changes, Problem> {
        let place = self.followers().join(Wants::Runs, after, || self.head());
        let changes = Changes { tenant: self.clone(), of, chosen, place };
        match self.first() {
            first if changes.place.next < first => Err(read::gone(first)),
            _ => Ok(changes),
        }
    }
}

impl Changes {
    /// Everything up to here was looked at.
    pub fn position(&self) -> Position {
        self.place.next - 1
    }

    /// Ready once there is something to look at.
    pub async fn grown(&mut self) -> Result<(), Problem> {
        while let Some((mut births, begun)) = self.tenant.awaited() {
            match begun {
                Some(tenant) => self.move_to(tenant),
                None => births.changed().await.map_err(|_| closing())?,
            }
        }
        loop {
            let head = self.tenant.head();
            self.place.pass_over(head);
            if self.place.next <= head {
                return Ok(());
            }
            self.place.called().await;
        }
    }

    /// The tenant has begun that was followed before it was there; nothing of it was seen.
    fn move_to(&mut self, tenant: Tenant) {
        let place = tenant.followers().join(Wants::Runs, Some(self.position()), || tenant.head());
        let place = std::mem::replace(&mut self.place, place);
        std::mem::replace(&mut self.tenant, tenant).followers().leave(Wants::Runs, &place);
    }

    /// Looks at the next piece of the ledger; may wait for the disk, and may find nothing.
    pub fn look(&mut self) -> Result<Vec<Change>, Problem> {
        let head = self.tenant.head();
        self.place.pass_over(head);
        if self.place.next > head {
            return Ok(Vec::new());
        }
        let mut touched = Touched::default();
        let (from, of) = (self.place.next, self.of);
        let end = self.tenant.with_reader(|reader| {
            let mut bytes = Vec::new();
            let end = reader.read(from, read::CHUNK, &mut bytes).map_err(read::problem)?;
            read::records(&bytes, from, |place, record| {
                if let (Record::Run(record), true) = (record, place.position <= head) {
                    touched.note(of, place.position, &record);
                }
                Ok(())
            })?;
            Ok(end)
        })?;
        let told = self.told(touched)?;
        self.place.next = end.next.clamp(from + 1, head + 1);
        Ok(told)
    }

    fn told(&self, touched: Touched) -> Result<Vec<Change>, Problem> {
        if touched.0.is_empty() {
            return Ok(Vec::new());
        }
        self.tenant.with_history(|history| {
            let mut told = Vec::new();
            let mut all = touched.0.clone();
            for (of, position) in touched.0.iter().filter(|_| self.of == Changing::Decisions) {
                let along = history.took_along(*of).map_err(broken)?;
                all.extend(along.into_iter().map(|member| (member, *position)));
            }
            for (of, position) in all {
                let found = match self.of {
                    Changing::Runs => history.run_from(of.0),
                    Changing::Decisions => history.decision(of),
                };
                let wanted = found.map_err(broken)?.filter(|now| self.chosen.wants(self.of, now));
                told.extend(wanted.map(|now| Change { position, now }));
            }
            told.sort_by_key(|change| change.position);
            Ok(told)
        })
    }
}

impl Chosen {
    fn wants(&self, of: Changing, now: &Value) -> bool {
        let status = if of == Changing::Runs { "status" } else { "outcome" };
        self.automation.as_ref().is_none_or(|name| now["automation"] == name.as_str())
            && self.status.as_ref().is_none_or(|is| now[status] == is.as_str())
    }
}

/// What records are about, and where the last of them stands.
#[derive(Default)]
struct Touched(BTreeMap<OccurrenceId, Position>);

impl Touched {
    fn note(&mut self, of: Changing, position: Position, record: &RunRecord) {
        let touched = match (of, record) {
            (Changing::Runs, RunRecord::Started(_)) => (position, 0),
            (Changing::Runs, RunRecord::Moved(moved)) => (moved.run, 0),
            (Changing::Runs, RunRecord::Ended(ended)) => (ended.run, 0),
            (Changing::Decisions, RunRecord::OccurrenceMoved(moved)) => moved.of,
            (Changing::Decisions, RunRecord::Settled(settled)) => settled.of,
            (Changing::Decisions, RunRecord::Routed(routed)) => {
                let all = (0..routed.verdicts.len() as u32).map(|n| ((position, n), position));
                return self.0.extend(all);
            }
            _ => return,
        };
        self.0.insert(touched, position);
    }
}
