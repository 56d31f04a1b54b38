//! One pass over JSON bytes with its own small stack: grammar, depth, duplicate keys, surrogates, number
//! range.

use std::borrow::Cow;
use std::collections::HashSet;

use super::text::{hex4, next_special, unescape};
use super::{Field, Outline};
use crate::{Code, Problem};

/// An object with more keys than this compares them by hash instead of one by one.
const LINEAR_MAX: usize = 16;

/// A number with more digits than this before its point may be too large for a double (which ends near
/// 1.8e308).
const PLAIN_DIGITS_MAX: usize = 300;

pub(super) struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    depth_max: usize,
    open: Vec<Open<'a>>,
    /// The keys so far of every open object as written, outermost first; each [`Open`] knows where its own
    /// begin.
    keys: Vec<&'a str>,
    /// The first key that stands twice: told only of what is JSON to its end.
    twice: Option<Box<Problem>>,
}

/// An object or array whose end has not come yet.
struct Open<'a> {
    is_object: bool,
    keys_from: usize,
    elements: usize,
    /// Whether a key of this object has escapes, so that keys must be compared by what they mean.
    escaped: bool,
    /// The same keys again, unescaped, once there are many.
    #[expect(clippy::box_collection, reason = "rarely there, and moved with every bracket")]
    set: Option<Box<HashSet<Cow<'a, str>>>>,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(bytes: &'a [u8], depth_max: usize) -> Result<Scanner<'a>, Problem> {
        let text = std::str::from_utf8(bytes).map_err(|err| {
            invalid(err.valid_up_to(), "a byte is not UTF-8").hint("send the body as UTF-8")
        })?;
        if text.starts_with('\u{feff}') {
            return Err(
                invalid(0, "a byte order mark stands before the value").hint("remove the first three bytes")
            );
        }
        Ok(Scanner {
            text,
            bytes,
            at: 0,
            depth_max,
            open: Vec::with_capacity(8),
            keys: Vec::with_capacity(16),
            twice: None,
        })
    }

    /// Reads the one value. `outlined`: also notes the parts of the outermost one.
    pub(super) fn run(mut self, outlined: bool) -> Result<Outline<'a>, Problem> {
        self.skip_space();
        let start = self.at;
        let (mut parts, mut part_start) = (Vec::new(), 0);
        loop {
            if self.open.len() == 1 {
                part_start = self.at;
            }
            let mut more = self.begin_value()?;
            while !more {
                if self.open.len() == 1 && outlined {
                    parts.push(&self.text[part_start..self.at]);
                }
                if self.open.is_empty() {
                    let whole = &self.text[start..self.at];
                    return self.end(whole, parts);
                }
                more = self.after_value()?;
            }
        }
    }

    fn end(mut self, whole: &'a str, parts: Vec<&'a str>) -> Result<Outline<'a>, Problem> {
        self.skip_space();
        if self.at < self.bytes.len() {
            return Err(invalid(self.at, "something follows the value").hint("send one JSON value"));
        }
        if let Some(twice) = self.twice {
            return Err(*twice);
        }
        Ok(match whole.as_bytes().first() {
            Some(b'{') => {
                let fields =
                    self.keys.iter().zip(parts).map(|(key, value)| Field { key: unescape(key), value });
                Outline::Object(fields.collect())
            }
            Some(b'[') => Outline::Array(parts),
            _ => Outline::Scalar(whole),
        })
    }

    /// Reads a scalar, or goes into a container. True: the next thing is a value again.
    fn begin_value(&mut self) -> Result<bool, Problem> {
        match self.bytes.get(self.at) {
            Some(b'"') => self.string().map(|_| false),
            Some(b'{') => self.enter(true),
            Some(b'[') => self.enter(false),
            Some(b'-' | b'0'..=b'9') => self.number().map(|()| false),
            Some(b't') => self.word("true").map(|()| false),
            Some(b'f') => self.word("false").map(|()| false),
            Some(b'n') => self.word("null").map(|()| false),
            _ => Err(self.unexpected("a value")),
        }
    }

    fn enter(&mut self, is_object: bool) -> Result<bool, Problem> {
        if self.open.len() >= self.depth_max {
            let what = format!("nested deeper than {} levels", self.depth_max);
            return Err(invalid(self.at, &what).hint("flatten the value"));
        }
        self.at += 1;
        self.skip_space();
        let close = if is_object { b'}' } else { b']' };
        let keys_from = self.keys.len();
        if self.bytes.get(self.at) == Some(&close) {
            self.at += 1;
            return Ok(false);
        }
        self.open.push(Open { is_object, keys_from, elements: 0, escaped: false, set: None });
        if is_object {
            self.key()?;
        }
        Ok(true)
    }

    /// Reads `,` and what must come before the next value, or leaves the container. True: a value comes next.
    fn after_value(&mut self) -> Result<bool, Problem> {
        self.skip_space();
        let open = self.open.last_mut().expect("only called inside a container");
        match (self.bytes.get(self.at), open.is_object) {
            (Some(b','), is_object) => {
                open.elements += 1;
                self.at += 1;
                self.skip_space();
                if is_object {
                    self.key()?;
                }
                Ok(true)
            }
            (Some(b'}'), true) | (Some(b']'), false) => {
                let keys_from = open.keys_from;
                self.at += 1;
                self.open.pop();
                // The outermost object's keys stay for the outline.
                if !self.open.is_empty() {
                    self.keys.truncate(keys_from);
                }
                Ok(false)
            }
            (_, true) => Err(self.unexpected("\",\" or \"}\"")),
            (_, false) => Err(self.unexpected("\",\" or \"]\"")),
        }
    }

    fn key(&mut self) -> Result<(), Problem> {
        if self.bytes.get(self.at) != Some(&b'"') {
            return Err(self.unexpected("a key in double quotes"));
        }
        let (key, escaped) = self.string()?;
        self.admit(key, escaped);
        self.skip_space();
        if self.bytes.get(self.at) != Some(&b':') {
            return Err(self.unexpected("\":\""));
        }
        self.at += 1;
        self.skip_space();
        Ok(())
    }

    fn admit(&mut self, key: &'a str, escaped: bool) {
        let open = self.open.last_mut().expect("a key is read inside an object");
        let known = &self.keys[open.keys_from..];
        open.escaped |= escaped;
        let twice = match &mut open.set {
            Some(set) => !set.insert(unescape(key)),
            None if known.len() >= LINEAR_MAX => {
                let set = open.set.insert(Box::new(known.iter().map(|key| unescape(key)).collect()));
                !set.insert(unescape(key))
            }
            None if open.escaped => known.iter().any(|other| unescape(other) == unescape(key)),
            None => known.contains(&key),
        };
        self.keys.push(key);
        if twice && self.twice.is_none() {
            self.twice = Some(Box::new(self.duplicate()));
        }
    }

    #[cold]
    fn duplicate(&self) -> Problem {
        let key = self.keys.last().map(|key| unescape(key)).unwrap_or_default();
        let pointer = self.pointer();
        Problem::new(
            Code::JsonDuplicateKey,
            format!("the key {key:?} stands twice in one object, at \"{pointer}\""),
        )
        .hint("keep one of the two")
        .at(pointer)
        .with("offset", self.at)
    }

    /// Where the scanner is: the key just read in each open object, the element number in each open array.
    fn pointer(&self) -> String {
        let ends = self.open.iter().skip(1).map(|open| open.keys_from).chain([self.keys.len()]);
        let mut out = String::new();
        for (open, keys_to) in self.open.iter().zip(ends) {
            out.push('/');
            match open.is_object.then(|| unescape(self.keys[keys_to - 1])) {
                Some(key) => out.push_str(&key.replace('~', "~0").replace('/', "~1")),
                None => out.push_str(&open.elements.to_string()),
            }
        }
        out
    }

    /// Reads a string; gives its inside as written and whether it has escapes.
    #[inline]
    fn string(&mut self) -> Result<(&'a str, bool), Problem> {
        let start = self.at + 1;
        let mut escaped = false;
        self.at = start;
        loop {
            self.at = next_special(self.bytes, self.at);
            match self.bytes.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok((&self.text[start..self.at - 1], escaped));
                }
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                Some(_) => {
                    return Err(invalid(self.at, "a control character stands bare in a string")
                        .hint("write it as an escape, such as \\n"));
                }
                None => return Err(invalid(self.at, "the text ends inside a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), Problem> {
        match self.bytes.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
            Some(b'u') => {
                let Some(code) = hex4(self.bytes, self.at + 2) else {
                    return Err(invalid(self.at, "\"\\u\" needs four hexadecimal digits"));
                };
                let low = || {
                    let follows = self.bytes.get(self.at + 6..self.at + 8) == Some(b"\\u");
                    follows.then(|| hex4(self.bytes, self.at + 8)).flatten()
                };
                self.at += match code {
                    0xd800..0xdc00 if low().is_some_and(|low| (0xdc00..0xe000).contains(&low)) => 12,
                    0xd800..0xe000 => {
                        return Err(invalid(self.at, "half a surrogate pair stands alone")
                            .hint("write the character itself, or both halves"));
                    }
                    _ => 6,
                };
            }
            Some(_) => {
                return Err(invalid(self.at, "no such escape").hint("a backslash itself is written \\\\"));
            }
            None => return Err(invalid(self.at + 1, "the text ends inside a string")),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), Problem> {
        let start = self.at;
        if self.bytes[self.at] == b'-' {
            self.at += 1;
        }
        let digits = match self.bytes.get(self.at) {
            Some(b'0') => {
                self.at += 1;
                1
            }
            _ => self.digits()?,
        };
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        let exponent = matches!(self.bytes.get(self.at), Some(b'e' | b'E'));
        if exponent {
            self.at += 1;
            if matches!(self.bytes.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        if exponent || digits > PLAIN_DIGITS_MAX {
            let number: f64 = self.text[start..self.at].parse().unwrap_or(f64::INFINITY);
            if number.is_infinite() {
                return Err(
                    invalid(start, "the number is too large for a double").hint("send it as a string")
                );
            }
        }
        Ok(())
    }

    /// One digit or more.
    fn digits(&mut self) -> Result<usize, Problem> {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        if self.at == start { Err(self.unexpected("a digit")) } else { Ok(self.at - start) }
    }

    fn word(&mut self, word: &str) -> Result<(), Problem> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(self.unexpected("a value"));
        }
        self.at += word.len();
        Ok(())
    }

    #[inline]
    fn skip_space(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn unexpected(&self, wanted: &str) -> Problem {
        match self.text[self.at..].chars().next() {
            Some(c) => invalid(self.at, &format!("expected {wanted}, found {:?}", c.to_string())),
            None if self.bytes.iter().all(u8::is_ascii_whitespace) => invalid(self.at, "there is no value"),
            None => invalid(self.at, &format!("the text ends where {wanted} should be")),
        }
    }
}

fn invalid(offset: usize, what: &str) -> Problem {
    Problem::new(Code::JsonInvalid, format!("{what}, at byte {offset}")).with("offset", offset)
}
