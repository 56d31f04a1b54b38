//! Conversions between types: `int("7")`, `string(1.5)`, `timestamp("…")`; CEL's.

use model::Code;

use super::arithmetic::{duration, overflow, timestamp};
use super::builtins::To;
use super::eval::{Eval, Out, with_article};
use super::fault::{Fault, Span};
use super::functions::shown;
use super::instant::{self, SECOND, duration_text};
use super::json::double_text;
use super::value::Val;
use crate::number::Number;

pub(super) fn convert<'a>(eval: &mut Eval<'a, '_>, to: To, value: Val<'a>, span: Span) -> Out<'a> {
    let name = match to {
        To::Dyn => return Ok(value),
        To::Type => return Ok(Val::Type(value.cel_type())),
        To::Shown => return Ok(Val::text(shown(eval, &value, span)?)),
        To::Bool => "bool",
        To::Int => "int",
        To::Uint => "uint",
        To::Double => "double",
        To::String => "string",
        To::Bytes => "bytes",
        To::Timestamp => "timestamp",
        To::Duration => "duration",
    };
    if value.type_name() == name {
        return Ok(value);
    }
    if let Val::Text(text) = &value {
        eval.pay(1, text.len(), span)?;
        return from_text(to, text, span).unwrap_or_else(|| {
            let shown: String = text.chars().take(40).collect();
            Err(Fault::new(Code::ExprType, span, format!("the string {shown:?} is no {name}")))
        });
    }
    eval.pay(0, value.owned_len(), span)?;
    from_other(to, &value, span).unwrap_or_else(|| {
        let what = format!("{} cannot become a {name}", with_article(&value));
        Err(Fault::new(Code::ExprType, span, what))
    })
}

fn from_text<'a>(to: To, text: &str, span: Span) -> Option<Out<'a>> {
    let digits = |text: &str| text.bytes().next().is_some_and(|b| b.is_ascii_digit());
    Some(match to {
        To::Bool => match text {
            "true" | "True" | "TRUE" | "t" | "1" => Ok(Val::Bool(true)),
            "false" | "False" | "FALSE" | "f" | "0" => Ok(Val::Bool(false)),
            _ => return None,
        },
        To::Int => Ok(Val::int(text.parse().ok()?)),
        To::Uint => Ok(Val::Number(Number::Uint(text.parse().ok().filter(|_| digits(text))?))),
        To::Double => Ok(Val::double(text.parse().ok()?)),
        To::Bytes => Ok(Val::Bytes(text.as_bytes().to_vec().into())),
        To::Timestamp => timestamp(instant::parse(text).or_else(|| instant::parse_day(text))?, span),
        _ => duration(instant::parse_duration(text)?, span),
    })
}

fn from_other<'a>(to: To, value: &Val<'a>, span: Span) -> Option<Out<'a>> {
    Some(match (to, value) {
        (To::Int, Val::Number(n)) => to_int(*n, span),
        (To::Int, Val::Timestamp(nanos)) => Ok(Val::int(nanos.div_euclid(SECOND) as i64)),
        (To::Int, Val::Duration(nanos)) => Ok(Val::int((nanos / SECOND) as i64)),
        (To::Uint, Val::Number(n)) => whole(*n, span)
            .and_then(|n| u64::try_from(n).map(|n| Val::Number(Number::Uint(n))).map_err(|_| overflow(span))),
        (To::Double, Val::Number(n)) => Ok(Val::double(n.to_f64())),
        (To::Double, Val::Duration(nanos)) => Ok(Val::double(*nanos as f64 / 1e9)),
        (To::String, Val::Number(n)) => Ok(Val::text(match n {
            Number::Int(n) => n.to_string(),
            Number::Uint(n) => n.to_string(),
            Number::Double(n) => double_text(*n),
        })),
        (To::String, Val::Bool(b)) => Ok(Val::text(b.to_string())),
        (To::String, Val::Timestamp(nanos)) => Ok(Val::text(instant::text(*nanos))),
        (To::String, Val::Duration(nanos)) => Ok(Val::text(duration_text(*nanos))),
        (To::String, Val::Bytes(bytes)) => Ok(Val::text(String::from_utf8(bytes.to_vec()).ok()?)),
        (To::Timestamp, Val::Number(Number::Int(seconds))) => timestamp(i128::from(*seconds) * SECOND, span),
        (To::Duration, Val::Number(Number::Int(seconds))) => duration(i128::from(*seconds) * SECOND, span),
        (To::Duration, Val::Number(Number::Double(seconds))) => duration((seconds * 1e9) as i128, span),
        _ => return None,
    })
}

fn to_int<'a>(n: Number, span: Span) -> Out<'a> {
    let whole = whole(n, span)?;
    // A double next to the ends of the range may have been beyond it, so CEL leaves the ends out.
    let edge = matches!(n, Number::Double(_)) && (whole <= i64::MIN.into() || whole >= i64::MAX.into());
    match i64::try_from(whole) {
        Ok(n) if !edge => Ok(Val::int(n)),
        _ => Err(overflow(span)),
    }
}

fn whole(n: Number, span: Span) -> Result<i128, Fault> {
    match n {
        Number::Int(n) => Ok(n.into()),
        Number::Uint(n) => Ok(n.into()),
        Number::Double(n) if n.is_finite() => Ok(n as i128),
        Number::Double(_) => Err(overflow(span)),
    }
}
