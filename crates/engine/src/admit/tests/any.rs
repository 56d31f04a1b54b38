//! Whatever arrives, admission answers: random texts and objects through every reader, with every kind of
//! rule.

use super::*;
use crate::entropy::Entropy;
use crate::settings::{AttentionRule, Detector, Rate, RedactRule, SchemaRule, Verdict};

const ROUNDS: usize = 4_000;

fn pick<'a>(chance: &mut Entropy, words: &[&'a str]) -> &'a str {
    words[chance.number() as usize % words.len()]
}

/// A JSON value: often right for some field, often not.
fn value(chance: &mut Entropy, depth: usize) -> String {
    let scalars = [
        "null",
        "true",
        "0",
        "5",
        "-1",
        "1.5",
        "1e300",
        "18446744073709551616",
        "\"\"",
        "\"a.b\"",
        "\"_x\"",
        "\"42\"",
        "\"2026-01-01T00:00:00Z\"",
        "\"30s\"",
        "\"red\"",
        "\"1.0\"",
        "\"a@b.org\"",
        "\"4111 1111 1111 1111\"",
        "\"\\u0000\"",
        "\"\\ud83d\\ude00\"",
        "\"\\n\"",
        "\"e30=\"",
        "\"text/plain\"",
        "\"{\\\"a\\\":1}\"",
    ];
    match chance.number() % 8 {
        0 if depth > 0 => {
            let items: Vec<String> = (0..chance.number() % 4).map(|_| value(chance, depth - 1)).collect();
            format!("[{}]", items.join(if chance.number().is_multiple_of(2) { "," } else { " ,\n" }))
        }
        1 if depth > 0 => {
            object(chance, &["a", "b", "kind", "id", "secret", "a\\u0062", "x/y", "topic"], depth - 1)
        }
        _ => pick(chance, &scalars).to_owned(),
    }
}

fn object(chance: &mut Entropy, names: &[&str], depth: usize) -> String {
    let count = chance.number() % 6;
    let members: Vec<String> =
        (0..count).map(|_| format!("\"{}\":{}", pick(chance, names), value(chance, depth))).collect();
    format!("{{{}}}", members.join(","))
}

/// An object with a word that makes it likely to pass, and fields of every reader.
fn event(chance: &mut Entropy) -> String {
    let names = [
        "topic",
        "payload",
        "id",
        "space",
        "time",
        "source",
        "subject",
        "cause",
        "trace",
        "key",
        "ttl",
        "priority",
        "band",
        "schema",
        "type",
        "caused_by",
        "sequence",
        "content_type",
        "ext",
        "data",
        "data_base64",
        "ewext",
        "ewsubject",
        "datacontenttype",
        "meta",
        "offset",
        "entity_id",
        "entity_type",
        "other",
    ];
    let head = pick(
        chance,
        &[
            r#""topic":"a.b""#,
            r#""specversion":"1.0","type":"a","id":"e","source":"s""#,
            r#""event_type":"a""#,
            r#""x":1"#,
        ],
    );
    let rest = object(chance, &names, 3);
    if rest == "{}" { format!("{{{head}}}") } else { format!("{{{head},{}", &rest[1..]) }
}

fn strict() -> Admitter {
    let all = || pattern("#");
    let schema = SchemaRule { topic: all(), name: "s".into(), schema: json!({"not": {"const": 5}}) };
    let redact = RedactRule {
        topic: all(),
        drop: vec!["$..secret".into()],
        mask: vec!["$.payload.a".into()],
        hash: vec!["$.ext.b".into(), "$.payload[1]".into()],
        detectors: Detector::ALL.to_vec(),
    };
    let drop = AttentionRule {
        topic: all(),
        filter: Some(json!("event.payload.b == \"x\" || size(event.ext) > 2")),
        rate: Some(Rate { events: 1, per: std::time::Duration::from_secs(1) }),
        verdict: Verdict::Drop,
    };
    admitter(&Settings {
        schemas: vec![schema],
        redactions: vec![redact],
        attention: vec![drop],
        ..Settings::default()
    })
}

fn read_every_way(bytes: &[u8]) -> Vec<Draft> {
    let limits = &Limits::default();
    let header = std::str::from_utf8(bytes).unwrap_or("x");
    let headers =
        [("ce-specversion", "1.0"), ("ce-type", "a"), ("ce-id", "e"), ("ce-source", "s"), ("ce-x", header)];
    let mut drafts: Vec<Draft> = [
        Draft::parse(bytes, limits),
        Draft::parse_exported(bytes, limits),
        Draft::from_cloudevent(bytes, limits),
        Draft::from_cloudevent_headers(headers, None, bytes, limits),
        Draft::from_cloudevent_headers(headers, Some("text/plain"), bytes, limits),
        Draft::from_seed003(bytes, limits),
        Draft::from_bus_line("a", bytes),
    ]
    .into_iter()
    .filter_map(Result::ok)
    .collect();
    drafts.extend(Draft::parse_array(bytes, limits).unwrap_or_default());
    drafts.extend(Draft::from_cloudevent_batch(bytes, limits).unwrap_or_default());
    drafts
}

/// What was admitted can be written, read back and shown.
fn check_admitted(prepared: Prepared) {
    let text = prepared.event.to_json();
    assert!(!text.contains('\n'), "{text}");
    model::json::check(text.as_bytes(), usize::MAX).unwrap();
    let body = prepared.record.body.unwrap().json;
    assert_eq!(Content::from_body(Some(&body)).unwrap().payload(), prepared.event.content.payload());
    if prepared.record.kind == "event" {
        let envelope: Envelope = serde_json::from_slice(&prepared.record.data).unwrap();
        assert_eq!(envelope, prepared.event.envelope);
    }
    let cloud = to_cloudevent(&prepared.event);
    Draft::from_cloudevent(cloud.as_bytes(), &Limits::default()).unwrap();
}

#[test]
fn admission_never_panics_and_what_it_admits_can_be_read_back() {
    let seed = 20_260_101;
    println!("seed {seed}");
    let mut chance = Entropy::seeded(seed);
    let admitters = [admitter(&Settings::default()), strict()];
    let mut admitted = 0;
    for round in 0..ROUNDS {
        let mut bytes = event(&mut chance).into_bytes();
        // Every fourth one is damaged at some byte.
        if round.is_multiple_of(4) {
            let at = chance.number() as usize % bytes.len();
            bytes[at] = chance.number() as u8;
        }
        for draft in read_every_way(&bytes) {
            let admitter = &admitters[round % 2];
            if let Ok(Admission::Prepared(prepared)) = admit(admitter, draft) {
                admitted += 1;
                check_admitted(prepared);
            }
        }
    }
    assert!(admitted > ROUNDS / 4, "the generator makes too little that is admitted: {admitted}");
}
