//! The extensions of a draft in the making: a JSON object written member by member.

use std::collections::HashSet;

use model::event::push_text;

#[derive(Default)]
pub(super) struct Ext {
    text: String,
    names: HashSet<String>,
}

impl Ext {
    /// Adds a member; `value` is JSON text. A name that comes again keeps its first value.
    pub(super) fn push(&mut self, name: &str, value: &str) {
        if !self.names.insert(name.to_owned()) {
            return;
        }
        self.text.push(if self.text.is_empty() { '{' } else { ',' });
        push_text(&mut self.text, name);
        self.text.push(':');
        self.text.push_str(value);
    }

    /// The object, or `None` when it has no member.
    pub(super) fn finish(mut self) -> Option<String> {
        self.text.push('}');
        (!self.names.is_empty()).then_some(self.text)
    }
}
