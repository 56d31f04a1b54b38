//! Where a definition may name a secret: in what goes out with a request, by a name that is written out, and only to be put
//! into a text. So its value is never computed with, compared, kept in a run or published.

use model::Code;

use super::Checker;
use super::scope::Scope;
use crate::declare::finding::fault;
use crate::declare::walk::children;
use crate::expr::ast::{Kind, Literal, Node, Op};
use crate::expr::either_case;

/// The first letter in either case, as of all that is called.
fn is(name: &str, known: &str) -> bool {
    either_case(name, |name| name == known).is_some()
}

impl Checker<'_> {
    /// `plain`: whatever stands here becomes part of the request as it is.
    pub(super) fn secrets(&mut self, node: &Node, scope: &Scope, plain: bool) {
        match &node.kind {
            Kind::Call { receiver: None, name, args, .. } if is(name, "secret") => {
                self.secret(node, args, scope, plain);
            }
            Kind::Call { receiver: None, name, .. } if is(name, "systemSecret") => {
                let what = "there are no secrets of the system";
                let found = fault(Code::DefinitionSecret, node.span, what);
                self.error(found.hint("set one of the tenant, and write secret(\"name\")"));
            }
            Kind::Call { receiver: None, name, args, .. } if is(name, "concat") => {
                args.iter().for_each(|arg| self.secrets(arg, scope, plain));
            }
            Kind::List(items) => items.iter().for_each(|item| self.secrets(item, scope, plain)),
            Kind::Map(pairs) => pairs.iter().for_each(|(key, value)| {
                self.secrets(key, scope, false);
                self.secrets(value, scope, plain);
            }),
            Kind::Binary { op: Op::Add, left, right } => {
                [left, right].into_iter().for_each(|side| self.secrets(side, scope, plain));
            }
            Kind::Choose { test, yes, no } => {
                self.secrets(test, scope, false);
                [yes, no].into_iter().for_each(|side| self.secrets(side, scope, plain));
            }
            _ => {
                let mut below = Vec::new();
                children(node, &mut |child| below.push(child));
                below.into_iter().for_each(|child| self.secrets(child, scope, false));
            }
        }
    }

    fn secret(&mut self, node: &Node, args: &[Node], scope: &Scope, plain: bool) {
        let (what, hint) = match args {
            _ if !scope.secrets => (
                "a secret is named where its value would be kept".to_owned(),
                "only the url, headers and body of \"http\" and the input of \"task\" may name one",
            ),
            [Node { kind: Kind::Literal(Literal::Text(name)), .. }]
                if !model::definition::is_secret_name(name) =>
            {
                let what = format!("{:?} is no name for a secret", &**name);
                (what, "use up to 64 letters, digits, \"_\", \"-\" and \".\"")
            }
            [Node { kind: Kind::Literal(Literal::Text(_)), .. }] if plain => return,
            [Node { kind: Kind::Literal(Literal::Text(_)), .. }] => (
                "a secret is computed with".to_owned(),
                "a secret can be a value, or be put into a text; keep it in the form in which it is sent",
            ),
            _ => (
                "the name of a secret is written out, as one text in quotes".to_owned(),
                "write secret(\"name\"), so that it is known beforehand which are used",
            ),
        };
        self.error(fault(Code::DefinitionSecret, node.span, what).hint(hint));
    }
}
