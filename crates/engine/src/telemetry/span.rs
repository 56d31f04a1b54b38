//! One span, and many as OTLP/HTTP says them in JSON. Pure.

use model::Timestamp;
use serde_json::{Value, json};

use super::context::Context;

/// As OTLP numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Internal = 1,
    Client = 3,
    Producer = 4,
    Consumer = 5,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Tag {
    Text(String),
    Number(i64),
    Share(f64),
}

impl From<&str> for Tag {
    fn from(text: &str) -> Tag {
        Tag::Text(text.to_owned())
    }
}

impl From<u64> for Tag {
    fn from(number: u64) -> Tag {
        Tag::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub name: &'static str,
    pub kind: Kind,
    pub context: Context,
    pub parent: Option<[u8; 8]>,
    pub began: Timestamp,
    pub ended: Timestamp,
    pub tags: Vec<(&'static str, Tag)>,
    /// A code; what went wrong in words may hold what is nobody's business.
    pub error: Option<String>,
}

impl Span {
    /// Below `before`, of which it has the trace.
    pub fn below(name: &'static str, before: &Context, context: Context) -> Span {
        let at = Timestamp::EPOCH;
        Span {
            name,
            kind: Kind::Internal,
            context,
            parent: before.parent(),
            began: at,
            ended: at,
            tags: Vec::new(),
            error: None,
        }
    }

    pub fn tag(mut self, name: &'static str, tag: impl Into<Tag>) -> Span {
        self.tags.push((name, tag.into()));
        self
    }

    /// As [`Span::tag`]; nothing where there is nothing.
    pub fn tag_some(self, name: &'static str, tag: Option<impl Into<Tag>>) -> Span {
        match tag {
            Some(tag) => self.tag(name, tag),
            None => self,
        }
    }

    fn to_json(&self) -> Value {
        let nanos = |at: Timestamp| at.nanos().max(0).to_string();
        let tags: Vec<Value> = self.tags.iter().map(|(name, tag)| attribute(name, tag)).collect();
        let mut span = json!({
            "traceId": model::id::hex(&self.context.trace), "spanId": model::id::hex(&self.context.span),
            "name": self.name, "kind": self.kind as u8, "flags": u8::from(self.context.sampled),
            "startTimeUnixNano": nanos(self.began), "endTimeUnixNano": nanos(self.ended.max(self.began)),
            "attributes": tags,
        });
        if let Some(parent) = self.parent {
            span["parentSpanId"] = model::id::hex(&parent).into();
        }
        if let Some(error) = &self.error {
            span["status"] = json!({"code": 2, "message": coded(error)});
        }
        span
    }
}

/// Workers name their own codes; what does not look like one is not repeated.
fn coded(code: &str) -> &str {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let good = (1..=64).contains(&code.len()) && code.bytes().all(plain);
    if good { code } else { "failed" }
}

fn attribute(name: &str, tag: &Tag) -> Value {
    let value = match tag {
        Tag::Text(text) => json!({"stringValue": text}),
        // Whole numbers of 64 bits are texts in the JSON of protocol buffers.
        Tag::Number(number) => json!({"intValue": number.to_string()}),
        Tag::Share(number) => json!({"doubleValue": number}),
    };
    json!({"key": name, "value": value})
}

/// The body of one export.
pub fn request(spans: &[Span], resource: &[(String, String)]) -> String {
    let about: Vec<Value> =
        resource.iter().map(|(name, value)| attribute(name, &Tag::Text(value.clone()))).collect();
    let spans: Vec<Value> = spans.iter().map(Span::to_json).collect();
    let scope = json!({"name": "everwhen", "version": env!("CARGO_PKG_VERSION")});
    let told = json!({"scope": scope, "spans": spans});
    json!({"resourceSpans": [{"resource": {"attributes": about}, "scopeSpans": [told]}]}).to_string()
}
