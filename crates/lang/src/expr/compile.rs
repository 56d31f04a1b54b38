//! The tree into a program: every name is found now or refused now, so that evaluation meets no unknown one.

use model::Code;
use regex::{Regex, RegexBuilder};

use super::ast::{self, Literal, Op};
use super::builtins::{Function, TYPES, To};
use super::calls::Call;
use super::fault::{Fault, Span};
use super::nearest;
use super::program::{Base, Kind, Node, Step};
use super::{Read, Scope};

/// What a part of an expression is known to give.
#[derive(Clone, Copy)]
enum Time {
    Instant,
    Length,
}

pub(super) struct Compiler<'s> {
    pub(super) scope: &'s Scope<'s>,
    /// Variables of the macros around, innermost last.
    pub(super) locals: Vec<String>,
    pub(super) reads: Vec<Read>,
    /// What was put off until it is needed.
    pub(super) unknown: Vec<Fault>,
}

impl<'s> Compiler<'s> {
    pub(super) fn new(scope: &'s Scope<'s>) -> Compiler<'s> {
        Compiler { scope, locals: Vec::new(), reads: Vec::new(), unknown: Vec::new() }
    }

    pub(super) fn node(&mut self, node: ast::Node) -> Result<Node, Fault> {
        let node = self.part(node)?;
        self.note(&node);
        Ok(node)
    }

    /// As [`Compiler::node`], but a path may still grow and is not noted as read.
    pub(super) fn part(&mut self, node: ast::Node) -> Result<Node, Fault> {
        let span = node.span;
        if let Some(kind) = self.qualified(&node) {
            return Ok(Node { kind, span });
        }
        let kind = match node.kind {
            ast::Kind::Literal(literal) => Kind::Literal(literal),
            ast::Kind::Name(name) => self.name(&name, span)?,
            ast::Kind::Member { of, name } if name == "userId" && self.is_actor(&of) => {
                Kind::UserId(self.node(*of)?.into())
            }
            ast::Kind::Member { of, name } => {
                let of = self.part(*of)?;
                self.step(of, Step::Key(name.into()), |of, step| match step {
                    Step::Key(name) => Kind::Member(of, name),
                    Step::Index(_) => unreachable!("a member step is a key"),
                })
            }
            ast::Kind::Index { of, at } => self.index(*of, *at)?,
            ast::Kind::Call { receiver, name, name_span, args } => {
                let call = Call { receiver: receiver.map(|r| *r), name, span: name_span, args };
                self.call(call, span)?
            }
            ast::Kind::List(items) => Kind::List(self.nodes(items)?),
            ast::Kind::Map(pairs) => {
                let pairs = pairs.into_iter().map(|(key, value)| Ok((self.node(key)?, self.node(value)?)));
                Kind::Map(pairs.collect::<Result<_, Fault>>()?)
            }
            ast::Kind::Not(of) => Kind::Not(self.node(*of)?.into()),
            ast::Kind::Negate(of) => Kind::Negate(self.node(*of)?.into()),
            ast::Kind::All(items) => Kind::All(self.operands(items, true)?),
            ast::Kind::Any(items) => Kind::Any(self.operands(items, false)?),
            ast::Kind::Binary { op, left, right } => {
                let (left, right) = (self.node(*left)?, self.node(*right)?);
                match op {
                    Op::Equal
                    | Op::Unequal
                    | Op::Less
                    | Op::LessEqual
                    | Op::Greater
                    | Op::GreaterEqual
                    | Op::In
                    | Op::NotIn => Kind::Binary(op, (self.declared(left), self.declared(right)).into()),
                    Op::Add | Op::Subtract => self.reckoned(op, left, right),
                    _ => Kind::Binary(op, (left, right).into()),
                }
            }
            ast::Kind::Choose { test, yes, no } => {
                Kind::Choose((self.node(*test)?, self.node(*yes)?, self.node(*no)?).into())
            }
            ast::Kind::When { given, body } => self.when(*given, *body, true)?,
            ast::Kind::Lambda { params: _, body: _ } => {
                let fault = Fault::new(Code::ExprSyntax, span, "a lambda stands here");
                return Err(fault.hint("lambdas go into methods: list.where(x => x.price > 9)"));
            }
        };
        Ok(Node { kind, span })
    }

    pub(super) fn nodes(&mut self, nodes: Vec<ast::Node>) -> Result<Box<[Node]>, Fault> {
        nodes.into_iter().map(|node| self.node(node)).collect()
    }

    /// Operands of `&&` and `||`: a `when` that was not given is as if it were not written.
    fn operands(&mut self, nodes: Vec<ast::Node>, neutral: bool) -> Result<Box<[Node]>, Fault> {
        let mut operand = |node: ast::Node| match node.kind {
            ast::Kind::When { given, body } => {
                Ok(Node { kind: self.when(*given, *body, neutral)?, span: node.span })
            }
            _ => self.node(node),
        };
        nodes.into_iter().map(&mut operand).collect()
    }

    fn when(&mut self, given: ast::Node, body: ast::Node, absent: bool) -> Result<Kind, Fault> {
        let (given, body) = (self.node(given)?, self.node(body)?);
        let literal = |literal| Node { kind: Kind::Literal(literal), span: given.span };
        let (null, absent) = (literal(Literal::Null), literal(Literal::Bool(absent)));
        let span = given.span;
        let missing = Node { kind: Kind::Binary(Op::Equal, (given, null).into()), span };
        Ok(Kind::Choose((missing, absent, body).into()))
    }

    fn name(&mut self, name: &str, span: Span) -> Result<Kind, Fault> {
        if let Some(local) = self.locals.iter().rposition(|local| local == name) {
            return Ok(Kind::Path { base: Base::Local(local), steps: [].into() });
        }
        if let Some(root) = self.root(name) {
            return Ok(Kind::Path { base: Base::Root(root), steps: [].into() });
        }
        let of = if self.scope.rows { "payload" } else { "event" };
        if let Some(root) = self.root(of).filter(|_| self.scope.shorthands.contains(&name)) {
            return Ok(Kind::Path { base: Base::Root(root), steps: [Step::Key(name.into())].into() });
        }
        if name == "nil" {
            return Ok(Kind::Literal(Literal::Null));
        }
        match TYPES.iter().find(|known| **known == name) {
            Some(known) => Ok(Kind::Type(known)),
            None => {
                let unknown = self.unknown_name(name, span);
                self.later(unknown)
            }
        }
    }

    fn unknown_name(&self, name: &str, span: Span) -> Fault {
        let fault = Fault::new(Code::ExprUnknownName, span, format!("unknown name {name:?}"));
        // A shorthand is a field of its root, and is there only when that is.
        let of = if self.scope.rows { "payload" } else { "event" };
        let shorthands = self.root(of).map_or(&[][..], |_| self.scope.shorthands);
        let known = self.scope.roots.iter().chain(shorthands).copied();
        match nearest(name, known.clone().chain(self.locals.iter().map(String::as_str))) {
            Some(near) => fault.hint(format!("did you mean {near:?}?")),
            None if known.clone().next().is_none() => fault.hint("no names are in scope here"),
            None => fault.hint(format!("names here: {}", known.collect::<Vec<_>>().join(", "))),
        }
    }

    /// What is unknown is refused now, or when it is needed if the scope wants it so.
    pub(super) fn later(&mut self, fault: Fault) -> Result<Kind, Fault> {
        if !self.scope.late {
            return Err(fault);
        }
        self.unknown.push(fault.clone());
        Ok(Kind::Unknown(fault.into()))
    }

    pub(super) fn root(&self, name: &str) -> Option<usize> {
        self.scope.roots.iter().position(|root| *root == name)
    }

    pub(super) fn in_scope(&self, name: &str) -> bool {
        self.root(name).is_some() || self.locals.iter().any(|local| local == name)
    }

    /// A name with dots in it, `google.protobuf.Duration` or a root that is called so.
    fn qualified(&self, node: &ast::Node) -> Option<Kind> {
        let dotted = match &node.kind {
            ast::Kind::Member { .. } => dotted(node)?,
            _ => return None,
        };
        let first = dotted.split('.').next().unwrap_or_default();
        if self.locals.iter().any(|local| local == first) {
            return None;
        }
        if let Some(root) = self.root(&dotted) {
            return Some(Kind::Path { base: Base::Root(root), steps: [].into() });
        }
        TYPES.iter().find(|known| **known == dotted).map(|known| Kind::Type(known))
    }

    /// One step further from `of`: a longer path when it is one, else `other`.
    fn step(&mut self, of: Node, step: Step, other: impl FnOnce(Box<Node>, Step) -> Kind) -> Kind {
        match of.kind {
            Kind::Path { base, steps } => {
                let steps = steps.into_iter().chain([step]).collect();
                Kind::Path { base, steps }
            }
            _ => other(of.into(), step),
        }
    }

    fn index(&mut self, of: ast::Node, at: ast::Node) -> Result<Kind, Fault> {
        let of = self.part(of)?;
        let fixed = match &at.kind {
            ast::Kind::Literal(Literal::Text(text)) => Some(Step::Key(text.clone())),
            ast::Kind::Literal(Literal::Int(n)) => u64::try_from(*n).ok().map(Step::Index),
            _ => None,
        };
        match (fixed, &of.kind) {
            (Some(step), Kind::Path { .. }) => Ok(self.step(of, step, |of, _| of.kind)),
            _ => {
                self.note(&of);
                Ok(Kind::Index((of, self.node(at)?).into()))
            }
        }
    }

    /// The root `actor`, which is a text such as `user:ann`.
    fn is_actor(&self, node: &ast::Node) -> bool {
        let local = || self.locals.iter().any(|local| local == "actor");
        matches!(&node.kind, ast::Kind::Name(name) if name == "actor" && !local() && self.root(name).is_some())
    }

    /// What is declared to be an instant or a duration is compared and counted with as one.
    fn declared(&self, node: Node) -> Node {
        if self.scope.instants.is_empty() && self.scope.lengths.is_empty() {
            return node;
        }
        let span = node.span;
        match self.path_time(&node) {
            Some(Time::Instant) => Node { kind: Kind::Instant(node.into()), span },
            Some(Time::Length) => Node { kind: Kind::Length(node.into()), span },
            None => node,
        }
    }

    /// `a + b`, `a - b`: of times when both sides are known to be ones. One side alone says too little: `"due " + payload.due`
    /// is a text.
    fn reckoned(&self, op: Op, left: Node, right: Node) -> Kind {
        let sum = match (self.time_of(&left), self.time_of(&right), op) {
            (Some(Time::Instant), Some(Time::Length), _) => Time::Instant,
            (Some(Time::Length), Some(Time::Instant), Op::Add) => Time::Instant,
            (Some(Time::Instant), Some(Time::Instant), Op::Subtract) => Time::Length,
            (Some(Time::Length), Some(Time::Length), _) => Time::Length,
            _ => return Kind::Binary(op, (left, right).into()),
        };
        let span = left.span.to(right.span);
        let both = (self.declared(left), self.declared(right)).into();
        let whole = Node { kind: Kind::Binary(op, both), span }.into();
        match sum {
            Time::Instant => Kind::Instant(whole),
            Time::Length => Kind::Length(whole),
        }
    }

    /// What is known before it is computed. Only where something is declared: elsewhere an expression is what it was.
    fn time_of(&self, node: &Node) -> Option<Time> {
        if self.scope.instants.is_empty() && self.scope.lengths.is_empty() {
            return None;
        }
        match &node.kind {
            Kind::Instant(_) | Kind::Call(Function::To(To::Timestamp), _) => Some(Time::Instant),
            Kind::Length(_)
            | Kind::Literal(Literal::Duration(_))
            | Kind::Call(Function::To(To::Duration), _) => Some(Time::Length),
            Kind::Path { base: Base::Root(root), steps } if steps.is_empty() => {
                (self.scope.roots[*root] == "now").then_some(Time::Instant).or_else(|| self.path_time(node))
            }
            _ => self.path_time(node),
        }
    }

    fn path_time(&self, node: &Node) -> Option<Time> {
        let path = self.path_of(node)?;
        match () {
            () if self.scope.instants.contains(&path) => Some(Time::Instant),
            () if self.scope.lengths.contains(&path) => Some(Time::Length),
            () => None,
        }
    }

    /// `payload.due`; none for what is no path of names from a root.
    fn path_of(&self, node: &Node) -> Option<String> {
        let Kind::Path { base: Base::Root(root), steps } = &node.kind else { return None };
        let mut path = self.scope.roots[*root].to_owned();
        for step in steps {
            let Step::Key(key) = step else { return None };
            path.push('.');
            path.push_str(key);
        }
        Some(path)
    }

    /// A path that goes no further is read as far as it goes.
    pub(super) fn note(&mut self, node: &Node) {
        if let Kind::Path { base: Base::Root(root), steps } = &node.kind {
            let field = match steps.first() {
                Some(Step::Key(key)) => Some(key.to_string()),
                _ => None,
            };
            self.reads.push(Read { root: *root, field });
        }
    }
}

fn dotted(node: &ast::Node) -> Option<String> {
    match &node.kind {
        ast::Kind::Name(name) => Some(name.clone()),
        ast::Kind::Member { of, name } => Some(dotted(of)? + "." + name),
        _ => None,
    }
}

/// A regular expression of bounded size; the text says what is wrong with it.
pub(crate) fn build_regex(pattern: &str) -> Result<Regex, String> {
    const BYTES_MAX: usize = 1 << 20;
    RegexBuilder::new(pattern).size_limit(BYTES_MAX).dfa_size_limit(BYTES_MAX).nest_limit(50).build().map_err(
        |err| {
            let text = err.to_string();
            let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_lowercase();
            format!("the regular expression {pattern:?} is not valid: {reason}")
        },
    )
}
