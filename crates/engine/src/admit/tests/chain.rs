//! The chain itself: defaults, who may what, depth, keys, schemas, layers, switches.

use std::sync::Mutex;

use super::*;
use crate::settings::SchemaRule;

#[test]
fn the_engine_may_use_reserved_names() {
    let admitter = admitter(&Settings::default());
    let engine =
        Caller { actor: "system:engine".into(), trace: None, outside: false, sight: Default::default() };
    let draft = Draft { space: Some("_system".into()), ..Draft::new("engine.group.lost", &1) };
    let event = prepared(admit_at(&admitter, &engine, draft, now())).event;
    assert_eq!(event.envelope.actor, "system:engine");
}

#[test]
fn without_a_default_an_event_must_name_its_space() {
    let admitter = admitter(&Settings { default_space: String::new(), ..Settings::default() });
    let problem = admit(&admitter, Draft::new("a", &1)).unwrap_err();
    let want = "event.space_required at /space: the event's space is empty, or it names none and there is no default \
                (name a \"space\", or leave it out and set events.default_space)";
    assert_eq!(shown(&problem), want);
    prepared(admit(&admitter, Draft { space: Some("s".into()), ..Draft::new("a", &1) }));
}

#[test]
fn the_trace_of_the_request_is_that_of_the_event_unless_it_has_its_own() {
    let admitter = admitter(&Settings::default());
    let caller = Caller { trace: Some("00-1-2-01".into()), ..Caller::local() };
    let trace = |draft| prepared(admit_at(&admitter, &caller, draft, now())).event.envelope.trace.clone();
    assert_eq!(trace(Draft::new("a", &1)).as_deref(), Some("00-1-2-01"));
    assert_eq!(trace(Draft { trace: Some("own".into()), ..Draft::new("a", &1) }).as_deref(), Some("own"));
}

#[test]
fn a_chain_of_causes_ends_at_thirty_two() {
    let admitter = admitter(&Settings::default());
    let depth = |cause, cause_depth| {
        let draft = Draft { cause, ..Draft::new("a", &1) };
        let mut entropy = |bytes: &mut [u8]| bytes.fill(0);
        let mut ctx = Context { now: now(), entropy: &mut entropy, cause_depth };
        admitter
            .admit(&Caller::local(), draft, &mut ctx)
            .map(|admission| prepared(Ok(admission)).event.envelope.depth)
    };
    assert_eq!(depth(None, None), Ok(0));
    assert_eq!(depth(Some(5), None), Ok(1));
    assert_eq!(depth(Some(5), Some(31)), Ok(32));
    let problem = depth(Some(5), Some(32)).unwrap_err();
    let want = "event.too_deep at /cause: the event at cause 5 is the end of a chain of 32 causes (find the loop: \
                something publishes in answer to what it published)";
    assert_eq!(shown(&problem), want);
    assert_eq!(depth(Some(5), Some(u32::MAX)).unwrap_err().code(), Code::EventTooDeep);
}

#[test]
fn a_key_is_compared_over_topic_space_subject_and_payload_as_values() {
    let print = |text: &str| prepared(publish(text)).fingerprint.unwrap();
    let first = print(r#"{"topic":"a","key":"k","payload":{"x":1,"y":"é"}}"#);
    let same = r#"{"key":"other","time":"2026-01-01T00:00:00Z","space":"default","topic":"a","priority":2,
        "payload": {"y":"\u00e9", "x":1.0}}"#;
    assert_eq!(first, print(same));
    let others = [
        r#"{"topic":"b","key":"k","payload":{"x":1,"y":"é"}}"#,
        r#"{"topic":"a","key":"k","space":"s","payload":{"x":1,"y":"é"}}"#,
        r#"{"topic":"a","key":"k","subject":{"kind":"k","id":"1"},"payload":{"x":1,"y":"é"}}"#,
        r#"{"topic":"a","key":"k","payload":{"x":2,"y":"é"}}"#,
    ];
    for other in others {
        assert_ne!(first, print(other), "{other}");
    }
}

fn with_schema() -> Settings {
    let schema =
        json!({"type": "object", "required": ["price"], "properties": {"price": {"type": "number"}}});
    let rule = SchemaRule { topic: pattern("order.*"), name: "order.json".into(), schema };
    Settings { schemas: vec![rule], ..Settings::default() }
}

#[test]
fn a_payload_that_does_not_fit_its_schema_is_refused_at_the_place() {
    let admitter = admitter(&with_schema());
    prepared(admit(&admitter, Draft::new("order.new", &json!({"price": 1.5}))));
    prepared(admit(&admitter, Draft::new("other.new", &json!("anything"))));
    let problem = admit(&admitter, Draft::new("order.new", &json!({"price": "secret"}))).unwrap_err();
    let want = "event.schema at /payload/price: \"payload\" does not fit schema \"order.json\": the value is not of \
                type \"number\" (see what schema \"order.json\" asks for at /properties/price/type)";
    assert_eq!(shown(&problem), want);
    let problem = admit(&admitter, Draft::new("order.new", &json!({}))).unwrap_err();
    assert!(shown(&problem).starts_with("event.schema at /payload: "), "{}", shown(&problem));
    let image = Draft { content_type: Some("image/png".into()), ..Draft::new("order.new", &"iVBORw==") };
    prepared(admit(&admitter, image));
}

#[test]
fn a_schema_that_is_none_is_said_with_its_place() {
    let mut settings = with_schema();
    settings.schemas[0].schema = json!({"type": 7});
    let problem = Admitter::new(&settings, Vec::new()).err().unwrap();
    let want = "config.invalid at -: [[schema]] rule 1: schema \"order.json\" is no JSON Schema: ";
    assert!(shown(&problem).starts_with(want), "{}", shown(&problem));
    settings.schemas[0].schema = json!({"$ref": "https://example.org/schema.json"});
    assert_eq!(Admitter::new(&settings, Vec::new()).err().unwrap().code(), Code::ConfigInvalid);
}

#[test]
fn limits_above_the_most_there_is_are_refused() {
    let table = [
        (Settings { max_payload: (1 << 20) + 1, ..Settings::default() }, "events.max_payload"),
        (Settings { max_depth: 0, ..Settings::default() }, "events.max_depth"),
    ];
    for (settings, name) in table {
        let problem = Admitter::new(&settings, Vec::new()).err().unwrap();
        assert!(problem.detail().contains(name), "{problem}");
    }
}

#[test]
fn schemas_can_be_switched_off_but_not_the_envelope() {
    let mut settings = with_schema();
    settings.switches.validation = false;
    let admitter = admitter(&settings);
    prepared(admit(&admitter, Draft::new("order.new", &json!({}))));
    assert!(admit(&admitter, Draft::new("engine.x", &json!({}))).is_err());
}

/// Notes what it saw, adds a field, refuses what says so.
struct Stamp(Mutex<Vec<String>>);

impl Layer for Stamp {
    fn name(&self) -> &str {
        "stamp"
    }

    fn publish(&self, caller: &Caller, draft: &mut Draft) -> Result<(), Problem> {
        self.0.lock().unwrap().push(format!("{} {} {}", caller.actor, draft.topic, draft.payload.get()));
        match draft.topic.as_str() {
            "refuse" => return Err(Problem::new(Code::EventRefused, "the layer says no")),
            "sneak" => draft.topic = "engine.sneaked".into(),
            _ => draft.caused_by = Some("stamp".into()),
        }
        Ok(())
    }
}

#[test]
fn an_own_layer_comes_last_and_may_change_or_refuse_but_not_break_rules() {
    let redact = crate::settings::RedactRule {
        topic: pattern("#"),
        drop: vec!["$.payload.password".into()],
        mask: vec![],
        hash: vec![],
        detectors: vec![],
    };
    let stamp = Arc::new(Stamp(Mutex::default()));
    let settings = Settings { redactions: vec![redact], ..Settings::default() };
    let admitter = Admitter::new(&settings, vec![stamp.clone()]).unwrap();
    let event = prepared(admit(&admitter, Draft::new("a", &json!({"password": 1})))).event;
    assert_eq!(event.envelope.caused_by.as_deref(), Some("stamp"));
    assert_eq!(*stamp.0.lock().unwrap(), ["user:local a {}"]);
    assert_eq!(admit(&admitter, Draft::new("refuse", &1)).unwrap_err().code(), Code::EventRefused);
    assert_eq!(admit(&admitter, Draft::new("sneak", &1)).unwrap_err().code(), Code::EventTopicReserved);
    assert_eq!(stamp.handle(&event), Handled::Go);
}

#[test]
fn an_actor_has_a_kind_and_a_name() {
    for good in ["user:ann", "token:t1", "device:phone:1", "agent:x", "system:automation:a"] {
        assert_eq!(Caller::named(good).unwrap().actor, good);
    }
    for bad in ["", "ann", "user:", ":ann", "root:ann", "user:a\nb"] {
        assert_eq!(Caller::named(bad).unwrap_err().code(), Code::RequestInvalid, "{bad:?}");
    }
}

#[test]
fn salts_and_ids_come_from_the_entropy_handed_in() {
    let prepared = prepared(publish(r#"{"topic":"a"}"#));
    assert_eq!(prepared.record.body.unwrap().salt, [7; 16]);
    assert_eq!(prepared.event.envelope.id, ulid(now(), [7; 10]));
}
