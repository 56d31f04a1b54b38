//! Secrets on their way out: a mark in what is written down, the value in the request, `***` in what comes back.
//!
//! ```text
//!  "Bearer " + secret("pay")  ─▶  ledger, history, explain:  Bearer {{secret("pay")}}
//!                                 the request alone:         Bearer sk_live_1
//!                                 what it answers:           no such key ***
//! ```

use std::collections::BTreeSet;

use model::{Code, Problem};
use serde_json::Value;

use super::mask::{Masker, masked};
use crate::run::Marks;

/// The marks that stand for these secrets in a request that says `bare` besides: none of them occurs there.
pub fn marks(names: &BTreeSet<String>, bare: &Value) -> Marks {
    let tried = |turn: u64| -> Marks {
        let mark = |name: &String| match turn {
            0 => format!("{{{{secret(\"{name}\")}}}}"),
            turn => format!("{{{{secret(\"{name}\")#{turn}}}}}"),
        };
        names.iter().map(|name| (name.clone(), mark(name))).collect()
    };
    let free = |marks: &Marks| !marks.values().any(|mark| says(bare, mark));
    (0..).map(tried).find(free).unwrap_or_default()
}

fn says(value: &Value, mark: &str) -> bool {
    match value {
        Value::String(text) => text.contains(mark),
        Value::Array(items) => items.iter().any(|item| says(item, mark)),
        Value::Object(map) => map.iter().any(|(key, item)| key.contains(mark) || says(item, mark)),
        _ => false,
    }
}

/// What one attempt of one effect knows of secrets: the values as they are now, for the request, and their mask.
pub struct Veil {
    /// Mark, name and value; `None`: nobody has set it.
    marks: Vec<(String, String, Option<String>)>,
    masker: Masker,
}

impl Veil {
    /// `value` of each secret that is named.
    pub fn new(
        marks: &Marks,
        value: impl Fn(&str) -> Result<Option<String>, Problem>,
    ) -> Result<Veil, Problem> {
        let filled = marks.iter().map(|(name, mark)| Ok((mark.clone(), name.clone(), value(name)?)));
        let marks = filled.collect::<Result<Vec<_>, Problem>>()?;
        let masker = Masker::new(marks.iter().filter_map(|(.., value)| value.as_deref()));
        Ok(Veil { marks, masker })
    }

    /// The request with values for marks. For the wire, and for nothing else.
    pub fn lift(&self, with: &Value) -> Result<Value, Problem> {
        Ok(match with {
            Value::String(text) => self.lift_text(text)?.into(),
            Value::Array(items) => items.iter().map(|item| self.lift(item)).collect::<Result<_, _>>()?,
            Value::Object(map) => {
                let pairs = map.iter().map(|(key, item)| Ok((key.clone(), self.lift(item)?)));
                Value::Object(pairs.collect::<Result<_, Problem>>()?)
            }
            other => other.clone(),
        })
    }

    fn lift_text(&self, text: &str) -> Result<String, Problem> {
        let (mut out, mut rest) = (String::new(), text);
        // One pass: what a secret says is not looked at for marks.
        while let Some((at, (mark, name, value))) =
            self.marks.iter().filter_map(|of| Some((rest.find(&of.0)?, of))).min_by_key(|(at, _)| *at)
        {
            let value = value.as_deref().ok_or_else(|| absent(name))?;
            out += &rest[..at];
            out += value;
            rest = &rest[at + mark.len()..];
        }
        Ok(out + rest)
    }

    /// What came back, without the values.
    pub fn mask(&self, value: Value) -> Value {
        masked(&self.masker, value)
    }

    pub fn mask_text(&self, text: &str) -> String {
        self.masker.text(text)
    }
}

pub fn absent(name: &str) -> Problem {
    Problem::new(Code::SecretNotFound, format!("there is no secret \"{name}\""))
        .hint(format!("`everwhen secret set {name}` sets it; `everwhen secret list` shows what is there"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_mark_is_one_that_nobody_else_wrote() {
        let names = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        let forged = json!({"body": [r#"{{secret("b")}}"#, {r#"{{secret("a")#1}}"#: 1}]});
        let chosen = marks(&names, &forged);
        assert_eq!(chosen["a"], r#"{{secret("a")#2}}"#);
        let veil = Veil::new(&chosen, |name| Ok(Some(format!("value-of-{name}")))).unwrap();
        assert_eq!(veil.lift(&forged).unwrap(), forged, "what others wrote stays text");
        let with = json!({"url": format!("x/{}/{}", chosen["a"], chosen["b"]), "n": 1});
        assert_eq!(veil.lift(&with).unwrap(), json!({"url": "x/value-of-a/value-of-b", "n": 1}));
    }

    #[test]
    fn a_value_that_reads_like_a_mark_is_not_filled_in_again() {
        let marks = marks(&BTreeSet::from(["a".to_owned(), "b".to_owned()]), &json!(null));
        let value = |name: &str| Ok(Some(if name == "a" { r#"{{secret("b")}}"# } else { "bbbb" }.to_owned()));
        let veil = Veil::new(&marks, value).unwrap();
        assert_eq!(veil.lift(&json!(marks["a"])).unwrap(), json!(r#"{{secret("b")}}"#));
    }

    #[test]
    fn only_a_secret_that_is_used_must_be_there() {
        let marks = marks(&BTreeSet::from(["a".to_owned(), "b".to_owned()]), &json!(null));
        let veil = Veil::new(&marks, |name| Ok((name == "a").then(|| "value".to_owned()))).unwrap();
        assert_eq!(veil.lift(&json!(marks["a"])).unwrap(), json!("value"));
        assert_eq!(veil.lift(&json!(marks["b"])).unwrap_err().code(), Code::SecretNotFound);
    }
}
