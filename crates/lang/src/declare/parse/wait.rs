//! Reads what takes time or leaves the process: delays, waits, questions, HTTP, runners, publishing, endings.

use model::Code;
use model::definition::OnTimeout;

use super::query::key_word;
use super::{Read, Reader};
use crate::declare::doc::{Doc, Kind as DocKind};
use crate::declare::finding::fault;
use crate::declare::options;
use crate::declare::tree::{Action, Condition, Length, Val, Word};
use crate::expr::Span;
use crate::expr::ast::Kind;
use crate::expr::lexer::Token;

impl Reader<'_> {
    pub(super) fn other_action(&mut self, word: &str, span: Span) -> Read<Action> {
        match word {
            "delay" => Ok(Action::Delay(Doc::of(self.p.expression()?).length()?)),
            "wait_until" => self.wait_until(),
            "wait_for" => self.wait_for(),
            "ask" => self.ask(false),
            "approve" => self.ask(true),
            "http" => self.http(),
            "exec" => self.outside("exec"),
            "agent" => self.outside("agent"),
            "task" => self.outside("task"),
            "deliver" => self.outside("deliver"),
            "publish" => self.publish(),
            "automation" => {
                let name = self.name("the name of the automation")?;
                let args = self.call_args(&name)?;
                let wait = !self.p.at_word("detach") || self.p.newline_before();
                if !wait {
                    self.p.take();
                }
                Ok(Action::Automation { name, args, wait })
            }
            "vars" => self.vars(),
            "stop" => Ok(Action::Stop(self.optional()?.map(Val::Expr))),
            "fail" => Ok(Action::Fail(self.optional()?.map(Val::Expr))),
            _ => Err(fault(Code::ExprSyntax, span, format!("{word:?} is no statement"))),
        }
    }

    fn vars(&mut self) -> Read<Action> {
        let object = self.p.object()?;
        let Kind::Map(pairs) = object.kind else { unreachable!("an object is a map") };
        let pairs = pairs.into_iter().map(|(key, value)| Ok((key_word(key)?, Val::Expr(value))));
        Ok(Action::Vars(pairs.collect::<Read<_>>()?))
    }

    /// `wait_until cond timeout 30m on timeout fail`
    fn wait_until(&mut self) -> Read<Action> {
        let condition = Condition::Expr(self.p.expression()?);
        let (timeout, on_timeout) = self.timeout()?;
        Ok(Action::WaitUntil { condition, timeout, on_timeout })
    }

    /// `wait_for "order.paid" where event.payload.id == … timeout 1d on timeout continue`, or a trigger in place of the
    /// pattern: `wait_for { state: { entity: "v1:health:system/api", field: "status", to: "down" }, for: 5m }`
    fn wait_for(&mut self) -> Read<Action> {
        let pattern = Doc::of(self.p.expression()?);
        let span = pattern.span;
        let mut pairs = match pattern.kind {
            DocKind::Map(pairs) => pairs,
            _ => vec![(word("event", span), pattern)],
        };
        if self.p.accept_word("where") || self.p.accept_word("filter") {
            let filter = self.p.expression()?;
            pairs.push((word("filter", filter.span), Doc::of(filter)));
        }
        let trigger = options::trigger(&pairs, span, &mut self.p.faults)?;
        let (timeout, on_timeout) = self.timeout()?;
        Ok(Action::WaitFor { trigger: Box::new(trigger), timeout, on_timeout })
    }

    fn timeout(&mut self) -> Read<(Option<Length>, Option<OnTimeout>)> {
        let (mut timeout, mut on_timeout) = (None, None);
        loop {
            if self.p.accept_word("timeout") {
                timeout = Some(Doc::of(self.p.expression()?).length()?);
            } else if self.p.at_word("on")
                && matches!(self.p.ahead(1), Token::Name(name) if name == "timeout")
            {
                self.p.take();
                self.p.take();
                let what = Doc::of(self.p.expression()?);
                on_timeout = Some(options::on_timeout(&what)?);
            } else {
                return Ok((timeout, on_timeout));
            }
        }
    }

    /// `ask "question" { options: […], timeout: 1d, default: … }`
    fn ask(&mut self, approve: bool) -> Read<Action> {
        let question = Doc::of(self.p.expression()?);
        let span = question.span;
        let mut pairs = vec![(word("question", span), question)];
        pairs.extend(self.option_block()?);
        options::ask(&pairs, approve, span, &mut self.p.faults)
    }

    /// `http "https://…" { method: "POST", body: … }`, or all of it in the block.
    fn http(&mut self) -> Read<Action> {
        let mut pairs = Vec::new();
        let start = self.p.span();
        if !self.p.at_sign("{") {
            let method =
                matches!(self.p.peek(), Token::Name(name) if name.chars().all(|c| c.is_ascii_uppercase()));
            if method {
                let name = Doc::of(self.p.expression()?);
                pairs.push((word("method", name.span), name));
            }
            let url = Doc::of(self.p.expression()?);
            pairs.push((word("url", url.span), url));
        }
        pairs.extend(self.option_block()?);
        options::http(&pairs, self.since(start), &mut self.p.faults)
    }

    fn outside(&mut self, runner: &'static str) -> Read<Action> {
        let with = Val::Expr(self.p.expression()?);
        Ok(Action::Outside { runner, with })
    }

    /// `publish "topic" { payload }`
    fn publish(&mut self) -> Read<Action> {
        let topic = Val::Expr(self.p.expression()?);
        let payload = if self.p.at_sign("{") { Some(Val::Expr(self.p.object()?)) } else { None };
        Ok(Action::Publish { topic, payload, envelope: Vec::new() })
    }

    fn option_block(&mut self) -> Read<Vec<(Word, Doc)>> {
        if !self.p.at_sign("{") {
            return Ok(Vec::new());
        }
        let doc = Doc::of(self.p.object()?);
        match doc.kind {
            DocKind::Map(pairs) => Ok(pairs),
            _ => Err(doc.wrong("options, such as { timeout: 1d }")),
        }
    }
}

fn word(text: &str, span: Span) -> Word {
    Word { text: text.to_owned(), span }
}
