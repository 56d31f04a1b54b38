//! Text into tokens with their places; the first reading of an expression.

use model::Code;

use super::fault::{Fault, Span};
use super::literal;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    Int(u64),
    Uint(u64),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// A name or keyword, as written.
    Name(String),
    /// A name in backquotes, which is never a keyword.
    Quoted(String),
    Sign(&'static str),
    End,
}

#[derive(Clone, Debug)]
pub(crate) struct Lexeme {
    pub(crate) token: Token,
    pub(crate) span: Span,
}

/// Longest first, so that `<=` is not read as `<`.
const SIGNS: [&str; 25] = [
    "&&", "||", "==", "!=", "<=", ">=", "??", "(", ")", "[", "]", "{", "}", ".", ",", ":", "?", "<", ">",
    "!", "+", "-", "*", "/", "%",
];

pub(crate) fn lex(source: &str) -> Result<Vec<Lexeme>, Fault> {
    let mut out: Vec<Lexeme> = Vec::new();
    let mut at = 0;
    loop {
        at = skip_blank(source, at);
        let Some(first) = source[at..].chars().next() else { break };
        let after_value = out.last().is_some_and(|l| ends_value(&l.token));
        let (token, end) = next(source, at, first, after_value)?;
        out.push(Lexeme { token, span: Span::new(at, end) });
        at = end;
    }
    out.push(Lexeme { token: Token::End, span: Span::new(source.len(), source.len()) });
    Ok(out)
}

fn next(source: &str, at: usize, first: char, after_value: bool) -> Result<(Token, usize), Fault> {
    let rest = &source[at..];
    let dot_number = rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit) && !after_value;
    if first.is_ascii_digit() || (first == '.' && dot_number) {
        return literal::number(source, at);
    }
    if let Some(found) = literal::string(source, at) {
        return found;
    }
    if first == '`' {
        let Some(len) = rest[1..].find('`') else {
            let span = Span::new(at, source.len());
            return Err(Fault::new(Code::ExprSyntax, span, "a name in backquotes has no end"));
        };
        return Ok((Token::Quoted(rest[1..=len].to_owned()), at + len + 2));
    }
    if first.is_alphabetic() || first == '_' {
        let len = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        return Ok((Token::Name(rest[..len].to_owned()), at + len));
    }
    match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
        Some(sign) => Ok((Token::Sign(sign), at + sign.len())),
        None => Err(stray(at, first)),
    }
}

fn stray(at: usize, c: char) -> Fault {
    let fault = Fault::new(
        Code::ExprSyntax,
        Span::new(at, at + c.len_utf8()),
        format!("unexpected {:?}", c.to_string()),
    );
    match c {
        '=' => fault.hint("compare with \"==\""),
        '&' => fault.hint("both: \"&&\""),
        '|' => fault.hint("either: \"||\""),
        '“' | '”' | '‘' | '’' => fault.hint("use plain quotes, \" or '"),
        '$' => {
            fault.hint("expressions begin with a name such as event; JSONPath goes into {\"jsonpath\": …}")
        }
        _ => fault,
    }
}

fn ends_value(token: &Token) -> bool {
    !matches!(token, Token::Sign(sign) if !matches!(*sign, ")" | "]" | "}"))
}

/// Past spaces and `//` comments.
fn skip_blank(source: &str, mut at: usize) -> usize {
    loop {
        let rest = &source[at..];
        let blank = rest.len() - rest.trim_start().len();
        at += blank;
        if source[at..].starts_with("//") {
            at += source[at..].find('\n').unwrap_or(source.len() - at);
        } else if blank == 0 {
            return at;
        }
    }
}
