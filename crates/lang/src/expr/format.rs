//! `"%d of %s".format([3, "x"])` of CEL's string library.
//!
//! ```text
//!  %%  a percent sign        %d  a whole number             %x %X  hex of a whole number, a string or bytes
//!  %s  any value as text     %f %.2f  fixed point           %b %o  binary (also of a bool), octal
//!                            %e %.2e  scientific
//! ```

use std::fmt::Write;

use model::Code;

use super::eval::{Eval, Out, with_article};
use super::fault::{Fault, Span};
use super::json::{double_text, hex};
use super::program::Node;
use super::value::Val;
use crate::number::Number;

/// Longest text that one call makes, and most digits behind a point.
const MADE_MAX: usize = 1 << 20;
const DIGITS_MAX: usize = 100;

pub(super) fn format<'a>(eval: &mut Eval<'a, '_>, text: &str, args: &'a Node, span: Span) -> Out<'a> {
    let values = eval.node(args)?;
    if !values.is_list() {
        return Err(eval.mismatch(&values, args, "\"format\" needs a list of values"));
    }
    let (mut out, mut rest, mut used) = (String::new(), text, 0);
    while let Some(at) = rest.find('%') {
        out += &rest[..at];
        let (clause, after) = clause(&rest[at + 1..], span)?;
        rest = after;
        if clause.letter == '%' {
            out.push('%');
            continue;
        }
        let value = values.element(used).ok_or_else(|| {
            let what = format!("the text has more places than the {used} values given");
            Fault::new(Code::ExprIndex, args.span, what)
        })?;
        used += 1;
        let before = out.len();
        let written = clause.write(&value, &mut out);
        eval.pay(1, out.len() - before, span)?;
        written.map_err(|wrong| wrong.fault(&clause, &value, span))?;
    }
    out += rest;
    eval.pay(1, out.len(), span)?;
    Ok(Val::text(out))
}

struct Clause {
    letter: char,
    digits: Option<usize>,
}

enum Wrong {
    Type,
    TooLong,
}

impl Wrong {
    fn fault(self, clause: &Clause, value: &Val<'_>, span: Span) -> Fault {
        match self {
            Wrong::TooLong => Fault::new(Code::ExprLimit, span, "the text becomes longer than 1 MiB"),
            Wrong::Type => {
                let what = format!("\"%{}\" does not take {}", clause.letter, with_article(value));
                Fault::new(Code::ExprType, span, what).hint("\"%s\" takes any value")
            }
        }
    }
}

/// What stands behind a `%`, and the text after it.
fn clause(text: &str, span: Span) -> Result<(Clause, &str), Fault> {
    let (digits, rest) = match text.strip_prefix('.') {
        Some(rest) => {
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            (Some(rest[..end].parse().unwrap_or(usize::MAX)), &rest[end..])
        }
        None => (None, text),
    };
    let letter = rest.chars().next().unwrap_or(' ');
    let known = if digits.is_some() { "fe" } else { "sdfebxXo%" };
    if !known.contains(letter) || digits.is_some_and(|digits| digits > DIGITS_MAX) {
        let written: String = text.chars().take(6).collect();
        let fault =
            Fault::new(Code::ExprSyntax, span, format!("there is no place of the form \"%{written}\""));
        return Err(fault.hint("one of %s %d %f %e %b %x %X %o, %.2f, or %% for a percent sign"));
    }
    Ok((Clause { letter, digits }, &rest[1..]))
}

impl Clause {
    fn write(&self, value: &Val<'_>, out: &mut String) -> Result<(), Wrong> {
        let whole = match value {
            Val::Number(Number::Int(n)) => Some(i128::from(*n)),
            Val::Number(Number::Uint(n)) => Some(i128::from(*n)),
            Val::Bool(b) if self.letter == 'b' => Some(i128::from(*b)),
            _ => None,
        };
        let text = match (self.letter, value, whole) {
            ('s', _, _) => return shown(value, out),
            ('d' | 'f' | 'e', Val::Number(Number::Double(n)), _) if !n.is_finite() => double_text(*n),
            ('f', Val::Number(n), _) => format!("{:.*}", self.digits.unwrap_or(6), n.to_f64()),
            ('e', Val::Number(n), _) => scientific(n.to_f64(), self.digits.unwrap_or(6)),
            ('d', _, Some(n)) => n.to_string(),
            ('b', _, Some(n)) => signed(n, format!("{:b}", n.unsigned_abs())),
            ('o', _, Some(n)) => signed(n, format!("{:o}", n.unsigned_abs())),
            ('x', _, Some(n)) => signed(n, format!("{:x}", n.unsigned_abs())),
            ('X', _, Some(n)) => signed(n, format!("{:X}", n.unsigned_abs())),
            ('x', Val::Text(text), _) => hex(text.as_bytes()),
            ('X', Val::Text(text), _) => hex(text.as_bytes()).to_uppercase(),
            ('x', Val::Bytes(bytes), _) => hex(bytes),
            ('X', Val::Bytes(bytes), _) => hex(bytes).to_uppercase(),
            _ => return Err(Wrong::Type),
        };
        push(out, &text)
    }
}

fn signed(n: i128, digits: String) -> String {
    if n < 0 { format!("-{digits}") } else { digits }
}

/// `1.052033e+03`: a sign and at least two digits of exponent.
fn scientific(n: f64, digits: usize) -> String {
    let text = format!("{n:.digits$e}");
    let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, power) = power.strip_prefix('-').map_or(('+', power), |power| ('-', power));
    format!("{mantissa}e{sign}{power:0>2}")
}

fn push(out: &mut String, text: &str) -> Result<(), Wrong> {
    *out += text;
    if out.len() > MADE_MAX { Err(Wrong::TooLong) } else { Ok(()) }
}

/// `%s`: as `toString`, but null is written, and what is in lists and maps too.
fn shown(value: &Val<'_>, out: &mut String) -> Result<(), Wrong> {
    match value {
        Val::Null => push(out, "null"),
        Val::Bytes(bytes) => push(out, &String::from_utf8_lossy(bytes)),
        Val::Array(_) | Val::List(..) => {
            push(out, "[")?;
            for index in 0..value.len().unwrap_or(0) {
                push(out, if index > 0 { ", " } else { "" })?;
                shown(&value.element(index).unwrap_or(Val::Null), out)?;
            }
            push(out, "]")
        }
        Val::Object(map) => {
            let pairs = map.iter().map(|(key, value)| (key.clone(), Val::of(value)));
            entries(pairs.collect(), out)
        }
        Val::Map(pairs, _) => {
            let mut sorted = Vec::with_capacity(pairs.len());
            for (key, value) in pairs.iter() {
                let mut text = String::new();
                shown(key, &mut text)?;
                sorted.push((text, value.clone()));
            }
            sorted.sort_by(|a, b| a.0.cmp(&b.0));
            entries(sorted, out)
        }
        other => {
            let text = other.shown(&mut MADE_MAX.clone()).ok_or(Wrong::TooLong)?;
            push(out, &text)
        }
    }
}

fn entries(pairs: Vec<(String, Val<'_>)>, out: &mut String) -> Result<(), Wrong> {
    push(out, "{")?;
    for (index, (key, value)) in pairs.iter().enumerate() {
        let _ = write!(out, "{}{key}: ", if index > 0 { ", " } else { "" });
        shown(value, out)?;
    }
    push(out, "}")
}
