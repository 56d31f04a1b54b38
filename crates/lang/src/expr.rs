//! Expressions: the one small language of filters, keys and mappers, compiled once and evaluated per event.
//!
//! ```text
//!  text ─lexer─▶ tokens ─parser─▶ ast ─compile─▶ program ─eval (roots)─▶ value
//! ```
//! Where CEL has the same operator it means what CEL means, but for what JSON events need: a path below a
//! known root that is not there is null, a field that is missing or null equals `""`, null counts as false
//! where a yes or no is needed, and an integer beside a double becomes a double. An unknown root name is
//! refused when compiled.

mod arithmetic;
pub(crate) mod ast;
mod builtins;
mod calls;
mod collect;
mod compare;
mod compile;
mod convert;
pub(crate) mod cursor;
mod eval;
pub(crate) mod fault;
mod format;
mod functions;
mod instant;
mod json;
pub(crate) mod lexer;
mod literal;
mod macros;
mod math;
mod parser;
mod pipe;
mod primary;
mod program;
mod quick;
mod refs;
mod template;
mod texts;
mod times;
mod turn;
mod value;

#[cfg(test)]
mod tests;

use model::Problem;

pub use builtins::EFFECTS;
pub(crate) use builtins::{TYPES, either_case, is_function};
pub(crate) use compile::build_regex;
pub use fault::Span;
pub(crate) use instant::{parse as parse_instant, parse_duration, read as read_instant};
pub(crate) use json::from_base64;
pub(crate) use model::suggest::nearest;
pub(crate) use parser::parse;
pub use refs::{EntityRef, Key, Refs};
pub use template::{Template, TemplateTree};
pub(crate) use template::{hole_len, parse_hole};
pub use turn::Unclear;
pub use value::Val;

use compile::Compiler;
use eval::Eval;

/// The names an expression may begin with.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'s> {
    /// Evaluation takes one value for each, in this order.
    pub roots: &'s [&'s str],
    /// Bare names that mean a field of the root `event`, or of the row's `payload`.
    pub shorthands: &'s [&'s str],
    /// Concepts by the names they have here, with their ids, for `canonicalId`.
    pub concepts: &'s [(&'s str, &'s str)],
    /// An unknown name is an error only when it is evaluated, as in CEL without its checker.
    pub late: bool,
    /// Paths (`payload.due`) that are declared to be instants: compared as such, however they are written.
    pub instants: &'s [String],
    /// Paths that are declared to be durations, which are seconds in JSON: compared as durations.
    pub lengths: &'s [String],
    /// A filter of rows: an order against what is missing is a no, not an error.
    pub rows: bool,
}

impl<'s> Scope<'s> {
    /// Filters, group keys and mappers: `event`, and `topic`, `payload`, `subject` for its fields.
    pub const EVENT: Scope<'static> = Scope::of(&["event"]);

    /// These roots and nothing else: over rows, and what is asked with.
    pub const fn rows(roots: &'s [&'s str]) -> Scope<'s> {
        Scope { roots, shorthands: &[], concepts: &[], late: false, instants: &[], lengths: &[], rows: true }
    }

    /// These roots; with `event` among them also `topic`, `payload` and `subject`.
    pub const fn of(roots: &'s [&'s str]) -> Scope<'s> {
        let shorthands = &["topic", "payload", "subject"];
        Scope { roots, shorthands, concepts: &[], late: false, instants: &[], lengths: &[], rows: false }
    }
}

/// A part of a root that an expression reads; without `field`, all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    pub root: usize,
    pub field: Option<String>,
}

/// Why a tree does not compile over these names; for declarations, whose expressions have their places in a file.
pub(crate) fn check(node: &ast::Node, roots: &[&str]) -> Vec<fault::Fault> {
    let scope = Scope { late: true, ..Scope::of(roots) };
    let mut compiler = Compiler::new(&scope);
    let failed = compiler.node(node.clone()).err();
    compiler.unknown.into_iter().chain(failed).collect()
}

#[derive(Clone, Debug)]
pub struct Expr {
    source: String,
    program: program::Node,
    reads: Vec<Read>,
    rows: bool,
}

impl Expr {
    /// Reads the text and finds every name in `scope`; fails with `expr.syntax`, `expr.unknown_name`,
    /// `expr.overflow` or `expr.limit`, naming the byte.
    pub fn compile(source: &str, scope: &Scope<'_>) -> Result<Expr, Problem> {
        let mut compiler = Compiler::new(scope);
        let program = parser::parse(source).and_then(|tree| compiler.node(tree));
        let program = program.map_err(|fault| fault.problem(source))?;
        Ok(Expr { source: source.to_owned(), program, reads: compiler.reads, rows: scope.rows })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// Which parts of the roots it may read.
    pub fn reads(&self) -> &[Read] {
        &self.reads
    }

    /// What it reads that is known beforehand: entities, event fields, functions, secrets.
    pub fn refs(&self) -> Refs {
        Refs::of(&self.source)
    }

    /// The value over `roots`, one for each root of the scope. At most 100,000 steps, then `expr.limit`.
    pub fn eval<'a>(&'a self, roots: &[Val<'a>]) -> Result<Val<'a>, Problem> {
        self.over(roots).node(&self.program).map_err(|fault| fault.problem(&self.source))
    }

    /// The value as a yes or no: a bool, null counting as no; anything else is `expr.type`.
    pub fn test<'a>(&'a self, roots: &[Val<'a>]) -> Result<bool, Problem> {
        self.over(roots).truth(&self.program).map_err(|fault| fault.problem(&self.source))
    }

    fn over<'a, 'r>(&'a self, roots: &'r [Val<'a>]) -> Eval<'a, 'r> {
        Eval::new(&self.source, roots).over_rows(self.rows)
    }
}
