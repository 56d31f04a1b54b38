//! Numbers, durations and strings as they are written: CEL's, and `5m` for a duration.

use model::{Code, time};

use super::fault::{Fault, Span};
use super::lexer::Token;

/// `12`, `0x1f`, `12u`, `1.5`, `.5`, `1e9`, and the durations `500ms`, `1h30m`, `2d`.
pub(super) fn number(source: &str, at: usize) -> Result<(Token, usize), Fault> {
    let rest = &source[at..];
    let hex = rest.starts_with("0x") || rest.starts_with("0X");
    let (digits, radix, mut len, double) = if hex {
        let len = 2 + run(&rest[2..], |b| b.is_ascii_hexdigit());
        (&rest[2..len], 16, len, false)
    } else {
        let (len, double) = decimal(rest);
        (&rest[..len], 10, len, double)
    };
    let unsigned = !double && matches!(rest.as_bytes().get(len), Some(b'u' | b'U'));
    len += usize::from(unsigned);
    let span = Span::new(at, at + len);
    if rest[len..].starts_with(|c: char| c.is_alphanumeric() || c == '_') {
        let word = word_len(rest);
        if let Some(duration) = time::parse_duration(&rest[..word]).filter(|_| !hex) {
            let nanos = i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX);
            return Ok((Token::Duration(nanos), at + word));
        }
        let what = format!("{:?} is no number", &rest[..word]);
        let span = Span::new(at, at + word);
        return Err(Fault::new(Code::ExprSyntax, span, what).hint("durations are written 5m, 1h30m, 2d"));
    }
    if double {
        let value: f64 = digits.parse().unwrap_or(f64::NAN);
        return Ok((Token::Double(value), at + len));
    }
    let value = u64::from_str_radix(digits, radix).map_err(|_| {
        Fault::new(Code::ExprOverflow, span, format!("the number {} is out of range", &rest[..len]))
    })?;
    Ok((if unsigned { Token::Uint(value) } else { Token::Int(value) }, at + len))
}

/// Length of letters, digits and points between digits.
fn word_len(rest: &str) -> usize {
    let after = |at: usize| rest.as_bytes().get(at + 1).is_some_and(u8::is_ascii_digit);
    let part = |(at, c): (usize, char)| c.is_alphanumeric() || c == '_' || (c == '.' && after(at));
    rest.char_indices().find(|found| !part(*found)).map_or(rest.len(), |(at, _)| at)
}

/// Length of a decimal number, and whether it has a point or an exponent.
fn decimal(rest: &str) -> (usize, bool) {
    let digit = |b: u8| b.is_ascii_digit();
    let mut len = run(rest, digit);
    let mut double = false;
    if rest[len..].starts_with('.') && rest.as_bytes().get(len + 1).is_some_and(u8::is_ascii_digit) {
        len += 1 + run(&rest[len + 1..], digit);
        double = true;
    }
    if rest[len..].starts_with(['e', 'E']) {
        let sign = usize::from(rest[len + 1..].starts_with(['+', '-']));
        let exponent = run(&rest[len + 1 + sign..], digit);
        if exponent > 0 {
            len += 1 + sign + exponent;
            double = true;
        }
    }
    (len, double)
}

fn run(text: &str, test: impl Fn(u8) -> bool) -> usize {
    text.bytes().position(|b| !test(b)).unwrap_or(text.len())
}

/// A string or bytes literal at `at`, if one begins there: `'…'`, `"…"`, `'''…'''`, with `r` raw and `b`
/// bytes.
pub(super) fn string(source: &str, at: usize) -> Option<Result<(Token, usize), Fault>> {
    let rest = &source[at..];
    let prefix = run(rest, |b| matches!(b, b'r' | b'R' | b'b' | b'B'));
    let (raw, bytes) = match rest[..prefix].to_ascii_lowercase().as_str() {
        "" => (false, false),
        "r" => (true, false),
        "b" => (false, true),
        "rb" | "br" => (true, true),
        _ => return None,
    };
    let body = &rest[prefix..];
    let quote = body.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let triple = if quote == '"' { "\"\"\"" } else { "'''" };
    let mark = if body.starts_with(triple) { triple } else { &triple[..1] };
    Some(text(source, at, at + prefix + mark.len(), Style { mark, raw, bytes }))
}

struct Style {
    mark: &'static str,
    raw: bool,
    bytes: bool,
}

fn text(source: &str, start: usize, mut at: usize, style: Style) -> Result<(Token, usize), Fault> {
    let mut out: Vec<u8> = Vec::new();
    let open = |end: usize| {
        Fault::new(Code::ExprSyntax, Span::new(start, end), "the string has no end").hint("close its quote")
    };
    loop {
        let rest = &source[at..];
        let Some(c) = rest.chars().next() else { return Err(open(source.len())) };
        if rest.starts_with(style.mark) {
            at += style.mark.len();
            break;
        }
        match c {
            '\n' | '\r' if style.mark.len() == 1 => return Err(open(at)),
            '\\' if !style.raw => at += escape(source, at, style.bytes, &mut out)?,
            // In a raw string a backslash keeps the quote after it from ending the string.
            '\\' => {
                let len = rest.chars().take(2).map(char::len_utf8).sum::<usize>();
                out.extend(&rest.as_bytes()[..len]);
                at += len;
            }
            c => {
                out.extend(c.encode_utf8(&mut [0; 4]).bytes());
                at += c.len_utf8();
            }
        }
    }
    if style.bytes {
        return Ok((Token::Bytes(out), at));
    }
    Ok((Token::Text(String::from_utf8(out).expect("only whole characters were put in")), at))
}

/// Writes what the escape at `at` stands for and gives its length.
fn escape(source: &str, at: usize, bytes: bool, out: &mut Vec<u8>) -> Result<usize, Fault> {
    let rest = &source.as_bytes()[at + 1..];
    let wrong = |len: usize| {
        let end = (at + len..).find(|&e| source.is_char_boundary(e.min(source.len()))).unwrap_or(at);
        let span = Span::new(at, end.min(source.len()));
        Fault::new(Code::ExprSyntax, span, "no such escape").hint("a backslash itself is written \\\\")
    };
    let simple = match rest.first() {
        Some(b'a') => 7,
        Some(b'b') => 8,
        Some(b'f') => 12,
        Some(b'n') => b'\n',
        Some(b'r') => b'\r',
        Some(b't') => b'\t',
        Some(b'v') => 11,
        Some(c @ (b'\\' | b'?' | b'"' | b'\'' | b'`')) => *c,
        Some(b'x' | b'X') => return coded(rest, 1, 2, 16, bytes, out).ok_or_else(|| wrong(4)),
        Some(b'u') if !bytes => return coded(rest, 1, 4, 16, false, out).ok_or_else(|| wrong(6)),
        Some(b'U') if !bytes => return coded(rest, 1, 8, 16, false, out).ok_or_else(|| wrong(10)),
        Some(b'0'..=b'3') => return coded(rest, 0, 3, 8, bytes, out).ok_or_else(|| wrong(4)),
        _ => return Err(wrong(2)),
    };
    out.push(simple);
    Ok(2)
}

/// An escape by number: `digits` of base `radix` from `from` on. Gives its length with the backslash.
fn coded(
    rest: &[u8],
    from: usize,
    digits: usize,
    radix: u32,
    byte: bool,
    out: &mut Vec<u8>,
) -> Option<usize> {
    let text = rest.get(from..from + digits)?;
    let code = text
        .iter()
        .try_fold(0u32, |sum, &b| Some(sum.checked_mul(radix)? + char::from(b).to_digit(radix)?))?;
    if byte {
        out.push(u8::try_from(code).ok()?);
    } else {
        out.extend(char::from_u32(code)?.encode_utf8(&mut [0; 4]).bytes());
    }
    Some(1 + from + digits)
}
