//! The configuration as it was written: values with the file and line, or the variable, that they came from.

use std::path::{Path, PathBuf};
use std::time::Duration;

use model::suggest::distance;
use model::time::parse_duration;
use model::{Code, Problem};
use serde_json::{Value, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{Key, Kind};

/// A file's text with its name, so that a byte can be shown as a line.
pub struct Source {
    pub path: PathBuf,
    pub text: String,
}

impl Source {
    pub fn read(path: &Path) -> Result<Source, Problem> {
        let wrong = |error: std::io::Error| {
            Problem::new(Code::ConfigInvalid, format!("{}: cannot be read: {error}", path.display()))
                .hint("name another file with --config, or make one with: everwhen init")
        };
        let text = std::fs::read_to_string(path).map_err(wrong)?;
        Ok(Source { path: path.to_owned(), text })
    }

    fn line(&self, byte: usize) -> usize {
        1 + self.text.as_bytes()[..byte.min(self.text.len())].iter().filter(|b| **b == b'\n').count()
    }

    /// Names beside the file are relative to it, wherever the command was started.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(name)
    }

    pub fn parse(&self) -> Result<DeTable<'_>, Problem> {
        DeTable::parse(&self.text).map(Spanned::into_inner).map_err(|error| {
            let place = Place::File(self, error.span().map_or(0, |span| span.start));
            place.problem(Code::ConfigInvalid, error.message().trim_end().replace('\n', ", "))
        })
    }
}

/// Where every key stands with an example of its value.
const SEE: &str = "everwhen init writes an everwhen.toml that shows every key and its default";

/// Where something was said.
#[derive(Clone, Copy)]
pub enum Place<'a> {
    File(&'a Source, usize),
    Variable(&'a str),
}

impl Place<'_> {
    pub fn problem(&self, code: Code, detail: impl std::fmt::Display) -> Problem {
        match self {
            Place::Variable(name) => Problem::new(code, format!("{name}: {detail}")).with("variable", *name),
            Place::File(source, byte) => {
                let (file, line) = (source.path.display().to_string(), source.line(*byte));
                Problem::new(code, format!("{file}:{line}: {detail}")).with("file", file).with("line", line)
            }
        }
    }
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Variable(name) => f.write_str(name),
            Place::File(source, byte) => write!(f, "{}:{}", source.path.display(), source.line(*byte)),
        }
    }
}

/// One table of the file, under its dotted name (`""` is the top).
pub struct Table<'a> {
    pub source: &'a Source,
    pub name: &'a str,
    pub at: usize,
    pub table: &'a DeTable<'a>,
}

impl<'a> Table<'a> {
    /// Refuses the first key, in the order of the file, that is not among `known`.
    pub fn only(&self, known: &[Key], elsewhere: &[(&str, &[Key])]) -> Result<(), Problem> {
        let foreign = self.table.iter().filter(|(key, _)| !has(known, key.get_ref()));
        let Some((key, _)) = foreign.min_by_key(|(key, _)| key.span().start) else { return Ok(()) };
        let (place, name) = (Place::File(self.source, key.span().start), key.get_ref());
        let inside = if self.name.is_empty() { String::new() } else { format!(" in [{}]", self.name) };
        let nearest = nearest(name, self.name, known, elsewhere);
        Err(place
            .problem(Code::ConfigUnknownKey, format!("unknown key \"{name}\"{inside}"))
            .hint(format!("did you mean \"{nearest}\"?"))
            .with("key", name.as_ref())
            .with("nearest", nearest))
    }

    pub fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.table.keys().map(|key| key.get_ref().as_ref())
    }

    pub fn get(&self, key: &'a str) -> Option<Said<'a>> {
        let value = self.table.get(key)?;
        Some(Said {
            place: Place::File(self.source, value.span().start),
            key,
            value: Form::Toml(value.get_ref()),
        })
    }

    /// A key that the table cannot do without.
    pub fn need(&self, key: &'a str) -> Result<Said<'a>, Problem> {
        self.get(key).ok_or_else(|| self.lacks(&format!("\"{key}\"")))
    }

    /// The table is not whole.
    pub fn lacks(&self, what: &str) -> Problem {
        let place = Place::File(self.source, self.at);
        place.problem(Code::ConfigInvalid, format!("[[{}]] needs {what}", self.name)).hint(SEE)
    }

    /// A table inside this one, absent or `[key]`.
    pub fn table(&self, key: &'a str) -> Result<Option<Table<'a>>, Problem> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        match value.get_ref() {
            DeValue::Table(table) => {
                Ok(Some(Table { source: self.source, name: key, at: value.span().start, table }))
            }
            other => Err(wrong_kind(self.source, value, key, &format!("a table, [{key}]"), other)),
        }
    }

    /// The tables written as `[[key]]`.
    pub fn tables(&self, key: &'a str) -> Result<Vec<Table<'a>>, Problem> {
        let Some(value) = self.table.get(key) else { return Ok(Vec::new()) };
        let wanted = format!("a list of tables, [[{key}]]");
        let DeValue::Array(items) = value.get_ref() else {
            return Err(wrong_kind(self.source, value, key, &wanted, value.get_ref()));
        };
        let one = |item: &'a Spanned<DeValue<'a>>| match item.get_ref() {
            DeValue::Table(table) => {
                Ok(Table { source: self.source, name: key, at: item.span().start, table })
            }
            other => Err(wrong_kind(self.source, item, key, &wanted, other)),
        };
        items.iter().map(one).collect()
    }
}

fn wrong_kind(
    source: &Source,
    at: &Spanned<DeValue<'_>>,
    key: &str,
    wanted: &str,
    got: &DeValue<'_>,
) -> Problem {
    let detail = format!("\"{key}\" must be {wanted}, not {}", got.type_str());
    let problem = Place::File(source, at.span().start).problem(Code::ConfigInvalid, detail);
    problem.hint(format!("write {wanted}; {SEE}")).with("key", key)
}

enum Form<'a> {
    Toml(&'a DeValue<'a>),
    /// From the environment, where everything is text.
    Text(String),
}

/// One value with its key and its place.
pub struct Said<'a> {
    pub place: Place<'a>,
    pub key: &'a str,
    value: Form<'a>,
}

impl<'a> Said<'a> {
    pub fn variable(name: &'a str, key: &'a str, text: String) -> Said<'a> {
        Said { place: Place::Variable(name), key, value: Form::Text(text) }
    }

    pub fn wrong(&self, wanted: impl std::fmt::Display) -> Problem {
        let shown = match &self.value {
            Form::Text(text) => json!(text).to_string(),
            Form::Toml(value) => {
                to_json(value).map_or_else(|| value.type_str().to_owned(), |v| v.to_string())
            }
        };
        let detail = format!("\"{}\" must be {wanted}, not {shown}", self.key);
        self.place.problem(Code::ConfigInvalid, detail).hint(SEE).with("key", self.key)
    }

    /// The value is of the right kind, but what it says is refused; `problem` says why.
    pub fn refused(&self, problem: &Problem) -> Problem {
        let detail = format!("\"{}\": {}", self.key, problem.detail());
        let refused = self.place.problem(Code::ConfigInvalid, detail).with("key", self.key);
        match problem.hint_text() {
            Some(hint) => refused.hint(hint),
            None => refused,
        }
    }

    pub fn text(&self) -> Result<String, Problem> {
        match &self.value {
            Form::Text(text) => Ok(text.clone()),
            Form::Toml(DeValue::String(text)) => Ok(text.to_string()),
            _ => Err(self.wrong(Kind::Text)),
        }
    }

    pub fn texts(&self) -> Result<Vec<String>, Problem> {
        let wrong = || self.wrong(Kind::List);
        if let Form::Text(text) = &self.value {
            let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
            return Ok(words.map(str::to_owned).collect());
        }
        let Form::Toml(DeValue::Array(items)) = &self.value else { return Err(wrong()) };
        items.iter().map(|item| item.get_ref().as_str().map(str::to_owned).ok_or_else(wrong)).collect()
    }

    /// A file: beside the one that names it, or, in a variable, where the command was started.
    pub fn file(&self) -> Result<PathBuf, Problem> {
        let name = self.text()?;
        Ok(match self.place {
            Place::File(source, _) => source.beside(&name),
            Place::Variable(_) => PathBuf::from(name),
        })
    }

    pub fn boolean(&self) -> Result<bool, Problem> {
        match &self.value {
            Form::Toml(DeValue::Boolean(value)) => Ok(*value),
            Form::Text(text) if matches!(text.as_str(), "true" | "1") => Ok(true),
            Form::Text(text) if matches!(text.as_str(), "false" | "0") => Ok(false),
            _ => Err(self.wrong(Kind::Boolean)),
        }
    }

    pub fn number(&self, low: u64, high: u64) -> Result<u64, Problem> {
        let number = match &self.value {
            Form::Toml(DeValue::Integer(n)) => u64::from_str_radix(n.as_str(), n.radix()).ok(),
            Form::Text(text) => text.parse().ok(),
            _ => None,
        };
        number.filter(|n| (low..=high).contains(n)).ok_or_else(|| self.wrong(Kind::Number(low, high)))
    }

    pub fn duration(&self) -> Result<Duration, Problem> {
        let duration = match &self.value {
            Form::Text(text) => parse_duration(text),
            Form::Toml(value) => to_json(value).as_ref().and_then(model::time::duration_of),
        };
        duration.ok_or_else(|| self.wrong(Kind::Duration))
    }

    /// The value as JSON, for what is JSON elsewhere (a filter may be an expression or an inline table).
    pub fn json(&self) -> Result<Value, Problem> {
        match &self.value {
            Form::Text(text) => Ok(json!(text)),
            Form::Toml(value) => to_json(value).ok_or_else(|| self.wrong("a value that JSON knows")),
        }
    }
}

fn to_json(value: &DeValue<'_>) -> Option<Value> {
    Some(match value {
        DeValue::String(text) => json!(text),
        DeValue::Boolean(value) => json!(value),
        DeValue::Integer(n) => match i64::from_str_radix(n.as_str(), n.radix()) {
            Ok(n) => json!(n),
            Err(_) => json!(u64::from_str_radix(n.as_str(), n.radix()).ok()?),
        },
        DeValue::Float(n) => json!(n.as_str().parse::<f64>().ok()?),
        DeValue::Datetime(_) => return None,
        DeValue::Array(items) => {
            items.iter().map(|item| to_json(item.get_ref())).collect::<Option<Vec<_>>>()?.into()
        }
        DeValue::Table(table) => {
            let members =
                table.iter().map(|(key, value)| Some((key.get_ref().to_string(), to_json(value.get_ref())?)));
            Value::Object(members.collect::<Option<_>>()?)
        }
    })
}

/// The known key that was most likely meant: the same word in another table, else the one fewest edits away.
fn nearest(name: &str, table: &str, known: &[Key], elsewhere: &[(&str, &[Key])]) -> String {
    let other = elsewhere.iter().find(|(section, keys)| *section != table && has(keys, name));
    if let Some((section, _)) = other {
        return if section.is_empty() {
            format!("{name}, at the top of the file")
        } else {
            format!("{section}.{name}")
        };
    }
    let best = known.iter().min_by_key(|(candidate, _)| distance(name, candidate));
    best.map_or_else(String::new, |(best, _)| (*best).to_owned())
}

fn has(keys: &[Key], name: &str) -> bool {
    keys.iter().any(|(key, _)| *key == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_the_one_fewest_edits_away() {
        let (top, events) = ([("listen", Kind::Text), ("data", Kind::Text)], [("max_payload", Kind::Text)]);
        let elsewhere: &[(&str, &[Key])] = &[("", &top), ("events", &events)];
        assert_eq!(nearest("lsten", "", &top, elsewhere), "listen");
        assert_eq!(nearest("max_payload", "", &top, elsewhere), "events.max_payload");
        assert_eq!(nearest("data", "events", &events, elsewhere), "data, at the top of the file");
    }
}
