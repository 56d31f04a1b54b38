//! Which events of an export an earlier import has brought, when they have no key that would say so.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use model::event::Event;
use model::{Position, Problem};

use crate::admit::Draft;
use crate::read;
use crate::tenant::Tenant;

/// Events looked at in one step of the walk through the ledger.
const STEP: usize = 1_024;

/// Where the events stood that were here when the import began, found by id. Read only when first asked, because an
/// import whose events have keys never asks.
pub struct Here {
    tenant: Tenant,
    through: Position,
    /// By the hash of their ids; ids are not unique, and hashes need not be.
    by_id: Option<HashMap<u64, Vec<Position>>>,
}

impl Here {
    pub fn new(tenant: Tenant) -> Here {
        let through = tenant.head();
        Here { tenant, through, by_id: None }
    }

    /// The position of the same event: id, topic, time and payload are equal. One that was erased here since then
    /// counts as the same: it must not come back.
    pub async fn find(&mut self, draft: &Draft) -> Result<Option<Position>, Problem> {
        let Some(id) = &draft.id else { return Ok(None) };
        if self.by_id.is_none() {
            self.by_id = Some(self.walk().await?);
        }
        let positions = self.by_id.as_ref().and_then(|by_id| by_id.get(&hash(id)));
        for position in positions.into_iter().flatten() {
            let event = self.tenant.with_reader(|reader| read::event_at(reader, *position))?;
            if event.is_some_and(|event| same(&event, draft)) {
                return Ok(Some(*position));
            }
        }
        Ok(None)
    }

    async fn walk(&self) -> Result<HashMap<u64, Vec<Position>>, Problem> {
        let mut by_id: HashMap<u64, Vec<Position>> = HashMap::new();
        let mut from = self.tenant.first();
        while from <= self.through {
            let (events, through) = self.tenant.events_from(from, self.through, STEP)?;
            for event in events {
                by_id.entry(hash(&event.envelope.id)).or_default().push(event.position);
            }
            from = through + 1;
            tokio::task::yield_now().await;
        }
        Ok(by_id)
    }
}

fn hash(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

fn same(event: &Event, draft: &Draft) -> bool {
    draft.id.as_ref() == Some(&event.envelope.id)
        && event.envelope.topic == draft.topic
        && draft.time.is_none_or(|time| time == event.time())
        && event.content.payload().is_none_or(|payload| payload == draft.payload.get())
}
