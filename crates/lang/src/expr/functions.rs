//! Functions and methods of expressions that belong to no larger family, and the way to the others.

use std::borrow::Cow;

use model::Code;
use sha2::{Digest, Sha256};

use super::arithmetic::{self, timestamp};
use super::ast::Op;
use super::builtins::Function;
use super::eval::{Eval, Out, with_article};
use super::fault::{Fault, Span};
use super::instant;
use super::json::hex;
use super::program::Node;
use super::value::Val;
use super::{collect, convert, math, texts, times};
use crate::number::Number;

/// Most bytes of JSON that one function writes.
const WRITTEN_MAX: usize = 1 << 20;

/// Each function evaluates its own arguments; how many there are was checked when it was compiled.
pub(super) fn call<'a>(eval: &mut Eval<'a, '_>, function: Function, args: &'a [Node], span: Span) -> Out<'a> {
    match function {
        Function::Text(function) => texts::call(eval, function, args, span),
        Function::To(to) => {
            let value = eval.node(&args[0])?;
            convert::convert(eval, to, value, span)
        }
        Function::Rows(function) => collect::call(eval, function, args, span),
        Function::Part(part) => times::part(eval, part, args, span),
        Function::Math(function) => math::call(eval, function, args, span),
        Function::Size => size(eval, &args[0], span),
        Function::Contains => contains(eval, &args[0], &args[1], span),
        Function::Coalesce => coalesce(eval, args),
        Function::Exists => exists(eval, &args[0]),
        Function::Concat => concat(eval, args, span),
        Function::Hash => hash(eval, args, span),
        Function::Fingerprint => fingerprint(eval, &args[0], span),
        Function::ShortId => {
            let id = eval.text_of(&args[0], "shortId")?;
            Ok(Val::text(id.rsplit(':').next().unwrap_or_default().to_owned()))
        }
        Function::CanonicalId => canonical_id(eval, args),
        Function::Add | Function::Subtract => {
            let op = if function == Function::Add { Op::Add } else { Op::Subtract };
            let (a, b) = (eval.node(&args[0])?, eval.node(&args[1])?);
            arithmetic::binary(eval, op, (&args[0], a), (&args[1], b), span)
        }
        Function::Field => {
            let (of, name) = (eval.node(&args[0])?, eval.node(&args[1])?);
            eval.index(&of, &name, span)
        }
        Function::AddDuration => {
            let at = times::instant_of(eval, &args[0])?;
            timestamp(at + times::duration_of(eval, &args[1])?, span)
        }
        Function::LocalDate => times::local_date(eval, args, span),
        Function::DaysBetween => {
            let (from, to) = (times::instant_of(eval, &args[0])?, times::instant_of(eval, &args[1])?);
            Ok(Val::int(((to - from) / (86_400 * instant::SECOND)) as i64))
        }
    }
}

fn size<'a>(eval: &mut Eval<'a, '_>, node: &'a Node, span: Span) -> Out<'a> {
    let len = match eval.node(node)? {
        Val::Text(text) => {
            eval.pay(1, text.len(), span)?;
            text.chars().count()
        }
        Val::Bytes(bytes) => bytes.len(),
        other => match other.len() {
            Some(len) => len,
            None => return Err(eval.mismatch(&other, node, "\"size\" needs a string, a list or a map")),
        },
    };
    Ok(Val::count(len))
}

/// A text in a text, or an element in a list.
fn contains<'a>(eval: &mut Eval<'a, '_>, of: &'a Node, part: &'a Node, span: Span) -> Out<'a> {
    let (value, wanted) = (eval.node(of)?, eval.node(part)?);
    if !value.is_list() {
        // Said without a name: `contains`, `includes` and `has` all come here.
        let Val::Text(value) = value else {
            return Err(eval.mismatch(&value, of, "only a string or a list can be searched"));
        };
        let Val::Text(wanted) = wanted else {
            return Err(eval.mismatch(&wanted, part, "a string is searched for a string"));
        };
        eval.pay(1, value.len(), span)?;
        return Ok(Val::Bool(value.contains(wanted.as_ref())));
    }
    for index in 0..value.len().unwrap_or(0) {
        if eval.same(&value.element(index).unwrap_or(Val::Null), &wanted, span)? {
            return Ok(Val::Bool(true));
        }
    }
    Ok(Val::Bool(false))
}

/// The first that is neither null nor blank; what fails counts as missing. The last is taken as it is.
fn coalesce<'a>(eval: &mut Eval<'a, '_>, args: &'a [Node]) -> Out<'a> {
    let (last, others) = args.split_last().expect("at least one argument was counted");
    for arg in others {
        match eval.node(arg) {
            Ok(Val::Null) => {}
            Ok(Val::Text(text)) if text.trim().is_empty() => {}
            Ok(value) => return Ok(value),
            Err(fault) if fault.code == Code::ExprLimit => return Err(fault),
            Err(_) => {}
        }
    }
    eval.node(last)
}

/// Not for what is missing, null, blank or empty.
fn exists<'a>(eval: &mut Eval<'a, '_>, node: &'a Node) -> Out<'a> {
    Ok(Val::Bool(match eval.node(node) {
        Ok(Val::Null) => false,
        Ok(Val::Text(text)) => !text.trim().is_empty(),
        Ok(value) => value.len() != Some(0),
        Err(fault) if fault.code == Code::ExprLimit => return Err(fault),
        Err(_) => false,
    }))
}

/// A value as a person reads it, paid for.
pub(super) fn shown(eval: &mut Eval<'_, '_>, value: &Val<'_>, span: Span) -> Result<String, Fault> {
    let text = value.shown(&mut WRITTEN_MAX.clone()).ok_or_else(|| too_large(span))?;
    eval.pay(1, text.len(), span)?;
    Ok(text)
}

fn concat<'a>(eval: &mut Eval<'a, '_>, args: &'a [Node], span: Span) -> Out<'a> {
    let mut out = String::new();
    for arg in args {
        match eval.node(arg)? {
            Val::Text(text) => {
                eval.pay(1, text.len(), span)?;
                out += &text;
            }
            value => out += &shown(eval, &value, span)?,
        }
    }
    Ok(Val::Text(Cow::Owned(out)))
}

/// SHA-256 in hex: of a text itself, of anything else its JSON, of several values their list.
fn hash<'a>(eval: &mut Eval<'a, '_>, args: &'a [Node], span: Span) -> Out<'a> {
    if let [one] = args {
        return match eval.node(one)? {
            Val::Text(text) => digest(eval, text.as_bytes(), span),
            value => {
                let text = canonical(&value, span)?;
                digest(eval, text.as_bytes(), span)
            }
        };
    }
    let values = args.iter().map(|arg| eval.node(arg)).collect::<Result<_, _>>()?;
    let text = canonical(&Val::list(values), span)?;
    digest(eval, text.as_bytes(), span)
}

fn fingerprint<'a>(eval: &mut Eval<'a, '_>, node: &'a Node, span: Span) -> Out<'a> {
    let text = canonical(&eval.node(node)?, span)?;
    digest(eval, text.as_bytes(), span)
}

fn digest<'a>(eval: &mut Eval<'a, '_>, bytes: &[u8], span: Span) -> Out<'a> {
    eval.pay(4, bytes.len(), span)?;
    Ok(Val::text(hex(&Sha256::digest(bytes))))
}

fn canonical(value: &Val<'_>, span: Span) -> Result<String, Fault> {
    value.canonical(&mut WRITTEN_MAX.clone()).ok_or_else(|| too_large(span))
}

fn too_large(span: Span) -> Fault {
    Fault::new(Code::ExprLimit, span, "the value is larger than 1 MiB as text")
}

/// `canonicalId(id, concept)`: a bare id gets the concept's id before it.
fn canonical_id<'a>(eval: &mut Eval<'a, '_>, args: &'a [Node]) -> Out<'a> {
    let id = match eval.node(&args[0])? {
        Val::Null => return Ok(Val::text("")),
        value => eval.text(value, &args[0], "canonicalId")?,
    };
    let concept = eval.text_of(&args[1], "canonicalId")?;
    if id.is_empty() || id.strip_prefix(concept.as_ref()).is_some_and(|rest| rest.starts_with(':')) {
        return Ok(Val::Text(id));
    }
    if id.contains(':') {
        let what = format!("{id:?} is an id of another concept than {concept:?}");
        return Err(Fault::new(Code::ExprType, args[0].span, what));
    }
    Ok(Val::text(format!("{concept}:{id}")))
}

impl<'a> Eval<'a, '_> {
    pub(super) fn text_of(&mut self, node: &'a Node, who: &str) -> Result<Cow<'a, str>, Fault> {
        let value = self.node(node)?;
        self.text(value, node, who)
    }

    /// A whole number where `who` needs one.
    pub(super) fn whole_of(&mut self, node: &'a Node, who: &str) -> Result<i64, Fault> {
        match self.node(node)? {
            Val::Number(Number::Int(n)) => Ok(n),
            Val::Number(Number::Uint(n)) if n <= i64::MAX as u64 => Ok(n as i64),
            Val::Number(Number::Double(n)) if n.fract() == 0.0 && n.abs() < 9e15 => Ok(n as i64),
            other => {
                let what = format!("{who:?} needs a whole number, not {}", with_article(&other));
                Err(Fault::new(Code::ExprType, node.span, what))
            }
        }
    }
}
