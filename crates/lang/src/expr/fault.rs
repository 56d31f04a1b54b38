//! What goes wrong while an expression is read or evaluated, with the place in its text.

use model::{Code, Problem};

/// Bytes of the source, `start..end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub start: u32,
    pub end: u32,
}

impl Span {
    pub fn new(start: usize, end: usize) -> Span {
        Span { start: start as u32, end: end as u32 }
    }

    pub fn to(self, other: Span) -> Span {
        Span { start: self.start.min(other.start), end: self.end.max(other.end) }
    }

    pub fn of(self, source: &str) -> &str {
        source.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

/// Kept small until it leaves the evaluator: `&&` and `||` may yet swallow it.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) code: Code,
    pub(crate) span: Span,
    pub(crate) what: String,
    pub(crate) hint: Option<String>,
}

impl Fault {
    pub(crate) fn new(code: Code, span: Span, what: impl Into<String>) -> Fault {
        Fault { code, span, what: what.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Fault {
        self.hint = Some(hint.into());
        self
    }

    /// The same fault in a text that has `by` bytes before this one.
    pub(crate) fn shifted(mut self, by: u32) -> Fault {
        self.span = Span { start: self.span.start + by, end: self.span.end + by };
        self
    }

    /// The problem a user sees: the byte in the text, and the line with the place underlined in the hint.
    pub(crate) fn problem(self, source: &str) -> Problem {
        let at = format!("at byte {}", self.span.start);
        self.problem_at(source, &at)
    }

    /// The same, with a place in words of the caller.
    pub(crate) fn problem_at(self, source: &str, at: &str) -> Problem {
        let Span { start, end } = self.span;
        let picture = underline(source, start as usize, end as usize);
        let hint = format!("{}\n{picture}", self.hint.as_deref().unwrap_or(usual(self.code)));
        Problem::new(self.code, format!("{}, {at}", self.what))
            .hint(hint)
            .with("offset", start)
            .with("length", end.saturating_sub(start))
    }
}

/// What mostly helps against faults of a kind that say nothing better.
fn usual(code: Code) -> &'static str {
    match code {
        Code::ExprType => "convert what is marked: int(…), double(…), string(…), or test another value",
        Code::ExprOverflow => "use double(…) where numbers grow this large",
        Code::ExprDivideByZero => "test the divisor first: x != 0 && …",
        Code::ExprLimit => "look at less: the lengths of nested loops multiply",
        Code::ExprUnknownName => "write it as it is declared, capitals too",
        _ => "change what is marked:",
    }
}

/// Characters shown on each side of the place.
const SHOWN_MAX: usize = 60;

fn underline(source: &str, start: usize, end: usize) -> String {
    let start = floor(source, start.min(source.len()));
    let line_start = source[..start].rfind('\n').map_or(0, |at| at + 1);
    let line_end = source[start..].find('\n').map_or(source.len(), |at| start + at);
    let before: Vec<char> = source[line_start..start].chars().collect();
    let marked = source[start..floor(source, end.clamp(start, line_end))].chars().count().max(1);
    let cut = before.len().saturating_sub(SHOWN_MAX);
    let before: String = before[cut..].iter().collect();
    let after: String = source[start..line_end].chars().take(SHOWN_MAX).collect();
    let space = " ".repeat(before.chars().count());
    format!("  {before}{after}\n  {space}{}", "^".repeat(marked.min(SHOWN_MAX)))
}

fn floor(source: &str, mut at: usize) -> usize {
    while !source.is_char_boundary(at) {
        at -= 1;
    }
    at
}
