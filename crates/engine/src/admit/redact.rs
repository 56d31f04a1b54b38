//! Redaction: what must not be stored is taken out of payload and ext before anything is written, counted or
//! judged.
//!
//! Only the nodes meant are touched; all other text stays as the client wrote it, digit for digit.

mod detect;
mod rewrite;

use std::collections::HashMap;

use lang::jsonpath::JsonPath;
use model::topic::Pattern;
use model::{Code, Problem};
use serde_json::{Map, Value};

use super::{Draft, check, draft, parse, read};
use crate::settings::{Limits, RedactRule};
use detect::Detectors;
use rewrite::rewrite;

/// What happens to a node; of several the first of this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    Drop,
    Mask,
    Hash,
}

/// The nodes to act on, by their address in the tree that was searched; never looked through, only compared.
type Marks = HashMap<*const Value, Action>;

pub(super) struct Redaction {
    topic: Pattern,
    paths: Vec<(JsonPath, Action)>,
    detectors: Detectors,
}

impl Redaction {
    pub(super) fn new(rule: &RedactRule) -> Result<Redaction, Problem> {
        let lists = [(&rule.drop, Action::Drop), (&rule.mask, Action::Mask), (&rule.hash, Action::Hash)];
        let mut paths = Vec::new();
        for (list, action) in lists {
            for text in list {
                paths.push((compile(text)?, action));
            }
        }
        Ok(Redaction { topic: rule.topic.clone(), paths, detectors: Detectors::new(&rule.detectors) })
    }

    pub(super) fn apply(&self, draft: &mut Draft, limits: &Limits) -> Result<(), Problem> {
        if !self.topic.receives(&draft.topic) {
            return Ok(());
        }
        let tree = if self.paths.is_empty() { Value::Null } else { tree_of(draft) };
        let marks = self.marks(&tree);
        if let Some(payload) = self.payload_after(draft, &tree, &marks) {
            // Hashes are longer than what they stand for.
            read::check_size("payload", payload.len(), limits)?;
            draft.payload = draft::raw(payload).into();
        }
        let ext = draft.ext.as_ref().map(|ext| ext.get());
        match ext.map(|ext| self.ext_after(ext, &tree, &marks)) {
            None | Some(Ext::Same) => {}
            Some(Ext::Gone) => draft.ext = None,
            Some(Ext::Now(text)) => {
                read::check_size("ext", text.len(), limits)?;
                draft.ext = Some(draft::raw(text));
            }
        }
        Ok(())
    }

    /// The payload's new text, if it changes. What is not JSON is opaque: it goes as a whole or stays.
    fn payload_after(&self, draft: &Draft, tree: &Value, marks: &Marks) -> Option<String> {
        let node = tree.get("payload");
        let whole = mark(marks, Some(tree)).or(mark(marks, node));
        let text = draft.payload.get();
        if !draft.content_type.as_deref().is_none_or(check::is_json) {
            return whole.map(|_| "\"\"".to_owned());
        }
        match whole {
            Some(Action::Drop) => Some("{}".to_owned()),
            Some(action) => Some(rewrite::replacement(action, text)),
            None => rewrite(text, node, marks, &self.detectors),
        }
    }

    /// Extensions are a map: what would replace it as a whole takes it away.
    fn ext_after(&self, ext: &str, tree: &Value, marks: &Marks) -> Ext {
        let node = tree.get("ext");
        if mark(marks, Some(tree)).or(mark(marks, node)).is_some() {
            return Ext::Gone;
        }
        rewrite(ext, node, marks, &self.detectors).map_or(Ext::Same, Ext::Now)
    }

    fn marks(&self, tree: &Value) -> Marks {
        let mut marks = Marks::new();
        for (path, action) in &self.paths {
            for node in path.values(tree) {
                let mark = marks.entry(std::ptr::from_ref(node)).or_insert(*action);
                *mark = (*mark).min(*action);
            }
        }
        marks
    }
}

enum Ext {
    Same,
    Gone,
    Now(String),
}

fn mark(marks: &Marks, node: Option<&Value>) -> Option<Action> {
    node.and_then(|node| marks.get(&std::ptr::from_ref(node))).copied()
}

/// What paths are searched in: the user's part of the event.
fn tree_of(draft: &Draft) -> Value {
    let mut root = Map::new();
    root.insert("payload".to_owned(), parse(draft.payload.get()));
    if let Some(ext) = &draft.ext {
        root.insert("ext".to_owned(), parse(ext.get()));
    }
    Value::Object(root)
}

/// Refuses what is no path, or one of what cannot be redacted.
pub fn check_redacted(text: &str) -> Result<(), Problem> {
    compile(text).map(|_| ())
}

fn compile(text: &str) -> Result<JsonPath, Problem> {
    let path = JsonPath::parse(text)?;
    match path.first_member() {
        Some(member) if member != "payload" && member != "ext" => {
            let detail = format!("path {text:?} reads {member:?}; only payload and ext can be redacted");
            Err(Problem::new(Code::ConfigInvalid, detail).hint("begin it with $.payload or $.ext"))
        }
        _ => Ok(path),
    }
}
