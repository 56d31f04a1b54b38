//! How much of a tenant somebody sees: the spaces and the highest band of their token. Pure.

use std::sync::Arc;

use model::event::{Band, Event};
use model::group::Definition;
use model::{Code, Problem};
use serde_json::Value;

/// What may be seen and said; the default is everything. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight(Option<Arc<Edges>>);

#[derive(Debug, PartialEq, Eq)]
struct Edges {
    /// Empty: every space.
    spaces: Vec<String>,
    max_band: Option<Band>,
}

impl Sight {
    pub fn new(spaces: &[String], max_band: Option<Band>) -> Sight {
        let whole = spaces.is_empty() && max_band.is_none();
        Sight((!whole).then(|| Arc::new(Edges { spaces: spaces.to_vec(), max_band })))
    }

    pub fn is_whole(&self) -> bool {
        self.0.is_none()
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
        self.is_whole() || self.sees(&event.envelope.space, event.envelope.band)
    }

    /// As [`Sight::sees_event`], of an event as it is told. What is no event is not seen.
    pub fn sees_told(&self, event: &Value) -> bool {
        let Some(space) = event["space"].as_str() else { return self.is_whole() };
        let band = event["band"].as_str().and_then(Band::parse).unwrap_or_default();
        self.sees(space, band)
    }

    fn spaces(&self) -> &[String] {
        self.0.as_ref().map_or(&[], |edges| &edges.spaces)
    }

    fn max_band(&self) -> Option<Band> {
        self.0.as_ref().and_then(|edges| edges.max_band)
    }

    /// The space that is meant when none is named: the only one there is.
    pub fn only_space(&self) -> Option<&str> {
        match self.spaces() {
            [space] => Some(space),
            _ => None,
        }
    }

    /// Whether all that such a group may deliver is seen.
    pub fn covers(&self, group: &Definition) -> bool {
        let space = self.spaces().is_empty() || group.space.as_ref().is_some_and(|one| self.sees_space(one));
        space && self.sees_band(group.max_band)
    }

    /// Whether something that such a group may deliver is seen.
    pub fn meets(&self, group: &Definition) -> bool {
        group.space.as_ref().is_none_or(|space| self.sees_space(space))
    }

    /// A group over everything is, for who sees only a part, one over that part.
    pub fn narrowed(&self, mut group: Value) -> Result<Value, Problem> {
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
