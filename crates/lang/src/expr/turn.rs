//! When a condition that reads time can next change though nothing else does.
//!
//! Only comparisons are looked at whose sides move with time or stand still: `now > due`, `now - since >= duration("5m")`. Each
//! is read at two instants; how far apart the sides are, and how fast they close, gives the instant at which they meet.

use super::Expr;
use super::ast::Op;
use super::eval::Eval;
use super::instant::{self, SECOND};
use super::program::{Base, Kind, Node};
use super::value::Val;

/// How soon after two sides met a comparison that leaves their meeting out is asked again.
const JUST_AFTER: i128 = 1_000_000;

impl Expr {
    /// The next instant after the one that `roots` has at `time`, when only that root changes. `Err`: nobody can tell.
    pub fn next_turn<'a>(&'a self, time: usize, roots: &[Val<'a>]) -> Result<Option<i128>, Unclear> {
        let Some(Val::Timestamp(now)) = roots.get(time) else { return Err(Unclear) };
        let mut later = roots.to_vec();
        later[time] = Val::Timestamp(now + SECOND);
        let mut look = Look { source: &self.source, time, now: *now, roots, later: &later, next: None };
        if !look.reads_time(&self.program) {
            return Err(Unclear);
        }
        look.node(&self.program)?;
        Ok(look.next)
    }
}

/// It reads time in a way that does not tell when.
#[derive(Debug, PartialEq, Eq)]
pub struct Unclear;

struct Look<'a, 'r> {
    source: &'a str,
    time: usize,
    now: i128,
    roots: &'r [Val<'a>],
    /// The same, a second on.
    later: &'r [Val<'a>],
    next: Option<i128>,
}

impl<'a> Look<'a, '_> {
    fn node(&mut self, node: &'a Node) -> Result<(), Unclear> {
        if !self.reads_time(node) {
            return Ok(());
        }
        match &node.kind {
            Kind::Not(of) => self.node(of),
            Kind::All(items) | Kind::Any(items) => items.iter().try_for_each(|item| self.node(item)),
            Kind::Choose(parts) => {
                [&parts.0, &parts.1, &parts.2].into_iter().try_for_each(|part| self.node(part))
            }
            Kind::Binary(op, both) if compares(*op) => self.compare(&both.0, &both.1),
            _ => Err(Unclear),
        }
    }

    fn compare(&mut self, left: &'a Node, right: &'a Node) -> Result<(), Unclear> {
        let (Some(left), Some(right)) = (self.line(left)?, self.line(right)?) else { return Ok(()) };
        let (apart, speed) = (left.0 - right.0, left.1 - right.1);
        if speed == 0 {
            return Ok(());
        }
        let meet = self.now - apart / speed;
        let turn = [meet, meet + JUST_AFTER].into_iter().find(|at| *at > self.now);
        self.next = [self.next, turn].into_iter().flatten().min();
        Ok(())
    }

    /// What a side is now, and how it moves: with time, against it, or not at all. `None`: it has no value that time changes.
    fn line(&self, node: &'a Node) -> Result<Option<(i128, i128)>, Unclear> {
        let Some(at) = self.value(node, self.roots) else {
            return if self.reads_time(node) { Err(Unclear) } else { Ok(None) };
        };
        if !self.reads_time(node) {
            return Ok(Some((at, 0)));
        }
        let later = self.value(node, self.later).ok_or(Unclear)?;
        match later - at {
            SECOND => Ok(Some((at, 1))),
            moved if moved == -SECOND => Ok(Some((at, -1))),
            _ => Err(Unclear),
        }
    }

    fn value(&self, node: &'a Node, roots: &[Val<'a>]) -> Option<i128> {
        match Eval::new(self.source, roots).node(node).ok()? {
            Val::Timestamp(nanos) | Val::Duration(nanos) => Some(nanos),
            Val::Text(text) => instant::read(&text),
            _ => None,
        }
    }

    fn reads_time(&self, node: &Node) -> bool {
        let any = |nodes: &[Node]| nodes.iter().any(|node| self.reads_time(node));
        match &node.kind {
            Kind::Path { base: Base::Root(root), .. } => *root == self.time,
            Kind::Literal(_) | Kind::Type(_) | Kind::Path { .. } | Kind::Unknown(_) => false,
            Kind::Member(of, _)
            | Kind::Has(of, _)
            | Kind::Matches(of, _)
            | Kind::Not(of)
            | Kind::Instant(of)
            | Kind::Length(of)
            | Kind::UserId(of)
            | Kind::Negate(of) => self.reads_time(of),
            Kind::Index(both) | Kind::Binary(_, both) | Kind::Bind(both) => {
                self.reads_time(&both.0) || self.reads_time(&both.1)
            }
            Kind::List(items) | Kind::All(items) | Kind::Any(items) | Kind::Call(_, items) => any(items),
            Kind::Map(pairs) => {
                pairs.iter().any(|(key, value)| self.reads_time(key) || self.reads_time(value))
            }
            Kind::Choose(parts) => {
                [&parts.0, &parts.1, &parts.2].into_iter().any(|part| self.reads_time(part))
            }
            Kind::Macro(_, parts) => {
                let more = [&parts.test, &parts.first].into_iter().flatten();
                self.reads_time(&parts.over)
                    || self.reads_time(&parts.body)
                    || more.into_iter().any(|node| self.reads_time(node))
            }
        }
    }
}

fn compares(op: Op) -> bool {
    matches!(op, Op::Equal | Op::Unequal | Op::Less | Op::LessEqual | Op::Greater | Op::GreaterEqual)
}
