//! JSONPath (RFC 9535), compiled once; used by filters and mappers to reach into an event.

use jsonpath_rfc9535::{Error, SingularSegment};
use model::{Code, Problem};
use serde_json::Value;

/// Descendant steps (`..`) of a path that is tried on every event. Each multiplies the nodes visited by the
/// depth of the document, and evaluation has no budget of its own.
const DESCENDANTS_MAX: usize = 2;

/// Longest path, in bytes.
const BYTES_MAX: usize = 4096;

#[derive(Clone, Debug)]
pub struct JsonPath {
    text: String,
    path: jsonpath_rfc9535::JsonPath,
}

impl JsonPath {
    pub fn parse(text: &str) -> Result<JsonPath, Problem> {
        if text.len() > BYTES_MAX {
            return Err(
                wrong(text, &format!("is longer than {BYTES_MAX} bytes")).hint("split it into several")
            );
        }
        let path = jsonpath_rfc9535::JsonPath::parse(text).map_err(|err| explain(text, &err))?;
        Ok(JsonPath { text: text.to_owned(), path })
    }

    /// As [`JsonPath::parse`], for a path that many events will meet: what could take long is refused.
    pub fn parse_bounded(text: &str) -> Result<JsonPath, Problem> {
        let path = JsonPath::parse(text)?;
        if text.matches("..").count() > DESCENDANTS_MAX {
            let what = format!("has more than {DESCENDANTS_MAX} \"..\" steps");
            return Err(wrong(text, &what).hint("name the members on the way instead"));
        }
        Ok(path)
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The values selected, in the document's order.
    pub fn values<'a>(&self, document: &'a Value) -> Vec<&'a Value> {
        self.path.query_values(document)
    }

    /// The values selected, each with its normalized path.
    pub fn located<'a>(&self, document: &'a Value) -> Vec<(String, &'a Value)> {
        let nodes = self.path.query(document);
        nodes.paths().map(ToString::to_string).zip(nodes.values()).collect()
    }

    /// Whether it can select one node at most.
    pub fn is_singular(&self) -> bool {
        self.path.singular_steps().is_some()
    }

    /// The one member of the document that it reads below, when it names one.
    pub fn first_member(&self) -> Option<&str> {
        match self.path.singular_steps()?.first()? {
            SingularSegment::Name(name) => Some(name),
            _ => None,
        }
    }
}

fn explain(text: &str, err: &Error) -> Problem {
    let hint = "a path looks like $.payload.items[0].price or $..price";
    match err {
        Error::Syntax { position, .. } => {
            let what = format!("cannot be read from byte {position} on");
            wrong(text, &what).hint(hint).with("offset", *position)
        }
        other => wrong(text, &format!("is not valid: {other}")).hint(hint),
    }
}

fn wrong(text: &str, what: &str) -> Problem {
    let shown: String = text.chars().take(120).collect();
    Problem::new(Code::JsonpathInvalid, format!("JSONPath {shown:?} {what}"))
}
