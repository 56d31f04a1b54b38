//! The tree into a program: calls of functions, methods and macros.

use model::Code;

use super::Read;
use super::ast::{self, Literal};
use super::builtins::{EFFECTS, FORMS, FUNCTIONS, Function, How, Macro, READERS, Text, either_case};
use super::compile::{Compiler, build_regex};
use super::fault::{Fault, Span};
use super::nearest;
use super::program::{Base, Kind, Loop, Node, Step};

pub(super) struct Call {
    pub(super) receiver: Option<ast::Node>,
    pub(super) name: String,
    pub(super) span: Span,
    pub(super) args: Vec<ast::Node>,
}

impl Compiler<'_> {
    pub(super) fn call(&mut self, mut call: Call, span: Span) -> Result<Kind, Fault> {
        self.join_namespace(&mut call);
        let plain = call.receiver.is_none();
        if let Some(name) = either_case(&call.name, |name| FORMS.contains(&name)).filter(|_| plain) {
            call.name = name;
        }
        match call.name.as_str() {
            "has" if plain => return self.has(call, span),
            "cond" if plain => return self.cond(call, span),
            "cel.bind" if plain => return self.bind(call, span),
            name if plain && either_case(name, |name| EFFECTS.contains(&name)).is_some() => {
                return Err(effect(&call));
            }
            _ => {}
        }
        if !plain && let Some((kind, rows)) = self.macro_of(&call) {
            return self.looped(call, kind, rows);
        }
        if plain && let Some(kind) = self.reader(&call)? {
            return Ok(kind);
        }
        self.function(call, span)
    }

    /// `math.abs(x)` is one name, unless `math` is a name in scope.
    fn join_namespace(&self, call: &mut Call) {
        let Some(ast::Kind::Name(space)) = call.receiver.as_ref().map(|r| &r.kind) else { return };
        let joined = format!("{space}.{}", call.name);
        let known = |name: &str| FUNCTIONS.iter().any(|f| f.0 == name) || FORMS.contains(&name);
        if let Some(joined) = either_case(&joined, known).filter(|_| !self.in_scope(space)) {
            (call.name, call.receiver) = (joined, None);
        }
    }

    fn function(&mut self, call: Call, span: Span) -> Result<Kind, Fault> {
        let fits = |how: How| how == How::Either || (how == How::Method) == call.receiver.is_some();
        let Some(name) = either_case(&call.name, |name| FUNCTIONS.iter().any(|f| f.0 == name)) else {
            let unknown = self.later(unknown_function(&call))?;
            // What is passed to it may be wrong as well, and is said at once; to a method, names may be new ones.
            let passed = match call.receiver {
                Some(receiver) => vec![receiver],
                None => call.args,
            };
            let passed = self.nodes(passed);
            self.unknown.extend(passed.err());
            return Ok(unknown);
        };
        let Some(&(_, function, least, most, _)) = FUNCTIONS.iter().find(|f| f.0 == name && fits(f.4)) else {
            let method = call.receiver.is_none();
            let how = if method { format!("value.{name}(…)") } else { format!("{name}(value)") };
            let what = format!("{:?} is called otherwise", call.name);
            return Err(Fault::new(Code::ExprSyntax, call.span, what).hint(format!("write {how}")));
        };
        let mut args: Vec<ast::Node> = call.receiver.into_iter().chain(call.args).collect();
        if !(least..=most).contains(&args.len()) {
            return Err(arity(&call.name, (&name, least, most), args.len(), span));
        }
        if function == Function::CanonicalId {
            self.concept(&mut args[1]);
        }
        let args = self.nodes(args)?;
        if function == Function::Text(Text::Matches)
            && let Kind::Literal(Literal::Text(pattern)) = &args[1].kind
        {
            let regex =
                build_regex(pattern).map_err(|what| Fault::new(Code::ExprSyntax, args[1].span, what))?;
            return Ok(Kind::Matches(args[0].clone().into(), regex));
        }
        Ok(Kind::Call(function, args))
    }

    /// A concept's bare name stands for its id.
    fn concept(&self, node: &mut ast::Node) {
        if let ast::Kind::Name(name) = &node.kind
            && !self.in_scope(name)
            && let Some((_, id)) = self.scope.concepts.iter().find(|(known, _)| known == name)
        {
            node.kind = ast::Kind::Literal(Literal::Text((*id).into()));
        }
    }

    /// `var("X")` for `vars["X"]`, `now()` for `now`.
    fn reader(&mut self, call: &Call) -> Result<Option<Kind>, Fault> {
        let called = either_case(&call.name, |name| READERS.iter().any(|reader| reader.0 == name));
        let Some(called) = called else { return Ok(None) };
        let fits = |(name, _, count): &&(&str, &str, usize)| *name == called && *count == call.args.len();
        let Some((name, root, _)) = READERS.iter().find(fits) else { return Ok(None) };
        let Some(base) = self.root(root) else {
            let what = format!("\"{name}\" reads {root:?}, which is not in scope here");
            return self.later(Fault::new(Code::ExprUnknownName, call.span, what)).map(Some);
        };
        let base = Base::Root(base);
        match call.args.first() {
            None => Ok(Some(Kind::Path { base, steps: [].into() })),
            Some(arg) => match &arg.kind {
                ast::Kind::Literal(Literal::Text(key)) => {
                    Ok(Some(Kind::Path { base, steps: [Step::Key(key.clone())].into() }))
                }
                _ => {
                    let what = format!("\"{name}\" takes a name in quotes");
                    let hint = "names are written out, so that it can be known beforehand what is read";
                    Err(Fault::new(Code::ExprSyntax, arg.span, what).hint(hint))
                }
            },
        }
    }

    fn cond(&mut self, call: Call, span: Span) -> Result<Kind, Fault> {
        if call.args.len() != 3 {
            let fault = arity("cond", ("cond", 3, 3), call.args.len(), span);
            return Err(fault.hint("write cond(test, value_if_so, value_if_not)"));
        }
        let mut args = call.args.into_iter();
        let mut next = || self.node(args.next().expect("three arguments were counted"));
        Ok(Kind::Choose((next()?, next()?, next()?).into()))
    }

    fn bind(&mut self, call: Call, span: Span) -> Result<Kind, Fault> {
        let wrong = || {
            Fault::new(Code::ExprSyntax, span, "\"cel.bind\" takes a name, a value and what uses it")
                .hint("write cel.bind(n, size(event.payload.tags), n > 1 && n < 9)")
        };
        let [name, value, body] = <[ast::Node; 3]>::try_from(call.args).map_err(|_| wrong())?;
        let ast::Kind::Name(name) = name.kind else { return Err(wrong()) };
        let value = self.node(value)?;
        self.locals.push(name);
        let body = self.node(body);
        self.locals.pop();
        Ok(Kind::Bind((value, body?).into()))
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
                let of = ast::Node { kind: ast::Kind::Name("event".to_owned()), span: arg.span, height: 1 };
                let of = self.part(of)?;
                self.note_field(&of, &name);
                return Ok(Kind::Has(of.into(), name.into()));
            }
            _ => return Err(wrong()),
        };
        let of = self.part(*of)?;
        self.note_field(&of, &name);
        Ok(Kind::Has(of.into(), name))
    }

    fn note_field(&mut self, of: &Node, name: &str) {
        match &of.kind {
            Kind::Path { base: Base::Root(root), steps } if steps.is_empty() => {
                self.reads.push(Read { root: *root, field: Some(name.to_owned()) });
            }
            _ => self.note(of),
        }
    }

    /// The macro that a method call means: with a lambda, or as in CEL with a name and a test.
    /// With a lambda it is the collection library's, also where CEL has a macro of that name.
    fn macro_of(&self, call: &Call) -> Option<(Macro, bool)> {
        let name = either_case(&call.name, |name| Macro::NAMES.iter().any(|m| m.0 == name))?;
        let (_, kind, rows) = Macro::NAMES.iter().find(|m| m.0 == name)?;
        let lambda = call.args.iter().any(|arg| matches!(arg.kind, ast::Kind::Lambda { .. }));
        let also_function = FUNCTIONS.iter().any(|f| f.0 == name && f.4 != How::Plain);
        (lambda || call.args.len() > 1 || !also_function).then_some((*kind, *rows || lambda))
    }

    fn looped(&mut self, call: Call, kind: Macro, rows: bool) -> Result<Kind, Fault> {
        let wrong = || {
            let what = format!("{:?} takes a name and a test", call.name);
            let hint = match kind {
                Macro::Reduce => "write list.reduce(0, (sum, item) => sum + item.price)".to_owned(),
                _ => format!("write list.{}(item => item.price > 9)", call.name),
            };
            Fault::new(Code::ExprSyntax, call.span, what).hint(hint)
        };
        let (first, params, mut bodies) = head(call.args, kind).ok_or_else(wrong)?;
        let over = self.node(call.receiver.expect("a macro is only looked for after a receiver"))?;
        let first = first.map(|first| self.node(first)).transpose()?;
        let pairs = params.len() == 2;
        let depth = self.locals.len();
        self.locals.extend(params);
        let made = bodies.drain(..).map(|body| self.node(body)).collect::<Result<Vec<_>, _>>();
        self.locals.truncate(depth);
        let mut made = made?;
        let body = made.pop().expect("there is a body");
        Ok(Kind::Macro(kind, Loop { over, pairs, rows, test: made.pop(), body, first }.into()))
    }
}

/// What stands in the brackets of a macro: where `reduce` begins, the variables, a test perhaps, the body.
pub(super) type Head = (Option<ast::Node>, Vec<String>, Vec<ast::Node>);

pub(super) fn head(args: Vec<ast::Node>, kind: Macro) -> Option<Head> {
    let (lambdas, others): (Vec<_>, Vec<_>) =
        args.into_iter().partition(|arg| matches!(arg.kind, ast::Kind::Lambda { .. }));
    if !lambdas.is_empty() {
        return lambda_head(lambdas, others, kind);
    }
    let variable = |node: &ast::Node| matches!(node.kind, ast::Kind::Name(_));
    let filtered = matches!(kind, Macro::Map | Macro::TransformList | Macro::TransformMap);
    let paired = matches!(kind, Macro::TransformList | Macro::TransformMap);
    let names = match others.len() {
        2 if !paired => 1,
        3 if kind == Macro::Map => 1,
        3 => 2,
        4 if filtered && kind != Macro::Map => 2,
        _ => return None,
    };
    if kind == Macro::Reduce || !others[..names].iter().all(variable) {
        return None;
    }
    let mut others = others;
    let bodies = others.split_off(names);
    let name = |node| match node {
        ast::Node { kind: ast::Kind::Name(name), .. } => name,
        _ => String::new(),
    };
    Some((None, others.into_iter().map(name).collect(), bodies))
}

fn lambda_head(lambdas: Vec<ast::Node>, mut others: Vec<ast::Node>, kind: Macro) -> Option<Head> {
    let [lambda] = <[ast::Node; 1]>::try_from(lambdas).ok()?;
    let ast::Kind::Lambda { params, body } = lambda.kind else { return None };
    let first = others.pop();
    let reduce = kind == Macro::Reduce;
    let fits =
        if reduce { params.len() == 2 && first.is_some() } else { params.len() <= 2 && first.is_none() };
    let names = params.into_iter().map(|param| param.name).collect();
    (fits && others.is_empty()).then(|| (first, names, vec![*body]))
}

/// A wrong number of values; some names also read a root when called with none.
fn arity(written: &str, (name, least, most): (&str, usize, usize), given: usize, span: Span) -> Fault {
    let none = READERS.iter().any(|(reader, _, count)| *reader == name && *count == 0);
    let count = match (none, least == most) {
        (true, true) => format!("none or {least}"),
        (false, true) => least.to_string(),
        (_, false) => format!("{least} or more"),
    };
    let values = if most == 1 { "value" } else { "values" };
    Fault::new(Code::ExprSyntax, span, format!("{written:?} takes {count} {values}, not {given}"))
}

fn effect(call: &Call) -> Fault {
    let what = format!("{:?} changes something outside, so it is no part of an expression", call.name);
    let hint = match call.name.to_ascii_lowercase().as_str() {
        "si" => "ask with a step: answer := agent { prompt: \"…\" }".to_owned(),
        _ => format!("give it a step of its own: sent := {}({{ topic: \"…\" }})", call.name),
    };
    Fault::new(Code::ExprSyntax, call.span, what).hint(hint)
}

fn unknown_function(call: &Call) -> Fault {
    let fault = Fault::new(Code::ExprUnknownName, call.span, format!("unknown function {:?}", call.name));
    let method = call.receiver.is_some();
    let fits = |how: How| how == How::Either || (how == How::Method) == method;
    let functions = FUNCTIONS.iter().filter(|f| fits(f.4)).map(|f| f.0);
    let macros = Macro::NAMES.iter().filter(|_| method).map(|m| m.0);
    let plain = FORMS.into_iter().chain(READERS.iter().map(|r| r.0)).filter(|_| !method);
    let likely = nearest(&call.name, functions.chain(macros).chain(plain));
    // A method may be called as a function, and then that is what is wrong.
    match likely.or_else(|| nearest(&call.name, FUNCTIONS.iter().map(|f| f.0))) {
        Some(near) => fault.hint(format!("did you mean {near:?}?")),
        None => fault,
    }
}
