//! The user's part of an event, digit for digit: one shared text that is also the body of its record.

use std::sync::Arc;

use crate::json::value_end;

const PAYLOAD: &str = "{\"payload\":";
const EXT: &str = ",\"ext\":";

/// The body of an `event` record.
#[derive(Clone, Debug)]
pub enum Content {
    Kept(Body),
    /// The body was erased; the record and its place in the chain stand.
    Erased,
}

/// `{"payload":…,"ext":{…}}`, `ext` only when there is one.
#[derive(Clone, Debug)]
pub struct Body {
    text: Arc<str>,
    payload_end: usize,
}

/// The text is not what [`Content::new`] makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadBody;

impl Content {
    /// Both must be JSON texts, `ext` an object.
    pub fn new(payload: &str, ext: Option<&str>) -> Content {
        let mut text = String::with_capacity(PAYLOAD.len() + payload.len() + ext.map_or(0, str::len) + 8);
        text.push_str(PAYLOAD);
        text.push_str(payload);
        let payload_end = text.len();
        if let Some(ext) = ext {
            text.push_str(EXT);
            text.push_str(ext);
        }
        text.push('}');
        Content::Kept(Body { text: text.into(), payload_end })
    }

    /// Reads a body back; on the path of every read. The payload is not parsed: that it is JSON was checked when it
    /// came in, and that it is the same text is what the ledger's digests are for.
    pub fn from_body(body: Option<&str>) -> Result<Content, BadBody> {
        let Some(body) = body else { return Ok(Content::Erased) };
        if !body.starts_with(PAYLOAD) || !body.ends_with('}') {
            return Err(BadBody);
        }
        let payload_end = value_end(body.as_bytes(), PAYLOAD.len()).ok_or(BadBody)?;
        match body.get(payload_end..).ok_or(BadBody)? {
            "}" => {}
            rest if rest.starts_with(EXT) => {}
            _ => return Err(BadBody),
        }
        Ok(Content::Kept(Body { text: body.into(), payload_end }))
    }

    /// The whole text, to be kept in the ledger.
    pub fn body(&self) -> Option<&Arc<str>> {
        match self {
            Content::Kept(body) => Some(&body.text),
            Content::Erased => None,
        }
    }

    pub fn payload(&self) -> Option<&str> {
        match self {
            Content::Kept(body) => Some(&body.text[PAYLOAD.len()..body.payload_end]),
            Content::Erased => None,
        }
    }

    pub fn ext(&self) -> Option<&str> {
        match self {
            Content::Kept(body) => {
                let rest = body.text[body.payload_end..].strip_prefix(EXT)?;
                rest.strip_suffix('}')
            }
            Content::Erased => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_together_comes_apart_again() {
        let payloads = [r#"{"n":1.10}"#, "7", r#""a \" } b""#, "[]", "null", r#"{"ext":{"a":[1,{}]}}"#];
        for payload in payloads {
            for ext in [None, Some("{}"), Some(r#"{"device":"}"}"#)] {
                let made = Content::new(payload, ext);
                let read = Content::from_body(made.body().map(|text| &**text)).unwrap();
                for content in [&made, &read] {
                    assert_eq!((content.payload(), content.ext()), (Some(payload), ext));
                }
            }
        }
        assert!(Content::from_body(None).unwrap().payload().is_none());
    }

    #[test]
    fn what_is_no_body_is_said_to_be_none() {
        let not_ours =
            ["", "{}", "null", r#"{"payload":"#, r#"{"payload":}"#, r#"{"payload":1"#, r#"{"payload":"a}"#];
        for text in not_ours.into_iter().chain([r#"{"payload":1,"more":2}"#, r#"{"payload":1}}"#]) {
            assert!(Content::from_body(Some(text)).is_err(), "{text}");
        }
    }
}
