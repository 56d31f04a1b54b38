//! Filters of templates: `{{ event.payload.name | upper | truncate(20) }}`.

use model::Code;

use super::ast;
use super::compile::Compiler;
use super::cursor::Parser;
use super::eval::{Eval, Out};
use super::fault::{Fault, Span};
use super::functions::shown;
use super::instant::{self, Civil, SECOND, civil};
use super::nearest;
use super::program::Node;
use super::refs::Refs;
use super::value::Val;
use crate::number::Number;

#[derive(Clone, Debug)]
pub(super) struct Pipe {
    filter: Filter,
    args: Box<[Node]>,
    /// `now`, for filters that need it.
    now: Option<Node>,
    span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filter {
    Default,
    Upper,
    Lower,
    Capitalize,
    Trim,
    Truncate,
    Length,
    Json,
    Iso,
    Date,
    Join,
    Replace,
    Not,
    Minutes,
    Hours,
    DurationSince,
    OlderThan,
}

/// Name, filter, least and most arguments.
const FILTERS: [(&str, Filter, usize, usize); 17] = [
    ("default", Filter::Default, 1, 1),
    ("upper", Filter::Upper, 0, 0),
    ("lower", Filter::Lower, 0, 0),
    ("capitalize", Filter::Capitalize, 0, 0),
    ("trim", Filter::Trim, 0, 0),
    ("truncate", Filter::Truncate, 1, 1),
    ("length", Filter::Length, 0, 0),
    ("json", Filter::Json, 0, 0),
    ("iso", Filter::Iso, 0, 0),
    ("date", Filter::Date, 0, 1),
    ("join", Filter::Join, 0, 1),
    ("replace", Filter::Replace, 2, 2),
    ("not", Filter::Not, 0, 0),
    ("minutes", Filter::Minutes, 0, 0),
    ("hours", Filter::Hours, 0, 0),
    ("duration_since", Filter::DurationSince, 0, 0),
    ("older_than", Filter::OlderThan, 1, 1),
];

/// What follows a `|`, as it is written.
pub(super) struct Written {
    filter: Filter,
    span: Span,
    pub(super) args: Vec<ast::Node>,
}

pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Written, Fault> {
    let (name, span) = parser.expect_name("the name of a filter")?;
    let args = if parser.accept("(") { parser.list(")")?.0 } else { Vec::new() };
    let Some(&(_, filter, least, most)) = FILTERS.iter().find(|known| known.0 == name) else {
        let fault = Fault::new(Code::ExprUnknownName, span, format!("unknown filter {name:?}"));
        return Err(match nearest(&name, FILTERS.iter().map(|known| known.0)) {
            Some(near) => fault.hint(format!("did you mean {near:?}?")),
            None => fault,
        });
    };
    if !(least..=most).contains(&args.len()) {
        let what = format!("the filter {name:?} takes {most} values, not {}", args.len());
        return Err(Fault::new(Code::ExprSyntax, span, what));
    }
    Ok(Written { filter, span, args })
}

pub(super) fn read(
    parser: &mut Parser<'_>,
    compiler: &mut Compiler<'_>,
    refs: &mut Refs,
) -> Result<Pipe, Fault> {
    let Written { filter, span, args } = parse(parser)?;
    args.iter().for_each(|arg| refs.join(Refs::of_tree(arg)));
    let timed = matches!(filter, Filter::DurationSince | Filter::OlderThan);
    refs.now |= timed;
    let now = ast::Node { kind: ast::Kind::Name("now".to_owned()), span, height: 1 };
    let now = if timed { Some(compiler.node(now)?) } else { None };
    Ok(Pipe { filter, args: compiler.nodes(args)?, now, span })
}

impl Pipe {
    pub(super) fn apply<'a>(&'a self, eval: &mut Eval<'a, '_>, value: Val<'a>) -> Out<'a> {
        eval.pay(1, value.owned_len(), self.span)?;
        match self.filter {
            Filter::Default => {
                let missing =
                    matches!(&value, Val::Null) || matches!(&value, Val::Text(text) if text.is_empty());
                if missing { eval.node(&self.args[0]) } else { Ok(value) }
            }
            Filter::Not => Ok(Val::Bool(!truthy(&value))),
            Filter::Length => self.length(eval, &value),
            Filter::Json => match value.canonical(&mut (1 << 20)) {
                Some(text) => Ok(Val::text(text)),
                None => Err(Fault::new(Code::ExprLimit, self.span, "the value is larger than 1 MiB as text")),
            },
            Filter::Join => self.join(eval, &value),
            Filter::Minutes => self.scaled(&value, 60),
            Filter::Hours => self.scaled(&value, 3600),
            Filter::Iso | Filter::Date | Filter::DurationSince | Filter::OlderThan => {
                self.timed(eval, &value)
            }
            _ => self.text(eval, &value),
        }
    }

    fn text<'a>(&'a self, eval: &mut Eval<'a, '_>, value: &Val<'a>) -> Out<'a> {
        let text = shown(eval, value, self.span)?;
        Ok(Val::text(match self.filter {
            Filter::Upper => text.to_uppercase(),
            Filter::Lower => text.to_lowercase(),
            Filter::Trim => text.trim().to_owned(),
            Filter::Capitalize => {
                let mut letters = text.chars();
                letters
                    .next()
                    .map_or(String::new(), |c| c.to_uppercase().collect::<String>() + letters.as_str())
            }
            Filter::Truncate => {
                let most = usize::try_from(eval.whole_of(&self.args[0], "truncate")?).unwrap_or(0);
                match text.char_indices().nth(most) {
                    Some((end, _)) => format!("{}…", &text[..end]),
                    None => text,
                }
            }
            _ => {
                let from = eval.text_of(&self.args[0], "replace")?;
                let to = eval.text_of(&self.args[1], "replace")?;
                let places = if from.is_empty() { text.len() + 1 } else { text.matches(&*from).count() };
                eval.pay(1, places.saturating_mul(to.len()), self.span)?;
                text.replace(&*from, &to)
            }
        }))
    }

    fn length<'a>(&self, eval: &mut Eval<'a, '_>, value: &Val<'a>) -> Out<'a> {
        match value.len() {
            Some(len) => Ok(Val::count(len)),
            None => Ok(Val::count(shown(eval, value, self.span)?.chars().count())),
        }
    }

    fn join<'a>(&'a self, eval: &mut Eval<'a, '_>, value: &Val<'a>) -> Out<'a> {
        let by = match self.args.first() {
            Some(by) => eval.text_of(by, "join")?,
            None => ", ".into(),
        };
        let mut out = String::new();
        for index in 0..value.len().filter(|_| value.is_list()).unwrap_or(0) {
            eval.pay(1, by.len(), self.span)?;
            let item = shown(eval, &value.element(index).unwrap_or(Val::Null), self.span)?;
            out = if index == 0 { item } else { out + &by + &item };
        }
        Ok(if value.is_list() { Val::text(out) } else { Val::text(shown(eval, value, self.span)?) })
    }

    /// A number of minutes or hours as milliseconds, and a duration as that many of them.
    fn scaled<'a>(&self, value: &Val<'a>, seconds: i64) -> Out<'a> {
        match value {
            Val::Number(Number::Int(n)) => {
                let wrong = || Fault::new(Code::ExprOverflow, self.span, "the result is out of range");
                n.checked_mul(seconds * 1000).map(Val::int).ok_or_else(wrong)
            }
            Val::Number(n) => Ok(Val::double(n.to_f64() * (seconds * 1000) as f64)),
            Val::Duration(nanos) => Ok(Val::int((nanos / (i128::from(seconds) * SECOND)) as i64)),
            _ => Err(Fault::new(
                Code::ExprType,
                self.span,
                "a number or a duration is needed before this filter",
            )),
        }
    }

    fn timed<'a>(&'a self, eval: &mut Eval<'a, '_>, value: &Val<'a>) -> Out<'a> {
        let at = match value {
            Val::Timestamp(nanos) => Some(*nanos),
            Val::Text(text) => instant::parse(text).or_else(|| instant::parse_day(text)),
            Val::Number(n) if n.to_f64().abs() < 2e14 => Some((n.to_f64() * 1e6) as i128),
            _ => None,
        };
        let at = at.filter(|at| instant::in_range(*at)).ok_or_else(|| {
            Fault::new(Code::ExprType, self.span, "an instant is needed before this filter")
        })?;
        let now = match self.now.as_ref().map(|now| eval.node(now)).transpose()? {
            Some(Val::Timestamp(now)) => now,
            _ => at,
        };
        match self.filter {
            Filter::DurationSince => Ok(Val::int(((now - at) / 1_000_000) as i64)),
            Filter::OlderThan => {
                let limit = match eval.node(&self.args[0])? {
                    Val::Duration(nanos) => nanos,
                    Val::Number(n) => (n.to_f64() * 1e6) as i128,
                    other => return Err(eval.mismatch(&other, &self.args[0], "milliseconds are needed")),
                };
                Ok(Val::Bool(now - at > limit))
            }
            Filter::Date => self.date(eval, at),
            _ => Ok(Val::text(instant::text(at))),
        }
    }

    fn date<'a>(&'a self, eval: &mut Eval<'a, '_>, at: i128) -> Out<'a> {
        let form = match self.args.first() {
            None => "iso".to_owned(),
            Some(node) => eval.text_of(node, "date")?.to_lowercase(),
        };
        let Civil { year, month, day, weekday, hour, minute, second, .. } = civil(at, 0);
        Ok(match form.as_str() {
            "iso" => Val::text(instant::text(at)),
            "date" => Val::text(format!("{year:04}-{month:02}-{day:02}")),
            "time" => Val::text(format!("{hour:02}:{minute:02}:{second:02}")),
            "unix" => Val::int(at.div_euclid(SECOND) as i64),
            "rfc2822" => {
                const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
                const MONTHS: [&str; 12] =
                    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
                let (name, month) = (DAYS[weekday as usize % 7], MONTHS[(month as usize + 11) % 12]);
                Val::text(format!(
                    "{name}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} +0000"
                ))
            }
            _ => {
                let fault = Fault::new(Code::ExprType, self.span, "there is no such form of a date");
                return Err(fault.hint("one of \"iso\", \"date\", \"time\", \"unix\", \"rfc2822\""));
            }
        })
    }
}

/// Null, false, 0, and what is empty are not.
fn truthy(value: &Val<'_>) -> bool {
    match value {
        Val::Null | Val::Bool(false) => false,
        Val::Text(text) => !text.is_empty(),
        Val::Number(n) => n.to_f64() != 0.0,
        other => other.len() != Some(0),
    }
}
