//! YAML text into values with places. Aliases are copied, up to a limit; tags mean nothing.

use std::collections::BTreeMap;

use model::Code;
use saphyr_parser::{Event, Parser, ScalarStyle, Span as YamlSpan};

use crate::declare::doc::{Doc, Kind};
use crate::declare::finding::fault;
use crate::declare::tree::Word;
use crate::expr::Span;
use crate::expr::fault::Fault;

/// Values in a file, copies of aliases counted; more is no definition but a bomb.
pub(super) const VALUES_MAX: usize = 200_000;
const DEPTH_MAX: usize = 100;

/// Every document of a text, of so many values at most. A fault ends the reading; what came before it stays.
pub(super) fn documents(text: &str, values_max: usize, faults: &mut Vec<Fault>) -> Vec<Doc> {
    let text_no_mark = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader {
        parser: Parser::new_from_str(text_no_mark),
        bytes: offsets(text_no_mark, text.len() - text_no_mark.len()),
        anchors: BTreeMap::new(),
        values: 0,
        values_max,
    };
    let mut docs = Vec::new();
    loop {
        match reader.next() {
            Ok((Event::DocumentStart(_), _)) => {}
            Ok((Event::StreamEnd, _)) => return docs,
            Ok((Event::StreamStart | Event::DocumentEnd | Event::Nothing, _)) => {}
            Ok((event, span)) => match reader.value(event, span, 0) {
                Ok(doc) => docs.push(doc),
                Err(fault) => {
                    faults.push(fault);
                    return docs;
                }
            },
            Err(fault) => {
                faults.push(fault);
                return docs;
            }
        }
    }
}

/// The byte of each character, and of the end; none when they are the same.
fn offsets(text: &str, skip: usize) -> Vec<u32> {
    let ends = std::iter::once(text.len());
    text.char_indices().map(|(at, _)| at).chain(ends).map(|at| (at + skip) as u32).collect()
}

struct Reader<'t> {
    parser: Parser<'t, saphyr_parser::StrInput<'t>>,
    bytes: Vec<u32>,
    anchors: BTreeMap<usize, Doc>,
    values: usize,
    values_max: usize,
}

impl<'t> Reader<'t> {
    fn byte(&self, index: usize) -> u32 {
        self.bytes[index.min(self.bytes.len() - 1)]
    }

    fn span(&self, span: YamlSpan) -> Span {
        Span { start: self.byte(span.start.index()), end: self.byte(span.end.index()) }
    }

    fn next(&mut self) -> Result<(Event<'t>, Span), Fault> {
        match self.parser.next_event() {
            None => Ok((Event::StreamEnd, Span::default())),
            Some(Ok((event, span))) => Ok((event, self.span(span))),
            Some(Err(err)) => {
                let at = self.byte(err.marker().index());
                Err(fault(Code::YamlInvalid, Span { start: at, end: at + 1 }, err.info()))
            }
        }
    }

    fn value(&mut self, event: Event<'t>, span: Span, depth: usize) -> Result<Doc, Fault> {
        self.values += 1;
        if self.values > self.values_max || depth > DEPTH_MAX {
            let what = "the file holds too many values, or they are nested too deep";
            return Err(fault(Code::YamlInvalid, span, what));
        }
        let (doc, anchor) = match event {
            Event::Scalar(text, style, anchor, _) => (scalar(&text, style, span), anchor),
            Event::SequenceStart(anchor, _) => (self.list(span, depth)?, anchor),
            Event::MappingStart(anchor, _) => (self.map(span, depth)?, anchor),
            Event::Alias(anchor) => {
                let Some(doc) = self.anchors.get(&anchor).cloned() else {
                    return Err(fault(Code::YamlInvalid, span, "this alias stands for nothing"));
                };
                self.values += size(&doc);
                (doc, 0)
            }
            _ => return Err(fault(Code::YamlInvalid, span, "a value is missing here")),
        };
        if anchor > 0 {
            self.anchors.insert(anchor, doc.clone());
        }
        Ok(doc)
    }

    fn list(&mut self, start: Span, depth: usize) -> Result<Doc, Fault> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, end) => {
                    let span = whole(start, items.last().map(|doc: &Doc| doc.span), end);
                    return Ok(Doc { span, kind: Kind::List(items), node: None });
                }
                (event, span) => items.push(self.value(event, span, depth + 1)?),
            }
        }
    }

    fn map(&mut self, start: Span, depth: usize) -> Result<Doc, Fault> {
        let mut pairs: Vec<(Word, Doc)> = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                let span = whole(start, pairs.last().map(|(_, doc)| doc.span), span);
                return Ok(Doc { span, kind: Kind::Map(pairs), node: None });
            }
            let Event::Scalar(text, style, ..) = event else {
                return Err(fault(Code::YamlInvalid, span, "a key is a plain word"));
            };
            let key = Word { text: text.to_string(), span: inside(style, span) };
            let (event, span) = self.next()?;
            let value = self.value(event, span, depth + 1)?;
            if pairs.iter().any(|(other, _)| other.text == key.text) {
                let what = format!("the key {:?} stands here twice", key.text);
                return Err(fault(Code::DefinitionDuplicate, key.span, what));
            }
            pairs.push((key, value));
        }
    }
}

/// From the opening to the last value; the end of a block is said too late, at the next thing.
fn whole(start: Span, last: Option<Span>, end: Span) -> Span {
    match last {
        Some(last) if end.start == end.end => start.to(last),
        Some(_) => start.to(end),
        None => start.to(end),
    }
}

fn size(doc: &Doc) -> usize {
    match &doc.kind {
        Kind::List(items) => 1 + items.iter().map(size).sum::<usize>(),
        Kind::Map(pairs) => 1 + pairs.iter().map(|(_, doc)| size(doc)).sum::<usize>(),
        _ => 1,
    }
}

/// Without the quotes, so that places inside the text are right.
fn inside(style: ScalarStyle, span: Span) -> Span {
    match style {
        ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted if span.end > span.start + 1 => {
            Span { start: span.start + 1, end: span.end - 1 }
        }
        _ => span,
    }
}

fn scalar(text: &str, style: ScalarStyle, span: Span) -> Doc {
    let kind = if style == ScalarStyle::Plain { plain(text) } else { Kind::Text(text.to_owned()) };
    Doc { span: inside(style, span), kind, node: None }
}

/// The core schema of YAML 1.2: `yes` and `on` are words.
fn plain(text: &str) -> Kind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Kind::Null,
        "true" | "True" | "TRUE" => return Kind::Bool(true),
        "false" | "False" | "FALSE" => return Kind::Bool(false),
        _ => {}
    }
    let digits = text.trim_start_matches(['-', '+']);
    let numeric = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    if numeric && let Ok(n) = text.trim_start_matches('+').parse::<i64>() {
        return Kind::Number(n.into());
    }
    let float =
        numeric && text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'-' | b'+'));
    match text.parse::<f64>() {
        Ok(n) if float => serde_json::Number::from_f64(n).map_or(Kind::Text(text.to_owned()), Kind::Number),
        _ => Kind::Text(text.to_owned()),
    }
}
