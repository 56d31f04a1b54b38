//! The ways in which one character is written inside another text: `\\"`, `\\u0022`, `\\x22`, `%22`, `%2522`, `%u0022`, `&quot;`,
//! `&#34;`, and `+` for a space.

use super::entity;

/// Escapes of escapes of escapes that are looked through.
const DEEP: usize = 8;

pub(super) fn after_breaks(text: &[u8], mut at: usize) -> usize {
    loop {
        match text.get(at..) {
            Some([b'\r' | b'\n', ..]) => at += 1,
            Some([b'\\', b'r' | b'n', ..]) => at += 2,
            _ => return at,
        }
    }
}

/// Every end of this character when it begins at `at`, however it is written there.
pub(super) fn ends(wanted: char, text: &[u8], at: usize, into: &mut Vec<usize>) {
    if wanted == '\\' {
        into.extend(backslashes(text, at));
        return into.extend(coded_backslashes(text, at));
    }
    let mut buffer = [0; 4];
    let bytes = wanted.encode_utf8(&mut buffer).as_bytes();
    let Some(rest) = text.get(at..) else { return };
    if rest.starts_with(bytes) {
        into.push(at + bytes.len());
    }
    if is_escape(rest) {
        into.extend(readings(text, at).into_iter().filter(|(c, _)| *c == wanted).map(|(_, end)| end));
    }
}

/// First bytes of the characters that what stands at `at` may be.
pub(super) fn beginnings(text: &[u8], at: usize, into: &mut Vec<u8>) {
    into.clear();
    into.push(text[at]);
    if is_escape(&text[at..]) {
        into.extend(readings(text, at).into_iter().map(|(c, _)| first_byte(c)));
        into.sort_unstable();
        into.dedup();
    }
}

pub(super) fn first_byte(c: char) -> u8 {
    let mut buffer = [0; 4];
    c.encode_utf8(&mut buffer).as_bytes()[0]
}

fn is_escape(rest: &[u8]) -> bool {
    matches!(rest.first(), Some(b'+' | b'%' | b'\\' | b'&'))
}

/// What stands at `at` as an escape: each character that it may be, and where that ends.
fn readings(text: &[u8], at: usize) -> Vec<(char, usize)> {
    let mut found = single(text, at);
    for end in backslashes(text, at) {
        found.extend(after_backslash(text, end));
    }
    found
}

/// Escapes that do not begin with a backslash.
fn single(text: &[u8], at: usize) -> Vec<(char, usize)> {
    match text.get(at) {
        Some(b'+') => vec![(' ', at + 1)],
        Some(b'%') => percents(text, at),
        Some(b'&') => entity::readings(text, at, DEEP),
        _ => Vec::new(),
    }
}

/// Where backslashes end, as many as there are: how many of them a text has depends on how often it was escaped.
fn backslashes(text: &[u8], mut at: usize) -> Vec<usize> {
    let mut ends = Vec::new();
    while ends.len() < DEEP {
        let end = match text.get(at) {
            Some(b'\\') => Some(at + 1),
            Some(b'%' | b'&') => single(text, at).into_iter().find(|(c, _)| *c == '\\').map(|(_, end)| end),
            _ => None,
        };
        let Some(end) = end else { break };
        ends.push(end);
        at = end;
    }
    ends
}

/// The same of backslashes that are escaped by their number.
fn coded_backslashes(text: &[u8], mut at: usize) -> Vec<usize> {
    let mut ends = Vec::new();
    while text.get(at) == Some(&b'\\') && ends.len() < DEEP {
        let coded = after_backslash(text, at + 1).into_iter().find(|(c, _)| *c == '\\');
        let Some((_, end)) = coded else { break };
        ends.push(end);
        at = end;
    }
    ends
}

/// What a backslash before `at` makes of what stands there.
fn after_backslash(text: &[u8], at: usize) -> Vec<(char, usize)> {
    match text.get(at) {
        Some(b'u') => unit(text, at).into_iter().collect(),
        Some(b'x') => bytes_of(text, at, |at| {
            let digits =
                text.get(at..)?.strip_prefix(b"x").or_else(|| text.get(at..)?.strip_prefix(b"\\x"))?;
            Some((hex_byte(digits)?, text.len() - digits.len() + 2))
        }),
        Some(b'%' | b'&') => single(text, at).into_iter().filter(|(c, _)| is_quote(*c)).collect(),
        Some(letter) => short(*letter).map(|c| (c, at + 1)).into_iter().collect(),
        None => Vec::new(),
    }
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '/' | '\'')
}

/// What a letter after a backslash stands for.
fn short(letter: u8) -> Option<char> {
    Some(match letter {
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        letter if is_quote(letter as char) => letter as char,
        _ => return None,
    })
}

/// The character of `uXXXX`, or of two of them with what escapes the second, and where it ends.
fn unit(text: &[u8], at: usize) -> Option<(char, usize)> {
    let four = |at: usize| {
        let digits = std::str::from_utf8(text.get(at + 1..at + 5)?).ok()?;
        u16::from_str_radix(digits, 16).ok().filter(|_| text.get(at) == Some(&b'u'))
    };
    let first = four(at)?;
    if let Some(c) = char::from_u32(first.into()) {
        return Some((c, at + 5));
    }
    let between = match text.get(at + 5) {
        Some(b'%') => at + 6,
        _ => backslashes(text, at + 5).pop()?,
    };
    let c = char::decode_utf16([first, four(between)?]).next()?.ok()?;
    Some((c, between + 5))
}

/// `%22`, `%2522`, `%u0022`; of a character of several bytes all of them.
fn percents(text: &[u8], at: usize) -> Vec<(char, usize)> {
    let mut found: Vec<(char, usize)> = unit(text, at + 1).into_iter().collect();
    for again in 0..DEEP {
        let sign = 1 + 2 * again;
        let one = |at: usize| {
            let (sign, digits) = text.get(at..)?.split_at_checked(sign)?;
            let is_sign = sign[0] == b'%' && sign[1..].chunks(2).all(|coded| coded == b"25");
            Some((hex_byte(digits).filter(|_| is_sign)?, at + sign.len() + 2))
        };
        let Some((first, _)) = one(at) else { break };
        found.extend(bytes_of(text, at, one));
        if first != b'%' {
            break;
        }
    }
    found
}

/// The character whose bytes `one` reads, one after the other.
fn bytes_of(text: &[u8], mut at: usize, one: impl Fn(usize) -> Option<(u8, usize)>) -> Vec<(char, usize)> {
    let mut bytes = Vec::new();
    while let Some((byte, end)) = one(at).filter(|_| bytes.len() < 4 && at < text.len()) {
        bytes.push(byte);
        at = end;
        if let Ok(read) = std::str::from_utf8(&bytes) {
            return read.chars().map(|c| (c, at)).collect();
        }
    }
    Vec::new()
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    let digits = digits.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}
