//! Values as authors write them in annotations, option blocks and YAML, with their places: one reading for all.

use std::time::Duration;

use model::Code;
use serde_json::{Map, Value};

use super::finding::{fault, suggest};
use super::tree::{Length, Val, Word};
use crate::expr::Span;
use crate::expr::ast::{Kind as NodeKind, Literal, Node};
use crate::expr::fault::Fault;

/// Longest time of a gate.
const GATE_TIME_MAX: Duration = Duration::from_secs(366 * 86_400);

#[derive(Clone, Debug)]
pub(crate) struct Doc {
    pub(crate) span: Span,
    pub(crate) kind: Kind,
    /// The expression it was in `.ew`; absent in YAML, where strings are templates or expressions by their place.
    pub(crate) node: Option<Node>,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Null,
    Bool(bool),
    Number(serde_json::Number),
    Text(String),
    Duration(Duration),
    List(Vec<Doc>),
    Map(Vec<(Word, Doc)>),
    /// An expression that is no plain value.
    Other,
}

pub(crate) type Read<T> = Result<T, Fault>;

impl Doc {
    pub(crate) fn of(node: Node) -> Doc {
        let kind = match &node.kind {
            NodeKind::Literal(literal) => scalar(literal),
            NodeKind::Negate(of) => match &of.kind {
                NodeKind::Literal(Literal::Int(n)) => Kind::Number((-n).into()),
                NodeKind::Literal(Literal::Double(n)) => number(-n),
                _ => Kind::Other,
            },
            NodeKind::List(items) => Kind::List(items.iter().cloned().map(Doc::of).collect()),
            NodeKind::Map(pairs) => entries(pairs).map_or(Kind::Other, Kind::Map),
            _ => Kind::Other,
        };
        Doc { span: node.span, kind, node: Some(node) }
    }

    pub(crate) fn of_val(val: &Val) -> Doc {
        match val {
            Val::Expr(node) => Doc::of(node.clone()),
            Val::Template(doc) => doc.clone(),
        }
    }

    pub(crate) fn text(&self, wanted: &str) -> Read<Word> {
        match &self.kind {
            Kind::Text(text) => Ok(Word { text: text.clone(), span: self.span }),
            // `yes`, `12` or `on` where a name is wanted in YAML.
            Kind::Number(n) if self.node.is_none() => Ok(Word { text: n.to_string(), span: self.span }),
            _ => match self.node.as_ref().map(|node| &node.kind) {
                Some(NodeKind::Name(name)) => Ok(Word { text: name.clone(), span: self.span }),
                _ => Err(self.wrong(wanted)),
            },
        }
    }

    /// One text, or a list of them that is not empty.
    pub(crate) fn texts(&self, wanted: &str) -> Read<Vec<Word>> {
        match &self.kind {
            Kind::List(items) if items.is_empty() => Err(fault(
                Code::DefinitionInvalid,
                self.span,
                format!("expected {wanted}, found an empty list"),
            )),
            Kind::List(items) => items.iter().map(|item| item.text(wanted)).collect(),
            _ => Ok(vec![self.text(wanted)?]),
        }
    }

    pub(crate) fn count(&self, wanted: &str) -> Read<u32> {
        match &self.kind {
            Kind::Number(n) => {
                n.as_u64().and_then(|n| u32::try_from(n).ok()).ok_or_else(|| self.wrong(wanted))
            }
            _ => Err(self.wrong(wanted)),
        }
    }

    /// A count of something that must be there: none would never let anything through.
    pub(crate) fn at_least_one(&self, wanted: &str) -> Read<u32> {
        match self.count(wanted)? {
            0 => Err(self.wrong(&format!("{wanted}, at least 1"))),
            count => Ok(count),
        }
    }

    pub(crate) fn float(&self, wanted: &str) -> Read<f64> {
        match &self.kind {
            Kind::Number(n) => n.as_f64().ok_or_else(|| self.wrong(wanted)),
            Kind::Text(text) => text.trim().parse().map_err(|_| self.wrong(wanted)),
            _ => Err(self.wrong(wanted)),
        }
    }

    pub(crate) fn yes_or_no(&self) -> Read<bool> {
        match self.kind {
            Kind::Bool(bool) => Ok(bool),
            _ => Err(self.wrong("true or false")),
        }
    }

    pub(crate) fn duration(&self) -> Read<Duration> {
        let found = match &self.kind {
            Kind::Duration(duration) => Some(*duration),
            Kind::Text(text) => model::time::parse_duration(text),
            Kind::Number(n) => model::time::duration_of(&Value::Number(n.clone())),
            // seconds, minutes, hours, as other systems write them
            Kind::Map(pairs) => units(pairs),
            _ => None,
        };
        found.ok_or_else(|| {
            self.wrong("a duration").hint("such as \"500ms\", \"30s\", \"5m\", \"1h30m\", \"2d\"")
        })
    }

    /// How long a gate may hold or refuse; what is longer was meant in another unit.
    pub(crate) fn gate_time(&self) -> Read<Duration> {
        let time = self.duration()?;
        if time > GATE_TIME_MAX {
            let what = format!("{} days are too long here", time.as_secs() / 86_400);
            let hint = "at most 366d; a number without a unit counts seconds";
            return Err(fault(Code::DefinitionInvalid, self.span, what).hint(hint));
        }
        Ok(time)
    }

    /// How long something may take: some time, or an expression that gives it.
    pub(crate) fn limit(&self) -> Read<Length> {
        match self.length()? {
            Length::Fixed(_) => self.time_limit().map(Length::Fixed),
            computed => Ok(computed),
        }
    }

    pub(crate) fn time_limit(&self) -> Read<Duration> {
        match self.duration()? {
            Duration::ZERO => Err(self.wrong("a time above 0").hint("leave it out for no limit")),
            time => Ok(time),
        }
    }

    /// A duration, or an expression that gives one.
    pub(crate) fn length(&self) -> Read<Length> {
        match (&self.kind, &self.node) {
            (Kind::Other, Some(node)) => Ok(Length::Computed(node.clone())),
            (Kind::Text(text), None) if whole_template(text).is_some() => Ok(Length::Computed(self.expr()?)),
            _ => self.duration().map(Length::Fixed),
        }
    }

    pub(crate) fn list(&self, wanted: &str) -> Read<&[Doc]> {
        match &self.kind {
            Kind::List(items) => Ok(items),
            _ => Err(self.wrong(wanted)),
        }
    }

    pub(crate) fn map(&self, wanted: &str) -> Read<&[(Word, Doc)]> {
        match &self.kind {
            Kind::Map(pairs) => Ok(pairs),
            _ => Err(self.wrong(wanted)),
        }
    }

    /// An expression: in `.ew` as it stands or as a text; in YAML a text, with or without `{{ }}` around it.
    pub(crate) fn expr(&self) -> Read<Node> {
        match (&self.kind, &self.node) {
            (Kind::Text(text), node) => {
                let inner = whole_template(text).unwrap_or(text);
                // A quoted `.ew` text begins after its quote. Escapes inside make places inexact, never wrong lines.
                let skip = text.find(inner).unwrap_or(0) + usize::from(node.is_some());
                parse_within(inner, self.span, skip)
            }
            (_, Some(node)) => Ok(node.clone()),
            (Kind::Bool(bool), None) => Ok(leaf(Literal::Bool(*bool), self.span)),
            (Kind::Number(n), None) => Ok(leaf(number_literal(n), self.span)),
            (Kind::Null, None) => Ok(leaf(Literal::Null, self.span)),
            _ => Err(self.wrong("an expression")),
        }
    }

    pub(crate) fn val(&self) -> Val {
        match &self.node {
            Some(node) => Val::Expr(node.clone()),
            None => Val::Template(self.clone()),
        }
    }

    /// The plain value. What is no plain value in `.ew` becomes null; [`Doc::literal`] refuses it.
    pub(crate) fn json(&self) -> Value {
        match &self.kind {
            Kind::Null | Kind::Other => Value::Null,
            Kind::Bool(bool) => Value::Bool(*bool),
            Kind::Number(n) => Value::Number(n.clone()),
            Kind::Text(text) => Value::String(text.clone()),
            Kind::Duration(duration) => model::time::duration_json(*duration),
            Kind::List(items) => items.iter().map(Doc::json).collect(),
            Kind::Map(pairs) => {
                let pairs = pairs.iter().map(|(key, value)| (key.text.clone(), value.json()));
                Value::Object(pairs.collect::<Map<_, _>>())
            }
        }
    }

    pub(crate) fn literal(&self) -> Read<Value> {
        if self.is_plain() { Ok(self.json()) } else { Err(self.wrong("a plain value")) }
    }

    fn is_plain(&self) -> bool {
        match &self.kind {
            Kind::Other => false,
            Kind::List(items) => items.iter().all(Doc::is_plain),
            Kind::Map(pairs) => pairs.iter().all(|(_, value)| value.is_plain()),
            _ => true,
        }
    }

    pub(crate) fn wrong(&self, wanted: &str) -> Fault {
        if matches!(self.kind, Kind::Map(_)) && wanted.contains(" with \"") {
            return fault(Code::DefinitionInvalid, self.span, format!("expected {wanted}"));
        }
        let found = match &self.kind {
            Kind::Null => "nothing".to_owned(),
            Kind::Bool(bool) => bool.to_string(),
            Kind::Number(n) => n.to_string(),
            Kind::Text(text) => format!("{text:?}"),
            Kind::Duration(_) => "a duration".to_owned(),
            Kind::List(_) => "a list".to_owned(),
            Kind::Map(_) => "a map".to_owned(),
            Kind::Other => "an expression".to_owned(),
        };
        fault(Code::DefinitionInvalid, self.span, format!("expected {wanted}, found {found}"))
    }
}

/// What was read, or nothing and a fault: one that is wrong does not hide that another is.
pub(crate) fn kept<T: Default>(read: Read<T>, faults: &mut Vec<Fault>) -> T {
    read.unwrap_or_else(|fault| {
        faults.push(fault);
        T::default()
    })
}

/// The value of a key, if it is there.
pub(crate) fn get<'a>(pairs: &'a [(Word, Doc)], key: &str) -> Option<&'a Doc> {
    pairs.iter().find(|(word, _)| word.text == key).map(|(_, doc)| doc)
}

/// A fault for each key that is not `known`, and for each that comes twice.
pub(crate) fn only(pairs: &[(Word, Doc)], what: &str, known: &[&str], faults: &mut Vec<Fault>) {
    for (at, (key, _)) in pairs.iter().enumerate() {
        if !known.contains(&key.text.as_str()) {
            let message = format!("{what} has no key {:?}", key.text);
            let unknown = fault(Code::DefinitionUnknownKey, key.span, message);
            faults.push(suggest(unknown, &key.text, known.iter().copied()));
        } else if pairs[..at].iter().any(|(other, _)| other.text == key.text) {
            let message = format!("the key {:?} stands here twice", key.text);
            faults.push(fault(Code::DefinitionDuplicate, key.span, message));
        }
    }
}

/// The expression of a string that is one whole `{{ expr }}`.
pub(crate) fn whole_template(text: &str) -> Option<&str> {
    let inner = text.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    (!inner.contains("{{") && !inner.contains("}}")).then_some(inner)
}

/// Parses `text`, which stands `skip` bytes into `span` of the file, with places in the file.
pub(crate) fn parse_within(text: &str, span: Span, skip: usize) -> Read<Node> {
    let by = span.start + skip as u32;
    match crate::expr::parse(text) {
        Ok(mut node) => {
            shift(&mut node, by, span);
            Ok(node)
        }
        Err(mut fault) => {
            fault.span = shifted(fault.span, by, span);
            Err(fault)
        }
    }
}

/// As [`parse_within`], for what stands between `{{` and `}}`: the value and what its filters are given.
pub(crate) fn parse_hole_within(inside: &str, span: Span, skip: usize) -> Read<(Vec<Node>, bool)> {
    let by = span.start + skip as u32;
    match crate::expr::parse_hole(inside) {
        Ok((mut nodes, piped)) => {
            nodes.iter_mut().for_each(|node| shift(node, by, span));
            Ok((nodes, piped))
        }
        Err(mut fault) => {
            fault.span = shifted(fault.span, by, span);
            Err(fault)
        }
    }
}

fn shifted(at: Span, by: u32, within: Span) -> Span {
    let inside = |n: u32| (n + by).clamp(within.start, within.end);
    Span { start: inside(at.start), end: inside(at.end) }
}

fn shift(node: &mut Node, by: u32, within: Span) {
    super::walk::each_span(node, &mut |span| *span = shifted(*span, by, within));
}

fn leaf(literal: Literal, span: Span) -> Node {
    Node { kind: NodeKind::Literal(literal), span, height: 1 }
}

fn number_literal(n: &serde_json::Number) -> Literal {
    n.as_i64().map_or_else(|| Literal::Double(n.as_f64().unwrap_or_default()), Literal::Int)
}

fn number(n: f64) -> Kind {
    serde_json::Number::from_f64(n).map_or(Kind::Other, Kind::Number)
}

fn scalar(literal: &Literal) -> Kind {
    match literal {
        Literal::Null => Kind::Null,
        Literal::Bool(bool) => Kind::Bool(*bool),
        Literal::Int(n) => Kind::Number((*n).into()),
        Literal::Uint(n) => Kind::Number((*n).into()),
        Literal::Double(n) => number(*n),
        Literal::Text(text) => Kind::Text(text.to_string()),
        Literal::Bytes(_) => Kind::Other,
        Literal::Duration(nanos) => match u64::try_from(*nanos) {
            Ok(nanos) => Kind::Duration(Duration::from_nanos(nanos)),
            Err(_) => Kind::Other,
        },
    }
}

fn entries(pairs: &[(Node, Node)]) -> Option<Vec<(Word, Doc)>> {
    let entry = |(key, value): &(Node, Node)| match &key.kind {
        NodeKind::Literal(Literal::Text(text)) => {
            Some((Word { text: text.to_string(), span: key.span }, Doc::of(value.clone())))
        }
        _ => None,
    };
    pairs.iter().map(entry).collect()
}

fn units(pairs: &[(Word, Doc)]) -> Option<Duration> {
    let mut total = 0.0;
    for (key, value) in pairs {
        let size = match key.text.as_str() {
            "milliseconds" => 0.001,
            "seconds" => 1.0,
            "minutes" => 60.0,
            "hours" => 3_600.0,
            "days" => 86_400.0,
            _ => return None,
        };
        total += size * value.float("a number").ok()?;
    }
    (!pairs.is_empty()).then(|| Duration::try_from_secs_f64(total).ok()).flatten()
}
