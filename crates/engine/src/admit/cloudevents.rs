//! CloudEvents 1.0 to drafts and events back to CloudEvents, without loss (contracts §2).
//!
//! ```text
//!  CloudEvents                    event           extension                     event
//!  type                           topic           space key band ttl            the field of that name
//!  source id time                 the same        priority cause
//!  subject "kind/id", else "id"   subject         traceparent                   trace
//!  dataschema                     schema          ewtype ewcausedby ewsequence  type caused_by sequence
//!  datacontenttype                content_type    ewsubject                     subject, if text cannot say it
//!  data, data_base64              payload         ewext                         ext that is no attribute
//!  any other extension            ext             ewposition ewrecordedat       (written only:
//!                                                 ewactor ewdepth ewrun          what the ledger knows; passed over)
//! ```
//!
//! An id that events cannot have here (digits only, with blanks, too long) is kept as the extension `ceid` and given back as the id.
//! An event without a source is written with [`NO_SOURCE`], because CloudEvents must have one.

mod read;
mod write;

use model::event::Subject;
use model::json::{self, Field};
use model::{Code, Problem};

use super::draft::{Draft, check_count, open};
use crate::settings::Limits;

pub use write::{to_cloudevent, to_cloudevent_headers};

/// The source of an event that has none.
pub const NO_SOURCE: &str = "urn:everwhen:none";

/// The extension that keeps an id which events cannot have here.
const THEIR_ID: &str = "ceid";

impl Draft {
    /// Structured mode: one CloudEvent as a JSON object.
    pub fn from_cloudevent(bytes: &[u8], limits: &Limits) -> Result<Draft, Problem> {
        let mut reader = read::Reader::new(limits);
        for Field { key, value } in open(bytes, limits)? {
            reader.take_json(&key, value)?;
        }
        reader.finish()
    }

    /// Batched mode: a JSON array of CloudEvents, to be committed all or none.
    pub fn from_cloudevent_batch(bytes: &[u8], limits: &Limits) -> Result<Vec<Draft>, Problem> {
        let Some(elements) = json::elements(bytes, limits.max_depth + 1)? else {
            return Err(Problem::new(Code::EventInvalid, "the body is not an array of CloudEvents")
                .hint("write them between [ and ], or send one as application/cloudevents+json"));
        };
        check_count(elements.len())?;
        let read = |(i, element): (usize, &str)| {
            Draft::from_cloudevent(element.as_bytes(), limits)
                .map_err(|problem| problem.within(&format!("/{i}")))
        };
        elements.into_iter().enumerate().map(read).collect()
    }

    /// Binary mode: attributes in `ce-` headers (others are passed over), the data as the body.
    pub fn from_cloudevent_headers<'h>(
        headers: impl IntoIterator<Item = (&'h str, &'h str)>,
        content_type: Option<&str>,
        body: &[u8],
        limits: &Limits,
    ) -> Result<Draft, Problem> {
        let mut reader = read::Reader::new(limits);
        for (name, value) in headers {
            let name = name.to_ascii_lowercase();
            if let Some(attribute) = name.strip_prefix("ce-") {
                reader.take_header(attribute, value)?;
            }
        }
        reader.take_body(content_type, body)?;
        reader.finish()
    }
}

/// `kind/id`; anything else is an id without a kind.
pub fn parse_subject(text: &str) -> Subject {
    match text.split_once('/') {
        Some((kind, id)) if !kind.is_empty() && !id.is_empty() => {
            Subject { kind: kind.into(), id: id.into() }
        }
        _ => Subject { kind: String::new(), id: text.into() },
    }
}
