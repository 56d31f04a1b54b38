//! Cutting a stream of bytes into numbered lines, each of a bounded length.

use bytes::{Bytes, BytesMut};
use model::Problem;

use crate::body::too_large;

/// What has arrived and is not yet taken as a line.
pub struct Lines {
    line_bytes_max: usize,
    buffer: BytesMut,
    /// Bytes at the front of `buffer` that hold no newline.
    searched: usize,
    /// Lines begun so far, blank ones included.
    number: u64,
    /// The rest of a line that was too long and is thrown away as it arrives.
    skipping: bool,
    at_end: bool,
}

impl Lines {
    pub fn new(line_bytes_max: usize) -> Lines {
        let buffer = BytesMut::new();
        Lines { line_bytes_max, buffer, searched: 0, number: 0, skipping: false, at_end: false }
    }

    pub fn push(&mut self, part: &[u8]) {
        self.buffer.extend_from_slice(part);
    }

    /// Nothing more will come: what is left is the last line, even without a newline.
    pub fn end(&mut self) {
        self.at_end = true;
    }

    /// The number of the last line that was begun and taken.
    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn ended(&self) -> bool {
        self.at_end && self.buffer.is_empty()
    }

    /// The next whole line that is not blank, with its number from 1; `body.too_large` in place of one too
    /// long.
    pub fn next(&mut self) -> Option<(u64, Result<Bytes, Problem>)> {
        loop {
            let (line, whole) = self.cut()?;
            if self.skipping {
                self.skipping = !whole;
                continue;
            }
            self.number += 1;
            if line.len() > self.line_bytes_max {
                self.skipping = !whole;
                return Some((self.number, Err(too_large(self.line_bytes_max))));
            }
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Some((self.number, Ok(line)));
            }
        }
    }

    /// Takes bytes up to a newline, or all of them when they are the last or already too many; and whether
    /// the line is whole with that.
    fn cut(&mut self) -> Option<(Bytes, bool)> {
        let newline =
            self.buffer[self.searched..].iter().position(|b| *b == b'\n').map(|i| i + self.searched);
        self.searched = 0;
        if let Some(at) = newline {
            let mut line = self.buffer.split_to(at + 1).freeze();
            line.truncate(at);
            return Some((line, true));
        }
        let length = self.buffer.len();
        if length > self.line_bytes_max || (self.at_end && length > 0) {
            return Some((self.buffer.split().freeze(), self.at_end));
        }
        self.searched = length;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parts: &[&str], line_bytes_max: usize) -> Vec<(u64, Result<String, &'static str>)> {
        let mut lines = Lines::new(line_bytes_max);
        let mut out = Vec::new();
        let mut take = |lines: &mut Lines| {
            while let Some((number, line)) = lines.next() {
                let line =
                    line.map(|l| String::from_utf8(l.to_vec()).unwrap()).map_err(|p| p.code().as_str());
                out.push((number, line));
            }
        };
        for part in parts {
            lines.push(part.as_bytes());
            take(&mut lines);
        }
        lines.end();
        take(&mut lines);
        assert!(lines.ended());
        out
    }

    #[test]
    fn lines_are_the_same_however_the_bytes_arrive() {
        let text = "one\n\n  \r\ntwo\r\nthree";
        let whole = read(&[text], 10);
        assert_eq!(whole, [(1, Ok("one".into())), (4, Ok("two\r".into())), (5, Ok("three".into()))]);
        for at in 0..text.len() {
            let (a, b) = text.split_at(at);
            assert_eq!(read(&[a, b], 10), whole, "{at}");
        }
        let bytes: Vec<&str> = text.split("").collect();
        assert_eq!(read(&bytes, 10), whole);
    }

    #[test]
    fn a_line_that_is_too_long_is_refused_once_and_the_next_is_read() {
        let want = [(1, Ok("ok".into())), (2, Err("body.too_large")), (3, Ok("fine".into()))];
        assert_eq!(read(&["ok\n123456789\nfine\n"], 5), want);
        assert_eq!(read(&["ok\n123", "456", "789", "012", "\nfine"], 5), want);
        assert_eq!(read(&["123456"], 5), [(1, Err("body.too_large"))]);
    }
}
