//! The parent's books: every line a worker said, and what they mean for the files it left.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ledger::disk::OsDisk;
use model::Position;
use model::record::Record;

use super::{GROUPS, numbered};
use crate::oracle::number_of;
use crate::scan::{Found, scan_crashed};

#[derive(Default)]
pub struct Account {
    tried: BTreeSet<usize>,
    pub acked: BTreeMap<usize, Position>,
    founded: BTreeMap<String, Position>,
    /// Positions each group was handed, and those it durably acked.
    got: BTreeMap<String, BTreeMap<Position, Option<usize>>>,
    settled: BTreeMap<String, BTreeSet<Position>>,
    pub opened: bool,
    pub drained: bool,
}

impl Account {
    /// A new life of the worker begins.
    pub fn begin(&mut self) {
        (self.opened, self.drained) = (false, false);
    }

    pub fn line(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("the worker said {line:?}"));
        match words.as_slice() {
            ["open"] => self.opened = true,
            ["drained"] => self.drained = true,
            ["try", n] => _ = self.tried.insert(number(n)? as usize),
            ["ok", n, position] => {
                let (n, position) = (number(n)? as usize, number(position)?);
                let known = *self.acked.entry(n).or_insert(position);
                if known != position {
                    return Err(format!(
                        "publish {n} stood at {known}, its key was answered with {position}"
                    ));
                }
            }
            ["founded", name, position] => {
                self.founded.entry((*name).to_owned()).or_insert(number(position)?);
            }
            ["got", group, position, n] => {
                let position = number(position)?;
                if self.settled.get(*group).is_some_and(|settled| settled.contains(&position)) {
                    return Err(format!("group {group}: {position} was durably acked and came again"));
                }
                self.got.entry((*group).to_owned()).or_default().insert(position, n.parse().ok());
            }
            ["ack", group, position] => {
                self.settled.entry((*group).to_owned()).or_default().insert(number(position)?);
            }
            _ => return Err(format!("the worker said {line:?}")),
        }
        Ok(())
    }

    /// Publishes without an answer that had a key: they may be sent again.
    pub fn unanswered(&self) -> Vec<usize> {
        let open = self.tried.iter().rev().filter(|n| !self.acked.contains_key(n));
        open.filter(|n| numbered(**n).key.is_some()).take(3).copied().collect()
    }

    /// Compares the files with the books. The ledger may have been trimmed, but only below what every group settled.
    pub fn check(&self, data: &Path) -> Result<(), String> {
        let main = data.join("tenants/main/ledger");
        if !main.exists() {
            return if self.acked.is_empty() { Ok(()) } else { Err("the ledger is gone".to_owned()) };
        }
        let found = scan_crashed(&OsDisk, &main)?;
        self.check_events(&found)?;
        for (name, position) in &self.founded {
            let found = scan_crashed(&OsDisk, &data.join("tenants").join(name).join("ledger"))?;
            if !found.iter().any(|one| one.position == *position) {
                return Err(format!("tenant {name} was founded and has nothing at {position}"));
            }
        }
        Ok(())
    }

    fn check_events(&self, found: &[Found]) -> Result<(), String> {
        let first = found.first().map_or(1, |one| one.position);
        let mut stands: BTreeMap<usize, Position> = BTreeMap::new();
        for one in found {
            let Record::Event(event) = &one.record else { continue };
            let Some(n) = number_of(event) else { continue };
            let sent = numbered(n);
            if event.envelope.topic != sent.topic || event.content.payload() != Some(&sent.body) {
                return Err(format!("publish {n} stands at {} with another topic or payload", one.position));
            }
            if !self.tried.contains(&n) {
                return Err(format!("publish {n} stands at {} and was never tried", one.position));
            }
            if let Some(other) = stands.insert(n, one.position) {
                return Err(format!("publish {n} stands twice, at {other} and {}", one.position));
            }
        }
        for (n, position) in &self.acked {
            if *position >= first && stands.get(n) != Some(position) {
                let stands = stands.get(n);
                return Err(format!("publish {n} was acknowledged at {position} and stands at {stands:?}"));
            }
        }
        self.check_shown(first, &stands)
    }

    /// What a group was handed can never be unsaid.
    fn check_shown(&self, first: Position, stands: &BTreeMap<usize, Position>) -> Result<(), String> {
        for (group, got) in &self.got {
            for (position, n) in got.range(first..) {
                let Some(n) = n else { continue };
                if stands.get(n) != Some(position) {
                    return Err(format!("group {group} was handed publish {n} at {position}, which is gone"));
                }
            }
        }
        Ok(())
    }

    /// After a drain every acknowledged event has come to every group.
    pub fn check_drained(&self) -> Result<(), String> {
        if !self.drained {
            return Err("the worker did not drain".to_owned());
        }
        for group in GROUPS {
            let got = self.got.get(group);
            let missing =
                self.acked.iter().find(|(_, position)| got.is_none_or(|got| !got.contains_key(position)));
            if let Some((n, position)) = missing {
                return Err(format!("group {group} never saw publish {n} at {position}"));
            }
        }
        Ok(())
    }
}
