//! 39,244 real edits: topics and filters must count what an independent count found.

use std::process::Command;

use lang::filter::Filter;
use model::topic::Pattern;
use model::topic::trie::Trie;
use serde_json::{Value, json};

use crate::vectors::{folder, suite};

/// The edits as events, unpacked by the machine's own gzip.
fn events() -> Option<Vec<Value>> {
    let file = folder()?.join("data/events-wikipedia/wikiticker-2015-09-12-sampled.json.gz");
    let unpacked = Command::new("gzip").arg("-dc").arg(file).output().expect("gzip is installed");
    assert!(unpacked.status.success());
    let text = String::from_utf8(unpacked.stdout).unwrap();
    let event = |line: &str| {
        let edit: Value = serde_json::from_str(line).unwrap();
        json!({"topic": topic_of(&edit), "payload": edit})
    };
    Some(text.lines().map(event).collect())
}

fn topic_of(edit: &Value) -> String {
    let language = edit["channel"].as_str().unwrap().trim_start_matches('#').trim_end_matches(".wikipedia");
    let namespace = edit["namespace"].as_str().unwrap_or("none").to_lowercase();
    let word =
        |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c) { c } else { '_' };
    let namespace: String = namespace.chars().map(word).collect();
    let kind = if edit["isNew"] == true { "new" } else { "edit" };
    format!("wikipedia.{language}.{namespace}.{kind}")
}

/// The vector's filter in our words: as an expression, and as JSON where one says it.
fn ours(filter: &str) -> (&'static str, Option<Value>) {
    let field = |name: &str, op: &str, value: Value| json!({"field": format!("payload.{name}"), op: value});
    match filter {
        "namespace in ['Talk','User talk','Wikipedia']" => (
            "payload.namespace in ['Talk', 'User talk', 'Wikipedia']",
            Some(field("namespace", "in", json!(["Talk", "User talk", "Wikipedia"]))),
        ),
        "user startsWith 'Bot' || user endsWith 'Bot'" => (
            "payload.user.startsWith('Bot') || payload.user.endsWith('Bot')",
            Some(
                json!({"or": [field("user", "prefix", json!("Bot")), field("user", "suffix", json!("Bot"))]}),
            ),
        ),
        "deleted > 100 && added == 0" => (
            "payload.deleted > 100 && payload.added == 0",
            Some(json!({"and": [field("deleted", "gt", json!(100)), field("added", "eq", json!(0))]})),
        ),
        "metroCode >= 500 && metroCode < 600" => (
            "event.payload.metroCode >= 500 && event.payload.metroCode < 600",
            Some(
                json!({"and": [field("metroCode", "gte", json!(500)), field("metroCode", "lt", json!(600))]}),
            ),
        ),
        "page contains 'ü'" => ("payload.page.contains('ü')", Some(field("page", "contains", json!("ü")))),
        "channel == '#en.wikipedia' && !isRobot && delta > 500" => {
            ("payload.channel == '#en.wikipedia' && !payload.isRobot && payload.delta > 500", None)
        }
        "isRobot == true" => ("payload.isRobot == true", Some(field("isRobot", "eq", json!(true)))),
        "isMinor && isNew" => ("payload.isMinor && payload.isNew", None),
        "countryIsoCode == 'US'" => (
            "payload.countryIsoCode == 'US'",
            Some(json!({"jsonpath": "$.payload.countryIsoCode", "eq": "US"})),
        ),
        other => panic!("a filter without a translation: {other}"),
    }
}

#[test]
fn wikipedia_truth_by_topic_and_by_filter() {
    let (Some(cases), Some(events)) = (suite("wikipedia_truth"), events()) else { return };
    assert_eq!(events.len(), 39_244);
    let mut counted = 0;
    for case in &cases {
        let want = case["count"].as_u64().unwrap() as usize;
        match case["source"].as_str().unwrap() {
            "wikipedia topic-count" => {
                let pattern = Pattern::parse(case["pattern"].as_str().unwrap()).unwrap();
                let mut trie = Trie::new();
                trie.insert(&pattern, 1);
                let topic = |event: &Value| event["topic"].as_str().unwrap().to_owned();
                assert_eq!(events.iter().filter(|e| pattern.matches(&topic(e))).count(), want, "{case}");
                let mut found = Vec::new();
                events.iter().for_each(|event| trie.matches(&topic(event), &mut found));
                assert_eq!(found.len(), want, "{case} by the trie");
            }
            "wikipedia filter-count" => {
                let (expression, other) = ours(case["filter"].as_str().unwrap());
                for filter in [Some(json!(expression)), other].into_iter().flatten() {
                    let filter = Filter::parse(&filter).unwrap();
                    let passes = |event: &&Value| filter.test(event).unwrap_or(false);
                    assert_eq!(events.iter().filter(passes).count(), want, "{case}");
                }
            }
            _ => continue,
        }
        counted += 1;
    }
    assert_eq!(counted, 18, "nine counts by topic and nine by filter");
}
