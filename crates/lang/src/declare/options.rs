//! Triggers, waits, questions and calls outside from keys and values; annotations, option blocks and YAML meet here.

use model::Code;
use model::definition::{OnTimeout, Retry};

use super::doc::{Doc, Kind, Read, get, only};
use super::finding::{fault, suggest};
use super::tree::{Action, Ask, Field, Type, Word};
use crate::expr::Span;
use crate::expr::fault::Fault;

mod condition;
mod gate;
mod trigger;

pub(crate) use condition::condition;
pub(crate) use gate::{dedup, gate, mode, storm};
#[cfg(test)]
pub(crate) use trigger::trigger_keys;
pub(crate) use trigger::{entity_ref, trigger};

pub(crate) type Pairs = [(Word, Doc)];

pub(crate) fn on_timeout(doc: &Doc) -> Read<OnTimeout> {
    match doc.text("continue or fail")?.text.as_str() {
        "continue" => Ok(OnTimeout::Continue),
        "fail" => Ok(OnTimeout::Fail),
        _ => Err(doc.wrong("continue or fail")),
    }
}

/// Whether `parallel` goes on with its first branch that ends, instead of with all.
pub(crate) fn waits_for_any(word: &Word) -> Read<bool> {
    match word.text.as_str() {
        "all" => Ok(false),
        "any" => Ok(true),
        other => {
            let what = format!("expected all or any, found {other:?}");
            Err(suggest(fault(Code::DefinitionInvalid, word.span, what), other, ["all", "any"]))
        }
    }
}

pub(crate) fn retry(doc: &Doc, faults: &mut Vec<Fault>) -> Read<Retry> {
    if let Kind::Number(_) = doc.kind {
        return Ok(Retry { max: doc.count("how often to try again")?, base: None, mult: None, limit: None });
    }
    let pairs = doc.map("max, base, mult, limit")?;
    only(pairs, "retry", &["max", "base", "mult", "limit"], faults);
    let max = get(pairs, "max").ok_or_else(|| doc.wrong("retry with \"max\""))?;
    let base = get(pairs, "base").map(Doc::duration).transpose()?;
    let most = get(pairs, "limit");
    let limit = most.map(Doc::duration).transpose()?;
    if let (Some(most), Some(base), Some(limit)) = (most, base, limit)
        && limit < base
    {
        return Err(most.wrong("a limit that is not below \"base\"").hint("leave one of them out"));
    }
    Ok(Retry {
        max: max.count("how often to try again")?,
        base,
        mult: get(pairs, "mult").map(|mult| mult.float("a factor")).transpose()?,
        limit,
    })
}

pub(crate) fn ask(pairs: &Pairs, approve: bool, span: Span, faults: &mut Vec<Fault>) -> Read<Action> {
    const KEYS: [&str; 7] = ["question", "form", "options", "to", "timeout", "expires", "default"];
    only(pairs, if approve { "approve" } else { "ask" }, &KEYS, faults);
    let question = get(pairs, "question").ok_or_else(|| {
        let lacks = fault(Code::DefinitionInvalid, span, "a question is missing");
        lacks.hint("add question: \"…\", what the person reads")
    })?;
    let options = match get(pairs, "options") {
        Some(options) => options.list("a list of answers")?.iter().map(Doc::literal).collect::<Read<_>>()?,
        None => Vec::new(),
    };
    if let Some(form) = get(pairs, "form").filter(|_| !options.is_empty()) {
        let both = fault(Code::DefinitionInvalid, form.span, "a question has options or a form, not both");
        return Err(both.hint("no answer fits both: leave one of them out, or make it a field of the form"));
    }
    Ok(Action::Ask(Box::new(Ask {
        question: question.val(),
        approve,
        form: get(pairs, "form").map(form).transpose()?.unwrap_or_default(),
        options,
        to: get(pairs, "to").map(Doc::val),
        timeout: get(pairs, "timeout").or(get(pairs, "expires")).map(Doc::limit).transpose()?,
        default: get(pairs, "default").map(Doc::val),
    })))
}

/// `{ amount: "int!", note: "string" }`; as in a concept, `!` is what must be filled in.
fn form(doc: &Doc) -> Read<Vec<Field>> {
    let fields = doc.map("fields with their types")?.iter().map(|(name, of)| {
        let mut word = of.text("a type, such as string")?;
        let of_span = word.span;
        let required = word.text.ends_with('!');
        if required {
            word.text.pop();
        }
        Ok(Field { name: name.clone(), of: Type::Named(word), of_span, required, notes: Vec::new() })
    });
    fields.collect()
}

pub(crate) fn http(pairs: &Pairs, span: Span, faults: &mut Vec<Fault>) -> Read<Action> {
    only(pairs, "http", &["method", "url", "headers", "body", "once"], faults);
    let url =
        get(pairs, "url").ok_or_else(|| fault(Code::DefinitionInvalid, span, "http needs a \"url\""))?;
    let body = get(pairs, "body").map(Doc::val);
    let method = match get(pairs, "method") {
        Some(method) => method.text("a method, such as POST")?.text.to_uppercase(),
        None if body.is_some() => "POST".to_owned(),
        None => "GET".to_owned(),
    };
    const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"];
    if !METHODS.contains(&method.as_str()) {
        let span = get(pairs, "method").map_or(span, |doc| doc.span);
        let unknown = fault(Code::DefinitionInvalid, span, format!("unknown method {method:?}"));
        return Err(suggest(unknown, &method, METHODS));
    }
    let once = get(pairs, "once").map(Doc::yes_or_no).transpose()?.unwrap_or(false);
    Ok(Action::Http { method, url: url.val(), headers: get(pairs, "headers").map(Doc::val), body, once })
}
