//! A program over values, within a budget of steps; no panic, no unbounded work, whatever the event holds.

use std::borrow::Cow;
use std::cmp::Ordering;

use model::Code;
use serde_json::Value;

use super::ast::Op;
use super::compare::beside;
use super::fault::{Fault, Span};
use super::program::{Base, Kind, Node, Step};
use super::value::Val;
use super::{arithmetic, functions};
use crate::number::Number;

/// Steps that one evaluation may take. Long texts and large values count for more than one.
pub(super) const STEPS_MAX: u32 = 100_000;

pub(super) struct Eval<'a, 'r> {
    roots: &'r [Val<'a>],
    pub(super) locals: Vec<Val<'a>>,
    source: &'a str,
    pub(super) steps_left: u32,
    /// An order against what is missing is a no.
    pub(super) of_rows: bool,
}

pub(super) type Out<'a> = Result<Val<'a>, Fault>;

impl<'a, 'r> Eval<'a, 'r> {
    pub(super) fn new(source: &'a str, roots: &'r [Val<'a>]) -> Eval<'a, 'r> {
        Eval { roots, locals: Vec::new(), source, steps_left: STEPS_MAX, of_rows: false }
    }

    /// In a filter of rows an order against what is missing is a no.
    pub(super) fn over_rows(self, of_rows: bool) -> Eval<'a, 'r> {
        Eval { of_rows, ..self }
    }

    /// As [`Eval::new`], going on with what an evaluation before it left.
    pub(super) fn going_on(source: &'a str, roots: &'r [Val<'a>], steps_left: u32) -> Eval<'a, 'r> {
        Eval { roots, locals: Vec::new(), source, steps_left, of_rows: false }
    }

    /// Pays for work; `bytes` of text are scanned or copied.
    pub(super) fn pay(&mut self, steps: usize, bytes: usize, span: Span) -> Result<(), Fault> {
        let steps = u32::try_from(steps + bytes / 64).unwrap_or(u32::MAX);
        match self.steps_left.checked_sub(steps) {
            Some(left) => self.steps_left = left,
            None => {
                self.steps_left = 0;
                let what = format!("the expression takes more than {STEPS_MAX} steps");
                return Err(Fault::new(Code::ExprLimit, span, what));
            }
        }
        Ok(())
    }

    pub(super) fn node(&mut self, node: &'a Node) -> Out<'a> {
        self.pay(1, 0, node.span)?;
        match &node.kind {
            Kind::Literal(literal) => Ok(Val::literal(literal)),
            Kind::Type(name) => Ok(Val::Type(name)),
            Kind::Path { base, steps } => self.path(*base, steps, node.span),
            Kind::Member(of, name) => Ok(self.node(of)?.member(name).unwrap_or(Val::Null)),
            Kind::Index(both) => {
                let (of, at) = (self.node(&both.0)?, self.node(&both.1)?);
                self.index(&of, &at, both.1.span)
            }
            Kind::List(items) => {
                Ok(Val::list(items.iter().map(|item| self.node(item)).collect::<Result<_, _>>()?))
            }
            Kind::Map(pairs) => self.map(pairs),
            Kind::Not(of) => Ok(Val::Bool(!self.truth(of)?)),
            Kind::Negate(of) => arithmetic::negate(self.node(of)?, node.span),
            Kind::All(items) => self.decide(items, false).map(Val::Bool),
            Kind::Any(items) => self.decide(items, true).map(Val::Bool),
            Kind::Binary(op, both) => self.binary(*op, &both.0, &both.1, node.span),
            Kind::Choose(parts) => match self.truth(&parts.0)? {
                true => self.node(&parts.1),
                false => self.node(&parts.2),
            },
            Kind::Has(of, name) => Ok(Val::Bool(self.node(of)?.member(name).is_some())),
            Kind::Call(function, args) => functions::call(self, *function, args, node.span),
            Kind::Matches(of, regex) => {
                let text = self.node(of)?;
                let text = self.text(text, of, "matches")?;
                self.pay(1, text.len(), node.span)?;
                Ok(Val::Bool(regex.is_match(&text)))
            }
            Kind::Macro(kind, parts) => self.looped(*kind, parts),
            Kind::Bind(parts) => {
                let value = self.node(&parts.0)?;
                self.locals.push(value);
                let out = self.node(&parts.1);
                self.locals.pop();
                out
            }
            Kind::UserId(of) => Ok(match self.node(of)? {
                Val::Text(actor) => match actor.strip_prefix("user:") {
                    Some(name) => Val::text(name.to_owned()),
                    None => Val::Text(actor),
                },
                other => other.member("userId").unwrap_or(Val::Null),
            }),
            Kind::Instant(of) | Kind::Length(of) => {
                let value = self.node(of)?;
                Ok(beside(node, &value).unwrap_or(value))
            }
            Kind::Unknown(fault) => Err((**fault).clone()),
        }
    }

    /// A value where a yes or no is needed: a bool; null counts as no.
    pub(super) fn truth(&mut self, node: &'a Node) -> Result<bool, Fault> {
        let quick = match &node.kind {
            Kind::All(items) => Some(self.decide(items, false)?),
            Kind::Any(items) => Some(self.decide(items, true)?),
            Kind::Not(of) => Some(!self.truth(of)?),
            Kind::Binary(op, both) => self.quick(*op, &both.0, &both.1),
            _ => None,
        };
        if let Some(verdict) = quick {
            self.pay(3, 0, node.span)?;
            return Ok(verdict);
        }
        match self.node(node)? {
            Val::Bool(b) => Ok(b),
            Val::Null => Ok(false),
            other => Err(Fault::new(
                Code::ExprType,
                node.span,
                format!("\"{}\" is {}, not true or false", node.span.of(self.source), with_article(&other)),
            )
            .hint("compare it with something")),
        }
    }

    /// A value where a text is needed by the function `who`.
    pub(super) fn text(&self, value: Val<'a>, node: &Node, who: &str) -> Result<Cow<'a, str>, Fault> {
        match value {
            Val::Text(text) => Ok(text),
            other => Err(self.mismatch(&other, node, &format!("{who:?} needs a string"))),
        }
    }

    pub(super) fn mismatch(&self, value: &Val<'_>, node: &Node, needs: &str) -> Fault {
        let written = node.span.of(self.source);
        match value {
            Val::Null => {
                Fault::new(Code::ExprType, node.span, format!("\"{written}\" is missing or null; {needs}"))
                    .hint(format!("ask has({written}) first, or give a default with \"??\""))
            }
            _ => {
                let what = format!("\"{written}\" is {}; {needs}", with_article(value));
                Fault::new(Code::ExprType, node.span, what)
            }
        }
    }

    fn path(&mut self, base: Base, steps: &'a [Step], span: Span) -> Out<'a> {
        // Inside the document nothing is copied on the way.
        let (mut value, steps) = match (self.base(base), steps) {
            (Some(Val::Object(map)), [Step::Key(key), rest @ ..]) => descend(map.get(&**key), rest),
            (value, _) => (value.cloned().unwrap_or(Val::Null), steps),
        };
        self.pay(0, value.owned_len(), span)?;
        for step in steps {
            value = match step {
                Step::Key(key) => value.member(key).unwrap_or(Val::Null),
                Step::Index(n) => self.index(&value, &Val::Number(Number::Uint(*n)), span)?,
            };
        }
        Ok(value)
    }

    pub(super) fn base(&self, base: Base) -> Option<&Val<'a>> {
        match base {
            Base::Root(n) => self.roots.get(n),
            Base::Local(n) => self.locals.get(n),
        }
    }

    pub(super) fn index(&mut self, of: &Val<'a>, at: &Val<'a>, span: Span) -> Out<'a> {
        match (of, at) {
            (Val::Null, _) => Ok(Val::Null),
            (Val::Object(_), Val::Text(name)) => Ok(of.member(name).unwrap_or(Val::Null)),
            (Val::Map(pairs, _), key) if is_key(key) => {
                for (known, value) in pairs.iter() {
                    if self.same(known, key, span)? {
                        return Ok(value.clone());
                    }
                }
                Ok(Val::Null)
            }
            (_, Val::Number(n)) if of.is_list() => {
                let whole = n.to_f64();
                let index = (whole.fract() == 0.0 && whole >= 0.0).then_some(whole as usize);
                index.and_then(|index| of.element(index)).ok_or_else(|| {
                    let len = of.len().unwrap_or(0);
                    Fault::new(Code::ExprIndex, span, format!("there is no element {n} in a list of {len}"))
                        .hint("check its size() first")
                })
            }
            _ => {
                let what = format!("{} has no element by {}", with_article(of), with_article(at));
                Err(Fault::new(Code::ExprType, span, what))
            }
        }
    }

    fn map(&mut self, pairs: &'a [(Node, Node)]) -> Out<'a> {
        let mut out: Vec<(Val<'a>, Val<'a>)> = Vec::with_capacity(pairs.len());
        for (key_node, value) in pairs {
            let key = self.node(key_node)?;
            if !matches!(key, Val::Text(_) | Val::Bool(_) | Val::Number(Number::Int(_) | Number::Uint(_))) {
                let what = format!("a key of a map cannot be {}", with_article(&key));
                return Err(Fault::new(Code::ExprType, key_node.span, what));
            }
            for (known, _) in &out {
                if self.same(known, &key, key_node.span)? {
                    let what = format!("the key \"{}\" stands twice", key_node.span.of(self.source));
                    return Err(Fault::new(Code::ExprSyntax, key_node.span, what));
                }
            }
            out.push((key, self.node(value)?));
        }
        Ok(Val::map(out))
    }

    /// `&&` and `||`: one operand that is `decisive` settles it, whatever the others say or fail with. Only
    /// when none does is an error an error. Out of steps is out of steps.
    fn decide(&mut self, items: &'a [Node], decisive: bool) -> Result<bool, Fault> {
        let mut failed = None;
        for item in items {
            match self.truth(item) {
                Ok(value) if value == decisive => return Ok(decisive),
                Ok(_) => {}
                Err(fault) if fault.code == Code::ExprLimit => return Err(fault),
                Err(fault) => failed = failed.or(Some(fault)),
            }
        }
        failed.map_or(Ok(!decisive), Err)
    }

    fn binary(&mut self, op: Op, left: &'a Node, right: &'a Node, span: Span) -> Out<'a> {
        if op == Op::Coalesce {
            return match self.node(left)? {
                Val::Null => self.node(right),
                value => Ok(value),
            };
        }
        if let Some(verdict) = self.quick(op, left, right) {
            self.pay(2, 0, span)?;
            return Ok(Val::Bool(verdict));
        }
        let (a, b) = (self.node(left)?, self.node(right)?);
        let ordering = |test: fn(Ordering) -> bool| move |o: Option<Ordering>| Val::Bool(o.is_some_and(test));
        match op {
            Op::Equal => Ok(Val::Bool(self.equal((left, &a), (right, &b))?)),
            Op::Unequal => Ok(Val::Bool(!self.equal((left, &a), (right, &b))?)),
            Op::Less => self.order(op, (left, &a), (right, &b)).map(ordering(Ordering::is_lt)),
            Op::LessEqual => self.order(op, (left, &a), (right, &b)).map(ordering(Ordering::is_le)),
            Op::Greater => self.order(op, (left, &a), (right, &b)).map(ordering(Ordering::is_gt)),
            Op::GreaterEqual => self.order(op, (left, &a), (right, &b)).map(ordering(Ordering::is_ge)),
            Op::In => self.within((left, &a), (right, &b)).map(Val::Bool),
            Op::NotIn => self.within((left, &a), (right, &b)).map(|within| Val::Bool(!within)),
            _ => arithmetic::binary(self, op, (left, a), (right, b), span),
        }
    }
}

/// Whether a map can have such a key.
fn is_key(value: &Val<'_>) -> bool {
    match value {
        Val::Text(_) | Val::Bool(_) | Val::Number(Number::Int(_) | Number::Uint(_)) => true,
        Val::Number(Number::Double(n)) => n.fract() == 0.0,
        _ => false,
    }
}

/// Follows the keys that come first in `steps`; gives what they lead to and the steps left.
fn descend<'a, 's>(start: Option<&'a Value>, steps: &'s [Step]) -> (Val<'a>, &'s [Step]) {
    let (mut at, mut rest) = (start, steps);
    while let [Step::Key(key), after @ ..] = rest {
        at = at.and_then(|value| value.get(&**key));
        rest = after;
    }
    (at.map_or(Val::Null, Val::of), rest)
}

pub(super) fn with_article(value: &Val<'_>) -> String {
    match value.type_name() {
        "null" => "null".to_owned(),
        name if name.starts_with(['i', 'u']) && name != "uint" => format!("an {name}"),
        name => format!("a {name}"),
    }
}
