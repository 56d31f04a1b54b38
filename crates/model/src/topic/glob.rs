//! A `*` inside one word of a pattern, such as `v1:cognition:*`; matched within that word only.

/// Literal text around the stars of one word: what it begins with, ends with, and holds in between, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    pub(crate) prefix: String,
    pub(crate) suffix: String,
    pub(crate) middle: Vec<String>,
}

impl Glob {
    /// From a word with at least one `*`.
    pub(crate) fn new(word: &str) -> Glob {
        let mut parts = word.split('*');
        let prefix = parts.next().unwrap_or_default().to_owned();
        let suffix = parts.next_back().unwrap_or_default().to_owned();
        let middle = parts.filter(|part| !part.is_empty()).map(str::to_owned).collect();
        Glob { prefix, suffix, middle }
    }

    pub(crate) fn matches(&self, word: &str) -> bool {
        let inner = word.strip_prefix(self.prefix.as_str());
        match inner.and_then(|rest| rest.strip_suffix(self.suffix.as_str())) {
            Some(inner) => holds_in_order(&self.middle, inner),
            None => false,
        }
    }
}

/// Taking each part at its first place is enough: it leaves the most room for the next.
pub(crate) fn holds_in_order(parts: &[String], mut text: &str) -> bool {
    for part in parts {
        match text.find(part.as_str()) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    true
}
