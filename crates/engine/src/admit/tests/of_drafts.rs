//! What clients may say and how they are told that they may not (contracts §2).

use super::*;

#[test]
fn every_field_of_the_contract_is_read_and_kept() {
    let text = r#"{"id":"e-1","topic":"price.changed","space":"shop","time":"2026-01-01T02:00:00+02:00",
        "source":"erp","subject":{"kind":"item","id":"10472"},"cause":40,"trace":"00-a-b-01","key":"k1","ttl":60,
        "priority":3,"band":"amber","schema":"s","type":"changed","caused_by":"sync:tier=1","sequence":-7,
        "content_type":"application/json","ext":{"device":"phone1"},"payload":{"new":9.50}}"#;
    let mut event = (*prepared(publish(text)).event).clone();
    (event.position, event.recorded_at) = (42, now());
    let want = r#"{"id":"e-1","position":42,"topic":"price.changed","space":"shop","time":"2026-01-01T00:00:00Z","recorded_at":"2026-01-01T00:00:00Z","actor":"user:local","source":"erp","subject":{"kind":"item","id":"10472"},"cause":40,"depth":1,"trace":"00-a-b-01","key":"k1","ttl":60,"priority":3,"band":"amber","schema":"s","type":"changed","caused_by":"sync:tier=1","sequence":-7,"content_type":"application/json","ext":{"device":"phone1"},"payload":{"new":9.50}}"#;
    assert_eq!(event.to_json(), want);
}

#[test]
fn a_topic_is_enough() {
    let prepared = prepared(publish(r#"{"topic":"a"}"#));
    let envelope = &prepared.event.envelope;
    assert_eq!(envelope.space, "default");
    assert_eq!(envelope.id.len(), 26);
    assert_eq!((envelope.depth, envelope.time, envelope.ttl_ms), (0, None, None));
    assert_eq!(prepared.event.content.payload(), Some("{}"));
    assert_eq!(prepared.fingerprint, None);
    assert_eq!((prepared.record.kind, prepared.record.version), ("event", 1));
    let data: Value = serde_json::from_slice(&prepared.record.data).unwrap();
    let want = json!({"id": envelope.id, "topic": "a", "space": "default", "actor": "user:local"});
    assert_eq!(data, want);
}

#[test]
fn any_json_value_is_a_payload_and_comes_back_digit_for_digit() {
    for payload in
        ["null", "true", "\"x\"", "1.10", "123456789012345678901234567890", "[]", "[1,{\"a\":-0.0}]"]
    {
        let prepared = prepared(publish(&format!("{{\"topic\":\"a\",\"payload\":{payload}}}")));
        assert_eq!(prepared.event.content.payload(), Some(payload));
        let want = format!("{{\"payload\":{payload}}}");
        assert_eq!(*prepared.record.body.unwrap().json, *want);
    }
}

#[test]
fn a_payload_of_several_lines_becomes_one_line() {
    let prepared =
        prepared(publish("{\"topic\":\"a\",\"ext\":{\r\n\"x\":\n1},\"payload\":{\n\"a\":\"l1\\nl2\"\n}}"));
    assert_eq!(prepared.event.content.payload(), Some(r#"{ "a":"l1\nl2" }"#));
    assert!(!prepared.event.to_json().contains(['\n', '\r']));
}

/// What is refused, and how its answer begins.
const REFUSED: &[(&str, &str)] = &[
    (r#"{"topic":"a""#, "json.invalid"),
    (r#"{"topic":"a","topic":"b"}"#, "json.duplicate_key at /topic"),
    (r#"{"topic":"a","payload":{"x":[{"k":1,"k":2}]}}"#, "json.duplicate_key at /payload/x/0/k"),
    ("[]", "event.invalid at -: the event is not a JSON object"),
    ("{}", "event.invalid at /topic: \"topic\" is missing (add \"topic\")"),
    (r#"{"topic":7}"#, "event.invalid at /topic: \"topic\" is 7, not text (write text)"),
    (r#"{"topic":""}"#, "event.topic_invalid at /topic: topic \"\" is empty"),
    (r#"{"topic":"a..b"}"#, "event.topic_invalid at /topic: topic \"a..b\" has an empty word"),
    (r#"{"topic":"a.*"}"#, "event.topic_invalid at /topic: topic \"a.*\" has a wildcard '*'"),
    (
        r#"{"topic":"engine.x"}"#,
        "event.topic_reserved at /topic: topic \"engine.x\" is published by the engine only (choose a first word",
    ),
    (r#"{"topic":"graph.node.created.x"}"#, "event.topic_reserved at /topic"),
    (r#"{"topic":"automation"}"#, "event.topic_reserved at /topic"),
    (r#"{"topic":"workflow.dispatch_failed"}"#, "event.topic_reserved at /topic"),
    (r#"{"topic":"a","space":"_system"}"#, "event.invalid at /space: space \"_system\" is reserved"),
    (r#"{"topic":"a","space":""}"#, "event.space_required at /space"),
    (r#"{"topic":"a","space":"a b"}"#, "event.invalid at /space: \"space\" has ' ', which is not a visible"),
    (r#"{"topic":"a","id":""}"#, "event.invalid at /id: \"id\" has 0 characters, not 1 to 128"),
    (r#"{"topic":"a","id":"42"}"#, "event.invalid at /id: \"id\" \"42\" is digits only"),
    (r#"{"topic":"a","id":"stream"}"#, "event.invalid at /id: \"id\" \"stream\" could not be asked for"),
    (
        r#"{"topic":"a","id":"a\tb"}"#,
        "event.invalid at /id: \"id\" has '\\t', which is not a visible character",
    ),
    (r#"{"topic":"a","key":""}"#, "event.invalid at /key: \"key\" is empty (leave the field out)"),
    (
        r#"{"topic":"a","source":null}"#,
        "event.invalid at /source: \"source\" is null, not text (leave the field",
    ),
    (r#"{"topic":"a","source":"x\u0000"}"#, "event.invalid at /source: \"source\" has a control character"),
    (
        r#"{"topic":"a","time":"today"}"#,
        "event.invalid at /time: \"time\": \"today\" is not an RFC 3339 instant",
    ),
    (
        r#"{"topic":"a","subject":"item/1"}"#,
        "event.invalid at /subject: \"subject\" is \"item/1\", not an object",
    ),
    (r#"{"topic":"a","subject":{"kind":"x"}}"#, "event.invalid at /subject"),
    (r#"{"topic":"a","subject":{"kind":"x","id":5}}"#, "event.invalid at /subject/id: \"id\" is 5, not text"),
    (
        r#"{"topic":"a","subject":{"kind":"x","id":"1","no":1}}"#,
        "event.invalid at /subject/no: unknown field",
    ),
    (r#"{"topic":"a","subject":{"kind":"","id":""}}"#, "event.invalid at /subject/id: \"id\" is empty"),
    (r#"{"topic":"a","cause":0}"#, "event.invalid at /cause: \"cause\" is 0, not a position"),
    (r#"{"topic":"a","cause":-1}"#, "event.invalid at /cause"),
    (r#"{"topic":"a","ttl":"soon"}"#, "event.invalid at /ttl: \"ttl\" is \"soon\", not a duration"),
    (r#"{"topic":"a","ttl":-1}"#, "event.invalid at /ttl"),
    (
        r#"{"topic":"a","priority":10}"#,
        "event.invalid at /priority: \"priority\" is 10, not an integer from 0 to 9",
    ),
    (r#"{"topic":"a","priority":1.5}"#, "event.invalid at /priority"),
    (
        r#"{"topic":"a","band":"pink"}"#,
        "event.invalid at /band: \"band\" is \"pink\", not one of green, amber,",
    ),
    (r#"{"topic":"a","sequence":1.5}"#, "event.invalid at /sequence: \"sequence\" is 1.5, not an integer"),
    (r#"{"topic":"a","ext":[1]}"#, "event.invalid at /ext: \"ext\" is [1], not an object of extensions"),
    (
        r#"{"topic":"a","content_type":"text/plain"}"#,
        "event.invalid at /payload: \"payload\" is not base64 text, as content type \"text/plain\" needs",
    ),
    (r#"{"topic":"a","content_type":"image/png","payload":"no!"}"#, "event.invalid at /payload"),
    (
        r#"{"topic":"a","payloda":{}}"#,
        "event.invalid at /payloda: unknown field \"payloda\" (did you mean \"payload\"? what is your own goes",
    ),
    (
        r#"{"topic":"a","position":1}"#,
        "event.invalid at /position: unknown field \"position\" (known are topic,",
    ),
    (r#"{"topic":"a","actor":"user:me"}"#, "event.invalid at /actor"),
    (r#"{"topic":"a","a/b~c":1}"#, "event.invalid at /a~1b~0c"),
];

#[test]
fn a_wrong_event_is_refused_by_name_and_place() {
    for (text, want) in REFUSED {
        let problem = publish(text).expect_err(text);
        assert!(shown(&problem).starts_with(want), "{text}\n  is:   {}\n  want: {want}", shown(&problem));
    }
}

#[test]
fn what_is_allowed_at_the_edge_is_allowed() {
    let id = "é".repeat(128);
    let texts = [
        format!(r#"{{"topic":"a","id":"{id}"}}"#),
        r#"{"topic":"engines.x"}"#.to_owned(),
        r#"{"topic":"workflow.dispatch"}"#.to_owned(),
        r#"{"topic":"a","space":"shared:household"}"#.to_owned(),
        r#"{"topic":"a","subject":{"kind":"","id":"x"}}"#.to_owned(),
        r#"{"topic":"a","ttl":"PT5M","priority":9,"band":"black","cause":18446744073709551615}"#.to_owned(),
        r#"{"topic":"a","content_type":"image/png","payload":"iVBORw=="}"#.to_owned(),
        r#"{"topic":"a","content_type":"application/ld+json; charset=utf-8","payload":{"x":1}}"#.to_owned(),
        r#" { "topic" : "a" } "#.to_owned(),
    ];
    for text in texts {
        prepared(publish(&text));
    }
    assert!(publish(&format!(r#"{{"topic":"a","id":"{id}x"}}"#)).is_err());
}

#[test]
fn payloads_have_a_longest_and_a_deepest() {
    let settings = Settings { max_payload: 10, max_depth: 4, ..Settings::default() };
    let admitter = admitter(&settings);
    let publish = |payload: &str| {
        let text = format!("{{\"topic\":\"a\",\"payload\":{payload}}}");
        Draft::parse(text.as_bytes(), &settings.limits()).and_then(|draft| admit(&admitter, draft))
    };
    assert!(publish("\"12345678\"").is_ok());
    let problem = publish("\"123456789\"").unwrap_err();
    let want =
        "body.too_large at /payload: \"payload\" has 11 bytes, more than 10 (put large content elsewhere";
    assert!(shown(&problem).starts_with(want), "{}", shown(&problem));
    assert!(publish("[[[]]]").is_ok());
    assert_eq!(publish("[[[[]]]]").unwrap_err().code(), Code::JsonInvalid);
}

/// A draft that nobody read as text is held to the same.
#[test]
fn a_draft_built_in_process_is_checked_like_any_other() {
    let admitter = admitter(&Settings::default());
    let raw = |text: &str| serde_json::value::RawValue::from_string(text.to_owned()).unwrap();
    let codes = [
        (Draft::new("a b", &1), Code::EventTopicInvalid),
        (Draft::new("a", &raw(r#"{"k":1,"k":2}"#)), Code::JsonDuplicateKey),
        (Draft::new("a", &std::collections::HashMap::from([((1, 2), 3)])), Code::JsonInvalid),
        (Draft::new("a", &raw(&format!("{}{}", "[".repeat(128), "]".repeat(128)))), Code::JsonInvalid),
        (Draft { priority: 200, ..Draft::new("a", &1) }, Code::EventInvalid),
        (Draft { cause: Some(0), ..Draft::new("a", &1) }, Code::EventInvalid),
        (Draft { ext: Some(raw("[]")), ..Draft::new("a", &1) }, Code::EventInvalid),
        (Draft::new("a", &"x".repeat(1 << 20)), Code::BodyTooLarge),
    ];
    for (draft, code) in codes {
        let text = format!("{draft:.100?}");
        assert_eq!(admit(&admitter, draft).unwrap_err().code(), code, "{text}");
    }
    prepared(admit(&admitter, Draft::new("a", &raw(&format!("{}{}", "[".repeat(127), "]".repeat(127))))));
}

#[test]
fn an_array_is_read_whole_or_refused_at_its_element() {
    let limits = Limits::default();
    let drafts = Draft::parse_array(br#"[{"topic":"a"},{"topic":"b","payload":[1]}]"#, &limits).unwrap();
    assert_eq!(drafts.iter().map(|draft| draft.topic.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let problem = Draft::parse_array(br#"[{"topic":"a"},{"topic":"b","prio":1}]"#, &limits).unwrap_err();
    assert_eq!(problem.pointer(), Some("/1/prio"));
    assert_eq!(Draft::parse_array(b"[1]", &limits).unwrap_err().pointer(), Some("/0"));
    assert_eq!(Draft::parse_array(b"{}", &limits).unwrap_err().code(), Code::EventInvalid);
    let many = |count: usize, bytes: usize| {
        let one = format!("{{\"topic\":\"a\",\"payload\":\"{}\"}}", "x".repeat(bytes));
        format!("[{}]", vec![one; count].join(","))
    };
    assert_eq!(Draft::parse_array(many(1_000, 1).as_bytes(), &limits).unwrap().len(), 1_000);
    assert_eq!(
        Draft::parse_array(many(1_001, 1).as_bytes(), &limits).unwrap_err().code(),
        Code::BodyTooLarge
    );
    let problem = Draft::parse_array(many(3, 400_000).as_bytes(), &limits).unwrap_err();
    assert_eq!((problem.code(), problem.pointer()), (Code::BodyTooLarge, Some("/2/payload")));
    let deep = format!("[{{\"topic\":\"a\",\"payload\":{}{}}}]", "[".repeat(127), "]".repeat(127));
    assert!(Draft::parse_array(deep.as_bytes(), &limits).is_ok());
}

#[test]
fn an_exported_event_leaves_behind_what_its_ledger_gave_it() {
    let first =
        prepared(publish(r#"{"topic":"a","id":"e1","key":"k","time":"2026-01-01T00:00:00Z","cause":3}"#));
    let text = Event { position: 9, ..(*first.event).clone() }.to_json();
    assert!(Draft::parse(text.as_bytes(), &Limits::default()).is_err());
    let draft = Draft::parse_exported(text.as_bytes(), &Limits::default()).unwrap();
    assert_eq!((draft.cause, draft.id.as_deref(), draft.key.as_deref()), (None, Some("e1"), Some("k")));
    assert_eq!(draft.time, Some(now()));
}
