//! Reads statements: bindings, calls, branches and loops, with what may follow them (`retry`, `timeout`, `on error`).

use model::Code;
use model::definition::{OnError, Retry};

use super::{Read, Reader};
use crate::declare::doc::Doc;
use crate::declare::finding::{fault, suggest};
use crate::declare::options;
use crate::declare::tree::{Action, Callee, Condition, For, Step, Until, Val, Word};
use crate::expr::Span;
use crate::expr::ast::{Kind, Node};
use crate::expr::lexer::Token;

/// Words that begin a statement.
const WORDS: [&str; 29] = [
    "if",
    "for",
    "forEach",
    "switch",
    "parallel",
    "repeat",
    "atomic",
    "delay",
    "wait_until",
    "wait_for",
    "ask",
    "approve",
    "http",
    "exec",
    "agent",
    "task",
    "deliver",
    "stop",
    "fail",
    "publish",
    "logic",
    "query",
    "mutation",
    "mutate",
    "builtin",
    "action",
    "automation",
    "vars",
    "call",
];

impl Reader<'_> {
    pub(super) fn steps(&mut self) -> Read<Vec<Step>> {
        let mut steps = Vec::new();
        self.block(|reader| reader.statements(&mut steps))?;
        Ok(steps)
    }

    /// One statement; `return f(…)` makes two.
    pub(super) fn statements(&mut self, steps: &mut Vec<Step>) -> Read<()> {
        let start = self.p.span();
        if self.p.accept_word("return") {
            let value = if self.ends() { None } else { Some(Val::Expr(self.p.expression()?)) };
            let span = self.since(start);
            steps.push(Step::of(Action::Return(value), span));
        } else {
            steps.push(self.statement()?);
        }
        self.p.accept(";");
        Ok(())
    }

    /// Whether nothing more of this statement can follow.
    fn ends(&self) -> bool {
        self.p.newline_before() || self.p.at_sign("}") || self.p.at_end()
    }

    pub(super) fn since(&self, start: Span) -> Span {
        match self.p.at.checked_sub(1) {
            Some(at) => start.to(self.p.lexemes[at].span),
            None => start,
        }
    }

    fn statement(&mut self) -> Read<Step> {
        let start = self.p.span();
        if matches!(self.p.peek(), Token::Name(_)) && matches!(self.p.ahead(1), Token::Sign(":=")) {
            let id = self.name("a name")?;
            self.p.take();
            let mut step = self.bound()?;
            step.id = Some(id);
            step.span = self.since(start);
            return Ok(step);
        }
        if self.p.at_word("step") && matches!(self.p.ahead(1), Token::Name(_)) {
            self.p.take();
            return self.named_step(start);
        }
        let action = self.action()?;
        self.trailing(Step::of(action, start), start)
    }

    /// `step name { … }`: one statement under a name; several are all or nothing.
    fn named_step(&mut self, start: Span) -> Read<Step> {
        let id = self.name("the name of the step")?;
        let mut inner = self.steps()?;
        let span = self.since(start);
        let mut step = match inner.len() {
            1 if inner[0].id.is_none() => inner.pop().expect("one was counted"),
            _ => Step::of(Action::Atomic(inner), span),
        };
        step.id = Some(id);
        // `step x { if c { f() } }` is a call on a condition.
        if let Action::If { otherwise, then, .. } = &step.action
            && otherwise.is_empty()
            && then.len() == 1
            && then[0].id.is_none()
            && step.when.is_none()
            && is_call(&then[0].action)
        {
            step = guarded(step);
        }
        self.trailing(step, start)
    }

    /// The right side of `:=`.
    fn bound(&mut self) -> Read<Step> {
        let start = self.p.span();
        let retry = self.retry()?;
        if self.p.at_word("if") {
            self.p.take();
            let test = Condition::Expr(self.p.expression()?);
            let then = self.steps()?;
            let otherwise = if self.p.accept_word("else") { self.steps()? } else { Vec::new() };
            let span = self.since(start);
            let step = Step::of(Action::If { test, then, otherwise }, span);
            let one = matches!(&step.action, Action::If { then, otherwise, .. }
                if otherwise.is_empty() && then.len() == 1 && then[0].id.is_none());
            return self.trailing(if one { guarded(step) } else { step }, start);
        }
        let action = if self.begins_action() { self.action()? } else { self.expression_action()? };
        let mut step = Step::of(action, start);
        step.retry = retry;
        self.trailing(step, start)
    }

    /// `retry(3)` before or behind a call.
    fn retry(&mut self) -> Read<Option<Retry>> {
        if !(self.p.at_word("retry") && matches!(self.p.ahead(1), Token::Sign("("))) {
            return Ok(None);
        }
        self.p.take();
        self.p.take();
        let max = self.count("how often to try again")?;
        self.p.expect(")")?;
        Ok(Some(Retry { max, base: None, mult: None, limit: None }))
    }

    /// `retry(n)`, `timeout 5m`, `on error continue`, in any order.
    fn trailing(&mut self, mut step: Step, start: Span) -> Read<Step> {
        loop {
            if let Some(retry) = self.retry()? {
                step.retry = Some(retry);
            } else if self.p.at_word("timeout") && !self.p.newline_before() {
                self.p.take();
                step.timeout = Some(Doc::of(self.p.expression()?).limit()?);
            } else if self.p.at_word("on") && matches!(self.p.ahead(1), Token::Name(name) if name == "error")
            {
                self.p.take();
                self.p.take();
                step.on_error = match self.name("continue or stop")?.text.as_str() {
                    "continue" => OnError::Continue,
                    "stop" => OnError::Stop,
                    _ => {
                        return Err(fault(
                            Code::ExprSyntax,
                            self.since(start),
                            "on error is continue or stop",
                        ));
                    }
                };
            } else {
                step.span = self.since(start);
                return Ok(step);
            }
        }
    }

    /// A bare call is a step; any other expression is a value.
    fn expression_action(&mut self) -> Read<Action> {
        let node = self.p.expression()?;
        Ok(match node.kind {
            Kind::Call { receiver: None, name, name_span, mut args } if args.len() <= 1 => {
                let args = args.pop().map(Val::Expr);
                Action::Call { kind: Callee::Any, name: Word { text: name, span: name_span }, args }
            }
            _ => Action::Value(Val::Expr(node)),
        })
    }

    /// Words that begin a statement of their own, unless they are called or reached into like a value.
    fn begins_action(&self) -> bool {
        let Token::Name(name) = self.p.peek() else { return false };
        let name = name.as_str();
        let begins = match self.p.ahead(1) {
            // Brackets and lists begin what these ask for.
            Token::Sign("(" | "[") => matches!(name, "wait_until" | "delay" | "fail" | "repeat"),
            Token::Sign("." | ":=") => false,
            _ => WORDS.contains(&name),
        };
        begins || matches!(name, "if" | "switch" | "for")
    }

    fn action(&mut self) -> Read<Action> {
        if !self.begins_action() {
            let start = self.p.span();
            let action = self.expression_action()?;
            return match action {
                Action::Value(Val::Expr(Node { kind: Kind::Name(name), span, .. })) if !self.ends() => {
                    let unknown = fault(Code::ExprSyntax, span, format!("unknown statement {name:?}"));
                    Err(suggest(unknown, &name, WORDS))
                }
                Action::Value(_) => {
                    let what = "this value goes nowhere";
                    Err(fault(Code::ExprSyntax, self.since(start), what)
                        .hint("bind it to a name: name := …, or return it"))
                }
                call => Ok(call),
            };
        }
        let word = self.name("a statement")?;
        match word.text.as_str() {
            "if" => self.branch(),
            "for" | "forEach" => self.each(),
            "switch" => self.switch(),
            "parallel" => self.parallel(),
            "repeat" => self.repeat(),
            "atomic" => Ok(Action::Atomic(self.steps()?)),
            "logic" | "call" => self.call(Callee::Logic),
            "query" => self.call(Callee::Query),
            "mutation" | "mutate" => self.call(Callee::Mutation),
            "builtin" | "action" => self.call(Callee::Builtin),
            other => self.other_action(other, word.span),
        }
    }

    fn branch(&mut self) -> Read<Action> {
        let test = Condition::Expr(self.p.expression()?);
        let then = self.steps()?;
        let mut otherwise = Vec::new();
        if self.p.accept_word("else") {
            let start = self.p.span();
            if self.p.accept_word("if") {
                self.blocks += 1;
                if self.blocks > super::BLOCKS_MAX {
                    return Err(
                        fault(Code::ExprLimit, start, "too many \"else if\" in a row").hint("use switch")
                    );
                }
                let inner = self.branch()?;
                self.blocks -= 1;
                otherwise.push(Step::of(inner, self.since(start)));
            } else {
                otherwise = self.steps()?;
            }
        }
        Ok(Action::If { test, then, otherwise })
    }

    /// `for x in list where c parallel(4) { … }`, `for i, x := range list { … }`
    fn each(&mut self) -> Read<Action> {
        let mut item = self.name("the name of an element")?;
        let mut index = None;
        if self.p.accept(",") {
            index = Some(std::mem::replace(&mut item, self.name("the name of an element")?));
        }
        if self.p.accept(":=") {
            if !self.p.accept_word("range") {
                return Err(self.p.unexpected("\"range\""));
            }
        } else if !self.p.accept_word("in") {
            return Err(self.p.unexpected("\"in\""));
        }
        let source = Val::Expr(self.p.expression()?);
        let filtered = self.p.accept_word("where") || self.p.accept_word("if");
        let filter = if filtered { Some(self.p.expression()?) } else { None };
        let mut parallel = None;
        if self.p.accept_word("parallel") {
            self.p.expect("(")?;
            parallel = Some(self.at_least_one("how many at a time")?);
            self.p.expect(")")?;
        }
        let steps = self.steps()?;
        Ok(Action::For(For { item: Some(item), index, source, filter, parallel, steps }))
    }

    fn switch(&mut self) -> Read<Action> {
        let on = self.p.expression()?;
        let (mut cases, mut default) = (Vec::new(), Vec::new());
        self.block(|reader| {
            if reader.p.accept_word("default") {
                default = reader.steps()?;
                return Ok(());
            }
            if !reader.p.accept_word("case") {
                return Err(reader.p.unexpected("\"case\" or \"default\""));
            }
            let mut values = vec![Doc::of(reader.p.expression()?).literal()?];
            while reader.p.accept(",") {
                values.push(Doc::of(reader.p.expression()?).literal()?);
            }
            cases.push((values, reader.steps()?));
            Ok(())
        })?;
        Ok(Action::Switch { on, cases, default })
    }

    /// `parallel { branch a { … } branch b { … } } wait any`, and the older `branches: [ step a { … }, … ]`.
    fn parallel(&mut self) -> Read<Action> {
        let (mut branches, mut any) = (Vec::new(), false);
        self.block(|reader| reader.parallel_part(&mut branches, &mut any))?;
        if self.p.at_word("wait") && !self.p.newline_before() {
            self.p.take();
            any = self.waits_for_any()?;
        }
        Ok(Action::Parallel { branches, any })
    }

    fn parallel_part(&mut self, branches: &mut Vec<(Option<Word>, Vec<Step>)>, any: &mut bool) -> Read<()> {
        let labelled = matches!(self.p.ahead(1), Token::Sign(":"));
        if labelled && self.p.accept_word("wait") {
            self.p.take();
            *any = self.waits_for_any()?;
        } else if labelled && self.p.accept_word("branches") {
            self.p.take();
            self.p.expect("[")?;
            while !self.p.accept("]") {
                branches.push(self.parallel_branch()?);
                if !self.p.accept(",") && !self.p.at_sign("]") {
                    return Err(self.p.unexpected("\",\" or \"]\""));
                }
            }
        } else {
            branches.push(self.parallel_branch()?);
        }
        self.p.accept(",");
        Ok(())
    }

    fn parallel_branch(&mut self) -> Read<(Option<Word>, Vec<Step>)> {
        if self.p.at_word("branch") && matches!(self.p.ahead(1), Token::Name(_)) {
            self.p.take();
            let name = self.name("the name of the branch")?;
            return Ok((Some(name), self.steps()?));
        }
        let step = self.statement()?;
        Ok((step.id.clone(), vec![step]))
    }

    /// `any` or `all`, bare or in quotes.
    fn waits_for_any(&mut self) -> Read<bool> {
        let word = match self.p.peek() {
            Token::Text(_) => self.text("any or all")?,
            _ => self.name("any or all")?,
        };
        options::waits_for_any(&word)
    }

    /// `repeat 3 { … }`, `repeat while c { … }`, `repeat until c { … }`, `repeat x in list { … }`
    fn repeat(&mut self) -> Read<Action> {
        if matches!(self.p.peek(), Token::Name(_))
            && matches!(self.p.ahead(1), Token::Name(name) if name == "in")
        {
            return self.each();
        }
        let until = if self.p.accept_word("while") {
            Until::Before(Condition::Expr(self.p.expression()?))
        } else if self.p.accept_word("until") {
            Until::After(Condition::Expr(self.p.expression()?))
        } else {
            Until::Count(self.p.expression()?)
        };
        let max =
            if self.p.accept_word("max") { Some(self.at_least_one("how many times at most")?) } else { None };
        if self.p.at_word("while") || self.p.at_word("until") {
            let what = "a repeat ends in one way; this is a second one";
            let hint = "keep one; \"max\" bounds \"while\" and \"until\"";
            return Err(fault(Code::DefinitionInvalid, self.p.span(), what).hint(hint));
        }
        Ok(Action::Repeat { until, max, steps: self.steps()? })
    }

    fn call(&mut self, kind: Callee) -> Read<Action> {
        let name = self.name("the name of what is called")?;
        let args = self.call_args(&name)?;
        Ok(Action::Call { kind, name, args })
    }

    /// `name { a: b }`, `name(a: b)`, `name({ a: b })`, or nothing.
    pub(super) fn call_args(&mut self, name: &Word) -> Read<Option<Val>> {
        if self.p.at_sign("{") {
            return Ok(Some(Val::Expr(self.p.object()?)));
        }
        if !self.p.at_sign("(") || self.p.newline_before() {
            return Ok(None);
        }
        // The name is read again with its brackets, as one call.
        self.p.at -= 1;
        let node = self.p.expression()?;
        match node.kind {
            Kind::Call { receiver: None, mut args, .. } if args.len() <= 1 => Ok(args.pop().map(Val::Expr)),
            _ => {
                Err(fault(Code::DefinitionArguments, name.span, format!("{:?} takes one object", name.text))
                    .hint(format!("write {}({{ name: value }})", name.text)))
            }
        }
    }

    pub(super) fn optional(&mut self) -> Read<Option<Node>> {
        if self.ends() { Ok(None) } else { self.p.expression().map(Some) }
    }
}

fn is_call(action: &Action) -> bool {
    matches!(action, Action::Call { .. } | Action::Publish { .. } | Action::Automation { .. })
}

/// `if c { call }` with one call and no else: the call itself, on that condition.
fn guarded(step: Step) -> Step {
    match step.action {
        Action::If { test, mut then, .. } if then.len() == 1 && then[0].when.is_none() => {
            let inner = then.pop().expect("one was counted");
            Step { id: step.id, span: step.span, when: Some(test), ..inner }
        }
        action => Step { action, ..step },
    }
}
