//! The syntax of an expression as a tree, names still unresolved; what the parser gives to the compiler.

use super::fault::Span;

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) span: Span,
    /// Longest way down; bounded, because everything after the parser walks the tree recursively.
    pub(crate) height: u16,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Literal(Literal),
    Name(String),
    Member {
        of: Box<Node>,
        name: String,
    },
    Index {
        of: Box<Node>,
        at: Box<Node>,
    },
    Call {
        receiver: Option<Box<Node>>,
        name: String,
        name_span: Span,
        args: Vec<Node>,
    },
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
    Not(Box<Node>),
    Negate(Box<Node>),
    /// `a && b && …`, flat.
    All(Vec<Node>),
    /// `a || b || …`, flat.
    Any(Vec<Node>),
    Binary {
        op: Op,
        left: Box<Node>,
        right: Box<Node>,
    },
    Choose {
        test: Box<Node>,
        yes: Box<Node>,
        no: Box<Node>,
    },
    /// `x => body`, `(x, y) => body`; only as an argument of a method.
    Lambda {
        params: Vec<Param>,
        body: Box<Node>,
    },
    /// `when(args.x) { body }`: true, as if it were not written, when `args.x` was not given.
    When {
        given: Box<Node>,
        body: Box<Node>,
    },
}

#[derive(Clone, Debug)]
#[allow(dead_code, reason = "the declarations point at them")]
pub(crate) struct Param {
    pub(crate) name: String,
    pub(crate) span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Box<str>),
    Bytes(Box<[u8]>),
    /// Nanoseconds.
    Duration(i128),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Equal,
    Unequal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    In,
    NotIn,
    Coalesce,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Op {
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Op::Equal => "==",
            Op::Unequal => "!=",
            Op::Less => "<",
            Op::LessEqual => "<=",
            Op::Greater => ">",
            Op::GreaterEqual => ">=",
            Op::In => "in",
            Op::NotIn => "not in",
            Op::Coalesce => "??",
            Op::Add => "+",
            Op::Subtract => "-",
            Op::Multiply => "*",
            Op::Divide => "/",
            Op::Remainder => "%",
        }
    }
}
