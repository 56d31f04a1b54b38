//! Bodies of sealed spaces: encrypted before a line is formed, opened when one is read, so that every part in between sees
//! what it always saw (`docs/decisions/0022-sealing.md`).
//!
//! ```text
//!  BODY   {"s":"<salt>","p":"sealed:v1:<key>:<base64>"}
//!  base64 of XChaCha20-Poly1305 over the body; the nonce is the salt and eight zeros; authenticated with the record's kind
//! ```
//!
//! Every other body is an object or a list, so a text is one that was sealed. Digest and chain are over what stands in the
//! line: they hold without any key. A body whose key was destroyed reads as erased; one whose key is missing cannot be read.

mod entry;
pub mod keys;
mod unsealed;

use std::collections::BTreeMap;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use ledger::{BodyRef, Error, NewBody, RecordRef};
use memchr::memmem;

pub(crate) use entry::seal_entry;
pub(crate) use unsealed::Unsealed;

/// What every sealed body begins with.
const MARK: &str = "\"sealed:v1:";
/// Stands for every space that has no key of its own.
pub const ALL: &str = "*";

/// A key as it is held.
#[derive(Clone, PartialEq)]
pub enum Held {
    Key {
        space: String,
        key: [u8; 32],
    },
    /// It was destroyed; what it sealed reads as erased.
    Forgotten {
        space: String,
    },
}

impl Held {
    pub fn space(&self) -> &str {
        match self {
            Held::Key { space, .. } | Held::Forgotten { space } => space,
        }
    }
}

/// The keys of a tenant's spaces, and which of them seals what is written now. Shared by the writer and all readers.
#[derive(Default)]
pub struct Seals {
    keys: RwLock<BTreeMap<String, Held>>,
    /// By space; [`ALL`]: the others.
    current: RwLock<BTreeMap<String, String>>,
    /// There is a key, or was one, or nobody has looked yet: lines may hold sealed bodies.
    used: AtomicBool,
    /// A key that something was sealed with and that is not here.
    missed: RwLock<Option<String>>,
}

impl Seals {
    pub fn new(keys: BTreeMap<String, Held>) -> Seals {
        Seals { keys: RwLock::new(keys), used: AtomicBool::new(true), ..Seals::default() }
    }

    /// No space is sealed but those whose keys are here: without any, nothing is looked for.
    pub fn settle(&self) {
        self.used.store(!read(&self.keys).is_empty(), Ordering::Release);
    }

    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire)
    }

    pub fn missed(&self) -> Option<String> {
        read(&self.missed).clone()
    }

    pub fn hold(&self, id: &str, held: Held) {
        write(&self.keys).insert(id.to_owned(), held);
        self.used.store(true, Ordering::Release);
    }

    pub fn held(&self, id: &str) -> Option<Held> {
        read(&self.keys).get(id).cloned()
    }

    /// Keys that are there and were made for this space.
    pub fn keys_of(&self, space: &str) -> Vec<String> {
        let of = |held: &Held| matches!(held, Held::Key { space: made_for, .. } if made_for == space);
        read(&self.keys).iter().filter(|(_, held)| of(held)).map(|(id, _)| id.clone()).collect()
    }

    /// From now on this key seals what is written in the space.
    pub fn turn_to(&self, space: &str, id: &str) {
        write(&self.current).insert(space.to_owned(), id.to_owned());
    }

    /// The key of its own that seals a space now.
    pub fn key_of(&self, space: &str) -> Option<String> {
        read(&self.current).get(space).cloned()
    }

    fn current(&self, space: &str) -> Option<(String, [u8; 32])> {
        let current = read(&self.current);
        // What the house writes about itself must be readable before any key is known.
        let of_all = || current.get(ALL).filter(|_| !space.starts_with('_'));
        let id = current.get(space).or_else(of_all)?;
        match read(&self.keys).get(id) {
            Some(Held::Key { key, .. }) => Some((id.clone(), *key)),
            _ => None,
        }
    }

    /// Whether what is written in the space is sealed.
    pub fn seals(&self, space: &str) -> bool {
        self.is_used() && self.current(space).is_some()
    }

    /// Those of these spaces that are sealed, without one; each once.
    pub fn others(&self, mut spaces: Vec<String>, own: &str) -> Vec<String> {
        spaces.retain(|space| space != own && self.seals(space));
        spaces.sort_unstable();
        spaces.dedup();
        spaces
    }

    /// The body as it is to stand in the line; `None`: none of its spaces is sealed. One of several is sealed with the key
    /// of each, one around the other: whichever is destroyed, it is gone.
    pub fn seal(&self, spaces: &[String], kind: &str, body: &NewBody) -> Option<NewBody> {
        // By key, because two spaces may share one: the same key over the same nonce twice would lay it open.
        let keys: BTreeMap<String, [u8; 32]> =
            spaces.iter().filter_map(|space| self.current(space)).collect();
        let mut json: Option<String> = None;
        for (id, key) in keys {
            let msg = json.as_deref().unwrap_or(&body.json).as_bytes();
            let sealed = XChaCha20Poly1305::new(&key.into())
                .encrypt(&nonce(&body.salt), Payload { msg, aad: kind.as_bytes() })
                .expect("a body is far below the cipher's limit");
            json = Some(format!("{MARK}{id}:{}\"", model::base64::encode(&sealed)));
        }
        json.map(|json| NewBody::new(body.salt, json))
    }

    /// Opens whatever is sealed in whole lines.
    pub fn open(&self, lines: &mut Vec<u8>) -> Result<(), Error> {
        if !self.is_used() || memmem::find(lines, MARK.as_bytes()).is_none() {
            return Ok(());
        }
        let mut opened = Vec::with_capacity(lines.len());
        for line in ledger::lines(lines) {
            self.open_line(line, &mut opened)?;
            opened.push(b'\n');
        }
        *lines = opened;
        Ok(())
    }

    fn open_line(&self, line: &[u8], into: &mut Vec<u8>) -> Result<(), Error> {
        let mut at = 0;
        // What cannot be taken apart is told by whoever reads it next.
        if let Ok(parsed) = ledger::parse(line) {
            for record in parsed.records() {
                let Some(BodyRef::Json(json)) = record.body else { continue };
                let Some(sealed) = json.get().strip_prefix(MARK) else { continue };
                let start = json.get().as_ptr() as usize - line.as_ptr() as usize;
                let (start, end, body) = match self.body(record, sealed)? {
                    Some(body) => (start, start + json.get().len(), body),
                    None => (start - BEFORE, start + json.get().len() + 1, b"\"erased\"".to_vec()),
                };
                into.extend_from_slice(&line[at..start]);
                into.extend(body);
                at = end;
            }
        }
        into.extend_from_slice(&line[at..]);
        Ok(())
    }

    /// `None`: its key was destroyed.
    fn body(&self, record: &RecordRef<'_>, sealed: &str) -> Result<Option<Vec<u8>>, Error> {
        let unreadable = |what: String| Error::Unreadable { position: record.position, what };
        let parts = sealed.strip_suffix('"').and_then(|sealed| sealed.split_once(':'));
        let (id, text) = parts.ok_or_else(|| unreadable("its sealed body is cut short".to_owned()))?;
        let key = match read(&self.keys).get(id) {
            Some(Held::Key { key, .. }) => *key,
            Some(Held::Forgotten { .. }) => return Ok(None),
            None => {
                *write(&self.missed) = Some(id.to_owned());
                return Err(unreadable(format!("it is sealed, and its key \"{id}\" is missing")));
            }
        };
        let salt = record.salt.and_then(model::id::unhex::<16>);
        let opened = salt.zip(model::base64::decode(text)).and_then(|(salt, sealed)| {
            let payload = Payload { msg: &sealed, aad: record.kind.as_bytes() };
            XChaCha20Poly1305::new(&key.into()).decrypt(&nonce(&salt), payload).ok()
        });
        let opened =
            opened.ok_or_else(|| unreadable("its sealed body does not open under its key".to_owned()))?;
        // That of several spaces has another seal inside.
        match opened.strip_prefix(MARK.as_bytes()).map(std::str::from_utf8) {
            Some(Ok(inside)) => self.body(record, inside),
            _ => Ok(Some(opened)),
        }
    }
}

/// How much of a body stands before its JSON: `{"s":"<32 hex>","p":`.
const BEFORE: usize = 6 + 32 + 6;

/// No two bodies have the same salt, and each is sealed once.
fn nonce(salt: &[u8; 16]) -> XNonce {
    let mut nonce = [0; 24];
    nonce[..16].copy_from_slice(salt);
    XNonce::from(nonce)
}

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
