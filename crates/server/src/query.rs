//! Query parameters read strictly: what is not known, given twice or not readable is refused by name.

use std::borrow::Cow;

use lang::filter::Filter;
use model::event::Subject;
use model::topic::Pattern;
use model::{Position, Problem, Timestamp};

use crate::problem::bad_request;

/// The parameters of one request; an empty value counts as absent.
pub struct Params(Vec<(String, String)>);

impl Params {
    /// Reads the query of a URI; only `known` names may stand there, each at most once.
    pub fn read(query: Option<&str>, known: &[&str]) -> Result<Params, Problem> {
        let mut params: Vec<(String, String)> = Vec::new();
        for part in query.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let name = decode(name).ok_or_else(|| unreadable(name, name))?;
            if !known.contains(&&*name) {
                let hint = match known {
                    [] => "there are no parameters here".to_owned(),
                    _ => format!("known parameters: {}", known.join(", ")),
                };
                return Err(bad_request(&name, "is no parameter of this path").hint(hint));
            }
            if params.iter().any(|(given, _)| *given == name) {
                return Err(bad_request(&name, "is given twice"));
            }
            let value = decode(value).ok_or_else(|| unreadable(&name, value))?;
            params.push((name.into_owned(), value.into_owned()));
        }
        Ok(Params(params))
    }

    /// What can be read of it, for a form that shows again what was typed.
    pub fn typed(query: Option<&str>, known: &[&str]) -> Params {
        let parts = query.unwrap_or_default().split('&').filter_map(|part| part.split_once('='));
        let known = parts.filter(|(name, _)| known.contains(name));
        Params(
            known.filter_map(|(name, value)| Some((name.to_owned(), decode(value)?.into_owned()))).collect(),
        )
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(given, _)| given == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    pub fn owned(&self, name: &str) -> Option<String> {
        self.text(name).map(str::to_owned)
    }

    /// A position; 0 stands for the place before the first.
    pub fn position(&self, name: &str) -> Result<Option<Position>, Problem> {
        self.text(name).map(|text| position(name, text)).transpose()
    }

    /// A count from 1 to `max`.
    pub fn limit(&self, name: &str, default: usize, max: usize) -> Result<usize, Problem> {
        let Some(text) = self.text(name) else { return Ok(default) };
        let number = digits(text).filter(|n| (1..=max as u64).contains(n));
        let wrong = || bad_request(name, format_args!("is a whole number from 1 to {max}, not \"{text}\""));
        number.map(|n| n as usize).ok_or_else(wrong)
    }

    pub fn instant(&self, name: &str) -> Result<Option<Timestamp>, Problem> {
        let Some(text) = self.text(name) else { return Ok(None) };
        // A "+" that was not escaped arrives as a space; no instant has one otherwise.
        let read = Timestamp::parse(&text.replace(' ', "+"));
        let wrong = |_| {
            bad_request(name, format_args!("is an RFC 3339 instant, not \"{text}\""))
                .hint("write it like 2026-01-31T09:30:00Z")
        };
        read.map(Some).map_err(wrong)
    }

    pub fn pattern(&self, name: &str) -> Result<Option<Pattern>, Problem> {
        self.text(name).map(|text| Pattern::parse(text).map_err(|p| p.with("parameter", name))).transpose()
    }

    /// `kind/id`; the id may hold further slashes.
    pub fn subject(&self, name: &str) -> Result<Option<Subject>, Problem> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let (kind, id) = text.split_once('/').ok_or_else(|| bad_request(name, "is KIND/ID"))?;
        Ok(Some(Subject { kind: kind.to_owned(), id: id.to_owned() }))
    }

    /// An expression, or one of the filter's other forms as JSON.
    pub fn filter(&self, name: &str) -> Result<Option<Filter>, Problem> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let json = text.trim_start().starts_with('{').then(|| serde_json::from_str(text).ok()).flatten();
        let value = json.unwrap_or_else(|| serde_json::Value::String(text.to_owned()));
        Filter::parse(&value).map(Some).map_err(|problem| problem.with("parameter", name))
    }

    /// One of two words; whether it is the second.
    pub fn is_second(&self, name: &str, words: [&str; 2]) -> Result<bool, Problem> {
        match self.text(name) {
            None => Ok(false),
            Some(text) if text == words[0] => Ok(false),
            Some(text) if text == words[1] => Ok(true),
            Some(text) => {
                let why = format!("is \"{}\" or \"{}\", not \"{text}\"", words[0], words[1]);
                Err(bad_request(name, why))
            }
        }
    }
}

/// Reads a position given as `name`.
pub fn position(name: &str, text: &str) -> Result<Position, Problem> {
    let wrong = || {
        bad_request(name, format_args!("is a position, not \"{text}\""))
            .hint("positions are whole numbers, 1, 2, 3 …; 0 means before the first")
    };
    digits(text).ok_or_else(wrong)
}

/// A number of nothing but digits; `parse` alone would also take a "+".
fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Why a part of a query cannot be decoded.
fn unreadable(name: &str, text: &str) -> Problem {
    let mut escapes = text.split('%').skip(1);
    let whole = |escape: &str| escape.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    match escapes.all(whole) {
        true => bad_request(name, "is not UTF-8"),
        false => {
            bad_request(name, "has a % without two hexadecimal digits").hint("write a percent sign as %25")
        }
    }
}

/// Undoes percent-encoding and `+`; `None` when the result is not UTF-8 or an escape is broken.
pub fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.bytes().any(|b| b == b'%' || b == b'+') {
        return Some(Cow::Borrowed(text));
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                out.push((digit()? * 16 + digit()?) as u8);
            }
            _ => out.push(byte),
        }
    }
    String::from_utf8(out).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_repeated_or_unreadable_is_refused_by_name() {
        let table = [
            ("color=red", "color"),
            ("after=-1", "after"),
            ("after=1.5", "after"),
            ("after=%2B1", "after"),
            ("after=99999999999999999999", "after"),
            ("after=1&after=2", "after"),
            ("topic=%FF", "topic"),
            ("topic=%2", "topic"),
        ];
        for (query, name) in table {
            let read = Params::read(Some(query), &["after", "topic"]).and_then(|p| p.position("after"));
            let problem = read.unwrap_err();
            assert_eq!(problem.extra()["parameter"], name, "{query}");
            assert!(problem.detail().contains(name), "{query}: {problem}");
        }
        let why = |query: &str| Params::read(Some(query), &["topic"]).err().unwrap().detail().to_owned();
        assert_eq!(why("topic=%41%FF"), "\"topic\" is not UTF-8");
        for query in ["topic=%zz", "topic=a%2", "topic=%"] {
            assert_eq!(why(query), "\"topic\" has a % without two hexadecimal digits", "{query}");
        }
    }

    #[test]
    fn escapes_are_undone_and_an_empty_value_is_absent() {
        let params = Params::read(Some("a=x%20y+z%C3%A4&b=&c"), &["a", "b", "c"]).unwrap();
        assert_eq!(params.text("a"), Some("x y zä"));
        assert_eq!((params.text("b"), params.text("c")), (None, None));
    }

    #[test]
    fn an_offset_whose_plus_was_not_escaped_is_still_an_instant() {
        let params = Params::read(Some("since=2026-01-01T02:00:00+02:00"), &["since"]).unwrap();
        let instant = params.instant("since").unwrap().unwrap();
        assert_eq!(instant.to_string(), "2026-01-01T00:00:00Z");
    }
}
