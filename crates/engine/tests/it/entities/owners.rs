//! Rows that belong to somebody, also behind logic that somebody calls; and what is said of how a row came to be.

use std::collections::BTreeMap;

use engine::entity::{Action, Write};
use engine::{Caller, Draft, Listing};
use lang::declare::check_workspace;
use model::Code;
use serde_json::{Value, json};

use super::map;
use crate::temp::Bench;

const NOTES: &str = r#"
@rowAuthz(owner="ownerUserId")
concept note { ownerUserId string!  text string }

query note allNotes { }
mutation note edit { args { id string!  text string! } update { args.text } }

logic peek { body { a := allNotes({}) return a.count() } }
logic deep { body { n := peek({}) return n } }
logic look { args { id string! } body { return state.note[args.id].text } }
logic wr { args { id string! } body { a := edit({ id: args.id, text: "changed" }) return a.id } }
logic wrDeep { args { id string! } body { a := wr({ id: args.id }) return a } }
"#;

const LOGS: &str = r#"
concept entry { text string }
mutation entry addLog { args { id string!  text string } insert { id: args.id text: args.text } }
logic note { args { id string! } body { a := addLog({ id: args.id, text: "x" }) return a.id } }
logic noteDeep { args { id string! } body { a := note({ id: args.id }) return a } }

@trigger(event="in.a")
automation notes {
  mutation addLog { id: "directly", text: "x" }
  logic note { id: "through" }
  logic noteDeep { id: "deeply" }
}

@trigger(manual=true)
automation byHand { logic note { id: "hand" } }
"#;

async fn declared(text: &str) -> Bench {
    let checked = check_workspace(&BTreeMap::from([("d/rows.ew".to_owned(), text.to_owned())]));
    assert!(!checked.has_errors(), "{:?}", checked.findings);
    let bench = Bench::new();
    bench.tenant.apply("test", checked.definitions).await.unwrap();
    bench
}

#[tokio::test]
async fn logic_that_somebody_calls_sees_and_changes_their_rows_only() {
    let bench = declared(NOTES).await;
    let (ann, bob) = (Caller::named("user:ann").unwrap(), Caller::named("user:bob").unwrap());
    let of = json!({"ownerUserId": "ann", "text": "hi"});
    bench.tenant.write(&ann, Write::of("note", Some("n"), Action::Put(map(of)))).await.unwrap();
    let call =
        |caller: &Caller, logic: &str, args: Value| bench.tenant.call_logic(caller, logic, map(args), None);
    let the_house = Caller { outside: false, ..bob.clone() };
    for logic in ["peek", "deep"] {
        let rows = [&ann, &bob, &the_house].map(|caller| call(caller, logic, json!({})).unwrap());
        assert_eq!(rows, [json!(1), json!(0), json!(1)], "{logic}");
    }
    let read = [&ann, &bob].map(|caller| call(caller, "look", json!({"id": "n"})).unwrap());
    assert_eq!(read, [json!("hi"), Value::Null], "as an expression reads rows");
    for logic in ["wr", "wrDeep"] {
        let refused = call(&bob, logic, json!({"id": "n"})).unwrap_err();
        assert_eq!(refused.code(), Code::LogicFailed, "{refused}");
    }
    let text = || bench.tenant.entity(&ann, "note", None, "n").unwrap().fields["text"].clone();
    assert_eq!(text(), "hi");
    assert_eq!(call(&ann, "wrDeep", json!({"id": "n"})).unwrap(), "n");
    assert_eq!(text(), "changed");
}

#[tokio::test]
async fn who_does_not_see_a_row_is_not_told_which_has_a_unique_value() {
    let text = "@rowAuthz(owner=\"of\")\nconcept note { of string!  tag string @unique }";
    let bench = declared(text).await;
    let (ann, bob) = (Caller::named("user:ann").unwrap(), Caller::named("user:bob").unwrap());
    let put =
        |id: &str, of: &str| Write::of("note", Some(id), Action::Put(map(json!({"of": of, "tag": "T"}))));
    bench.tenant.write(&ann, put("n1", "ann")).await.unwrap();
    let house = Caller { outside: false, ..bob.clone() };
    for (caller, of, is_named) in [(&ann, "ann", true), (&bob, "bob", false), (&house, "bob", true)] {
        let write = put("n2", of);
        let refused = bench.tenant.write(caller, write).await.unwrap_err();
        assert_eq!((refused.code(), refused.pointer()), (Code::EntityInvalid, Some("/tag")), "{refused}");
        assert_eq!(refused.detail().contains("n1"), is_named, "{}: {refused}", caller.actor);
    }
}

#[tokio::test]
async fn logic_that_somebody_with_some_spaces_calls_stays_in_them() {
    let bench = declared(LOGS).await;
    let sight = engine::authority::Sight::new(&["mine".to_owned()], None);
    let narrow = Caller { sight, ..Caller::local() };
    let call = |space: &str| bench.tenant.call_logic(&narrow, "note", map(json!({"id": "a"})), Some(space));
    assert_eq!(call("theirs").unwrap_err().code(), Code::AuthDenied);
    assert_eq!(call("mine").unwrap(), "a");
}

#[tokio::test]
async fn a_row_that_logic_writes_says_what_began_the_run() {
    let bench = declared(LOGS).await;
    bench.engine.publish(Draft::new("in.a", &json!({}))).await.unwrap();
    let by = json!({"kind": "automation", "name": "notes", "trigger": "in.a", "via": "addLog"});
    let listing = Listing { limit: 9, ..Listing::default() };
    let rows = bench.tenant.entities(&Caller::local(), "entry", &listing).unwrap().rows;
    let told: Vec<_> = rows.iter().map(|row| (row["id"].clone(), row["provenance"].clone())).collect();
    let ids = ["deeply", "directly", "through"];
    assert_eq!(told, ids.map(|id| (json!(id), by.clone())));
    bench.tenant.call_logic(&Caller::local(), "note", map(json!({"id": "called"})), None).unwrap();
    let row = bench.tenant.entity(&Caller::local(), "entry", None, "called").unwrap();
    assert_eq!((row.provenance.kind.as_str(), row.provenance.trigger.as_str()), ("logic", ""));
}

#[tokio::test]
async fn a_page_does_not_tell_of_rows_behind_it_that_are_not_shown() {
    let bench = declared(NOTES).await;
    let (ann, bob) = (Caller::named("user:ann").unwrap(), Caller::named("user:bob").unwrap());
    for (id, of) in [("a", &ann), ("b", &bob), ("c", &ann), ("d", &bob)] {
        let fields = map(json!({"ownerUserId": of.actor.split_once(':').unwrap().1, "text": id}));
        bench.tenant.write(of, Write::of("note", Some(id), Action::Put(fields))).await.unwrap();
    }
    let page = |caller: &Caller, limit: usize, cursor: Option<String>| {
        let listing = Listing { limit, cursor, ..Listing::default() };
        bench.tenant.entities(caller, "note", &listing).unwrap()
    };
    let first = page(&ann, 1, None);
    assert_eq!(first.rows[0]["id"], "a");
    let second = page(&ann, 1, first.next);
    assert_eq!((&second.rows[0]["id"], second.next), (&json!("c"), None), "d is not hers");
    assert_eq!(page(&ann, 2, None).next, None);
}
