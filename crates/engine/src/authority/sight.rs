//! How much of a tenant somebody sees: the spaces and the highest band of their token, and whether acts of administration. Pure.

use std::sync::Arc;

use model::event::{Band, Event};
use model::group::Definition;
use model::topic::{Pattern, is_engine};
use model::{Code, Problem};
use serde_json::Value;

use crate::tenant::audit::{is_act, names_act};

/// What may be seen and said; the default is everything. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    edges: Option<Arc<Edges>>,
    /// Acts of administration are as good as absent.
    no_acts: bool,
    /// Events are said and not read.
    says_only: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Edges {
    /// Empty: every space.
    spaces: Vec<String>,
    max_band: Option<Band>,
}

impl Sight {
    pub fn new(spaces: &[String], max_band: Option<Band>) -> Sight {
        let whole = spaces.is_empty() && max_band.is_none();
        let edges = (!whole).then(|| Arc::new(Edges { spaces: spaces.to_vec(), max_band }));
        Sight { edges, ..Sight::default() }
    }

    /// The same, of one who may or may not administer and read events.
    pub fn of_one_who(self, administers: bool, reads: bool) -> Sight {
        Sight { no_acts: !administers, says_only: !reads, ..self }
    }

    /// Whether every space and band is seen.
    pub fn is_whole(&self) -> bool {
        self.edges.is_none()
    }

    /// Whether every event is seen.
    pub fn sees_all(&self) -> bool {
        self.is_whole() && !self.no_acts
    }

    /// Whether acts of administration, and what belongs to them, are seen.
    pub fn administers(&self) -> bool {
        !self.no_acts
    }

    /// Whether what others published may be read where it is seen.
    pub fn reads(&self) -> bool {
        !self.says_only
    }

    /// Whether every event that such a group may deliver is seen.
    pub fn takes_all_of(&self, group: &Definition) -> bool {
        let of_the_engine = |pattern: &Pattern| {
            let text = pattern.as_str();
            is_engine(text) || is_act(text) || text.starts_with("workflow.")
        };
        self.is_whole() && !(self.no_acts && group.patterns.iter().any(of_the_engine))
    }

    fn sees_topic(&self, topic: &str) -> bool {
        !(self.no_acts && is_act(topic))
    }

    /// What the engine tells of runs, and of dispatches that failed, says in `caused_by` which act it goes back to. In the words of
    /// others that means nothing.
    fn sees_cause(&self, topic: &str, caused_by: Option<&str>) -> bool {
        !(self.no_acts && is_engine(topic) && caused_by.is_some_and(names_act))
    }

    /// Whether what began a run, as it is told, is no act that is not seen.
    pub fn sees_begun(&self, run: &Value) -> bool {
        let named = |name: &str| run[name].as_str().is_some_and(names_act);
        !(self.no_acts && (named("triggered_by") || named("caused_by")))
    }

    pub fn sees(&self, space: &str, band: Band) -> bool {
        self.sees_space(space) && self.sees_band(band)
    }

    pub fn sees_space(&self, space: &str) -> bool {
        self.spaces().is_empty() || self.spaces().iter().any(|one| one == space)
    }

    pub fn sees_band(&self, band: Band) -> bool {
        self.max_band().is_none_or(|most| band <= most)
    }

    pub fn sees_event(&self, event: &Event) -> bool {
        let envelope = &event.envelope;
        let seen = || self.sees(&envelope.space, envelope.band) && !self.is_of_all(event);
        (self.is_whole() || seen())
            && self.sees_topic(&envelope.topic)
            && self.sees_cause(&envelope.topic, envelope.caused_by.as_deref())
    }

    /// What is told of sessions is of no space, and what is told of runs has no band of its own.
    fn is_of_all(&self, event: &Event) -> bool {
        let topic = &event.envelope.topic;
        event.position == 0 && topic.starts_with("session.")
            || self.max_band().is_some() && topic.starts_with("automation.")
    }

    /// As [`Sight::sees_event`], of an event as it is told. What is no event is not seen.
    pub fn sees_told(&self, event: &Value) -> bool {
        let Some(space) = event["space"].as_str() else { return self.is_whole() };
        let band = event["band"].as_str().and_then(Band::parse).unwrap_or_default();
        let topic = event["topic"].as_str().unwrap_or_default();
        self.sees(space, band)
            && self.sees_topic(topic)
            && self.sees_cause(topic, event["caused_by"].as_str())
    }

    fn spaces(&self) -> &[String] {
        self.edges.as_ref().map_or(&[], |edges| &edges.spaces)
    }

    fn max_band(&self) -> Option<Band> {
        self.edges.as_ref().and_then(|edges| edges.max_band)
    }

    /// The space that is meant when none is named: the only one there is.
    pub fn only_space(&self) -> Option<&str> {
        match self.spaces() {
            [space] => Some(space),
            _ => None,
        }
    }

    /// As [`Sight::only_space`], of who writes: who has several or all means the default one.
    pub fn space_meant<'a>(&'a self, default: &'a str) -> &'a str {
        self.only_space().unwrap_or(default)
    }

    /// Whether all that such a group may deliver is seen.
    pub fn covers(&self, group: &Definition) -> bool {
        let space = self.spaces().is_empty() || group.space.as_ref().is_some_and(|one| self.sees_space(one));
        let acts = |pattern: &Pattern| !self.sees_topic(pattern.as_str());
        space && self.sees_band(group.max_band) && !group.patterns.iter().any(acts)
    }

    /// Whether something that such a group may deliver is seen.
    pub fn meets(&self, group: &Definition) -> bool {
        group.space.as_ref().is_none_or(|space| self.sees_space(space))
    }

    /// A group over everything is, for who sees only a part, one over that part.
    pub fn narrowed(&self, mut group: Value) -> Result<Value, Problem> {
        let patterns = group["pattern"].as_str().into_iter();
        let mut patterns =
            patterns.chain(group["pattern"].as_array().into_iter().flatten().filter_map(Value::as_str));
        if patterns.any(|pattern| !self.sees_topic(pattern)) {
            return Err(Problem::new(Code::AuthDenied, "this token does not see acts of administration")
                .hint("use a token that allows \"admin\"")
                .at("/pattern"));
        }
        if self.is_whole() || !group.is_object() {
            return Ok(group);
        }
        match (group["space"].as_str(), self.only_space()) {
            (Some(space), _) if !self.sees_space(space) => return Err(self.denied(space, Band::Green)),
            (None, Some(only)) => group["space"] = only.into(),
            (None, None) if !self.spaces().is_empty() => {
                return Err(Problem::new(
                    Code::AuthDenied,
                    "this token is for single spaces, and a group has one",
                )
                .hint(format!("name one of {} as its \"space\"", self.spaces().join(", ")))
                .at("/space"));
            }
            _ => {}
        }
        if let Some(most) = self.max_band() {
            let wanted = group["max_band"].as_str().and_then(Band::parse).unwrap_or(most);
            if wanted > most {
                return Err(self.denied(group["space"].as_str().unwrap_or_default(), wanted).at("/max_band"));
            }
            group["max_band"] = wanted.as_str().into();
        }
        Ok(group)
    }

    /// Why something is not allowed there.
    pub fn denied(&self, space: &str, band: Band) -> Problem {
        if !self.sees_space(space) {
            let spaces = self.spaces().join(", ");
            return Problem::new(Code::AuthDenied, format!("this token does not allow space \"{space}\""))
                .hint(format!("name another \"space\" ({spaces}), or use a token that does"))
                .at("/space");
        }
        Problem::new(Code::AuthDenied, format!("this token does not allow band \"{band}\""))
            .hint("use a token that does")
            .at("/band")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sight(spaces: &[&str], max_band: Option<Band>) -> Sight {
        Sight::new(&spaces.iter().map(|space| (*space).to_owned()).collect::<Vec<_>>(), max_band)
    }

    #[test]
    fn spaces_and_bands_limit_what_is_seen() {
        let narrow = sight(&["a"], Some(Band::Amber));
        assert!(narrow.sees("a", Band::Green) && narrow.sees("a", Band::Amber));
        assert!(!narrow.sees("b", Band::Green) && !narrow.sees("a", Band::Red) && !narrow.is_whole());
        let told = |text: &str| narrow.sees_told(&serde_json::from_str(text).unwrap());
        assert!(told(r#"{"space":"a"}"#) && told(r#"{"space":"a","band":"amber"}"#));
        assert!(!told(r#"{"space":"a","band":"black"}"#) && !told(r#"{"band":"green"}"#));
        let whole = sight(&[], None);
        assert!(whole.is_whole() && whole.sees("b", Band::Black) && whole.sees_told(&Value::Null));
        assert!(sight(&[], Some(Band::Green)).sees_space("b"));
    }

    #[test]
    fn who_does_not_administer_does_not_see_acts() {
        let other = Sight::default().of_one_who(false, true);
        assert!(
            other.is_whole()
                && !other.sees_all()
                && other.sees_told(&json!({"space": "_system", "topic": "a.b"}))
        );
        let act = json!({"space": "_system", "topic": "engine.audit.groups.seek"});
        assert!(!other.sees_told(&act) && Sight::default().of_one_who(true, true).sees_told(&act));
        for topic in ["engine.request.answered", "engine.push.disabled", "engine.imported.audit.x"] {
            let told = json!({"space": "_system", "topic": topic});
            assert!(!other.sees_told(&told) && Sight::default().of_one_who(true, true).sees_told(&told));
            assert!(!other.covers(&Definition::parse(&json!({ "pattern": topic })).unwrap()), "{topic}");
        }
        let row = json!({"space": "_system", "topic": "graph.node.created.v1:everwhen:token"});
        assert!(!other.sees_told(&row) && Sight::default().of_one_who(true, true).sees_told(&row));
        let group = |pattern: &str| Definition::parse(&json!({ "pattern": pattern })).unwrap();
        assert!(
            !other.covers(&group("graph.node.created.v1:everwhen:token")) && other.covers(&group("graph.#"))
        );
        assert!(!other.covers(&group("engine.audit.#")) && other.covers(&group("engine.#")));
        assert!(!other.takes_all_of(&group("engine.#")) && other.takes_all_of(&group("#")));
        assert!(other.narrowed(json!({"pattern": ["a", "engine.audit.*"]})).is_err());
    }

    #[test]
    fn a_group_of_who_sees_a_part_is_one_over_that_part() {
        let narrow = sight(&["a"], Some(Band::Amber));
        let made = narrow.narrowed(json!({"pattern": "#"})).unwrap();
        assert_eq!((&made["space"], &made["max_band"]), (&json!("a"), &json!("amber")));
        for wrong in [json!({"pattern": "#", "space": "b"}), json!({"pattern": "#", "max_band": "black"})] {
            assert_eq!(narrow.narrowed(wrong).unwrap_err().code(), Code::AuthDenied);
        }
        let two = sight(&["a", "b"], None);
        assert_eq!(two.narrowed(json!({"pattern": "#"})).unwrap_err().pointer(), Some("/space"));
        assert!(two.narrowed(json!({"pattern": "#", "space": "b"})).is_ok());
        let group = |text: &str| Definition::parse(&serde_json::from_str(text).unwrap()).unwrap();
        let (all, one) = (group(r##"{"pattern":"#"}"##), group(r##"{"pattern":"#","space":"a"}"##));
        assert!(two.meets(&all) && !two.covers(&all) && two.covers(&one) && !narrow.covers(&one));
    }
}
