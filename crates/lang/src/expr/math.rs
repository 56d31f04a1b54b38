//! `math.greatest`, `math.ceil` and their like.

use std::cmp::Ordering;

use model::Code;

use super::arithmetic::overflow;
use super::builtins::Math;
use super::eval::{Eval, Out};
use super::fault::{Fault, Span};
use super::program::Node;
use super::value::Val;
use crate::number::Number;

pub(super) fn call<'a>(eval: &mut Eval<'a, '_>, function: Math, args: &'a [Node], span: Span) -> Out<'a> {
    match function {
        Math::Greatest => extreme(eval, args, Ordering::Greater),
        Math::Least => extreme(eval, args, Ordering::Less),
        Math::BitAnd | Math::BitOr | Math::BitXor | Math::ShiftLeft | Math::ShiftRight => {
            let (a, b) = (number(eval, &args[0])?, number(eval, &args[1])?);
            bits(function, a, b).unwrap_or_else(|| Err(wrong(span, "two ints or two uints")))
        }
        _ => {
            let n = number(eval, &args[0])?;
            one(function, n, span)
        }
    }
}

fn number<'a>(eval: &mut Eval<'a, '_>, node: &'a Node) -> Result<Number, Fault> {
    match eval.node(node)? {
        Val::Number(n) => Ok(n),
        other => Err(eval.mismatch(&other, node, "a number is needed")),
    }
}

/// The greatest or least of several numbers, or of one list of them.
fn extreme<'a>(eval: &mut Eval<'a, '_>, args: &'a [Node], wanted: Ordering) -> Out<'a> {
    let mut best: Option<Number> = None;
    let mut better = |n: Number| {
        if best.is_none_or(|best| n.compare(best) == Some(wanted)) {
            best = Some(n);
        }
    };
    if let [only] = args {
        let value = eval.node(only)?;
        match &value {
            Val::Number(n) => better(*n),
            list if list.is_list() => {
                for index in 0..list.len().unwrap_or(0) {
                    eval.pay(1, 0, only.span)?;
                    match list.element(index) {
                        Some(Val::Number(n)) => better(n),
                        _ => return Err(wrong(only.span, "a list of numbers")),
                    }
                }
            }
            _ => return Err(wrong(only.span, "numbers")),
        }
    } else {
        for arg in args {
            better(number(eval, arg)?);
        }
    }
    let empty = || wrong(args[0].span, "at least one number");
    best.map(Val::Number).ok_or_else(empty)
}

fn wrong(span: Span, needed: &str) -> Fault {
    Fault::new(Code::ExprType, span, format!("{needed} needed here"))
}

fn one<'a>(function: Math, n: Number, span: Span) -> Out<'a> {
    let double = |n: f64| Ok(Val::double(n));
    match (function, n) {
        (Math::Abs, Number::Int(n)) => n.checked_abs().map(Val::int).ok_or_else(|| overflow(span)),
        (Math::Abs, Number::Double(n)) => double(n.abs()),
        (Math::Sign, Number::Int(n)) => Ok(Val::int(n.signum())),
        (Math::Sign, Number::Uint(n)) => Ok(Val::Number(Number::Uint(n.min(1)))),
        (Math::Sign, Number::Double(n)) => double(if n == 0.0 || n.is_nan() { n } else { n.signum() }),
        (Math::Ceil, Number::Double(n)) => double(n.ceil()),
        (Math::Floor, Number::Double(n)) => double(n.floor()),
        (Math::Round, Number::Double(n)) => double(n.round()),
        (Math::Trunc, Number::Double(n)) => double(n.trunc()),
        (Math::Sqrt, n) => double(n.to_f64().sqrt()),
        (Math::IsNan, Number::Double(n)) => Ok(Val::Bool(n.is_nan())),
        (Math::IsInf, Number::Double(n)) => Ok(Val::Bool(n.is_infinite())),
        (Math::IsFinite, Number::Double(n)) => Ok(Val::Bool(n.is_finite())),
        (Math::BitNot, Number::Int(n)) => Ok(Val::int(!n)),
        (Math::BitNot, Number::Uint(n)) => Ok(Val::Number(Number::Uint(!n))),
        // A whole number is its own ceiling; JSON does not say which of the two was meant.
        (Math::Abs | Math::Ceil | Math::Floor | Math::Round | Math::Trunc, n) => Ok(Val::Number(n)),
        _ => Err(wrong(span, "a double is")),
    }
}

fn bits<'a>(function: Math, a: Number, b: Number) -> Option<Out<'a>> {
    let shift = |b: Number| match b {
        Number::Int(n) => u32::try_from(n).ok(),
        Number::Uint(n) => u32::try_from(n).ok(),
        Number::Double(_) => None,
    };
    Some(Ok(match (function, a, b) {
        (Math::BitAnd, Number::Int(a), Number::Int(b)) => Val::int(a & b),
        (Math::BitOr, Number::Int(a), Number::Int(b)) => Val::int(a | b),
        (Math::BitXor, Number::Int(a), Number::Int(b)) => Val::int(a ^ b),
        (Math::BitAnd, Number::Uint(a), Number::Uint(b)) => Val::Number(Number::Uint(a & b)),
        (Math::BitOr, Number::Uint(a), Number::Uint(b)) => Val::Number(Number::Uint(a | b)),
        (Math::BitXor, Number::Uint(a), Number::Uint(b)) => Val::Number(Number::Uint(a ^ b)),
        (Math::ShiftLeft, Number::Int(a), b) => Val::int(a.checked_shl(shift(b)?).unwrap_or(0)),
        // The bits move, not the sign.
        (Math::ShiftRight, Number::Int(a), b) => {
            Val::int((a as u64).checked_shr(shift(b)?).unwrap_or(0) as i64)
        }
        (Math::ShiftLeft, Number::Uint(a), b) => {
            Val::Number(Number::Uint(a.checked_shl(shift(b)?).unwrap_or(0)))
        }
        (Math::ShiftRight, Number::Uint(a), b) => {
            Val::Number(Number::Uint(a.checked_shr(shift(b)?).unwrap_or(0)))
        }
        _ => return None,
    }))
}
