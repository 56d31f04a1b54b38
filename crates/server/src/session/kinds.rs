//! Seed 000's numbers: what a subscription of each kind hears, and what kind an event is. Pure.
//!
//! ```text
//!   100 telemetry.#   200 message.#   300 query.#   400 ai.# and si.#   500 graph.#
//!   550 the filter itself             600 automation.#                  700 everything
//! ```

use model::topic::Pattern;
use model::{Code, Problem};
use serde_json::Value;

/// A kind, its name in the seed, and the first words that it means.
const KINDS: [(u64, &str, &[&str]); 8] = [
    (100, "TELEMETRY", &["telemetry"]),
    (200, "MESSAGE", &["message"]),
    (300, "QUERY_SPEC", &["query"]),
    (400, "AI_STREAM", &["ai", "si"]),
    (500, "GRAPH_EVENTS", &["graph"]),
    (550, "DOMAIN_EVENTS", &[]),
    (600, "AUTOMATION_EVENTS", &["automation"]),
    (700, "ALL", &[]),
];

/// `#` is about what users say; who wants everything names what the engine says about itself, too.
const EVERYTHING: [&str; 6] =
    ["#", "automation.#", "engine.#", "query.#", "session.#", "workflow.dispatch_failed"];

/// What a subscription of this kind hears; a filter stands behind the kind's own word.
pub fn patterns(kind: &Value, filter: &str) -> Result<Vec<Pattern>, Problem> {
    let (number, _, words) = KINDS.iter().find(|known| is_named(known, kind)).ok_or_else(|| {
        let known: Vec<String> = KINDS.iter().map(|(number, ..)| number.to_string()).collect();
        Problem::new(Code::RequestInvalid, format!("{kind} is no kind of subscription"))
            .hint(format!("one of {}", known.join(", ")))
            .at("/payload/subscribe/kind")
    })?;
    let filter = filter.trim();
    let texts: Vec<String> = match (words, filter) {
        ([], "") if *number == 700 => EVERYTHING.map(str::to_owned).to_vec(),
        ([], "") => vec!["#".to_owned()],
        ([], filter) => vec![filter.to_owned()],
        (words, "") => words.iter().map(|word| format!("{word}.#")).collect(),
        (words, filter) => words.iter().map(|word| format!("{word}.{filter}")).collect(),
    };
    let read =
        |text: &String| Pattern::parse(text).map_err(|problem| problem.at("/payload/subscribe/filter"));
    texts.iter().map(read).collect()
}

fn is_named((number, name, _): &(u64, &str, &[&str]), kind: &Value) -> bool {
    kind.as_u64() == Some(*number)
        || kind.as_str().and_then(|text| text.strip_prefix("SUBSCRIPTION_KIND_")) == Some(name)
}

/// What kind of event a topic is, as a number and as a word.
pub fn of_topic(topic: &str) -> (u32, &'static str) {
    let mut words = topic.split('.');
    let next = [(); 3].map(|()| words.next().unwrap_or_default());
    match next {
        ["telemetry", ..] => (100, "telemetry"),
        ["message", ..] => (200, "message"),
        ["graph", "node", "created"] => (301, "node_created"),
        ["graph", "node", "deleted"] => (302, "node_deleted"),
        ["graph", "node", "updated"] => (303, "node_updated"),
        ["graph", ..] => (300, "graph_update"),
        ["query", "executed", ""] => (400, "query_executed"),
        ["ai" | "si", "completion", "started"] => (501, "si_completion_started"),
        ["ai" | "si", "completion", "finished"] => (502, "si_completion_finished"),
        ["ai" | "si", "completion", "error"] => (503, "si_completion_error"),
        ["ai" | "si", ..] => (500, "si_event"),
        ["session", "opened", ""] => (600, "session_opened"),
        ["session", "closed", ""] => (601, "session_closed"),
        ["automation", "started", ""] => (700, "automation_started"),
        ["automation", "completed", ""] => (701, "automation_completed"),
        ["automation", "failed", ""] => (702, "automation_failed"),
        ["automation", "step", "started"] => (703, "automation_step_started"),
        ["automation", "step", "completed"] => (704, "automation_step_completed"),
        ["automation", "step", "failed"] => (705, "automation_step_failed"),
        _ => (0, "unspecified"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(kind: Value, filter: &str) -> Vec<String> {
        patterns(&kind, filter).unwrap().iter().map(|pattern| pattern.as_str().to_owned()).collect()
    }

    #[test]
    fn a_filter_stands_behind_the_word_of_its_kind() {
        assert_eq!(texts(json!(500), "node.created.*"), ["graph.node.created.*"]);
        assert_eq!(texts(json!(500), ""), ["graph.#"]);
        assert_eq!(texts(json!(400), ""), ["ai.#", "si.#"]);
        assert_eq!(texts(json!(400), "completion.*"), ["ai.completion.*", "si.completion.*"]);
        assert_eq!(texts(json!(550), "price.*"), ["price.*"]);
        assert_eq!(texts(json!("SUBSCRIPTION_KIND_AUTOMATION_EVENTS"), ""), ["automation.#"]);
        assert!(texts(json!(700), "").contains(&"automation.#".to_owned()));
        assert_eq!(patterns(&json!(5), "").unwrap_err().code(), Code::RequestInvalid);
        assert_eq!(patterns(&json!(500), "a..b").unwrap_err().code(), Code::PatternInvalid);
    }

    #[test]
    fn events_have_the_numbers_of_the_seed() {
        for (topic, number) in [
            ("graph.node.created.v1:x:y", 301),
            ("graph.other", 300),
            ("si.completion.error", 503),
            ("session.closed", 601),
            ("automation.step.failed", 705),
            ("price.changed", 0),
        ] {
            assert_eq!(of_topic(topic).0, number, "{topic}");
        }
    }
}
