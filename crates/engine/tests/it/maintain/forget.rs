//! Sealed spaces: the ledger holds nothing of them in the clear, and what is forgotten is in no file at all.

use std::path::{Path, PathBuf};

use engine::entity::{Action, Write};
use engine::maintain::{backup, restore, snapshot, verify};
use engine::{Caller, Draft, Engine};
use model::{Code, Position};
use serde_json::{Value, json};

use super::{dump, holding, rebuilt};
use crate::temp::{Bench, TempDir, copy_tree, tokens};

const CANARY: &str = "c4n4ry-of-the-clinic";
const OTHER: &str = "what-others-said";

const CONCEPTS: &str = "@namespace(\"ha\")\n@version(\"1.0.0\")\nconcept entity {\n  state string\n}\n";

const READERS: &str = r#"
- automation: ends
  mode: parallel
  triggers: [{event: a, filter: 'event.payload.name != ""'}]
  actions:
    - vars: {name: "{{ event.payload.name }}"}
    - publish: {topic: b, payload: {name: "{{ event.payload.name }}"}}
    - stop: "{{ vars.name }}"
- automation: waits
  mode: parallel
  triggers: [{event: a}]
  actions:
    - vars: {name: "{{ event.payload.name }}"}
    - delay: 1h
- automation: tells
  mode: parallel
  triggers: [{event: begin}]
  actions:
    - wait_for: {event: a}
    - vars: {name: "{{ wait.event.payload.name }}"}
    - delay: 1h
"#;

fn said(topic: &str, space: &str, name: &str) -> Draft {
    Draft { space: Some(space.to_owned()), ..Draft::new(topic, &json!({"name": name})) }
}

async fn put_row(bench: &Bench, space: &str, id: &str, state: &str) {
    let Value::Object(fields) = json!({"state": state}) else { unreachable!() };
    let write =
        Write { space: space.to_owned(), ..Write::of("v1:ha:entity", Some(id), Action::Upsert(fields)) };
    bench.tenant.write(&Caller::local(), write).await.unwrap();
}

/// A sealed space in which everything happened that leaves something, and another beside it. The first event of each.
async fn clinic() -> (Bench, Position, Position) {
    let bench = Bench::new();
    let files = [("r.yaml".to_owned(), READERS.to_owned()), ("ha/c.ew".to_owned(), CONCEPTS.to_owned())];
    let checked = lang::declare::check_workspace(&files.into());
    assert!(!checked.has_errors(), "{:#?}", checked.findings);
    bench.tenant.apply("test", checked.definitions).await.unwrap();
    assert!(bench.tenant.seal_space(&Caller::local(), "clinic").await.unwrap().0);
    assert!(!bench.tenant.seal_space(&Caller::local(), "clinic").await.unwrap().0, "it is");
    let group = json!({"pattern": "a", "max_retries": 0, "start": "beginning"});
    bench.tenant.put_group("g", &group).await.unwrap();
    bench.tenant.put_group("slow", &json!({"pattern": "a", "start": "beginning"})).await.unwrap();
    bench.engine.publish(said("begin", "clinic", "-")).await.unwrap();
    let mine = bench.engine.publish(said("a", "clinic", CANARY)).await.unwrap().position().unwrap();
    let theirs = bench.engine.publish(said("a", "other", OTHER)).await.unwrap().position().unwrap();
    let out = bench.pull("g", 1).await;
    bench.tenant.reject("g", &tokens(&out), Some(format!("cannot: {CANARY}"))).await.unwrap();
    let out = bench.pull("slow", 1).await;
    bench.tenant.nack("slow", &tokens(&out), None, Some(format!("odd: {CANARY}"))).await.unwrap();
    put_row(&bench, "clinic", "bed-1", CANARY).await;
    put_row(&bench, "clinic", "bed-1", &format!("{CANARY} again")).await;
    put_row(&bench, "other", "bed-1", OTHER).await;
    snapshot::take(&bench.tenant).unwrap();
    (bench, mine, theirs)
}

fn ledger_of(dir: &Path) -> PathBuf {
    dir.join("tenants/main/ledger")
}

fn assert_sound(dir: &Path) {
    let report = verify(dir, false, &mut |_, _| ()).unwrap().to_json();
    assert_eq!((&report["ok"], &report["tenants"][0]["state"]), (&json!(true), &json!("equal")), "{report}");
}

fn payload(tenant: &engine::Tenant, position: Position) -> Option<String> {
    tenant.event(&position.to_string()).unwrap().content.payload().map(str::to_owned)
}

fn is_forgotten(dir: &Path, tenant: &engine::Tenant, mine: Position, theirs: Position) {
    assert_eq!(holding(dir, CANARY), Vec::<PathBuf>::new());
    assert_eq!(payload(tenant, mine), None);
    assert!(payload(tenant, theirs).unwrap().contains(OTHER), "others keep theirs");
    assert!(tenant.entity(&Caller::local(), "v1:ha:entity", Some("clinic"), "bed-1").is_err());
    assert!(tenant.entity(&Caller::local(), "v1:ha:entity", Some("other"), "bed-1").is_ok());
    let spaces: Vec<_> = tenant.live_runs(None).unwrap().iter().map(|run| run["space"].clone()).collect();
    assert!(!spaces.contains(&json!("clinic")), "{spaces:?}");
    assert!(!dir.join("tenants/main/forgetting").exists());
}

#[tokio::test]
async fn the_ledger_holds_nothing_of_a_sealed_space_and_all_of_it_reads_as_before() {
    let (bench, mine, _) = clinic().await;
    assert!(payload(&bench.tenant, mine).unwrap().contains(CANARY));
    assert_sound(bench.dir.path());
    let bench = bench.reopen().await;
    assert!(payload(&bench.tenant, mine).unwrap().contains(CANARY));
    let mut records = String::new();
    engine::maintain::some_records(&bench.tenant, (1, bench.tenant.head()), &mut records).unwrap();
    assert!(records.contains(CANARY) && !records.contains("sealed:v1:"), "an export is in the clear");
    let (before, after, dir) = rebuilt(bench).await;
    assert_eq!(before, after);
    assert!(before.iter().any(|line| line.contains(CANARY)), "what is derived is in the clear");
    let ledger = ledger_of(dir.path());
    assert_eq!(holding(&ledger, CANARY), Vec::<PathBuf>::new());
    assert!(!holding(&ledger, OTHER).is_empty(), "of the other space it does");
    assert!(!holding(&ledger, "sealed:v1:").is_empty());
}

#[tokio::test]
async fn a_space_that_is_forgotten_is_in_no_file_and_a_rebuild_equals() {
    let (bench, mine, theirs) = clinic().await;
    assert!(!holding(bench.dir.path(), CANARY).is_empty());
    let space = bench.tenant.forget_space(&Caller::local(), "clinic").await.unwrap();
    assert_eq!((&space["name"], &space["sealed"]), (&json!("clinic"), &json!(true)));
    assert!(space["events"].as_u64().unwrap() >= 4, "{space}");
    is_forgotten(bench.dir.path(), &bench.tenant, mine, theirs);
    let dead = bench.tenant.dead_letters("g", 10, None).unwrap().dead_letters;
    assert_eq!(dead[0]["event"]["erased"], true);
    assert_sound(bench.dir.path());
    // What comes now is a new beginning, under another key.
    let again = bench.engine.publish(said("c", "clinic", "a new patient")).await.unwrap().position().unwrap();
    let bench = bench.reopen().await;
    assert!(payload(&bench.tenant, again).unwrap().contains("a new patient"));
    assert!(holding(&ledger_of(bench.dir.path()), "a new patient").is_empty());
    is_forgotten(bench.dir.path(), &bench.tenant, mine, theirs);
    let (before, after, dir) = rebuilt(bench).await;
    assert_eq!(before, after);
    let engine = Engine::open(dir.path()).unwrap();
    is_forgotten(dir.path(), &engine.main().unwrap(), mine, theirs);
    assert!(payload(&engine.main().unwrap(), again).is_some());
}

#[tokio::test]
async fn a_space_that_was_never_sealed_can_be_forgotten_too() {
    let (bench, ..) = clinic().await;
    let theirs = bench.engine.publish(said("a", "other", OTHER)).await.unwrap().position().unwrap();
    let space = bench.tenant.forget_space(&Caller::local(), "other").await.unwrap();
    assert_eq!(space["sealed"], false);
    assert_eq!(holding(bench.dir.path(), OTHER), Vec::<PathBuf>::new());
    assert_eq!(payload(&bench.tenant, theirs), None);
    assert_sound(bench.dir.path());
    let (before, after, _dir) = rebuilt(bench).await;
    assert_eq!(before, after);
    let reserved = Bench::new();
    let long = "x".repeat(600);
    for name in ["_system", "", "*", long.as_str()] {
        let refused = reserved.tenant.forget_space(&Caller::local(), name).await.unwrap_err();
        assert_eq!(refused.code(), Code::RequestInvalid, "{name}");
    }
    let refused = reserved.tenant.forget_space(&Caller::local(), "misspelt").await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    assert!(reserved.tenant.spaces().unwrap().is_empty(), "and nothing is noted");
}

#[tokio::test]
async fn what_is_written_after_sealing_beside_forgetting_is_kept_and_sealed() {
    let bench = Bench::new();
    let mut after = Vec::new();
    for space in (0..30).map(|n| format!("s{n}")) {
        bench.engine.publish(said("a", &space, OTHER)).await.unwrap();
        let by = Caller::local();
        let both = tokio::join!(bench.tenant.forget_space(&by, &space), bench.tenant.seal_space(&by, &space));
        assert!(both.0.is_ok() && both.1.is_ok_and(|(new, _)| new));
        after.push(bench.engine.publish(said("a", &space, CANARY)).await.unwrap().position().unwrap());
    }
    let bench = bench.reopen().await;
    assert!(after.iter().all(|position| payload(&bench.tenant, *position).is_some()));
    let ledger = bench.dir.path().join("tenants/main/ledger");
    assert_eq!(holding(&ledger, CANARY), Vec::<PathBuf>::new(), "in the clear");
}

/// Runs of another space that come to hold something of the clinic: in a batch, by waiting, by the answer of another run; one
/// whose failure is told to everybody; and two decisions about one event, of which one is remembered.
const ACROSS: &str = r#"
- automation: gathers
  mode: parallel
  triggers: [{event: a, batch: {count: 2, for: 1h}}]
  actions:
    - vars: {all: "{{ input.events.map(e, e.payload.name) }}"}
    - delay: 1h
- automation: listens
  mode: parallel
  triggers: [{event: begin}]
  actions:
    - wait_for: {event: a}
    - vars: {name: "{{ wait.event.payload.name }}"}
    - delay: 1h
- automation: asks
  mode: parallel
  triggers: [{event: begin}]
  actions:
    - id: told
      automation: answers
    - vars: {name: "{{ told }}"}
    - delay: 1h
- automation: answers
  mode: parallel
  actions:
    - wait_for: {event: a}
    - return: "{{ wait.event.payload.name }}"
- automation: fails
  mode: parallel
  triggers: [{event: a}]
  actions:
    - fail: "no bed for {{ event.payload.name }}"
- automation: cools
  mode: parallel
  triggers: [{event: a, cooldown: 1h}]
  actions:
    - delay: 1h
- automation: judges
  mode: parallel
  triggers: [{event: a}]
  conditions: ['event.payload.name == "nobody"']
  actions:
    - delay: 1h
"#;

/// What [`ACROSS`] makes of three events of the clinic and one of another space, the first of which is the clinic's.
async fn across(sealed: bool) -> (Bench, Position) {
    let bench = Bench::new();
    let checked = lang::declare::check_workspace(&[("a.yaml".to_owned(), ACROSS.to_owned())].into());
    assert!(!checked.has_errors(), "{:#?}", checked.findings);
    bench.tenant.apply("test", checked.definitions).await.unwrap();
    if sealed {
        bench.tenant.seal_space(&Caller::local(), "clinic").await.unwrap();
    }
    bench.engine.publish(said("begin", "other", "-")).await.unwrap();
    let mine = bench.engine.publish(said("a", "clinic", CANARY)).await.unwrap().position().unwrap();
    bench.engine.publish(said("a", "other", OTHER)).await.unwrap();
    for _ in 0..2 {
        bench.engine.publish(said("a", "clinic", CANARY)).await.unwrap();
    }
    let live = bench.tenant.live_runs(None).unwrap();
    let of = |name: &str| live.iter().filter(|run| run["automation"] == name).count();
    assert_eq!((of("gathers"), of("listens"), of("asks")), (2, 1, 1), "{live:#?}");
    assert_eq!(bench.tenant.automation("fails").unwrap()["enabled"], false);
    (bench, mine)
}

#[tokio::test]
async fn what_runs_of_other_spaces_hold_of_a_sealed_one_is_sealed_and_goes_with_it() {
    let (bench, _) = across(true).await;
    let ledger = ledger_of(bench.dir.path());
    assert_eq!(holding(&ledger, CANARY), Vec::<PathBuf>::new());
    let bench = bench.reopen().await;
    assert_eq!(bench.tenant.live_runs(None).unwrap().len(), 5, "with the keys all of it is read");
    bench.tenant.forget_space(&Caller::local(), "clinic").await.unwrap();
    assert_eq!(holding(bench.dir.path(), CANARY), Vec::<PathBuf>::new());
    assert_eq!(bench.tenant.live_runs(None).unwrap(), Vec::<Value>::new(), "each of them held something");
    assert_sound(bench.dir.path());
    let (before, after, dir) = rebuilt(bench).await;
    assert_eq!(before, after);
    assert!(holding(dir.path(), CANARY).is_empty());
}

#[tokio::test]
async fn what_runs_of_other_spaces_hold_of_one_that_was_never_sealed_goes_with_it() {
    let (bench, _) = across(false).await;
    assert!(!holding(&ledger_of(bench.dir.path()), CANARY).is_empty());
    bench.tenant.forget_space(&Caller::local(), "clinic").await.unwrap();
    assert_eq!(holding(bench.dir.path(), CANARY), Vec::<PathBuf>::new());
    let (before, after, dir) = rebuilt(bench).await;
    assert_eq!(before, after);
    assert!(holding(dir.path(), CANARY).is_empty());
}

fn key_file(dir: &Path) -> PathBuf {
    let mut keys = std::fs::read_dir(dir.join("keys/main.spaces")).unwrap();
    keys.next().unwrap().unwrap().path()
}

/// What a crash leaves after each step; the next open finishes it.
#[tokio::test]
async fn forgetting_that_a_crash_interrupted_is_finished_at_the_next_open() {
    let (bench, mine, theirs) = clinic().await;
    bench.engine.close().await.unwrap();
    let Bench { dir, engine, tenant, .. } = bench;
    let head = tenant.head();
    drop((engine, tenant));
    let begun = json!({"space": "clinic"}).to_string();
    let decided = json!({"space": "clinic", "through": head}).to_string();
    for (step, pending) in [("begun", &begun), ("a key", &begun), ("decided", &decided), ("zeros", &decided)]
    {
        let life = TempDir::new();
        copy_tree(dir.path(), life.path());
        std::fs::write(life.path().join("tenants/main/forgetting"), pending).unwrap();
        let key = key_file(life.path());
        match step {
            // It was made and not yet named.
            "a key" => {
                let text = std::fs::read_to_string(&key).unwrap();
                std::fs::write(key.with_file_name("00000000deadbeef"), text).unwrap();
            }
            "zeros" => std::fs::write(&key, [0; 90]).unwrap(),
            _ => {}
        }
        let engine = Engine::open(life.path()).unwrap();
        let tenant = engine.main().unwrap();
        is_forgotten(life.path(), &tenant, mine, theirs);
        engine.close().await.unwrap();
        drop((engine, tenant));
        let state = life.path().join("tenants/main/state.db");
        let before = dump(&state);
        std::fs::remove_file(&state).unwrap();
        drop(Engine::open(life.path()).unwrap());
        assert_eq!(before, dump(&state), "after {step}");
    }
}

#[tokio::test]
async fn without_its_key_a_tenant_does_not_open_and_its_ledger_still_verifies() {
    let (bench, ..) = clinic().await;
    bench.engine.close().await.unwrap();
    let Bench { dir, engine, tenant, .. } = bench;
    drop((engine, tenant));
    let key = key_file(dir.path());
    let text = std::fs::read_to_string(&key).unwrap();
    std::fs::remove_file(&key).unwrap();
    let report = verify(dir.path(), false, &mut |_, _| ()).unwrap().to_json();
    let of = &report["tenants"][0];
    assert_eq!((&report["ok"], &of["state"], &of["problems"]), (&json!(true), &json!("skipped"), &json!([])));
    let refused = || Engine::open(dir.path()).and_then(|engine| engine.main()).err().unwrap();
    assert!(refused().to_string().contains("of the sealed space \"clinic\" is missing"), "{}", refused());
    // As after a restore: the key is missed while the state is folded.
    std::fs::remove_file(dir.path().join("tenants/main/state.db")).unwrap();
    assert_eq!(refused().code(), Code::StoreCorrupt);
    assert!(refused().to_string().contains("of a sealed space is missing"), "{}", refused());
    std::fs::write(&key, text).unwrap();
    let engine = Engine::open(dir.path()).unwrap();
    engine.main().unwrap();
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_backup_from_before_holds_nothing_that_is_left_once_the_key_is_gone() {
    let (bench, mine, theirs) = clinic().await;
    let (copy, back) = (TempDir::new(), TempDir::new());
    backup(&bench.engine, copy.path()).await.unwrap();
    assert_eq!(holding(copy.path(), CANARY), Vec::<PathBuf>::new());
    assert!(!copy.path().join("keys/main.spaces").exists(), "its key is kept apart");
    bench.tenant.forget_space(&Caller::local(), "clinic").await.unwrap();
    restore(copy.path(), back.path()).unwrap();
    let keys = "keys/main.spaces";
    std::fs::create_dir_all(back.path().join(keys)).unwrap();
    copy_tree(&bench.dir.path().join(keys), &back.path().join(keys));
    let engine = Engine::open(back.path()).unwrap();
    is_forgotten(back.path(), &engine.main().unwrap(), mine, theirs);
    engine.close().await.unwrap();
    assert_sound(back.path());
}
