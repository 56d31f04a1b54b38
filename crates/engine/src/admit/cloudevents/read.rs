//! A CloudEvent's attributes and data, one by one, into a draft.

use std::borrow::Cow;

use model::json;
use model::{Code, Problem, base64};
use serde_json::Value;

use super::{NO_SOURCE, THEIR_ID, parse_subject};
use crate::admit::draft::{Draft, missing, raw};
use crate::admit::ext::Ext;
use crate::admit::{check, read};
use crate::settings::Limits;

pub(super) struct Reader<'l> {
    draft: Draft,
    limits: &'l Limits,
    ext: Ext,
    specversion: Option<String>,
    /// The attribute, because the field `source` may stay empty.
    source: Option<String>,
    /// JSON text of `data`; text of `data_base64`.
    data: Option<String>,
    data_base64: Option<String>,
}

impl<'l> Reader<'l> {
    pub(super) fn new(limits: &'l Limits) -> Reader<'l> {
        Reader {
            draft: Draft::with_payload(String::new(), raw("{}").into()),
            limits,
            ext: Ext::default(),
            specversion: None,
            source: None,
            data: None,
            data_base64: None,
        }
    }

    /// A member of a structured event. `null` is absent, as the JSON format says, except for the data.
    pub(super) fn take_json(&mut self, name: &str, value: &str) -> Result<(), Problem> {
        match name {
            "data" => {
                read::check_size(name, value.len(), self.limits)?;
                self.data = Some(value.to_owned());
            }
            _ if value == "null" => {}
            "data_base64" => {
                read::check_size(name, value.len() / 4 * 3, self.limits)?;
                self.data_base64 = Some(read::text(name, value)?);
            }
            _ => self.take(name, value)?,
        }
        Ok(())
    }

    /// A header of a binary event: text, percent-encoded where it is not plain ASCII.
    pub(super) fn take_header(&mut self, name: &str, value: &str) -> Result<(), Problem> {
        let text = percent_decoded(unquoted(value.trim()).as_ref()).ok_or_else(|| {
            Problem::new(Code::EventInvalid, format!("header \"ce-{name}\" is not percent-encoded UTF-8"))
                .hint("encode bytes that are not visible ASCII as %XX")
                .at(read::at(name))
        })?;
        self.take(name, &Value::from(text).to_string())
    }

    /// The body of a binary event; its content type is the attribute `datacontenttype`.
    pub(super) fn take_body(&mut self, content_type: Option<&str>, body: &[u8]) -> Result<(), Problem> {
        read::check_size("data", body.len(), self.limits)?;
        self.draft.content_type = content_type.map(str::to_owned);
        if body.is_empty() {
            return Ok(());
        }
        if content_type.is_none_or(check::is_json) {
            json::check(body, self.limits.max_depth.saturating_sub(1))?;
            self.data = Some(String::from_utf8_lossy(body).trim().to_owned());
        } else {
            self.data_base64 = Some(base64::encode(body));
        }
        Ok(())
    }

    /// An attribute; `value` is JSON text. Numbers may also come as text, as they do in headers.
    fn take(&mut self, name: &str, value: &str) -> Result<(), Problem> {
        let draft = &mut self.draft;
        match name {
            "specversion" => self.specversion = Some(read::text(name, value)?),
            "type" => draft.topic = read::text(name, value)?,
            "source" => self.source = Some(read::text(name, value)?),
            "id" => draft.id = Some(read::text(name, value)?),
            "time" => draft.time = Some(read::time(name, value)?),
            "subject" if draft.subject.is_none() => {
                draft.subject = Some(parse_subject(&read::text(name, value)?))
            }
            "subject" => {}
            "dataschema" => draft.schema = Some(read::text(name, value)?),
            "datacontenttype" => draft.content_type = Some(read::text(name, value)?),
            "space" => draft.space = Some(read::text(name, value)?),
            "key" => draft.key = Some(read::text(name, value)?),
            "band" => draft.band = read::band(name, value)?,
            "ttl" => draft.ttl = Some(read::duration(name, value)?),
            "priority" => draft.priority = read::priority(name, &bare(value))?,
            "cause" => draft.cause = Some(read::position(name, &bare(value))?),
            "traceparent" => draft.trace = Some(read::text(name, value)?),
            "ewtype" => draft.kind = Some(read::text(name, value)?),
            "ewcausedby" => draft.caused_by = Some(read::text(name, value)?),
            "ewsequence" => draft.sequence = Some(read::integer(name, &bare(value))?),
            "ewsubject" => draft.subject = Some(read::subject(name, &embedded(name, value, self.limits)?)?),
            "ewext" => self.take_ext(name, value)?,
            // What a ledger knew of it when it was read out; this one knows its own.
            "ewposition" | "ewrecordedat" | "ewactor" | "ewdepth" | "ewrun" | "ewerased" => {}
            _ => self.ext.push(name, value),
        }
        Ok(())
    }

    /// Extensions that could not stand as attributes of their own: an object, as JSON inside text.
    fn take_ext(&mut self, name: &str, value: &str) -> Result<(), Problem> {
        let text = embedded(name, value, self.limits)?;
        let members =
            read::members(&text).ok_or_else(|| read::wrong(name, value, "an object of extensions"))?;
        for member in members {
            self.ext.push(&member.key, member.value);
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<Draft, Problem> {
        match self.specversion.as_deref() {
            Some("1.0") => {}
            None => return Err(missing("specversion").hint("add \"specversion\":\"1.0\"")),
            Some(other) => {
                return Err(Problem::new(
                    Code::EventInvalid,
                    format!("specversion {other:?} is not \"1.0\""),
                )
                .hint("send CloudEvents 1.0")
                .at("/specversion"));
            }
        }
        if self.draft.topic.is_empty() {
            return Err(missing("type"));
        }
        let id = self.draft.id.take().filter(|id| !id.is_empty()).ok_or_else(|| missing("id"))?;
        let source =
            self.source.take().filter(|source| !source.is_empty()).ok_or_else(|| missing("source"))?;
        self.draft.source = (source != NO_SOURCE).then_some(source);
        self.draft.derived_key = Some(format!("{} {id}", self.draft.source.as_deref().unwrap_or_default()));
        // CloudEvents may be called "1": what cannot be an id here is kept beside one of our own.
        match check::is_id(&id) {
            true => self.draft.id = Some(id),
            false => self.ext.push(THEIR_ID, &Value::from(id).to_string()),
        }
        self.draft.payload = raw(self.payload()?).into();
        self.draft.ext = self.ext.finish().map(raw);
        Ok(self.draft)
    }

    /// JSON stands as it is, all else as base64 text, whichever way it came.
    fn payload(&mut self) -> Result<String, Problem> {
        let is_json = self.draft.content_type.as_deref().is_none_or(check::is_json);
        match (self.data.take(), self.data_base64.take()) {
            (Some(_), Some(_)) => {
                Err(Problem::new(Code::EventInvalid, "both \"data\" and \"data_base64\" are there")
                    .hint("give one of them")
                    .at("/data_base64"))
            }
            (None, None) if is_json => Ok("{}".to_owned()),
            (None, None) => Ok("\"\"".to_owned()),
            (Some(data), None) if is_json => Ok(data),
            (Some(data), None) => {
                let content = json::unquote(&data).unwrap_or(Cow::Borrowed(&data)).into_owned();
                Ok(format!("\"{}\"", base64::encode(content.as_bytes())))
            }
            (None, Some(coded)) => {
                let bytes = base64::decode(&coded).ok_or_else(not_base64)?;
                let read = json::check(&bytes, self.limits.max_depth.saturating_sub(1));
                // Without a content type bytes are JSON if they read as such, else just bytes.
                if is_json && read.is_err() && self.draft.content_type.is_none() {
                    self.draft.content_type = Some("application/octet-stream".to_owned());
                    return Ok(format!("\"{coded}\""));
                }
                if !is_json {
                    return Ok(format!("\"{coded}\""));
                }
                read.map_err(|problem| problem.within("/data_base64"))?;
                Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
            }
        }
    }
}

fn not_base64() -> Problem {
    Problem::new(Code::EventInvalid, "\"data_base64\" is not base64 text")
        .hint("use the alphabet A-Z a-z 0-9 + / and pad with =")
        .at("/data_base64")
}

/// A number that may stand in quotes.
fn bare(value: &str) -> Cow<'_, str> {
    match json::unquote(value) {
        Some(text) if !text.is_empty() => text,
        _ => Cow::Borrowed(value),
    }
}

/// JSON inside text, checked like all that comes from outside.
fn embedded(name: &str, value: &str, limits: &Limits) -> Result<String, Problem> {
    let text = read::text(name, value)?;
    json::check(text.as_bytes(), limits.max_depth.saturating_sub(1))
        .map_err(|problem| problem.within(&read::at(name)))?;
    Ok(text.trim().to_owned())
}

/// Undoes the quoting that the HTTP binding lets a header value have.
fn unquoted(value: &str) -> Cow<'_, str> {
    let Some(inner) = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return Cow::Borrowed(value);
    };
    let mut out = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        out.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    Cow::Owned(out)
}

/// `None` when the bytes are not UTF-8. A `%` that begins no code stands for itself.
fn percent_decoded(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let code =
            bytes.get(at + 1..at + 3).filter(|code| byte == b'%' && code.iter().all(u8::is_ascii_hexdigit));
        let decoded = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        out.push(decoded.unwrap_or(byte));
        at += if decoded.is_some() { 3 } else { 1 };
    }
    String::from_utf8(out).ok()
}
