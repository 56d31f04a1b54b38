//! A draft over the real ledger: what its automations would have done with the events that came, beside what really ran.
//!
//! The ledger is folded up to the window as it is; inside the window every event of the past is routed by the draft, with
//! the same code and at its own time. What real runs of the draft's automations did is left out, because the draft's own
//! runs do it here. Nothing is written, and effects are answered with success and null.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use model::definition::{Definition, Kind};
use model::record::{Applied, FORMAT_OF_RUNS, How, Record, RunRecord, Set};
use model::{Position, Problem, Timestamp};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::sandbox::{circles, shown_effect, stubbed};
use super::{Tenant, audit, broken};
use crate::apply::{Place, apply};
use crate::command::RunCommand;
use crate::decide::{self, Entry, Refusal};
use crate::deliver::lock;
use crate::draft::Draft;
use crate::entropy::Entropy;
use crate::history::History;
use crate::read;
use crate::route;
use crate::state::State;
use crate::walk;

/// Rounds of work at one instant after which it is said to run in circles.
const ROUNDS_MAX: usize = 10_000;
/// Runs of each kind that are shown.
const SHOWN_MAX: usize = 100;

/// What makes two runs the same: the automation, and its event or instant.
type Cause = (String, String);

struct Backtest {
    state: State,
    entropy: Entropy,
    history: History,
    names: BTreeSet<String>,
    /// Where the next record of the draft stands, behind everything real.
    next: Position,
    did: BTreeMap<Cause, Value>,
    would: BTreeMap<Cause, Value>,
    /// Automations of real runs, by the run's id.
    ran: HashMap<String, String>,
    events: u64,
    published: u64,
    effects: Vec<Value>,
}

/// Where the window of a backtest begins or ends; what is there belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    Time(Timestamp),
    Position(Position),
}

impl Edge {
    /// A position, an instant, or a length of time back from now; `None`: none of these.
    pub fn parse(text: &str, now: Timestamp) -> Option<Edge> {
        if let Ok(position) = text.parse() {
            return Some(Edge::Position(position));
        }
        let ago = model::time::parse_duration(text).map(|ago| now.minus(ago));
        ago.or_else(|| Timestamp::parse(text).ok()).map(Edge::Time)
    }

    fn is_before(self, place: Place) -> bool {
        match self {
            Edge::Time(at) => at < place.time,
            Edge::Position(at) => at < place.position,
        }
    }

    fn is_after(self, place: Place) -> bool {
        match self {
            Edge::Time(at) => at > place.time,
            Edge::Position(at) => at > place.position,
        }
    }

    fn instant(self) -> Option<Timestamp> {
        match self {
            Edge::Time(at) => Some(at),
            Edge::Position(_) => None,
        }
    }
}

/// Records of one commit, all of them inside the window or all before it: what one started walked before the next was decided.
struct Together {
    /// Its first position.
    commit: Position,
    time: Timestamp,
    inside: bool,
    records: Vec<(Place, Record)>,
}

impl Tenant {
    /// What these definitions would have done in a window; nothing is older than the first record that is kept.
    pub fn backtest(&self, definitions: &[Definition], (from, to): (Edge, Edge)) -> Result<Value, Problem> {
        let head = self.head();
        let mut test = Backtest::new(lock(&self.0.entropy).split(), definitions, head)?;
        test.state.default_space.clone_from(&self.settings().default_space);
        test.state.key = self.0.key.clone();
        let (mut begun, mut next, mut bytes) = (false, self.first().max(1), Vec::new());
        let (mut first, mut last, mut over) = (None, Timestamp::EPOCH, false);
        let mut start = Timestamp::EPOCH;
        while next <= head && !over {
            let mut groups: Vec<Together> = Vec::new();
            let end = self.with_reader(|reader| {
                let end = reader.read(next, read::CHUNK, &mut bytes).map_err(read::problem)?;
                read::records_by_commit(&bytes, next, |commit, place, record| {
                    over = over || to.is_before(place);
                    if over {
                        return Ok(());
                    }
                    let inside = !from.is_after(place);
                    match groups.last_mut().filter(|last| last.commit == commit && last.inside == inside) {
                        Some(last) => last.records.push((place, record)),
                        None => {
                            let (time, records) = (place.time, vec![(place, record)]);
                            groups.push(Together { commit, time, inside, records });
                        }
                    }
                    Ok(())
                })?;
                Ok(end)
            })?;
            for Together { time, inside, records, .. } in groups {
                let oldest = *first.get_or_insert(time);
                if inside && !begun {
                    begun = true;
                    start = from.instant().map_or(time, |from| from.max(oldest));
                    test.begin(definitions, start)?;
                }
                test.commit(time, records, begun)?;
                last = time;
            }
            next = end.next.max(next + 1);
        }
        if !begun {
            start = from.instant().unwrap_or(last).max(first.unwrap_or(Timestamp::EPOCH));
        }
        test.report((start, to.instant().unwrap_or(last)), definitions, &mut begun)
    }
}

impl Backtest {
    fn new(entropy: Entropy, definitions: &[Definition], head: Position) -> Result<Backtest, Problem> {
        let mut state = State::open(None).map_err(broken)?;
        state.format = FORMAT_OF_RUNS;
        state.pretends = true;
        state.begin().map_err(broken)?;
        let automations = definitions.iter().filter(|definition| definition.kind() == Kind::Automation);
        Ok(Backtest {
            state,
            entropy,
            history: History::open(None).map_err(broken)?,
            names: automations.map(|definition| definition.key().to_owned()).collect(),
            next: head + 1,
            did: BTreeMap::new(),
            would: BTreeMap::new(),
            ran: HashMap::new(),
            events: 0,
            published: 0,
            effects: Vec::new(),
        })
    }

    /// The draft comes into force.
    fn begin(&mut self, definitions: &[Definition], from: Timestamp) -> Result<(), Problem> {
        let set: Vec<Set> = definitions.iter().filter_map(written).collect();
        let applied = Applied { managed_by: "draft".to_owned(), set, ..Applied::default() };
        self.on_draft(from, |draft| {
            draft.push(Record::DefinitionsApplied(Box::new(applied)))?;
            let before = draft.state.catalog.clone();
            decide::run::deployed(draft, &before.automations, &[], false)
        })
    }

    /// One commit of the past.
    fn commit(
        &mut self,
        time: Timestamp,
        records: Vec<(Place, Record)>,
        routed: bool,
    ) -> Result<(), Problem> {
        if routed {
            self.pass_time(time)?;
        }
        let mut events = Vec::new();
        let mut skipped = false;
        for (place, record) in records {
            match record {
                Record::Event(event) => {
                    skipped = self.is_own(event.envelope.run.as_deref());
                    if !skipped {
                        apply(&mut self.state, place, &Record::Event(event.clone())).map_err(broken)?;
                        events.push(event);
                    }
                }
                Record::EntityChanged(_) if skipped => {}
                Record::EntityChanged(_) => apply(&mut self.state, place, &record).map_err(broken)?,
                Record::DefinitionsApplied(applied) => {
                    let applied = self.without_automations(*applied, routed);
                    let record = Record::DefinitionsApplied(Box::new(applied));
                    apply(&mut self.state, place, &record).map_err(broken)?;
                }
                Record::Run(RunRecord::Started(started)) => {
                    self.note_real(&started, routed);
                }
                _ => {}
            }
        }
        if routed {
            for event in events {
                // Who administered what is not among what came.
                self.events += u64::from(!event.envelope.topic.starts_with(audit::PREFIX));
                self.on_draft(time, |draft| Ok(route::replayed(draft, &event)?))?;
                // As in a commit: what it starts is over before the next is looked at.
                self.work(time)?;
            }
            self.work(time)?;
        }
        Ok(())
    }

    /// Whether a real run of an automation of the draft made it.
    fn is_own(&self, run: Option<&str>) -> bool {
        run.and_then(|run| self.ran.get(run)).is_some_and(|name| self.names.contains(name))
    }

    fn note_real(&mut self, started: &model::record::RunStarted, in_window: bool) {
        self.ran.insert(started.id.clone(), started.automation.clone());
        // What a person started is nobody's to foresee.
        let by_hand = started.occurrence.kind == "manual" || started.rerun_of.is_some();
        if in_window && self.names.contains(&started.automation) && !by_hand {
            let shown = json!({"run": started.id, "occurrence": started.occurrence});
            self.did.insert(cause(started), shown);
        }
    }

    /// The draft says which automations there are, and its other definitions come before those of the past.
    fn without_automations(&self, applied: Applied, routed: bool) -> Applied {
        let ours = |kind: Kind, name: &str| {
            kind == Kind::Automation
                || routed
                    && self.state.catalog.get(kind, name).is_some_and(|entry| entry.managed_by == "draft")
        };
        Applied {
            set: applied.set.into_iter().filter(|set| !ours(set.kind, &set.name)).collect(),
            removed: applied.removed.into_iter().filter(|(kind, name)| !ours(*kind, name)).collect(),
            ..applied
        }
    }

    /// Everything that is due up to an instant, each at its own time.
    fn pass_time(&mut self, to: Timestamp) -> Result<(), Problem> {
        for _ in 0..ROUNDS_MAX {
            let due = self.state.runs.timers.first().map(|(at, _)| *at).filter(|at| *at <= to);
            let Some(at) = due else { return Ok(()) };
            self.on_draft(at, |draft| decided(draft, RunCommand::Due))?;
            self.work(at)?;
        }
        Err(circles())
    }

    /// Runs walk; what they ask of the outside is noted and answered.
    fn work(&mut self, now: Timestamp) -> Result<(), Problem> {
        for _ in 0..ROUNDS_MAX {
            if let Some(run) = self.state.runs.ready.front().copied() {
                let before = self.next;
                self.on_draft(now, |draft| Ok(walk::walk(draft, run)?))?;
                if self.next == before {
                    self.state.runs.ready.pop_front();
                }
                continue;
            }
            let Some((run, wait)) = self.state.runs.wakes.effects.iter().next().copied() else {
                return Ok(());
            };
            let live = self.state.run(run).map_err(broken)?;
            self.effects.extend(live.as_ref().and_then(|live| shown_effect(live, wait)));
            let stub = |live| stubbed(&self.state, live, wait);
            let (how, value) = live.as_ref().map_or((How::Done, Value::Null), stub);
            let done = RunCommand::EffectDone { run, wait, how, value };
            self.on_draft(now, |draft| decided(draft, done))?;
        }
        Err(circles())
    }

    /// Something is decided as in the writer; what comes of it is remembered here only.
    fn on_draft(
        &mut self,
        now: Timestamp,
        act: impl FnOnce(&mut Draft<'_>) -> Result<(), Refusal>,
    ) -> Result<(), Problem> {
        let first = self.next;
        let mut draft = Draft::new(&mut self.state, &mut self.entropy, now, first);
        act(&mut draft).map_err(|refusal| match refusal {
            Refusal::Problem(problem) => problem,
            Refusal::Fault(fault) => broken(fault),
        })?;
        let entries = draft.into_entries();
        self.next += entries.len() as u64;
        let mut records = Vec::new();
        for (index, Entry { record, .. }) in entries.into_iter().enumerate() {
            match record {
                Record::Event(_) => self.published += 1,
                Record::Run(record) => {
                    records.push((Place { position: first + index as u64, time: now }, record))
                }
                _ => {}
            }
        }
        for (_, record) in &records {
            if let RunRecord::Started(started) = record {
                self.would
                    .insert(cause(started), json!({"run": started.id, "occurrence": started.occurrence}));
            }
        }
        let through = (self.next - 1).max(self.history.position);
        self.history.fold(&records, through).map_err(broken)
    }

    fn report(
        mut self,
        (from, to): (Timestamp, Timestamp),
        definitions: &[Definition],
        begun: &mut bool,
    ) -> Result<Value, Problem> {
        if !std::mem::replace(begun, true) {
            self.begin(definitions, from)?;
        }
        self.pass_time(to)?;
        let mut automations = Vec::new();
        for name in &self.names {
            let of = |runs: &BTreeMap<Cause, Value>| {
                runs.keys().filter(|(automation, _)| automation == name).cloned().collect::<BTreeSet<Cause>>()
            };
            let (would, did) = (of(&self.would), of(&self.did));
            let shown = |of: &BTreeMap<Cause, Value>, causes: Vec<&Cause>| -> Vec<Value> {
                causes.into_iter().take(SHOWN_MAX).filter_map(|cause| of.get(cause).cloned()).collect()
            };
            let mut only_would = shown(&self.would, would.difference(&did).collect());
            only_would.iter_mut().for_each(|run| self.fill(run));
            automations.push(json!({
                "automation": name, "would": would.len(), "did": did.len(),
                "both": would.intersection(&did).count(), "only_would": only_would,
                "only_did": shown(&self.did, did.difference(&would).collect()),
                "decisions": self.history.counts(name, None).map_err(broken)?,
            }));
        }
        self.effects.truncate(SHOWN_MAX);
        Ok(json!({
            "from": from, "to": to, "events": self.events, "published": self.published,
            "automations": automations, "effects": self.effects,
        }))
    }

    /// How a run that would have been came out.
    fn fill(&self, run: &mut Value) {
        let id = run["run"].as_str().unwrap_or_default();
        if let Ok(Some(full)) = self.history.run(id) {
            run["status"] = full["status"].clone();
            if !full["error"].is_null() {
                run["error"] = full["error"].clone();
            }
        }
    }
}

fn cause(started: &model::record::RunStarted) -> Cause {
    let of = match started.event {
        0 => started.occurrence.at.to_string(),
        event => event.to_string(),
    };
    (started.automation.clone(), of)
}

fn written(definition: &Definition) -> Option<Set> {
    let text = RawValue::from_string(definition.to_json()).ok()?;
    let (kind, name) = (definition.kind(), definition.key().to_owned());
    Some(Set { kind, name, hash: definition.hash(), definition: text })
}

/// As the writer does it: what it publishes and tells finds whom it concerns.
fn decided(draft: &mut Draft<'_>, command: RunCommand) -> Result<(), Refusal> {
    decide::run::decide(draft, command)?;
    Ok(route::all(draft)?)
}
