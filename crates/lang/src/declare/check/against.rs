//! What a filter asks of a topic or a concept, beside what its trigger already says of it.

use model::definition::TriggerKind;
use model::topic::Pattern;

use crate::declare::walk::path;
use crate::expr::ast::{Kind as NodeKind, Literal, Node, Op};

/// `topic == "a"`, `topic != "a"`, `topic in ["a", "b"]`, `topic not in ["a"]`
pub(super) struct Asked<'n> {
    /// Without `event.` and `payload.`.
    field: &'n str,
    values: Vec<String>,
    /// Whether it is to be one of the values, or none of them.
    pub(super) wanted: bool,
}

/// What holds of every event that meets the trigger.
pub(super) struct Fact {
    /// The field is one of the values.
    pub(super) holds: bool,
    pub(super) said: String,
}

pub(super) fn asked(node: &Node) -> Option<Asked<'_>> {
    let NodeKind::Binary { op, left, right } = &node.kind else { return None };
    let wanted = matches!(op, Op::Equal | Op::In);
    let (field, values) = match op {
        Op::Equal | Op::Unequal => sides(left, right).or_else(|| sides(right, left))?,
        Op::In | Op::NotIn => match &right.kind {
            NodeKind::List(items) => (field(left)?, items.iter().map(text).collect::<Option<_>>()?),
            _ => return None,
        },
        _ => return None,
    };
    Some(Asked { field, values, wanted })
}

impl Asked<'_> {
    /// None when some events are one of the values and some are not.
    pub(super) fn fact(&self, on: &TriggerKind) -> Option<Fact> {
        let verdicts: Vec<Verdict> =
            self.values.iter().map(|value| self.verdict(on, value)).collect::<Option<_>>()?;
        let holds = verdicts.contains(&Verdict::Always);
        let never = !verdicts.is_empty() && verdicts.iter().all(|one| *one == Verdict::Never);
        let values: Vec<String> = self.values.iter().map(|value| format!("{value:?}")).collect();
        let often = if holds { "always" } else { "never" };
        let said = format!("{} is {often} {}", self.field, values.join(" or "));
        (holds || never).then_some(Fact { holds, said })
    }

    fn verdict(&self, on: &TriggerKind, value: &str) -> Option<Verdict> {
        match (self.field, on) {
            ("concept" | "kind", TriggerKind::Entity { concept, .. }) => Some(matches(concept, value)),
            ("topic", TriggerKind::Event(patterns)) => Some(any_matches(patterns, value)),
            ("topic", TriggerKind::Entity { concept, changes }) => {
                let topic =
                    |change: &model::definition::Change| format!("graph.node.{}.{concept}", change.as_str());
                Some(any_matches(&changes.iter().map(topic).collect::<Vec<_>>(), value))
            }
            _ => None,
        }
    }
}

#[derive(PartialEq, Eq)]
enum Verdict {
    Never,
    Sometimes,
    Always,
}

fn matches(concept: &str, value: &str) -> Verdict {
    if concept.contains('*') {
        let fits = Pattern::parse(concept).is_ok_and(|pattern| pattern.matches(value));
        return if fits { Verdict::Sometimes } else { Verdict::Never };
    }
    if concept == value { Verdict::Always } else { Verdict::Never }
}

fn any_matches(patterns: &[String], topic: &str) -> Verdict {
    if patterns.iter().all(|pattern| pattern == topic) {
        return Verdict::Always;
    }
    let fits = patterns.iter().any(|text| Pattern::parse(text).is_ok_and(|pattern| pattern.matches(topic)));
    if fits { Verdict::Sometimes } else { Verdict::Never }
}

fn sides<'n>(of: &'n Node, value: &Node) -> Option<(&'n str, Vec<String>)> {
    Some((field(of)?, vec![text(value)?]))
}

fn text(node: &Node) -> Option<String> {
    match &node.kind {
        NodeKind::Literal(Literal::Text(text)) => Some(text.to_string()),
        _ => None,
    }
}

/// What is read of the event, without `event.` and `payload.`.
fn field(node: &Node) -> Option<&str> {
    let names = path(node)?;
    match names.as_slice() {
        ["event", "subject", "kind"] | ["subject", "kind"] => Some("kind"),
        ["event", "payload", one] | ["payload", one] | ["event", one] | [one] => Some(one),
        _ => None,
    }
}
