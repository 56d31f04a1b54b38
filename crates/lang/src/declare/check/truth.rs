//! Places that ask yes or no: an expression whose type is known beforehand and is another one can never answer.

use model::Code;

use super::Checker;
use crate::declare::finding::fault;
use crate::expr::ast::{Kind, Literal, Node, Op};

/// Functions that give something else than yes or no.
const OTHERS: [(&str, &str); 8] = [
    ("size", "a number"),
    ("int", "a number"),
    ("uint", "a number"),
    ("double", "a number"),
    ("string", "a text"),
    ("duration", "a duration"),
    ("timestamp", "an instant"),
    ("fingerprint", "a text"),
];

impl Checker<'_> {
    /// A finding when `node` cannot be true or false. Null counts as false, what is read from data is not known.
    pub(super) fn yes_or_no(&mut self, node: &Node) {
        if let Some((what, span)) = other_type(node) {
            let found = fault(Code::ExprType, span, format!("this is {what}, where yes or no is asked"));
            self.error(found.hint("compare it with something, such as x > 0"));
        }
    }
}

/// The type that it has for certain, if that is neither bool nor null, and where.
fn other_type(node: &Node) -> Option<(&'static str, crate::expr::Span)> {
    let what = match &node.kind {
        Kind::Literal(literal) => literal_type(literal)?,
        Kind::List(_) => "a list",
        Kind::Map(_) => "a map",
        Kind::Negate(_) => "a number",
        Kind::Binary { op: Op::Subtract | Op::Multiply | Op::Divide | Op::Remainder, .. } => "a number",
        Kind::Binary { op: Op::Add, .. } => "a sum",
        Kind::Call { receiver: Some(_), name, .. } if name == "size" => "a number",
        Kind::Call { name, args, .. } if !args.is_empty() => {
            OTHERS.iter().find(|(known, _)| known == name).map(|(_, what)| *what)?
        }
        // Both sides of `&&` and `||` are asked.
        Kind::All(items) | Kind::Any(items) => return items.iter().find_map(other_type),
        Kind::Not(of) => return other_type(of),
        Kind::Choose { yes, no, .. } => return other_type(yes).or_else(|| other_type(no)),
        _ => return None,
    };
    Some((what, node.span))
}

fn literal_type(literal: &Literal) -> Option<&'static str> {
    match literal {
        Literal::Null | Literal::Bool(_) => None,
        Literal::Int(_) | Literal::Uint(_) | Literal::Double(_) => Some("a number"),
        Literal::Text(_) => Some("a text"),
        Literal::Bytes(_) => Some("bytes"),
        Literal::Duration(_) => Some("a duration"),
    }
}
