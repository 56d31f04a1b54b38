//! The JSON form of definitions: stable, readable back, and equal in hash when only the writing differs.

use serde_json::json;

use super::*;

fn space() -> Definition {
    let field = |name: &str, of: Type| Field { name: name.into(), of, ..Field::default() };
    Definition::Concept(Concept {
        id: "v1:cognition:space".into(),
        name: "space".into(),
        node_type: "object".into(),
        fields: vec![
            Field { required: true, ..field("name", Type::String) },
            field("status", Type::Enum(vec![json!("active"), json!("archived")])),
            field("tags", Type::List(Box::new(Type::String))),
            field("prefs", Type::Object(vec![field("daily", Type::Bool)])),
        ],
        ..Concept::default()
    })
}

fn page() -> Definition {
    let mut automation = Automation::named("page");
    automation.triggers = vec![Trigger {
        id: "t1".into(),
        filter: Some(Filter::Expr(Expr("event.payload.x > 1".into()))),
        dwell: Some(Length::Fixed(std::time::Duration::from_secs(300))),
        ..Trigger::on(TriggerKind::Event(vec!["price.*".into()]))
    }];
    automation.conditions = vec![Condition::Test(Test::Not(Box::new(Condition::Expr(Expr("false".into())))))];
    automation.steps = vec![
        Step {
            id: Some("wait".into()),
            ..Step::of(Action::Delay(Length::Computed(Expr("event.payload.s".into()))))
        },
        Step::of(Action::Automation { call: Call { name: "other".into(), args: None }, wait: true }),
        Step::of(Action::Publish(Publish {
            topic: Input::Expr(Expr("\"out.done\"".into())),
            payload: Some(Input::Template(json!({"n": "{{ event.payload.x }}"}))),
            envelope: std::collections::BTreeMap::new(),
        })),
    ];
    Definition::Automation(automation)
}

#[test]
fn the_json_form_is_what_ledgers_already_hold() {
    assert_eq!(
        serde_json::from_str::<Value>(&space().to_json()).unwrap(),
        json!({
            "edition": 1, "kind": "concept", "id": "v1:cognition:space", "name": "space",
            "fields": [
                {"name": "name", "type": "string", "required": true},
                {"name": "status", "type": {"enum": ["active", "archived"]}},
                {"name": "tags", "type": {"list": "string"}},
                {"name": "prefs", "type": {"object": [{"name": "daily", "type": "bool"}]}},
            ],
        })
    );
    assert_eq!(
        serde_json::from_str::<Value>(&page().to_json()).unwrap(),
        json!({
            "edition": 1, "kind": "automation", "name": "page",
            "triggers": [{"id": "t1", "on": {"event": ["price.*"]}, "filter": "event.payload.x > 1", "for": 300}],
            "conditions": [{"not": "false"}],
            "steps": [
                {"id": "wait", "do": {"delay": "event.payload.s"}},
                {"do": {"automation": {"name": "other"}}},
                {"do": {"publish": {"topic": {"expr": "\"out.done\""},
                                    "payload": {"template": {"n": "{{ event.payload.x }}"}}}}},
            ],
        })
    );
}

#[test]
fn what_was_written_reads_back_equal() {
    for definition in [space(), page()] {
        let text = definition.to_json();
        let back = Definition::from_json(&text).unwrap();
        assert_eq!(back, definition);
        assert_eq!(back.hash(), definition.hash());
    }
}

#[test]
fn hashes_are_fixed_and_tell_definitions_apart() {
    assert_eq!(space().hash(), "3a748baab624877bb323bdac3a957e6d2f7d87ef18116024e775a685d3359465");
    assert_eq!(page().version(), "1a176484ec48");
}

#[test]
fn a_newer_edition_is_said_and_not_guessed() {
    let text = space().to_json().replace("\"edition\":1", "\"edition\":2");
    assert!(matches!(Definition::from_json(&text), Err(FromJsonError::Newer(2))));
}
