//! One pass over checked JSON text that replaces marked nodes and masks what detectors find, and copies all
//! else as written.

use model::event::push_text;
use model::id::hex;
use model::json;
use serde_json::Value;

use super::detect::Detectors;
use super::{Action, Marks, mark};

/// The text after redaction, or `None` when nothing in it changes. `node` is the same value as a tree, when
/// paths were searched in it.
pub(super) fn rewrite(
    text: &str,
    node: Option<&Value>,
    marks: &Marks,
    detectors: &Detectors,
) -> Option<String> {
    if marks.is_empty() && detectors.is_empty() {
        return None;
    }
    let out = String::with_capacity(text.len());
    let mut rewriter = Rewriter { text, at: 0, out, changed: false, marks, detectors };
    rewriter.value(node);
    rewriter.changed.then_some(rewriter.out)
}

/// What stands in the place of a masked or hashed node.
pub(super) fn replacement(action: Action, text: &str) -> String {
    match action {
        Action::Drop => "null".to_owned(),
        Action::Mask => "\"***\"".to_owned(),
        Action::Hash => format!("\"sha256:{}\"", hex(&json::canonical_hash([text]))),
    }
}

/// Walks text and tree together. Nesting was bounded when the text was checked.
struct Rewriter<'a> {
    text: &'a str,
    at: usize,
    out: String,
    changed: bool,
    marks: &'a Marks,
    detectors: &'a Detectors,
}

impl<'a> Rewriter<'a> {
    fn value(&mut self, node: Option<&Value>) {
        match (self.peek(), self.mark(node)) {
            (_, Some(action)) => {
                let text = self.skip();
                self.out.push_str(&replacement(action, text));
                self.changed = true;
            }
            (b'{', None) => self.object(node),
            (b'[', None) => self.array(node),
            (b'"', None) => self.string(),
            _ => self.word(),
        }
    }

    fn mark(&self, node: Option<&Value>) -> Option<Action> {
        mark(self.marks, node)
    }

    fn object(&mut self, node: Option<&Value>) {
        self.open('{');
        let mut first = true;
        while self.peek() == b'"' {
            let key = self.skip();
            let child = node.and_then(|node| node.get(json::unquote(key)?.as_ref()));
            self.peek();
            self.at += 1;
            self.member(child, Some(key), &mut first);
        }
        self.close('}');
    }

    fn array(&mut self, node: Option<&Value>) {
        self.open('[');
        let mut first = true;
        let mut index = 0;
        while !matches!(self.peek(), b']' | 0) {
            self.member(node.and_then(|node| node.get(index)), None, &mut first);
            index += 1;
        }
        self.close(']');
    }

    /// A member of an object or array, with the commas around it: none for what is dropped.
    fn member(&mut self, child: Option<&Value>, key: Option<&str>, first: &mut bool) {
        if self.mark(child) == Some(Action::Drop) {
            self.skip();
            self.changed = true;
        } else {
            if !std::mem::take(first) {
                self.out.push(',');
            }
            if let Some(key) = key {
                self.out.push_str(key);
                self.out.push(':');
            }
            self.value(child);
        }
        if self.peek() == b',' {
            self.at += 1;
        }
    }

    fn string(&mut self) {
        let quoted = self.skip();
        let masked = json::unquote(quoted).and_then(|text| self.detectors.mask(&text));
        match masked {
            Some(masked) => {
                push_text(&mut self.out, &masked);
                self.changed = true;
            }
            None => self.out.push_str(quoted),
        }
    }

    fn word(&mut self) {
        let text = self.skip();
        if self.detectors.finds_number(text) {
            self.out.push_str("\"***\"");
            self.changed = true;
        } else {
            self.out.push_str(text);
        }
    }

    fn open(&mut self, bracket: char) {
        self.at += 1;
        self.out.push(bracket);
    }

    fn close(&mut self, bracket: char) {
        self.open(bracket);
    }

    /// Passes over one value and gives its text.
    fn skip(&mut self) -> &'a str {
        self.peek();
        let bytes = self.text.as_bytes();
        let (start, mut depth) = (self.at, 0usize);
        loop {
            match bytes.get(self.at) {
                Some(b'"') => self.at = end_of_string(bytes, self.at),
                Some(b'{' | b'[') => (self.at, depth) = (self.at + 1, depth + 1),
                Some(b'}' | b']') => (self.at, depth) = (self.at + 1, depth - 1),
                Some(b',' | b':' | b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                Some(_) => self.at = end_of_word(bytes, self.at),
                None => break,
            }
            if depth == 0 {
                break;
            }
        }
        &self.text[start..self.at]
    }

    /// The next byte that is no space; 0 at the end.
    fn peek(&mut self) -> u8 {
        let bytes = self.text.as_bytes();
        while matches!(bytes.get(self.at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
        bytes.get(self.at).copied().unwrap_or(0)
    }
}

/// Behind the closing quote of the string that opens at `at`.
fn end_of_string(bytes: &[u8], mut at: usize) -> usize {
    loop {
        at += 1;
        match bytes.get(at) {
            Some(b'\\') => at += 1,
            Some(b'"') => return at + 1,
            Some(_) => {}
            None => return bytes.len(),
        }
    }
}

/// Behind a number, `true`, `false` or `null`.
fn end_of_word(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let ends = |b: &u8| matches!(b, b',' | b':' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r');
    at + rest.iter().position(ends).unwrap_or(rest.len())
}
