//! Text into tokens with their places; the first reading of an expression and of a whole `.ew` file.
//!
//! Nothing stops it: what cannot be read becomes a fault and is stepped over, so that a file shows all its
//! faults at once. Comments (`// …` to the end of the line, `/* … */`) are kept aside for the formatter.

use model::Code;

use super::fault::{Fault, Span};
use super::literal;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    Int(u64),
    Uint(u64),
    Double(f64),
    /// `5m`, `1h30m`, in nanoseconds.
    Duration(i128),
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
    /// Whether a line break stands between this token and the one before it.
    pub(crate) newline_before: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Lexed {
    /// Ends with [`Token::End`].
    pub(crate) lexemes: Vec<Lexeme>,
    /// Where the comments stand, with their marks.
    pub(crate) comments: Vec<Span>,
    pub(crate) faults: Vec<Fault>,
}

/// Longest first, so that `<=` is not read as `<`.
const SIGNS: [&str; 31] = [
    "&&", "||", "==", "!=", "<=", ">=", "=>", ":=", "??", "(", ")", "[", "]", "{", "}", ".", ",", ":", ";",
    "?", "<", ">", "=", "!", "+", "-", "*", "/", "%", "@", "|",
];

pub(crate) fn lex(source: &str) -> Lexed {
    let mut out = Lexed::default();
    // Some editors begin a file with a byte order mark.
    let mark = if source.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let (mut at, mut newline_before) = (mark, false);
    loop {
        let blank_end = skip_blank(source, at, &mut out);
        newline_before |= source[at..blank_end].contains('\n');
        at = blank_end;
        let Some(first) = source[at..].chars().next() else { break };
        let after_value = out.lexemes.last().is_some_and(|l| ends_value(&l.token));
        match next(source, at, first, after_value) {
            Ok((token, end)) => {
                out.lexemes.push(Lexeme { token, span: Span::new(at, end), newline_before });
                (at, newline_before) = (end, false);
            }
            Err(fault) => {
                at = (fault.span.end as usize).max(at + first.len_utf8()).min(source.len());
                out.faults.push(fault);
            }
        }
    }
    let span = Span::new(source.len(), source.len());
    out.lexemes.push(Lexeme { token: Token::End, span, newline_before: true });
    out
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
        '&' => fault.hint("both: \"&&\""),
        '#' => fault.hint("comments begin with \"//\""),
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

/// Past spaces and comments.
fn skip_blank(source: &str, mut at: usize, out: &mut Lexed) -> usize {
    loop {
        let rest = source[at..].trim_start();
        at = source.len() - rest.len();
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(body) = rest.strip_prefix("/*") {
            match body.find("*/") {
                Some(len) => len + 4,
                None => {
                    let span = Span::new(at, at + 2);
                    let fault = Fault::new(Code::ExprSyntax, span, "the comment has no end");
                    out.faults.push(fault.hint("close it with \"*/\""));
                    rest.len()
                }
            }
        } else {
            return at;
        };
        out.comments.push(Span::new(at, at + len));
        at += len;
    }
}
