//! JSONPath (RFC 9535), compiled once; used by filters and mappers to reach into an event.

use jsonpath_rfc9535::{Error, SingularSegment};
use model::{Code, Problem};
use serde_json::Value;

/// Descendant steps (`..`) of a path that is tried on every event. Each further one multiplies the nodes visited by
/// the depth of the document, and evaluation has no budget of its own.
const DESCENDANTS_MAX: usize = 1;

/// How often a path that is tried on every event may select the same node: `[*,*]` selects each twice, and every
/// such step multiplies.
const COPIES_MAX: usize = 64;

/// Longest path, in bytes.
const BYTES_MAX: usize = 4096;

/// Most brackets inside each other. Reading one again and again for every form it could have doubles with each level.
const NESTED_MAX: usize = 8;

#[derive(Clone, Debug)]
pub struct JsonPath {
    text: String,
    path: jsonpath_rfc9535::JsonPath,
}

impl JsonPath {
    pub fn parse(text: &str) -> Result<JsonPath, Problem> {
        if text.len() > BYTES_MAX {
            return Err(
                wrong(text, &format!("is longer than {BYTES_MAX} bytes")).hint("split it into several")
            );
        }
        let single = without_doubled(text);
        if nested(&without_strings(&single)) > NESTED_MAX {
            let what = format!("has more than {NESTED_MAX} brackets inside each other");
            return Err(wrong(text, &what).hint("write it flatter, or as an expression"));
        }
        let path = jsonpath_rfc9535::JsonPath::parse(&single).map_err(|err| explain(text, &err))?;
        Ok(JsonPath { text: text.to_owned(), path })
    }

    /// As [`JsonPath::parse`], for a path that many events will meet: what could take long is refused.
    pub fn parse_bounded(text: &str) -> Result<JsonPath, Problem> {
        let path = JsonPath::parse(text)?;
        let bare = without_strings(text);
        if bare.matches("..").count() > DESCENDANTS_MAX {
            let what = format!("has more than {DESCENDANTS_MAX} \"..\" step");
            return Err(wrong(text, &what).hint("name the members on the way instead"));
        }
        if copies(&bare) > COPIES_MAX {
            let what = format!("can select a node more than {COPIES_MAX} times");
            return Err(wrong(text, &what).hint("name each member once, or split it into several paths"));
        }
        if bare.split('$').skip(2).any(|query| !is_one_place(query)) {
            let hint = "inside [?…] let \"$\" name one place, such as $.payload.wanted";
            return Err(wrong(text, "searches the whole event again for each node").hint(hint));
        }
        Ok(path)
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The values selected, in the document's order.
    pub fn values<'a>(&self, document: &'a Value) -> Vec<&'a Value> {
        self.path.query_values(document)
    }

    /// The values selected, each with its normalized path.
    pub fn located<'a>(&self, document: &'a Value) -> Vec<(String, &'a Value)> {
        let nodes = self.path.query(document);
        nodes.paths().map(ToString::to_string).zip(nodes.values()).collect()
    }

    /// Whether it can select one node at most.
    pub fn is_singular(&self) -> bool {
        self.path.singular_steps().is_some()
    }

    /// The one member of the document that it reads below, when it names one.
    pub fn first_member(&self) -> Option<&str> {
        match self.path.singular_steps()?.first()? {
            SingularSegment::Name(name) => Some(name),
            _ => None,
        }
    }
}

/// The path without the insides of its string literals and without spaces, which may stand between any two of its parts.
fn without_strings(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if !c.is_whitespace() {
            out.push(c);
        }
        if c == '\'' || c == '"' {
            while let Some(inside) = chars.next() {
                match inside {
                    '\\' => drop(chars.next()),
                    _ if inside == c => break,
                    _ => {}
                }
            }
            out.push(c);
        }
    }
    out
}

/// The path with blanks in place of parentheses right around parentheses, which add depth and say nothing. Bytes keep their
/// places, so that errors name those of the path as it was written.
fn without_doubled(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut open, mut pairs, mut at) = (Vec::new(), Vec::new(), 0);
    while at < bytes.len() {
        match bytes[at] {
            quote @ (b'\'' | b'"') => {
                at += 1;
                while at < bytes.len() && bytes[at] != quote {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
            }
            b'(' => open.push(at),
            b')' => pairs.extend(open.pop().map(|start| (start, at))),
            _ => {}
        }
        at += 1;
    }
    let mut out = bytes.to_vec();
    let pairs: std::collections::BTreeMap<usize, usize> = pairs.into_iter().collect();
    for (start, end) in &pairs {
        let is_call = *start > 0 && (bytes[start - 1].is_ascii_alphanumeric() || bytes[start - 1] == b'_');
        let inner = start + 1 + bytes[start + 1..].iter().take_while(|b| b.is_ascii_whitespace()).count();
        let behind = pairs.get(&inner).map(|inner_end| &bytes[inner_end + 1..*end]);
        if !is_call && behind.is_some_and(|between| between.iter().all(u8::is_ascii_whitespace)) {
            (out[*start], out[*end]) = (b' ', b' ');
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

/// How deep brackets of both kinds stand inside each other.
fn nested(bare: &str) -> usize {
    let (mut open, mut most) = (0usize, 0);
    for c in bare.chars() {
        match c {
            '(' | '[' => open += 1,
            ')' | ']' => open = open.saturating_sub(1),
            _ => {}
        }
        most = most.max(open);
    }
    most
}

/// The product of the selectors of every bracket: the most often that one node can be selected.
fn copies(bare: &str) -> usize {
    let (mut open, mut product) = (Vec::new(), 1usize);
    for c in bare.chars() {
        match c {
            '[' => open.push(1usize),
            ',' => open.iter_mut().last().into_iter().for_each(|selectors| *selectors += 1),
            ']' => product = product.saturating_mul(open.pop().unwrap_or(1)),
            _ => {}
        }
    }
    product
}

/// Whether what follows a `$` inside a filter can only be one node. It ends with the bracket of the filter, or at an
/// operator.
fn is_one_place(rest: &str) -> bool {
    let mut open = 0u32;
    let ends = |c: char| match c {
        '[' => {
            open += 1;
            false
        }
        ']' if open == 0 => true,
        ']' => {
            open -= 1;
            false
        }
        _ => open == 0 && "&|=<>!),".contains(c),
    };
    let query = rest.split(ends).next().unwrap_or_default();
    !query.contains("..") && !query.contains(['*', '?', ':', ','])
}

fn explain(text: &str, err: &Error) -> Problem {
    let hint = match text.trim_start().starts_with('$') {
        true => "a path looks like $.payload.items[0].price or $..price",
        false => "begin it with \"$\", the document itself: $.payload.items[0].price or $..price",
    };
    match err {
        Error::Syntax { position, .. } => {
            let what = format!("cannot be read from byte {position} on{}", caret(text, *position));
            wrong(text, &what).hint(hint).with("offset", *position)
        }
        other => wrong(text, &format!("is not valid: {other}")).hint(hint),
    }
}

/// The path again, with a mark under the byte; nothing when it is too long to be shown in a line.
fn caret(text: &str, byte: usize) -> String {
    let before = text.get(..byte).map_or(0, |before| before.chars().count());
    match text.contains('\n') || text.len() > 100 {
        true => String::new(),
        false => format!("\n  {text}\n  {}^", " ".repeat(before)),
    }
}

fn wrong(text: &str, what: &str) -> Problem {
    let shown: String = text.chars().take(120).collect();
    Problem::new(Code::JsonpathInvalid, format!("JSONPath {shown:?} {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_could_take_long_is_refused_where_events_meet_it() {
        let doubling = format!("$.payload{}", "[*,*]".repeat(24));
        let again = [
            "$.payload.a[?$..b]",
            "$.payload.a[?$ ..b]",
            "$.payload[?$.payload\n[*]]",
            "$..[?count($[?@.a]) > 1]",
            "$.a[?@.b == $.c && $['d'] [?@.e]]",
        ];
        for text in ["$..a..b", doubling.as_str()].into_iter().chain(again) {
            let problem = JsonPath::parse_bounded(text).unwrap_err();
            assert_eq!(problem.code(), Code::JsonpathInvalid, "{text}");
            assert!(JsonPath::parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn brackets_inside_brackets_are_refused_before_they_are_read() {
        for open in ["when(", "(", "!(", "@[?", "count(@[?", "@.a == ("] {
            let text = format!("$[?{}", open.repeat(100));
            let problem = JsonPath::parse(&text).unwrap_err();
            assert!(problem.detail().contains("more than 8 brackets"), "{problem}");
        }
        assert!(JsonPath::parse("$[?((((((@.a)))))) || @['(((((((((']]").is_ok());
    }

    #[test]
    fn parentheses_around_parentheses_cost_nothing() {
        let deep = format!("$[?{}@.a == ')(' || @.b{}]", "( ".repeat(60), ") ".repeat(60));
        let path = JsonPath::parse(&deep).unwrap();
        let document = serde_json::json!([{"a": ")("}, {"a": 1}, {"b": 0}]);
        assert_eq!(path.values(&document).len(), 2);
        assert_eq!(path.as_str(), deep);
        for wrong in ["$[?((@.a)) == 1]", "$[?count((((1)))) == 1]", "$[?(((@.a))]"] {
            assert!(JsonPath::parse(wrong).is_err(), "{wrong}");
        }
        assert!(JsonPath::parse("$[?!((@.a == 1)) && ((@.b) || ((@.c)))]").is_ok());
    }

    #[test]
    fn usual_paths_are_not() {
        let usual = [
            "$..price",
            "$.payload.items[?@.id == $.payload.wanted].price",
            "$.payload.items[?@.id == $.payload['wanted'] [0]].tags[*]",
            "$.payload.items[?match(@.id, $.payload.wanted)].tags[1:3]",
            "$.payload['a..b', 'c,d']['..']",
            "$.payload.items[?@.name == '$..a' || @.tags[0] == \"it's\"]",
            "$.payload['a','b','c','d','e','f','g','h']",
        ];
        for text in usual {
            assert!(JsonPath::parse_bounded(text).is_ok(), "{text}");
        }
    }
}
