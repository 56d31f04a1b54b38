//! The bus's lines, file by file, and all of them by time as lines that `import` reads.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use engine::Draft;
use model::event::push_text;
use model::time::duration_json;
use model::{Code, Problem, Timestamp};
use serde_json::json;
use tokio::sync::mpsc;

use super::Events;

/// The lines of some files, one after the other, as something makes sense of them.
pub struct Lines {
    /// The files still to be read, the next one last.
    left: Vec<PathBuf>,
    open: Option<(PathBuf, BufReader<fs::File>, u64)>,
    /// Where a last line was passed over, and why.
    pub skipped: Vec<String>,
}

impl Lines {
    pub fn new(paths: &[PathBuf]) -> Lines {
        Lines { left: paths.iter().rev().cloned().collect(), open: None, skipped: Vec::new() }
    }

    /// What `read` makes of the next line. A last line that it cannot read was torn by a crash and was never
    /// acknowledged: it is passed over, and noted. One that has others behind it is damage.
    pub fn next<T>(
        &mut self,
        read: impl Fn(&[u8]) -> Result<T, Problem>,
    ) -> Result<Option<(Vec<u8>, T)>, Problem> {
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
            if line.is_empty() {
                self.open = None;
                continue;
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            match read(line.trim_ascii()) {
                Ok(found) => return Ok(Some((line, found))),
                Err(problem) => {
                    let place = format!("{}:{number}: {}", path.display(), problem.detail());
                    if !is_at_end(file).map_err(|error| unreadable(path, &error))? {
                        return Err(Problem::new(problem.code(), place));
                    }
                    self.skipped.push(place);
                    self.open = None;
                }
            }
        }
    }
}

/// Nothing but blank lines follows.
fn is_at_end(file: &mut BufReader<fs::File>) -> std::io::Result<bool> {
    let mut line = Vec::new();
    while file.read_until(b'\n', &mut line)? > 0 {
        if !line.trim_ascii().is_empty() {
            return Ok(false);
        }
        line.clear();
    }
    Ok(true)
}

/// The events of all topics as lines of an export, by time; a topic's own order is never changed. What only the dead
/// letters still have was behind the log's first line, so it comes first.
pub fn exported_lines(events: Events) -> Result<mpsc::Receiver<Bytes>, Problem> {
    let mut readers: Vec<(Option<Draft>, String, Lines)> = Vec::new();
    for (topic, paths) in events.topics {
        let mut lines = Lines::new(&paths);
        let next = lines.next(|line| Draft::from_bus_line(&topic, line))?.map(|(_, draft)| draft);
        readers.push((next, topic, lines));
    }
    let (sender, receiver) = mpsc::channel(1_024);
    std::thread::spawn(move || {
        let send = |draft: &Draft| sender.blocking_send(Bytes::from(exported(draft))).is_ok();
        if !events.orphans.iter().all(send) {
            return;
        }
        let time = |draft: &Option<Draft>| draft.as_ref().map(|draft| draft.time.unwrap_or(Timestamp::EPOCH));
        loop {
            let earliest =
                readers.iter_mut().filter(|(next, ..)| next.is_some()).min_by_key(|(next, ..)| time(next));
            let Some((next, topic, lines)) = earliest else { return };
            // All lines were read once already, so a second reading cannot fail on them.
            let following = lines.next(|line| Draft::from_bus_line(topic, line)).ok().flatten();
            let Some(draft) = std::mem::replace(next, following.map(|(_, draft)| draft)) else { return };
            if !send(&draft) {
                return;
            }
        }
    });
    Ok(receiver)
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

pub fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Problem {
    Problem::new(Code::UsageInvalid, format!("\"{}\" cannot be read: {error}", path.display()))
}
