//! What is known beforehand of what an expression reads: the table of wake references, row by row.

use serde_json::{Value, json};

use super::super::*;

fn shown(refs: &Refs) -> (Vec<String>, bool) {
    (refs.entities.iter().map(ToString::to_string).collect(), refs.indeterminate)
}

#[test]
fn wake_references_follow_the_table() {
    let table: [(&str, &[&str], bool); 23] = [
        ("state.incident.i1.status == 'open'", &["incident:i1"], false),
        ("state[\"v1:health:system\"][\"api\"].status == \"ok\"", &["v1:health:system:api"], false),
        ("state.incident[trigger.id].open", &["incident:*"], false),
        ("state.incident.exists(i, i == 'x')", &["incident:*"], false),
        ("size(state.incident) > 1", &["incident:*"], false),
        ("health.systems['api'].status", &["health:api"], false),
        ("health.systems[trigger.id].status", &["health:*"], false),
        ("health.system.status == 'ok'", &["health:*"], false),
        ("health.anything", &["health:*"], false),
        ("state[trigger.kind][trigger.id]", &[], true),
        ("state[trigger.kind].x", &[], true),
        ("state == null", &[], true),
        ("state[trigger.kind].x && state.a.b", &["a:b"], false),
        ("trigger.payload.count > 5", &[], false),
        ("1 +", &[], true),
        ("state.health.systems != null", &["health:systems"], false),
        ("state.a.b || state.a.b || state.c.d", &["a:b", "c:d"], false),
        ("has(state.a.b.c)", &["a:b"], false),
        ("list.map(state, state.a.b)", &[], false),
        ("list.where(state => state.a.b)", &[], false),
        ("list.where(x => state.a[x])", &["a:*"], false),
        ("list[state.a.b.n]", &["a:b"], false),
        ("when(args.x) { state.a.b }", &["a:b"], false),
    ];
    for (text, entities, indeterminate) in table {
        let want = (entities.iter().map(ToString::to_string).collect(), indeterminate);
        assert_eq!(shown(&Refs::of(text)), want, "{text}");
    }
}

#[test]
fn conditions_in_json_have_references_too() {
    let table: [(Value, &[&str], bool); 9] = [
        (json!({"state": {"entity": "api", "status": "ok", "for": "5m"}}), &["health:api"], false),
        (json!({"state": {"entity": "v1:h:s/api"}}), &["v1:h:s:api"], false),
        (json!({"state": {"entity": ["v1:h:s", "v1:h:t/x"]}}), &["v1:h:t:x", "v1:h:s:*"], false),
        (json!({"numeric_state": {"value": "state.a.b.n", "above": 3}}), &["a:b"], false),
        (json!({"numeric_state": {"value": 42}}), &[], true),
        (json!({"numeric_state": {"value": "trigger.n", "above": 1}}), &[], false),
        (json!({"time": {"after": "22:00"}}), &[], false),
        (json!({"and": ["state.a.b", {"not": {"or": ["state.c.d", "1 +"]}}]}), &["a:b", "c:d"], false),
        (
            json!({"numeric_state": {"entity": "k:v/1", "below": {"entity": "k:v/2"}}}),
            &["k:v:1", "k:v:2"],
            false,
        ),
    ];
    for (condition, entities, indeterminate) in table {
        let want = (entities.iter().map(ToString::to_string).collect(), indeterminate);
        assert_eq!(shown(&Refs::of_condition(&condition)), want, "{condition}");
    }
}

#[test]
fn fields_functions_secrets_and_time_are_told() {
    let refs = Refs::of(
        "event.payload.items[0].sku == payload[x].y && topic.startsWith(secret('A')) && secrets.B == now \
         || [1].all(event, event.z)",
    );
    let all = |set: &std::collections::BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>();
    assert_eq!(all(&refs.event_fields), ["payload", "payload.items.0.sku", "topic"]);
    assert_eq!(all(&refs.functions), ["all", "secret", "startsWith"]);
    assert_eq!(all(&refs.secrets), ["A", "B"]);
    assert!(refs.now && Refs::of("timestamp()").now && !Refs::of("timestamp('x')").now);
    let capital = Refs::of("Secret('A') + Var('b') + string(Now())");
    assert!(capital.now && capital.roots.contains("vars") && capital.roots.contains("secrets"));
    assert_eq!(all(&capital.secrets), ["A"]);
    assert_eq!(all(&Refs::of("size(event)").event_fields), [""]);
}

#[test]
fn an_index_that_reads_neither_rows_nor_time_names_one_row() {
    let table: [(&str, Option<&[&str]>); 8] = [
        ("state.order[event.payload.id].paid", Some(&["event.payload.id"])),
        ("state.order[vars.a].paid && state.order[vars.b].paid", Some(&["vars.a", "vars.b"])),
        ("state.order[vars.a].items[vars.b]", Some(&["vars.a"])),
        ("state.order[vars.a].paid && size(state.order) > 1", None),
        ("state.order[state.last.one.id].paid", None),
        ("state.order[string(now)].paid", None),
        ("ids.all(id, state.order[id].paid)", None),
        ("state.order.o1.paid", None),
    ];
    for (text, want) in table {
        let refs = Refs::of(text);
        let narrows = refs.narrows("order").map(|ids| ids.collect::<Vec<_>>());
        assert_eq!(narrows.as_deref(), want, "{text}");
    }
}

#[test]
fn a_kind_that_reads_neither_rows_nor_time_is_told_with_its_row() {
    let written = |id: &str| Some(Key::Written(id.to_owned()));
    let computed = |id: &str| Some(Key::Computed(id.to_owned()));
    type Named = Option<(&'static str, Option<Key>)>;
    let table: [(&str, Named); 6] = [
        (
            "state[event.payload.kind][event.payload.id].n",
            Some(("event.payload.kind", computed("event.payload.id"))),
        ),
        ("state[vars.kind].a.n", Some(("vars.kind", written("a")))),
        ("state[vars.kind]", Some(("vars.kind", None))),
        ("ids.all(id, state[vars.kind][id].n)", Some(("vars.kind", None))),
        ("state[state.last.one.kind].a", None),
        ("state", None),
    ];
    for (text, want) in table {
        let refs = Refs::of(text);
        let named = refs.named.first().map(|(kind, key)| (kind.as_str(), key.clone()));
        assert_eq!((named, refs.may_read_any_row()), (want.clone(), want.is_none()), "{text}");
    }
}
