//! A compiled expression: names resolved to places, paths flattened, regular expressions built.

use regex::Regex;

use super::ast::{Literal, Op};
use super::fault::Span;

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Literal(Literal),
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
    /// `map(x, test, value)` has one; the other macros test with `body`.
    pub(crate) test: Option<Node>,
    pub(crate) body: Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Macro {
    All,
    Exists,
    ExistsOne,
    Filter,
    Map,
}

impl Macro {
    pub(crate) const NAMES: [(&str, Macro); 6] = [
        ("all", Macro::All),
        ("exists", Macro::Exists),
        ("exists_one", Macro::ExistsOne),
        ("existsOne", Macro::ExistsOne),
        ("filter", Macro::Filter),
        ("map", Macro::Map),
    ];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Size,
    Contains,
    StartsWith,
    EndsWith,
    Matches,
    Lower,
    Upper,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    Dyn,
}

impl Function {
    /// Name, number of arguments with the receiver, and whether it may be called as a method, as a function.
    pub(crate) const NAMES: [(&str, Function, usize, bool, bool); 18] = [
        ("size", Function::Size, 1, true, true),
        ("contains", Function::Contains, 2, true, false),
        ("startsWith", Function::StartsWith, 2, true, false),
        ("endsWith", Function::EndsWith, 2, true, false),
        ("matches", Function::Matches, 2, true, true),
        ("lower", Function::Lower, 1, true, true),
        ("upper", Function::Upper, 1, true, true),
        ("lowerAscii", Function::Lower, 1, true, false),
        ("upperAscii", Function::Upper, 1, true, false),
        ("bool", Function::Bool, 1, false, true),
        ("int", Function::Int, 1, false, true),
        ("uint", Function::Uint, 1, false, true),
        ("double", Function::Double, 1, false, true),
        ("string", Function::String, 1, false, true),
        ("bytes", Function::Bytes, 1, false, true),
        ("timestamp", Function::Timestamp, 1, false, true),
        ("duration", Function::Duration, 1, false, true),
        ("dyn", Function::Dyn, 1, false, true),
    ];
}
