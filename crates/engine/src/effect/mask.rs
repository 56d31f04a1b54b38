//! Takes the values of secrets out of a text, in whatever form the other side may have put them: as they are, in hex, in
//! base64, all of this in UTF-16, too, and each of these escaped for JSON, a URL or HTML, also twice or by halves.
//!
//! ```text
//!  text      …%22k=p%2Bss\\u0022…          every place is tried: a unit of a needle is one character,
//!  needle        p  +  s  s  "             and each has several ways to be written (`escape.rs`)
//! ```
//! What overlaps is masked as one, so that no end of a secret stays beside another. A body is masked when all of it is there:
//! where it was cut on its way does not matter.

mod entity;
mod escape;

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value};

use crate::entity::MASK;
use escape::{after_breaks, beginnings, ends, first_byte};

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

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

/// What is used at every place, and made once.
#[derive(Default)]
struct Desk {
    begins: Vec<u8>,
    here: Vec<usize>,
    next: Vec<usize>,
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
            masker.add_coded(secret.as_bytes());
            for wide in wide(secret) {
                masker.add(plain(&String::from_utf8_lossy(&wide)));
                masker.add_coded(&wide);
            }
        }
        masker
    }

    /// In hex and in base64, wherever in a longer text that begins.
    fn add_coded(&mut self, bytes: &[u8]) {
        self.add(hex(bytes));
        (0..3).for_each(|before| self.add(base64(bytes, before)));
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
        let mut desk = Desk::default();
        for at in 0..text.len() {
            let Some((start, end)) = self.longest(text, at, &mut desk) else { continue };
            match found.last_mut() {
                Some(last) if start <= last.1 => *last = (last.0.min(start), last.1.max(end)),
                _ => found.push((start, end)),
            }
        }
        found
    }

    fn longest(&self, text: &[u8], at: usize, desk: &mut Desk) -> Option<(usize, usize)> {
        let Desk { begins, here, next } = desk;
        beginnings(text, at, begins);
        let needles = begins.iter().filter_map(|byte| self.starts.get(byte)).flatten();
        let ends = needles.filter_map(|needle| self.needles[*needle].matches(text, at, (here, next)));
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

/// UTF-16 from the first byte that says something to the last: of ASCII the same whichever byte of a pair comes first.
fn wide(secret: &str) -> BTreeSet<Vec<u8>> {
    let orders: [fn(u16) -> [u8; 2]; 2] = [u16::to_le_bytes, u16::to_be_bytes];
    let core = |order: fn(u16) -> [u8; 2]| {
        let bytes: Vec<u8> = secret.encode_utf16().flat_map(order).collect();
        let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(0);
        let last = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
        bytes[first..=last].to_vec()
    };
    orders.into_iter().map(core).collect()
}

fn hex(secret: &[u8]) -> Needle {
    let digits = model::id::hex(secret);
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
    fn matches(
        &self,
        text: &[u8],
        at: usize,
        (here, next): (&mut Vec<usize>, &mut Vec<usize>),
    ) -> Option<(usize, usize)> {
        here.clear();
        here.push(at);
        next.clear();
        for (number, unit) in self.units.iter().enumerate() {
            for at in here.iter() {
                let from = if self.breaks && number > 0 { after_breaks(text, *at) } else { *at };
                ends(unit[0], text, from, next);
                if unit[1] != unit[0] {
                    ends(unit[1], text, from, next);
                }
            }
            next.sort_unstable();
            next.dedup();
            std::mem::swap(here, next);
            next.clear();
            if here.is_empty() {
                return None;
            }
        }
        let end = here.iter().copied().max()?;
        let is_digit =
            |at: usize| text.get(at).is_some_and(|byte| BASE64.contains(byte) || b"-_".contains(byte));
        let start = at - usize::from(self.edges[0] && at > 0 && is_digit(at - 1));
        Some((start, end + usize::from(self.edges[1] && is_digit(end))))
    }
}

#[cfg(test)]
mod tests;
