//! What an expression reads, told from its text alone: the entities a wait is woken by, fields of the event,
//! functions and secrets.
//!
//! | written | reference |
//! |---|---|
//! | `state.kind.id…`, `state["kind"]["id"]` | `kind:id` |
//! | `state.kind`, `state.kind[x]` | `kind:*`; an `x` that reads neither rows nor time is told, too: see [`Refs::narrows`] |
//! | `health.systems["id"]` | `health:id` |
//! | `health`, any other `health.x` | `health:*` |
//! | `state`, `state[x]…` | none: indeterminate, unless another reference was found; [`Refs::anything`] all the same. An `x` that reads
//!   neither rows nor time is told, too: see [`Refs::named`] |

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::ast::{Kind, Literal, Node};
use super::builtins::{Macro, READERS, either_case};
use super::calls::head;
use super::parser::parse;
use crate::declare::print::print;

/// One entity, or all of a kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntityRef {
    One { kind: String, id: String },
    All { kind: String },
}

impl fmt::Display for EntityRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EntityRef::One { kind, id } => write!(f, "{kind}:{id}"),
            EntityRef::All { kind } => write!(f, "{kind}:*"),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refs {
    pub entities: BTreeSet<EntityRef>,
    /// It reads state, but nothing says which: every change must wake it.
    pub indeterminate: bool,
    /// As that, whatever else it reads that is known.
    pub anything: bool,
    /// The names that it begins paths with.
    pub roots: BTreeSet<String>,
    /// Paths below `event`, such as `payload.price`, as far as they are fixed; `""` is all of it.
    pub event_fields: BTreeSet<String>,
    pub functions: BTreeSet<String>,
    pub secrets: BTreeSet<String>,
    /// Its value may change when only time passes.
    pub now: bool,
    /// `state.kind[x]`, as kind and the text of `x`.
    computed: BTreeSet<(String, String)>,
    /// Kinds of which more is read than rows that can be told beforehand.
    whole: BTreeSet<String>,
    /// `state[x]` and `state[x][y]`: the text of `x`, and which row of that kind; without one, all of them.
    pub named: BTreeSet<(String, Option<Key>)>,
    /// It reads state of which nothing is known, not even once the values around it are.
    loose: bool,
}

/// How the id of a row is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Written(String),
    /// The text of an expression that stays what it is.
    Computed(String),
}

impl Refs {
    /// Of an expression; what cannot be read is indeterminate.
    pub fn of(source: &str) -> Refs {
        match parse(source) {
            Ok(tree) => Refs::of_tree(&tree),
            Err(_) => Refs { indeterminate: true, anything: true, loose: true, ..Refs::default() },
        }
    }

    pub(crate) fn of_tree(tree: &Node) -> Refs {
        let mut walk = Walk::default();
        walk.node(tree);
        let mut refs = walk.refs;
        refs.indeterminate = walk.touched && refs.entities.is_empty();
        refs
    }

    /// Of a condition (contracts §8): an expression, `and or not`, `state`, `numeric_state` or `time`.
    pub fn of_condition(condition: &Value) -> Refs {
        let mut refs = Refs::default();
        match condition {
            Value::String(source) => refs = Refs::of(source),
            Value::Array(parts) => parts.iter().for_each(|part| refs.join(Refs::of_condition(part))),
            Value::Object(map) => {
                for (name, part) in map {
                    match name.as_str() {
                        "and" | "or" | "not" => refs.join(Refs::of_condition(part)),
                        "state" => refs.join(of_state(part)),
                        "numeric_state" => refs.join(of_number(part)),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        refs
    }

    /// Of `kind:*`: the texts of the ids that it comes down to, once the values around the expression are known. `None`: all
    /// rows are read.
    pub fn narrows(&self, kind: &str) -> Option<impl Iterator<Item = &str>> {
        let computed = || self.computed.iter().filter(move |(of, _)| of == kind);
        let narrow = !self.whole.contains(kind) && computed().next().is_some();
        narrow.then(|| computed().map(|(_, id)| id.as_str()))
    }

    /// Whether every change of any row may matter to it, also once the values around it are known.
    pub fn may_read_any_row(&self) -> bool {
        self.loose
    }

    /// A row, or all of a kind, is read outside of expressions.
    pub fn row(&mut self, entity: EntityRef) {
        if let EntityRef::All { kind } = &entity {
            self.whole.insert(kind.clone());
        }
        self.entities.insert(entity);
    }

    /// Both; indeterminate only while no entity is known.
    pub fn join(&mut self, other: Refs) {
        self.computed.extend(other.computed);
        self.whole.extend(other.whole);
        self.entities.extend(other.entities);
        self.roots.extend(other.roots);
        self.event_fields.extend(other.event_fields);
        self.functions.extend(other.functions);
        self.secrets.extend(other.secrets);
        self.now |= other.now;
        self.anything |= other.anything;
        self.named.extend(other.named);
        self.loose |= other.loose;
        self.indeterminate = (self.indeterminate || other.indeterminate) && self.entities.is_empty();
    }
}

/// `concept/id`, `concept`, or a bare id of the concept `health`.
fn entity(written: &str) -> EntityRef {
    match written.split_once('/') {
        Some((kind, id)) => EntityRef::One { kind: kind.to_owned(), id: id.to_owned() },
        None if written.contains(':') => EntityRef::All { kind: written.to_owned() },
        None => EntityRef::One { kind: "health".to_owned(), id: written.to_owned() },
    }
}

fn of_state(state: &Value) -> Refs {
    let mut refs = Refs::default();
    match &state["entity"] {
        Value::String(written) => refs.row(entity(written)),
        Value::Array(several) => {
            several.iter().filter_map(Value::as_str).for_each(|one| refs.row(entity(one)))
        }
        _ => {}
    }
    refs.indeterminate = refs.entities.is_empty();
    refs.loose = refs.indeterminate;
    refs
}

fn of_number(state: &Value) -> Refs {
    let mut refs = Refs::default();
    if let Value::String(path) = &state["value"] {
        refs = Refs::of(path);
    }
    for part in [state, &state["above"], &state["below"]] {
        if let Some(written) = part.get("entity").and_then(Value::as_str) {
            refs.row(entity(written));
        }
    }
    let told = state["value"].is_string();
    refs.indeterminate = refs.entities.is_empty() && (refs.indeterminate || !told);
    refs.loose |= refs.entities.is_empty() && !told;
    refs
}

#[derive(Default)]
struct Walk {
    refs: Refs,
    /// Variables of lambdas and macros around, which hide roots of the same name.
    locals: Vec<String>,
    touched: bool,
}

impl Walk {
    fn node(&mut self, node: &Node) {
        match &node.kind {
            Kind::Literal(_) => {}
            Kind::Name(_) | Kind::Member { .. } | Kind::Index { .. } => self.path(node),
            Kind::Call { receiver, name, args, .. } => self.call(receiver.as_deref(), name, args),
            Kind::List(items) | Kind::All(items) | Kind::Any(items) => {
                items.iter().for_each(|item| self.node(item));
            }
            Kind::Map(pairs) => pairs.iter().for_each(|(key, value)| {
                self.node(key);
                self.node(value);
            }),
            Kind::Not(of) | Kind::Negate(of) => self.node(of),
            Kind::Binary { left, right, .. } => [left, right].into_iter().for_each(|side| self.node(side)),
            Kind::Choose { test, yes, no } => [test, yes, no].into_iter().for_each(|part| self.node(part)),
            Kind::When { given, body } => [given, body].into_iter().for_each(|part| self.node(part)),
            Kind::Lambda { params, body } => {
                self.within(params.iter().map(|param| param.name.clone()).collect(), &[body]);
            }
        }
    }

    fn within(&mut self, names: Vec<String>, bodies: &[&Node]) {
        let depth = self.locals.len();
        self.locals.extend(names);
        bodies.iter().for_each(|body| self.node(body));
        self.locals.truncate(depth);
    }

    fn call(&mut self, receiver: Option<&Node>, name: &str, args: &[Node]) {
        if let Some(receiver) = receiver {
            self.node(receiver);
        }
        self.refs.functions.insert(name.to_owned());
        if receiver.is_none() {
            self.reader(name, args);
        }
        let known = either_case(name, |name| Macro::NAMES.iter().any(|m| m.0 == name));
        let looped = known.filter(|_| receiver.is_some() && args.len() > 1);
        let kind = looped.and_then(|name| Macro::NAMES.iter().find(|m| m.0 == name));
        let lambda = args.iter().any(|arg| matches!(arg.kind, Kind::Lambda { .. }));
        match kind.filter(|_| !lambda).and_then(|kind| head(args.to_vec(), kind.1)) {
            Some((_, names, bodies)) => self.within(names, &bodies.iter().collect::<Vec<_>>()),
            None => match (name, args) {
                ("bind", [Node { kind: Kind::Name(local), .. }, value, body]) => {
                    self.node(value);
                    self.within(vec![local.clone()], &[body]);
                }
                _ => args.iter().for_each(|arg| self.node(arg)),
            },
        }
    }

    /// `secret("X")`, `now()`.
    fn reader(&mut self, name: &str, args: &[Node]) {
        let Some(name) = either_case(name, |name| READERS.iter().any(|reader| reader.0 == name)) else {
            return;
        };
        if let Some((_, root, _)) = READERS.iter().find(|(known, _, n)| *known == name && *n == args.len()) {
            self.refs.roots.insert((*root).to_owned());
        }
        match (name.as_str(), args) {
            ("secret" | "systemSecret", [Node { kind: Kind::Literal(Literal::Text(secret)), .. }]) => {
                self.refs.secrets.insert(secret.to_string());
            }
            ("now" | "timestamp", []) => self.refs.now = true,
            _ => {}
        }
    }

    /// The text of an index that is the same whatever happens to rows and time.
    fn steady(&self, index: &Node) -> Option<String> {
        let reads = Refs::of_tree(index);
        let moves = reads.now || ["state", "health"].iter().any(|root| reads.roots.contains(*root));
        let local = self.locals.iter().any(|local| reads.roots.contains(local));
        (!moves && !local && reads.functions.is_empty()).then(|| print(index))
    }

    /// A chain of members and indexes, from its root: fixed steps by their names, others as `None`.
    fn path(&mut self, node: &Node) {
        let mut steps: Vec<Option<String>> = Vec::new();
        let mut indexes: Vec<&Node> = Vec::new();
        let mut at = node;
        loop {
            at = match &at.kind {
                Kind::Member { of, name } => {
                    steps.push(Some(name.clone()));
                    of
                }
                Kind::Index { of, at: index } => {
                    steps.push(match &index.kind {
                        Kind::Literal(Literal::Text(name)) => Some(name.to_string()),
                        Kind::Literal(Literal::Int(n)) => Some(n.to_string()),
                        _ => {
                            self.node(index);
                            indexes.push(index);
                            None
                        }
                    });
                    of
                }
                Kind::Name(name) => {
                    steps.reverse();
                    // `state.kind[x]`, `state[x][y]`: the first step that is not fixed is the last that was met.
                    let mut told = indexes.iter().rev().map(|index| self.steady(index));
                    let id = match (name.as_str(), steps.get(..2)) {
                        ("state", Some([Some(_), None])) => told.next().flatten(),
                        _ => None,
                    };
                    let kind = match (name.as_str(), steps.first()) {
                        ("state", Some(None)) => told.next().flatten(),
                        _ => None,
                    };
                    let named = kind.map(|kind| match steps.get(1) {
                        Some(Some(id)) => (kind, Some(Key::Written(id.clone()))),
                        Some(None) => (kind, told.next().flatten().map(Key::Computed)),
                        None => (kind, None),
                    });
                    return self.root(name, &steps, (id, named));
                }
                _ => return self.node(at),
            };
        }
    }

    /// With what is told of the row once the values around are known: its id, or where its kind is computed, all of it.
    fn root(
        &mut self,
        name: &str,
        steps: &[Option<String>],
        (id, named): (Option<String>, Option<(String, Option<Key>)>),
    ) {
        if self.locals.iter().any(|local| local == name) {
            return;
        }
        self.refs.roots.insert(name.to_owned());
        let step = |at: usize| steps.get(at).cloned().flatten();
        let found = match (name, step(0), step(1)) {
            ("state", Some(kind), Some(id)) => Some(EntityRef::One { kind, id }),
            ("state", Some(kind), None) => Some(EntityRef::All { kind }),
            ("health", Some(systems), Some(id)) if systems == "systems" => {
                Some(EntityRef::One { kind: "health".to_owned(), id })
            }
            ("health", ..) => Some(EntityRef::All { kind: "health".to_owned() }),
            _ => None,
        };
        if let Some(EntityRef::All { kind }) = &found {
            match id {
                Some(id) => _ = self.refs.computed.insert((kind.clone(), id)),
                None => _ = self.refs.whole.insert(kind.clone()),
            }
        }
        self.touched |= matches!(name, "state" | "health");
        let unknown = name == "state" && found.is_none();
        self.refs.anything |= unknown;
        self.refs.loose |= unknown && named.is_none();
        self.refs.named.extend(named);
        self.refs.entities.extend(found);
        match name {
            "event" => self.event_field(steps),
            "topic" | "payload" | "subject" => {
                let below = [&[Some(name.to_owned())], steps].concat();
                self.event_field(&below);
            }
            "secrets" => self.refs.secrets.extend(step(0)),
            "now" => self.refs.now = true,
            _ => {}
        }
    }

    fn event_field(&mut self, steps: &[Option<String>]) {
        let fixed: Vec<&str> = steps.iter().map_while(|step| step.as_deref()).collect();
        self.refs.event_fields.insert(fixed.join("."));
    }
}
