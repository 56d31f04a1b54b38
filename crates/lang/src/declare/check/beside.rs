//! Literals beside what has a declared type: `state.order.7.status == "piad"` is never true, and that is known beforehand.

use model::Code;
use model::definition::Type;

use super::fits;
use crate::declare::doc::Doc;
use crate::declare::finding::{fault, suggest};
use crate::declare::walk::path;
use crate::expr::ast::{Kind, Literal, Node, Op};
use crate::expr::fault::Fault;

/// What a node reads, by its names, and what that is declared to be.
pub(super) type Typed<'t> = &'t dyn Fn(&Node) -> Option<(Vec<String>, Type)>;

/// The literals of this one comparison that its other side never is; what stands deeper is not looked at.
pub(super) fn misfits(node: &Node, typed: Typed<'_>) -> Vec<Fault> {
    let Kind::Binary { op, left, right } = &node.kind else { return Vec::new() };
    match op {
        Op::Equal | Op::Unequal | Op::Less | Op::LessEqual | Op::Greater | Op::GreaterEqual => {
            let mut found = one_side(*op, (left, right), typed);
            found.extend(one_side(*op, (right, left), typed));
            found
        }
        Op::In | Op::NotIn => one_side(*op, (left, right), typed),
        _ => Vec::new(),
    }
}

/// `event.band < "red"`: an expression orders texts by their letters, and among those black comes before green.
pub(super) fn ordered_bands(node: &Node) -> Option<Fault> {
    let Kind::Binary { op: Op::Less | Op::LessEqual | Op::Greater | Op::GreaterEqual, left, right } =
        &node.kind
    else {
        return None;
    };
    let is_band = |side: &Node| path(side).is_some_and(|names| names.ends_with(&["event", "band"]));
    if !is_band(left) && !is_band(right) {
        return None;
    }
    let what = "bands are ordered as texts here: amber, black, green, red";
    let hint = "name those that you mean, event.band in [\"green\", \"amber\"]; a group has max_band";
    Some(fault(Code::DefinitionType, node.span, what).hint(hint))
}

fn one_side(op: Op, (field, literal): (&Node, &Node), typed: Typed<'_>) -> Vec<Fault> {
    let Some((names, of)) = typed(field) else { return Vec::new() };
    let items = match (&literal.kind, op) {
        (Kind::List(items), Op::In | Op::NotIn) => items.as_slice(),
        (_, Op::In | Op::NotIn) => &[],
        _ => std::slice::from_ref(literal),
    };
    items.iter().filter_map(|item| misfit(op, item, &names, &of)).collect()
}

fn misfit(op: Op, item: &Node, names: &[String], of: &Type) -> Option<Fault> {
    let value = Doc::of(item.clone()).literal().ok()?;
    // An empty text stands for "missing" in filters.
    if value.as_str() == Some("") || is_untyped(item) {
        return None;
    }
    // Numbers are ordered whatever they are, and only one that must be equal never is.
    if op != Op::Equal && value.is_number() && matches!(of, Type::Int | Type::Double) {
        return None;
    }
    let message = fits::misfit_type(of, &value)?;
    let what = format!("{:?} is never {value}: {message}", names.join("."));
    let values = match of {
        Type::Enum(values) => values.iter().filter_map(|value| value.as_str()).collect(),
        _ => Vec::new(),
    };
    let wrong = fault(Code::DefinitionType, item.span, what);
    Some(suggest(wrong, value.as_str().unwrap_or_default(), values))
}

fn is_untyped(node: &Node) -> bool {
    matches!(node.kind, Kind::Literal(Literal::Duration(_) | Literal::Bytes(_)))
}
