//! Walks over the text of a line in the one layout our writer makes; finds where values end, without
//! reading them.

use super::Bad;
use crate::chain::is_hex;

/// A place in a line. Every step either moves past what it was asked for or says where it was not.
#[derive(Clone, Copy)]
pub(super) struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    pub fn new(text: &'a str) -> Scan<'a> {
        Scan { text, at: 0 }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    pub fn finish(&mut self) {
        self.at = self.text.len();
    }

    pub fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub fn bad(&self) -> Bad {
        Bad::Shape { at: self.at }
    }

    /// Moves past `expected` if it stands here.
    pub fn skip(&mut self, expected: &str) -> bool {
        let found = self.text.as_bytes()[self.at..].starts_with(expected.as_bytes());
        self.at += if found { expected.len() } else { 0 };
        found
    }

    pub fn literal(&mut self, expected: &str) -> Result<(), Bad> {
        if self.skip(expected) { Ok(()) } else { Err(self.bad()) }
    }

    pub fn number(&mut self) -> Result<u64, Bad> {
        let digits = self.text.as_bytes()[self.at..].iter().take_while(|b| b.is_ascii_digit()).count();
        let number = self.text[self.at..self.at + digits].parse().map_err(|_| self.bad())?;
        self.at += digits;
        Ok(number)
    }

    /// The text up to the next quote, which it also passes. Our own words have no escapes.
    pub fn word(&mut self) -> Result<&'a str, Bad> {
        let len = memchr::memchr2(b'"', b'\\', self.rest().as_bytes()).ok_or(self.bad())?;
        let word = &self.text[self.at..self.at + len];
        self.at += len;
        self.literal("\"")?;
        Ok(word)
    }

    /// `len` lower-case hex digits and a quote.
    pub fn hex(&mut self, len: usize) -> Result<&'a str, Bad> {
        let start = *self;
        let word = self.word()?;
        if word.len() == len && is_hex(word) { Ok(word) } else { Err(start.bad()) }
    }

    /// Any JSON value: moves to its end by matching quotes and brackets. It does not judge the value;
    /// hashes do.
    pub fn value(&mut self) -> Result<&'a str, Bad> {
        let start = self.at;
        let end = model::json::value_end(self.text.as_bytes(), start).ok_or(self.bad())?;
        self.at = end;
        self.text.get(start..end).ok_or(Bad::Shape { at: start })
    }
}
