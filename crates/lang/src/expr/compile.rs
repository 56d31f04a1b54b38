//! The tree into a program: every name is found now or refused now, so that evaluation meets no unknown one.

use model::Code;
use regex::{Regex, RegexBuilder};

use super::ast::{self, Literal};
use super::fault::{Fault, Span, nearest};
use super::program::{Base, Function, Kind, Loop, Macro, Node, Step};
use super::{Read, Scope};

pub(super) struct Compiler<'s> {
    scope: &'s Scope<'s>,
    /// Variables of the macros around, innermost last.
    locals: Vec<String>,
    pub(super) reads: Vec<Read>,
}

impl<'s> Compiler<'s> {
    pub(super) fn new(scope: &'s Scope<'s>) -> Compiler<'s> {
        Compiler { scope, locals: Vec::new(), reads: Vec::new() }
    }

    pub(super) fn node(&mut self, node: ast::Node) -> Result<Node, Fault> {
        let node = self.part(node)?;
        self.note(&node);
        Ok(node)
    }

    /// As [`Compiler::node`], but a path may still grow and is not noted as read.
    fn part(&mut self, node: ast::Node) -> Result<Node, Fault> {
        let span = node.span;
        let kind = match node.kind {
            ast::Kind::Literal(literal) => Kind::Literal(literal),
            ast::Kind::Name(name) => self.name(&name, span)?,
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
                Kind::Binary(op, (self.node(*left)?, self.node(*right)?).into())
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

    fn nodes(&mut self, nodes: Vec<ast::Node>) -> Result<Box<[Node]>, Fault> {
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
        let missing = Node { kind: Kind::Binary(ast::Op::Equal, (given, null).into()), span };
        Ok(Kind::Choose((missing, absent, body).into()))
    }

    fn name(&mut self, name: &str, span: Span) -> Result<Kind, Fault> {
        if let Some(local) = self.locals.iter().rposition(|local| local == name) {
            return Ok(Kind::Path { base: Base::Local(local), steps: [].into() });
        }
        if let Some(root) = self.scope.roots.iter().position(|root| *root == name) {
            return Ok(Kind::Path { base: Base::Root(root), steps: [].into() });
        }
        if self.scope.shorthands.contains(&name) {
            return Ok(Kind::Path { base: Base::Root(0), steps: [Step::Key(name.into())].into() });
        }
        let fault = Fault::new(Code::ExprUnknownName, span, format!("unknown name {name:?}"));
        let known = self.scope.roots.iter().chain(self.scope.shorthands).copied();
        Err(match nearest(name, known.clone().chain(self.locals.iter().map(String::as_str))) {
            Some(near) => fault.hint(format!("did you mean {near:?}?")),
            None => fault.hint(format!("names here: {}", known.collect::<Vec<_>>().join(", "))),
        })
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

    /// A path that goes no further is read as far as it goes.
    fn note(&mut self, node: &Node) {
        if let Kind::Path { base: Base::Root(root), steps } = &node.kind {
            let field = match steps.first() {
                Some(Step::Key(key)) => Some(key.to_string()),
                _ => None,
            };
            self.reads.push(Read { root: *root, field });
        }
    }

    fn call(&mut self, call: Call, span: Span) -> Result<Kind, Fault> {
        if call.receiver.is_none() && call.name == "has" {
            return self.has(call, span);
        }
        if let (Some(_), Some(name)) = (&call.receiver, Macro::NAMES.iter().find(|m| m.0 == call.name)) {
            return self.looped(call, name.1);
        }
        let Some(&(_, function, count, method, plain)) = Function::NAMES.iter().find(|f| f.0 == call.name)
        else {
            return Err(unknown_function(&call));
        };
        let fits = if call.receiver.is_some() { method } else { plain };
        if !fits {
            let how =
                if method { format!("text.{}(…)", call.name) } else { format!("{}(value)", call.name) };
            return Err(Fault::new(
                Code::ExprSyntax,
                call.span,
                format!("{:?} is called otherwise", call.name),
            )
            .hint(format!("write {how}")));
        }
        let args: Vec<ast::Node> = call.receiver.into_iter().chain(call.args).collect();
        if args.len() != count {
            let what = format!("{:?} takes {count} values, not {}", call.name, args.len());
            return Err(Fault::new(Code::ExprSyntax, span, what));
        }
        let args = self.nodes(args)?;
        if function == Function::Matches
            && let Kind::Literal(Literal::Text(pattern)) = &args[1].kind
        {
            let regex =
                build_regex(pattern).map_err(|what| Fault::new(Code::ExprSyntax, args[1].span, what))?;
            return Ok(Kind::Matches(args[0].clone().into(), regex));
        }
        Ok(Kind::Call(function, args))
    }

    fn has(&mut self, mut call: Call, span: Span) -> Result<Kind, Fault> {
        let wrong = || {
            Fault::new(Code::ExprSyntax, span, "\"has\" takes one field")
                .hint("write has(event.payload.price)")
        };
        let (Some(arg), true) = (call.args.pop(), call.args.is_empty()) else { return Err(wrong()) };
        let (of, name) = match arg.kind {
            ast::Kind::Member { of, name } => (of, name.into_boxed_str()),
            ast::Kind::Index { of, at } => match at.kind {
                ast::Kind::Literal(Literal::Text(name)) => (of, name),
                _ => return Err(wrong()),
            },
            // A shorthand such as `payload` is itself a field.
            ast::Kind::Name(name) if self.scope.shorthands.contains(&name.as_str()) => {
                let of = ast::Kind::Name(self.scope.roots[0].to_owned());
                let of = ast::Node { kind: of, span: arg.span, height: 1 };
                self.reads.push(Read { root: 0, field: Some(name.clone()) });
                return Ok(Kind::Has(self.part(of)?.into(), name.into()));
            }
            _ => return Err(wrong()),
        };
        let of = self.part(*of)?;
        match &of.kind {
            Kind::Path { base: Base::Root(root), steps } if steps.is_empty() => {
                self.reads.push(Read { root: *root, field: Some(name.to_string()) });
            }
            _ => self.note(&of),
        }
        Ok(Kind::Has(of.into(), name))
    }

    fn looped(&mut self, call: Call, kind: Macro) -> Result<Kind, Fault> {
        let wrong = || {
            let what = format!("{:?} takes a name and a test", call.name);
            let hint = format!("write list.{}(item, item.price > 9)", call.name);
            Fault::new(Code::ExprSyntax, call.span, what).hint(hint)
        };
        let fits = call.args.len() == 2 || (call.args.len() == 3 && kind == Macro::Map);
        let Some(ast::Kind::Name(name)) = call.args.first().map(|a| &a.kind).filter(|_| fits) else {
            return Err(wrong());
        };
        let name = name.clone();
        let over = call.receiver.expect("a macro is only looked for after a receiver");
        let over = self.node(over)?;
        self.locals.push(name);
        let mut args =
            call.args.into_iter().skip(1).map(|arg| self.node(arg)).collect::<Result<Vec<_>, _>>()?;
        self.locals.pop();
        let body = args.pop().expect("two or three arguments were counted");
        Ok(Kind::Macro(kind, Loop { over, test: args.pop(), body }.into()))
    }
}

struct Call {
    receiver: Option<ast::Node>,
    name: String,
    span: Span,
    args: Vec<ast::Node>,
}

fn unknown_function(call: &Call) -> Fault {
    let fault = Fault::new(Code::ExprUnknownName, call.span, format!("unknown function {:?}", call.name));
    let macros = Macro::NAMES.iter().map(|m| m.0).chain(["has"]);
    match nearest(&call.name, Function::NAMES.iter().map(|f| f.0).chain(macros)) {
        Some(near) => fault.hint(format!("did you mean {near:?}?")),
        None => fault,
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
