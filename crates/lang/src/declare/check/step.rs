//! Checks one step: what it calls, what it passes, whether it may stand in logic.

use model::Code;
use model::definition::{self, Action, Call, Input, Kind, Publish};

use super::cycle::CallEdge;
use super::scope::Scope;
use super::{Checker, fits};
use crate::declare::doc::{Doc, Kind as DocKind};
use crate::declare::finding::{fault, suggest};
use crate::declare::tree::{self, Callee, Step, Until, Val, Word};
use crate::expr::Span;
use crate::expr::ast::{Kind as NodeKind, Node};

const ENVELOPE: [&str; 15] = [
    "id",
    "space",
    "time",
    "source",
    "subject",
    "cause",
    "trace",
    "key",
    "ttl",
    "priority",
    "band",
    "schema",
    "type",
    "caused_by",
    "ext",
];

pub(super) type Refs = Vec<String>;

impl Checker<'_> {
    /// One step, or two for `return f(…)`.
    pub(super) fn step(&mut self, step: &Step, scope: &mut Scope, refs: &mut Refs) -> Vec<definition::Step> {
        if scope.logic || scope.atomic {
            self.pure(step, scope);
        }
        if let tree::Action::Return(Some(Val::Expr(node))) = &step.action
            && let Some(call) = self.declared_call(node)
        {
            let id = free_name("returned", scope);
            let mut first = definition::Step::of(self.call(&call, step.span, scope, refs));
            first.id = Some(id.clone());
            let value = Some(Input::Expr(definition::Expr(id)));
            return vec![first, definition::Step::of(Action::Return { value })];
        }
        let when = step.when.as_ref().map(|when| self.condition(when, scope, refs));
        let mut timeout = step.timeout.as_ref().map(|timeout| self.length(timeout, scope, refs));
        let mut action = self.action(step, scope, refs);
        // Beside a wait that has none of its own, it is how long that waits.
        match &mut action {
            Action::WaitUntil(definition::WaitUntil { timeout: own, .. })
            | Action::WaitFor(definition::WaitFor { timeout: own, .. })
                if own.is_none() =>
            {
                *own = timeout.take();
            }
            _ => {}
        }
        let id = step.id.as_ref().map(|id| id.text.clone());
        vec![definition::Step {
            id,
            when,
            retry: step.retry.clone(),
            timeout,
            on_error: step.on_error,
            action,
        }]
    }

    /// Logic is a function and `atomic` is one commit: neither waits or reaches outside.
    fn pure(&mut self, step: &Step, scope: &Scope) {
        let what = match &step.action {
            tree::Action::Delay(_) => "a delay",
            tree::Action::WaitUntil { .. } | tree::Action::WaitFor { .. } => "a wait",
            tree::Action::Ask(_) => "a question",
            tree::Action::Http { .. } => "an HTTP call",
            tree::Action::Outside { runner, .. } => runner,
            tree::Action::Automation { .. } => "a call of an automation",
            _ if step.retry.is_some() && !scope.logic => "a retry",
            _ => return,
        };
        let (place, hint) = match scope.logic {
            true => ("logic", "move it into the automation that calls this logic"),
            false => ("`atomic`", "move it before or after the block"),
        };
        let found = fault(Code::DefinitionNotPure, step.span, format!("{what} cannot stand in {place}"));
        self.error(found.hint(hint));
    }

    fn action(&mut self, step: &Step, scope: &mut Scope, refs: &mut Refs) -> Action {
        use tree::Action as Given;
        match &step.action {
            Given::Value(Val::Expr(node)) if self.passes_many(node) => {
                Action::Value(Input::Template(serde_json::Value::Null))
            }
            Given::Value(val) => Action::Value(self.input(val, scope, refs)),
            Given::Vars(pairs) => {
                let pairs = pairs.iter().map(|(name, val)| (name.text.clone(), self.input(val, scope, refs)));
                Action::Vars(pairs.collect())
            }
            Given::Call { kind, name, args } => {
                let call = Called { kind: *kind, name: name.clone(), args: args.clone() };
                self.call(&call, step.span, scope, refs)
            }
            Given::Publish { topic, payload, envelope } => {
                self.publish(topic, payload.as_ref(), envelope, (scope, refs))
            }
            Given::If { .. } | Given::Switch { .. } | Given::For(_) | Given::Parallel { .. } => {
                self.blocks(&step.action, scope, refs)
            }
            Given::Repeat { until, max, steps } => self.repeat(until, *max, steps, scope, refs),
            Given::Atomic(steps) => {
                let outside = std::mem::replace(&mut scope.atomic, true);
                let steps = self.block_with_refs(steps, scope, refs);
                scope.atomic = outside;
                Action::Atomic(steps)
            }
            Given::Delay(length) => Action::Delay(self.length(length, scope, refs)),
            Given::WaitUntil { .. } | Given::WaitFor { .. } => self.wait(&step.action, scope, refs),
            Given::Ask(ask) => self.ask(ask, scope, refs),
            Given::Http { method, url, headers, body, once } => {
                let out = &scope.outgoing();
                Action::Http(definition::Http {
                    method: method.clone(),
                    url: self.input(url, out, refs),
                    headers: headers.as_ref().map(|val| self.input(val, out, refs)),
                    body: body.as_ref().map(|val| self.input(val, out, refs)),
                    once: *once,
                })
            }
            Given::Outside { runner, with } => {
                // Whoever does a task is sent its input.
                let out = &if *runner == "task" { scope.outgoing() } else { scope.clone() };
                let with = self.input(with, out, refs);
                Action::Outside(definition::Outside { runner: (*runner).to_owned(), with })
            }
            Given::Automation { name, args, wait } => {
                self.called_automation(name, args.as_ref(), *wait, (scope, refs))
            }
            Given::Stop(reason) => {
                Action::Stop { reason: reason.as_ref().map(|val| self.input(val, scope, refs)) }
            }
            Given::Fail(why) => {
                Action::Fail { message: why.as_ref().map(|val| self.input(val, scope, refs)) }
            }
            Given::Return(value) => {
                Action::Return { value: value.as_ref().map(|val| self.input(val, scope, refs)) }
            }
        }
    }

    fn blocks(&mut self, given: &tree::Action, scope: &mut Scope, refs: &mut Refs) -> Action {
        match given {
            tree::Action::If { test, then, otherwise } => Action::If {
                test: self.condition(test, scope, refs),
                then: self.block_with_refs(then, scope, refs),
                otherwise: self.block_with_refs(otherwise, scope, refs),
            },
            tree::Action::Switch { on, cases, default } => {
                let (on, found) = self.expr(on, scope);
                refs.extend(found);
                let cases = cases.iter().map(|(values, steps)| definition::Case {
                    values: values.clone(),
                    steps: self.block_with_refs(steps, scope, refs),
                });
                let cases = cases.collect();
                Action::Switch(definition::Switch {
                    on,
                    cases,
                    default: self.block_with_refs(default, scope, refs),
                })
            }
            tree::Action::Parallel { branches, any } => {
                let branches = branches.iter().enumerate().map(|(at, (name, steps))| definition::Branch {
                    name: name.as_ref().map_or_else(|| format!("branch{}", at + 1), |name| name.text.clone()),
                    steps: self.block_with_refs(steps, scope, refs),
                });
                Action::Parallel { branches: branches.collect(), any: *any }
            }
            tree::Action::For(given) => self.each(given, scope, refs),
            _ => unreachable!("only blocks are asked for"),
        }
    }

    fn each(&mut self, given: &tree::For, scope: &mut Scope, refs: &mut Refs) -> Action {
        let source = self.input(&given.source, scope, refs);
        let name = |word: &Option<Word>, default: &str| {
            word.as_ref().map_or_else(|| default.to_owned(), |word| word.text.clone())
        };
        let (item, index) = (name(&given.item, "item"), name(&given.index, "index"));
        for word in [&given.item, &given.index].into_iter().flatten() {
            if scope.has(&word.text) && word.text != "item" && word.text != "index" {
                let what = format!("{:?} already means something else here", word.text);
                self.error(fault(Code::DefinitionDuplicate, word.span, what).hint("choose another name"));
            }
        }
        let depth = scope.roots.len();
        scope.roots.extend([item.clone(), index.clone()]);
        // They are known in every loop, whatever it calls them.
        let known = ["item", "index"].map(str::to_owned).into_iter().filter(|name| !scope.has(name));
        let known: Vec<String> = known.collect();
        scope.roots.extend(known);
        let filter = given.filter.as_ref().map(|node| {
            self.yes_or_no(node);
            let (expr, found) = self.expr(node, scope);
            refs.extend(found);
            expr
        });
        let steps = self.block_with_refs(&given.steps, scope, refs);
        scope.roots.truncate(depth);
        Action::For(definition::For { item, index, source, filter, parallel: given.parallel, steps })
    }

    fn repeat(
        &mut self,
        until: &Until,
        max: Option<u32>,
        steps: &[Step],
        scope: &mut Scope,
        refs: &mut Refs,
    ) -> Action {
        let depth = scope.roots.len();
        scope.roots.push("index".to_owned());
        let mut made = Until::empty(self.block_with_refs(steps, scope, refs), max);
        // `until` is asked after a round and may read what the round bound.
        let names = scope.names.len();
        scope.names.extend(steps.iter().filter_map(|step| step.id.as_ref().map(|id| id.text.clone())));
        match until {
            Until::After(test) => made.after = Some(self.condition(test, scope, &mut Vec::new())),
            Until::Before(test) => made.before = Some(self.condition(test, scope, &mut Vec::new())),
            Until::Count(node) => {
                self.rounds(node);
                let (expr, found) = self.expr(node, scope);
                refs.extend(found);
                made.count = Some(expr);
            }
        }
        scope.names.truncate(names);
        scope.roots.truncate(depth);
        Action::Repeat(made)
    }

    /// A count that is written out is a whole number from 0.
    fn rounds(&mut self, node: &Node) {
        let doc = Doc::of(node.clone());
        let counts = match &doc.kind {
            DocKind::Other => true,
            DocKind::Number(n) => n.as_u64().is_some_and(|n| n <= definition::Repeat::COUNT_MAX),
            _ => false,
        };
        if !counts {
            self.error(doc.wrong("how often, a whole number from 0 to 1000000"));
        }
    }

    fn publish(
        &mut self,
        topic: &Val,
        payload: Option<&Val>,
        envelope: &[(Word, Val)],
        (scope, refs): (&Scope, &mut Refs),
    ) -> Action {
        self.topic(topic);
        for (key, _) in envelope.iter().filter(|(key, _)| !ENVELOPE.contains(&key.text.as_str())) {
            let what = format!("an event has no field {:?}", key.text);
            let unknown = fault(Code::DefinitionUnknownKey, key.span, what);
            self.error(suggest(unknown, &key.text, ENVELOPE.into_iter().chain(["topic", "payload"])));
        }
        let made = envelope.iter().map(|(key, val)| (key.text.clone(), self.input(val, scope, refs)));
        let envelope = made.collect();
        let topic = self.input(topic, scope, refs);
        let payload = payload.map(|val| self.input(val, scope, refs));
        Action::Publish(Publish { topic, payload, envelope })
    }

    /// A topic that is written out is checked now.
    fn topic(&mut self, topic: &Val) {
        let (text, span) = match topic {
            Val::Expr(node) => match Doc::of(node.clone()).kind {
                DocKind::Text(text) if !text.contains("{{") => (text, node.span),
                _ => return,
            },
            Val::Template(doc) => match &doc.kind {
                DocKind::Text(text) if !text.contains("{{") => (text.clone(), doc.span),
                DocKind::Text(_) => return,
                _ => return self.error(doc.wrong("a topic")),
            },
        };
        if let Err(problem) = model::topic::check_topic(&text) {
            self.error(fault(Code::EventTopicInvalid, span, problem.detail()));
        } else if model::topic::is_reserved(&text) {
            let what = format!("topic {text:?} is published by the engine only");
            self.error(fault(Code::EventTopicReserved, span, what).hint("choose another first word"));
        }
    }

    fn called_automation(
        &mut self,
        name: &Word,
        args: Option<&Val>,
        wait: bool,
        (scope, refs): (&Scope, &mut Refs),
    ) -> Action {
        let real = self.real(&name.text).to_owned();
        if !self.names.has(Kind::Automation, &real) {
            let unknown =
                fault(Code::DefinitionUnknownName, name.span, format!("unknown automation {:?}", name.text));
            let fault = suggest(unknown, &real, self.names.of(Kind::Automation));
            self.error(fault);
        } else {
            self.passed(Kind::Automation, &real, name, args);
        }
        let args = args.map(|val| self.input(val, scope, refs));
        Action::Automation { call: Call { name: real, args }, wait }
    }

    /// A finding when it is a call of something declared, by itself, with several values in its brackets.
    fn passes_many(&mut self, node: &Node) -> bool {
        let NodeKind::Call { receiver: None, name, name_span, args } = &node.kind else { return false };
        let many = args.len() > 1 && self.is_declared(name);
        if many {
            let what = format!("{name:?} takes one object of arguments, not {} values", args.len());
            let hint = format!("write {name}({{ name: value, … }})");
            self.error(fault(Code::DefinitionArguments, *name_span, what).hint(hint));
        }
        many
    }

    fn is_declared(&self, name: &str) -> bool {
        let kinds = [Kind::Query, Kind::Mutation, Kind::Logic];
        is_publish_event(name) || kinds.into_iter().any(|kind| self.names.has(kind, self.real(name)))
    }

    /// A call of something declared, when an expression is nothing but that.
    fn declared_call(&self, node: &Node) -> Option<Called> {
        let NodeKind::Call { receiver: None, name, name_span, args } = &node.kind else { return None };
        (self.is_declared(name) && args.len() <= 1).then(|| Called {
            kind: Callee::Any,
            name: Word { text: name.clone(), span: *name_span },
            args: args.first().cloned().map(Val::Expr),
        })
    }

    fn call(&mut self, call: &Called, span: Span, scope: &Scope, refs: &mut Refs) -> Action {
        let name = &call.name;
        if is_publish_event(&name.text) && matches!(call.kind, Callee::Any | Callee::Builtin) {
            return self.publish_event(call, scope, refs);
        }
        let real = self.real(&name.text).to_owned();
        let Some((kind, found)) = self.callee(call.kind, &real) else {
            return self.builtin(call, span, scope, refs);
        };
        if kind == Kind::Logic
            && let Some(caller) = &self.caller
        {
            let edge = CallEdge { file: self.at, from: caller.clone(), to: found.clone(), span: name.span };
            self.calls.push(edge);
        }
        let mut args = call.args.clone();
        let wants_event = |checker: &Self| {
            checker.names.args(kind, &found).is_some_and(|args| args.iter().any(|arg| arg.name == "event"))
        };
        // In short form, `=> logic x`, logic gets the event when it asks for one.
        if args.is_none() && kind == Kind::Logic && !scope.logic && wants_event(self) {
            args = crate::expr::parse("{event: event}").ok().map(Val::Expr);
        }
        self.passed(kind, &found, name, args.as_ref());
        let args = args.map(|val| self.input(&val, scope, refs));
        let call = Call { name: found, args };
        let waits = scope.logic || scope.atomic;
        if kind == Kind::Query && waits && self.names.detached.contains(&call.name) {
            let place = if scope.logic { "logic" } else { "`atomic`" };
            let what = format!("query \"{}\" is detached: waiting for it cannot stand in {place}", call.name);
            let found = fault(Code::DefinitionNotPure, span, what);
            self.error(
                found.hint("ask in the automation and pass what was found, or declare it without `detached`"),
            );
        }
        match kind {
            Kind::Query => Action::Query(call),
            Kind::Mutation => Action::Mutate(call),
            _ => Action::Logic(call),
        }
    }

    fn callee(&self, kind: Callee, name: &str) -> Option<(Kind, String)> {
        let kinds: &[Kind] = match kind {
            Callee::Logic => &[Kind::Logic],
            Callee::Query => &[Kind::Query],
            Callee::Mutation => &[Kind::Mutation],
            Callee::Builtin => &[],
            Callee::Any => {
                let any = [Kind::Query, Kind::Mutation, Kind::Logic];
                return any.into_iter().find(|k| self.names.has(*k, name)).map(|k| (k, name.to_owned()));
            }
        };
        kinds.iter().find_map(|kind| Some((*kind, self.names.find(*kind, name)?)))
    }

    /// Nothing declared: a function of the language, or a name that is not known.
    fn builtin(&mut self, call: &Called, span: Span, scope: &Scope, refs: &mut Refs) -> Action {
        let name = &call.name;
        let kind = match call.kind {
            Callee::Logic => Some(Kind::Logic),
            Callee::Query => Some(Kind::Query),
            Callee::Mutation => Some(Kind::Mutation),
            Callee::Any | Callee::Builtin => None,
        };
        if let Some(kind) = kind {
            let unknown =
                fault(Code::DefinitionUnknownName, name.span, format!("unknown {kind} {:?}", name.text));
            let fault = suggest(unknown, &name.text, self.names.of(kind));
            self.error(fault);
            let args = call.args.as_ref().map(|val| self.input(val, scope, refs));
            return Action::Logic(Call { name: name.text.clone(), args });
        }
        let args: Vec<Node> = match &call.args {
            Some(Val::Expr(node)) => vec![node.clone()],
            _ => Vec::new(),
        };
        let height = args.iter().map(|node| node.height).max().unwrap_or(0) + 1;
        let kind = NodeKind::Call { receiver: None, name: name.text.clone(), name_span: name.span, args };
        let node = Node { kind, span, height };
        Action::Value(self.input(&Val::Expr(node), scope, refs))
    }

    /// `publishEvent({ topic: …, payload: …, key: … })`
    fn publish_event(&mut self, call: &Called, scope: &Scope, refs: &mut Refs) -> Action {
        let pairs = match &call.args {
            Some(Val::Expr(Node { kind: NodeKind::Map(pairs), .. })) => pairs.as_slice(),
            _ => &[],
        };
        let (mut topic, mut payload, mut envelope) = (None, None, Vec::new());
        for (key, value) in pairs {
            let Ok(word) = Doc::of(key.clone()).text("a word") else { continue };
            match word.text.as_str() {
                "topic" => topic = Some(Val::Expr(value.clone())),
                "payload" => payload = Some(Val::Expr(value.clone())),
                _ => envelope.push((word, Val::Expr(value.clone()))),
            }
        }
        let Some(topic) = topic else {
            let lacks = fault(Code::DefinitionArguments, call.name.span, "\"publishEvent\" needs a topic");
            self.error(lacks.hint("write publishEvent({ topic: \"order.paid\", payload: { … } })"));
            return Action::Value(Input::Template(serde_json::Value::Null));
        };
        self.publish(&topic, payload.as_ref(), &envelope, (scope, refs))
    }

    /// What is passed against what is asked for: unknown, missing, of the wrong type.
    fn passed(&mut self, kind: Kind, found: &str, name: &Word, args: Option<&Val>) {
        let wanted = self.names.args(kind, found).cloned().unwrap_or_default();
        let doc = args.map(Doc::of_val);
        let pairs = match doc.as_ref().map(|doc| &doc.kind) {
            None => &[],
            Some(DocKind::Map(pairs)) => pairs.as_slice(),
            // Computed as a whole; known only when it runs.
            Some(DocKind::Other) => return,
            Some(DocKind::Text(text)) if text.contains("{{") => return,
            Some(_) => {
                let what = format!("{:?} takes one object of arguments", name.text);
                let hint = format!("write {}({{ name: value }})", name.text);
                return self.error(fault(Code::DefinitionArguments, name.span, what).hint(hint));
            }
        };
        // An automation that declares none takes what comes.
        if kind == Kind::Automation && wanted.is_empty() {
            return;
        }
        for (at, (key, value)) in pairs.iter().enumerate() {
            if pairs[..at].iter().any(|(earlier, _)| earlier.text == key.text) {
                let what = format!("the argument {:?} is given twice", key.text);
                self.error(fault(Code::DefinitionArguments, key.span, what).hint("remove one of them"));
            }
            let Some(field) = wanted.iter().find(|field| field.name == key.text) else {
                let what = format!("the {kind} {found:?} has no argument {:?}", key.text);
                let unknown = fault(Code::DefinitionArguments, key.span, what);
                self.error(suggest(unknown, &key.text, wanted.iter().map(|field| field.name.as_str())));
                continue;
            };
            let templated = value.node.is_none() && value.json().to_string().contains("{{");
            if let Ok(literal) = value.literal()
                && !templated
                && let Some(message) = fits::misfit(field, &literal)
            {
                self.error(fault(Code::DefinitionType, value.span, format!("{:?}: {message}", key.text)));
            }
        }
        for field in wanted.iter().filter(|field| field.required && field.default.is_none()) {
            if !pairs.iter().any(|(key, _)| key.text == field.name) {
                let what = format!("the {kind} {found:?} needs the argument {:?}", field.name);
                self.error(fault(Code::DefinitionArguments, name.span, what));
            }
        }
    }
}

struct Called {
    kind: Callee,
    name: Word,
    args: Option<Val>,
}

fn free_name(base: &str, scope: &Scope) -> String {
    let mut name = base.to_owned();
    let mut next = 2;
    while scope.has(&name) {
        name = format!("{base}{next}");
        next += 1;
    }
    name
}

/// Builtins are written with a first letter in either case.
pub(super) fn is_publish_event(name: &str) -> bool {
    crate::expr::either_case(name, |name| name == "publishEvent").is_some()
}
