//! Going through the tree of an expression: every place, every child.

use crate::expr::Span;
use crate::expr::ast::{Kind, Node};

/// Calls `visit` for each node directly below.
pub(crate) fn children<'a>(node: &'a Node, visit: &mut dyn FnMut(&'a Node)) {
    match &node.kind {
        Kind::Literal(_) | Kind::Name(_) => {}
        Kind::Member { of, .. } | Kind::Not(of) | Kind::Negate(of) => visit(of),
        Kind::Index { of, at } => [of, at].into_iter().for_each(|n| visit(n)),
        Kind::Call { receiver, args, .. } => {
            receiver.iter().for_each(|n| visit(n));
            args.iter().for_each(visit);
        }
        Kind::List(items) | Kind::All(items) | Kind::Any(items) => items.iter().for_each(visit),
        Kind::Map(pairs) => {
            pairs.iter().for_each(|(key, value)| [key, value].into_iter().for_each(&mut *visit))
        }
        Kind::Binary { left, right, .. } => [left, right].into_iter().for_each(|n| visit(n)),
        Kind::Choose { test, yes, no } => [test, yes, no].into_iter().for_each(|n| visit(n)),
        Kind::Lambda { body, .. } => visit(body),
        Kind::When { given, body } => [given, body].into_iter().for_each(|n| visit(n)),
    }
}

/// The same, to change them.
pub(crate) fn children_mut(node: &mut Node, visit: &mut dyn FnMut(&mut Node)) {
    match &mut node.kind {
        Kind::Literal(_) | Kind::Name(_) => {}
        Kind::Member { of, .. } | Kind::Not(of) | Kind::Negate(of) => visit(of),
        Kind::Index { of, at } => [of, at].into_iter().for_each(|n| visit(n)),
        Kind::Call { receiver, args, .. } => {
            receiver.iter_mut().for_each(|n| visit(n));
            args.iter_mut().for_each(visit);
        }
        Kind::List(items) | Kind::All(items) | Kind::Any(items) => items.iter_mut().for_each(visit),
        Kind::Map(pairs) => pairs.iter_mut().for_each(|(key, value)| {
            visit(key);
            visit(value);
        }),
        Kind::Binary { left, right, .. } => [left, right].into_iter().for_each(|n| visit(n)),
        Kind::Choose { test, yes, no } => [test, yes, no].into_iter().for_each(|n| visit(n)),
        Kind::Lambda { body, .. } => visit(body),
        Kind::When { given, body } => [given, body].into_iter().for_each(|n| visit(n)),
    }
}

pub(crate) fn each_span(node: &mut Node, change: &mut dyn FnMut(&mut Span)) {
    change(&mut node.span);
    match &mut node.kind {
        Kind::Call { name_span, .. } => change(name_span),
        Kind::Lambda { params, .. } => params.iter_mut().for_each(|param| change(&mut param.span)),
        _ => {}
    }
    children_mut(node, &mut |child| each_span(child, change));
}

/// The names of a path `a.b.c`, with the place of its last part; none for anything else.
pub(crate) fn path(node: &Node) -> Option<Vec<&str>> {
    match &node.kind {
        Kind::Name(name) => Some(vec![name]),
        Kind::Member { of, name } => {
            let mut names = path(of)?;
            names.push(name);
            Some(names)
        }
        _ => None,
    }
}
