//! What clients were told, kept outside the faulted store: after every crash the ledger must say the same.

pub mod acts;
pub mod group;
pub mod rows;

use std::collections::{BTreeMap, BTreeSet};

use engine::state::State;
use engine::{Outcome, Receipt};
use model::event::Event;
use model::record::Record;
use model::{Code, Position, Problem, Timestamp};
use serde::Deserialize;

use crate::scan::{self, Found};
use group::GroupTruth;

/// What a client knows about one of its publishes.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    Pending,
    /// No answer came: it may stand in the ledger, once, or not.
    Unknown,
    /// It must not stand in the ledger.
    Refused,
    Acked {
        position: Position,
        id: String,
    },
    Deferred,
    Dropped,
}

/// One publish, known by its number, which is in its payload.
#[derive(Clone, Debug)]
pub struct Sent {
    pub topic: &'static str,
    pub k: u64,
    pub body: String,
    pub key: Option<String>,
    pub ttl: Option<u64>,
    pub priority: u8,
    pub fate: Fate,
    /// One of the answers said that this very publish made the event.
    pub fresh: bool,
    /// Its content was to be erased: no filter and no key reads it for certain any more.
    pub gone: bool,
    /// Publishes of one batch stand or fall together.
    pub batch: usize,
}

pub struct Oracle {
    pub sent: Vec<Sent>,
    /// Every event position that is known to be durable, and which publish stands there.
    pub live: BTreeMap<Position, usize>,
    /// What any reader was shown: it must never be unsaid.
    pub shown: BTreeMap<Position, String>,
    pub groups: BTreeMap<&'static str, GroupTruth>,
    pub first: Position,
    /// Events whose content was to be erased, and whether that was answered.
    pub erased: BTreeMap<Position, bool>,
    pub rows: rows::Rows,
    pub acts: acts::Acts,
    /// By this time every publish that was deferred must have become an event.
    pub deferred_until: Timestamp,
    /// The state, folded from what was found on the disk and from nothing else.
    shadow: State,
}

#[derive(Deserialize)]
struct Payload {
    n: usize,
    k: u64,
}

/// Which publish an event is; `None` for the engine's own.
pub fn number_of(event: &Event) -> Option<usize> {
    serde_json::from_str::<Payload>(event.content.payload()?).ok().map(|payload| payload.n)
}

impl Oracle {
    pub fn new() -> Result<Oracle, String> {
        let shadow = State::open(None).map_err(|fault| fault.to_string())?;
        let (sent, live, shown, groups) = (Vec::new(), BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Ok(Oracle {
            sent,
            live,
            shown,
            groups,
            first: 1,
            erased: BTreeMap::new(),
            rows: rows::Rows::default(),
            acts: acts::Acts::default(),
            deferred_until: Timestamp::EPOCH,
            shadow,
        })
    }

    /// The answer to a batch of publishes has come; keys of events below `first` were trimmed with them.
    pub fn answered(
        &mut self,
        numbers: &[usize],
        answer: Result<Vec<Outcome>, Problem>,
        first: Position,
    ) -> Result<(), String> {
        for n in numbers {
            let sent = &mut self.sent[*n];
            if matches!(&sent.fate, Fate::Acked { position, .. } if *position < first) {
                (sent.fate, sent.fresh) = (Fate::Unknown, false);
            }
        }
        match answer {
            Ok(outcomes) if outcomes.len() == numbers.len() => {
                numbers.iter().zip(outcomes).try_for_each(|(n, outcome)| self.accepted(*n, outcome))
            }
            Ok(outcomes) => Err(format!("{} answers for {} publishes", outcomes.len(), numbers.len())),
            Err(problem) if problem.code() == Code::ShuttingDown => {
                self.unanswered(numbers);
                Ok(())
            }
            Err(_) => {
                numbers.iter().for_each(|n| self.settle(*n, Fate::Refused));
                Ok(())
            }
        }
    }

    /// What was refused is sent once more: it may stand from now on.
    pub fn sending(&mut self, numbers: &[usize]) {
        for n in numbers {
            if self.sent[*n].fate == Fate::Refused {
                self.sent[*n].fate = Fate::Pending;
            }
        }
    }

    /// No answer will come.
    pub fn unanswered(&mut self, numbers: &[usize]) {
        numbers.iter().for_each(|n| self.settle(*n, Fate::Unknown));
    }

    /// A later answer to the same publish (a retry by its key) never takes back an earlier one.
    fn settle(&mut self, n: usize, fate: Fate) {
        let sent = &mut self.sent[n];
        match (&sent.fate, &fate) {
            (Fate::Pending, _) => sent.fate = fate,
            (Fate::Unknown, Fate::Acked { .. } | Fate::Deferred | Fate::Dropped) => sent.fate = fate,
            _ => {}
        }
    }

    fn accepted(&mut self, n: usize, outcome: Outcome) -> Result<(), String> {
        match outcome {
            Outcome::Recorded(receipt) => self.recorded(n, receipt),
            Outcome::Deferred { until } => {
                self.deferred_until = self.deferred_until.max(until);
                self.settle(n, Fate::Deferred);
                Ok(())
            }
            Outcome::Dropped { .. } => {
                self.settle(n, Fate::Dropped);
                Ok(())
            }
        }
    }

    fn recorded(&mut self, n: usize, receipt: Receipt) -> Result<(), String> {
        let Receipt { id, position, duplicate, .. } = receipt;
        let sent = &mut self.sent[n];
        if !duplicate && std::mem::replace(&mut sent.fresh, true) {
            return Err(format!("publish {n} was twice answered as new, at last with {position}"));
        }
        if let Fate::Acked { position: known, id: known_id } = &sent.fate {
            if (*known, known_id) != (position, &id) {
                return Err(format!("key of publish {n} stood at {known}, was answered with {position}"));
            }
            return Ok(());
        }
        if let Some(other) = self.live.insert(position, n).filter(|other| *other != n) {
            return Err(format!("publishes {other} and {n} were both answered with position {position}"));
        }
        self.sent[n].fate = Fate::Acked { position, id };
        Ok(())
    }

    /// A reader saw this event: it must be one that was sent, as it was sent.
    pub fn show(&mut self, event: &Event) -> Result<Option<usize>, String> {
        let Some(n) = self.number_of(event)? else { return Ok(None) };
        self.show_as(n, event)
    }

    /// As [`Oracle::show`], to somebody whom it may have been on its way to when its content was erased.
    pub fn show_late(&mut self, event: &Event) -> Result<Option<usize>, String> {
        match number_of(event) {
            Some(n) => self.show_as(n, event),
            None => self.show(event),
        }
    }

    fn show_as(&mut self, n: usize, event: &Event) -> Result<Option<usize>, String> {
        let sent = self.sent.get(n).ok_or(format!("an event nobody sent: {n}"))?;
        if event.envelope.topic != sent.topic || event.content.payload().is_some_and(|body| body != sent.body)
        {
            return Err(format!("publish {n} was shown with another topic or payload"));
        }
        if sent.fate == Fate::Refused || sent.fate == Fate::Dropped {
            return Err(format!("publish {n} was refused and is shown at {}", event.position));
        }
        let id = self.shown.entry(event.position).or_insert_with(|| event.envelope.id.clone());
        if *id != event.envelope.id {
            return Err(format!("position {} was shown as {id} before", event.position));
        }
        Ok(Some(n))
    }

    /// Which publish an event is, also one that has lost its content; `None` for the engine's own.
    fn number_of(&self, event: &Event) -> Result<Option<usize>, String> {
        let (position, erased) = (event.position, self.erased.get(&event.position));
        match (event.content.payload(), erased) {
            (Some(_), Some(true)) => Err(format!("{position} was erased and has its content")),
            (Some(_), _) => Ok(number_of(event)),
            (None, Some(_)) => Ok(self.live.get(&position).copied()),
            (None, None) => Err(format!("{position} has no content and nobody erased it")),
        }
    }

    /// Compares the ledger, as found on the disk after a crash, with everything that was answered.
    pub fn check(&mut self, found: &[Found]) -> Result<(), String> {
        self.first = found.first().map_or(1, |one| one.position);
        let last = found.last().map_or(0, |one| one.position);
        let mut events: BTreeMap<usize, Position> = BTreeMap::new();
        let mut deferred: BTreeSet<usize> = BTreeSet::new();
        let mut ids: BTreeMap<Position, &str> = BTreeMap::new();
        for one in found {
            match &one.record {
                Record::Event(event) => {
                    ids.insert(one.position, &event.envelope.id);
                    group::learn_loss(&mut self.groups, event);
                    self.meet(event, &mut events)?;
                }
                Record::EventDeferred(late) => {
                    // It was erased with the event it became.
                    let Some(payload) = late.content.payload() else { continue };
                    let n = serde_json::from_str::<Payload>(payload).map_err(|error| error.to_string())?.n;
                    if !deferred.insert(n) {
                        return Err(format!("publish {n} was deferred twice"));
                    }
                }
                record => group::learn(&mut self.groups, one.position, record),
            }
        }
        self.check_sent(&events, &deferred)?;
        self.rows.meet(found)?;
        self.acts.meet(found, &self.erased)?;
        self.check_shown(&ids, last)?;
        self.live.extend(events.into_iter().map(|(n, position)| (position, n)));
        Ok(())
    }

    fn meet(&self, event: &Event, events: &mut BTreeMap<usize, Position>) -> Result<(), String> {
        let Some(n) = self.number_of(event)? else { return Ok(()) };
        let sent = self.sent.get(n).ok_or(format!("publish {n} was never sent"))?;
        if event.envelope.topic != sent.topic || event.content.payload().is_some_and(|body| body != sent.body)
        {
            return Err(format!("publish {n} stands with another topic or payload"));
        }
        if sent.fate == Fate::Refused || sent.fate == Fate::Dropped {
            return Err(format!("publish {n} was refused and stands at {}", event.position));
        }
        match events.insert(n, event.position) {
            Some(other) => Err(format!("publish {n} stands twice, at {other} and {}", event.position)),
            None => Ok(()),
        }
    }

    fn check_sent(
        &self,
        events: &BTreeMap<usize, Position>,
        deferred: &BTreeSet<usize>,
    ) -> Result<(), String> {
        let mut batches: BTreeMap<usize, bool> = BTreeMap::new();
        for (n, sent) in self.sent.iter().enumerate() {
            let stands = events.get(&n);
            if let Fate::Acked { position, .. } = &sent.fate
                && *position >= self.first
                && stands != Some(position)
            {
                return Err(format!("publish {n} was acknowledged at {position} and stands at {stands:?}"));
            }
            let known = deferred.contains(&n) || stands.is_some();
            if sent.fate == Fate::Deferred && self.first == 1 && !known {
                return Err(format!("publish {n} was answered as deferred and is not in the ledger"));
            }
            if sent.fate == Fate::Unknown && self.first == 1 && sent.key.is_none() && sent.topic != "noise.z"
            {
                let kept = stands.is_some() || deferred.contains(&n);
                if *batches.entry(sent.batch).or_insert(kept) != kept {
                    return Err(format!("publish {n}: only a part of its batch is in the ledger"));
                }
            }
        }
        Ok(())
    }

    fn check_shown(&self, ids: &BTreeMap<Position, &str>, last: Position) -> Result<(), String> {
        for (position, id) in self.shown.range(self.first..) {
            match ids.get(position) {
                Some(found) if *found == id.as_str() => {}
                found => {
                    return Err(format!("{id} was shown at {position}; there is {found:?} (last {last})"));
                }
            }
        }
        for (position, n) in self.live.range(self.first..) {
            if !ids.contains_key(position) {
                return Err(format!("publish {n} stood at {position} and is gone (last {last})"));
            }
        }
        Ok(())
    }

    /// Folds what was found and is durable.
    pub fn catch_up(&mut self, found: &[Found]) -> Result<(), String> {
        for one in found {
            let Record::Event(event) = &one.record else { continue };
            if let Some(n) = self.number_of(event)? {
                self.live.insert(one.position, n);
            }
        }
        self.rows.meet(found)?;
        self.acts.meet(found, &self.erased)?;
        scan::fold(&mut self.shadow, found, Position::MAX)?;
        self.rows.check_state(&self.shadow)
    }

    /// The committed `state.db` must be what folding the ledger from scratch gives.
    pub fn check_state(&mut self, state: &State, found: &[Found]) -> Result<(), String> {
        scan::fold(&mut self.shadow, found, state.applied.position)?;
        let (want, have) = (scan::dump(&self.shadow)?, scan::dump(state)?);
        if want != have {
            let differs = |pair: &(&String, &String)| pair.0 != pair.1;
            let first = want.iter().zip(&have).find(differs);
            let (lines, others) = (want.len(), have.len());
            return Err(format!(
                "state.db differs from a fold from scratch: {first:?} ({lines}/{others} rows)"
            ));
        }
        scan::fold(&mut self.shadow, found, Position::MAX)?;
        self.rows.check_state(&self.shadow)
    }
}

impl Payload {
    /// The payload of a publish; `pad` varies its length.
    pub fn text(n: usize, k: u64, pad: usize) -> String {
        format!(r#"{{"n":{n},"k":{k},"pad":"{}"}}"#, "x".repeat(pad))
    }
}

/// The text of a publish's payload.
pub fn payload(n: usize, k: u64, pad: usize) -> String {
    Payload::text(n, k, pad)
}

/// The key by which ordered groups order.
pub fn k_of(event: &Event) -> Option<u64> {
    serde_json::from_str::<Payload>(event.content.payload()?).ok().map(|payload| payload.k)
}
