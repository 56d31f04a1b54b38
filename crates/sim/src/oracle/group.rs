//! What one group's workers know: what they were handed, what they answered, and what must therefore never or must still
//! come.

use std::collections::{BTreeMap, BTreeSet};

use model::Position;
use model::event::Event;
use model::record::Record;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Sent;

/// The groups of every run: each ordering and each way to end.
pub const GROUPS: [Kind; 7] = [
    Kind { name: "plain", ordering: Order::None, wants: |_, _| true },
    Kind { name: "narrow", ordering: Order::None, wants: |topic, _| topic.starts_with("a.") },
    Kind { name: "filtered", ordering: Order::None, wants: |topic, k| topic != "a.y" && k > 1 },
    Kind { name: "keyed", ordering: Order::Key, wants: |_, _| true },
    Kind { name: "parked", ordering: Order::Key, wants: |topic, _| topic.starts_with("b.") },
    Kind { name: "halting", ordering: Order::Strict, wants: |topic, _| topic.starts_with("a.") },
    Kind { name: "strict", ordering: Order::Strict, wants: |topic, _| topic.starts_with("b.") },
];

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    None,
    Key,
    Strict,
}

/// A group and, said a second time without the engine's matcher, what it wants.
#[derive(Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
    pub ordering: Order,
    pub wants: fn(&str, u64) -> bool,
}

impl Kind {
    /// The definition; `retries` varies, everything that decides what matches does not.
    /// Beside rows, a group keeps to the space of the events it is about.
    pub fn definition(&self, retries: u64, beside_rows: bool) -> Value {
        let mut body = match self.name {
            "plain" => json!({"pattern": "#"}),
            "narrow" => json!({"pattern": "a.*", "on_expired": "dead_letter", "max_inflight": 3}),
            "filtered" => json!({"pattern": ["a.x", "b.*", "later.#"], "filter": "payload.k > 1"}),
            "keyed" => json!({"pattern": "#", "ordering": "key", "key": "event.payload.k"}),
            "parked" => json!({"pattern": "b.*", "ordering": "key", "key": "event.payload.k",
                "on_exhausted": "park_key"}),
            "halting" => json!({"pattern": "a.*", "ordering": "strict", "on_exhausted": "halt"}),
            _ => json!({"pattern": "b.#", "ordering": "strict", "on_expired": "dead_letter"}),
        };
        if beside_rows {
            body["space"] = "default".into();
        }
        body["start"] = "beginning".into();
        body["max_retries"] = retries.into();
        body["ack_deadline"] = "5s".into();
        body["backoff"] = json!({"base": "200ms", "mult": 2, "max": "2s"});
        body
    }
}

pub struct GroupTruth {
    pub kind: Kind,
    pub retries: u64,
    /// The record that last set the cursor, and where it set it: nothing at or below comes.
    pub since: Position,
    pub base: Position,
    /// Acknowledged, and the answer was durable: must never come again.
    pub acked: BTreeSet<Position>,
    /// Acknowledged without a sync: may come again after a crash only.
    pub soft: BTreeSet<Position>,
    /// An ack is under way.
    pub asking: Vec<Position>,
    /// An ack was sent and no answer came, or a crash came first: may come again or not.
    pub maybe: BTreeSet<Position>,
    pub redriven: BTreeSet<Position>,
    /// What any worker was ever given.
    pub came: BTreeSet<Position>,
    /// A pull had no answer, so what the ledger says was out alone may be out as far as anybody knows.
    pub unheard: bool,
    pub claimed: BTreeSet<Position>,
    /// What the group was told it has lost, from and to.
    pub lost: Vec<(Position, Position)>,
    /// Unclean starts so far.
    pub crashes: u32,
}

impl GroupTruth {
    pub fn new(kind: Kind) -> GroupTruth {
        GroupTruth {
            kind,
            retries: 2,
            since: 0,
            base: 0,
            acked: BTreeSet::new(),
            soft: BTreeSet::new(),
            asking: Vec::new(),
            maybe: BTreeSet::new(),
            redriven: BTreeSet::new(),
            came: BTreeSet::new(),
            unheard: false,
            claimed: BTreeSet::new(),
            lost: Vec::new(),
            crashes: 0,
        }
    }

    pub fn wants(&self, sent: &Sent) -> bool {
        (self.kind.wants)(sent.topic, sent.k)
    }

    /// The cursor was set anew: what was answered before says nothing any more.
    pub fn begin_at(&mut self, since: Position, base: Position) {
        (self.since, self.base) = (since, base);
        self.acked.clear();
        self.soft.clear();
        self.maybe.clear();
        self.redriven.clear();
    }

    /// A dead letter is redriven.
    pub fn begin_again(&mut self, position: Position) {
        self.redriven.insert(position);
        for set in [&mut self.acked, &mut self.soft, &mut self.maybe] {
            set.remove(&position);
        }
    }

    /// Acks that were not synced may be lost now.
    pub fn crash(&mut self) {
        self.maybe.append(&mut self.soft);
        self.crashes += 1;
    }

    /// Everything acked so far is durable.
    pub fn harden(&mut self) {
        self.acked.append(&mut self.soft);
    }

    pub fn is_answered(&self, position: Position) -> bool {
        let sets = [&self.acked, &self.soft, &self.maybe];
        self.asking.contains(&position) || sets.iter().any(|set| set.contains(&position))
    }

    /// An ack has ended, one way or another.
    pub fn asked(&mut self, position: Position) {
        if let Some(index) = self.asking.iter().position(|asking| *asking == position) {
            self.asking.swap_remove(index);
        }
    }

    pub fn is_lost(&self, position: Position) -> bool {
        self.lost.iter().any(|(from, to)| (*from..=*to).contains(&position))
    }

    /// May the event at `position` be handed out now? `dead` are the group's dead letters.
    pub fn may_come(&self, position: Position, dead: &BTreeSet<Position>) -> Result<(), String> {
        let name = self.kind.name;
        if dead.contains(&position) {
            return Err(format!("group {name}: {position} is a dead letter and was delivered"));
        }
        if self.acked.contains(&position) {
            return Err(format!("group {name}: {position} was durably acked and was delivered again"));
        }
        if self.soft.contains(&position) {
            return Err(format!("group {name}: {position} was acked and delivered again without a crash"));
        }
        if position <= self.base && !self.redriven.contains(&position) {
            return Err(format!("group {name}: {position} lies at or below its start {}", self.base));
        }
        Ok(())
    }

    /// The first event that has to be settled before the floor or the next delivery may pass it, in `below`.
    pub fn first_open(
        &self,
        sent: &[Sent],
        live: &BTreeMap<Position, usize>,
        dead: &BTreeSet<Position>,
        below: (Position, Option<u64>),
    ) -> Option<Position> {
        let (end, key) = below;
        if end <= self.base + 1 {
            return None;
        }
        let open = live.range(self.base + 1..end).find(|(position, n)| {
            let sent = &sent[**n];
            self.wants(sent)
                && key.is_none_or(|key| key == sent.k)
                && sent.ttl.is_none()
                && !self.is_answered(**position)
                && !dead.contains(position)
                && !self.redriven.contains(position)
                && !self.is_lost(**position)
                && !sent.gone
        });
        open.map(|(position, _)| *position)
    }
}

/// What nobody was told, the ledger says: whether a cursor was set, and what was about to go out alone.
pub fn learn(groups: &mut BTreeMap<&'static str, GroupTruth>, position: Position, record: &Record) {
    if let Record::GroupMoved(moved) = record
        && let Some(truth) = groups.get_mut(moved.group.as_str()).filter(|truth| truth.unheard)
    {
        truth.claimed.insert(moved.alone);
    }
    let (name, floor) = match record {
        Record::GroupSeeked { group, floor } => (group, floor),
        Record::GroupPut { group, floor, .. } => (group, floor),
        _ => return,
    };
    let Some(truth) = groups.get_mut(name.as_str()) else { return };
    let first_put = truth.since == 0 || matches!(record, Record::GroupSeeked { .. });
    if position > truth.since && first_put {
        truth.begin_at(position, *floor);
    }
}

/// A group that lost events to a trim was told which.
pub fn learn_loss(groups: &mut BTreeMap<&'static str, GroupTruth>, event: &Event) {
    #[derive(Deserialize)]
    struct Loss {
        group: String,
        from: Position,
        to: Position,
    }
    if event.envelope.topic != "engine.group.lost" {
        return;
    }
    let loss = event.content.payload().and_then(|payload| serde_json::from_str::<Loss>(payload).ok());
    let Some(Loss { group, from, to }) = loss else { return };
    let Some(truth) = groups.get_mut(group.as_str()) else { return };
    if !truth.lost.contains(&(from, to)) {
        truth.lost.push((from, to));
    }
}
