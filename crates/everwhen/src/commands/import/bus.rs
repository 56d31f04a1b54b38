//! Seed 002's own files as an export: `wal/<topic>.<n>.jsonl`, `offsets/<topic>__<group>.json`,
//! `dlq/<topic>.dlq.jsonl`.

mod letters;
mod lines;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use engine::Draft;
use model::{Code, Position, Problem};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::reach::Reach;
use letters::{Letter, Letters, Numbered};
pub use lines::exported_lines;
use lines::{Lines, unreadable};

/// The group of dead letters whose topic had no group.
const NOBODYS: &str = "dead_letters";

/// What was found, checked line by line before anything is stored.
pub struct Plan {
    pub events: Events,
    pub groups: Groups,
    /// Last lines that could not be read, each with its place.
    pub skipped: Vec<String>,
    /// What else whoever imports should know.
    pub notes: Vec<String>,
}

/// Where the events are.
pub struct Events {
    /// The files of each topic in order.
    topics: BTreeMap<String, Vec<PathBuf>>,
    /// Events that only the dead letters still have.
    orphans: Vec<Draft>,
}

/// Who read, and what they gave up on.
pub struct Groups {
    consumers: Vec<Consumer>,
    letters: Letters,
}

/// One topic × group of the bus.
struct Consumer {
    topic: String,
    group: String,
    /// The offset it had settled last; `None` when that could not be read.
    committed: Option<i64>,
    /// Only dead letters speak of it: it had come as far as the last of them.
    by_letters: bool,
    /// The first event it had not settled.
    next: Next,
    /// The topics that events of its files really have.
    patterns: BTreeSet<String>,
}

enum Next {
    /// It had settled all there is.
    Nothing,
    Event(String),
    /// The event has no id to be found by, or nobody knows which it is.
    Unnamed,
}

impl Consumer {
    fn new(topic: &str, group: &str, committed: Option<i64>) -> Consumer {
        let next = if committed.is_some() { Next::Nothing } else { Next::Unnamed };
        let (topic, group) = (topic.to_owned(), group.to_owned());
        Consumer { topic, group, committed, by_letters: false, next, patterns: BTreeSet::new() }
    }

    /// It had been handed that event, and had gone on. What has no offset is older than the log.
    fn is_past(&self, offset: Option<i64>) -> bool {
        let settled = |committed| offset.is_none_or(|offset| offset <= committed);
        self.committed.is_some_and(settled) && !matches!(self.next, Next::Unnamed)
    }
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
    let (mut skipped, mut notes, mut letters) = (Vec::new(), Vec::new(), Letters::default());
    let mut carried = letters.read(files(&dir.join("dlq"))?, &mut skipped)?;
    let mut groups = Groups { consumers: consumers(&dir.join("offsets"), &mut notes)?, letters };
    groups.complete();
    for (topic, paths) in &topics {
        skipped.append(&mut check(topic, paths, &mut groups, &mut carried)?);
    }
    let mut orphans: Vec<Draft> = carried.into_values().collect();
    orphans.sort_by(|a, b| (a.time, &a.id).cmp(&(b.time, &b.id)));
    Ok(Plan { events: Events { topics, orphans }, groups, skipped, notes })
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

/// A consumer whose offset cannot be read begins again: what it is told twice it knows, what it is never told is lost.
fn consumers(dir: &Path, notes: &mut Vec<String>) -> Result<Vec<Consumer>, Problem> {
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
        let committed = match serde_json::from_slice(&bytes) {
            Ok(Offset { committed }) => Some(committed),
            Err(error) => {
                let place = path.display();
                notes.push(format!("{place}: {error}; the group begins with the first event of \"{topic}\""));
                None
            }
        };
        consumers.push(Consumer::new(topic, group, committed));
    }
    Ok(consumers)
}

/// Reads every line of a topic, so that a bad one is named before anything is stored, notes for each consumer where it
/// stood, and takes out of `carried` what the log has itself. Returns the last lines that cannot be read.
fn check(
    topic: &str,
    paths: &[PathBuf],
    groups: &mut Groups,
    carried: &mut HashMap<(String, String), Draft>,
) -> Result<Vec<String>, Problem> {
    let mut lines = Lines::new(paths);
    while let Some((line, draft)) = lines.next(|line| Draft::from_bus_line(topic, line))? {
        let offset = serde_json::from_slice::<Numbered>(&line).ok().and_then(|numbered| numbered.offset);
        for consumer in groups.consumers.iter_mut().filter(|consumer| consumer.topic == topic) {
            consumer.patterns.insert(draft.topic.clone());
            let Some(committed) = consumer.committed else { continue };
            let ahead = offset.is_none_or(|offset| offset > committed);
            if ahead && matches!(consumer.next, Next::Nothing) {
                consumer.next = draft.id.clone().map_or(Next::Unnamed, Next::Event);
            }
        }
        if let Some(id) = &draft.id
            && groups.letters.found(topic, id, offset)
        {
            carried.remove(&(topic.to_owned(), id.clone()));
            groups.reached(topic, id, offset);
        }
    }
    Ok(lines.skipped)
}

impl Groups {
    /// Adds the groups that only dead letters speak of; letters of a topic that nobody read are somebody's to look at.
    fn complete(&mut self) {
        for (topic, letters) in &self.letters.0 {
            let named: BTreeSet<&String> =
                letters.iter().filter_map(|letter| letter.group.as_ref()).collect();
            for group in named {
                if !self.consumers.iter().any(|known| known.topic == *topic && known.group == *group) {
                    let unknown = Consumer::new(topic, group, Some(i64::MIN));
                    self.consumers.push(Consumer { by_letters: true, ..unknown });
                }
            }
            if !self.consumers.iter().any(|known| known.topic == *topic) {
                self.consumers.push(Consumer::new(topic, NOBODYS, Some(i64::MAX)));
            }
        }
    }

    /// The log is at an event that is a dead letter: who is known by that had settled it.
    fn reached(&mut self, topic: &str, id: &str, offset: Option<i64>) {
        for letter in self.letters.0.get(topic).into_iter().flatten().filter(|letter| letter.id == id) {
            let named = |consumer: &&mut Consumer| {
                consumer.by_letters
                    && consumer.topic == topic
                    && letter.group.as_ref() == Some(&consumer.group)
            };
            for consumer in self.consumers.iter_mut().filter(named) {
                consumer.committed = consumer.committed.max(offset);
                consumer.next = Next::Nothing;
            }
        }
    }

    /// Makes each consumer a group that goes on where it stood, with its dead letters. A group that is here already is left
    /// as it is. Returns the groups' names, and how many dead letters they got.
    pub async fn make(&self, reach: &Reach) -> Result<(Vec<String>, u64), Problem> {
        let (mut names, mut buried) = (Vec::new(), 0);
        for consumer in &self.consumers {
            let name = group_name(&format!("{}__{}", consumer.topic, consumer.group));
            names.push(name.clone());
            match reach.group(&name).await {
                Err(problem) if problem.code() == Code::GroupNotFound => {}
                Err(problem) => return Err(problem),
                Ok(_) => continue,
            }
            let made = self.make_one(&name, consumer, reach).await;
            if made.is_err() {
                // A group half made would be left as it is by the next import.
                let _ = reach.delete_group(&name).await;
            }
            buried += made?;
        }
        Ok((names, buried))
    }

    /// Whether a dead letter is this consumer's: it names it, or nobody and this one had gone past it. What the log does not have
    /// any more cannot be handed out again, so it is somebody's whatever the offsets say.
    fn is_of(&self, letter: &Letter, consumer: &Consumer) -> bool {
        let is_named = letter.group.as_ref().is_none_or(|group| *group == consumer.group);
        let past = |consumer: &Consumer| consumer.is_past(letter.offset);
        let nobodys = || {
            let of_topic = self.consumers.iter().filter(|other| other.topic == consumer.topic);
            letter.group.is_some() || !of_topic.into_iter().any(past)
        };
        is_named && (past(consumer) || (!letter.is_logged && nobodys()))
    }

    async fn make_one(&self, name: &str, consumer: &Consumer, reach: &Reach) -> Result<u64, Problem> {
        let start = match &consumer.next {
            Next::Nothing => json!("now"),
            Next::Unnamed => json!("beginning"),
            Next::Event(id) => json!({ "position": position(reach, id).await? }),
        };
        let mut letters = BTreeMap::new();
        let mut patterns = consumer.patterns.clone();
        for letter in self.letters.0.get(&consumer.topic).into_iter().flatten() {
            if self.is_of(letter, consumer) {
                let event: Value = serde_json::from_str(&reach.event(&letter.id).await?).unwrap_or_default();
                patterns.extend(event["topic"].as_str().map(str::to_owned));
                letters.insert(event["position"].as_u64().unwrap_or_default(), letter.error.clone());
            }
        }
        let pattern = match patterns.len() {
            0 => json!(consumer.topic),
            1 => json!(patterns.first()),
            _ => json!(patterns),
        };
        match letters.is_empty() {
            true => reach.put_group(name, &json!({ "pattern": pattern, "start": start })).await.map(|_| 0),
            false => letters::bury(reach, name, &letters, &pattern, &start).await,
        }
    }
}

async fn position(reach: &Reach, id: &str) -> Result<Position, Problem> {
    let event: Value = serde_json::from_str(&reach.event(id).await?).unwrap_or_default();
    Ok(event["position"].as_u64().unwrap_or_default())
}

/// A name that a group may have: what is not allowed in it becomes `-`.
fn group_name(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' { c } else { '-' };
    let name: String = text.to_lowercase().chars().map(plain).take(64).collect();
    name.trim_start_matches(['-', '_']).to_owned()
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
