//! One trigger from its keys: exactly one kind, and its gates (contracts §8).

use std::time::Duration;

use model::definition::{self, Bound, CatchUp, Change, EntityRef, Every, TriggerKind};
use model::topic::Pattern;
use model::{Code, Problem, Timestamp};
use serde_json::Value;

use super::condition::bounds;
use super::{Pairs, gate};
use crate::cron::{Calendar, Cron, Zone};
use crate::declare::doc::{Doc, Kind, Read, get, kept, only};
use crate::declare::finding::{fault, suggest};
use crate::declare::tree::{Trigger, Watched, Word};
use crate::expr::Span;
use crate::expr::fault::Fault;

const KINDS: [&str; 11] = [
    "event",
    "entity",
    "state",
    "numeric_state",
    "cron",
    "schedule",
    "every",
    "at",
    "webhook",
    "absent",
    "manual",
];
const GATES: [&str; 8] = ["filter", "window", "batch", "debounce", "throttle", "rate", "cooldown", "for"];
/// What else may stand beside the kind.
const BESIDE: [&str; 15] = [
    "id",
    "concept",
    "partition",
    "on",
    "field",
    "from",
    "to",
    "not_from",
    "not_to",
    "above",
    "below",
    "tz",
    "catch_up",
    "jitter",
    "for",
];

/// Every key that a trigger may have.
#[cfg(test)]
pub(crate) fn trigger_keys() -> Vec<&'static str> {
    KINDS.iter().chain(&GATES).chain(&BESIDE).copied().collect()
}

pub(crate) fn trigger(pairs: &Pairs, span: Span, faults: &mut Vec<Fault>) -> Read<Trigger> {
    let known: Vec<&str> = KINDS.iter().chain(&GATES).chain(&BESIDE).copied().collect();
    only(pairs, "a trigger", &known, faults);
    let kinds: Vec<&(Word, Doc)> =
        pairs.iter().filter(|(key, _)| KINDS.contains(&key.text.as_str())).collect();
    let (key, doc) = match kinds.as_slice() {
        [one] => (&one.0, &one.1),
        [] => {
            let none = fault(Code::DefinitionTrigger, span, "a trigger says what starts it");
            return Err(none.hint(format!("one of {}", KINDS.join(", "))));
        }
        [_, second, ..] => {
            let what = format!("a trigger has one kind; {:?} is a second one", second.0.text);
            return Err(fault(Code::DefinitionTrigger, second.0.span, what).hint("write two triggers"));
        }
    };
    let mut reading = Reading { pairs, faults, concepts: Vec::new(), watched: Watched::default() };
    let kind = reading.kind(&key.text, doc);
    // Of a trigger whose kind cannot be read, the gates are read nevertheless.
    let on = kind.as_ref().map_or(TriggerKind::Manual, Clone::clone);
    let one_shot = matches!(on, TriggerKind::At(_)) && get(pairs, "catch_up").is_some();
    let catch_up = if one_shot { Some(reading.catch_up()?) } else { None };
    let (concepts, watched) = (reading.concepts, reading.watched);
    let absent = matches!(on, TriggerKind::Absent { .. });
    let mut made = definition::Trigger { catch_up, ..definition::Trigger::on(on) };
    if let Some(id) = get(pairs, "id") {
        made.id = id.text("a name")?.text;
    }
    let ignored = partition(pairs);
    let mut trigger = Trigger { span, made, concepts, filter: None, keys: Vec::new(), ignored, watched };
    for (key, doc) in pairs.iter().filter(|(key, _)| GATES.contains(&key.text.as_str())) {
        if absent && key.text == "for" {
            continue;
        }
        if let Err(fault) = gate(&mut trigger, &key.text, doc, faults) {
            faults.push(fault);
        }
    }
    kind.map(|_| trigger)
}

/// A partition, unless it says what holds anyway: that all of them are heard.
fn partition(pairs: &Pairs) -> Vec<Word> {
    let narrow = |(key, doc): &&(Word, Doc)| {
        key.text == "partition" && !matches!(&doc.kind, Kind::Text(text) if text == "*")
    };
    pairs.iter().filter(narrow).map(|(key, _)| key.clone()).collect()
}

struct Reading<'a> {
    pairs: &'a Pairs,
    faults: &'a mut Vec<Fault>,
    concepts: Vec<Word>,
    watched: Watched,
}

impl Reading<'_> {
    fn kind(&mut self, key: &str, doc: &Doc) -> Read<TriggerKind> {
        match key {
            "event" => self.event(doc),
            "entity" => self.entity(doc),
            "state" => self.state(doc),
            "numeric_state" => self.numeric(doc),
            "cron" | "schedule" => {
                let tz = kept(get(self.pairs, "tz").map(zone).transpose(), self.faults);
                let (catch_up, jitter) = self.late();
                Ok(TriggerKind::Cron { cron: cron(doc)?, tz, catch_up, jitter })
            }
            "every" => {
                let (catch_up, jitter) = self.late();
                Ok(TriggerKind::Every(Every { every: self.every(doc)?, catch_up, jitter }))
            }
            "at" => {
                let text = doc.text("an instant")?.text;
                let at = Timestamp::parse(&text)
                    .map_err(|_| doc.wrong("an RFC 3339 instant").hint("such as 2026-01-31T09:30:00Z"))?;
                Ok(TriggerKind::At(at))
            }
            "webhook" => Ok(TriggerKind::Webhook(doc.text("the name of a webhook")?.text)),
            "absent" => self.absent(doc),
            _ => match doc.kind {
                Kind::Bool(true) | Kind::Null => Ok(TriggerKind::Manual),
                _ => Err(doc.wrong("true")),
            },
        }
    }

    /// A topic pattern, a list of them, or `node.created` with a concept.
    fn event(&mut self, doc: &Doc) -> Read<TriggerKind> {
        let words = topics(doc)?;
        if let [word] = words.as_slice()
            && let Some(change) = word.text.strip_prefix("node.")
        {
            let Some(change) = Change::ALL.into_iter().find(|known| known.as_str() == change) else {
                let known = ["node.created", "node.updated", "node.deleted"];
                let what = format!("event {:?} is not one of {}", word.text, known.join(", "));
                return Err(suggest(fault(Code::DefinitionTrigger, word.span, what), &word.text, known));
            };
            let concept = match get(self.pairs, "concept") {
                Some(concept) => self.concept(concept)?,
                None => "*".to_owned(),
            };
            return Ok(TriggerKind::Entity { concept, changes: vec![change] });
        }
        if let Some((key, _)) = self.pairs.iter().find(|(key, _)| key.text == "concept") {
            let what = "a concept goes with node.created, node.updated or node.deleted";
            self.faults.push(fault(Code::DefinitionTrigger, key.span, what));
        }
        for word in &words {
            self.concept_of_topic(word)?;
        }
        self.patterns(words).map(TriggerKind::Event)
    }

    /// `graph.node.created.<concept>` names a concept as `concept` does, unless that part is a pattern.
    fn concept_of_topic(&mut self, word: &Word) -> Read<()> {
        let change = word.text.strip_prefix("graph.node.").and_then(|rest| rest.split_once('.'));
        let Some((change, concept)) = change.filter(|(_, concept)| !concept.contains(['*', '#'])) else {
            return Ok(());
        };
        if !Change::ALL.iter().any(|known| known.as_str() == change) {
            return Ok(());
        }
        let concept = Word { text: concept.to_owned(), span: word.span };
        qualified(&concept)?;
        self.concepts.push(concept);
        Ok(())
    }

    fn patterns(&mut self, words: Vec<Word>) -> Read<Vec<String>> {
        for word in &words {
            if let Err(problem) = Pattern::parse(&word.text) {
                let mut wrong = fault(Code::PatternInvalid, word.span, problem.detail());
                wrong.hint = problem.hint_text().map(str::to_owned);
                return Err(wrong);
            }
        }
        Ok(words.into_iter().map(|word| word.text).collect())
    }

    /// A concept by its whole id, which is looked up later.
    fn concept(&mut self, doc: &Doc) -> Read<String> {
        let word = doc.text("a concept's id, such as v1:cognition:space")?;
        qualified(&word)?;
        self.concepts.push(word.clone());
        Ok(word.text)
    }

    fn entity(&mut self, doc: &Doc) -> Read<TriggerKind> {
        let concept = self.concept(doc)?;
        let changes = match get(self.pairs, "on") {
            None => Change::ALL.to_vec(),
            Some(on) => on.texts("created, updated or deleted")?.iter().map(change).collect::<Read<_>>()?,
        };
        Ok(TriggerKind::Entity { concept, changes })
    }

    /// The keys of `state` and `numeric_state`: in a map, or beside an entity that is given alone.
    fn inner<'d>(&mut self, doc: &'d Doc, what: &str, known: &[&str]) -> Read<(&'d Pairs, Option<&'d Doc>)> {
        match &doc.kind {
            Kind::Map(pairs) => {
                only(pairs, what, known, self.faults);
                Ok((pairs, get(pairs, "entity")))
            }
            _ => Ok((&[], Some(doc))),
        }
    }

    fn entities(&mut self, doc: &Doc) -> Read<Vec<EntityRef>> {
        let words = doc.texts("a concept, or concept/id")?;
        words
            .iter()
            .map(|word| {
                let entity = entity_ref(word)?;
                self.concepts.push(Word { text: entity.concept.clone(), span: word.span });
                Ok(entity)
            })
            .collect()
    }

    fn state(&mut self, doc: &Doc) -> Read<TriggerKind> {
        let known = ["entity", "field", "from", "to", "not_from", "not_to"];
        let (inner, entity) = self.inner(doc, "state", &known)?;
        let beside = self.pairs;
        let pick = |key: &str| get(inner, key).or_else(|| get(beside, key));
        let entity = entity.ok_or_else(|| doc.wrong("state with \"entity\""))?;
        let field = pick("field").ok_or_else(|| doc.wrong("state with \"field\""))?;
        let told = ["from", "to", "not_from", "not_to"].iter().filter_map(|key| pick(key)).flat_map(placed);
        self.watched = Watched { field: Some(field.span), values: told.collect() };
        Ok(TriggerKind::State {
            entities: self.entities(entity)?,
            field: field.text("a field")?.text,
            from: pick("from").and_then(values),
            to: pick("to").and_then(values),
            not_from: pick("not_from").and_then(values).unwrap_or_default(),
            not_to: pick("not_to").and_then(values).unwrap_or_default(),
        })
    }

    fn numeric(&mut self, doc: &Doc) -> Read<TriggerKind> {
        let (inner, entity) = self.inner(doc, "numeric_state", &["entity", "field", "above", "below"])?;
        let beside = self.pairs;
        let pick = |key: &str| get(inner, key).or_else(|| get(beside, key));
        let entity = entity.ok_or_else(|| doc.wrong("numeric_state with \"entity\""))?;
        let field = pick("field").ok_or_else(|| doc.wrong("numeric_state with \"field\""))?;
        let told = ["above", "below"].iter().filter_map(|key| pick(key)).flat_map(placed);
        self.watched = Watched { field: Some(field.span), values: told.collect() };
        let (above, below) = bounds(doc, pick("above"), pick("below"))?;
        let field = field.text("a field")?.text;
        Ok(TriggerKind::NumericState { entities: self.entities(entity)?, field, above, below })
    }

    fn absent(&mut self, doc: &Doc) -> Read<TriggerKind> {
        let (pairs, event) = match &doc.kind {
            Kind::Map(pairs) => {
                only(pairs, "absent", &["event", "for"], self.faults);
                (pairs.as_slice(), get(pairs, "event"))
            }
            _ => (self.pairs, Some(doc)),
        };
        let event = event.ok_or_else(|| doc.wrong("absent with \"event\""))?;
        let after = get(pairs, "for").ok_or_else(|| doc.wrong("absent with \"for\""))?.duration()?;
        let words = topics(event)?;
        Ok(TriggerKind::Absent { event: self.patterns(words)?, after })
    }

    fn every(&mut self, doc: &Doc) -> Read<Duration> {
        let every = doc.duration()?;
        Calendar::every(every).map_err(|problem| of_schedule(&problem, doc))?;
        if let Some(tz) = get(self.pairs, "tz") {
            let what = "\"every\" counts from 1970 in UTC and has no zone";
            let hint = "for a time of day in a zone write cron: \"0 7 * * *\" with tz";
            self.faults.push(fault(Code::CronInvalid, tz.span, what).hint(hint));
        }
        Ok(every)
    }

    /// What becomes of a time that was missed, and by how much times are shifted.
    fn late(&mut self) -> (CatchUp, Option<Duration>) {
        let catch_up = self.catch_up();
        let jitter = get(self.pairs, "jitter").map(Doc::gate_time).transpose();
        (kept(catch_up, self.faults), kept(jitter, self.faults))
    }

    fn catch_up(&mut self) -> Read<CatchUp> {
        let Some(doc) = get(self.pairs, "catch_up") else { return Ok(CatchUp::default()) };
        if let Kind::Map(pairs) = &doc.kind {
            only(pairs, "catch_up", &["all", "within"], self.faults);
            let all = get(pairs, "all").ok_or_else(|| doc.wrong("catch_up with \"all\""))?;
            let within = get(pairs, "within").map(Doc::duration).transpose()?;
            return Ok(CatchUp::All { max: all.at_least_one("how many")?, within });
        }
        match doc.text("none, latest or { all: n, within: d }")?.text.as_str() {
            "none" => Ok(CatchUp::None),
            "latest" => Ok(CatchUp::Latest),
            _ => Err(doc.wrong("none, latest or { all: n, within: d }")),
        }
    }
}

/// One pattern or several. A number is none, though YAML would have it read as a text.
fn topics(doc: &Doc) -> Read<Vec<Word>> {
    let items = match &doc.kind {
        Kind::List(items) => items.as_slice(),
        _ => std::slice::from_ref(doc),
    };
    if let Some(number) = items.iter().find(|item| matches!(item.kind, Kind::Number(_))) {
        return Err(number.wrong("a topic pattern").hint("put it in quotes if it is one"));
    }
    doc.texts("a topic pattern")
}

/// `null` means any; one value or a list.
fn values(doc: &Doc) -> Option<Vec<Value>> {
    match doc.json() {
        Value::Null => None,
        Value::Array(items) => Some(items),
        one => Some(vec![one]),
    }
}

/// The same values with their places.
pub(super) fn placed(doc: &Doc) -> Vec<(Value, Span)> {
    match &doc.kind {
        Kind::Null => Vec::new(),
        Kind::List(items) => items.iter().map(|item| (item.json(), item.span)).collect(),
        _ => vec![(doc.json(), doc.span)],
    }
}

pub(super) fn bound(doc: &Doc) -> Read<Bound> {
    match &doc.kind {
        Kind::Map(pairs) => {
            let lacks = || doc.wrong("a number, or { entity: concept/id, field: name }");
            let entity = get(pairs, "entity").ok_or_else(lacks)?.text("concept/id")?;
            let field = get(pairs, "field").ok_or_else(lacks)?.text("a field")?.text;
            Ok(Bound::Field { entity: entity_ref(&entity)?, field })
        }
        _ => doc.float("a number").map(Bound::Number),
    }
}

fn change(word: &Word) -> Read<Change> {
    let known = Change::ALL.map(Change::as_str);
    Change::ALL.into_iter().find(|change| change.as_str() == word.text).ok_or_else(|| {
        let what = format!("{:?} is not one of {}", word.text, known.join(", "));
        suggest(fault(Code::DefinitionTrigger, word.span, what), &word.text, known)
    })
}

fn qualified(word: &Word) -> Read<()> {
    if word.text.contains(':') || word.text == "*" {
        return Ok(());
    }
    let what = format!("the concept {:?} of a trigger is not a whole id", word.text);
    let hint = "write version, namespace and name, such as v1:cognition:space";
    Err(fault(Code::DefinitionTrigger, word.span, what).hint(hint))
}

/// `concept` or `concept/id`.
pub(crate) fn entity_ref(word: &Word) -> Read<EntityRef> {
    let (concept, id) = match word.text.split_once('/') {
        Some((concept, id)) => (concept, Some(id.to_owned())),
        None => (word.text.as_str(), None),
    };
    qualified(&Word { text: concept.to_owned(), span: word.span })?;
    Ok(EntityRef { concept: concept.to_owned(), id })
}

fn cron(doc: &Doc) -> Read<String> {
    let text = doc.text("a cron expression")?.text;
    Cron::parse(&text).map_err(|problem| of_schedule(&problem, doc))?;
    Ok(text)
}

/// A zone that there is, by its name.
pub(super) fn zone(doc: &Doc) -> Read<String> {
    let text = doc.text("a zone")?.text;
    Zone::parse(&text).map_err(|problem| of_schedule(&problem, doc))?;
    Ok(text)
}

fn of_schedule(problem: &Problem, doc: &Doc) -> Fault {
    let mut wrong = fault(problem.code(), doc.span, problem.detail());
    wrong.hint = problem.hint_text().map(str::to_owned);
    wrong
}
