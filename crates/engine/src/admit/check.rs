//! Whether a draft is an event at all: topic, space, id, texts, payload (contracts §0 and §2). Always on, for
//! every caller, because ledger, routing and doors rely on what passes here.

use model::event::Subject;
use model::topic::{check_topic, is_engine, is_reserved};
use model::{Code, Problem, base64, json};
use serde_json::value::RawValue;

use super::draft::raw;
use super::{Caller, Draft, read};
use crate::settings::Limits;

const ID_CHARS_MAX: usize = 128;
/// Words that stand where an id does in `/v1/events/{id}`.
const ROUTES: [&str; 2] = ["stream", "deferred"];
/// The house finds its notes by them.
const HOUSE_IDS: &str = "idempotency:";
/// Names of spaces, sources, keys and the like are kept in indexes and shown in lists.
const TEXT_BYTES_MAX: usize = 1_024;

/// Checks all of a draft whose defaults are filled in.
pub(super) fn check(caller: &Caller, draft: &mut Draft, limits: &Limits) -> Result<(), Problem> {
    check_topic_of(caller, &draft.topic)?;
    check_source_of(caller, draft.source.as_deref())?;
    check_space(caller, draft.space.as_deref().unwrap_or_default())?;
    let id = draft.id.as_deref().unwrap_or_default();
    check_id(id)?;
    if caller.outside && id.starts_with(HOUSE_IDS) {
        let detail = "\"id\" begins with \"idempotency:\", which is reserved";
        return Err(Problem::new(Code::EventInvalid, detail).hint("leave it out to get one").at("/id"));
    }
    // Not of an import: what an earlier version took stays what it was.
    if caller.outside && ROUTES.contains(&id) {
        let detail = format!("\"id\" {id:?} could not be asked for");
        let hint = "it is the name of a list; choose another, or leave it out to get one";
        return Err(Problem::new(Code::EventInvalid, detail).hint(hint).at("/id"));
    }
    check_texts(draft)?;
    if draft.priority > 9 {
        return Err(read::wrong("priority", &draft.priority.to_string(), "an integer from 0 to 9"));
    }
    if draft.cause == Some(0) {
        return Err(read::wrong("cause", "0", "a position, an integer from 1 on"));
    }
    draft.payload.check(limits)?;
    if let Some(ext) = &mut draft.ext {
        check_json("ext", ext, limits)?;
        if !ext.get().starts_with('{') {
            return Err(read::wrong("ext", ext.get(), "an object of extensions"));
        }
    }
    check_content(draft)
}

/// What hooks deliver is known by its source: nobody else may take one of their keys.
pub fn check_source_of(caller: &Caller, source: Option<&str>) -> Result<(), Problem> {
    let taken = source.is_some_and(|source| source.starts_with("hook:"));
    if !caller.outside || !taken || caller.actor.starts_with("system:hook:") {
        return Ok(());
    }
    Err(Problem::new(
        Code::EventInvalid,
        "a source that begins with \"hook:\" is that of a delivery to a hook",
    )
    .hint("choose another source")
    .at("/source"))
}

/// Refuses a topic that this caller may not publish.
pub fn check_topic_of(caller: &Caller, topic: &str) -> Result<(), Problem> {
    check_topic(topic).map_err(|problem| problem.at("/topic"))?;
    if caller.outside && (is_reserved(topic) || is_engine(topic)) {
        let detail = format!("topic \"{topic}\" is published by the engine only");
        let hint = match is_reserved(topic) {
            true => "choose a first word other than graph, automation and engine",
            false => "choose another topic",
        };
        return Err(Problem::new(Code::EventTopicReserved, detail).hint(hint).at("/topic"));
    }
    Ok(())
}

/// Refuses what could not be the space of a client's event.
pub fn check_default_space(space: &str) -> Result<(), Problem> {
    check_space(&Caller { outside: true, ..Caller::local() }, space)
}

/// As [`check_default_space`], of the field `space` of something else than an event, whose refusals have a code of their own.
pub fn check_space_of(code: Code, space: &str) -> Result<(), Problem> {
    let detail = match check_default_space(space) {
        Ok(()) => return Ok(()),
        Err(_) if space.is_empty() => "\"space\" is empty".to_owned(),
        Err(problem) => problem.detail().to_owned(),
    };
    Err(Problem::new(code, detail).hint("name a space that events can have, or leave it out").at("/space"))
}

/// As [`check_space_of`], for who reads there: what the engine says itself is in `_system`.
pub fn check_read_space(code: Code, space: &str) -> Result<(), Problem> {
    if space == "_system" { Ok(()) } else { check_space_of(code, space) }
}

fn check_space(caller: &Caller, space: &str) -> Result<(), Problem> {
    if space.is_empty() {
        return Err(Problem::new(
            Code::EventSpaceRequired,
            "the event's space is empty, or it names none and there is no default",
        )
        .hint("name a \"space\", or leave it out and set events.default_space")
        .at("/space"));
    }
    if caller.outside && space.starts_with('_') {
        let detail = format!("space {space:?} is reserved, as all that begin with \"_\"");
        return Err(Problem::new(Code::EventInvalid, detail).hint("choose another name").at("/space"));
    }
    if caller.outside && space == crate::sealing::ALL {
        let detail = "space \"*\" stands for all spaces where they are sealed";
        return Err(Problem::new(Code::EventInvalid, detail).hint("choose another name").at("/space"));
    }
    check_length("space", space)?;
    check_visible("space", space)
}

/// Whether events may have it as their id.
pub(super) fn is_id(id: &str) -> bool {
    check_id(id).is_ok() && !id.starts_with(HOUSE_IDS) && !ROUTES.contains(&id)
}

fn check_id(id: &str) -> Result<(), Problem> {
    let refuse = |what: String, hint: &str| {
        Err(Problem::new(Code::EventInvalid, format!("\"id\" {what}")).hint(hint).at("/id"))
    };
    // Bytes first: most ids are short, and then there is nothing to count.
    if id.is_empty() || id.len() > ID_CHARS_MAX && id.chars().count() > ID_CHARS_MAX {
        let count = id.chars().count();
        return refuse(format!("has {count} characters, not 1 to {ID_CHARS_MAX}"), "leave it out to get one");
    }
    if id.bytes().all(|b| b.is_ascii_digit()) {
        return refuse(
            format!("{id:?} is digits only and would read as a position"),
            "add a letter, such as e123",
        );
    }
    check_visible("id", id)
}

fn check_texts(draft: &Draft) -> Result<(), Problem> {
    let texts = [
        ("source", &draft.source),
        ("trace", &draft.trace),
        ("schema", &draft.schema),
        ("type", &draft.kind),
        ("caused_by", &draft.caused_by),
        ("content_type", &draft.content_type),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            check_text(name, text)?;
        }
    }
    if let Some(key) = &draft.key {
        check_text("key", key)?;
    }
    match &draft.subject {
        Some(subject) => check_subject(subject),
        None => Ok(()),
    }
}

/// The kind may be `""`: CloudEvents name subjects without one.
fn check_subject(subject: &Subject) -> Result<(), Problem> {
    let within = |problem: Problem| problem.within("/subject");
    check_text("id", &subject.id).map_err(within)?;
    if subject.kind.is_empty() { Ok(()) } else { check_text("kind", &subject.kind).map_err(within) }
}

fn check_text(name: &str, text: &str) -> Result<(), Problem> {
    if text.is_empty() {
        let detail = format!("\"{name}\" is empty");
        return Err(Problem::new(Code::EventInvalid, detail).hint("leave the field out").at(read::at(name)));
    }
    check_length(name, text)?;
    match text.chars().find(|c| c.is_control()) {
        None => Ok(()),
        Some(c) => {
            let detail = format!("\"{name}\" has a control character {c:?}");
            Err(Problem::new(Code::EventInvalid, detail).hint("remove it").at(read::at(name)))
        }
    }
}

fn check_length(name: &str, text: &str) -> Result<(), Problem> {
    if text.len() <= TEXT_BYTES_MAX {
        return Ok(());
    }
    let detail = format!("\"{name}\" has {} bytes, more than {TEXT_BYTES_MAX}", text.len());
    Err(Problem::new(Code::EventInvalid, detail).hint("put long text into the payload").at(read::at(name)))
}

fn check_visible(name: &str, text: &str) -> Result<(), Problem> {
    // Nearly all names are plain ASCII, and this is on the path of every event.
    if text.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(());
    }
    match text.chars().find(|c| c.is_whitespace() || c.is_control()) {
        None => Ok(()),
        Some(c) => {
            let detail = format!("\"{name}\" has {c:?}, which is not a visible character");
            Err(Problem::new(Code::EventInvalid, detail)
                .hint("use visible characters only")
                .at(read::at(name)))
        }
    }
}

/// Size, grammar, depth and duplicate keys; drafts built in process have not been read by anyone yet.
/// Newlines between tokens become spaces, because a commit is one line and so is a frame of a stream.
fn check_json(name: &str, value: &mut Box<RawValue>, limits: &Limits) -> Result<(), Problem> {
    let text = value.get();
    read::check_size(name, text.len(), limits)?;
    // The event around it is one level.
    json::check(text.as_bytes(), limits.max_depth.saturating_sub(1))
        .map_err(|problem| problem.within(&read::at(name)))?;
    if memchr::memchr2(b'\n', b'\r', text.as_bytes()).is_some() {
        *value = raw(text.replace(['\n', '\r'], " "));
    }
    Ok(())
}

fn check_content(draft: &Draft) -> Result<(), Problem> {
    let content_type = draft.content_type.as_deref().unwrap_or_default();
    if content_type.is_empty() || is_json(content_type) {
        return Ok(());
    }
    let text = json::unquote(draft.payload.get());
    if text.is_some_and(|text| base64::decode(&text).is_some()) {
        return Ok(());
    }
    let detail = format!("\"payload\" is not base64 text, as content type {content_type:?} needs");
    Err(Problem::new(Code::EventInvalid, detail)
        .hint("encode the content as base64, or leave out \"content_type\" for JSON")
        .at("/payload"))
}

/// Whether content of this type stands in the payload as it is.
pub(super) fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || essence == "text/json" || essence.ends_with("+json")
}
