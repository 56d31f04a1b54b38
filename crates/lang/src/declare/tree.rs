//! What a file says, as a tree with places, names still unresolved; `.ew` and YAML are both read into it.

use model::definition::{self, Repeat};
use serde_json::Value;

use super::doc::Doc;

use crate::expr::Span;
use crate::expr::ast::Node;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) text: String,
    pub(crate) span: Span,
}

#[derive(Debug, Default)]
pub(crate) struct File {
    pub(crate) uses: Vec<Use>,
    pub(crate) items: Vec<Item>,
}

/// `use a.b.{ x, y as z }`
#[derive(Debug)]
pub(crate) struct Use {
    /// `a.b`
    pub(crate) module: Word,
    /// The name there, and the name here.
    pub(crate) names: Vec<(Word, Word)>,
}

/// One declaration.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) name: Word,
    pub(crate) notes: Vec<Note>,
    pub(crate) body: Body,
}

#[derive(Debug)]
pub(crate) enum Body {
    Concept(Vec<Member>),
    Query(Query),
    Mutation(Mutation),
    Shape { concept: Word, fields: Vec<(Word, Node)> },
    Logic { args: Vec<Field>, steps: Vec<Step> },
    Automation(Box<Automation>),
}

/// `@name(value, key = value)`
#[derive(Clone, Debug)]
pub(crate) struct Note {
    pub(crate) name: Word,
    pub(crate) args: Vec<(Option<Word>, Node)>,
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) enum Member {
    Field(Field),
    Relationship(Note),
    Derive { topic: Word, when: Option<Node> },
}

#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: Word,
    pub(crate) of: Type,
    pub(crate) of_span: Span,
    /// `string!`
    pub(crate) required: bool,
    pub(crate) notes: Vec<Note>,
}

#[derive(Clone, Debug)]
pub(crate) enum Type {
    Named(Word),
    Enum(Vec<Node>),
    List(Box<Type>),
    Map(Box<Type>),
    /// With `@variant` its members are cases, whose types are objects.
    Object(Vec<Field>),
}

#[derive(Debug, Default)]
pub(crate) struct Query {
    pub(crate) concept: Word,
    pub(crate) args: Vec<Field>,
    pub(crate) filter: Vec<Node>,
    pub(crate) shape: Option<Word>,
    pub(crate) sort: Vec<(Word, bool)>,
    pub(crate) paginate: Option<u32>,
    pub(crate) as_of: Option<AsOf>,
    pub(crate) count: bool,
    pub(crate) detached: bool,
}

#[derive(Debug)]
pub(crate) enum AsOf {
    Latest,
    Expr(Node),
}

#[derive(Debug, Default)]
pub(crate) struct Mutation {
    pub(crate) concept: Word,
    pub(crate) args: Vec<Field>,
    /// One is right; the checker counts.
    pub(crate) writes: Vec<(definition::Write, Span)>,
    pub(crate) accept: Vec<Word>,
    /// With `id` among them.
    pub(crate) stamp: Vec<(Word, Node)>,
    /// A part of it could not be read.
    pub(crate) broken: bool,
}

#[derive(Debug)]
pub(crate) struct Automation {
    pub(crate) args: Vec<Field>,
    /// Everything but the steps and the expressions of conditions.
    pub(crate) head: definition::Automation,
    pub(crate) triggers: Vec<Trigger>,
    pub(crate) conditions: Vec<Condition>,
    /// `dedup` and `mode` keys.
    pub(crate) keys: Vec<Node>,
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug)]
pub(crate) struct Trigger {
    pub(crate) span: Span,
    pub(crate) made: definition::Trigger,
    /// Concepts that it names.
    pub(crate) concepts: Vec<Word>,
    pub(crate) filter: Option<Node>,
    /// Partition and gate keys.
    pub(crate) keys: Vec<Node>,
    /// What is said and means nothing here.
    pub(crate) ignored: Vec<Word>,
    pub(crate) watched: Watched,
}

/// Where a trigger on rows, or a condition, says what it watches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watched {
    pub(crate) field: Option<Span>,
    /// What the field is to come from or go to, or not; for a number `above`, then `below`.
    pub(crate) values: Vec<(Value, Span)>,
}

/// A value to be computed.
#[derive(Clone, Debug)]
pub(crate) enum Val {
    Expr(Node),
    /// A JSON value whose strings are templates.
    Template(Doc),
}

#[derive(Clone, Debug)]
pub(crate) enum Length {
    Fixed(std::time::Duration),
    Computed(Node),
}

#[derive(Clone, Debug)]
pub(crate) enum Condition {
    Expr(Node),
    And(Vec<Condition>),
    Or(Vec<Condition>),
    Not(Box<Condition>),
    Time(definition::TimeOfDay),
    State {
        entity: definition::EntityRef,
        /// Of the entity.
        place: Span,
        field: String,
        is: Vec<Value>,
        watched: Watched,
        held: Option<Length>,
    },
    Numeric {
        value: Node,
        place: Span,
        above: Option<definition::Bound>,
        below: Option<definition::Bound>,
    },
}

#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) id: Option<Word>,
    pub(crate) span: Span,
    pub(crate) when: Option<Condition>,
    pub(crate) retry: Option<definition::Retry>,
    pub(crate) timeout: Option<Length>,
    pub(crate) on_error: definition::OnError,
    pub(crate) action: Action,
}

impl Step {
    pub(crate) fn of(action: Action, span: Span) -> Step {
        let on_error = definition::OnError::Stop;
        Step { id: None, span, when: None, retry: None, timeout: None, on_error, action }
    }
}

/// What a call says it calls; a bare `name(…)` says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Callee {
    Any,
    Logic,
    Query,
    Mutation,
    Builtin,
}

#[derive(Debug)]
pub(crate) enum Action {
    Value(Val),
    Vars(Vec<(Word, Val)>),
    Call { kind: Callee, name: Word, args: Option<Val> },
    Publish { topic: Val, payload: Option<Val>, envelope: Vec<(Word, Val)> },
    If { test: Condition, then: Vec<Step>, otherwise: Vec<Step> },
    Switch { on: Node, cases: Vec<(Vec<Value>, Vec<Step>)>, default: Vec<Step> },
    For(For),
    Parallel { branches: Vec<(Option<Word>, Vec<Step>)>, any: bool },
    Repeat { until: Until, max: Option<u32>, steps: Vec<Step> },
    Atomic(Vec<Step>),
    Delay(Length),
    WaitUntil { condition: Condition, timeout: Option<Length>, on_timeout: Option<definition::OnTimeout> },
    WaitFor { trigger: Box<Trigger>, timeout: Option<Length>, on_timeout: Option<definition::OnTimeout> },
    Ask(Box<Ask>),
    Http { method: String, url: Val, headers: Option<Val>, body: Option<Val>, once: bool },
    Outside { runner: &'static str, with: Val },
    Automation { name: Word, args: Option<Val>, wait: bool },
    Stop(Option<Val>),
    Fail(Option<Val>),
    Return(Option<Val>),
}

#[derive(Debug)]
pub(crate) struct For {
    pub(crate) item: Option<Word>,
    pub(crate) index: Option<Word>,
    pub(crate) source: Val,
    pub(crate) filter: Option<Node>,
    pub(crate) parallel: Option<u32>,
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug)]
pub(crate) enum Until {
    Count(Node),
    Before(Condition),
    After(Condition),
}

impl Until {
    /// The definition's form, its conditions still to be lowered.
    pub(crate) fn empty(steps: Vec<definition::Step>, max: Option<u32>) -> Repeat {
        Repeat { count: None, before: None, after: None, max, steps }
    }
}

#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) question: Val,
    pub(crate) approve: bool,
    pub(crate) form: Vec<Field>,
    pub(crate) options: Vec<Value>,
    pub(crate) to: Option<Val>,
    pub(crate) timeout: Option<Length>,
    pub(crate) default: Option<Val>,
}
