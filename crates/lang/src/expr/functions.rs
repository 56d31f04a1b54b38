//! Functions and methods of expressions, each over values already evaluated.

use std::borrow::Cow;

use model::{Code, Timestamp, time};

use super::arithmetic::{duration, overflow, timestamp};
use super::compile::build_regex;
use super::eval::{Eval, Out, with_article};
use super::fault::{Fault, Span};
use super::program::{Function, Node};
use super::value::{Val, duration_text};
use crate::number::Number;

/// What building a regular expression at evaluation time costs.
const REGEX_STEPS: usize = 1_000;

pub(super) fn call<'a>(
    eval: &mut Eval<'a, '_>,
    function: Function,
    mut values: Vec<Val<'a>>,
    nodes: &[Node],
    span: Span,
) -> Out<'a> {
    let second = if values.len() > 1 { values.pop() } else { None };
    let Some(first) = values.pop() else { return Ok(Val::Null) };
    match (function, second) {
        (Function::Contains, Some(part)) if first.is_list() => {
            for index in 0..first.len().unwrap_or(0) {
                if eval.same(&first.element(index).unwrap_or(Val::Null), &part, span)? {
                    return Ok(Val::Bool(true));
                }
            }
            Ok(Val::Bool(false))
        }
        (_, Some(part)) => texts(eval, function, first, part, nodes, span),
        (Function::Size, None) => size(eval, first, nodes, span),
        (Function::Lower | Function::Upper, None) => {
            let text = eval.text(first, &nodes[0], "lower and upper")?;
            eval.pay(1, text.len(), span)?;
            let out = if function == Function::Lower {
                text.to_ascii_lowercase()
            } else {
                text.to_ascii_uppercase()
            };
            Ok(Val::Text(Cow::Owned(out)))
        }
        (_, None) => convert(eval, function, first, span),
    }
}

fn texts<'a>(
    eval: &mut Eval<'a, '_>,
    function: Function,
    first: Val<'a>,
    part: Val<'a>,
    nodes: &[Node],
    span: Span,
) -> Out<'a> {
    let who = match function {
        Function::Contains => "contains",
        Function::StartsWith => "startsWith",
        Function::EndsWith => "endsWith",
        _ => "matches",
    };
    let text = eval.text(first, &nodes[0], who)?;
    let part = eval.text(part, &nodes[1], who)?;
    eval.pay(1, text.len(), span)?;
    Ok(Val::Bool(match function {
        Function::Contains => text.contains(part.as_ref()),
        Function::StartsWith => text.starts_with(part.as_ref()),
        Function::EndsWith => text.ends_with(part.as_ref()),
        _ => {
            eval.pay(REGEX_STEPS, part.len() * 64, span)?;
            let regex =
                build_regex(&part).map_err(|what| Fault::new(Code::ExprSyntax, nodes[1].span, what))?;
            regex.is_match(&text)
        }
    }))
}

fn size<'a>(eval: &mut Eval<'a, '_>, value: Val<'a>, nodes: &[Node], span: Span) -> Out<'a> {
    let len = match &value {
        Val::Text(text) => {
            eval.pay(1, text.len(), span)?;
            text.chars().count()
        }
        Val::Bytes(bytes) => bytes.len(),
        other => match other.len() {
            Some(len) => len,
            None => return Err(eval.mismatch(other, &nodes[0], "\"size\" needs a string, a list or a map")),
        },
    };
    Ok(Val::int(i64::try_from(len).unwrap_or(i64::MAX)))
}

fn convert<'a>(eval: &mut Eval<'a, '_>, function: Function, value: Val<'a>, span: Span) -> Out<'a> {
    let to = match function {
        Function::Dyn => return Ok(value),
        Function::Bool => "bool",
        Function::Int => "int",
        Function::Uint => "uint",
        Function::Double => "double",
        Function::String => "string",
        Function::Bytes => "bytes",
        Function::Timestamp => "timestamp",
        _ => "duration",
    };
    if value.type_name() == to {
        return Ok(value);
    }
    if let Val::Text(text) = &value {
        eval.pay(1, text.len(), span)?;
        return from_text(function, text, span).unwrap_or_else(|| {
            let shown: String = text.chars().take(40).collect();
            Err(Fault::new(Code::ExprType, span, format!("the string {shown:?} is no {to}")))
        });
    }
    from_other(function, &value, span).unwrap_or_else(|| {
        let what = format!("{} cannot become a {to}", with_article(&value));
        Err(Fault::new(Code::ExprType, span, what))
    })
}

fn from_text<'a>(function: Function, text: &str, span: Span) -> Option<Out<'a>> {
    Some(match function {
        Function::Bool => match text {
            "true" | "True" | "TRUE" | "t" | "1" => Ok(Val::Bool(true)),
            "false" | "False" | "FALSE" | "f" | "0" => Ok(Val::Bool(false)),
            _ => return None,
        },
        Function::Int => Ok(Val::int(text.parse().ok()?)),
        Function::Uint => Ok(Val::Number(Number::Uint(text.parse().ok()?))),
        Function::Double => Ok(Val::Number(Number::Double(text.parse().ok()?))),
        Function::Bytes => Ok(Val::Bytes(Cow::Owned(text.as_bytes().to_vec()))),
        Function::Timestamp => timestamp(Timestamp::parse(text).ok()?.nanos(), span),
        _ => {
            let (sign, rest) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
            let nanos = i128::try_from(time::parse_duration(rest)?.as_nanos()).ok()?;
            duration(sign * nanos, span)
        }
    })
}

fn from_other<'a>(function: Function, value: &Val<'a>, span: Span) -> Option<Out<'a>> {
    Some(match (function, value) {
        (Function::Int, Val::Number(n)) => whole(*n, span).and_then(|n| match i64::try_from(n) {
            // A double next to the ends of the range may have been beyond it, so CEL leaves the ends out.
            Ok(n) if matches!(value, Val::Number(Number::Uint(_))) || (n > i64::MIN && n < i64::MAX) => {
                Ok(Val::int(n))
            }
            _ => Err(overflow(span)),
        }),
        (Function::Int, Val::Timestamp(at)) => Ok(Val::int(at.nanos().div_euclid(1_000_000_000) as i64)),
        (Function::Uint, Val::Number(n)) => whole(*n, span)
            .and_then(|n| u64::try_from(n).map(|n| Val::Number(Number::Uint(n))).map_err(|_| overflow(span))),
        (Function::Double, Val::Number(n)) => Ok(Val::Number(Number::Double(n.to_f64()))),
        (Function::String, Val::Number(n)) => Ok(Val::Text(Cow::Owned(match n {
            Number::Int(n) => n.to_string(),
            Number::Uint(n) => n.to_string(),
            Number::Double(n) => n.to_string(),
        }))),
        (Function::String, Val::Bool(b)) => Ok(Val::Text(Cow::Owned(b.to_string()))),
        (Function::String, Val::Timestamp(at)) => Ok(Val::Text(Cow::Owned(at.to_string()))),
        (Function::String, Val::Duration(nanos)) => Ok(Val::Text(Cow::Owned(duration_text(*nanos)))),
        (Function::String, Val::Bytes(bytes)) => {
            Ok(Val::Text(Cow::Owned(String::from_utf8(bytes.to_vec()).ok()?)))
        }
        (Function::Timestamp, Val::Number(Number::Int(seconds))) => {
            timestamp(i128::from(*seconds) * 1_000_000_000, span)
        }
        (Function::Duration, Val::Number(Number::Int(seconds))) => {
            duration(i128::from(*seconds) * 1_000_000_000, span)
        }
        (Function::Duration, Val::Number(Number::Double(seconds))) => duration((seconds * 1e9) as i128, span),
        _ => return None,
    })
}

fn whole(n: Number, span: Span) -> Result<i128, Fault> {
    match n {
        Number::Int(n) => Ok(n.into()),
        Number::Uint(n) => Ok(n.into()),
        Number::Double(n) if n.is_finite() => Ok(n as i128),
        Number::Double(_) => Err(overflow(span)),
    }
}
