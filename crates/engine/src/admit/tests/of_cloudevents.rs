//! CloudEvents 1.0 in three modes, and back.

use super::*;

fn structured(text: &str) -> Result<Prepared, Problem> {
    let draft = Draft::from_cloudevent(text.as_bytes(), &Limits::default())?;
    admit(&admitter(&Settings::default()), draft).map(|admission| prepared(Ok(admission)))
}

fn binary(headers: &[(&str, &str)], content_type: Option<&str>, body: &[u8]) -> Result<Prepared, Problem> {
    let draft =
        Draft::from_cloudevent_headers(headers.iter().copied(), content_type, body, &Limits::default())?;
    admit(&admitter(&Settings::default()), draft).map(|admission| prepared(Ok(admission)))
}

/// The event of the conformance suite, `yaml_v1.yaml`.
const CONFORMANCE: [(&str, &str); 7] = [
    ("ce-specversion", "1.0"),
    ("ce-type", "com.example.someevent"),
    ("ce-time", "2018-04-05T03:56:24Z"),
    ("ce-id", "4321-4321-4321"),
    ("ce-source", "/mycontext/subcontext"),
    ("ce-comexampleextension1", "value"),
    ("ce-comexampleextension2", r#"{"othervalue": 5}"#),
];

#[test]
fn structured_and_binary_mode_say_the_same() {
    let structured = structured(
        r#"{"specversion":"1.0","type":"com.example.someevent","time":"2018-04-05T03:56:24Z","id":"4321-4321-4321",
            "source":"/mycontext/subcontext","comexampleextension1":"value","comexampleextension2":"{\"othervalue\": 5}",
            "datacontenttype":"application/json","data":{"world":"hello"}}"#,
    );
    let binary = binary(&CONFORMANCE, Some("application/json"), b"{\"world\":\"hello\"}\n");
    let (structured, binary) = (structured.unwrap().event, binary.unwrap().event);
    assert_eq!(structured.to_json(), binary.to_json());
    let value = structured.to_value();
    assert_eq!(value["topic"], "com.example.someevent");
    assert_eq!(value["source"], "/mycontext/subcontext");
    assert_eq!(value["time"], "2018-04-05T03:56:24Z");
    assert_eq!(value["key"], "/mycontext/subcontext 4321-4321-4321");
    assert_eq!(value["payload"], json!({"world": "hello"}));
    assert_eq!(
        value["ext"],
        json!({"comexampleextension1": "value", "comexampleextension2": "{\"othervalue\": 5}"})
    );
}

/// The events of the conformance suite's `yaml_v1.0_v1_minimum.yaml`, in binary mode.
#[test]
fn every_kind_of_data_in_the_conformance_suite_is_kept() {
    let minimum = [
        ("text/plain; charset=us-ascii", "Hello, World!\n", json!("SGVsbG8sIFdvcmxkIQo=")),
        ("text/plain; charset=utf-8", "Hello, 🌎!\n", json!("SGVsbG8sIPCfjI4hCg==")),
        ("application/json; charset=utf-8", "\"Hello, 🌎!\"\n", json!("Hello, 🌎!")),
        ("application/json; charset=utf-8", "{\"msg\":\"Hello, 🌎!\"}\n", json!({"msg": "Hello, 🌎!"})),
        ("application/json; charset=utf-8", "[\"Hello\",\"🌎!\"]\n", json!(["Hello", "🌎!"])),
        (
            "application/xml; charset=utf-8",
            "<msg>Hello, 🌎!</msg>\n",
            json!("PG1zZz5IZWxsbywg8J+MjiE8L21zZz4K"),
        ),
    ];
    for (content_type, data, payload) in minimum {
        let headers = [
            ("Ce-SpecVersion", "1.0"),
            ("CE-Type", "io.cloudevents.minimum"),
            ("ce-id", "conformance-0001"),
            ("ce-source", "//github.com/cloudevents/cloudeventsconformance/yaml/v1.yaml"),
        ];
        let event = binary(&headers, Some(content_type), data.as_bytes()).unwrap().event;
        assert_eq!(event.to_value()["payload"], payload, "{data}");
        assert_eq!(event.envelope.content_type.as_deref(), Some(content_type));
    }
}

#[test]
fn our_extensions_are_fields_also_when_they_come_as_text() {
    let json = r#"{"specversion":"1.0","type":"a","id":"e","source":"s","space":"shop","key":"k","band":"red","ttl":60,
        "priority":5,"cause":7,"traceparent":"00-t-s-01","dataschema":"http://x/y","subject":"item/1/2"}"#;
    let headers = [
        ("ce-specversion", "1.0"),
        ("ce-type", "a"),
        ("ce-id", "e"),
        ("ce-source", "s"),
        ("ce-space", "shop"),
        ("ce-key", "k"),
        ("ce-band", "red"),
        ("ce-ttl", "1m"),
        ("ce-priority", "5"),
        ("ce-cause", "7"),
        ("ce-traceparent", "00-t-s-01"),
        ("ce-dataschema", "http://x/y"),
        ("ce-subject", "item/1/2"),
        ("user-agent", "foo"),
    ];
    let one = structured(json).unwrap().event;
    assert_eq!(one.to_json(), binary(&headers, None, b"").unwrap().event.to_json());
    let envelope = &one.envelope;
    assert_eq!((envelope.priority, envelope.cause, envelope.ttl_ms), (5, Some(7), Some(60_000)));
    assert_eq!((envelope.key.as_deref(), one.content.ext()), (Some("k"), None));
    assert_eq!(envelope.subject, Some(Subject { kind: "item".into(), id: "1/2".into() }));
    assert_eq!(one.content.payload(), Some("{}"));
}

#[test]
fn headers_are_unquoted_and_percent_decoded() {
    let headers = [
        ("ce-specversion", "1.0"),
        ("ce-type", "a"),
        ("ce-id", "e"),
        ("ce-source", "s"),
        ("ce-who", "\"Eur\\\"o%20%E2%82%AC 100%\""),
    ];
    let event = binary(&headers, None, b"1").unwrap().event;
    assert_eq!(event.to_value()["ext"]["who"], "Eur\"o € 100%");
    let bad = [("ce-who", "%FF")];
    let problem = binary(&bad, None, b"").unwrap_err();
    assert_eq!((problem.code(), problem.pointer()), (Code::EventInvalid, Some("/who")));
}

#[test]
fn data_in_base64_is_bytes_unless_its_type_is_json() {
    let with = |rest: &str| {
        structured(&format!(r#"{{"specversion":"1.0","type":"a","id":"e","source":"s",{rest}}}"#))
            .map(|prepared| prepared.event.content.payload().unwrap().to_owned())
            .map_err(|problem| shown(&problem))
    };
    assert_eq!(with(r#""datacontenttype":"image/png","data_base64":"iVBORw==""#).unwrap(), "\"iVBORw==\"");
    assert_eq!(with(r#""data_base64":"eyJhIjoxLjB9""#).unwrap(), r#"{"a":1.0}"#);
    assert_eq!(with(r#""data_base64":"iVBORw==""#).unwrap(), "\"iVBORw==\"");
    assert_eq!(with(r#""datacontenttype":"text/plain","data":"hi""#).unwrap(), "\"aGk=\"");
    assert_eq!(with(r#""datacontenttype":"text/plain""#).unwrap(), "\"\"");
    assert_eq!(with(r#""data":null,"ext1":null"#).unwrap(), "null");
    let table = [
        (r#""data_base64":"!!""#, "event.invalid at /data_base64: \"data_base64\" is not base64 text"),
        (
            r#""data_base64":"e30=","data":1"#,
            "event.invalid at /data_base64: both \"data\" and \"data_base64\"",
        ),
        (r#""datacontenttype":"application/json","data_base64":"eyJhIjo=""#, "json.invalid at /data_base64"),
    ];
    for (rest, want) in table {
        let problem = with(rest).unwrap_err();
        assert!(problem.starts_with(want), "{rest}: {problem}");
    }
}

#[test]
fn what_is_no_cloudevent_is_refused_by_name() {
    let table = [
        (
            r#"{"type":"a","id":"e","source":"s"}"#,
            "event.invalid at /specversion: \"specversion\" is missing",
        ),
        (
            r#"{"specversion":"0.3","type":"a","id":"e","source":"s"}"#,
            "event.invalid at /specversion: specversion \"0.3\" is not \"1.0\" (send CloudEvents 1.0)",
        ),
        (r#"{"specversion":"1.0","id":"e","source":"s"}"#, "event.invalid at /type: \"type\" is missing"),
        (r#"{"specversion":"1.0","type":"a","source":"s"}"#, "event.invalid at /id: \"id\" is missing"),
        (r#"{"specversion":"1.0","type":"a","id":"e"}"#, "event.invalid at /source: \"source\" is missing"),
        (r#"{"specversion":"1.0","type":"a","id":"e","source":""}"#, "event.invalid at /source"),
        (r#"{"specversion":"1.0","type":"a b","id":"e","source":"s"}"#, "event.topic_invalid at /topic"),
        (r#"{"specversion":"1.0","type":"engine.x","id":"e","source":"s"}"#, "event.topic_reserved"),
        (
            r#"{"specversion":"1.0","type":"a","id":"e","source":"s","ewext":"[1]"}"#,
            "event.invalid at /ewext",
        ),
        (r#"{"specversion":"1.0","type":"a","id":"e","source":"s","ewext":"{"}"#, "json.invalid at /ewext"),
        ("[]", "event.invalid"),
    ];
    for (text, want) in table {
        let problem = structured(text).expect_err(text);
        assert!(shown(&problem).starts_with(want), "{text}: {}", shown(&problem));
    }
}

#[test]
fn a_batch_is_refused_at_its_element() {
    let limits = Limits::default();
    let good = r#"{"specversion":"1.0","type":"a","id":"e","source":"s"}"#;
    let drafts = Draft::from_cloudevent_batch(format!("[{good},{good}]").as_bytes(), &limits).unwrap();
    assert_eq!(drafts.len(), 2);
    let problem = Draft::from_cloudevent_batch(format!("[{good},{{}}]").as_bytes(), &limits).unwrap_err();
    assert_eq!(problem.pointer(), Some("/1/specversion"));
    assert!(Draft::from_cloudevent_batch(good.as_bytes(), &limits).is_err());
}

#[test]
fn the_key_of_a_cloudevent_names_source_and_id_whatever_its_space() {
    let key = |source: &str, space: &str, id: &str| {
        let text = format!(
            r#"{{"specversion":"1.0","type":"a","source":"{source}","space":"{space}","id":"{id}"}}"#
        );
        structured(&text).unwrap().event.envelope.key.clone().unwrap()
    };
    assert_eq!(key("s", "b", "c"), "s c");
    assert_eq!(key("s b", "c", "d"), "s b d");
    assert_eq!(key("s", "x", "c"), key("s", "y", "c"));
}

#[test]
fn an_id_that_cannot_be_ours_is_kept_beside_one_that_is() {
    let long = "x".repeat(200);
    for id in ["1", "a b", long.as_str(), "idempotency:1", "née\u{a0}x"] {
        let text = json!({"specversion":"1.0","type":"a","source":"s","id":id,"device":"d"}).to_string();
        let event = structured(&text).unwrap().event;
        assert_ne!(event.envelope.id, id);
        assert_eq!(event.envelope.key.as_deref(), Some(format!("s {id}").as_str()));
        assert_eq!(parse(event.content.ext().unwrap()), json!({"device":"d","ceid":id}));
        let out = parse(&to_cloudevent(&event));
        assert_eq!((&out["id"], out.get("ceid")), (&json!(id), None));
        let again = structured(&out.to_string()).unwrap().event;
        assert_eq!(again.envelope.key, event.envelope.key);
    }
    // Somebody's own extension of that name stays what it is.
    let own = structured(r#"{"specversion":"1.0","type":"a","source":"s","id":"e","ceid":"mine"}"#).unwrap();
    let out = parse(&to_cloudevent(&own.event));
    assert_eq!((&out["id"], &out["ceid"]), (&json!("e"), &json!("mine")));
}

/// Everything but what a new ledger gives by itself comes back.
#[test]
fn an_event_goes_to_a_cloudevent_and_back_without_loss() {
    let subjects = [
        r#"{"kind":"item","id":"1/2"}"#,
        r#"{"kind":"","id":"x"}"#,
        r#"{"kind":"","id":"a/b"}"#,
        r#"{"kind":"a/b","id":"/"}"#,
    ];
    let tails = [
        r#""payload":{"n":1.10,"big":123456789012345678901234567890}"#,
        r#""payload":null,"content_type":"application/json""#,
        r#""payload":"iVBORw==","content_type":"image/png""#,
        r#""ext":{"device":"phone1","n":5,"ok":true,"Upper":1.50,"id":"x","deep":{"a":[1]},"ewext":"y","none":null}"#,
        r#""source":"erp","cause":18446744073709551615,"trace":"t","key":"k","ttl":1.5,"priority":9,"band":"black",
           "schema":"s","type":"kind","caused_by":"me","sequence":-9223372036854775808,"time":"2026-01-01T00:00:00.5Z""#,
    ];
    for (subject, tail) in subjects.iter().flat_map(|s| tails.iter().map(move |t| (s, t))) {
        let text = format!(r#"{{"topic":"a.b","id":"e1","key":"k0","subject":{subject},{tail}}}"#);
        let text = if tail.contains("\"key\"") { text.replace(r#""key":"k0","#, "") } else { text };
        let first = prepared(publish(&text)).event;
        let cloud = to_cloudevent(&first);
        let draft = Draft::from_cloudevent(cloud.as_bytes(), &Limits::default()).unwrap();
        let second = prepared(admit(&admitter(&Settings::default()), draft)).event;
        let (mut want, mut got) = (first.envelope.clone(), second.envelope.clone());
        // An implied time is written out; it is the same instant.
        (want.time, got.time) = (Some(first.time()), got.time);
        assert_eq!(got, want, "{cloud}");
        assert_eq!(second.content.payload(), first.content.payload());
        let ours = |ext: Option<&str>| {
            let mut ext = ext.map_or(json!({}), parse);
            let facts = ["ewposition", "ewrecordedat", "ewactor", "ewdepth"];
            facts.iter().for_each(|fact| drop(ext.as_object_mut().unwrap().remove(*fact)));
            ext
        };
        assert_eq!(ours(second.content.ext()), ours(first.content.ext()), "{cloud}");
    }
}

#[test]
fn an_event_without_a_source_is_written_with_the_source_that_means_none() {
    let event = prepared(publish(r#"{"topic":"a"}"#)).event;
    let cloud = parse(&to_cloudevent(&event));
    assert_eq!(cloud["source"], NO_SOURCE);
    let erased = Event { content: Content::Erased, ..(*event).clone() };
    assert_eq!(parse(&to_cloudevent(&erased)).get("data"), None);
}

#[test]
fn a_subject_is_kind_and_id_or_only_an_id() {
    let table =
        [("a/b", "a", "b"), ("a/b/c", "a", "b/c"), ("a", "", "a"), ("/a", "", "/a"), ("a/", "", "a/")];
    for (text, kind, id) in table {
        assert_eq!(parse_subject(text), Subject { kind: kind.into(), id: id.into() });
    }
}
