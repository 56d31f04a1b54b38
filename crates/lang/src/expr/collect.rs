//! Methods of lists and of results: `rows.first()`, `rows.empty()`, `prices.sum()`.
//!
//! What they work on is a list; a map with `rows` or `nodes` (a query's result) means that list, any other
//! map is one row, and null, such as the result of a step that was skipped, is no rows.

use std::cmp::Ordering;

use model::Code;

use super::arithmetic;
use super::ast::Op;
use super::builtins::Rows;
use super::eval::{Eval, Out};
use super::fault::{Fault, Span};
use super::program::Node;
use super::value::Val;
use crate::number::Number;

pub(super) fn call<'a>(eval: &mut Eval<'a, '_>, function: Rows, args: &'a [Node], span: Span) -> Out<'a> {
    let node = &args[0];
    let value = eval.node(node)?;
    match (function, &value) {
        (Rows::Ran, _) => return Ok(Val::Bool(!matches!(value, Val::Null))),
        (Rows::Empty, Val::Text(text)) => return Ok(Val::Bool(text.is_empty())),
        (Rows::Empty, map) if map.len() == Some(0) => return Ok(Val::Bool(true)),
        (Rows::Count, Val::Text(text)) => {
            eval.pay(1, text.len(), span)?;
            return Ok(Val::count(text.chars().count()));
        }
        (Rows::Keys | Rows::Values, _) => return keys_or_values(eval, function, value, node),
        _ => {}
    }
    let list = eval.rows(value, node)?;
    let len = list.len().unwrap_or(0);
    match function {
        Rows::First => Ok(list.element(0).unwrap_or(Val::Null)),
        Rows::Last => Ok(len.checked_sub(1).and_then(|last| list.element(last)).unwrap_or(Val::Null)),
        Rows::Single if len == 1 => Ok(list.element(0).unwrap_or(Val::Null)),
        Rows::Single => {
            let what = format!("\"single\" needs one element, there are {len}");
            Err(Fault::new(Code::ExprIndex, span, what).hint("use first() when there may be others"))
        }
        Rows::Empty => Ok(Val::Bool(len == 0)),
        Rows::Any => Ok(Val::Bool(len > 0)),
        Rows::Count => Ok(Val::count(len)),
        Rows::Take | Rows::Skip => cut(eval, function, &list, &args[1]),
        Rows::Sum | Rows::Avg => sum(eval, function == Rows::Avg, &list, node, span),
        Rows::Min | Rows::Max => extreme(eval, function == Rows::Max, &list, node),
        Rows::Distinct => distinct(eval, &list, span),
        Rows::Flatten => flatten(eval, &list, span),
        Rows::Nodes | Rows::Ran | Rows::Keys | Rows::Values => Ok(list),
    }
}

impl<'a> Eval<'a, '_> {
    /// The rows that a value holds, as a list.
    pub(super) fn rows(&self, value: Val<'a>, node: &Node) -> Out<'a> {
        if value.is_map() {
            let inside = ["rows", "nodes"].into_iter().find_map(|name| value.member(name));
            return Ok(match inside.filter(Val::is_list) {
                Some(list) => list,
                None => Val::list(vec![value]),
            });
        }
        match value {
            Val::Null => Ok(Val::list(Vec::new())),
            list if list.is_list() => Ok(list),
            other => Err(self.mismatch(&other, node, "a list is needed here")),
        }
    }
}

fn keys_or_values<'a>(eval: &mut Eval<'a, '_>, function: Rows, map: Val<'a>, node: &Node) -> Out<'a> {
    if !map.is_map() {
        return Err(eval.mismatch(&map, node, "a map is needed here"));
    }
    eval.pay(map.len().unwrap_or(0), 0, node.span)?;
    Ok(match (function, map) {
        (Rows::Keys, map) => map.walked(),
        (_, Val::Object(map)) => Val::list(map.values().map(Val::of).collect()),
        (_, Val::Map(pairs, _)) => Val::list(pairs.iter().map(|(_, value)| value.clone()).collect()),
        (_, other) => other,
    })
}

fn cut<'a>(eval: &mut Eval<'a, '_>, function: Rows, list: &Val<'a>, amount: &'a Node) -> Out<'a> {
    let amount = usize::try_from(eval.whole_of(amount, "take and skip")?).unwrap_or(0);
    let len = list.len().unwrap_or(0);
    let range = if function == Rows::Take { 0..amount.min(len) } else { amount.min(len)..len };
    let mut kept = Vec::with_capacity(range.len());
    for index in range {
        let item = list.element(index).unwrap_or(Val::Null);
        eval.pay(1, item.owned_len(), Span::default())?;
        kept.push(item);
    }
    Ok(Val::list(kept))
}

/// Null when there is nothing to take an average of.
pub(super) fn sum<'a>(
    eval: &mut Eval<'a, '_>,
    average: bool,
    list: &Val<'a>,
    node: &Node,
    span: Span,
) -> Out<'a> {
    let len = list.len().unwrap_or(0);
    let mut total = Val::int(0);
    for index in 0..len {
        eval.pay(1, 0, span)?;
        let item = list.element(index).unwrap_or(Val::Null);
        total = match (&total, &item) {
            (Val::Number(Number::Int(0)), Val::Duration(_)) => item,
            _ => arithmetic::binary(eval, Op::Add, (node, total), (node, item), span)?,
        };
    }
    match total {
        _ if average && len == 0 => Ok(Val::Null),
        Val::Number(n) if average => Ok(Val::double(n.to_f64() / len as f64)),
        Val::Duration(nanos) if average => Ok(Val::Duration(nanos / len as i128)),
        total => Ok(total),
    }
}

/// Null when there is none.
pub(super) fn extreme<'a>(eval: &mut Eval<'a, '_>, greatest: bool, list: &Val<'a>, node: &Node) -> Out<'a> {
    let wanted = if greatest { Ordering::Greater } else { Ordering::Less };
    let mut best = Val::Null;
    for index in 0..list.len().unwrap_or(0) {
        eval.pay(1, 0, node.span)?;
        let item = list.element(index).unwrap_or(Val::Null);
        let better =
            matches!(best, Val::Null) || eval.order(Op::Less, (node, &item), (node, &best))? == Some(wanted);
        if better {
            best = item;
        }
    }
    Ok(best)
}

fn distinct<'a>(eval: &mut Eval<'a, '_>, list: &Val<'a>, span: Span) -> Out<'a> {
    let mut kept: Vec<Val<'a>> = Vec::new();
    for index in 0..list.len().unwrap_or(0) {
        let item = list.element(index).unwrap_or(Val::Null);
        if position(eval, &kept, &item, span)?.is_none() {
            kept.push(item);
        }
    }
    Ok(Val::list(kept))
}

/// Where `wanted` stands among `items`.
pub(super) fn position<'a>(
    eval: &mut Eval<'a, '_>,
    items: &[Val<'a>],
    wanted: &Val<'a>,
    span: Span,
) -> Result<Option<usize>, Fault> {
    for (index, item) in items.iter().enumerate() {
        if eval.same(item, wanted, span)? {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

fn flatten<'a>(eval: &mut Eval<'a, '_>, list: &Val<'a>, span: Span) -> Out<'a> {
    let mut out = Vec::new();
    for index in 0..list.len().unwrap_or(0) {
        let item = list.element(index).unwrap_or(Val::Null);
        let inner = if item.is_list() { item.len().unwrap_or(0) } else { 1 };
        eval.pay(1 + inner, 0, span)?;
        match item.is_list() {
            true => out.extend((0..inner).filter_map(|at| item.element(at))),
            false => out.push(item),
        }
    }
    Ok(Val::list(out))
}
