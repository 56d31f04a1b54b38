//! When a condition that reads time can next change though nothing else does.
//!
//! A comparison whose sides move evenly with time or stand still, `now > due`, `now - since >= duration("5m")`, turns where they
//! meet. A part of an instant, `now.getHours()`, turns at full minutes, `getSeconds` at full seconds. Any other use of time may
//! turn at each full second.

use super::Expr;
use super::ast::Op;
use super::builtins::{Function, Part, To};
use super::eval::Eval;
use super::instant::{self, SECOND};
use super::program::{Base, Kind, Node};
use super::value::Val;

const MINUTE: i128 = 60 * SECOND;
const DAY: i128 = 86_400 * SECOND;
/// How soon after two sides met a comparison that leaves their meeting out is asked again.
const JUST_AFTER: i128 = 1_000_000;

impl Expr {
    /// The next instant after the one that `roots` has at `time`, when only that root changes. `Err`: it does not read it.
    pub fn next_turn<'a>(&'a self, time: usize, roots: &[Val<'a>]) -> Result<Option<i128>, Unclear> {
        let Some(Val::Timestamp(now)) = roots.get(time) else { return Err(Unclear) };
        let mut look = Look { source: &self.source, time, now: *now, roots, is_in_macro: false, next: None };
        if !look.reads_time(&self.program) {
            return Err(Unclear);
        }
        look.node(&self.program);
        Ok(look.next)
    }
}

/// It does not read time, or not as a name.
#[derive(Debug, PartialEq, Eq)]
pub struct Unclear;

struct Look<'a, 'r> {
    source: &'a str,
    time: usize,
    now: i128,
    roots: &'r [Val<'a>],
    /// What reads the variable of a macro around it has no one value.
    is_in_macro: bool,
    next: Option<i128>,
}

impl<'a> Look<'a, '_> {
    fn node(&mut self, node: &'a Node) {
        if !self.reads_time(node) {
            return;
        }
        let is_clear = match &node.kind {
            Kind::Path { .. } => {
                self.turns_at([(self.now.div_euclid(SECOND) + 1) * SECOND]);
                true
            }
            Kind::Binary(op, both) if compares(*op) => self.meeting(&both.0, &both.1),
            Kind::Call(Function::Part(part), args) => {
                let unit = if matches!(part, Part::Seconds | Part::Milliseconds) { SECOND } else { MINUTE };
                self.stepping(None, args, unit)
            }
            Kind::Call(Function::LocalDate, args) => self.stepping(None, args, MINUTE),
            Kind::Call(Function::DaysBetween, args) => self.stepping(args.first(), &args[1..], DAY),
            _ => false,
        };
        if is_clear {
            return;
        }
        let was_in_macro = self.is_in_macro;
        self.is_in_macro |= matches!(node.kind, Kind::Macro(..) | Kind::Bind(_));
        children(node).into_iter().for_each(|child| self.node(child));
        self.is_in_macro = was_in_macro;
    }

    /// Where two sides meet that move evenly; false: they do not.
    fn meeting(&mut self, left: &'a Node, right: &'a Node) -> bool {
        let Some(speed) = self.speed(left).zip(self.speed(right)).map(|(left, right)| left - right) else {
            return false;
        };
        // What has no value now gets none by the passing of time.
        let apart = self.value(left).zip(self.value(right)).map(|(left, right)| left - right);
        if let Some(apart) = apart.filter(|_| speed != 0) {
            let meet = self.now - apart / speed;
            self.turns_at([meet, meet + JUST_AFTER]);
        }
        true
    }

    /// Where what moves evenly, counted from `from`, comes to the next whole `unit`; false: it does not move so.
    fn stepping(&mut self, from: Option<&'a Node>, args: &'a [Node], unit: i128) -> bool {
        let [of, zone @ ..] = args else { return false };
        let speed = self.speed(of).zip(from.map_or(Some(0), |from| self.speed(from)));
        let Some(speed @ (-1 | 1)) = speed.map(|(of, from)| of - from) else { return false };
        if zone.iter().any(|zone| self.reads_time(zone)) {
            return false;
        }
        let value = self.value(of).zip(from.map_or(Some(0), |from| self.value(from)));
        let Some(value) = value.map(|(of, from)| of - from) else { return true };
        let boundary = self.now - speed * value.rem_euclid(unit);
        // Units are counted toward zero: what comes nearer to it is less only after the boundary.
        let after = if speed * value < 0 { JUST_AFTER } else { 0 };
        self.turns_at([boundary, boundary + after, boundary + unit]);
        true
    }

    /// The first of these that lies ahead, unless it turns sooner.
    fn turns_at<const N: usize>(&mut self, instants: [i128; N]) {
        let turn = instants.into_iter().find(|at| *at > self.now);
        self.next = [self.next, turn].into_iter().flatten().min();
    }

    /// How a side moves: with time, against it, or not at all. `None`: not evenly.
    fn speed(&self, node: &'a Node) -> Option<i128> {
        if self.is_in_macro && reads_local(node) {
            return None;
        }
        if !self.reads_time(node) {
            return Some(0);
        }
        match &node.kind {
            Kind::Path { steps, .. } if steps.is_empty() => Some(1),
            Kind::Instant(of) => self.speed(of),
            Kind::Binary(Op::Add, both) => Some(self.speed(&both.0)? + self.speed(&both.1)?),
            Kind::Binary(Op::Subtract, both) => Some(self.speed(&both.0)? - self.speed(&both.1)?),
            Kind::Call(function, args) => match (function, &**args) {
                (Function::To(To::Timestamp), [of]) => self.speed(of),
                (Function::Add | Function::AddDuration, [a, b]) => Some(self.speed(a)? + self.speed(b)?),
                (Function::Subtract, [a, b]) => Some(self.speed(a)? - self.speed(b)?),
                _ => None,
            },
            _ => None,
        }
    }

    fn value(&self, node: &'a Node) -> Option<i128> {
        match Eval::new(self.source, self.roots).node(node).ok()? {
            Val::Timestamp(nanos) | Val::Duration(nanos) => Some(nanos),
            Val::Text(text) => instant::read(&text),
            _ => None,
        }
    }

    fn reads_time(&self, node: &Node) -> bool {
        match &node.kind {
            Kind::Path { base: Base::Root(root), .. } => *root == self.time,
            _ => children(node).into_iter().any(|child| self.reads_time(child)),
        }
    }
}

fn reads_local(node: &Node) -> bool {
    let is_local = matches!(&node.kind, Kind::Path { base: Base::Local(_), .. });
    is_local || children(node).into_iter().any(reads_local)
}

fn children(node: &Node) -> Vec<&Node> {
    match &node.kind {
        Kind::Literal(_) | Kind::Type(_) | Kind::Path { .. } | Kind::Unknown(_) => Vec::new(),
        Kind::Member(of, _)
        | Kind::Has(of, _)
        | Kind::Matches(of, _)
        | Kind::Not(of)
        | Kind::Instant(of)
        | Kind::Length(of)
        | Kind::UserId(of)
        | Kind::Negate(of) => vec![of],
        Kind::Index(both) | Kind::Binary(_, both) | Kind::Bind(both) => vec![&both.0, &both.1],
        Kind::List(items) | Kind::All(items) | Kind::Any(items) | Kind::Call(_, items) => {
            items.iter().collect()
        }
        Kind::Map(pairs) => pairs.iter().flat_map(|(key, value)| [key, value]).collect(),
        Kind::Choose(parts) => vec![&parts.0, &parts.1, &parts.2],
        Kind::Macro(_, parts) => {
            let more = [&parts.test, &parts.first].into_iter().flatten();
            [&parts.over, &parts.body].into_iter().chain(more).collect()
        }
    }
}

fn compares(op: Op) -> bool {
    matches!(op, Op::Equal | Op::Unequal | Op::Less | Op::LessEqual | Op::Greater | Op::GreaterEqual)
}
