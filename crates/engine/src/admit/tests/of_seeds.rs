//! The wire formats of seeds 002 and 003.

use super::*;

fn seed003(text: &str) -> Result<Draft, Problem> {
    Draft::from_seed003(text.as_bytes(), &Limits::default())
}

#[test]
fn seed_003s_columns_become_fields() {
    let text = r#"{"event_type":"price.changed","entity_type":"item","entity_id":"10472","payload":{"new":9.50},
        "caused_by":"sync:tier=1","source_system":"sync","occurred_at":"2026-01-01T00:00:00Z","idempotency_key":"k"}"#;
    let event = prepared(admit(&admitter(&Settings::default()), seed003(text).unwrap())).event;
    let text = event.to_seed_row();
    assert!(text.ends_with(r#","payload":{"new":9.50}}"#), "{text}");
    let row: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (column, want) in [
        ("event_type", "price.changed"),
        ("entity_type", "item"),
        ("entity_id", "10472"),
        ("payload_json", r#"{"new":9.50}"#),
        ("caused_by", "sync:tier=1"),
        ("source_system", "sync"),
        ("occurred_at", "2026-01-01T00:00:00Z"),
        ("idempotency_key", "k"),
    ] {
        assert_eq!(row[column], want, "{column}");
    }
}

#[test]
fn seed_003_may_leave_columns_out_or_null_but_not_invent_them() {
    let draft = seed003(r#"{"event_type":"a","entity_type":null,"entity_id":null,"payload":null}"#).unwrap();
    assert_eq!((draft.subject, draft.payload.get()), (None, "{}"));
    assert_eq!(seed003(r#"{"event_type":"a","entity_id":"7"}"#).unwrap().subject.unwrap().kind, "");
    let table = [
        ("{}", "event.invalid at /event_type: \"event_type\" is missing"),
        (r#"{"event_type":"a","entity_type":"x"}"#, "event.invalid at /entity_id: \"entity_id\" is missing"),
        (r#"{"event_type":"a","topic":"b"}"#, "event.invalid at /topic: unknown field \"topic\""),
        (
            r#"{"event_type":"a","occurred_at":5}"#,
            "event.invalid at /occurred_at: \"occurred_at\" is 5, not text",
        ),
    ];
    for (text, want) in table {
        let problem = seed003(text).expect_err(text);
        assert!(shown(&problem).starts_with(want), "{text}: {}", shown(&problem));
    }
}

#[test]
fn a_line_of_seed_002s_bus_becomes_an_event() {
    let line = r#"{"offset":1287,"meta":{"topic":"actions","type":"ACTION_EXECUTED","space_id":"shared:household",
        "event_id":"ev-1","ts":"2025-09-06T10:00:00.250000+00:00","actor":"device:phone1","device":"phone1",
        "trace_id":"t-1","idem_key":"act:a1|ok","ttl_sec":30,"extra":null},"payload":{"ok":true}}"#;
    let draft = Draft::from_bus_line("file", line.as_bytes()).unwrap();
    let event = prepared(admit(&admitter(&Settings::default()), draft)).event.to_value();
    for (field, want) in [
        ("topic", json!("actions")),
        ("type", json!("ACTION_EXECUTED")),
        ("space", json!("shared:household")),
        ("id", json!("ev-1")),
        ("time", json!("2025-09-06T10:00:00.25Z")),
        ("key", json!("act:a1|ok")),
        ("ttl", json!(30)),
        ("ext", json!({"actor": "device:phone1", "device": "phone1", "trace_id": "t-1"})),
        ("payload", json!({"ok": true})),
    ] {
        assert_eq!(event[field], want, "{field}");
    }
}

#[test]
fn times_and_traces_of_the_bus_are_understood_in_every_form_it_wrote() {
    let meta = |meta: &str| Draft::from_bus_line("actions", format!("{{\"meta\":{meta}}}").as_bytes());
    for ts in [r#""2026-01-01T00:00:00""#, r#""2026-01-01 00:00:00Z""#, "1767225600", "1767225600.0"] {
        assert_eq!(meta(&format!("{{\"ts\":{ts}}}")).unwrap().time, Some(now()), "{ts}");
    }
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    assert_eq!(meta(&format!("{{\"trace_id\":\"{trace}\"}}")).unwrap().trace.as_deref(), Some(trace));
    assert_eq!(meta("{}").unwrap().topic, "actions");
    assert_eq!(meta("[]").unwrap_err().pointer(), Some("/meta"));
    assert_eq!(meta(r#"{"ts":"noon"}"#).unwrap_err().pointer(), Some("/meta/ts"));
    assert_eq!(Draft::from_bus_line("a", b"{}").unwrap_err().pointer(), Some("/meta"));
}
