//! Erasing: the content goes from every copy, the chain and a rebuild stand.

use engine::maintain::{snapshot, verify};
use engine::settings::{AttentionRule, Verdict};
use engine::{Draft, Engine, Redrive};
use model::Code;
use model::topic::Pattern;
use serde_json::json;

use super::{holding, rebuilt};
use crate::temp::{Bench, tokens};

const SECRET: &str = "s3cr3t-of-ann";

fn secret(topic: &str) -> Draft {
    Draft { key: Some(format!("key-{topic}")), ..Draft::new(topic, &json!({"name": SECRET})) }
}

#[tokio::test]
async fn an_erased_event_is_gone_from_every_file_and_keeps_its_place() {
    let bench = Bench::new();
    bench
        .tenant
        .put_group("g", &json!({"pattern": "#", "max_retries": 0, "start": "beginning"}))
        .await
        .unwrap();
    let first = bench.engine.publish(secret("a")).await.unwrap().position().unwrap();
    let second = bench.engine.publish(secret("b")).await.unwrap().position().unwrap();
    let third = bench.engine.publish(secret("c")).await.unwrap().position().unwrap();
    let out = bench.pull("g", 2).await;
    bench.tenant.reject("g", &tokens(&out), Some(format!("cannot: {SECRET}"))).await.unwrap();
    bench.tenant.redrive("g", Redrive::Positions(vec![second])).await.unwrap();
    bench.tenant.put_group("slow", &json!({"pattern": "c", "start": "beginning"})).await.unwrap();
    let failed = bench.pull("slow", 1).await;
    bench.tenant.nack("slow", &tokens(&failed), None, Some(format!("odd: {SECRET}"))).await.unwrap();
    snapshot::take(&bench.tenant).unwrap();
    assert!(!holding(bench.dir.path(), SECRET).is_empty());

    assert_eq!(bench.tenant.erase(&[first, second, third, first]).await.unwrap(), 3);
    assert_eq!(holding(bench.dir.path(), SECRET), Vec::<std::path::PathBuf>::new());
    let event = bench.tenant.event(&first.to_string()).unwrap().to_value();
    assert_eq!((&event["erased"], &event["topic"], event.get("payload")), (&json!(true), &json!("a"), None));
    let dead = bench.tenant.dead_letters("g", 10, None).unwrap().dead_letters;
    assert_eq!((&dead[0]["event"]["erased"], &dead[0]["event"]["topic"]), (&json!(true), &json!("a")));
    assert_eq!(bench.tenant.erase(&[first]).await.unwrap(), 0);
    let taken = bench.engine.publish(secret("a")).await.unwrap_err();
    assert_eq!((taken.code(), taken.extra().get("first_hash")), (model::Code::EventKeyConflict, None));
    assert!(taken.detail().ends_with("whose content was erased"), "{}", taken.detail());

    // What a group had in memory comes without content, and so does a dead letter that is tried again.
    bench.tenant.redrive("g", Redrive::All).await.unwrap();
    let again = bench.pull("g", 10).await;
    let got: Vec<_> = again.iter().map(|d| (d.event.position, d.event.content.payload().is_none())).collect();
    assert_eq!(got, [(first, true), (second, true), (third, true)]);
    let report = verify(bench.dir.path(), false, &mut |_, _| ()).unwrap().to_json();
    assert_eq!((&report["ok"], &report["tenants"][0]["state"]), (&json!(true), &json!("equal")), "{report}");
    assert_eq!(report["tenants"][0]["erased"], 6);
    let (before, after, dir) = rebuilt(bench).await;
    assert_eq!(before, after);
    assert!(holding(dir.path(), SECRET).is_empty());
}

#[tokio::test]
async fn a_parked_key_is_free_once_its_dead_letter_is_erased_before_and_after_a_rebuild() {
    let bench = Bench::new();
    let group = json!({"pattern": "#", "ordering": "key", "key": "event.payload.name", "on_exhausted": "park_key",
        "max_retries": 0, "start": "beginning"});
    bench.tenant.put_group("g", &group).await.unwrap();
    let first = bench.engine.publish(secret("a")).await.unwrap().position().unwrap();
    bench.engine.publish(secret("b")).await.unwrap();
    let out = bench.pull("g", 10).await;
    bench.tenant.nack("g", &tokens(&out), None, None).await.unwrap();
    assert!(bench.pull("g", 10).await.is_empty());
    bench.tenant.erase(&[first]).await.unwrap();
    assert_eq!(bench.pull("g", 10).await.len(), 1);
    let (before, after, _dir) = rebuilt(bench).await;
    assert_eq!(before, after);
}

#[tokio::test]
async fn the_deferred_copy_of_an_event_goes_with_it() {
    let bench = Bench::with(|options| {
        let verdict = Verdict::Defer { until: std::time::Duration::from_secs(60) };
        let topic = Pattern::parse("later").unwrap();
        options.settings.attention = vec![AttentionRule { topic, filter: None, rate: None, verdict }];
    });
    bench.engine.publish(secret("later")).await.unwrap();
    bench.pass(61.0);
    let event = bench.tenant.find(&engine::Query::default()).unwrap().events[0].clone();
    assert_eq!(bench.tenant.erase(&[event.position]).await.unwrap(), 1);
    assert!(holding(bench.dir.path(), SECRET).is_empty());
    let (before, after, _dir) = rebuilt(bench).await;
    assert_eq!(before, after);
}

#[tokio::test]
async fn what_is_no_event_is_refused_and_nothing_is_erased() {
    let bench = Bench::new();
    bench.tenant.put_group("g", &json!({"pattern": "#"})).await.unwrap();
    let position = bench.engine.publish(secret("a")).await.unwrap().position().unwrap();
    for wrong in [1, 0, 99] {
        let problem = bench.tenant.erase(&[position, wrong]).await.unwrap_err();
        assert_eq!(problem.code(), Code::EventNotFound, "{wrong}");
    }
    assert!(bench.tenant.event(&position.to_string()).unwrap().content.payload().is_some());
}

#[tokio::test]
async fn an_erasure_that_a_crash_interrupted_is_finished_at_the_next_open() {
    let bench = Bench::new();
    let position = bench.engine.publish(secret("a")).await.unwrap().position().unwrap();
    snapshot::take(&bench.tenant).unwrap();
    bench.engine.close().await.unwrap();
    let dir = bench.dir;
    drop((bench.engine, bench.tenant));
    std::fs::write(dir.path().join("tenants/main/erasing"), format!("[{position}]")).unwrap();
    let engine = Engine::open(dir.path()).unwrap();
    assert!(engine.main().unwrap().event(&position.to_string()).unwrap().content.payload().is_none());
    assert!(holding(dir.path(), SECRET).is_empty());
    assert!(!dir.path().join("tenants/main/erasing").exists());
    assert_eq!(verify(dir.path(), false, &mut |_, _| ()).unwrap().to_json()["ok"], true);
}

const READERS: &str = r#"
- automation: ends
  triggers: [{event: a, filter: 'event.payload.name != ""'}]
  actions:
    - vars: {name: "{{ event.payload.name }}"}
    - stop: "{{ vars.name }}"
- automation: waits
  triggers: [{event: a}]
  actions:
    - vars: {name: "{{ event.payload.name }}"}
    - delay: 1h
- automation: awaits
  mode: parallel
  triggers: [{event: begin}]
  actions:
    - wait_for: {event: a}
    - vars: {name: "{{ wait.event.payload.name }}"}
    - delay: 1h
"#;

#[tokio::test]
async fn what_runs_and_decisions_kept_of_an_erased_event_is_gone_and_live_ones_are_over() {
    let bench = Bench::new();
    let files = [("readers.yaml".to_owned(), READERS.to_owned())].into();
    let checked = lang::declare::check_workspace(&files);
    assert!(!checked.has_errors(), "{:#?}", checked.findings);
    bench.tenant.apply("test", checked.definitions).await.unwrap();
    bench.engine.publish(Draft::new("begin", &json!({}))).await.unwrap();
    let event = bench.engine.publish(secret("a")).await.unwrap().position().unwrap();
    let other = bench.engine.publish(Draft::new("begin", &json!({}))).await.unwrap().position().unwrap();
    let live = |bench: &Bench| {
        let runs = bench.tenant.live_runs(None).unwrap();
        runs.iter().map(|run| run["automation"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(live(&bench), ["awaits", "waits", "awaits"]);
    let (runs, _) =
        bench.tenant.runs(&engine::history::read::Wanted { limit: 100, ..Default::default() }).unwrap();
    assert_eq!(runs.len(), 4);
    assert!(!holding(bench.dir.path(), SECRET).is_empty());

    assert_eq!(bench.tenant.erase(&[event]).await.unwrap(), 1);
    assert_eq!(holding(bench.dir.path(), SECRET), Vec::<std::path::PathBuf>::new());
    let left = bench.tenant.live_runs(None).unwrap();
    assert_eq!((left.len(), &left[0]["occurrence"]["position"]), (1, &json!(other)), "it read nothing of it");
    let (runs, _) =
        bench.tenant.runs(&engine::history::read::Wanted { limit: 100, ..Default::default() }).unwrap();
    let codes: Vec<_> = runs.iter().map(|run| run["error"]["code"].as_str().unwrap_or("-")).collect();
    assert_eq!(codes.iter().filter(|code| **code == "event.erased").count(), 2, "{runs:?}");
    let (before, after, dir) = rebuilt(bench).await;
    assert_eq!(before, after);
    assert!(holding(dir.path(), SECRET).is_empty());
}

const QUEUED: &str = "
- automation: queued
  mode: queued
  triggers: [{event: a}]
  actions:
    - vars: {name: '{{ event.payload.name }}'}
    - delay: 1h
";

#[tokio::test]
async fn what_waits_behind_a_run_that_is_lost_is_lost_with_its_own_event() {
    let bench = Bench::new();
    let files = [("queued.yaml".to_owned(), QUEUED.to_owned())].into();
    bench.tenant.apply("test", lang::declare::check_workspace(&files).definitions).await.unwrap();
    let mut events = Vec::new();
    for n in 0..3 {
        let draft = Draft::new("a", &json!({"name": format!("{SECRET}-{n}")}));
        events.push(bench.engine.publish(draft).await.unwrap().position().unwrap());
    }
    assert_eq!(bench.tenant.erase(&events).await.unwrap(), 3);
    assert_eq!(holding(bench.dir.path(), SECRET), Vec::<std::path::PathBuf>::new());
    assert!(bench.tenant.live_runs(None).unwrap().is_empty());
    let (before, after, dir) = rebuilt(bench).await;
    assert_eq!(before, after);
    assert!(holding(dir.path(), SECRET).is_empty());
}

#[tokio::test]
async fn a_run_that_is_tried_again_leaves_a_state_that_a_rebuild_equals() {
    let bench = Bench::new();
    let files = [("queued.yaml".to_owned(), QUEUED.to_owned())].into();
    bench.tenant.apply("test", lang::declare::check_workspace(&files).definitions).await.unwrap();
    bench.engine.publish(Draft::new("a", &json!({"name": "x"}))).await.unwrap();
    let id = bench.tenant.live_runs(None).unwrap()[0]["id"].as_str().unwrap().to_owned();
    bench.tenant.cancel_run(&id).unwrap();
    bench.tenant.retry_run(&id).unwrap();
    assert_eq!(bench.tenant.live_runs(None).unwrap().len(), 1);
    let report = verify(bench.dir.path(), false, &mut |_, _| ()).unwrap().to_json();
    assert_eq!((&report["ok"], &report["tenants"][0]["state"]), (&json!(true), &json!("equal")), "{report}");
    let (before, after, _dir) = rebuilt(bench).await;
    assert_eq!(before, after);
}

const GATHERS: &str = "
- automation: gathers
  mode: parallel
  triggers: [{event: a, batch: {count: 2, for: 1h}}]
  actions:
    - vars: {all: '{{ input.events.map(e, e.payload.name) }}'}
    - delay: 1h
";

#[tokio::test]
async fn the_first_event_of_a_batch_is_gone_from_the_run_that_has_it() {
    let bench = Bench::new();
    let files = [("gathers.yaml".to_owned(), GATHERS.to_owned())].into();
    bench.tenant.apply("test", lang::declare::check_workspace(&files).definitions).await.unwrap();
    let first = bench.engine.publish(secret("a")).await.unwrap().position().unwrap();
    bench.engine.publish(Draft::new("a", &json!({"name": "nobody"}))).await.unwrap();
    assert_eq!(bench.tenant.live_runs(None).unwrap().len(), 1);
    assert_eq!(bench.tenant.erase(&[first]).await.unwrap(), 1);
    assert_eq!(holding(bench.dir.path(), SECRET), Vec::<std::path::PathBuf>::new());
    assert!(bench.tenant.live_runs(None).unwrap().is_empty());
    let (before, after, dir) = rebuilt(bench).await;
    assert_eq!(before, after);
    assert!(holding(dir.path(), SECRET).is_empty());
}

const PAGES: &str = "
- automation: pages
  mode: queued
  storm: {per_minute: 1, pause: true}
  triggers: [{event: a}]
  actions: [{delay: 1h}, {publish: {topic: out, payload: {name: '{{ event.payload.name }}'}}}]
";

#[tokio::test]
async fn what_was_refused_and_queues_after_all_is_gone_too() {
    use engine::tenant::runs::{Bulk, Verb};
    let bench = Bench::new();
    let files = [("pages.yaml".to_owned(), PAGES.to_owned())].into();
    let checked = lang::declare::check_workspace(&files);
    assert!(!checked.has_errors(), "{:#?}", checked.findings);
    bench.tenant.apply("test", checked.definitions).await.unwrap();
    let mut events = Vec::new();
    for _ in 0..3 {
        let draft = Draft::new("a", &json!({"name": SECRET}));
        events.push(bench.engine.publish(draft).await.unwrap().position().unwrap());
    }
    bench.tenant.set_automation("pages", engine::command::Toggle::Resume).unwrap();
    let (automation, status, reason, since) = (Some("pages".to_owned()), None, None, None);
    let bulk = Bulk { verb: Verb::Run, automation, status, reason, since, dry_run: false };
    assert_eq!(bench.tenant.runs_in_bulk(&bulk).unwrap(), json!({"matched": 2, "done": 2}));
    assert_eq!(bench.tenant.erase(&events).await.unwrap(), 3);
    assert_eq!(holding(bench.dir.path(), SECRET), Vec::<std::path::PathBuf>::new());
    assert!(bench.tenant.live_runs(None).unwrap().is_empty());
    let (before, after, dir) = rebuilt(bench).await;
    assert_eq!(before, after);
    assert!(holding(dir.path(), SECRET).is_empty());
}
