//! Which parts of a filter SQLite can narrow the rows by, read from the filter's text: a column of the row, a comparison,
//! and something that is known without a row.
//!
//! **Invariant:** narrowing loses no row that the filter wants. It may leave rows that the filter does not want, because
//! every row that is left is tested by the expression. So whatever is not plainly understood here is left out.

use lang::expr::{Expr, Scope, Val};
use model::definition::INTRINSIC;

use super::bound::{Of, Want, want};
use super::{Asked, NAMES, Timed};
use crate::entity::{Concept, token};
use crate::state::entity::json_path;

/// What the other side of a comparison may name.
const KNOWN: [&str; 3] = ["args", "actor", "now"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Equal,
    In,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

impl Op {
    /// With its sides exchanged.
    fn turned(self) -> Option<Op> {
        Some(match self {
            Op::Equal => Op::Equal,
            Op::In => return None,
            Op::Less => Op::Greater,
            Op::LessEqual => Op::GreaterEqual,
            Op::Greater => Op::Less,
            Op::GreaterEqual => Op::LessEqual,
        })
    }
}

/// Something of a row, as SQL and as the filter calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub sql: String,
    pub name: String,
    pub of: Of,
}

/// A column compared with something known.
#[derive(Debug)]
pub struct Test {
    pub column: Column,
    pub op: Op,
    known: Expr,
}

/// A [`Test`] with its value.
pub struct Narrow {
    pub column: Column,
    pub want: Want,
}

impl Test {
    /// `None` when the value is none that SQLite could look for.
    pub fn narrow(&self, asked: &Asked) -> Option<Narrow> {
        let (actor, now) = (Val::Text(asked.actor.as_str().into()), Val::Timestamp(asked.now.nanos()));
        let value = self.known.eval(&[Val::of(&asked.args), actor, now]).ok()?;
        Some(Narrow { want: want(self.op, self.column.of, &value)?, column: self.column.clone() })
    }

    /// Whether it leaves rows with one value of the column.
    pub fn pins(&self) -> bool {
        self.op == Op::Equal && self.column.of != Of::Length
    }

    /// Whether it leaves rows between two values of the column.
    pub fn ranges(&self) -> bool {
        self.op != Op::In && !self.pins()
    }
}

/// The tests among the parts of `a && b && c`.
pub fn tests(text: &str, concept: &Concept, timed: &Timed) -> Vec<Test> {
    let Some(parts) = parts(text) else { return Vec::new() };
    let test = |part: &str| match bare(part) {
        Some(inner) => tests(inner, concept, timed),
        None => test(part, concept, timed).into_iter().collect(),
    };
    parts.into_iter().flat_map(test).collect()
}

fn test(text: &str, concept: &Concept, timed: &Timed) -> Option<Test> {
    let (left, op, right) = split(text)?;
    let (column, op, known) = match column(left, concept, timed) {
        Some(column) => (column, op, right),
        None => (column(right, concept, timed)?, op.turned()?, left),
    };
    // Beside an argument that is declared to be an instant or a duration the row's value is read as one, too.
    let name: String = known.chars().filter(|c| !c.is_whitespace()).collect();
    let is_among = |paths: &[String]| paths.contains(&name);
    if (is_among(&timed.instants) && column.of != Of::Instant)
        || (is_among(&timed.lengths) && column.of != Of::Length)
        || !is_plain(known)
    {
        return None;
    }
    // Counted with as the filter counts.
    let scope = Scope { instants: &timed.instants, lengths: &timed.lengths, ..Scope::rows(&KNOWN) };
    Some(Test { column, op, known: Expr::compile(known, &scope).ok()? })
}

/// A field of the row by its path, or what every row has of itself and an index can be over.
fn column(text: &str, concept: &Concept, timed: &Timed) -> Option<Column> {
    let named = |sql: &str, of| Some(Column { sql: sql.to_owned(), name: text.to_owned(), of });
    match text {
        "id" => return named("id", Of::Plain),
        "createdBy" => return named("created_by", Of::Plain),
        // Without their end, instants of any precision are in order as text.
        "createdAt" => return named("rtrim(created_at, 'Z')", Of::Instant),
        "updatedAt" => return named("rtrim(updated_at, 'Z')", Of::Instant),
        _ => {}
    }
    if !text.split('.').all(is_word) {
        return None;
    }
    let first = text.split('.').next().unwrap_or_default();
    let is_field = || concept.definition.fields.iter().any(|field| field.name == first);
    let path = match text.strip_prefix("payload.").or_else(|| text.strip_prefix("fields.")) {
        Some(path) => path,
        None if NAMES.contains(&first) || INTRINSIC.contains(&first) || !is_field() => return None,
        None => text,
    };
    let pointer: String = path.split('.').map(|step| format!("/{}", token(step))).collect();
    let sql = format!("json_extract(fields, {})", json_path(&pointer));
    let name = format!("payload.{path}");
    Some(match () {
        () if timed.instants.contains(&name) => {
            Column { sql: format!("rtrim({sql}, 'Z')"), name, of: Of::Instant }
        }
        () if timed.lengths.contains(&name) => Column { sql, name, of: Of::Length },
        () => Column { sql, name, of: Of::Plain },
    })
}

fn is_word(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether it is made of literals, lists, arithmetic and [`KNOWN`] only: no call, no comparison, nothing of the row, no word
/// that stands between two values, and no `args["t"]`, which is another way to write what may be declared.
fn is_plain(text: &str) -> bool {
    let (mut word, mut free, mut fits) = (String::new(), false, true);
    let (mut before, mut indexes) = (' ', false);
    for (c, place) in places(text).chain([(' ', Place::At(0))]) {
        if place != Place::Text && !c.is_whitespace() {
            fits &= !(indexes && matches!(c, '"' | '\''));
            indexes = c == '[' && (before.is_ascii_alphanumeric() || "_]\"'".contains(before));
            before = c;
        }
        if place != Place::Text && (c.is_ascii_alphanumeric() || c == '_') {
            word.push(c);
            continue;
        }
        if !word.is_empty() {
            let is_number = word.starts_with(|c: char| c.is_ascii_digit());
            let is_value = matches!(word.as_str(), "true" | "false" | "null" | "nil");
            fits &= free || is_number || is_value || KNOWN.contains(&word.as_str());
            (word, free) = (String::new(), false);
        }
        if place != Place::Text {
            free = c == '.' || free && c.is_whitespace();
            fits &= c.is_whitespace() || "+-*/%[],.\"'".contains(c);
        }
    }
    fits
}

/// Where a character stands: inside a text, or so deep in brackets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Text,
    At(i32),
}

/// The characters with their places; the quotes of a text stand outside, brackets at the depth around them.
fn places(text: &str) -> impl Iterator<Item = (char, Place)> {
    let (mut quote, mut depth) = (None, 0);
    text.chars().map(move |c| match (c, quote) {
        (c, Some(open)) if c != open => (c, Place::Text),
        (c, Some(_)) => {
            quote = None;
            (c, Place::At(depth))
        }
        ('"' | '\'', None) => {
            quote = Some(c);
            (c, Place::At(depth))
        }
        ('(' | '[' | '{', None) => {
            depth += 1;
            (c, Place::At(depth - 1))
        }
        (')' | ']' | '}', None) => {
            depth -= 1;
            (c, Place::At(depth))
        }
        (c, None) => (c, Place::At(depth)),
    })
}

/// What stands between `&&`s. `None` for a text with an alternative or a choice outside of brackets, or whose texts and
/// comments would take more than this to read.
fn parts(text: &str) -> Option<Vec<&str>> {
    let odd = ["\\", "`", "\"\"\"", "'''"];
    if odd.iter().any(|odd| text.contains(odd)) {
        return None;
    }
    let (mut parts, mut begin, mut at, mut before) = (Vec::new(), 0, 0, ' ');
    for (c, place) in places(text) {
        let is_outside = place == Place::At(0);
        let is_comment = place != Place::Text && before == '/' && matches!(c, '/' | '*');
        if is_comment || is_outside && matches!(c, '|' | '?') {
            return None;
        }
        if is_outside && c == '&' && before == '&' {
            parts.push(text[begin..at - 1].trim());
            begin = at + 1;
        }
        before = if place == Place::Text { ' ' } else { c };
        at += c.len_utf8();
    }
    parts.push(text[begin..].trim());
    Some(parts)
}

/// What stands inside brackets that hold all of it.
fn bare(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('(')?.strip_suffix(')')?;
    let closes_last = places(text).skip(1).position(|(c, place)| c == ')' && place == Place::At(0));
    (closes_last? + 2 == text.chars().count()).then_some(inner)
}

/// The two sides of the first comparison outside of brackets. That there is no second one is seen by [`is_plain`].
fn split(text: &str) -> Option<(&str, Op, &str)> {
    let (mut at, mut before) = (0, ' ');
    for (c, place) in places(text) {
        let rest = &text[at..];
        let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        let ends = |len: usize| rest[len..].starts_with(|c: char| c.is_whitespace() || c == '[');
        let found = match c {
            _ if place != Place::At(0) => None,
            '=' | '!' | '<' | '>' => Some(sign(rest)?),
            'i' if !is_word(before) && rest.starts_with("in") && ends(2) => Some((Op::In, 2)),
            _ => None,
        };
        if let Some((op, len)) = found {
            return Some((text[..at].trim(), op, rest[len..].trim()));
        }
        (at, before) = (at + c.len_utf8(), c);
    }
    None
}

fn sign(rest: &str) -> Option<(Op, usize)> {
    let signs = [
        ("==", Op::Equal),
        ("<=", Op::LessEqual),
        (">=", Op::GreaterEqual),
        ("<", Op::Less),
        (">", Op::Greater),
    ];
    let (sign, op) = signs.iter().find(|(sign, _)| rest.starts_with(sign))?;
    Some((*op, sign.len()))
}

#[cfg(test)]
mod tests;
