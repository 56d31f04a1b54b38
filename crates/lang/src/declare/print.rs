//! A tree of an expression back into text: one line, one way of writing, so that equal expressions hash alike.

use std::fmt::Write;

use crate::expr::ast::{Kind, Literal, Node, Op};

/// The normal text of an expression; read again it gives the same tree.
pub(crate) fn print(node: &Node) -> String {
    let mut out = String::new();
    put(&mut out, node, 0);
    out
}

/// How tight a node binds; what stands in a tighter place gets brackets.
fn tightness(node: &Node) -> u8 {
    match &node.kind {
        Kind::Lambda { .. } | Kind::Choose { .. } => 0,
        Kind::Any(_) => 1,
        Kind::All(_) => 2,
        Kind::Binary { op, .. } => match op {
            Op::Coalesce => 4,
            Op::Add | Op::Subtract => 5,
            Op::Multiply | Op::Divide | Op::Remainder => 6,
            _ => 3,
        },
        Kind::Not(_) | Kind::Negate(_) => 7,
        Kind::Literal(Literal::Int(n)) if *n < 0 => 7,
        Kind::Literal(Literal::Double(n)) if n.is_sign_negative() => 7,
        _ => 8,
    }
}

fn put(out: &mut String, node: &Node, least: u8) {
    if tightness(node) < least {
        out.push('(');
        bare(out, node);
        out.push(')');
    } else {
        bare(out, node);
    }
}

fn bare(out: &mut String, node: &Node) {
    match &node.kind {
        Kind::Literal(literal) => put_literal(out, literal),
        Kind::Name(name) => put_name(out, name),
        Kind::Member { of, name } => {
            put(out, of, 8);
            out.push('.');
            put_name(out, name);
        }
        Kind::Index { of, at } => {
            put(out, of, 8);
            out.push('[');
            put(out, at, 0);
            out.push(']');
        }
        Kind::Call { receiver, name, args, .. } => {
            if let Some(receiver) = receiver {
                put(out, receiver, 8);
                out.push('.');
            }
            put_name(out, name);
            put_list(out, args, '(', ')');
        }
        Kind::List(items) => put_list(out, items, '[', ']'),
        Kind::Map(pairs) => put_map(out, pairs),
        Kind::Not(of) => prefixed(out, "!", of),
        Kind::Negate(of) => prefixed(out, "-", of),
        Kind::All(items) => put_chain(out, items, " && ", 3),
        Kind::Any(items) => put_chain(out, items, " || ", 2),
        Kind::Binary { op, left, right } => {
            // `??` takes from the right, everything else from the left.
            let tight = tightness(node);
            let (l, r) = if *op == Op::Coalesce { (tight + 1, tight) } else { (tight, tight + 1) };
            put(out, left, l);
            let _ = write!(out, " {} ", op.sign());
            put(out, right, r);
        }
        Kind::Choose { test, yes, no } => {
            put(out, test, 1);
            out.push_str(" ? ");
            put(out, yes, 1);
            out.push_str(" : ");
            put(out, no, 0);
        }
        Kind::Lambda { params, body } => {
            let names: Vec<&str> = params.iter().map(|param| param.name.as_str()).collect();
            match names.as_slice() {
                [one] => out.push_str(one),
                many => {
                    let _ = write!(out, "({})", many.join(", "));
                }
            }
            out.push_str(" => ");
            put(out, body, 0);
        }
        Kind::When { given, body } => {
            out.push_str("when(");
            put(out, given, 0);
            out.push_str(") { ");
            put(out, body, 0);
            out.push_str(" }");
        }
    }
}

fn prefixed(out: &mut String, sign: &str, of: &Node) {
    out.push_str(sign);
    // `--1` would be read as it stands, but `-(-1)` says what it is.
    let least = if matches!(of.kind, Kind::Negate(_)) || tightness(of) < 7 { 8 } else { 7 };
    put(out, of, least);
}

fn put_list(out: &mut String, items: &[Node], open: char, close: char) {
    out.push(open);
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        put(out, item, 0);
    }
    out.push(close);
}

fn put_chain(out: &mut String, items: &[Node], sign: &str, least: u8) {
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push_str(sign);
        }
        put(out, item, least);
    }
}

fn put_map(out: &mut String, pairs: &[(Node, Node)]) {
    out.push('{');
    for (at, (key, value)) in pairs.iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        match &key.kind {
            Kind::Literal(Literal::Text(text)) if is_plain(text) => out.push_str(text),
            Kind::Literal(_) => put(out, key, 0),
            // In brackets it cannot be taken for a bare key.
            _ => {
                out.push('(');
                put(out, key, 0);
                out.push(')');
            }
        }
        out.push_str(": ");
        put(out, value, 0);
    }
    out.push('}');
}

/// Words that mean something where a value is expected.
const WORDS: [&str; 5] = ["true", "false", "null", "in", "not"];

fn is_plain(name: &str) -> bool {
    let mut chars = name.chars();
    let first = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    first && chars.all(|c| c.is_ascii_alphanumeric() || c == '_') && !WORDS.contains(&name)
}

fn put_name(out: &mut String, name: &str) {
    if is_plain(name) {
        out.push_str(name);
    } else {
        let _ = write!(out, "`{name}`");
    }
}

fn put_literal(out: &mut String, literal: &Literal) {
    let _ = match literal {
        Literal::Null => out.write_str("null"),
        Literal::Bool(bool) => write!(out, "{bool}"),
        Literal::Int(n) => write!(out, "{n}"),
        Literal::Uint(n) => write!(out, "{n}u"),
        Literal::Double(n) => write!(out, "{n:?}"),
        Literal::Text(text) => out.write_str(&quoted(text)),
        Literal::Bytes(bytes) => {
            out.push_str("b\"");
            for byte in bytes {
                let _ = write!(out, "\\x{byte:02x}");
            }
            out.write_str("\"")
        }
        Literal::Duration(nanos) => put_duration(out, *nanos),
    };
}

/// Whole units, largest first, each once: `1h30m`, `1500ms` as `1s500ms`.
fn put_duration(out: &mut String, nanos: i128) -> std::fmt::Result {
    const UNITS: [(&str, i128); 7] = [
        ("d", 86_400_000_000_000),
        ("h", 3_600_000_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
        ("ns", 1),
    ];
    if nanos == 0 {
        return out.write_str("0s");
    }
    let mut rest = nanos;
    for (unit, size) in UNITS {
        if rest / size != 0 {
            write!(out, "{}{unit}", rest / size)?;
        }
        rest %= size;
    }
    Ok(())
}

/// A string literal: JSON's escapes, which the lexer reads back.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
