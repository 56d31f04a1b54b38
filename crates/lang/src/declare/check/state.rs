//! Checks what is read of rows by name: `state.<concept>.<id>.<field>`, both sides of a change, and fields of state triggers.

use model::Code;
use model::definition::{Bound, Concept, EntityRef, TriggerKind, Type};
use serde_json::Value;

use super::concept::unknown_field;
use super::expr::{field_at, owned};
use super::{Checker, fits};
use crate::declare::finding::{fault, suggest};
use crate::declare::tree::{Trigger, Word};
use crate::declare::walk::{children, path};
use crate::expr::Span;
use crate::expr::ast::{Kind, Literal, Node};

/// The steps below `state`, none for those that are computed; nothing when it begins otherwise.
pub(super) fn steps(node: &Node) -> Option<Vec<Option<String>>> {
    match &node.kind {
        Kind::Name(name) => (name == "state").then(Vec::new),
        Kind::Member { of, name } => {
            let mut steps = steps(of)?;
            steps.push(Some(name.clone()));
            Some(steps)
        }
        Kind::Index { of, at } => {
            let mut steps = steps(of)?;
            steps.push(match &at.kind {
                Kind::Literal(Literal::Text(text)) => Some(text.to_string()),
                _ => None,
            });
            Some(steps)
        }
        _ => None,
    }
}

/// What stands in the square brackets of such a path.
pub(super) fn indexes(node: &mut Node, visit: &mut dyn FnMut(&mut Node)) {
    match &mut node.kind {
        Kind::Member { of, .. } => indexes(of, visit),
        Kind::Index { of, at } => {
            indexes(of, visit);
            visit(at);
        }
        _ => {}
    }
}

impl Checker<'_> {
    /// `state.<concept>.<id>.<field>`: a concept by its id, or by its name when only one has it.
    pub(super) fn state_path(&mut self, steps: &[Option<String>], span: Span) {
        let Some(Some(name)) = steps.first() else { return };
        if self.names.concepts.is_empty() {
            return self.declared_elsewhere(name, span);
        }
        let ids = self.names.concept_ids.get(name).cloned().unwrap_or_default();
        let concept = match (self.names.concepts.get(name), ids.as_slice()) {
            (Some(concept), _) => concept.clone(),
            (None, [one]) => self.names.concepts.get(one).cloned().unwrap_or_default(),
            (None, []) => {
                let unknown = fault(
                    Code::DefinitionUnknownName,
                    span,
                    format!("unknown concept {name:?} behind state"),
                );
                let known = self.names.concept_ids.keys().chain(self.names.concepts.keys());
                let unknown = suggest(unknown, name, known.map(String::as_str));
                return self.error(unknown);
            }
            (None, many) => {
                let what = format!("{name:?} may be {}", many.join(" or "));
                let hint = format!("write the whole id: state[\"{}\"]", many[0]);
                return self.error(fault(Code::DefinitionUnknownName, span, what).hint(hint));
            }
        };
        let fields: Option<Vec<String>> = steps.iter().skip(2).cloned().collect();
        if let Some(fields) = fields.filter(|fields| !fields.is_empty()) {
            self.field_known(&concept, &fields, span);
        }
    }

    /// What `state.<concept>.<id>.<field>` reads and its type, when the concept and the field are known.
    pub(super) fn state_type(&self, node: &Node) -> Option<(Vec<String>, Type)> {
        let steps = steps(node)?;
        let name = steps.first()?.as_ref()?;
        let ids = self.names.concept_ids.get(name).map_or(&[][..], Vec::as_slice);
        let concept = match (self.names.concepts.get(name), ids) {
            (Some(concept), _) => concept,
            (None, [one]) => self.names.concepts.get(one)?,
            _ => return None,
        };
        let fields: Vec<String> = steps.into_iter().skip(2).collect::<Option<_>>()?;
        let of = field_at(concept, &fields).ok().flatten()?;
        Some((fields, of))
    }

    /// The type of a field, or a finding that it is not there; nothing for what an open concept may hold.
    fn field_known(&mut self, concept: &Concept, names: &[String], span: Span) -> Option<Type> {
        match field_at(concept, names) {
            Ok(of) => of,
            Err(_) if concept.open => None,
            Err((name, fields)) => {
                self.error(unknown_field(&Word { text: name, span }, &concept.id, &fields));
                None
            }
        }
    }

    /// `prev.<field>`, `next.<field>`, `delta.<field>` of a concept, and literals beside them.
    pub(super) fn row_sides(&mut self, node: &Node, concept: &Concept) {
        self.sides_known(node, concept);
        self.literals(node, concept, &|names| below_side(names));
    }

    fn sides_known(&mut self, node: &Node, concept: &Concept) {
        if let Some(names) = path(node) {
            if let Some(below) = below_side(&names).filter(|below| !below.is_empty()) {
                self.field_known(concept, &below, node.span);
            }
            return;
        }
        let mut parts = Vec::new();
        children(node, &mut |child| parts.push(child));
        parts.into_iter().for_each(|part| self.sides_known(part, concept));
    }

    /// The field of a `state` or `numeric_state` trigger, and the values it is to come from, go to or lie between.
    pub(super) fn watched(&mut self, trigger: &Trigger) {
        let span = trigger.watched.field.unwrap_or(trigger.span);
        match &trigger.made.on {
            TriggerKind::State { entities, field, .. } => {
                let values = &trigger.watched.values;
                entities.iter().for_each(|entity| self.watched_field(entity, field, values, span));
            }
            TriggerKind::NumericState { entities, field, above, below } => {
                let hint = "use a state trigger";
                entities.iter().for_each(|entity| self.watched_number(entity, field, hint, span));
                for (bound, (_, span)) in above.iter().chain(below).zip(&trigger.watched.values) {
                    self.bound(bound, *span);
                }
            }
            _ => {}
        }
    }

    pub(super) fn watched_field(
        &mut self,
        entity: &EntityRef,
        field: &str,
        values: &[(Value, Span)],
        span: Span,
    ) {
        let Some(of) = self.watched_type(entity, field, span) else { return };
        for (value, span) in values.iter().filter(|(value, _)| value.as_str() != Some("")) {
            if let Some(message) = fits::misfit_type(&of, value).filter(|_| !fits_as_text(&of, value)) {
                let what = format!("{field:?} is never {value}: {message}");
                let known = match &of {
                    Type::Enum(values) => values.iter().filter_map(Value::as_str).collect(),
                    _ => Vec::new(),
                };
                let wrong = fault(Code::DefinitionType, *span, what);
                self.error(suggest(wrong, value.as_str().unwrap_or_default(), known));
            }
        }
    }

    /// A bound that is read of a row: what is not there, or no number, is never passed and nobody would hear why.
    pub(super) fn bound(&mut self, bound: &Bound, span: Span) {
        let Bound::Field { entity, field } = bound else { return };
        self.entity_known(entity, span);
        self.watched_number(entity, field, "a bound is a number, or a field that holds one", span);
        if entity.id.is_none() {
            let what = format!("{:?} is no row to read a bound of", entity.concept);
            let hint = format!("name one by its id: {}/id", entity.concept);
            self.error(fault(Code::DefinitionTrigger, span, what).hint(hint));
        }
    }

    pub(super) fn entity_known(&mut self, entity: &EntityRef, span: Span) {
        self.trigger_concept(&Word { text: entity.concept.clone(), span });
    }

    fn watched_number(&mut self, entity: &EntityRef, field: &str, hint: &str, span: Span) {
        let Some(of) = self.watched_type(entity, field, span) else { return };
        // A text may hold a number, and an enum may have one among its values.
        let number = |value: &Value| value.is_number() || fits_as_text(&Type::Double, value);
        let never = match &of {
            Type::Enum(values) => !values.iter().any(number),
            of => {
                matches!(of, Type::Bool | Type::List(_) | Type::Map(_) | Type::Timestamp | Type::Reference(_))
            }
        };
        if never {
            let what = format!("{field:?} is {}, not a number", fits::type_name(&of));
            self.error(fault(Code::DefinitionType, span, what).hint(hint));
        }
    }

    fn watched_type(&mut self, entity: &EntityRef, field: &str, span: Span) -> Option<Type> {
        let concept = self.names.concepts.get(&entity.concept)?.clone();
        let names: Vec<String> = field.split('.').map(str::to_owned).collect();
        self.field_known(&concept, &names, span)
    }
}

/// States are often texts: a number or a bool also means its text, and the other way round.
fn fits_as_text(of: &Type, value: &Value) -> bool {
    let other = match value {
        Value::String(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        Value::Number(_) | Value::Bool(_) => value.to_string().into(),
        _ => Value::Null,
    };
    (other.is_string() || other.is_number() || other.is_boolean()) && fits::misfit_type(of, &other).is_none()
}

fn below_side(names: &[&str]) -> Option<Vec<String>> {
    matches!(names[0], "prev" | "next" | "delta").then(|| owned(&names[1..]))
}
