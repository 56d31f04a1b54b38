//! Reads lines back: every reader of the ledger, from recovery to a live stream, takes commits apart here.

mod scan;
#[cfg(test)]
mod tests;

use std::fmt;

use model::Position;
use serde_json::value::RawValue;

use crate::chain::{Chain, body_digest, unhex};
use scan::Scan;

/// A commit, borrowed from its bytes. Its shape was checked, its hashes were not: see [`Line::fits`] and
/// [`Line::bad_body`].
#[derive(Clone, Debug)]
pub struct Line<'a> {
    pub first: Position,
    /// RFC 3339.
    pub time: &'a str,
    /// The last position known durable when the line was written.
    pub synced: Position,
    pub chain: Chain,
    covered: &'a str,
    /// At least one.
    records: Vec<RecordRef<'a>>,
}

#[derive(Clone, Copy, Debug)]
pub struct RecordRef<'a> {
    pub position: Position,
    pub kind: &'a str,
    pub version: u32,
    pub data: Json<'a>,
    /// The 64 hex digits of `x`; there exactly when there is a body.
    pub digest: Option<&'a str>,
    pub body: Option<BodyRef<'a>>,
    /// 32 hex digits; there when the body is not erased.
    pub salt: Option<&'a str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyRef<'a> {
    Erased,
    Json(Json<'a>),
}

/// JSON text inside a line, as it stands. Only hashes vouch for it, so reading it may fail on a line that
/// was not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Json<'a>(&'a str);

impl<'a> Json<'a> {
    pub fn get(self) -> &'a str {
        self.0
    }

    /// The same text as serde's type; this reads through the value once.
    pub fn raw(self) -> serde_json::Result<&'a RawValue> {
        serde_json::from_str(self.0)
    }
}

/// Why a line is not the one that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// Not a line in our layout, from this byte on.
    Shape {
        at: usize,
    },
    /// A good line of another place.
    Position {
        expected: Position,
        found: Position,
    },
    Chain,
    /// The body at this position does not match its digest.
    Body {
        position: Position,
    },
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bad::Shape { at } => write!(f, "the line does not read from its byte {at} on"),
            Bad::Position { expected, found } => {
                write!(f, "position {expected} was due, the line says {found}")
            }
            Bad::Chain => f.write_str("the chain does not fit"),
            Bad::Body { position } => write!(f, "the body at position {position} does not match its digest"),
        }
    }
}

/// The lines in `bytes`, without their newlines; blank ones are passed over.
pub fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let start = rest.iter().position(|b| *b != b'\n')?;
        let end = memchr::memchr(b'\n', &rest[start..]).map_or(rest.len(), |len| start + len);
        let line = &rest[start..end];
        rest = &rest[end..];
        Some(line)
    })
}

/// Takes a line apart, with or without its newline. Checks the layout, no hash.
pub fn parse(line: &[u8]) -> Result<Line<'_>, Bad> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let text = std::str::from_utf8(line).map_err(|err| Bad::Shape { at: err.valid_up_to() })?;
    // An erased body leaves the line shorter than its place in the file; spaces make up for it.
    let text = text.trim_end_matches(' ');
    let mut scan = Scan::new(text);
    scan.literal("{\"p\":")?;
    let first = scan.number()?;
    scan.literal(",\"t\":\"")?;
    let time = scan.word()?;
    scan.literal(",\"s\":")?;
    let synced = scan.number()?;
    scan.literal(",\"r\":[")?;
    let mut records = read_records(&mut scan, first)?;
    scan.literal("]")?;
    let covered = &text[..scan.at()];
    scan.literal(",\"chain\":\"")?;
    let chain = Chain::parse(scan.hex(64)?).ok_or(scan.bad())?;
    scan.literal(",\"b\":[")?;
    let bodies = scan.rest().strip_suffix("]}").ok_or(scan.bad())?;
    read_bodies(bodies, &mut records).map_err(|_| scan.bad())?;
    Ok(Line { first, time, synced, chain, covered, records })
}

/// Whether `line` is sound and follows `prev`; answers with the chain after it.
pub fn check(line: &[u8], prev: Chain) -> Result<Chain, Bad> {
    let line = parse(line)?;
    if !line.fits(prev) {
        return Err(Bad::Chain);
    }
    line.bad_body().map_or(Ok(line.chain), |position| Err(Bad::Body { position }))
}

/// The position a line begins with, from its first bytes only.
pub(crate) fn peek_position(bytes: &[u8]) -> Option<Position> {
    let rest = bytes.strip_prefix(b"{\"p\":")?;
    let digits = rest.iter().position(|b| !b.is_ascii_digit())?;
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

impl<'a> Line<'a> {
    /// The position of its last record.
    pub fn last(&self) -> Position {
        self.first.saturating_add(self.records.len() as u64 - 1)
    }

    /// In order; at least one.
    pub fn records(&self) -> std::slice::Iter<'_, RecordRef<'a>> {
        self.records.iter()
    }

    /// The bytes in front of its bodies: everything up to and with `"b":[`.
    pub(crate) fn len_before_bodies(&self) -> usize {
        self.covered.len() + ",\"chain\":\"".len() + 64 + "\",\"b\":[".len()
    }

    /// Whether its chain is what follows from `prev`.
    pub fn fits(&self, prev: Chain) -> bool {
        prev.after(self.covered.as_bytes()) == self.chain
    }

    /// The position of the first body that does not match its digest.
    pub fn bad_body(&self) -> Option<Position> {
        self.records.iter().find(|record| !record.body_fits()).map(|record| record.position)
    }
}

impl RecordRef<'_> {
    fn body_fits(&self) -> bool {
        let (Some(BodyRef::Json(json)), Some(salt), Some(digest)) = (self.body, self.salt, self.digest)
        else {
            return true;
        };
        let digest = unhex(digest);
        unhex(salt).is_some_and(|salt| Some(body_digest(&salt, json.0.as_bytes())) == digest)
    }
}

/// All records, their bodies still missing.
fn read_records<'a>(scan: &mut Scan<'a>, first: Position) -> Result<Vec<RecordRef<'a>>, Bad> {
    let mut records = Vec::with_capacity(1);
    loop {
        let position = first.saturating_add(records.len() as u64);
        records.push(RecordRef { position, ..read_record(scan)? });
        if !scan.skip(",") {
            return Ok(records);
        }
    }
}

/// Gives each record that has a digest its body.
fn read_bodies<'a>(bodies: &'a str, records: &mut [RecordRef<'a>]) -> Result<(), Bad> {
    let mut scan = Scan::new(bodies);
    let mut left = records.iter().filter(|record| record.digest.is_some()).count();
    for record in records.iter_mut().filter(|record| record.digest.is_some()) {
        left -= 1;
        (record.body, record.salt) = match left {
            0 => read_last_body(&mut scan)?,
            _ => read_body(&mut scan)?,
        };
        if left > 0 {
            scan.literal(",")?;
        }
    }
    if scan.rest().is_empty() { Ok(()) } else { Err(scan.bad()) }
}

fn read_record<'a>(scan: &mut Scan<'a>) -> Result<RecordRef<'a>, Bad> {
    scan.literal("{\"k\":\"")?;
    let kind = scan.word()?;
    scan.literal(",\"v\":")?;
    let version = u32::try_from(scan.number()?).map_err(|_| scan.bad())?;
    scan.literal(",\"d\":")?;
    let data = Json(scan.value()?);
    let digest = if scan.skip(",\"x\":\"") { Some(scan.hex(64)?) } else { None };
    scan.literal("}")?;
    Ok(RecordRef { position: 0, kind, version, data, digest, body: None, salt: None })
}

type Body<'a> = (Option<BodyRef<'a>>, Option<&'a str>);

fn read_body<'a>(scan: &mut Scan<'a>) -> Result<Body<'a>, Bad> {
    if scan.skip("\"erased\"") {
        return Ok((Some(BodyRef::Erased), None));
    }
    scan.literal("{\"s\":\"")?;
    let salt = scan.hex(32)?;
    scan.literal(",\"p\":")?;
    let json = Json(scan.value()?);
    scan.literal("}")?;
    Ok((Some(BodyRef::Json(json)), Some(salt)))
}

/// The last body of a line ends where the list ends: no need to look through it.
fn read_last_body<'a>(scan: &mut Scan<'a>) -> Result<Body<'a>, Bad> {
    if scan.rest() == "\"erased\"" {
        return read_body(scan);
    }
    scan.literal("{\"s\":\"")?;
    let salt = scan.hex(32)?;
    scan.literal(",\"p\":")?;
    let json = scan.rest().strip_suffix('}').ok_or(scan.bad())?;
    scan.finish();
    Ok((Some(BodyRef::Json(Json(json))), Some(salt)))
}
