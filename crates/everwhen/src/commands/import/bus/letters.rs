//! The bus's dead letters: what its lines say, and how each becomes a dead letter of its group.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use engine::Draft;
use model::json::canonical_hash;
use model::{Position, Problem};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::lines::Lines;
use crate::reach::Reach;
use crate::reach::groups::Settle;

/// One line of `dlq/`.
pub struct Letter {
    /// The id its event is found by.
    pub id: String,
    /// The group it names, if it does.
    pub group: Option<String>,
    pub error: String,
    /// The event's offset in its topic, where one is known.
    pub offset: Option<i64>,
    /// The log has its event, too.
    pub is_logged: bool,
}

/// The bus wrote `{"original_topic","error","failed_at","event":{"meta","payload"}}`; its paper says that the line is that of
/// the event. Either may name the group.
#[derive(Deserialize)]
struct Written<'a> {
    #[serde(borrow)]
    event: Option<&'a RawValue>,
    meta: Option<serde::de::IgnoredAny>,
    original_topic: Option<String>,
    error: Option<Value>,
    #[serde(alias = "consumer_group", alias = "group_id")]
    group: Option<String>,
    offset: Option<i64>,
}

/// Reads the dead letters of a topic: who they are, and the event that each carries.
pub fn read(topic: &str, lines: &mut Lines) -> Result<Vec<(Letter, Draft)>, Problem> {
    let mut letters = Vec::new();
    while let Some((_, letter)) = lines.next(|line| one(topic, line))? {
        letters.push(letter);
    }
    Ok(letters)
}

fn one(topic: &str, line: &[u8]) -> Result<(Letter, Draft), Problem> {
    // What is not understood here is refused with its place below.
    let written: Option<Written<'_>> = serde_json::from_slice(line).ok();
    let Some(written) = written else {
        let draft = Draft::from_bus_line(topic, line)?;
        return Ok(named(draft, None, String::new(), None, line));
    };
    let (inner, offset) = match (&written.meta, written.event) {
        (None, Some(event)) => {
            let offset = serde_json::from_str::<Numbered>(event.get()).ok().and_then(|inner| inner.offset);
            (event.get().as_bytes(), offset.or(written.offset))
        }
        _ => (line, written.offset),
    };
    let draft = Draft::from_bus_line(written.original_topic.as_deref().unwrap_or(topic), inner)?;
    let error = match written.error {
        Some(Value::String(text)) => text,
        Some(Value::Null) | None => "a dead letter of the bus".to_owned(),
        Some(other) => other.to_string(),
    };
    Ok(named(draft, written.group, error, offset, line))
}

#[derive(Deserialize)]
pub struct Numbered {
    pub offset: Option<i64>,
}

/// An event without an id gets one that a second reading of the same line gives it again.
fn named(
    mut draft: Draft,
    group: Option<String>,
    error: String,
    offset: Option<i64>,
    line: &[u8],
) -> (Letter, Draft) {
    let id = draft.id.get_or_insert_with(|| {
        let hash = canonical_hash([String::from_utf8_lossy(line).as_ref()]);
        let hex: String = hash.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        format!("dlq-{hex}")
    });
    (Letter { id: id.clone(), group, error, offset, is_logged: false }, draft)
}

/// The dead letters of each topic, by the topic of their file.
#[derive(Default)]
pub struct Letters(pub BTreeMap<String, Vec<Letter>>);

impl Letters {
    /// Reads the files of `dlq/`. Returns the events they carry, by topic and id, each once.
    pub fn read(
        &mut self,
        files: Vec<(String, PathBuf)>,
        skipped: &mut Vec<String>,
    ) -> Result<HashMap<(String, String), Draft>, Problem> {
        let mut events = HashMap::new();
        for (name, path) in files {
            let topic = name.strip_suffix(".dlq.jsonl").or(name.strip_suffix(".jsonl")).unwrap_or(&name);
            let mut lines = Lines::new(&[path]);
            for (letter, draft) in read(topic, &mut lines)? {
                events.entry((topic.to_owned(), letter.id.clone())).or_insert(draft);
                self.0.entry(topic.to_owned()).or_default().push(letter);
            }
            skipped.append(&mut lines.skipped);
        }
        Ok(events)
    }

    /// The log has an event; true when that is a dead letter, whose offset is then known.
    pub fn found(&mut self, topic: &str, id: &str, offset: Option<i64>) -> bool {
        let mut found = false;
        for letter in self.0.get_mut(topic).into_iter().flatten().filter(|letter| letter.id == id) {
            letter.offset = offset.or(letter.offset);
            letter.is_logged = true;
            found = true;
        }
        found
    }
}

/// Makes `name` a group that has given up on the events at `letters`, and goes on at `start`. Each of them is handed out
/// once, to us, and comes back as a failure for good; in order, because a seek back would bring letters back to life.
pub async fn bury(
    reach: &Reach,
    name: &str,
    letters: &BTreeMap<Position, String>,
    pattern: &Value,
    start: &Value,
) -> Result<u64, Problem> {
    let Some(first) = letters.keys().next() else { return Ok(0) };
    let once = json!({
        "pattern": pattern, "start": { "position": first }, "ordering": "strict", "max_retries": 0, "on_expired": "dead_letter",
    });
    reach.put_group(name, &once).await?;
    for (position, error) in letters {
        reach.seek(name, &json!({ "position": position })).await?;
        let Some(delivery) = reach.pull(name, 1, Duration::ZERO).await?.pop() else { continue };
        let how = Settle::Nack { delay: None, error: Some(error.clone()) };
        reach.settle(name, &[delivery.token], how).await?;
    }
    let (_, view) = reach.put_group(name, &json!({ "pattern": pattern, "start": start })).await?;
    let to = if start == "now" { json!("end") } else { start.clone() };
    reach.seek(name, &to).await?;
    Ok(view["dead_letters"].as_u64().unwrap_or_default())
}
