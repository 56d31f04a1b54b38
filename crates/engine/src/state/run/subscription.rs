//! Subscriptions: what is dispatched to which automation, and how far the dispatch of the current event has come.

use std::collections::BTreeMap;

use model::Position;
use model::record::SubscriptionRecord;
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::state::{Result, State};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Subscription {
    /// As contracts §14 has it: `pattern filter input_mapper automation enabled group`.
    pub definition: Value,
    /// The event that was dispatched last, and the run it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<(Position, Option<String>)>,
    /// The last event of which it was said that it failed.
    #[serde(default)]
    pub stuck: Position,
}

/// The drainer that is meant when none is named.
pub const DRAINER: &str = "workflow_runner";

impl Subscription {
    pub fn group(&self) -> &str {
        self.definition["group"].as_str().unwrap_or(DRAINER)
    }
}

#[derive(Default)]
pub struct Subscriptions {
    pub all: BTreeMap<String, Subscription>,
    touched: bool,
}

impl State {
    pub(crate) fn fold_subscription(&mut self, record: &SubscriptionRecord) {
        let Subscriptions { all, touched } = &mut self.runs.subscriptions;
        *touched = true;
        match record {
            SubscriptionRecord::Put { id, definition } => {
                all.entry(id.clone()).or_default().definition = definition.clone();
            }
            SubscriptionRecord::Dropped { id } => _ = all.remove(id),
            SubscriptionRecord::Started { id, event, run } => {
                if let Some(subscription) = all.get_mut(id) {
                    subscription.started = Some((*event, run.clone()));
                }
            }
            SubscriptionRecord::Stuck { id, event } => {
                let Some(subscription) = all.get_mut(id) else { return };
                subscription.stuck = *event;
                let group = subscription.group().to_owned();
                // The group says of itself that it halts, unless that was said for a subscription.
                self.group_mut(&group).into_iter().for_each(|group| group.reported = *event);
            }
        }
        self.open_rows += 1;
    }

    pub(super) fn store_subscriptions(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.runs.subscriptions.touched) {
            return Ok(());
        }
        self.db.execute("DELETE FROM subscription", [])?;
        for (id, subscription) in &self.runs.subscriptions.all {
            let body = serde_json::to_string(subscription).expect("it has string keys and finite numbers");
            self.db.execute("INSERT INTO subscription (id, body) VALUES (?1, ?2)", params![id, body])?;
        }
        Ok(())
    }
}

pub(super) fn load(db: &Connection) -> Result<Subscriptions> {
    let mut read = db.prepare("SELECT id, body FROM subscription")?;
    let mut rows = read.query([])?;
    let mut all = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let body: String = row.get(1)?;
        all.insert(row.get(0)?, serde_json::from_str(&body).unwrap_or_default());
    }
    Ok(Subscriptions { all, touched: false })
}
