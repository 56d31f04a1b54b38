//! Queries that are declared `detached`: answered off the loop, as long as it takes, and still waited for after a crash.

use engine::entity::{Action, Write};
use engine::{Caller, DETACHED};
use model::record::How;
use serde_json::{Value, json};

use super::all;
use crate::rig::Rig;
use crate::runs::{emitted, publish};

pub const DECLARED: &str = r#"
@namespace("a")
@version("1.0.0")
concept thing { n int }

query thing manyThings {
  args { least int! }
  filter(payload.n >= args.least)
  count
  DETACHED
}

@trigger(event="go")
automation counts {
  step found { query manyThings { least: event.payload.least } }
  step told { publish "out.done" { found: steps.found.output } }
}
"#;

/// More rows than a query may look at inside a run.
async fn rig(detached: &str) -> Rig {
    let files = [("a/things.ew".to_owned(), DECLARED.replace("DETACHED", detached))].into();
    let checked = lang::declare::check_workspace(&files);
    assert!(!checked.has_errors(), "{:#?}", checked.findings);
    let rig = Rig::new();
    rig.tenant.apply("test", checked.definitions).await.unwrap();
    for thousand in 0..6 {
        let row = |n: u64| {
            let Value::Object(fields) = json!({ "n": n }) else { unreachable!() };
            Write::of("thing", Some(&format!("t{n}")), Action::Put(fields))
        };
        let writes = (thousand * 1_000..(thousand + 1) * 1_000).map(row).collect();
        rig.tenant.write_all(&Caller::local(), writes).await.unwrap();
    }
    rig
}

#[tokio::test]
async fn a_detached_query_looks_at_more_rows_than_a_walk_may_and_is_asked_again_after_a_crash() {
    let mut rig = rig("detached").await;
    publish(&rig, "go", json!({"least": 10})).await;
    assert!(emitted(&rig, "out.done").is_empty());
    let asked = all(&rig).remove(0);
    assert_eq!(asked.kind, DETACHED);
    rig.crash();
    assert_eq!(all(&rig), std::slice::from_ref(&asked));
    let (how, value) = rig.tenant.answer_query(&asked);
    rig.tenant.effect_done(&asked, how, value).unwrap();
    assert_eq!(emitted(&rig, "out.done"), [json!({"found": 5_990})]);
}

#[tokio::test]
async fn a_query_that_is_not_detached_is_cut_off_inside_the_run() {
    let rig = rig("").await;
    publish(&rig, "go", json!({"least": 10})).await;
    assert!(emitted(&rig, "out.done").is_empty() && all(&rig).is_empty());
    let (runs, _) = rig.tenant.runs(&Default::default()).unwrap();
    assert_eq!(runs[0]["error"]["code"], "query.too_slow", "{runs:?}");
    let message = runs[0]["error"]["message"].as_str().unwrap();
    assert!(message.ends_with("its index over \"payload.n\" leaves that many"), "{message}");
}

#[tokio::test]
async fn a_detached_query_that_cannot_be_answered_fails_its_step() {
    let rig = rig("detached").await;
    publish(&rig, "go", json!({"least": 10})).await;
    let asked = all(&rig).remove(0);
    let mut lost = asked.clone();
    lost.with["query"] = "gone".into();
    let (how, value) = rig.tenant.answer_query(&lost);
    assert_eq!((how, value["class"].as_str()), (How::Failed, Some("permanent")));
    rig.tenant.effect_done(&asked, how, value).unwrap();
    assert!(rig.tenant.live_runs(None).unwrap().is_empty());
}

#[test]
fn logic_cannot_wait_for_a_detached_query() {
    let logic = "\nlogic counting {\n  found := query manyThings { least: 1 }\n  return found\n}\n";
    let files = [("a/things.ew".to_owned(), DECLARED.replace("DETACHED", "detached") + logic)].into();
    let checked = lang::declare::check_workspace(&files);
    let codes: Vec<&str> = checked.findings.iter().map(|finding| finding.code.as_str()).collect();
    assert_eq!(codes, ["definition.not_pure"], "{:#?}", checked.findings);
}
