//! Secrets sealed under the tenant's key, before a record is formed (contracts §10).
//!
//! ```text
//!  v1.<hex of 24 bytes nonce ‖ XChaCha20-Poly1305 of the value's JSON>      authenticated with its place
//! ```
//!
//! The nonce is a keyed hash of place and value, so the same secret at the same place seals alike: a write that repeats it
//! changes nothing. Across rows and fields nothing can be told apart or swapped.

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use model::definition::{Field, Type};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::check::check_secret;
use super::{Concept, MASK, Write};
use model::Problem;

const VERSION: &str = "v1.";
const NONCE: usize = 24;

/// A tenant's key; it stands in `DATA/keys/<tenant>` and nowhere else.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    pub fn new(bytes: [u8; 32]) -> Key {
        Key(bytes)
    }

    /// `place` says where the secret belongs; only there it opens again.
    pub fn seal(&self, place: &str, value: &Value) -> String {
        let plain = value.to_string();
        let nonce = self.nonce(place, &plain);
        let payload = Payload { msg: plain.as_bytes(), aad: place.as_bytes() };
        let cipher = XChaCha20Poly1305::new(&self.0.into());
        let sealed = cipher
            .encrypt(&XNonce::from(nonce), payload)
            .expect("a row's value is far below the cipher's limit");
        format!("{VERSION}{}{}", model::id::hex(&nonce), model::id::hex(&sealed))
    }

    /// `None` when it was sealed by another key, for another place, or was touched since.
    pub fn open(&self, place: &str, sealed: &str) -> Option<Value> {
        let text = sealed.strip_prefix(VERSION)?;
        let bytes = model::id::unhex_any(text)?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE)?;
        let nonce: [u8; NONCE] = nonce.try_into().ok()?;
        let payload = Payload { msg: sealed, aad: place.as_bytes() };
        let plain = XChaCha20Poly1305::new(&self.0.into()).decrypt(&XNonce::from(nonce), payload).ok()?;
        serde_json::from_slice(&plain).ok()
    }

    fn nonce(&self, place: &str, plain: &str) -> [u8; NONCE] {
        let inner = Sha256::new()
            .chain_update(self.0)
            .chain_update((place.len() as u64).to_be_bytes())
            .chain_update(place)
            .chain_update(plain)
            .finalize();
        let outer = Sha256::new().chain_update(self.0).chain_update(b"nonce").chain_update(inner).finalize();
        let mut nonce = [0; NONCE];
        nonce.copy_from_slice(&outer[..NONCE]);
        nonce
    }
}

/// Secrets leave a write's fields before a record is formed; the mask stays and means "as it is". The space is known by now.
pub fn seal(key: &Key, concept: &Concept, write: &mut Write) -> Result<(), Problem> {
    let (space, id) = (write.space.clone(), write.id.clone().unwrap_or_default());
    let Some(fields) = write.action.fields_mut() else { return Ok(()) };
    for pointer in &concept.secrets {
        let Some(slot) = value_mut(fields, pointer).filter(|value| !value.is_null() && *value != MASK) else {
            continue;
        };
        let value = std::mem::replace(slot, MASK.into());
        let Some(field) = field_at(&concept.definition.fields, pointer) else { continue };
        let value = check_secret(concept, field, value, pointer)?;
        write.sealed.insert(pointer.clone(), key.seal(&place_of(concept.id(), &space, &id, pointer), &value));
    }
    Ok(())
}

/// Where a secret belongs.
pub fn place_of(concept: &str, space: &str, id: &str, pointer: &str) -> String {
    [concept, space, id, pointer].join("\u{0}")
}

/// The declared field at a pointer.
pub fn field_at<'a>(fields: &'a [Field], pointer: &str) -> Option<&'a Field> {
    let (name, rest) = match pointer.strip_prefix('/')?.split_once('/') {
        Some((name, _)) => (name, &pointer[1 + name.len()..]),
        None => (&pointer[1..], ""),
    };
    let name = name.replace("~1", "/").replace("~0", "~");
    let field = fields.iter().find(|field| field.name == name)?;
    match (&field.of, rest) {
        (_, "") => Some(field),
        (Type::Object(inner), rest) => field_at(inner, rest),
        _ => None,
    }
}

/// The value at a pointer, to be replaced.
pub fn value_mut<'a>(fields: &'a mut Map<String, Value>, pointer: &str) -> Option<&'a mut Value> {
    let mut steps = pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~"));
    let first = fields.get_mut(&steps.next()?)?;
    steps.try_fold(first, |value, step| value.get_mut(&step))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_secret_opens_only_at_its_place_under_its_key_and_untouched() {
        let key = Key::new([7; 32]);
        let sealed = key.seal("a", &json!("hunter2"));
        assert_eq!(sealed, key.seal("a", &json!("hunter2")), "the same again is no change");
        assert_ne!(sealed, key.seal("b", &json!("hunter2")));
        assert_eq!(key.open("a", &sealed), Some(json!("hunter2")));
        assert_eq!(key.open("b", &sealed), None);
        assert_eq!(Key::new([8; 32]).open("a", &sealed), None);
        let last = if sealed.ends_with('0') { "1" } else { "0" };
        assert_eq!(key.open("a", &format!("{}{last}", &sealed[..sealed.len() - 1])), None);
        assert!(!sealed.contains("hunter2"));
    }
}
