//! The fields of an envelope, told one after the other: as the text of contracts §2, or as the value that expressions read.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::{Subject, push_text};
use crate::Timestamp;

pub(super) trait Fields {
    fn text(&mut self, name: &str, value: &str);
    fn number(&mut self, name: &str, value: u64);
    fn instant(&mut self, name: &str, value: Timestamp);
    fn subject(&mut self, value: &Subject);
    /// What is rare.
    fn other(&mut self, name: &str, value: Value);

    fn optional(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }
}

/// After an opening brace, without the closing one. On the path of every delivery, hence written by hand; writing to a String cannot fail.
impl Fields for String {
    fn text(&mut self, name: &str, value: &str) {
        push_name(self, name);
        push_text(self, value);
    }

    fn number(&mut self, name: &str, value: u64) {
        push_name(self, name);
        let _ = write!(self, "{value}");
    }

    fn instant(&mut self, name: &str, value: Timestamp) {
        push_name(self, name);
        let _ = write!(self, "\"{value}\"");
    }

    fn subject(&mut self, value: &Subject) {
        self.push_str(",\"subject\":{\"kind\":");
        push_text(self, &value.kind);
        self.text("id", &value.id);
        self.push('}');
    }

    fn other(&mut self, name: &str, value: Value) {
        push_name(self, name);
        let _ = write!(self, "{value}");
    }
}

fn push_name(out: &mut String, name: &str) {
    // No field ends so: it is the brace before the first.
    if !out.ends_with('{') {
        out.push(',');
    }
    out.push('"');
    out.push_str(name);
    out.push_str("\":");
}

impl Fields for Map<String, Value> {
    fn text(&mut self, name: &str, value: &str) {
        self.insert(name.to_owned(), value.into());
    }

    fn number(&mut self, name: &str, value: u64) {
        self.insert(name.to_owned(), value.into());
    }

    fn instant(&mut self, name: &str, value: Timestamp) {
        self.insert(name.to_owned(), value.to_string().into());
    }

    fn subject(&mut self, value: &Subject) {
        let mut subject = Map::new();
        subject.text("kind", &value.kind);
        subject.text("id", &value.id);
        self.insert("subject".to_owned(), subject.into());
    }

    fn other(&mut self, name: &str, value: Value) {
        self.insert(name.to_owned(), value);
    }
}
