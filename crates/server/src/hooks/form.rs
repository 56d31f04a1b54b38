//! Deliveries that come as a form, as Slack's commands and GitHub's older hooks do: read as JSON, after the signature was
//! checked over the bytes as they came.

use model::{Code, Problem};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::query::decode;

const FORM: &str = "application/x-www-form-urlencoded";

/// Whether it is to be read as one. Nobody has signed the content type: bytes that are JSON are JSON whatever it says, or a delivery that
/// somebody caught could be sent again as another.
pub fn is_form(content_type: Option<&str>, bytes: &[u8]) -> bool {
    let media = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    media.eq_ignore_ascii_case(FORM) && serde_json::from_slice::<&RawValue>(bytes).is_err()
}

/// The JSON of the field `payload` if the form has one; else an object of its fields, those given twice as lists.
pub fn to_json(bytes: &[u8]) -> Result<String, Problem> {
    let wrong = || Problem::new(Code::JsonInvalid, "the form is not percent-encoded UTF-8");
    let text = std::str::from_utf8(bytes).map_err(|_| wrong())?;
    let mut fields = Map::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decode(name).ok_or_else(wrong)?.into_owned();
        let value = decode(value).ok_or_else(wrong)?.into_owned();
        if name == "payload" {
            return Ok(value);
        }
        match fields.get_mut(&name) {
            None => drop(fields.insert(name, value.into())),
            Some(Value::Array(all)) => all.push(value.into()),
            Some(one) => *one = Value::Array(vec![one.take(), value.into()]),
        }
    }
    Ok(Value::Object(fields).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_its_payload_or_its_fields() {
        assert_eq!(to_json(b"payload=%7B%22a%22%3A1.50%7D").unwrap(), "{\"a\":1.50}");
        let read: Value = serde_json::from_str(&to_json(b"text=a+b&x=1&x=2&x=3&empty").unwrap()).unwrap();
        assert_eq!(read, serde_json::json!({"text": "a b", "x": ["1", "2", "3"], "empty": ""}));
        assert!(to_json(b"a=%FF").is_err() && to_json(b"a=%2").is_err());
        let form = Some("Application/x-www-form-urlencoded; charset=utf-8");
        assert!(is_form(form, b"a=1") && !is_form(None, b"a=1"));
        assert!(!is_form(form, br#" {"a":1}"#) && !is_form(form, b"7"));
    }
}
