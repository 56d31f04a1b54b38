//! Seed 002's own files as an export: `wal/<topic>.<n>.jsonl`, `offsets/<topic>__<group>.json`,
//! `dlq/<topic>.dlq.jsonl`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use engine::Draft;
use model::event::push_text;
use model::time::duration_json;
use model::{Code, Problem, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::reach::Reach;

/// What was found, checked line by line before anything is stored.
pub struct Plan {
    /// The files of each topic in order; dead letters are a topic of their own.
    topics: BTreeMap<String, Vec<PathBuf>>,
    consumers: Vec<Consumer>,
    pub dead_letters: u64,
}

/// One topic × group of the bus.
struct Consumer {
    topic: String,
    group: String,
    committed: i64,
    /// The first event it had not settled.
    next: Next,
}

enum Next {
    /// It had settled all there is.
    Nothing,
    Event(String),
    /// The event has no id to be found by.
    Unnamed,
}

pub fn read(dir: &Path) -> Result<Plan, Problem> {
    let mut topics: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for (name, path) in files(&dir.join("wal"))? {
        let stem = name.strip_suffix(".jsonl").unwrap_or(&name);
        let topic = match stem.rsplit_once('.') {
            Some((topic, number)) if number.bytes().all(|b| b.is_ascii_digit()) => topic,
            _ => stem,
        };
        topics.entry(topic.to_owned()).or_default().push(path);
    }
    if topics.is_empty() {
        return Err(Problem::new(
            Code::NotFound,
            format!("there is no wal/*.jsonl in \"{}\"", dir.display()),
        )
        .hint("name the directory that holds wal/, offsets/ and dlq/"));
    }
    let mut consumers = consumers(&dir.join("offsets"))?;
    for (topic, paths) in &topics {
        check(topic, paths, &mut consumers)?;
    }
    let mut dead_letters = 0;
    for (name, path) in files(&dir.join("dlq"))? {
        let topic = name.strip_suffix(".dlq.jsonl").or(name.strip_suffix(".jsonl")).unwrap_or(&name);
        let topic = format!("{topic}.dead_letter");
        dead_letters += check(&topic, std::slice::from_ref(&path), &mut [])?;
        topics.entry(topic).or_default().push(path);
    }
    Ok(Plan { topics, consumers, dead_letters })
}

/// Names and paths in a folder, sorted; a folder that is not there is empty.
fn files(dir: &Path) -> Result<Vec<(String, PathBuf)>, Problem> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(dir, &error)),
    };
    let mut found: Vec<_> = entries
        .filter_map(|entry| entry.ok())
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
        .filter(|(name, path)| path.is_file() && !name.starts_with('.'))
        .collect();
    found.sort();
    Ok(found)
}

fn consumers(dir: &Path) -> Result<Vec<Consumer>, Problem> {
    #[derive(Deserialize)]
    struct Offset {
        committed: i64,
    }
    let mut consumers = Vec::new();
    for (name, path) in files(dir)? {
        let Some((topic, group)) = name.strip_suffix(".json").and_then(|stem| stem.rsplit_once("__")) else {
            continue;
        };
        let bytes = fs::read(&path).map_err(|error| unreadable(&path, &error))?;
        let Offset { committed } =
            serde_json::from_slice(&bytes).map_err(|error| unreadable(&path, &error))?;
        let (topic, group) = (topic.to_owned(), group.to_owned());
        consumers.push(Consumer { topic, group, committed, next: Next::Nothing });
    }
    Ok(consumers)
}

/// Reads every line of a topic, so that a bad one is named before anything is stored, and notes for each consumer
/// where it stood. Returns how many lines there are.
fn check(topic: &str, paths: &[PathBuf], consumers: &mut [Consumer]) -> Result<u64, Problem> {
    #[derive(Deserialize)]
    struct Numbered {
        offset: Option<i64>,
    }
    let mut reader = Reader::new(topic, paths);
    let mut count = 0;
    while let Some((line, draft)) = reader.next()? {
        count += 1;
        let offset = serde_json::from_slice::<Numbered>(&line).ok().and_then(|numbered| numbered.offset);
        for consumer in consumers.iter_mut().filter(|consumer| consumer.topic == topic) {
            let ahead = offset.is_none_or(|offset| offset > consumer.committed);
            if ahead && matches!(consumer.next, Next::Nothing) {
                consumer.next = draft.id.clone().map_or(Next::Unnamed, Next::Event);
            }
        }
    }
    Ok(count)
}

/// The events of all topics as lines of an export, by time; a topic's own order is never changed.
pub fn lines(plan: &Plan) -> Result<mpsc::Receiver<Bytes>, Problem> {
    let mut readers: Vec<(Option<Draft>, Reader)> = Vec::new();
    for (topic, paths) in &plan.topics {
        let mut reader = Reader::new(topic, paths);
        readers.push((reader.next()?.map(|(_, draft)| draft), reader));
    }
    let (sender, receiver) = mpsc::channel(1_024);
    std::thread::spawn(move || {
        let time = |draft: &Option<Draft>| draft.as_ref().map(|draft| draft.time.unwrap_or(Timestamp::EPOCH));
        loop {
            let earliest =
                readers.iter_mut().filter(|(next, _)| next.is_some()).min_by_key(|(next, _)| time(next));
            let Some((next, reader)) = earliest else { return };
            // All lines were read once already, so a second reading cannot fail on them.
            let following = reader.next().ok().flatten().map(|(_, draft)| draft);
            let Some(draft) = std::mem::replace(next, following) else { return };
            if sender.blocking_send(Bytes::from(exported(&draft))).is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

/// Makes each consumer a group that goes on where it stood; the groups' names.
pub async fn make_groups(plan: &Plan, reach: &Reach) -> Result<Vec<String>, Problem> {
    let mut names = Vec::new();
    for consumer in &plan.consumers {
        let start = match &consumer.next {
            Next::Nothing => json!("now"),
            Next::Unnamed => json!("beginning"),
            Next::Event(id) => {
                let event: Value = serde_json::from_str(&reach.event(id).await?).unwrap_or_default();
                json!({ "position": event["position"] })
            }
        };
        let name = group_name(&format!("{}__{}", consumer.topic, consumer.group));
        reach.put_group(&name, &json!({ "pattern": consumer.topic, "start": start })).await?;
        names.push(name);
    }
    Ok(names)
}

/// A name that a group may have: what is not allowed in it becomes `-`.
fn group_name(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' { c } else { '-' };
    let name: String = text.to_lowercase().chars().map(plain).take(64).collect();
    name.trim_start_matches(['-', '_']).to_owned()
}

/// The lines of one topic over its files.
struct Reader {
    topic: String,
    /// The files still to be read, the next one last.
    left: Vec<PathBuf>,
    open: Option<(PathBuf, BufReader<fs::File>, u64)>,
}

impl Reader {
    fn new(topic: &str, paths: &[PathBuf]) -> Reader {
        Reader { topic: topic.to_owned(), left: paths.iter().rev().cloned().collect(), open: None }
    }

    /// The next line and what it says. A last line without an end was torn by a crash and was never acknowledged.
    fn next(&mut self) -> Result<Option<(Vec<u8>, Draft)>, Problem> {
        loop {
            let Some((path, file, number)) = &mut self.open else {
                let Some(path) = self.left.pop() else { return Ok(None) };
                let file = fs::File::open(&path).map_err(|error| unreadable(&path, &error))?;
                self.open = Some((path, BufReader::new(file), 0));
                continue;
            };
            let mut line = Vec::new();
            file.read_until(b'\n', &mut line).map_err(|error| unreadable(path, &error))?;
            *number += 1;
            let ended = line.last() == Some(&b'\n');
            match Draft::from_bus_line(&self.topic, line.trim_ascii()) {
                _ if line.is_empty() => self.open = None,
                _ if line.trim_ascii().is_empty() => {}
                Ok(draft) => return Ok(Some((line, self.own(draft)))),
                Err(_) if !ended => self.open = None,
                Err(problem) => {
                    let place = format!("{}:{number}: {}", path.display(), problem.detail());
                    return Err(Problem::new(problem.code(), place));
                }
            }
        }
    }

    /// A dead letter carries its first topic in its meta; it belongs under the topic of its file here.
    fn own(&self, mut draft: Draft) -> Draft {
        if self.topic.ends_with(".dead_letter") {
            draft.topic = self.topic.clone();
            draft.key = None;
        }
        draft
    }
}

/// A draft as a line that `import` reads.
fn exported(draft: &Draft) -> String {
    let mut out = String::from("{\"topic\":");
    push_text(&mut out, &draft.topic);
    let text = |value: &Option<String>| value.as_ref().map(|v| json!(v));
    let fields = [
        ("id", text(&draft.id)),
        ("space", text(&draft.space)),
        ("time", draft.time.map(|v| json!(v))),
        ("source", text(&draft.source)),
        ("subject", draft.subject.as_ref().map(|v| json!(v))),
        ("trace", text(&draft.trace)),
        ("key", text(&draft.key)),
        ("ttl", draft.ttl.map(duration_json)),
        ("priority", (draft.priority > 0).then(|| json!(draft.priority))),
        ("band", Some(json!(draft.band))),
        ("schema", text(&draft.schema)),
        ("type", text(&draft.kind)),
        ("caused_by", text(&draft.caused_by)),
        ("sequence", draft.sequence.map(|v| json!(v))),
        ("content_type", text(&draft.content_type)),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            out.push_str(&format!(",\"{name}\":{value}"));
        }
    }
    if let Some(ext) = &draft.ext {
        out.push_str(&format!(",\"ext\":{}", ext.get()));
    }
    out.push_str(&format!(",\"payload\":{}}}\n", draft.payload.get()));
    out
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Problem {
    Problem::new(Code::UsageInvalid, format!("\"{}\" cannot be read: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumer_becomes_a_group_with_a_name_that_groups_may_have() {
        assert_eq!(group_name("actions__learner"), "actions__learner");
        assert_eq!(group_name("_Space.Out__A B"), "space-out__a-b");
    }
}
