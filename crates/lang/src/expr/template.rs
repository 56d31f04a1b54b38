//! Template strings: `"… {{ expr | filter }} …"`, compiled once. A text that is one whole `{{ expr }}` keeps
//! the type of its value; otherwise values are written into the text.

use model::{Code, Problem};
use serde_json::{Map, Value};

use super::compile::Compiler;
use super::cursor::Parser;
use super::eval::{Eval, STEPS_MAX};
use super::fault::{Fault, Span};
use super::parser::SOURCE_MAX;
use super::pipe::Pipe;
use super::program::Node;
use super::refs::Refs;
use super::value::Val;
use super::{Scope, ast, pipe};

/// Longest text that a template makes.
const MADE_MAX: usize = 1 << 20;

#[derive(Clone, Debug)]
pub struct Template {
    source: String,
    parts: Vec<Part>,
    refs: Refs,
}

#[derive(Clone, Debug)]
enum Part {
    Text(String),
    Hole(Hole),
}

#[derive(Clone, Debug)]
struct Hole {
    /// Where its text begins in the template.
    start: u32,
    source: String,
    value: Node,
    pipes: Vec<Pipe>,
}

impl Template {
    /// Whether a text has anything to fill in.
    pub fn is_one(text: &str) -> bool {
        text.contains("{{")
    }

    /// Fails as [`super::Expr::compile`] does; the place is counted in the whole text.
    pub fn compile(source: &str, scope: &Scope<'_>) -> Result<Template, Problem> {
        let mut template = Template { source: source.to_owned(), parts: Vec::new(), refs: Refs::default() };
        template.read(scope).map_err(|fault| fault.problem(source))?;
        Ok(template)
    }

    fn read(&mut self, scope: &Scope<'_>) -> Result<(), Fault> {
        let source = self.source.clone();
        if source.len() > SOURCE_MAX {
            let what = format!("the template is longer than {SOURCE_MAX} bytes");
            return Err(Fault::new(Code::ExprLimit, Span::default(), what));
        }
        let mut at = 0;
        while let Some(open) = source[at..].find("{{").map(|open| at + open) {
            if open > at {
                self.parts.push(Part::Text(source[at..open].to_owned()));
            }
            let start = open + 2;
            let len = hole_len(&source[start..]).ok_or_else(|| {
                let span = Span::new(open, start);
                Fault::new(Code::ExprSyntax, span, "\"{{\" has no end").hint("close it with \"}}\"")
            })?;
            let inside = &source[start..start + len];
            self.hole(inside, start as u32, scope).map_err(|fault| fault.shifted(start as u32))?;
            at = start + len + 2;
        }
        if at < source.len() {
            self.parts.push(Part::Text(source[at..].to_owned()));
        }
        Ok(())
    }

    fn hole(&mut self, inside: &str, start: u32, scope: &Scope<'_>) -> Result<(), Fault> {
        let mut parser = Parser::new(inside);
        if let Some(fault) = parser.faults.drain(..).next() {
            return Err(fault);
        }
        parser.brackets = 1;
        let tree = parser.nested()?;
        self.refs.join(Refs::of_tree(&tree));
        let mut compiler = Compiler::new(scope);
        let value = compiler.node(tree)?;
        let mut pipes = Vec::new();
        while parser.accept("|") {
            pipes.push(pipe::read(&mut parser, &mut compiler, &mut self.refs)?);
        }
        if !parser.at_end() {
            return Err(parser.unexpected("\"|\" or \"}}\""));
        }
        self.parts.push(Part::Hole(Hole { start, source: inside.to_owned(), value, pipes }));
        Ok(())
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    pub fn refs(&self) -> &Refs {
        &self.refs
    }

    /// The text, or the value when the template is one whole `{{ expr }}`.
    pub fn eval<'a>(&'a self, roots: &[Val<'a>]) -> Result<Val<'a>, Problem> {
        let mut steps_left = STEPS_MAX;
        if let [Part::Hole(hole)] = &self.parts[..] {
            return self.fill(hole, roots, &mut steps_left);
        }
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out += text,
                Part::Hole(hole) => {
                    let value = self.fill(hole, roots, &mut steps_left)?;
                    let mut left = MADE_MAX.saturating_sub(out.len());
                    let shown = value.shown(&mut left).ok_or_else(|| self.too_long(hole))?;
                    out += &shown;
                }
            }
        }
        Ok(Val::text(out))
    }

    fn fill<'a>(&'a self, hole: &'a Hole, roots: &[Val<'a>], steps: &mut u32) -> Result<Val<'a>, Problem> {
        let mut eval = Eval::going_on(&hole.source, roots, *steps);
        let mut value = eval.node(&hole.value);
        for pipe in &hole.pipes {
            value = value.and_then(|value| pipe.apply(&mut eval, value));
        }
        *steps = eval.steps_left;
        value.map_err(|fault| fault.shifted(hole.start).problem(&self.source))
    }

    fn too_long(&self, hole: &Hole) -> Problem {
        let span = hole.value.span;
        let fault = Fault::new(Code::ExprLimit, span, "the text becomes longer than 1 MiB");
        fault.shifted(hole.start).problem(&self.source)
    }
}

/// The trees of what stands between `{{` and `}}`: the value, then what its filters are given; and whether it has filters. A
/// filter that is not known or is given too much is refused.
pub(crate) fn parse_hole(inside: &str) -> Result<(Vec<ast::Node>, bool), Fault> {
    let mut parser = Parser::new(inside);
    if let Some(fault) = parser.faults.drain(..).next() {
        return Err(fault);
    }
    parser.brackets = 1;
    let (mut trees, mut piped) = (vec![parser.nested()?], false);
    while parser.accept("|") {
        piped = true;
        trees.extend(pipe::parse(&mut parser)?.args);
    }
    if !parser.at_end() {
        return Err(parser.unexpected("\"|\" or \"}}\""));
    }
    Ok((trees, piped))
}

/// Bytes up to the `}}` that ends a hole; braces and strings inside it are stepped over.
pub(crate) fn hole_len(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0usize);
    let mut quote = None;
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(mark), byte) if byte == mark => quote = None,
            (Some(_), _) => {}
            (None, byte @ (b'"' | b'\'')) => quote = Some(byte),
            (None, b'{') => depth += 1,
            (None, b'}') if depth > 0 => depth -= 1,
            (None, b'}') if bytes.get(at + 1) == Some(&b'}') => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}

/// A JSON value whose texts are templates, such as the payload of a publish step.
#[derive(Clone, Debug)]
pub enum TemplateTree {
    Fixed(Value),
    Text(Box<Template>),
    List(Vec<TemplateTree>),
    Map(Vec<(String, TemplateTree)>),
}

impl TemplateTree {
    /// `pointer` of a problem says which text is wrong.
    pub fn compile(value: &Value, scope: &Scope<'_>) -> Result<TemplateTree, Problem> {
        Ok(match value {
            Value::String(text) if Template::is_one(text) => {
                TemplateTree::Text(Template::compile(text, scope)?.into())
            }
            Value::Array(items) => {
                let item = |(n, item): (usize, &Value)| {
                    TemplateTree::compile(item, scope).map_err(|problem| problem.within(&format!("/{n}")))
                };
                TemplateTree::List(items.iter().enumerate().map(item).collect::<Result<_, _>>()?)
            }
            Value::Object(map) => {
                let entry = |(key, item): (&String, &Value)| {
                    let place = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
                    let item =
                        TemplateTree::compile(item, scope).map_err(|problem| problem.within(&place))?;
                    Ok((key.clone(), item))
                };
                TemplateTree::Map(map.iter().map(entry).collect::<Result<_, Problem>>()?)
            }
            other => TemplateTree::Fixed(other.clone()),
        })
    }

    pub fn eval<'a>(&'a self, roots: &[Val<'a>]) -> Result<Value, Problem> {
        Ok(match self {
            TemplateTree::Fixed(value) => value.clone(),
            TemplateTree::Text(template) => template.eval(roots)?.to_json()?,
            TemplateTree::List(items) => {
                Value::Array(items.iter().map(|item| item.eval(roots)).collect::<Result<_, _>>()?)
            }
            TemplateTree::Map(pairs) => {
                let pairs = pairs.iter().map(|(key, item)| Ok((key.clone(), item.eval(roots)?)));
                Value::Object(pairs.collect::<Result<Map<_, _>, Problem>>()?)
            }
        })
    }

    pub fn refs(&self) -> Refs {
        let mut refs = Refs::default();
        match self {
            TemplateTree::Fixed(_) => {}
            TemplateTree::Text(template) => refs.join(template.refs().clone()),
            TemplateTree::List(items) => items.iter().for_each(|item| refs.join(item.refs())),
            TemplateTree::Map(pairs) => pairs.iter().for_each(|(_, item)| refs.join(item.refs())),
        }
        refs
    }
}
