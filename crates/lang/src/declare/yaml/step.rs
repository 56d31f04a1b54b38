//! The actions of a YAML automation into steps.

use model::Code;
use model::definition::{OnError, OnTimeout};

use crate::declare::doc::{Doc, Kind, Read, get, kept, only};
use crate::declare::finding::{fault, suggest};
use crate::declare::options::{self, Pairs};
use crate::declare::tree::{Action, Callee, Condition, For, Length, Step, Until, Val, Word};
use crate::expr::fault::Fault;

const ACTIONS: [&str; 25] = [
    "publish",
    "wait_until",
    "wait_for",
    "delay",
    "vars",
    "call",
    "query",
    "mutate",
    "then",
    "switch",
    "for",
    "for_each",
    "parallel",
    "repeat",
    "atomic",
    "ask",
    "approve",
    "http",
    "exec",
    "agent",
    "task",
    "deliver",
    "automation",
    "stop",
    "fail",
];
const SHARED: [&str; 7] = ["id", "if", "retry", "timeout", "on_error", "description", "return"];
/// Deepest nesting of actions.
const DEPTH_MAX: usize = 50;

/// Every key that an action may have.
#[cfg(test)]
pub(super) fn keys() -> Vec<&'static str> {
    let beside = ACTIONS.iter().flat_map(|key| beside(key));
    ACTIONS.iter().chain(&SHARED).chain(beside).copied().collect()
}

pub(super) fn steps(doc: &Doc, depth: usize, faults: &mut Vec<Fault>) -> Vec<Step> {
    let items = match &doc.kind {
        Kind::List(items) => items.as_slice(),
        Kind::Null => &[],
        _ => std::slice::from_ref(doc),
    };
    let mut out = Vec::new();
    for item in items {
        match step(item, depth + 1, faults) {
            Ok(step) => out.push(step),
            Err(fault) => faults.push(fault),
        }
    }
    out
}

fn step(doc: &Doc, depth: usize, faults: &mut Vec<Fault>) -> Read<Step> {
    if depth > DEPTH_MAX {
        return Err(fault(
            Code::ExprLimit,
            doc.span,
            format!("actions nested deeper than {DEPTH_MAX} levels"),
        ));
    }
    if let Some(action) = word(doc) {
        let (id, when, retry, timeout, on_error) = (None, None, None, None, OnError::Stop);
        return Ok(Step { id, span: doc.span, when, retry, timeout, on_error, action });
    }
    let pairs = doc.map("an action")?;
    let mut found: Vec<&Word> =
        pairs.iter().map(|(key, _)| key).filter(|key| ACTIONS.contains(&key.text.as_str())).collect();
    let looped = get(pairs, "for").is_some() || get(pairs, "for_each").is_some();
    found.retain(|key| !(looped && key.text == "parallel"));
    if get(pairs, "return").is_some() {
        found.extend(pairs.iter().map(|(key, _)| key).filter(|key| key.text == "return"));
    }
    let key = match found.as_slice() {
        [one] => one.text.as_str(),
        [] => return Err(no_action(pairs, doc)),
        [_, second, ..] => {
            let what = format!("an action does one thing; {:?} is a second one", second.text);
            return Err(
                fault(Code::DefinitionInvalid, second.span, what).hint("make it an action of its own")
            );
        }
    };
    let value = get(pairs, key).expect("the key was found among the pairs");
    let known: Vec<&str> = SHARED.iter().copied().chain([key]).chain(beside(key).iter().copied()).collect();
    only(pairs, &format!("the action {key:?}"), &known, faults);
    let action = Reading { pairs, doc, depth, faults }.action(key, value);
    let id = kept(get(pairs, "id").map(|id| id.text("a name")).transpose(), faults);
    let when = match key {
        "then" => None,
        _ => {
            let read = get(pairs, "if").map(|test| options::condition(test, faults)).transpose();
            kept(read, faults)
        }
    };
    let retry = get(pairs, "retry").map(|retry| options::retry(retry, faults)).transpose();
    let retry = kept(retry, faults);
    let timeout = kept(get(pairs, "timeout").map(Doc::limit).transpose(), faults);
    let on_error = kept(get(pairs, "on_error").map(on_error).transpose(), faults).unwrap_or(OnError::Stop);
    Ok(Step { id, span: doc.span, when, retry, timeout, on_error, action: action? })
}

/// `- stop`: what says all with its name.
fn word(doc: &Doc) -> Option<Action> {
    match &doc.kind {
        Kind::Text(text) if text == "stop" => Some(Action::Stop(None)),
        Kind::Text(text) if text == "fail" => Some(Action::Fail(None)),
        _ => None,
    }
}

fn on_error(doc: &Doc) -> Read<OnError> {
    match doc.text("continue or stop")?.text.as_str() {
        "continue" => Ok(OnError::Continue),
        "stop" => Ok(OnError::Stop),
        _ => Err(doc.wrong("continue or stop")),
    }
}

/// Keys that may stand beside the one that names the action.
fn beside(key: &str) -> &'static [&'static str] {
    match key {
        "then" => &["if", "else"],
        "call" | "query" | "mutate" => &["args"],
        "automation" => &["args", "input", "wait"],
        "for" | "for_each" => &["in", "do", "where", "parallel", "index", "as"],
        "parallel" => &["wait"],
        "switch" => &["cases", "default"],
        "repeat" => &["do"],
        "stop" => &["error"],
        _ => &[],
    }
}

fn no_action(pairs: &Pairs, doc: &Doc) -> Fault {
    let known = ACTIONS.iter().chain(&SHARED).copied();
    let stranger = pairs.iter().find(|(key, _)| !SHARED.contains(&key.text.as_str()));
    match stranger {
        Some((key, _)) => {
            let unknown =
                fault(Code::DefinitionUnknownKey, key.span, format!("there is no action {:?}", key.text));
            suggest(unknown, &key.text, known)
        }
        None => doc.wrong("an action").hint("such as publish, delay, wait_until"),
    }
}

struct Reading<'a> {
    pairs: &'a Pairs,
    doc: &'a Doc,
    depth: usize,
    faults: &'a mut Vec<Fault>,
}

impl Reading<'_> {
    fn action(&mut self, key: &str, value: &Doc) -> Read<Action> {
        match key {
            "publish" => self.publish(value),
            "delay" => Ok(Action::Delay(value.length()?)),
            "wait_until" => self.wait_until(value),
            "wait_for" => self.wait_for(value),
            "vars" => {
                let pairs = value.map("names and values")?;
                Ok(Action::Vars(pairs.iter().map(|(name, doc)| (name.clone(), doc.val())).collect()))
            }
            "call" => self.call(Callee::Logic, value, &["name", "logic"]),
            "query" => self.call(Callee::Query, value, &["name", "query"]),
            "mutate" => self.call(Callee::Mutation, value, &["name", "mutation"]),
            "automation" => self.automation(value),
            "then" => {
                let test = get(self.pairs, "if").ok_or_else(|| self.doc.wrong("\"if\" beside \"then\""))?;
                Ok(Action::If {
                    test: options::condition(test, self.faults)?,
                    then: self.steps(value),
                    otherwise: get(self.pairs, "else").map(|doc| self.steps(doc)).unwrap_or_default(),
                })
            }
            "switch" => self.switch(value),
            "for" | "for_each" => self.each(key, value),
            "parallel" => self.parallel(value),
            "repeat" => self.repeat(value),
            "atomic" => Ok(Action::Atomic(self.steps(value))),
            "ask" | "approve" => self.ask(value, key == "approve"),
            "http" if matches!(value.kind, Kind::Text(_)) => {
                options::http(&[named("url", value)], value.span, self.faults)
            }
            "http" => options::http(value.map("url, method, headers, body, once")?, value.span, self.faults),
            "exec" => Ok(Action::Outside { runner: "exec", with: value.val() }),
            "agent" => Ok(Action::Outside { runner: "agent", with: value.val() }),
            "task" => Ok(Action::Outside { runner: "task", with: value.val() }),
            "deliver" => Ok(Action::Outside { runner: "deliver", with: value.val() }),
            "stop" => self.stop(value),
            "fail" => self.fail(value),
            _ => Ok(Action::Return(said(value))),
        }
    }

    fn steps(&mut self, doc: &Doc) -> Vec<Step> {
        steps(doc, self.depth, self.faults)
    }

    fn publish(&mut self, value: &Doc) -> Read<Action> {
        let Kind::Map(pairs) = &value.kind else {
            value.text("a topic")?;
            return Ok(Action::Publish { topic: value.val(), payload: None, envelope: Vec::new() });
        };
        let topic = get(pairs, "topic").ok_or_else(|| value.wrong("publish with \"topic\""))?.val();
        let payload = get(pairs, "payload").map(Doc::val);
        let others = pairs.iter().filter(|(key, _)| !matches!(key.text.as_str(), "topic" | "payload"));
        let envelope = others.map(|(key, doc)| (key.clone(), doc.val())).collect();
        Ok(Action::Publish { topic, payload, envelope })
    }

    fn wait_until(&mut self, value: &Doc) -> Read<Action> {
        let Some(condition) = (match &value.kind {
            Kind::Map(pairs) => get(pairs, "condition"),
            _ => None,
        }) else {
            let condition = options::condition(value, self.faults)?;
            return Ok(Action::WaitUntil { condition, timeout: None, on_timeout: None });
        };
        let pairs = value.map("a condition")?;
        only(pairs, "wait_until", &["condition", "timeout", "on_timeout"], self.faults);
        let (timeout, on_timeout) = self.timeout(pairs);
        Ok(Action::WaitUntil { condition: options::condition(condition, self.faults)?, timeout, on_timeout })
    }

    fn timeout(&mut self, pairs: &Pairs) -> (Option<Length>, Option<OnTimeout>) {
        let timeout = get(pairs, "timeout").map(Doc::length).transpose();
        let on_timeout = get(pairs, "on_timeout").map(options::on_timeout).transpose();
        (kept(timeout, self.faults), kept(on_timeout, self.faults))
    }

    /// The pattern alone or with a filter, or `trigger` with one that events pull.
    fn wait_for(&mut self, value: &Doc) -> Read<Action> {
        if matches!(value.kind, Kind::Text(_) | Kind::List(_)) {
            let trigger = options::trigger(&[named("event", value)], value.span, self.faults)?;
            return Ok(Action::WaitFor { trigger: Box::new(trigger), timeout: None, on_timeout: None });
        }
        let pairs = value.map("event, filter, timeout")?;
        let own = ["trigger", "timeout", "on_timeout"];
        let known = [
            "trigger",
            "timeout",
            "on_timeout",
            "event",
            "filter",
            "entity",
            "on",
            "state",
            "numeric_state",
            "for",
        ];
        only(pairs, "wait_for", &known, self.faults);
        let pairs = pairs.iter().filter(|(key, _)| known.contains(&key.text.as_str())).cloned();
        let (options, rest): (Vec<_>, Vec<_>) = pairs.partition(|(key, _)| own.contains(&key.text.as_str()));
        let (timeout, on_timeout) = self.timeout(&options);
        let trigger = match get(&options, "trigger") {
            Some(trigger) => {
                let mut inner = trigger.map("a trigger")?.to_vec();
                inner.extend(rest);
                options::trigger(&inner, trigger.span, self.faults)?
            }
            None => options::trigger(&rest, value.span, self.faults)?,
        };
        Ok(Action::WaitFor { trigger: Box::new(trigger), timeout, on_timeout })
    }

    /// A name with `args` beside it, or both in one map.
    fn named(&mut self, value: &Doc, keys: &[&str], args: &[&str]) -> Read<(Word, Option<Val>)> {
        if let Kind::Map(pairs) = &value.kind {
            let known: Vec<&str> = keys.iter().chain(args).chain(&["wait"]).copied().collect();
            only(pairs, "this call", &known, self.faults);
            let name =
                keys.iter().find_map(|key| get(pairs, key)).ok_or_else(|| value.wrong("a \"name\""))?;
            let args = args.iter().find_map(|key| get(pairs, key)).map(Doc::val);
            return Ok((name.text("a name")?, args));
        }
        let args = args.iter().find_map(|key| get(self.pairs, key)).map(Doc::val);
        Ok((value.text("a name")?, args))
    }

    fn call(&mut self, kind: Callee, value: &Doc, keys: &[&str]) -> Read<Action> {
        let (name, args) = self.named(value, keys, &["args"])?;
        Ok(Action::Call { kind, name, args })
    }

    fn automation(&mut self, value: &Doc) -> Read<Action> {
        let (name, args) = self.named(value, &["name", "automation"], &["input", "args"])?;
        let wait = match &value.kind {
            Kind::Map(pairs) => get(pairs, "wait"),
            _ => get(self.pairs, "wait"),
        };
        Ok(Action::Automation { name, args, wait: wait.map(Doc::yes_or_no).transpose()?.unwrap_or(true) })
    }

    /// `switch: {on: EXPR, cases: [{case: v, do: […]}], default: […]}`, or cases as a map from value to actions; also
    /// `switch: EXPR` with the others beside it.
    fn switch(&mut self, value: &Doc) -> Read<Action> {
        let (on, pairs) = match &value.kind {
            Kind::Map(pairs) => {
                only(pairs, "switch", &["on", "cases", "default"], self.faults);
                (get(pairs, "on").ok_or_else(|| value.wrong("switch with \"on\""))?, pairs.as_slice())
            }
            _ => (value, self.pairs),
        };
        self.nothing_beside(value, &["cases", "default"]);
        let on = on.expr()?;
        let mut cases = Vec::new();
        match get(pairs, "cases").map(|doc| &doc.kind) {
            Some(Kind::Map(entries)) => {
                for (key, doc) in entries {
                    cases.push((vec![key.text.clone().into()], self.steps(doc)));
                }
            }
            Some(Kind::List(items)) => {
                for item in items {
                    let inner = item.map("case and do")?;
                    only(inner, "a case", &["case", "do"], self.faults);
                    let values = match get(inner, "case")
                        .ok_or_else(|| item.wrong("\"case\" and \"do\""))?
                        .literal()?
                    {
                        serde_json::Value::Array(values) => values,
                        one => vec![one],
                    };
                    cases.push((values, get(inner, "do").map(|doc| self.steps(doc)).unwrap_or_default()));
                }
            }
            _ => return Err(value.wrong("switch with \"cases\"")),
        }
        let default = get(pairs, "default").map(|doc| self.steps(doc)).unwrap_or_default();
        Ok(Action::Switch { on, cases, default })
    }

    /// `for: item`, `in: EXPR or list`, `do: […]`
    fn each(&mut self, key: &str, value: &Doc) -> Read<Action> {
        let (item, source) = match (key, get(self.pairs, "in")) {
            ("for", Some(source)) => (Some(value.text("the name of an element")?), source),
            ("for", None) => return Err(self.doc.wrong("\"in\" beside \"for\"")),
            _ => (get(self.pairs, "as").map(|name| name.text("a name")).transpose()?, value),
        };
        let source = match &source.kind {
            Kind::List(_) => source.val(),
            _ => Val::Expr(source.expr()?),
        };
        let body = get(self.pairs, "do").ok_or_else(|| self.doc.wrong("\"do\" beside \"for\""))?;
        Ok(Action::For(For {
            item,
            index: get(self.pairs, "index").map(|name| name.text("a name")).transpose()?,
            source,
            filter: get(self.pairs, "where").map(Doc::expr).transpose()?,
            parallel: get(self.pairs, "parallel")
                .map(|n| n.at_least_one("how many at a time"))
                .transpose()?,
            steps: self.steps(body),
        }))
    }

    /// A list of actions, or of lists of actions, or of `{name, do}`; `wait` beside it, or both in one map.
    fn parallel(&mut self, value: &Doc) -> Read<Action> {
        let (list, wait) = match &value.kind {
            Kind::Map(pairs) => {
                only(pairs, "parallel", &["branches", "wait"], self.faults);
                self.nothing_beside(value, &["wait"]);
                let list = get(pairs, "branches").ok_or_else(|| value.wrong("parallel with \"branches\""))?;
                (list, get(pairs, "wait"))
            }
            _ => (value, get(self.pairs, "wait")),
        };
        let mut branches = Vec::new();
        for item in list.list("a list of branches")? {
            branches.push(match &item.kind {
                Kind::Map(pairs) if get(pairs, "do").is_some() && get(pairs, "for").is_none() => {
                    only(pairs, "a branch", &["name", "do"], self.faults);
                    let name = get(pairs, "name").map(|name| name.text("a name")).transpose()?;
                    (name, get(pairs, "do").map(|doc| self.steps(doc)).unwrap_or_default())
                }
                _ => (None, self.steps(item)),
            });
        }
        let any = match wait {
            None => false,
            Some(wait) => options::waits_for_any(&wait.text("all or any")?)?,
        };
        Ok(Action::Parallel { branches, any })
    }

    /// How often and what, or how often with `do` beside it; `repeat: 3` is a count.
    fn repeat(&mut self, value: &Doc) -> Read<Action> {
        let count = [named("count", value)];
        let pairs = match &value.kind {
            Kind::Number(_) | Kind::Text(_) => count.as_slice(),
            _ => value.map("count, while, until or for_each, and do")?,
        };
        only(pairs, "repeat", &["count", "while", "until", "for_each", "max", "do", "actions"], self.faults);
        self.one_end(pairs);
        let inside = get(pairs, "do").or(get(pairs, "actions"));
        if inside.is_some() {
            self.nothing_beside(value, &["do"]);
        }
        let body = inside.or(get(self.pairs, "do")).ok_or_else(|| value.wrong("repeat with \"do\""))?;
        let steps = self.steps(body);
        let max = get(pairs, "max").map(|max| max.at_least_one("how often at most")).transpose()?;
        let condition =
            |doc: &Doc, faults: &mut Vec<Fault>| -> Read<Condition> { options::condition(doc, faults) };
        let until = if let Some(count) = get(pairs, "count") {
            Until::Count(count.expr()?)
        } else if let Some(test) = get(pairs, "while") {
            Until::Before(condition(test, self.faults)?)
        } else if let Some(test) = get(pairs, "until") {
            Until::After(condition(test, self.faults)?)
        } else if let Some(source) = get(pairs, "for_each") {
            let source = match &source.kind {
                Kind::List(_) => source.val(),
                _ => Val::Expr(source.expr()?),
            };
            let each = For { item: None, index: None, source, filter: None, parallel: None, steps };
            return Ok(Action::For(each));
        } else {
            return Err(value.wrong("repeat with \"count\", \"while\", \"until\" or \"for_each\""));
        };
        Ok(Action::Repeat { until, max, steps })
    }

    /// What is said inside is not said beside it again: one of the two would be passed over in silence.
    fn nothing_beside(&mut self, value: &Doc, keys: &[&str]) {
        if !matches!(value.kind, Kind::Map(_)) {
            return;
        }
        for (key, _) in self.pairs.iter().filter(|(key, _)| keys.contains(&key.text.as_str())) {
            let what = format!("{:?} belongs inside, with the others", key.text);
            self.faults
                .push(fault(Code::DefinitionInvalid, key.span, what).hint("write all of it in one place"));
        }
    }

    /// One of them says how often; a second one would be passed over in silence.
    fn one_end(&mut self, pairs: &Pairs) {
        let ends = ["count", "while", "until", "for_each"];
        let mut given = pairs.iter().map(|(key, _)| key).filter(|key| ends.contains(&key.text.as_str()));
        let Some(first) = given.next() else { return };
        for key in given.filter(|key| key.text != first.text) {
            let what = format!("{:?} stands beside {:?}: one of them says how often", key.text, first.text);
            let hint = "keep one; \"max\" bounds \"while\" and \"until\"";
            self.faults.push(fault(Code::DefinitionInvalid, key.span, what).hint(hint));
        }
    }

    /// A reason, or `{reason, error}`; `error: true`, also beside it, makes it a failure.
    fn stop(&mut self, value: &Doc) -> Read<Action> {
        let (reason, error) = match &value.kind {
            Kind::Map(pairs) => {
                only(pairs, "stop", &["reason", "error"], self.faults);
                (get(pairs, "reason").and_then(said), get(pairs, "error"))
            }
            _ => (said(value), get(self.pairs, "error")),
        };
        let failed = error.map(Doc::yes_or_no).transpose()?.unwrap_or(false);
        Ok(if failed { Action::Fail(reason) } else { Action::Stop(reason) })
    }

    /// A message, or `{message}`.
    fn fail(&mut self, value: &Doc) -> Read<Action> {
        let Kind::Map(pairs) = &value.kind else { return Ok(Action::Fail(said(value))) };
        only(pairs, "fail", &["message"], self.faults);
        Ok(Action::Fail(get(pairs, "message").and_then(said)))
    }

    fn ask(&mut self, value: &Doc, approve: bool) -> Read<Action> {
        match &value.kind {
            Kind::Map(pairs) => options::ask(pairs, approve, value.span, self.faults),
            _ => options::ask(&[named("question", value)], approve, value.span, self.faults),
        }
    }
}

/// What stands alone, under the key that it would have in a map.
fn named(key: &str, value: &Doc) -> (Word, Doc) {
    (Word { text: key.to_owned(), span: value.span }, value.clone())
}

/// A reason, a message, a value; `true` or nothing says none.
fn said(value: &Doc) -> Option<Val> {
    match value.kind {
        Kind::Null | Kind::Bool(true) => None,
        _ => Some(value.val()),
    }
}
