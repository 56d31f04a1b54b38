//! Checks expressions inside declarations: every name, every field of a row, every literal beside one.

use model::Code;
use model::definition::{Concept, Expr, Field, Kind, Type};

use super::concept::{INTRINSIC, unknown_field};
use super::scope::Scope;
use super::step::is_publish_event;
use super::{Checker, beside, state};
use crate::declare::finding::{Severity, fault, suggest};
use crate::declare::print::print;
use crate::declare::tree::Word;
use crate::declare::walk::{children, children_mut, path};
use crate::expr::ast::{Kind as NodeKind, Literal, Node};
use crate::expr::{Span, TYPES};

/// CEL's macros: `list.all(x, x > 1)` names its variable first.
const MACROS: [&str; 8] =
    ["all", "exists", "exists_one", "existsOne", "filter", "map", "transformList", "transformMap"];
/// Words before a function's name that are no value: `math.abs(x)`.
const NAMESPACES: [&str; 6] = ["math", "strings", "cel", "base64", "optional", "lists"];

/// What there is below `steps.<id>`.
const STEP: [&str; 5] = ["output", "result", "status", "error", "metadata"];

/// Roots that functions read under other names, such as `secret("x")`.
const BEHIND: [&str; 8] = ["secrets", "system", "system_secrets", "error", "now", "vars", "steps", "input"];

impl Checker<'_> {
    pub(super) fn plain_expr(&mut self, node: &Node, roots: &[&str]) -> Expr {
        self.expr(node, &Scope::of(roots)).0
    }

    /// Over a row: bare fields become `payload.<field>`.
    pub(super) fn row_expr(&mut self, node: &Node, concept: &str, args: &[Field]) -> Expr {
        self.expr(node, &Scope::row(concept, args.to_vec())).0
    }

    /// The normal text, and the steps and loop variables it refers to.
    pub(super) fn expr(&mut self, node: &Node, scope: &Scope) -> (Expr, Vec<String>) {
        let mut node = node.clone();
        let before = self.found.len();
        let mut pass = Pass { scope, locals: Vec::new(), refs: Vec::new() };
        self.resolve(&mut node, &mut pass);
        let refs = pass.refs;
        self.secrets(&node, scope, true);
        if let Some(id) = &scope.row
            && let Some(concept) = self.names.concepts.get(id).cloned()
        {
            self.literals(&node, &concept, &of_row);
        }
        self.compiles(&node, scope, before);
        (Expr(print(&node)), refs)
    }

    fn resolve(&mut self, node: &mut Node, pass: &mut Pass<'_>) {
        if let Some(odd) = beside::ordered_bands(node) {
            self.warn(odd);
        }
        if pass.reads_state() {
            if let Some(steps) = state::steps(node) {
                self.state_path(&steps, node.span);
                return state::indexes(node, &mut |at| self.resolve(at, pass));
            }
            let misfits = beside::misfits(node, &|node| self.state_type(node));
            misfits.into_iter().for_each(|misfit| self.error(misfit));
        }
        if let Some(names) = path(node) {
            let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
            self.resolve_path(node, &names, pass);
            return;
        }
        match &mut node.kind {
            NodeKind::Lambda { params, body } => {
                let depth = pass.locals.len();
                pass.locals.extend(params.iter().map(|param| param.name.clone()));
                self.resolve(body, pass);
                pass.locals.truncate(depth);
            }
            NodeKind::Call { receiver: None, name, name_span, args } => {
                self.function(name, *name_span, args, pass);
                args.iter_mut().for_each(|arg| self.resolve(arg, pass));
            }
            NodeKind::Call { receiver: Some(receiver), name, args, .. } => {
                let space = matches!(&receiver.kind, NodeKind::Name(name)
                    if NAMESPACES.contains(&name.to_ascii_lowercase().as_str()) && !pass.scope.has(name));
                if let (Some(bound), "bind", true) = (bound_name(args), name.as_str(), space) {
                    self.resolve(&mut args[1], pass);
                    pass.locals.push(bound);
                    self.resolve(&mut args[2], pass);
                    pass.locals.pop();
                    return;
                }
                if !space {
                    self.resolve(receiver, pass);
                }
                let depth = pass.locals.len();
                let vars = macro_variables(name, args);
                let skip = vars.len();
                pass.locals.extend(vars);
                args.iter_mut().skip(skip).for_each(|arg| self.resolve(arg, pass));
                pass.locals.truncate(depth);
            }
            _ => children_mut(node, &mut |child| self.resolve(child, pass)),
        }
    }

    /// `a`, `a.b.c`: its root must be known; what stands below `args` and a row is looked up too.
    fn resolve_path(&mut self, node: &mut Node, names: &[String], pass: &mut Pass<'_>) {
        let root = names[0].as_str();
        let span = node.span;
        if pass.locals.iter().any(|local| local == root)
            || (stands_for_itself(names) && !pass.scope.has(root))
        {
            return;
        }
        let scope = pass.scope;
        if scope.names.iter().any(|name| name == root) {
            pass.refs.push(root.to_owned());
            return;
        }
        let concept = scope.row.as_ref().and_then(|id| self.names.concepts.get(id)).cloned();
        let field = concept.as_ref().is_some_and(|c| c.fields.iter().any(|field| field.name == root));
        if field && !(scope.has(root) && root != "version" && root != "space") {
            bare_to_payload(node);
            let whole: Vec<String> =
                std::iter::once("payload".to_owned()).chain(names.iter().cloned()).collect();
            self.row_path(&whole, span, concept.as_ref());
            return;
        }
        if !scope.has(root) {
            let unknown = fault(Code::ExprUnknownName, first_name(node), format!("unknown name {root:?}"));
            let fields = concept.iter().flat_map(|c| &c.fields).map(|field| field.name.as_str());
            let known: Vec<&str> =
                pass.locals.iter().map(String::as_str).chain(scope.known()).chain(fields).collect();
            let unknown = match root {
                "event" if scope.logic => unknown
                    .hint("logic gets the event as an argument: args { event object }, then args.event"),
                _ => suggest(unknown, root, known),
            };
            self.error(unknown);
            return;
        }
        match (root, names.get(1)) {
            ("payload", Some(_)) => self.row_path(names, span, concept.as_ref()),
            ("args", Some(arg)) => {
                if let Some(args) = &scope.args
                    && !args.iter().any(|known| known.name == *arg)
                {
                    let unknown = fault(Code::ExprUnknownName, span, format!("there is no argument {arg:?}"));
                    let fault = suggest(unknown, arg, args.iter().map(|arg| arg.name.as_str()));
                    self.error(fault);
                }
            }
            ("steps", Some(step)) => {
                if scope.names.contains(step) {
                    pass.refs.push(step.clone());
                    self.step_part(names.get(2), span);
                } else {
                    let unknown = fault(Code::ExprUnknownName, span, format!("unknown step {step:?}"));
                    self.error(suggest(unknown, step, scope.names.iter().map(String::as_str)));
                }
            }
            ("actor", Some(part)) if part != "userId" => {
                let what = format!("there is no \"actor.{part}\"");
                let hint = "actor is a text such as \"user:ann\"; actor.userId is \"ann\"";
                self.error(fault(Code::ExprUnknownName, span, what).hint(hint));
            }
            _ => {}
        }
    }

    /// What there is of a step is fixed; anything else would be null.
    fn step_part(&mut self, part: Option<&String>, span: Span) {
        let Some(part) = part.filter(|part| !STEP.contains(&part.as_str())) else { return };
        let unknown =
            fault(Code::ExprUnknownName, span, format!("a step has no {part:?}: it is always null"));
        self.warn(suggest(unknown, part, STEP));
    }

    fn row_path(&mut self, names: &[String], span: Span, concept: Option<&Concept>) {
        let Some(concept) = concept.filter(|concept| !concept.open) else { return };
        if let Err((name, fields)) = field_at(concept, &names[1..]) {
            let at = Word { text: name, span };
            self.error(unknown_field(&at, &concept.id, &fields));
        }
    }

    /// A function by its name. What is declared is called as a step of its own, never inside an expression.
    fn function(&mut self, name: &str, span: Span, args: &mut [Node], pass: &mut Pass<'_>) {
        if name == "canonicalId"
            && let [_, concept] = args
            && let NodeKind::Name(of) = &concept.kind
            && !pass.scope.has(of)
        {
            let word = Word { text: of.clone(), span: concept.span };
            if let Some(id) = self.concept_named(&word) {
                concept.kind = NodeKind::Literal(Literal::Text(id.into()));
            } else {
                concept.kind = NodeKind::Literal(Literal::Null);
            }
        }
        let real = self.real(name).to_owned();
        let declared =
            [Kind::Query, Kind::Mutation, Kind::Logic].into_iter().find(|kind| self.names.has(*kind, &real));
        if declared.is_some() || is_publish_event(name) {
            let kind = declared.map_or("function", Kind::as_str);
            let what = format!("the {kind} {name:?} is called inside an expression");
            self.error(
                fault(Code::DefinitionCall, span, what).hint(format!(
                    "make it a step of its own: name := {name}({{ … }}), and use its name here"
                )),
            );
        }
    }

    /// Literals beside a field of the row: `payload.status == "actve"` cannot be meant.
    pub(super) fn literals(&mut self, node: &Node, concept: &Concept, below: Below<'_>) {
        let misfits = beside::misfits(node, &|node| typed_path(node, concept, below));
        misfits.into_iter().for_each(|misfit| self.error(misfit));
        let mut parts = Vec::new();
        children(node, &mut |child| parts.push(child));
        parts.into_iter().for_each(|child| self.literals(child, concept, below));
    }
}

impl Checker<'_> {
    /// Functions, methods, regular expressions: what the compiler of expressions knows.
    /// Of one in which something was found since `before`, only what else is unknown.
    fn compiles(&mut self, node: &Node, scope: &Scope, before: usize) {
        let roots: Vec<&str> = scope.known().chain(BEHIND).collect();
        let errors = self.found[before..].iter().filter(|(_, severity, _)| *severity == Severity::Error);
        let said: Vec<Span> = errors.map(|(_, _, fault)| fault.span).collect();
        for mut fault in crate::expr::check(node, &roots) {
            let unknown = fault.code == Code::ExprUnknownName;
            if !said.is_empty() && (!unknown || said.contains(&fault.span)) {
                continue;
            }
            if unknown {
                let name = fault.what.split('"').nth(1).unwrap_or_default().to_owned();
                let kinds = [Kind::Query, Kind::Mutation, Kind::Logic];
                let declared = kinds.into_iter().flat_map(|kind| self.names.of(kind));
                if let Some(near) = crate::expr::nearest(&name, declared) {
                    fault.hint = Some(format!("did you mean {near:?}?"));
                }
            }
            self.error(fault);
        }
    }
}

/// The path below a row that a path of names leads to, if it does.
pub(super) type Below<'b> = &'b dyn Fn(&[&str]) -> Option<Vec<String>>;

fn of_row(names: &[&str]) -> Option<Vec<String>> {
    (names[0] == "payload").then(|| owned(&names[1..]))
}

pub(super) fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

struct Pass<'p> {
    scope: &'p Scope,
    locals: Vec<String>,
    refs: Vec<String>,
}

impl Pass<'_> {
    /// Whether the word `state` means the rows here.
    fn reads_state(&self) -> bool {
        let is_state = |name: &String| name == "state";
        self.scope.roots.iter().any(is_state) && !self.locals.iter().any(is_state)
    }
}

/// What is read of the row, and what that is declared to be; every row has its own instants.
fn typed_path(node: &Node, concept: &Concept, below: Below<'_>) -> Option<(Vec<String>, Type)> {
    let names = path(node)?;
    if let ["createdAt" | "updatedAt"] = names.as_slice() {
        return Some((owned(&names), Type::Timestamp));
    }
    let names = below(&names).filter(|names| !names.is_empty())?;
    let of = field_at(concept, &names).ok().flatten()?;
    Some((names, of))
}

/// The type at a path below a row; an error names the part that is not there, and what is.
pub(super) fn field_at(concept: &Concept, names: &[String]) -> Result<Option<Type>, (String, Vec<Field>)> {
    let mut fields = concept.fields.clone();
    for (at, name) in names.iter().enumerate() {
        let Some(field) = fields.iter().find(|field| field.name == *name) else {
            return Err((name.clone(), fields));
        };
        let last = at + 1 == names.len();
        match &field.of {
            of if last => return Ok(Some(of.clone())),
            Type::Object(inner) if !inner.is_empty() => fields = inner.clone(),
            _ => return Ok(None),
        }
    }
    Ok(None)
}

/// `field.x` becomes `payload.field.x`.
fn bare_to_payload(node: &mut Node) {
    match &mut node.kind {
        NodeKind::Member { of, .. } => {
            bare_to_payload(of);
            node.height += 1;
        }
        NodeKind::Name(name) => {
            let payload = Node { kind: NodeKind::Name("payload".to_owned()), span: node.span, height: 1 };
            node.kind = NodeKind::Member { of: Box::new(payload), name: std::mem::take(name) };
            node.height = 2;
        }
        _ => {}
    }
}

/// What a lambda over the row asks, written over the row itself; anything else as it is.
pub(super) fn row_test(node: &Node) -> Node {
    match &node.kind {
        NodeKind::Lambda { params, body } if params.len() == 1 => {
            let mut body = (**body).clone();
            unlambda(&mut body, &params[0].name);
            body
        }
        _ => node.clone(),
    }
}

/// `row => row.status == "x"`: fields of the parameter are fields of the row.
fn unlambda(node: &mut Node, param: &str) {
    let of_param = |of: &Node| matches!(&of.kind, NodeKind::Name(name) if name == param);
    if let NodeKind::Member { of, name } = &mut node.kind
        && of_param(of)
    {
        let name = std::mem::take(name);
        if INTRINSIC.contains(&name.as_str()) {
            node.kind = NodeKind::Name(name);
        } else {
            let payload = Node { kind: NodeKind::Name("payload".to_owned()), span: node.span, height: 1 };
            node.kind = NodeKind::Member { of: Box::new(payload), name };
        }
        return;
    }
    children_mut(node, &mut |child| unlambda(child, param));
}

/// `nil`, `int`, `google.protobuf.Timestamp`: no root, but a value by itself.
fn stands_for_itself(names: &[String]) -> bool {
    let known = |name: &str| TYPES.contains(&name);
    names == ["nil"] || known(&names[0]) || known(&names.join("."))
}

fn first_name(node: &Node) -> Span {
    match &node.kind {
        NodeKind::Member { of, .. } => first_name(of),
        _ => node.span,
    }
}

/// The variable of `cel.bind(name, value, body)`.
fn bound_name(args: &[Node]) -> Option<String> {
    match args {
        [Node { kind: NodeKind::Name(name), .. }, _, _] => Some(name.clone()),
        _ => None,
    }
}

fn macro_variables(name: &str, args: &[Node]) -> Vec<String> {
    let mut chars = name.chars();
    let lower: String = chars.next().into_iter().flat_map(char::to_lowercase).chain(chars).collect();
    if !MACROS.contains(&lower.as_str()) || args.len() < 2 {
        return Vec::new();
    }
    let most = if args.len() > 2 && matches!(args[1].kind, NodeKind::Name(_)) { 2 } else { 1 };
    let variable = |node: &Node| match &node.kind {
        NodeKind::Name(name) => Some(name.clone()),
        _ => None,
    };
    args.iter().take(most).map_while(variable).collect()
}
