//! An automation's annotations into its head: what starts it, its gates, its mode.

use model::Code;
use model::definition;

use super::doc::{Doc, Kind, Read};
use super::finding::{fault, suggest};
use super::options;
use super::tree::{Automation, Condition, Field, Note, Step, Trigger, Word};
use crate::expr::fault::Fault;

const KNOWN: [&str; 24] = [
    "description",
    "enabled",
    "disabled",
    "trigger",
    "schedule",
    "filter",
    "window",
    "batch",
    "debounce",
    "throttle",
    "rate",
    "cooldown",
    "for",
    "condition",
    "conditions",
    "dedup",
    "mode",
    "storm",
    "space",
    "timeout",
    "mcp",
    "version",
    "actor",
    "tag",
];

pub(crate) fn automation(
    name: &str,
    notes: &[Note],
    args: Vec<Field>,
    steps: Vec<Step>,
    faults: &mut Vec<Fault>,
) -> Automation {
    let head = definition::Automation::named(name);
    let mut automation =
        Automation { args, head, triggers: Vec::new(), conditions: Vec::new(), keys: Vec::new(), steps };
    // Triggers first: a gate that stands before all of them is for all of them.
    let mut order = Vec::new();
    for note in notes {
        if matches!(note.name.text.as_str(), "trigger" | "schedule") {
            match trigger(note, faults) {
                Ok(trigger) => {
                    order.push(note.span.start);
                    automation.triggers.push(trigger);
                }
                Err(fault) => faults.push(fault),
            }
        }
    }
    let switches = || notes.iter().filter(|note| matches!(note.name.text.as_str(), "enabled" | "disabled"));
    if let (Some(first), Some(other)) = (switches().next(), switches().nth(1)) {
        let what = format!("@{} stands beside @{}", other.name.text, first.name.text);
        faults.push(fault(Code::DefinitionDuplicate, other.span, what).hint("keep one of them"));
    }
    const ONCE: [&str; 8] = ["description", "dedup", "mode", "storm", "space", "timeout", "version", "actor"];
    faults.extend(twice(notes, |name| ONCE.contains(&name)));
    for note in notes {
        if let Err(fault) = apply(note, &mut automation, &order, faults) {
            faults.push(fault);
        }
    }
    automation
}

/// A fault for each annotation that stands there a second time, of those that are meant to stand there `once`.
pub(crate) fn twice(notes: &[Note], once: impl Fn(&str) -> bool) -> Vec<Fault> {
    let mut found = Vec::new();
    for (at, note) in notes.iter().enumerate() {
        let name = note.name.text.as_str();
        if once(name) && notes[..at].iter().any(|earlier| earlier.name.text == name) {
            let what = format!("@{name} stands here twice");
            found.push(fault(Code::DefinitionDuplicate, note.span, what).hint("keep one of them"));
        }
    }
    found
}

/// The arguments of an annotation as keys and values; what has no name is called `value`.
pub(crate) fn pairs(note: &Note) -> Vec<(Word, Doc)> {
    let pair = |(key, node): &(Option<Word>, crate::expr::ast::Node)| {
        let word = Word { text: "value".to_owned(), span: node.span };
        (key.clone().unwrap_or(word), Doc::of(node.clone()))
    };
    note.args.iter().map(pair).collect()
}

/// The one value of an annotation such as `@description("…")`.
pub(crate) fn value(note: &Note) -> Read<Doc> {
    match note.args.as_slice() {
        [(None, node)] => Ok(Doc::of(node.clone())),
        _ => Err(fault(Code::DefinitionInvalid, note.span, format!("@{} takes one value", note.name.text))),
    }
}

fn trigger(note: &Note, faults: &mut Vec<Fault>) -> Read<Trigger> {
    let mut pairs = pairs(note);
    for (key, _) in &mut pairs {
        if key.text == "value" {
            key.text = if note.name.text == "schedule" { "cron" } else { "event" }.to_owned();
        }
    }
    options::trigger(&pairs, note.span, faults)
}

/// One value, or a map of what was named; `@debounce(10s, max_wait = 1m)` calls the first one `first`.
fn doc(note: &Note, first: &str) -> Doc {
    if let [(None, node)] = note.args.as_slice() {
        return Doc::of(node.clone());
    }
    let mut pairs = pairs(note);
    pairs.iter_mut().filter(|(key, _)| key.text == "value").for_each(|(key, _)| key.text = first.to_owned());
    Doc { span: note.span, kind: Kind::Map(pairs), node: None }
}

fn apply(note: &Note, automation: &mut Automation, order: &[u32], faults: &mut Vec<Fault>) -> Read<()> {
    let head = &mut automation.head;
    match note.name.text.as_str() {
        "trigger" | "schedule" | "mcp" | "version" | "actor" | "tag" => {}
        "enabled" => head.enabled = note.args.is_empty() || value(note)?.yes_or_no()?,
        "disabled" => head.enabled = false,
        "description" => head.description = Some(value(note)?.text("a text")?.text),
        "space" => head.space = Some(value(note)?.text("a space")?.text),
        "timeout" => head.timeout = Some(definition::Length::Fixed(value(note)?.time_limit()?)),
        "condition" | "conditions" => {
            for (_, node) in &note.args {
                let doc = Doc::of(node.clone());
                match (options::condition(&doc, faults), &doc.kind) {
                    (Ok(condition), _) => automation.conditions.push(condition),
                    (Err(fault), Kind::Map(_)) => faults.push(fault),
                    // A text is an expression in quotes, or one that compares texts.
                    (Err(_), _) => automation.conditions.push(Condition::Expr(node.clone())),
                }
            }
        }
        "dedup" => head.dedup = Some(options::dedup(&doc(note, "key"), &mut automation.keys, faults)?),
        "storm" => head.storm = Some(options::storm(&doc(note, "per_minute"), faults)?),
        "mode" => {
            let pairs = pairs(note);
            let (name, beside): (Vec<_>, Vec<_>) =
                pairs.into_iter().partition(|(key, _)| matches!(key.text.as_str(), "value" | "mode"));
            super::doc::only(&beside, "@mode", &["key", "max"], faults);
            let [(_, name)] = name.as_slice() else {
                return Err(fault(Code::DefinitionInvalid, note.span, "@mode names one mode"));
            };
            head.mode = options::mode(name, &beside, &mut automation.keys, faults)?;
        }
        gate if options_gate(gate) => apply_gate(note, automation, order, faults)?,
        other => {
            let unknown = fault(
                Code::DefinitionUnknownKey,
                note.name.span,
                format!("unknown annotation @{other} of an automation"),
            );
            return Err(suggest(unknown, other, KNOWN));
        }
    }
    Ok(())
}

fn options_gate(name: &str) -> bool {
    matches!(name, "filter" | "window" | "batch" | "debounce" | "throttle" | "rate" | "cooldown" | "for")
}

/// A gate is for the trigger it stands behind; before all triggers, it is for all.
fn apply_gate(note: &Note, automation: &mut Automation, order: &[u32], faults: &mut Vec<Fault>) -> Read<()> {
    let behind = order.iter().rposition(|start| *start < note.span.start);
    if automation.triggers.is_empty() {
        let what = format!("@{} has no trigger to stand behind", note.name.text);
        return Err(fault(Code::DefinitionInvalid, note.span, what).hint("add @trigger(…) before it"));
    }
    let doc = match note.name.text.as_str() {
        "filter" => value(note)?,
        _ => doc(note, "for"),
    };
    for (at, trigger) in automation.triggers.iter_mut().enumerate() {
        if behind.is_none_or(|behind| behind == at) {
            options::gate(trigger, &note.name.text, &doc, faults)?;
        }
    }
    Ok(())
}
