//! Topics and the patterns that match them (contracts §0); the first question asked of every event.

use crate::{Code, Problem};

mod glob;
pub mod trie;

#[cfg(test)]
mod tests;

use glob::Glob;

/// Longest topic or pattern, in bytes.
pub const BYTES_MAX: usize = 512;

/// First words that only the engine publishes under.
const RESERVED: [&str; 3] = ["graph", "automation", "engine"];

/// Refuses what is no topic: 1 to 512 bytes, words split by `.`, none empty, no whitespace, control
/// character, `*` or `#`.
pub fn check_topic(topic: &str) -> Result<(), Problem> {
    check(topic, "topic", false).map_err(|fault| fault.problem(Code::EventTopicInvalid, "topic", topic))
}

/// Whether only the engine may publish it.
pub fn is_reserved(topic: &str) -> bool {
    RESERVED.contains(&first_word(topic))
}

/// Whether it is what the engine writes about itself. Such an event meets only patterns that name it, so that
/// `#` does not react to its own reactions. `graph.*` is about users' data and matches like any other topic.
pub fn is_engine(topic: &str) -> bool {
    matches!(first_word(topic), "automation" | "engine") || topic == "workflow.dispatch_failed"
}

/// Whether it tells of a row of the house itself, such as a token: it says who may do what, and meets only patterns that are its
/// very topic.
pub fn is_house(topic: &str) -> bool {
    topic.starts_with("graph.") && topic.contains(".v1:everwhen:")
}

fn first_word(topic: &str) -> &str {
    topic.split('.').next().unwrap_or_default()
}

/// The words of a topic; `""` has none.
fn words(topic: &str) -> std::iter::Skip<std::str::Split<'_, char>> {
    topic.split('.').skip(usize::from(topic.is_empty()))
}

/// A topic pattern, compiled: `*` is one word, `#` zero or more, `*` inside a word any run of its characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    /// In normal form: a run of wildcards is its `*` words first and then at most one `#`, so that `#.*.#`
    /// and `*.#` are one path of the trie and no run of `#` can multiply work.
    words: Vec<Word>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Literal(String),
    Glob(Glob),
    One,
    Many,
}

impl Pattern {
    pub fn parse(text: &str) -> Result<Pattern, Problem> {
        check(text, "pattern", true).map_err(|fault| fault.problem(Code::PatternInvalid, "pattern", text))?;
        Ok(Pattern::lenient(text))
    }

    /// A pattern from any text, for the bare matcher of `try topic`: `""` is zero words, a word that could
    /// not be in a topic is a literal that matches nothing.
    pub fn lenient(text: &str) -> Pattern {
        Pattern { text: text.to_owned(), words: normal(words(text).map(Word::read)) }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the pattern names its first word, and so may meet the engine's own events.
    pub fn first_word_literal(&self) -> bool {
        matches!(self.words.first(), Some(Word::Literal(_)))
    }

    /// Whether it has no wildcard and so matches its own text only.
    fn is_literal(&self) -> bool {
        self.words.iter().all(|word| matches!(word, Word::Literal(_)))
    }

    /// The bare matcher: what the pattern says, whoever wrote the event. A topic with an empty word matches
    /// nothing. Each word is looked at once per `#` at most.
    pub fn matches(&self, topic: &str) -> bool {
        let text = words(topic);
        if text.clone().any(str::is_empty) {
            return false;
        }
        let is_run = |word: &Word| matches!(word, Word::Many);
        crate::wildcard::matches(&self.words, text, is_run, |word, text| word.takes(text))
    }

    /// Whether an event with this topic reaches the pattern: as [`Pattern::matches`], but the engine's own
    /// events only when the first word is literal, and those of the house only when every word is.
    pub fn receives(&self, topic: &str) -> bool {
        (self.is_literal() || !is_house(topic))
            && (self.first_word_literal() || !is_engine(topic))
            && self.matches(topic)
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Word {
    fn read(text: &str) -> Word {
        match text {
            "#" => Word::Many,
            _ if !text.is_empty() && text.bytes().all(|b| b == b'*') => Word::One,
            _ if text.contains('*') => Word::Glob(Glob::new(text)),
            _ => Word::Literal(text.to_owned()),
        }
    }

    fn takes(&self, word: &str) -> bool {
        match self {
            Word::Literal(text) => text == word,
            Word::Glob(glob) => glob.matches(word),
            Word::One => true,
            Word::Many => false,
        }
    }
}

fn normal(words: impl Iterator<Item = Word>) -> Vec<Word> {
    let mut out: Vec<Word> = Vec::new();
    for word in words {
        match (out.last(), word) {
            (Some(Word::Many), Word::Many) => {}
            (Some(Word::Many), Word::One) => out.insert(out.len() - 1, Word::One),
            (_, word) => out.push(word),
        }
    }
    out
}

/// What is wrong with a topic or pattern, and at which byte.
struct Fault {
    what: String,
    offset: usize,
    hint: &'static str,
}

impl Fault {
    fn problem(self, code: Code, noun: &str, text: &str) -> Problem {
        let shown: String = text.chars().take(80).collect();
        let dots = if shown.len() < text.len() { "…" } else { "" };
        Problem::new(code, format!("{noun} {:?} {}", format!("{shown}{dots}"), self.what))
            .hint(self.hint)
            .with("offset", self.offset)
    }
}

fn check(text: &str, noun: &str, wild: bool) -> Result<(), Fault> {
    let fault = |what: String, offset: usize, hint| Err(Fault { what, offset, hint });
    if text.is_empty() {
        return fault("is empty".into(), 0, "write words split by dots, such as order.created");
    }
    if text.len() > BYTES_MAX {
        let what = format!("has {} bytes, more than {BYTES_MAX}", text.len());
        return fault(what, BYTES_MAX, "put what varies into the payload");
    }
    let mut offset = 0;
    for (number, word) in text.split('.').enumerate() {
        if word.is_empty() {
            let what = format!("has an empty word at byte {offset} (word {})", number + 1);
            return fault(what, offset, "remove the extra dot");
        }
        check_word(word, noun, wild).map_err(|f| Fault {
            what: format!("{} at byte {}", f.what, offset + f.offset),
            offset: offset + f.offset,
            ..f
        })?;
        offset += word.len() + 1;
    }
    Ok(())
}

fn check_word(word: &str, noun: &str, wild: bool) -> Result<(), Fault> {
    for (offset, c) in word.char_indices() {
        let fault = |what: String, hint| Err(Fault { what, offset, hint });
        match c {
            '#' if wild && word == "#" => {}
            '#' if wild => {
                return fault(
                    "has a \"#\" inside a word".into(),
                    "use \"#\" as a word of its own, such as a.#",
                );
            }
            '*' if wild => {}
            '*' | '#' => {
                return fault(format!("has a wildcard {c:?}"), "wildcards belong in patterns, not in topics");
            }
            c if c.is_whitespace() => {
                return fault(format!("has whitespace {c:?}"), "use \"_\" or \"-\" between parts of a word");
            }
            c if c.is_control() => {
                let hint =
                    if noun == "topic" { "remove it from the topic" } else { "remove it from the pattern" };
                return fault(format!("has a control character {c:?}"), hint);
            }
            _ => {}
        }
    }
    Ok(())
}
