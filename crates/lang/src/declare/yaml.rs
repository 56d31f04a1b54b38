//! YAML and JSON into the same tree as `.ew` (contracts §8): a file holds one automation, a list of them, or several
//! documents. An unknown key is an error with its place.

use model::Code;
use model::definition;

use super::doc::{Doc, Kind, Read, get, only};
use super::finding::fault;
use super::options;
use super::tree::{Automation, Body, File, Item};
use crate::expr::Span;
use crate::expr::fault::Fault;

mod document;
mod step;

#[cfg(test)]
mod tests;

use document::VALUES_MAX;

const KEYS: [&str; 14] = [
    "automation",
    "enabled",
    "description",
    "space",
    "triggers",
    "trigger",
    "conditions",
    "condition",
    "dedup",
    "mode",
    "max",
    "key",
    "storm",
    "actions",
];
const MORE: [&str; 3] = ["timeout", "input", "id"];

pub(crate) fn read(text: &str) -> (File, Vec<Fault>) {
    let mut faults = Vec::new();
    let mut file = File::default();
    if text.len() > VALUES_MAX && is_scenarios(text) {
        return (file, faults);
    }
    for doc in document::documents(text, VALUES_MAX, &mut faults) {
        match &doc.kind {
            Kind::Null => {}
            Kind::List(items) => items.iter().for_each(|item| one(item, &mut file, &mut faults)),
            _ => one(&doc, &mut file, &mut faults),
        }
    }
    (file, faults)
}

/// Whether it is a long JSON list of scenarios: none of ours, and perhaps of more values than definitions have.
fn is_scenarios(text: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Named {
        scenario: Option<serde::de::IgnoredAny>,
    }
    serde_json::from_str::<Vec<Named>>(text).is_ok_and(|all| all.iter().all(|one| one.scenario.is_some()))
}

/// Every document of a YAML or JSON text as a plain value; the first fault when it cannot be read. What is written out is no
/// bomb, however long: no text has more values than bytes.
pub(crate) fn values(text: &str) -> Result<Vec<serde_json::Value>, Fault> {
    let mut faults = Vec::new();
    let docs = document::documents(text, VALUES_MAX.max(text.len()), &mut faults);
    match faults.into_iter().next() {
        Some(fault) => Err(fault),
        None => Ok(docs.iter().map(Doc::json).collect()),
    }
}

fn one(doc: &Doc, file: &mut File, faults: &mut Vec<Fault>) {
    let Kind::Map(pairs) = &doc.kind else {
        faults.push(doc.wrong("an automation, or a list of them"));
        return;
    };
    // Scenarios, configuration and data may lie in the same folder.
    let ours = ["automation", "triggers", "actions"].iter().any(|key| get(pairs, key).is_some());
    if !ours || get(pairs, "scenario").is_some() {
        faults.extend(means_to_be_ours(pairs));
        return;
    }
    match automation(pairs, doc.span, faults) {
        Ok(item) => file.items.push(item),
        Err(fault) => faults.push(fault),
    }
}

/// What only automations have, without what makes it one: passed over in silence it would be missed later.
fn means_to_be_ours(pairs: &options::Pairs) -> Option<Fault> {
    if get(pairs, "scenario").is_some() {
        return None;
    }
    let telling = ["trigger", "conditions", "automations", "action", "dedup", "storm"];
    let (key, _) = pairs.iter().find(|(key, _)| telling.contains(&key.text.as_str()))?;
    let what = format!("{:?} stands in no automation", key.text);
    Some(
        fault(Code::DefinitionInvalid, key.span, what)
            .hint("begin with automation: <name>; several are a list of them"),
    )
}

fn automation(pairs: &options::Pairs, span: Span, faults: &mut Vec<Fault>) -> Read<Item> {
    let known: Vec<&str> = KEYS.iter().chain(&MORE).copied().collect();
    only(pairs, "an automation", &known, faults);
    let name = get(pairs, "automation")
        .ok_or_else(|| {
            fault(Code::DefinitionInvalid, Span { end: span.start, ..span }, "the automation has no name")
                .hint("begin with automation: <name>")
        })?
        .text("a name")?;
    let mut tree = Automation {
        args: Vec::new(),
        head: definition::Automation::named(&name.text),
        triggers: Vec::new(),
        conditions: Vec::new(),
        keys: Vec::new(),
        steps: Vec::new(),
    };
    for part in [words, limits, storm, dedup, mode] {
        if let Err(fault) = part(pairs, &mut tree, faults) {
            faults.push(fault);
        }
    }
    for doc in listed(pairs, &["triggers", "trigger"]) {
        let read = doc.map("a trigger").and_then(|pairs| options::trigger(pairs, doc.span, faults));
        keep(read, &mut tree.triggers, faults);
    }
    for doc in listed(pairs, &["conditions", "condition"]) {
        let read = options::condition(doc, faults);
        keep(read, &mut tree.conditions, faults);
    }
    if let Some(actions) = get(pairs, "actions") {
        tree.steps = step::steps(actions, 0, faults);
    }
    Ok(Item { name, notes: Vec::new(), body: Body::Automation(Box::new(tree)) })
}

fn keep<T>(read: Read<T>, into: &mut Vec<T>, faults: &mut Vec<Fault>) {
    match read {
        Ok(one) => into.push(one),
        Err(fault) => faults.push(fault),
    }
}

/// The elements of a list, or the one that stands for it.
fn listed<'p>(pairs: &'p options::Pairs, keys: &[&str]) -> Vec<&'p Doc> {
    let found = keys.iter().find_map(|key| get(pairs, key));
    match found {
        None => Vec::new(),
        Some(Doc { kind: Kind::List(items), .. }) => items.iter().collect(),
        Some(Doc { kind: Kind::Null, .. }) => Vec::new(),
        Some(one) => vec![one],
    }
}

fn words(pairs: &options::Pairs, tree: &mut Automation, faults: &mut Vec<Fault>) -> Read<()> {
    let mut text = |key: &str, wanted: &str| {
        let read = get(pairs, key).map(|doc| doc.text(wanted)).transpose();
        read.map_err(|fault| faults.push(fault)).unwrap_or_default().map(|word| word.text)
    };
    tree.head.description = text("description", "a text");
    tree.head.space = text("space", "a space");
    if let Some(enabled) = get(pairs, "enabled") {
        tree.head.enabled = enabled.yes_or_no()?;
    }
    Ok(())
}

fn limits(pairs: &options::Pairs, tree: &mut Automation, _: &mut Vec<Fault>) -> Read<()> {
    let timeout = get(pairs, "timeout").map(Doc::time_limit).transpose()?;
    tree.head.timeout = timeout.map(definition::Length::Fixed);
    Ok(())
}

fn storm(pairs: &options::Pairs, tree: &mut Automation, faults: &mut Vec<Fault>) -> Read<()> {
    tree.head.storm = get(pairs, "storm").map(|storm| options::storm(storm, faults)).transpose()?;
    Ok(())
}

fn dedup(pairs: &options::Pairs, tree: &mut Automation, faults: &mut Vec<Fault>) -> Read<()> {
    let dedup = get(pairs, "dedup").map(|dedup| options::dedup(dedup, &mut tree.keys, faults));
    tree.head.dedup = dedup.transpose()?;
    Ok(())
}

fn mode(pairs: &options::Pairs, tree: &mut Automation, faults: &mut Vec<Fault>) -> Read<()> {
    let single = Doc { span: Span::default(), kind: Kind::Text("single".to_owned()), node: None };
    let mode = get(pairs, "mode").unwrap_or(&single);
    tree.head.mode = match &mode.kind {
        Kind::Map(inner) => {
            only(inner, "mode", &["is", "key", "max"], faults);
            options::mode(get(inner, "is").unwrap_or(&single), inner, &mut tree.keys, faults)?
        }
        _ => options::mode(mode, pairs, &mut tree.keys, faults)?,
    };
    Ok(())
}
