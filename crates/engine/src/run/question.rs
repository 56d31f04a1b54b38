//! What a person must know to answer: the form of a question in words, and a command that answers it, both read from a wait as
//! it is told, so that whoever shows one near or far says the same.

use serde_json::{Map, Value};

/// The fields of the form, such as `amount double!, why string`; `!`: it must be there. Empty without a form.
pub fn form(wait: &Value) -> String {
    let word = |field: &Value| {
        let must = if field["required"] == true { "!" } else { "" };
        format!("{} {}{must}", bare(&field["name"]), type_word(&field["type"]))
    };
    fields(wait).iter().map(word).collect::<Vec<_>>().join(", ")
}

/// The answers that may be given, as they are typed. Empty: any.
pub fn answers(wait: &Value) -> Vec<String> {
    match wait["options"].as_array() {
        Some(options) => options.iter().map(bare).collect(),
        None if wait["approve"] == true => vec!["yes".to_owned(), "no".to_owned()],
        None => Vec::new(),
    }
}

/// A line for a shell that answers it. What is in it came from elsewhere in part, so every word of it is quoted. Who
/// `goes_by_token` answers in the token's name, whatever `--as` would say.
pub fn command(wait: &Value, goes_by_token: bool) -> String {
    let mut line = format!("everwhen waits answer {}", quoted(&bare(&wait["id"])));
    if let Some(actor) = actor(&wait["to"]).filter(|_| !goes_by_token) {
        line.push_str(&format!(" --as {}", quoted(&actor)));
    }
    let value = typed(&example(wait));
    let end = if value.starts_with('-') { " --" } else { "" };
    format!("{line}{end} {}", quoted(&value))
}

/// An answer that fits.
fn example(wait: &Value) -> Value {
    let options = wait["options"].as_array().and_then(|options| options.first());
    let (form, approves) = (fields(wait), wait["approve"] == true);
    match options {
        Some(first) => first.clone(),
        None if form.is_empty() && approves => "yes".into(),
        None if form.is_empty() => "ANSWER".into(),
        None => {
            let must = |field: &&Value| field["required"] == true;
            let mut filled: Map<String, Value> = Map::new();
            if approves {
                filled.insert("approved".to_owned(), true.into());
            }
            let any_must = form.iter().any(|field| must(&field));
            let shown = form.iter().filter(|field| must(field) || !any_must);
            filled.extend(shown.map(|field| (bare(&field["name"]), like(&field["type"]))));
            filled.into()
        }
    }
}

fn fields(wait: &Value) -> &[Value] {
    wait["form"].as_array().map_or(&[], Vec::as_slice)
}

/// A value of a type, to be written over.
fn like(of: &Value) -> Value {
    match of.as_str() {
        Some("int" | "double") => 0.into(),
        Some("bool") => true.into(),
        Some("timestamp") => "2026-01-31T09:30:00Z".into(),
        Some("duration") => "5m".into(),
        Some(_) => "TEXT".into(),
        None if of["enum"].is_array() => of["enum"][0].clone(),
        None if !of["list"].is_null() => Value::Array(Vec::new()),
        None if !of["reference"].is_null() => "ID".into(),
        None => Value::Object(Map::new()),
    }
}

fn type_word(of: &Value) -> String {
    match (of.as_str(), of["enum"].as_array()) {
        (Some(word), _) => word.to_owned(),
        (_, Some(values)) => values.iter().map(bare).collect::<Vec<_>>().join("|"),
        _ => of.as_object().and_then(|of| of.keys().next().cloned()).unwrap_or_default(),
    }
}

/// Who answers where nobody is asked for a token; the first of several.
fn actor(to: &Value) -> Option<String> {
    match to {
        Value::Array(several) => several.iter().find_map(actor),
        Value::String(who) if who == "*" || who.starts_with("token:") => None,
        Value::String(who) if who.contains(':') => Some(who.clone()),
        Value::String(who) => Some(format!("user:{who}")),
        _ => None,
    }
}

/// A text without its quotes, anything else as JSON.
fn bare(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// As it must be typed to be read as this value: a text that reads like other JSON keeps its quotes.
fn typed(value: &Value) -> String {
    match value.as_str() {
        Some(text) if serde_json::from_str::<Value>(text).is_err() => text.to_owned(),
        _ => value.to_string(),
    }
}

/// One word of a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_command_answers_with_what_fits_and_says_nothing_to_the_shell() {
        for (wait, line) in [
            (json!({"id": "run_1.1"}), "ANSWER"),
            (json!({"id": "run_1.1", "approve": true}), "yes"),
            (json!({"id": "run_1.1", "options": ["it's; ok", "no"]}), r"'it'\''s; ok'"),
            (json!({"id": "run_1.1", "options": ["5"]}), r#"'"5"'"#),
            (json!({"id": "run_1.1", "options": [-5]}), "-- -5"),
            (json!({"id": "run_1.1", "to": ["*", "$(x)"], "options": [1]}), "--as 'user:$(x)' 1"),
            (json!({"id": "run_1.1", "to": "token:ann", "options": [1]}), "1"),
            (
                json!({"id": "run_1.1", "approve": true, "form": [
                    {"name": "size", "type": {"enum": ["s", "m"]}, "required": true}, {"name": "why", "type": "string"},
                ]}),
                r#"'{"approved":true,"size":"s"}'"#,
            ),
        ] {
            assert_eq!(command(&wait, false), format!("everwhen waits answer run_1.1 {line}"));
        }
    }

    #[test]
    fn who_goes_by_a_token_is_told_no_name_to_answer_in() {
        let wait = json!({"id": "run_1.1", "to": "ann", "options": [1]});
        assert_eq!(command(&wait, true), "everwhen waits answer run_1.1 1");
    }
}
