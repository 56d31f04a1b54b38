//! JSONPath (RFC 9535), compiled once; used by filters and mappers to reach into an event.

use jsonpath_rfc9535::{Error, SingularSegment};
use model::{Code, Problem};
use serde_json::Value;

/// Descendant steps (`..`) that one path may hold. Each multiplies the nodes visited by the depth of the
/// document, and evaluation has no budget of its own.
const DESCENDANTS_MAX: usize = 3;

/// Longest path, in bytes.
const BYTES_MAX: usize = 4096;

#[derive(Clone, Debug)]
pub struct JsonPath {
    text: String,
    path: jsonpath_rfc9535::JsonPath,
}

impl JsonPath {
    pub fn parse(text: &str) -> Result<JsonPath, Problem> {
        let shown: String = text.chars().take(120).collect();
        let wrong = |what: String| Problem::new(Code::JsonpathInvalid, format!("JSONPath {shown:?}: {what}"));
        if text.len() > BYTES_MAX {
            return Err(wrong(format!("longer than {BYTES_MAX} bytes")).hint("split it into several tests"));
        }
        let path = jsonpath_rfc9535::JsonPath::parse(text).map_err(|err| explain(&err, &wrong))?;
        if text.matches("..").count() > DESCENDANTS_MAX {
            return Err(wrong(format!("more than {DESCENDANTS_MAX} \"..\" steps"))
                .hint("name the members on the way instead of \"..\""));
        }
        Ok(JsonPath { text: text.to_owned(), path })
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

fn explain(err: &Error, wrong: &dyn Fn(String) -> Problem) -> Problem {
    let hint = "a path looks like $.payload.items[0].price or $..price";
    match err {
        Error::Syntax { position, .. } => {
            wrong(format!("cannot be read from byte {position} on")).hint(hint).with("offset", *position)
        }
        other => wrong(other.to_string()).hint(hint),
    }
}
