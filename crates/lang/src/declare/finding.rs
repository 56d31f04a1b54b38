//! What the checker says about a workspace: a code, a place in a file, and what to write instead.

use model::Code;
use serde_json::{Map, Value, json};

use crate::expr::Span;
use crate::expr::fault::Fault;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Error,
    Warning,
}

impl Severity {
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// One finding. Lines and columns count from 1, columns in characters; the end is behind the last character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub file: String,
    pub line: usize,
    pub col: usize,
    pub end_line: usize,
    pub end_col: usize,
    pub severity: Severity,
    pub code: Code,
    pub message: String,
    pub suggestion: Option<String>,
}

impl Finding {
    pub(crate) fn new(file: &str, text: &str, severity: Severity, fault: Fault) -> Finding {
        let (line, col) = place(text, fault.span.start as usize);
        let (end_line, end_col) = place(text, fault.span.end.max(fault.span.start) as usize);
        Finding {
            file: file.to_owned(),
            line,
            col,
            end_line,
            end_col,
            severity,
            code: fault.code,
            message: fault.what,
            suggestion: fault.hint,
        }
    }

    /// The line of contracts §10.
    pub fn to_json(&self) -> Value {
        let mut out = Map::new();
        out.insert("file".into(), json!(self.file));
        out.insert("line".into(), json!(self.line));
        out.insert("col".into(), json!(self.col));
        out.insert("end_line".into(), json!(self.end_line));
        out.insert("end_col".into(), json!(self.end_col));
        out.insert("severity".into(), json!(self.severity.as_str()));
        out.insert("code".into(), json!(self.code.as_str()));
        out.insert("message".into(), json!(self.message));
        if let Some(suggestion) = &self.suggestion {
            out.insert("suggestion".into(), json!(suggestion));
        }
        Value::Object(out)
    }

    /// For people: place, message, the line with a caret, and what to do.
    ///
    /// ```text
    /// cognition/queries.ew:4:10: error: concept "space" has no field "staus" [definition.unknown_name]
    ///   4 |   filter payload.staus == "active"
    ///     |                  ^^^^^
    ///   help: did you mean "status"?
    /// ```
    pub fn render(&self, text: &str) -> String {
        let Finding { file, line, col, .. } = self;
        let (severity, code) = (self.severity.as_str(), self.code);
        let mut out = format!("{file}:{line}:{col}: {severity}: {} [{code}]\n", self.message);
        let shown = text.lines().nth(line - 1).unwrap_or("").trim_start_matches('\u{feff}');
        let wide = shown.chars().count();
        let until = if self.end_line == self.line { self.end_col } else { wide + 1 };
        let carets = "^".repeat(until.saturating_sub(*col).max(1));
        // Tabs stay tabs, so that the caret stands below its character.
        let gap: String = shown.chars().take(col - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let margin = " ".repeat(line.to_string().len());
        out.push_str(&format!("  {line} | {shown}\n  {margin} | {gap}{carets}\n"));
        if let Some(suggestion) = &self.suggestion {
            out.push_str(&format!("  help: {suggestion}\n"));
        }
        out
    }
}

/// Line and column of a byte.
pub(super) fn place(text: &str, at: usize) -> (usize, usize) {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let before = &text[..at];
    let line_start = before.rfind('\n').map_or(0, |n| n + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].trim_start_matches('\u{feff}').chars().count() + 1,
    )
}

/// A fault that is one of declarations.
pub(crate) fn fault(code: Code, span: Span, what: impl Into<String>) -> Fault {
    Fault::new(code, span, what)
}

/// `did you mean …?`, or what there is, when it is not much.
pub(crate) fn suggest<'a>(fault: Fault, name: &str, known: impl IntoIterator<Item = &'a str>) -> Fault {
    let mut known: Vec<&str> = known.into_iter().collect();
    known.sort_unstable();
    known.dedup();
    match crate::expr::nearest(name, known.iter().copied()) {
        Some(near) => fault.hint(format!("did you mean {near:?}?")),
        None if known.is_empty() || known.len() > 20 => fault,
        None => fault.hint(format!("known here: {}", known.join(", "))),
    }
}
