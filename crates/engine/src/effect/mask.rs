//! Takes the values of secrets out of a text, in whatever form the other side may have put them: as they are, in hex, in
//! base64, and each of these escaped for JSON or for a URL, also twice or by halves.
//!
//! ```text
//!  text      …%22k=p%2Bss\\u0022…          every place is tried: a unit of a needle is one character,
//!  needle        p  +  s  s  "             and each has several ways to be written
//! ```
//! What overlaps is masked as one, so that no end of a secret stays beside another.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::entity::MASK;

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Backslashes in a row that are read as one escape: texts in texts in texts.
const BACKSLASHES_MAX: usize = 8;

/// One character of a needle, or another that says the same: `a` and `A` in hex, `+` and `-` in base64.
type Unit = [char; 2];

#[derive(Clone, Debug)]
struct Needle {
    units: Vec<Unit>,
    /// Lines may break inside, as they do in long base64.
    breaks: bool,
    /// The characters before and after hold bits of the secret, too.
    edges: [bool; 2],
}

/// Finds a set of secrets. Without any it changes nothing.
#[derive(Clone, Debug, Default)]
pub struct Masker {
    needles: Vec<Needle>,
    /// By the first byte of the first character.
    starts: HashMap<u8, Vec<usize>>,
}

impl Masker {
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Masker {
        let mut masker = Masker::default();
        for secret in secrets.into_iter().filter(|secret| !secret.is_empty()) {
            masker.add(plain(secret));
            if crate::faults::planted("mask_raw_only") {
                continue;
            }
            if secret.trim() != secret && !secret.trim().is_empty() {
                masker.add(plain(secret.trim()));
            }
            masker.add(hex(secret));
            (0..3).for_each(|before| masker.add(base64(secret.as_bytes(), before)));
        }
        masker
    }

    fn add(&mut self, needle: Needle) {
        let Some(first) = needle.units.first() else { return };
        let mut bytes = first.map(first_byte).to_vec();
        bytes.dedup();
        bytes.into_iter().for_each(|byte| self.starts.entry(byte).or_default().push(self.needles.len()));
        self.needles.push(needle);
    }

    /// The text with `***` for each secret in it.
    pub fn text(&self, text: &str) -> String {
        let found = self.found(text.as_bytes());
        let (mut out, mut at) = (String::new(), 0);
        for (start, end) in found {
            out += &text[at..start];
            out += MASK;
            at = end;
        }
        out + &text[at..]
    }

    /// Where secrets stand, in order; what touches is one.
    fn found(&self, text: &[u8]) -> Vec<(usize, usize)> {
        let mut found: Vec<(usize, usize)> = Vec::new();
        if self.needles.is_empty() {
            return found;
        }
        for at in 0..text.len() {
            let Some((start, end)) = self.longest(text, at) else { continue };
            match found.last_mut() {
                Some(last) if start <= last.1 => *last = (last.0.min(start), last.1.max(end)),
                _ => found.push((start, end)),
            }
        }
        found
    }

    fn longest(&self, text: &[u8], at: usize) -> Option<(usize, usize)> {
        let begins = beginnings(text, at);
        let needles = begins.into_iter().flatten().filter_map(|byte| self.starts.get(&byte)).flatten();
        let ends = needles.filter_map(|needle| self.needles[*needle].matches(text, at));
        ends.max_by_key(|(start, end)| end - start)
    }
}

/// A JSON value without secrets: in texts, in names, and in numbers that read like one.
pub fn masked(masker: &Masker, value: Value) -> Value {
    match value {
        _ if masker.needles.is_empty() => value,
        Value::String(text) => masker.text(&text).into(),
        Value::Number(number) => match masker.text(&number.to_string()) {
            text if text == number.to_string() => Value::Number(number),
            text => text.into(),
        },
        Value::Array(items) => items.into_iter().map(|item| masked(masker, item)).collect(),
        Value::Object(map) => {
            let mut out = Map::new();
            for (key, item) in map {
                let mut key = masker.text(&key);
                while out.contains_key(&key) {
                    key.push('*');
                }
                out.insert(key, masked(masker, item));
            }
            out.into()
        }
        other => other,
    }
}

fn plain(secret: &str) -> Needle {
    let mut units: Vec<Unit> = secret.chars().map(|c| [c, c]).collect();
    // A run of backslashes is as long as the escaping around it makes it.
    units.dedup_by(|one, before| one[0] == '\\' && before[0] == '\\');
    Needle { units, breaks: false, edges: [false; 2] }
}

fn hex(secret: &str) -> Needle {
    let digits = model::id::hex(secret.as_bytes());
    let units = digits.chars().map(|c| [c, c.to_ascii_uppercase()]).collect();
    Needle { units, breaks: false, edges: [false; 2] }
}

/// What of the base64 of a longer text depends on the secret alone, when `before` bytes (modulo 3) stand before it.
fn base64(secret: &[u8], before: usize) -> Needle {
    let bytes: Vec<u8> = std::iter::repeat_n(0, before).chain(secret.iter().copied()).collect();
    let bits = bytes.len() * 8;
    let (first, last) = ((before * 8).div_ceil(6), bits / 6);
    let digit = |at: usize| {
        let word = |at: usize| u32::from(bytes.get(at).copied().unwrap_or(0));
        let (byte, shift) = (at * 6 / 8, at * 6 % 8);
        BASE64[((word(byte) << 8 | word(byte + 1)) >> (10 - shift)) as usize & 63] as char
    };
    let unit = |c: char| match c {
        '+' => ['+', '-'],
        '/' => ['/', '_'],
        c => [c, c],
    };
    let units = (first..last).map(|at| unit(digit(at))).collect();
    Needle { units, breaks: true, edges: [before > 0, !bits.is_multiple_of(6)] }
}

impl Needle {
    /// The longest stretch from `at` on that says it.
    fn matches(&self, text: &[u8], at: usize) -> Option<(usize, usize)> {
        let (mut here, mut next) = (vec![at], Vec::new());
        for (number, unit) in self.units.iter().enumerate() {
            for at in &here {
                let from = if self.breaks && number > 0 { after_breaks(text, *at) } else { *at };
                ends(unit[0], text, from, &mut next);
                if unit[1] != unit[0] {
                    ends(unit[1], text, from, &mut next);
                }
            }
            next.sort_unstable();
            next.dedup();
            std::mem::swap(&mut here, &mut next);
            next.clear();
            if here.is_empty() {
                return None;
            }
        }
        let end = here.into_iter().max()?;
        let is_digit =
            |at: usize| text.get(at).is_some_and(|byte| BASE64.contains(byte) || b"-_".contains(byte));
        let start = at - usize::from(self.edges[0] && at > 0 && is_digit(at - 1));
        Some((start, end + usize::from(self.edges[1] && is_digit(end))))
    }
}

fn after_breaks(text: &[u8], mut at: usize) -> usize {
    loop {
        match text.get(at..) {
            Some([b'\r' | b'\n', ..]) => at += 1,
            Some([b'\\', b'r' | b'n', ..]) => at += 2,
            _ => return at,
        }
    }
}

/// Every end of this character when it begins at `at`, however it is written there.
fn ends(wanted: char, text: &[u8], at: usize, into: &mut Vec<usize>) {
    if wanted == '\\' {
        return into.extend(backslash_ends(text, at));
    }
    let mut buffer = [0; 4];
    let bytes = wanted.encode_utf8(&mut buffer).as_bytes();
    let Some(rest) = text.get(at..) else { return };
    if rest.starts_with(bytes) {
        into.push(at + bytes.len());
    }
    match rest.first() {
        Some(b'+') if wanted == ' ' => into.push(at + 1),
        Some(b'%') => {
            let coded = rest.chunks(3).take(bytes.len()).map(percent);
            if coded.eq(bytes.iter().map(|byte| Some(*byte))) {
                into.push(at + 3 * bytes.len());
            }
        }
        Some(b'\\') => escaped(wanted, text, at, into),
        _ => {}
    }
}

/// Backslashes, as many as there are: how many of them the secret has depends on how often they were escaped.
fn backslash_ends(text: &[u8], mut at: usize) -> Vec<usize> {
    let mut ends = Vec::new();
    while let Some(rest) = text.get(at..).filter(|_| ends.len() < BACKSLASHES_MAX) {
        at += match rest {
            [b'\\', ..] => 1,
            [b'%', ..] if percent(&rest[..rest.len().min(3)]) == Some(b'\\') => 3,
            _ => break,
        };
        ends.push(at);
    }
    ends
}

/// `\"`, `\n`, `\u0022`, with one backslash or more.
fn escaped(wanted: char, text: &[u8], at: usize, into: &mut Vec<usize>) {
    let run = backslashes(text, at);
    for many in 1..=run {
        let at = at + many;
        match text.get(at) {
            Some(letter) if short(*letter) == Some(wanted) => into.push(at + 1),
            Some(b'u') => into.extend(coded(text, at).filter(|(c, _)| *c == wanted).map(|(_, end)| end)),
            _ => {}
        }
    }
}

fn backslashes(text: &[u8], at: usize) -> usize {
    text[at..].iter().take(BACKSLASHES_MAX).take_while(|byte| **byte == b'\\').count()
}

/// What a letter after a backslash stands for.
fn short(letter: u8) -> Option<char> {
    Some(match letter {
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'"' | b'/' | b'\'' => letter as char,
        _ => return None,
    })
}

/// The character of `uXXXX`, or of two of them, and where it ends.
fn coded(text: &[u8], at: usize) -> Option<(char, usize)> {
    let four = |at: usize| {
        let digits = std::str::from_utf8(text.get(at + 1..at + 5)?).ok()?;
        u16::from_str_radix(digits, 16).ok().filter(|_| text.get(at) == Some(&b'u'))
    };
    let first = four(at)?;
    if let Some(c) = char::from_u32(first.into()) {
        return Some((c, at + 5));
    }
    let run = text.get(at + 5..).map_or(0, |_| backslashes(text, at + 5));
    let second = four(at + 5 + run).filter(|_| run > 0)?;
    let c = char::decode_utf16([first, second]).next()?.ok()?;
    Some((c, at + 10 + run))
}

fn percent(coded: &[u8]) -> Option<u8> {
    let [b'%', digits @ ..] = coded else { return None };
    let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.len() == 2)?;
    u8::from_str_radix(digits, 16).ok()
}

fn first_byte(c: char) -> u8 {
    let mut buffer = [0; 4];
    c.encode_utf8(&mut buffer).as_bytes()[0]
}

/// First bytes of the characters that what stands at `at` may be.
fn beginnings(text: &[u8], at: usize) -> [Option<u8>; 2] {
    let byte = text[at];
    let other = match byte {
        b'+' => Some(b' '),
        b'%' => percent(text.get(at..at + 3).unwrap_or_default()),
        b'\\' => {
            let after = at + backslashes(text, at);
            let letter = text.get(after).copied();
            let long = coded(text, after).map(|(c, _)| first_byte(c));
            long.or_else(|| letter.and_then(short).map(first_byte))
        }
        _ => None,
    };
    [Some(byte), other.filter(|other| *other != byte)]
}

#[cfg(test)]
mod tests;
