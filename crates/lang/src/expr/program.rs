//! A compiled expression: names resolved to places, paths flattened, regular expressions built.

use regex::Regex;

use super::ast::{Literal, Op};
use super::builtins::{Function, Macro};
use super::fault::{Fault, Span};

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Literal(Literal),
    /// A type by its name.
    Type(&'static str),
    /// A walk from a root or a macro's variable by fixed steps: the common case, done without evaluating
    /// anything.
    Path {
        base: Base,
        steps: Box<[Step]>,
    },
    Member(Box<Node>, Box<str>),
    Index(Box<(Node, Node)>),
    List(Box<[Node]>),
    Map(Box<[(Node, Node)]>),
    Not(Box<Node>),
    Negate(Box<Node>),
    All(Box<[Node]>),
    Any(Box<[Node]>),
    Binary(Op, Box<(Node, Node)>),
    Choose(Box<(Node, Node, Node)>),
    /// Whether the member is there, be it null.
    Has(Box<Node>, Box<str>),
    Call(Function, Box<[Node]>),
    /// `matches` with a pattern known beforehand.
    Matches(Box<Node>, Regex),
    Macro(Macro, Box<Loop>),
    /// `cel.bind(name, value, body)`: the value as a local of the body.
    Bind(Box<(Node, Node)>),
    /// `actor.userId`: an actor's text without `user:`.
    UserId(Box<Node>),
    /// A path that is declared to be an instant, beside a comparison or counted with; and what such counting gives.
    Instant(Box<Node>),
    /// A path that is declared to be a duration, likewise.
    Length(Box<Node>),
    /// A name that is not known, in a scope that says so only when it is needed.
    Unknown(Box<Fault>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Base {
    Root(usize),
    Local(usize),
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Key(Box<str>),
    Index(u64),
}

#[derive(Clone, Debug)]
pub(crate) struct Loop {
    pub(crate) over: Node,
    /// With two variables the first is the index or the key, the second the value.
    pub(crate) pairs: bool,
    /// Methods of the collection library read the rows of a result; CEL's macros walk a map's keys.
    pub(crate) rows: bool,
    /// `map(x, test, value)` has one; the other macros test with `body`.
    pub(crate) test: Option<Node>,
    pub(crate) body: Node,
    /// What `reduce` begins with.
    pub(crate) first: Option<Node>,
}
