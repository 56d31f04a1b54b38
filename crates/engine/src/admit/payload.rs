//! The payload of a draft: a JSON text as it came, and whether the strict scanner has read it already.

use std::borrow::Cow;

use model::{Problem, json};
use serde_json::value::RawValue;

use super::read;
use crate::settings::Limits;

#[derive(Clone, Debug)]
pub struct Payload {
    text: Cow<'static, str>,
    /// So many levels the scanner let it have; `None`: it has not looked.
    levels: Option<usize>,
}

impl Payload {
    /// A part of a text that the scanner has read, with these limits for the event around it.
    pub(super) fn scanned(text: &str, limits: &Limits) -> Payload {
        Payload { text: text.to_owned().into(), levels: Some(levels(limits)) }
    }

    /// Of an event that says nothing but its topic.
    pub(super) fn empty() -> Payload {
        Payload { text: "{}".into(), levels: Some(1) }
    }

    pub fn get(&self) -> &str {
        &self.text
    }

    /// Reads it strictly, unless that was done; what cannot stand in a line of the ledger becomes what can.
    pub(super) fn check(&mut self, limits: &Limits) -> Result<(), Problem> {
        read::check_size("payload", self.text.len(), limits)?;
        if self.levels.is_none_or(|levels| levels > self::levels(limits)) {
            json::check(self.text.as_bytes(), levels(limits))
                .map_err(|problem| problem.within(&read::at("payload")))?;
            self.levels = Some(levels(limits));
        }
        if memchr::memchr2(b'\n', b'\r', self.text.as_bytes()).is_some() {
            self.text = self.text.replace(['\n', '\r'], " ").into();
        }
        Ok(())
    }
}

/// The event around it is one level.
fn levels(limits: &Limits) -> usize {
    limits.max_depth.saturating_sub(1)
}

/// Known to be JSON, but not to be as strict as the ledger is: it may have a key twice, or too many levels.
impl From<Box<RawValue>> for Payload {
    fn from(value: Box<RawValue>) -> Payload {
        Payload { text: String::from(Box::<str>::from(value)).into(), levels: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_again_where_less_was_asked_of_it_before() {
        let (lax, strict) =
            (Limits { max_depth: 10, ..Limits::default() }, Limits { max_depth: 3, ..Limits::default() });
        let mut deep = Payload::scanned("[[[1]]]", &lax);
        assert!(deep.check(&lax).is_ok());
        assert!(deep.check(&strict).is_err());
        let raw = RawValue::from_string(r#"{"a":1,"a":2}"#.to_owned()).unwrap();
        assert!(Payload::from(raw).check(&lax).is_err(), "serde lets a key stand twice");
    }

    #[test]
    fn it_stands_in_one_line() {
        let mut broken = Payload::scanned("[1,\r\n2]", &Limits::default());
        broken.check(&Limits::default()).unwrap();
        assert_eq!(broken.get(), "[1,  2]");
    }
}
