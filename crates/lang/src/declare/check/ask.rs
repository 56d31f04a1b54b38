//! Checks a question to a person: the answer that counts when nobody gives one must be one that somebody could give.

use model::Code;
use model::definition::{self, Action, Field, approval};
use serde_json::Value;

use super::scope::Scope;
use super::step::Refs;
use super::{Checker, fits};
use crate::declare::doc::{Doc, Kind as DocKind};
use crate::declare::finding::{fault, suggest};
use crate::declare::tree::{self, Word};

impl Checker<'_> {
    pub(super) fn ask(&mut self, ask: &tree::Ask, scope: &mut Scope, refs: &mut Refs) -> Action {
        let form = self.fields(ask.form.iter(), "form");
        if let Some(default) = &ask.default {
            let default = Doc::of_val(default);
            self.is_an_option(&ask.options, &default);
            if ask.approve && ask.options.is_empty() {
                self.is_yes_or_no(&default);
            }
            self.fills_in(ask.approve, &form, &default);
        }
        Action::Ask(definition::Ask {
            question: self.input(&ask.question, scope, refs),
            approve: ask.approve,
            form,
            options: ask.options.clone(),
            to: ask.to.as_ref().map(|val| self.input(val, scope, refs)),
            timeout: ask.timeout.as_ref().map(|timeout| self.length(timeout, scope, refs)),
            default: ask.default.as_ref().map(|val| self.input(val, scope, refs)),
        })
    }

    /// Null stands for "nobody answered", which is no answer.
    fn is_an_option(&mut self, options: &[Value], default: &Doc) {
        let Some(given) = plain(default).filter(|given| !given.is_null()) else { return };
        if options.is_empty() || options.contains(&given) {
            return;
        }
        let what = format!("the default {given} is none of the options");
        let wrong = fault(Code::DefinitionType, default.span, what);
        let texts: Option<Vec<&str>> = options.iter().map(Value::as_str).collect();
        self.error(match (given.as_str(), texts) {
            (Some(given), Some(texts)) => suggest(wrong, given, texts),
            _ => {
                let known = options.iter().map(Value::to_string).collect::<Vec<_>>().join(", ");
                wrong.hint(format!("the options are {known}"))
            }
        });
    }

    /// As the answer to `approve` must be.
    fn is_yes_or_no(&mut self, default: &Doc) {
        let Some(given) = plain(default).filter(|given| !given.is_null()) else { return };
        if approval(&given).is_none() {
            let what = format!("the default {given} is neither yes nor no");
            let wrong = fault(Code::DefinitionType, default.span, what);
            self.error(
                wrong.hint(
                    "true or false, yes or no, approve or reject; with a form {\"approved\": false, …}",
                ),
            );
        }
    }

    /// As an answer must fill in a form. Who rejects need not fill in anything.
    fn fills_in(&mut self, approve: bool, form: &[Field], default: &Doc) {
        if form.is_empty() {
            return;
        }
        let pairs = match &default.kind {
            DocKind::Map(pairs) => pairs.as_slice(),
            // Computed as a whole; known only when it runs.
            DocKind::Null | DocKind::Other => return,
            DocKind::Text(text) if text.contains("{{") => return,
            _ if approve => &[],
            _ => {
                let what = "the default is not what the form asks for, an object";
                return self.error(fault(Code::DefinitionType, default.span, what).hint(asked(form)));
            }
        };
        for (key, value) in pairs.iter().filter(|(key, _)| !(approve && key.text == "approved")) {
            self.fills_in_one(form, key, value);
        }
        let rejects = approve && plain(default).is_none_or(|given| approval(&given) == Some(false));
        let given = |field: &&Field| {
            pairs.iter().any(|(key, value)| key.text == field.name && !matches!(value.kind, DocKind::Null))
        };
        if let Some(lacks) = form.iter().find(|field| field.required && !given(field)).filter(|_| !rejects) {
            let what = format!("the default does not fit the form: {:?} is missing", lacks.name);
            self.error(fault(Code::DefinitionType, default.span, what).hint(asked(form)));
        }
    }

    fn fills_in_one(&mut self, form: &[Field], key: &Word, value: &Doc) {
        let Some(field) = form.iter().find(|field| field.name == key.text) else {
            let what = format!("the default does not fit the form: it has no field {:?}", key.text);
            let unknown = fault(Code::DefinitionType, key.span, what);
            return self.error(suggest(unknown, &key.text, form.iter().map(|field| field.name.as_str())));
        };
        if let Some(message) = plain(value).and_then(|given| fits::misfit(field, &given)) {
            let what = format!("the default does not fit the form: {:?}: {message}", key.text);
            self.error(fault(Code::DefinitionType, value.span, what));
        }
    }
}

/// What is written out; nothing when it is computed when the time is over.
fn plain(doc: &Doc) -> Option<Value> {
    doc.literal().ok().filter(|value| !value.to_string().contains("{{"))
}

fn asked(form: &[Field]) -> String {
    let names: Vec<&str> = form.iter().map(|field| field.name.as_str()).collect();
    format!("the form asks for {}", names.join(", "))
}
