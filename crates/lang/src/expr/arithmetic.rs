//! `+ - * / %` and unary minus: CEL's, except that an integer beside a double becomes a double, because
//! JSON does not say which of the two a number is.

use std::borrow::Cow;

use model::Code;

use super::ast::Op;
use super::compare::apart;
use super::eval::{Eval, Out, with_article};
use super::fault::{Fault, Span};
use super::instant;
use super::program::Node;
use super::value::Val;
use crate::number::Number;

pub(super) fn negate(value: Val<'_>, span: Span) -> Out<'_> {
    match value {
        Val::Number(Number::Int(n)) => n.checked_neg().map(Val::int).ok_or_else(|| overflow(span)),
        Val::Number(Number::Double(n)) => Ok(Val::Number(Number::Double(-n))),
        Val::Duration(nanos) => duration(-nanos, span),
        other => {
            let what = format!("\"-\" does not go before {}", with_article(&other));
            Err(Fault::new(Code::ExprType, span, what))
        }
    }
}

pub(super) fn binary<'a>(
    eval: &mut Eval<'a, '_>,
    op: Op,
    (left, a): (&Node, Val<'a>),
    (right, b): (&Node, Val<'a>),
    span: Span,
) -> Out<'a> {
    let needs = || format!("{:?} needs a value", op.sign());
    match (a, b) {
        (Val::Number(a), Val::Number(b)) => numbers(op, a, b, span),
        (a @ Val::Null, _) => Err(eval.mismatch(&a, left, &needs())),
        (_, b @ Val::Null) => Err(eval.mismatch(&b, right, &needs())),
        (Val::Text(a), Val::Text(b)) if op == Op::Add => {
            eval.pay(1, a.len() + b.len(), span)?;
            Ok(Val::Text(Cow::Owned(a.into_owned() + &b)))
        }
        (Val::Bytes(a), Val::Bytes(b)) if op == Op::Add => {
            eval.pay(1, a.len() + b.len(), span)?;
            Ok(Val::Bytes(Cow::Owned([a, b].concat())))
        }
        (a, b) if op == Op::Add && a.is_list() && b.is_list() => join(eval, &a, &b, span),
        (a, b) => times(op, &a, &b, span).unwrap_or_else(|| Err(apart(op, &a, &b, span))),
    }
}

fn join<'a>(eval: &mut Eval<'a, '_>, a: &Val<'a>, b: &Val<'a>, span: Span) -> Out<'a> {
    let (first, second) = (a.len().unwrap_or(0), b.len().unwrap_or(0));
    eval.pay(first + second, 0, span)?;
    let items = (0..first).filter_map(|n| a.element(n)).chain((0..second).filter_map(|n| b.element(n)));
    Ok(Val::list(items.collect()))
}

fn numbers<'a>(op: Op, a: Number, b: Number, span: Span) -> Out<'a> {
    if let (Number::Double(_), _) | (_, Number::Double(_)) = (a, b) {
        let (a, b) = (a.to_f64(), b.to_f64());
        return Ok(Val::Number(Number::Double(match op {
            Op::Add => a + b,
            Op::Subtract => a - b,
            Op::Multiply => a * b,
            Op::Divide => a / b,
            _ => {
                let what = "\"%\" does not go between doubles";
                return Err(Fault::new(Code::ExprType, span, what).hint("convert with int(…)"));
            }
        })));
    }
    let unsigned = matches!((a, b), (Number::Uint(_), Number::Uint(_)));
    let (a, b) = (whole(a), whole(b));
    if b == 0 && matches!(op, Op::Divide | Op::Remainder) {
        return Err(
            Fault::new(Code::ExprDivideByZero, span, "division by zero").hint("test the divisor first")
        );
    }
    // CEL's remainder fails where its division does.
    if op == Op::Remainder && a == i64::MIN.into() && b == -1 {
        return Err(overflow(span));
    }
    let result = match op {
        Op::Add => a + b,
        Op::Subtract => a - b,
        Op::Multiply => a.checked_mul(b).ok_or_else(|| overflow(span))?,
        Op::Divide => a / b,
        _ => a % b,
    };
    fit(result, unsigned).ok_or_else(|| overflow(span))
}

fn whole(n: Number) -> i128 {
    match n {
        Number::Int(n) => n.into(),
        Number::Uint(n) => n.into(),
        Number::Double(n) => n as i128,
    }
}

/// Unsigned stays unsigned; else an int, or a uint when it was one and is too large for an int.
fn fit<'a>(n: i128, unsigned: bool) -> Option<Val<'a>> {
    let uint = || u64::try_from(n).ok().map(|n| Val::Number(Number::Uint(n)));
    if unsigned { uint() } else { i64::try_from(n).ok().map(Val::int) }
}

/// Instants and durations; an instant in an event is a text.
fn times<'a>(op: Op, a: &Val<'a>, b: &Val<'a>, span: Span) -> Option<Out<'a>> {
    let instant = |value: &Val<'_>| match value {
        Val::Timestamp(nanos) => Some(*nanos),
        Val::Text(text) => instant::parse(text),
        _ => None,
    };
    if let (Val::Timestamp(_), Val::Text(_)) | (Val::Text(_), Val::Timestamp(_)) = (a, b) {
        return (op == Op::Subtract).then(|| Some(duration(instant(a)? - instant(b)?, span)))?;
    }
    Some(match (op, a, b) {
        (Op::Add, Val::Duration(a), Val::Duration(b)) => duration(a + b, span),
        (Op::Subtract, Val::Duration(a), Val::Duration(b)) => duration(a - b, span),
        (Op::Subtract, Val::Timestamp(a), Val::Timestamp(b)) => duration(a - b, span),
        (Op::Add, at, Val::Duration(by)) | (Op::Add, Val::Duration(by), at) => {
            timestamp(instant(at)? + by, span)
        }
        (Op::Subtract, at, Val::Duration(by)) => timestamp(instant(at)? - by, span),
        _ => return None,
    })
}

/// CEL's range, about 292 years each way.
pub(super) fn duration<'a>(nanos: i128, span: Span) -> Out<'a> {
    if !instant::duration_in_range(nanos) {
        return Err(Fault::new(Code::ExprOverflow, span, "the duration is out of range"));
    }
    Ok(Val::Duration(nanos))
}

/// The years 1 to 9999.
pub(super) fn timestamp<'a>(nanos: i128, span: Span) -> Out<'a> {
    if !instant::in_range(nanos) {
        return Err(Fault::new(Code::ExprOverflow, span, "the instant is outside the years 1 to 9999"));
    }
    Ok(Val::Timestamp(nanos))
}

pub(super) fn overflow(span: Span) -> Fault {
    Fault::new(Code::ExprOverflow, span, "the result is out of range").hint("convert to double(…) first")
}
