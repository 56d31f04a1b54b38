//! When tenants that are closed must be opened again, kept in one file for the whole data directory.
//!
//! ```text
//! due.json = {"retention":<seconds>,"tenants":{"<name>":{"last":<position>,"chain":"<64 hex>","due":"<instant>"},…}}
//! ```
//!
//! `due` is absent when nothing waits for its time. An entry holds only while the tenant's own mark of a clean stop names
//! the same head: the mark goes, durably, before anything is written to that ledger, so an entry never hides what came
//! after it. What has no entry that holds is opened once, to see. The file is therefore derived, and losing it costs time
//! only.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use ledger::disk::Disk;
use ledger::{Chain, Head};
use model::{Position, Problem, Timestamp};
use serde::{Deserialize, Serialize};

use crate::maintain::files;

const FILE: &str = "due.json";

/// What is known of a tenant that is not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// It has to be opened to see.
    Unknown,
    Until {
        /// Where it was closed; `None` when nothing was ever written, or it would not close.
        at: Option<Head>,
        due: Option<Timestamp>,
    },
}

impl Closed {
    /// It waits for nothing but somebody who wants it.
    pub const RESTS: Closed = Closed::Until { at: None, due: None };

    pub fn wants_opening(&self, now: Timestamp) -> bool {
        match self {
            Closed::Unknown => true,
            Closed::Until { due, .. } => due.is_some_and(|due| due <= now),
        }
    }

    pub fn due(&self) -> Option<Timestamp> {
        match self {
            Closed::Unknown => None,
            Closed::Until { due, .. } => *due,
        }
    }
}

#[derive(Deserialize, Serialize)]
struct Written {
    /// Housekeeping is due by this; other settings give other times.
    retention: u64,
    tenants: BTreeMap<String, Entry>,
}

#[derive(Deserialize, Serialize)]
struct Entry {
    last: Position,
    chain: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<Timestamp>,
}

/// What the file says of the tenants `names`; `Unknown` where it says nothing that holds.
pub fn read(
    disk: &dyn Disk,
    data: &Path,
    names: Vec<String>,
    retention: Option<Duration>,
) -> BTreeMap<String, Closed> {
    let bytes = files::read_small(&data.join(FILE)).ok().flatten();
    let written: Option<Written> = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let mut entries =
        written.filter(|written| written.retention == seconds(retention)).map(|written| written.tenants);
    let closed = |name: &String| {
        let entry = entries.as_mut()?.remove(name)?;
        let at = Head { position: entry.last, chain: Chain::parse(&entry.chain)? };
        let ledger = data.join("tenants").join(name).join("ledger");
        (ledger::closed_at(disk, &ledger) == Some(at))
            .then_some(Closed::Until { at: Some(at), due: entry.due })
    };
    let mut closed = closed;
    names.into_iter().map(|name| (name.clone(), closed(&name).unwrap_or(Closed::Unknown))).collect()
}

/// Writes what is known of closed tenants. Each of them was closed before this.
pub fn write(
    data: &Path,
    closed: &BTreeMap<String, Closed>,
    retention: Option<Duration>,
) -> Result<(), Problem> {
    let entry = |(name, closed): (&String, &Closed)| match closed {
        Closed::Until { at: Some(at), due } => {
            Some((name.clone(), Entry { last: at.position, chain: at.chain.to_string(), due: *due }))
        }
        _ => None,
    };
    let tenants = closed.iter().filter_map(entry).collect();
    let text = serde_json::json!(Written { retention: seconds(retention), tenants }).to_string();
    files::write_small(&data.join(FILE), text.as_bytes())
}

fn seconds(retention: Option<Duration>) -> u64 {
    retention.map_or(0, |age| age.as_secs())
}
