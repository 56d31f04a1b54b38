//! Forms the lines of one batch in memory, between `decide` and the append. Pure: time and salts are handed
//! in.

use std::sync::Arc;

use model::digits::digits;
use model::{Position, Timestamp};

use crate::chain::{Chain, Head, body_digest, push_hex};

/// A record that has been decided and not yet written.
#[derive(Clone, Debug)]
pub struct NewRecord {
    pub kind: &'static str,
    pub version: u32,
    /// The JSON text of `d`, without newlines.
    pub data: Vec<u8>,
    pub body: Option<NewBody>,
}

/// User data that travels with a record.
#[derive(Clone, Debug)]
pub struct NewBody {
    pub salt: [u8; 16],
    /// Shared with whoever made it: an event and its record have one text.
    pub json: Arc<str>,
    pub digest: [u8; 32],
}

impl NewBody {
    /// `json` must be valid JSON. Newlines in it become spaces: valid JSON has them only between its
    /// tokens, and a line must not.
    pub fn new(salt: [u8; 16], json: impl Into<Arc<str>>) -> NewBody {
        let mut json = json.into();
        if memchr::memchr2(b'\n', b'\r', json.as_bytes()).is_some() {
            json = json.replace(['\n', '\r'], " ").into();
        }
        let digest = body_digest(&salt, json.as_bytes());
        NewBody { salt, json, digest }
    }
}

/// Where one commit stands in a batch's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineMark {
    pub offset: usize,
    /// With the newline.
    pub len: usize,
    pub first: Position,
    pub records: u32,
}

/// The commits of one batch as lines, chained onto the head it was begun on.
#[derive(Clone, Debug)]
pub struct Batch {
    base: Head,
    head: Head,
    synced: Position,
    time: String,
    bytes: Vec<u8>,
    lines: Vec<LineMark>,
    closes: bool,
}

impl Batch {
    /// An empty batch on top of `head`. `synced` is the last position known durable.
    pub fn new(head: Head, synced: Position, time: Timestamp) -> Batch {
        let time = time.to_string();
        Batch { base: head, head, synced, time, bytes: Vec::new(), lines: Vec::new(), closes: false }
    }

    /// Begins again, keeping the allocations.
    pub fn clear(&mut self, head: Head, synced: Position, time: Timestamp) {
        self.base = head;
        self.head = head;
        self.synced = synced;
        self.time.clear();
        write_text(&mut self.time, time);
        self.bytes.clear();
        self.lines.clear();
        self.closes = false;
    }

    /// Adds one commit and returns the position of its first record. A commit without records is a bug of
    /// the caller.
    pub fn commit<'r, R>(&mut self, records: R) -> Position
    where
        R: IntoIterator<Item = &'r NewRecord, IntoIter: Clone + ExactSizeIterator>,
    {
        let records = records.into_iter();
        let last = records.clone().last().expect("a commit has at least one record");
        self.closes = last.kind == crate::CLOSED;
        let first = self.head.position + 1;
        let offset = self.bytes.len();
        self.push_head(first, records.clone());
        let chain = self.head.chain.after(&self.bytes[offset..]);
        self.push_tail(chain, records.clone());
        assert!(
            memchr::memchr(b'\n', &self.bytes[offset..]).is_none(),
            "engine data and bodies have no newline"
        );
        self.bytes.push(b'\n');
        let (len, count) = (self.bytes.len() - offset, records.len() as u32);
        self.lines.push(LineMark { offset, len, first, records: count });
        self.head = Head { position: self.head.position + u64::from(count), chain };
        first
    }

    /// What the chain covers: everything before `,"chain":`.
    fn push_head<'r>(&mut self, first: Position, records: impl Iterator<Item = &'r NewRecord>) {
        let out = &mut self.bytes;
        out.extend_from_slice(b"{\"p\":");
        push_number(out, first);
        out.extend_from_slice(b",\"t\":\"");
        out.extend_from_slice(self.time.as_bytes());
        out.extend_from_slice(b"\",\"s\":");
        push_number(out, self.synced);
        out.extend_from_slice(b",\"r\":[");
        for (i, record) in records.enumerate() {
            if i > 0 {
                out.push(b',');
            }
            push_record(out, record);
        }
        out.push(b']');
    }

    fn push_tail<'r>(&mut self, chain: Chain, records: impl Iterator<Item = &'r NewRecord>) {
        let out = &mut self.bytes;
        out.extend_from_slice(b",\"chain\":\"");
        push_hex(out, &chain.0);
        out.extend_from_slice(b"\",\"b\":[");
        for (i, body) in records.filter_map(|r| r.body.as_ref()).enumerate() {
            if i > 0 {
                out.push(b',');
            }
            out.extend_from_slice(b"{\"s\":\"");
            push_hex(out, &body.salt);
            out.extend_from_slice(b"\",\"p\":");
            out.extend_from_slice(body.json.as_bytes());
            out.push(b'}');
        }
        out.extend_from_slice(b"]}");
    }

    /// The end of the ledger once this batch is in it.
    pub fn head(&self) -> Head {
        self.head
    }

    /// The head it was begun on.
    pub fn base(&self) -> Head {
        self.base
    }

    /// The position of the first record, or the one it would get.
    pub fn first(&self) -> Position {
        self.base.position + 1
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn lines(&self) -> &[LineMark] {
        &self.lines
    }

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Whether its last record is `ledger.closed`.
    pub(crate) fn closes(&self) -> bool {
        self.closes
    }
}

fn push_record(out: &mut Vec<u8>, record: &NewRecord) {
    out.extend_from_slice(b"{\"k\":\"");
    out.extend_from_slice(record.kind.as_bytes());
    out.extend_from_slice(b"\",\"v\":");
    push_number(out, u64::from(record.version));
    out.extend_from_slice(b",\"d\":");
    out.extend_from_slice(&record.data);
    if let Some(body) = &record.body {
        out.extend_from_slice(b",\"x\":\"");
        push_hex(out, &body.digest);
        out.push(b'"');
    }
    out.push(b'}');
}

fn push_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(digits(number, &mut [0; 20]).as_bytes());
}

fn write_text(out: &mut String, time: Timestamp) {
    use std::fmt::Write as _;
    write!(out, "{time}").expect("writing to a string cannot fail");
}
