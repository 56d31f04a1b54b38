//! What must not be stored is not.

use super::*;
use crate::settings::{Detector, RedactRule};

fn rule() -> RedactRule {
    RedactRule { topic: pattern("user.#"), drop: vec![], mask: vec![], hash: vec![], detectors: vec![] }
}

/// Payload and ext after redaction, as text.
fn redacted(rule: RedactRule, payload: &str, ext: Option<&str>) -> (String, Option<String>) {
    let admitter = admitter(&Settings { redactions: vec![rule], ..Settings::default() });
    let mut draft = Draft::with_payload("user.new".into(), raw(payload).into());
    draft.ext = ext.map(raw);
    let prepared = prepared(admit(&admitter, draft));
    let content = &prepared.event.content;
    assert_eq!(body(&prepared)["payload"], parse(content.payload().unwrap()));
    (content.payload().unwrap().to_owned(), content.ext().map(str::to_owned))
}

fn payload_after(rule: RedactRule, payload: &str) -> String {
    redacted(rule, payload, None).0
}

#[test]
fn nodes_are_dropped_masked_or_hashed_and_the_rest_stays_digit_for_digit() {
    let paths = |list: &[&str]| list.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
    let drop = |path: &str| RedactRule { drop: paths(&[path]), ..rule() };
    let mask = |path: &str| RedactRule { mask: paths(&[path]), ..rule() };
    let table = [
        (drop("$.payload.password"), r#"{"password":"x","n":1.10}"#, r#"{"n":1.10}"#),
        (drop("$.payload.b"), r#"{ "a" : 1, "b" : {"c":[1,2]}, "d" : 1e3 }"#, r#"{"a":1,"d":1e3}"#),
        (drop("$.payload['p\\u0061ss']"), r#"{"p\u0061ss":1,"ok":2}"#, r#"{"ok":2}"#),
        (drop("$.payload[1]"), "[1,2,3]", "[1,3]"),
        (drop("$.payload[*]"), "[1,2,3]", "[]"),
        (drop("$.payload"), r#"{"a":1}"#, "{}"),
        (drop("$..secret"), r#"{"secret":1,"a":[{"secret":"}\"{","b":-0.0}]}"#, r#"{"a":[{"b":-0.0}]}"#),
        (
            mask("$.payload.card.number"),
            r#"{"card":{"number":4111,"exp":"1/30"}}"#,
            r#"{"card":{"number":"***","exp":"1/30"}}"#,
        ),
        (mask("$.payload"), r#"[1]"#, r#""***""#),
        (
            mask("$.payload.users[?@.vip].name"),
            r#"{"users":[{"vip":true,"name":"a"},{"name":"b"}]}"#,
            r#"{"users":[{"vip":true,"name":"***"},{"name":"b"}]}"#,
        ),
        (mask("$.payload.absent"), r#"{ "as" :  "it is" }"#, r#"{ "as" :  "it is" }"#),
    ];
    for (rule, payload, want) in table {
        let path = format!("{:?}{:?}", rule.drop, rule.mask);
        assert_eq!(payload_after(rule, payload), want, "{path}");
    }
}

#[test]
fn a_hash_is_equal_for_equal_values_and_shows_nothing() {
    let hash = |payload| payload_after(RedactRule { hash: vec!["$.payload.ssn".into()], ..rule() }, payload);
    let first = hash(r#"{"ssn":{"a":1,"b":2}}"#);
    assert!(first.starts_with(r#"{"ssn":"sha256:"#) && first.len() == 7 + 7 + 1 + 64 + 2, "{first}");
    assert_eq!(first, hash(r#"{"ssn":{"b":2.0,"a":1}}"#));
    assert_ne!(first, hash(r#"{"ssn":{"b":3,"a":1}}"#));
}

#[test]
fn of_several_actions_on_a_node_the_strongest_wins() {
    let path = || vec!["$.payload.x".to_owned()];
    let all = RedactRule { drop: path(), mask: path(), hash: path(), ..rule() };
    assert_eq!(payload_after(all, r#"{"x":1}"#), "{}");
    let two = RedactRule { hash: path(), mask: path(), ..rule() };
    assert_eq!(payload_after(two, r#"{"x":1}"#), r#"{"x":"***"}"#);
}

#[test]
fn detectors_mask_inside_strings_and_card_numbers_at_any_depth() {
    let rule = RedactRule { detectors: Detector::ALL.to_vec(), ..rule() };
    let payload = r#"{"a":["mail ann\u0040example.org \"now\"",{"c":"4111 1111 1111 1111"}],"n":4111111111111111,"k@x.org":1.0,"at":1700000000004}"#;
    let want = r#"{"a":["mail *** \"now\"",{"c":"***"}],"n":"***","k@x.org":1.0,"at":1700000000004}"#;
    assert_eq!(payload_after(rule, payload), want);
}

#[test]
fn extensions_are_redacted_too() {
    let drop = |path: &str| RedactRule { drop: vec![path.to_owned()], ..rule() };
    let ext = |rule, ext| redacted(rule, "{}", Some(ext)).1;
    assert_eq!(ext(drop("$.ext.token"), r#"{"token":"x","b":1}"#).as_deref(), Some(r#"{"b":1}"#));
    assert_eq!(ext(drop("$.ext"), r#"{"token":"x"}"#), None);
    let mail = RedactRule { detectors: vec![Detector::Email], ..rule() };
    assert_eq!(ext(mail, r#"{"from":"a@b.org"}"#).as_deref(), Some(r#"{"from":"***"}"#));
}

#[test]
fn the_whole_event_redacted_leaves_no_content() {
    let all = RedactRule { drop: vec!["$".into()], ..rule() };
    assert_eq!(redacted(all, r#"{"a":1}"#, Some(r#"{"b":1}"#)), ("{}".to_owned(), None));
}

#[test]
fn content_that_is_not_json_goes_as_a_whole_or_stays() {
    let coded = |rule| {
        let admitter = admitter(&Settings { redactions: vec![rule], ..Settings::default() });
        let mut draft = Draft::new("user.new", &"YUBiLm9yZw==");
        draft.content_type = Some("text/plain".into());
        prepared(admit(&admitter, draft)).event.content.payload().unwrap().to_owned()
    };
    assert_eq!(coded(RedactRule { detectors: Detector::ALL.to_vec(), ..rule() }), "\"YUBiLm9yZw==\"");
    assert_eq!(coded(RedactRule { mask: vec!["$.payload".into()], ..rule() }), "\"\"");
}

#[test]
fn other_topics_and_a_switched_off_layer_are_left_alone() {
    let rule = RedactRule { drop: vec!["$.payload.x".into()], ..rule() };
    let mut settings = Settings { redactions: vec![rule], ..Settings::default() };
    let payload = |settings: &Settings, topic: &str| {
        prepared(admit(&admitter(settings), Draft::new(topic, &json!({"x": 1}))))
            .event
            .content
            .payload()
            .unwrap()
            .len()
    };
    assert_eq!((payload(&settings, "user.a"), payload(&settings, "order.a")), (2, 7));
    settings.switches.redaction = false;
    assert_eq!(payload(&settings, "user.a"), 7);
}

#[test]
fn a_retry_of_a_redacted_event_is_the_same_event() {
    let rule = RedactRule { drop: vec!["$.payload.x".into()], ..rule() };
    let admitter = admitter(&Settings { redactions: vec![rule], ..Settings::default() });
    let print = |payload| {
        prepared(admit(&admitter, Draft { key: Some("k".into()), ..Draft::new("user.a", &payload) }))
            .fingerprint
    };
    assert_eq!(print(json!({"x": 1, "y": 2})), print(json!({"y": 2})));
}

#[test]
fn hashes_may_not_grow_a_payload_beyond_its_limit() {
    let rule = RedactRule { hash: vec!["$.payload[*]".into()], ..rule() };
    let settings = Settings { redactions: vec![rule], max_payload: 100, ..Settings::default() };
    let problem = admit(&admitter(&settings), Draft::new("user.a", &[1; 20])).unwrap_err();
    assert_eq!(problem.code(), Code::BodyTooLarge);
}

#[test]
fn a_path_that_cannot_work_is_said_when_the_rule_is_read() {
    let problem = |path: &str| {
        let rule = RedactRule { mask: vec![path.to_owned()], ..rule() };
        let settings = Settings { redactions: vec![rule], ..Settings::default() };
        Admitter::new(&settings, Vec::new()).err().map(|problem| shown(&problem))
    };
    let want = "config.invalid at -: [[redact]] rule 1: path \"$.subject.id\" reads \"subject\"; only payload and ext \
                can be redacted (begin it with $.payload or $.ext)";
    assert_eq!(problem("$.subject.id").as_deref(), Some(want));
    assert!(problem("payload.x").unwrap().starts_with("config.invalid at -: [[redact]] rule 1: JSONPath"));
    assert_eq!(problem("$..x"), None);
}

#[test]
fn a_rule_for_everything_leaves_what_the_engine_says_of_itself() {
    let rule = RedactRule { topic: pattern("#"), drop: vec!["$.payload.x".into()], ..rule() };
    let settings = Settings { redactions: vec![rule], ..Settings::default() };
    let engine = Caller { outside: false, ..Caller::local() };
    let after = |topic: &str| {
        let draft = Draft::new(topic, &json!({"x": 1}));
        let admitted = admit_at(&admitter(&settings), &engine, draft, now());
        prepared(admitted).event.content.payload().unwrap().to_owned()
    };
    assert_eq!(after("engine.request.answered"), r#"{"x":1}"#);
    assert_eq!(after("graph.node.created.v1:a:b"), "{}");
}
