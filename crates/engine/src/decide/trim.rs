//! Decides a trim: what is given up, and which groups lose events by it and are told so in the same commit.

use model::record::{Moved, Record};
use model::{Code, Position, Problem};
use serde_json::json;

use super::publish::engine_event;
use super::{Decided, Entry, Ground, Refusal, done};
use crate::faults::planted;
use crate::state::{Group, State};

pub(super) fn trim(
    state: &State,
    first: Position,
    before: String,
    respect_groups: bool,
    ground: &mut Ground<'_>,
) -> Result<Decided, Refusal> {
    let behind = || state.groups.values().filter(|group| group.floor + 1 < first);
    if let Some(group) = behind().next().filter(|_| respect_groups) {
        let detail = format!("group \"{}\" still needs positions above {}", group.name, group.floor);
        return Err(Problem::new(Code::GroupLagging, detail).into());
    }
    let mut entries = vec![Entry::new(Record::LedgerTrimmed { first, before }, ground.entropy)];
    for group in behind() {
        lose(group, first, &mut entries, ground);
    }
    Ok(Decided { entries, answer: done(ground), sync: true })
}

/// The group goes on at `first`; what it had not seen before that is gone.
fn lose(group: &Group, first: Position, entries: &mut Vec<Entry>, ground: &mut Ground<'_>) {
    let floor = first - 1;
    let moved = Moved {
        group: group.name.clone(),
        floor,
        ranges: Vec::new(),
        delivered_to: group.delivered_to.max(floor),
        acked: 0,
        alone: 0,
    };
    entries.push(Entry::new(Record::GroupMoved(moved), ground.entropy));
    if (1..first).contains(&group.halted_on) {
        let gone_on = Record::GroupHalted { group: group.name.clone(), position: 0 };
        entries.push(Entry::new(gone_on, ground.entropy));
    }
    if planted("lose_unsaid") {
        return;
    }
    let payload = json!({"group": group.name, "from": group.floor + 1, "to": floor});
    let place = (ground.next + entries.len() as u64, ground.now);
    entries.push(engine_event("engine.group.lost", &payload, place, ground.entropy));
}
