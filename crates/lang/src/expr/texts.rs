//! Functions of texts; places in a text are counted in characters, as in CEL.

use model::Code;

use super::builtins::Text;
use super::compile::build_regex;
use super::eval::{Eval, Out};
use super::fault::{Fault, Span};
use super::format;
use super::functions::shown;
use super::json::{base64, from_base64};
use super::program::Node;
use super::value::Val;

/// What building a regular expression at evaluation time costs.
const REGEX_STEPS: usize = 1_000;

pub(super) fn call<'a>(eval: &mut Eval<'a, '_>, function: Text, args: &'a [Node], span: Span) -> Out<'a> {
    match function {
        Text::Join => return join(eval, args, span),
        Text::Encode => return encode(eval, &args[0], span),
        _ => {}
    }
    let value = eval.node(&args[0])?;
    let text = eval.text(value, &args[0], name(function))?;
    eval.pay(1, text.len(), span)?;
    let owned = |text: String| Ok(Val::text(text));
    match function {
        Text::StartsWith => Ok(Val::Bool(text.starts_with(&*eval.text_of(&args[1], "startsWith")?))),
        Text::EndsWith => Ok(Val::Bool(text.ends_with(&*eval.text_of(&args[1], "endsWith")?))),
        Text::Matches => matches(eval, &text, &args[1]),
        Text::Lower => owned(text.to_lowercase()),
        Text::Upper => owned(text.to_uppercase()),
        Text::LowerAscii => owned(text.to_ascii_lowercase()),
        Text::UpperAscii => owned(text.to_ascii_uppercase()),
        Text::Trim => owned(text.trim().to_owned()),
        Text::Reverse => owned(text.chars().rev().collect()),
        Text::Format => format::format(eval, &text, &args[1], span),
        Text::Quote => owned(quote(&text)),
        Text::Replace => replace(eval, &text, args, span),
        Text::Split => split(eval, &text, args, span),
        Text::Substring => substring(eval, &text, args, span),
        Text::CharAt => {
            let at = eval.whole_of(&args[1], "charAt")?;
            let (at, len) = (usize::try_from(at).unwrap_or(usize::MAX), text.chars().count());
            match text.chars().nth(at) {
                Some(c) => owned(c.to_string()),
                None if at == len => owned(String::new()),
                None => Err(outside(args[1].span, len)),
            }
        }
        Text::IndexOf | Text::LastIndexOf => index_of(eval, function, &text, args),
        Text::Decode => from_base64(&text)
            .map(|bytes| Val::Bytes(bytes.into()))
            .ok_or_else(|| Fault::new(Code::ExprType, span, "the string is not base64")),
        Text::Join | Text::Encode => Ok(Val::Null),
    }
}

fn name(function: Text) -> &'static str {
    match function {
        Text::StartsWith => "startsWith",
        Text::EndsWith => "endsWith",
        Text::Matches => "matches",
        Text::Lower | Text::LowerAscii => "lower",
        Text::Upper | Text::UpperAscii => "upper",
        Text::Trim => "trim",
        Text::Replace => "replace",
        Text::Split => "split",
        Text::Substring => "substring",
        Text::CharAt => "charAt",
        Text::IndexOf => "indexOf",
        Text::LastIndexOf => "lastIndexOf",
        Text::Reverse => "reverse",
        Text::Format => "format",
        Text::Quote => "quote",
        Text::Join => "join",
        Text::Encode => "encode",
        Text::Decode => "decode",
    }
}

fn matches<'a>(eval: &mut Eval<'a, '_>, text: &str, pattern: &'a Node) -> Out<'a> {
    let written = eval.text_of(pattern, "matches")?;
    eval.pay(REGEX_STEPS, written.len() * 64, pattern.span)?;
    let regex = build_regex(&written).map_err(|what| Fault::new(Code::ExprSyntax, pattern.span, what))?;
    Ok(Val::Bool(regex.is_match(text)))
}

fn encode<'a>(eval: &mut Eval<'a, '_>, node: &'a Node, span: Span) -> Out<'a> {
    match eval.node(node)? {
        Val::Bytes(bytes) => {
            eval.pay(1, bytes.len(), span)?;
            Ok(Val::text(base64(&bytes)))
        }
        other => Err(eval.mismatch(&other, node, "\"base64.encode\" needs bytes")),
    }
}

fn replace<'a>(eval: &mut Eval<'a, '_>, text: &str, args: &'a [Node], span: Span) -> Out<'a> {
    let (from, to) = (eval.text_of(&args[1], "replace")?, eval.text_of(&args[2], "replace")?);
    let most = match args.get(3) {
        Some(node) => usize::try_from(eval.whole_of(node, "replace")?).unwrap_or(usize::MAX),
        None => usize::MAX,
    };
    let places = if from.is_empty() { text.chars().count() + 1 } else { text.matches(&*from).count() };
    eval.pay(1, text.len() + places.min(most).saturating_mul(to.len()), span)?;
    Ok(Val::text(text.replacen(&*from, &to, most)))
}

fn split<'a>(eval: &mut Eval<'a, '_>, text: &str, args: &'a [Node], span: Span) -> Out<'a> {
    let by = eval.text_of(&args[1], "split")?;
    let most = match args.get(2) {
        Some(node) => eval.whole_of(node, "split")?,
        None => -1,
    };
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    eval.pay(text.len() + 1, 0, span)?;
    let parts: Vec<String> = match (most, by.is_empty()) {
        (0, _) => Vec::new(),
        (_, false) => text.splitn(most, &*by).map(str::to_owned).collect(),
        (_, true) => letters(text, most),
    };
    Ok(Val::list(parts.into_iter().map(Val::text).collect()))
}

/// Each character, the last of `most` parts holding the rest.
fn letters(text: &str, most: usize) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for c in text.chars() {
        if parts.len() < most {
            parts.push(c.to_string());
        } else if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    parts
}

fn join<'a>(eval: &mut Eval<'a, '_>, args: &'a [Node], span: Span) -> Out<'a> {
    let list = eval.node(&args[0])?;
    let by = match args.get(1) {
        Some(node) => eval.text_of(node, "join")?,
        None => "".into(),
    };
    if !list.is_list() {
        return Err(eval.mismatch(&list, &args[0], "\"join\" needs a list"));
    }
    let mut out = String::new();
    for index in 0..list.len().unwrap_or(0) {
        let item = list.element(index).unwrap_or(Val::Null);
        if index > 0 {
            out += &by;
        }
        eval.pay(1, by.len(), span)?;
        out += &shown(eval, &item, span)?;
    }
    Ok(Val::text(out))
}

fn substring<'a>(eval: &mut Eval<'a, '_>, text: &str, args: &'a [Node], span: Span) -> Out<'a> {
    let len = text.chars().count();
    let start = eval.whole_of(&args[1], "substring")?;
    let end = match args.get(2) {
        Some(node) => eval.whole_of(node, "substring")?,
        None => len as i64,
    };
    if start < 0 || end < start || end > len as i64 {
        return Err(outside(span, len));
    }
    Ok(Val::text(text.chars().skip(start as usize).take((end - start) as usize).collect::<String>()))
}

fn index_of<'a>(eval: &mut Eval<'a, '_>, function: Text, text: &str, args: &'a [Node]) -> Out<'a> {
    let part = eval.text_of(&args[1], name(function))?;
    let len = text.chars().count();
    let from = match args.get(2) {
        Some(node) => Some(eval.whole_of(node, name(function))?),
        None => None,
    };
    if from.is_some_and(|from| from < 0 || from > len as i64) {
        return Err(outside(args[2].span, len));
    }
    let byte = |at: usize| text.char_indices().nth(at).map_or(text.len(), |(byte, _)| byte);
    let found = match (function, from) {
        (Text::IndexOf, from) => {
            let start = byte(from.unwrap_or(0) as usize);
            text[start..].find(&*part).map(|at| start + at)
        }
        (_, None) => text.rfind(&*part),
        (_, Some(from)) => {
            // Inside a character nothing ends, so what is cut off here begins nothing either.
            let end = text.floor_char_boundary(byte(from as usize) + part.len());
            text[..end].rfind(&*part)
        }
    };
    Ok(found.map_or(Val::int(-1), |at| Val::count(text[..at].chars().count())))
}

fn outside(span: Span, len: usize) -> Fault {
    let what = format!("the place is outside a string of {len} characters");
    Fault::new(Code::ExprIndex, span, what).hint("check its size() first")
}

fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '\u{7}' => out += "\\a",
            '\u{8}' => out += "\\b",
            '\u{c}' => out += "\\f",
            '\n' => out += "\\n",
            '\r' => out += "\\r",
            '\t' => out += "\\t",
            '\u{b}' => out += "\\v",
            '\\' => out += "\\\\",
            '"' => out += "\\\"",
            c => out.push(c),
        }
    }
    out + "\""
}
