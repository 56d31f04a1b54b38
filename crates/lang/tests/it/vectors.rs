//! `shared/vectors`, read from beside the repository, through the same lines that `everwhen try` takes.

use std::path::PathBuf;

use lang::try_lines::{Kind, try_line};
use model::Timestamp;
use serde_json::{Map, Value, json};

/// Where the vectors are; `None`, said aloud, on a machine without them. CI must have them.
pub fn folder() -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("NOT RUN: {} is not there, so the vectors were not tried", folder.display());
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must have shared/vectors");
    None
}

pub fn suite(name: &str) -> Option<Vec<Value>> {
    let text = std::fs::read_to_string(folder()?.join(format!("{name}.json"))).unwrap();
    let suite: Value = serde_json::from_str(&text).unwrap();
    Some(suite["cases"].as_array().unwrap().clone())
}

pub fn answer(kind: Kind, case: &Value) -> Map<String, Value> {
    let answer: Map<String, Value> =
        serde_json::from_str(&try_line(kind, &case.to_string(), Timestamp::EPOCH)).unwrap();
    assert_eq!(answer.get("id"), case.get("id"), "the id comes back");
    answer
}

fn tagged(case: &Value, tag: &str) -> bool {
    case["tags"].as_array().is_some_and(|tags| tags.iter().any(|t| t == tag))
}

fn has_empty_word(topic: &Value) -> bool {
    topic.as_str().is_some_and(|topic| !topic.is_empty() && topic.split('.').any(str::is_empty))
}

#[test]
fn topic_match() {
    let Some(cases) = suite("topic_match") else { return };
    let mut tried = 0;
    for case in &cases {
        // vectors/README.md: a glob inside a word is a glob here; a topic with an empty word matches nothing.
        let other_rule =
            tagged(case, "embedded-wildcard") || (has_empty_word(&case["topic"]) && case["match"] == true);
        if !other_rule {
            assert_eq!(answer(Kind::Topic, case)["match"], case["match"], "{case}");
            tried += 1;
        }
    }
    println!("topic_match: {tried} of {} cases, the rest follow another rule", cases.len());
    assert!(tried >= 290);
}

#[test]
fn topic_route() {
    let Some(cases) = suite("topic_route") else { return };
    for case in &cases {
        let mut want: Vec<&str> =
            case["expect"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
        want.sort_unstable();
        if has_empty_word(&case["topic"]) {
            want.clear();
        }
        assert_eq!(answer(Kind::Topic, case)["names"], json!(want), "{case}");
    }
}

#[test]
fn jsonpath_cts() {
    let Some(cases) = suite("jsonpath_cts") else { return };
    for case in &cases {
        let got = answer(Kind::Jsonpath, case);
        if case["invalid_selector"] == true {
            assert_eq!(got["error"]["code"], "jsonpath.invalid", "{case}");
            continue;
        }
        let any_of = |one: &str, many: &str, got: &Value| match &case[many] {
            Value::Array(right) => right.contains(got),
            _ => case.get(one).is_none_or(|right| right == got),
        };
        assert!(any_of("result", "results", &got["result"]), "{case}\n{got:?}");
        assert!(any_of("result_paths", "results_paths", &got["result_paths"]), "{case}\n{got:?}");
    }
}

#[test]
fn github_filters() {
    let (Some(cases), Some(folder)) = (suite("github_filters"), folder()) else { return };
    let payloads = std::fs::read_to_string(folder.join("github_payloads.json")).unwrap();
    let payloads: Value = serde_json::from_str(&payloads).unwrap();
    let payload = |file: &Value| {
        let all = payloads["cases"].as_array().unwrap();
        all.iter().find(|p| &p["file"] == file).unwrap()["payload"].clone()
    };
    for case in &cases {
        let document = payload(&case["file"]);
        let got =
            answer(Kind::Jsonpath, &json!({"id": case["id"], "query": case["query"], "document": document}));
        let pairs = |paths: &Value, values: Option<&Value>| {
            let values = values.and_then(Value::as_array).cloned().unwrap_or_default();
            let paths = paths.as_array().unwrap().iter().map(|p| p.as_str().unwrap().to_owned());
            let mut pairs: Vec<(String, Option<String>)> =
                paths.enumerate().map(|(n, path)| (path, values.get(n).map(Value::to_string))).collect();
            pairs.sort();
            pairs
        };
        let values = case.get("values").map(|_| &got["result"]);
        assert_eq!(pairs(&got["result_paths"], values), pairs(&case["paths"], case.get("values")), "{case}");
        // The same path as a filter on an event that carries the payload.
        let filter = json!({"filter": {"jsonpath": case["query"]}, "event": document});
        let found = answer(Kind::Filter, &filter);
        assert_eq!(found["match"], json!(!case["paths"].as_array().unwrap().is_empty()), "{case}");
    }
}

#[test]
fn json_torture() {
    let Some(cases) = suite("json_torture") else { return };
    for case in &cases {
        let bytes = base64(case["bytes_b64"].as_str().unwrap());
        let got = model::json::check(&bytes, 128);
        match (case["expect"].as_str().unwrap(), case["name"].as_str().unwrap()) {
            (_, "y_object_duplicated_key.json" | "y_object_duplicated_key_and_value.json") => {
                assert_eq!(got.unwrap_err().code().as_str(), "json.duplicate_key", "{case}");
            }
            ("accept", _) => assert_eq!(got, Ok(()), "{case}"),
            ("reject", _) => assert_eq!(got.unwrap_err().code().as_str(), "json.invalid", "{case}"),
            (either, _) => assert_eq!(either, "either"),
        }
    }
}

fn base64(text: &str) -> Vec<u8> {
    let value = |b: u8| match b {
        b'A'..=b'Z' => b - b'A',
        b'a'..=b'z' => b - b'a' + 26,
        b'0'..=b'9' => b - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u8> = text.bytes().filter(|b| *b != b'=').map(value).collect();
    let mut out = Vec::new();
    for chunk in digits.chunks(4) {
        let word = chunk.iter().fold(0u32, |word, d| word << 6 | u32::from(*d)) << (6 * (4 - chunk.len()));
        out.extend(&word.to_be_bytes()[1..chunk.len()]);
    }
    out
}
