//! What a tenant may use: at its limit it is refused by name, and its neighbour goes on.

use engine::entity::{Action, Write};
use engine::import::Importer;
use engine::settings::Quota;
use engine::tenant::runs::Rerun;
use engine::{Caller, Draft, Tenant};
use lang::declare::check_workspace;
use model::{Code, Problem};
use serde_json::{Value, json};

use crate::temp::Bench;

async fn publish(tenant: &Tenant) -> Result<(), Problem> {
    tenant.publish(&Caller::local(), Draft::new("t.x", &json!({"n": 1}))).await.map(drop)
}

async fn limited(bench: &Bench, quota: Quota) -> Tenant {
    bench.engine.set_quota(&Caller::local(), "acme", quota).await.unwrap();
    bench.engine.tenant("acme").unwrap()
}

#[track_caller]
fn over(problem: Problem, quota: &str, limit: u64) {
    assert_eq!(problem.code(), Code::QuotaExceeded, "{problem}");
    assert_eq!((&problem.extra()["quota"], &problem.extra()["limit"]), (&json!(quota), &json!(limit)));
    assert!(problem.extra()["retry_after"].as_u64().unwrap() >= 1 && problem.hint_text().is_some());
}

async fn apply(tenant: &Tenant, names: &[&str]) -> Result<(), Problem> {
    let one = |name: &&str| {
        let text = format!(
            "automation: {name}\nmode: parallel\ntriggers: [{{event: t.x}}]\nactions: [{{delay: 1s}}]\n"
        );
        (format!("{name}.yaml"), text)
    };
    let checked = check_workspace(&names.iter().map(one).collect());
    assert!(!checked.has_errors(), "{:?}", checked.findings);
    tenant.apply("default", checked.definitions).await.map(drop)
}

#[tokio::test]
async fn each_quota_is_refused_by_its_name_and_the_neighbour_goes_on() {
    let bench = Bench::new();
    bench.engine.create_tenant(&Caller::local(), "acme").await.unwrap();
    let acme = limited(&bench, Quota { groups: Some(1), automations: Some(2), ..Quota::default() }).await;
    acme.put_group("one", &json!({"pattern": "#"})).await.unwrap();
    acme.put_group("one", &json!({"pattern": "t.#"})).await.unwrap();
    over(acme.put_group("two", &json!({"pattern": "#"})).await.map(drop).unwrap_err(), "groups", 1);
    apply(&acme, &["a", "b"]).await.unwrap();
    over(apply(&acme, &["a", "b", "c"]).await.unwrap_err(), "automations", 2);
    apply(&acme, &["a", "c"]).await.unwrap();

    limited(&bench, Quota { bytes: Some(1), ..Quota::default() }).await;
    over(publish(&acme).await.unwrap_err(), "bytes", 1);
    bench.tenant.put_group("two", &json!({"pattern": "#"})).await.unwrap();
    publish(&bench.tenant).await.unwrap();
    limited(&bench, Quota::default()).await;
    publish(&acme).await.unwrap();
    let shown = bench.engine.show_tenant("acme").unwrap();
    assert_eq!(
        (&shown["usage"]["groups"], &shown["usage"]["automations"]),
        (&json!(1), &json!(2)),
        "{shown}"
    );
    assert!(shown["usage"]["bytes"].as_u64().unwrap() > 100 && shown["quota"] == json!({}), "{shown}");
}

#[tokio::test]
async fn so_many_events_a_second_and_no_more_also_after_a_restart() {
    let bench = Bench::new();
    bench.engine.create_tenant(&Caller::local(), "acme").await.unwrap();
    limited(&bench, Quota { events_per_s: Some(3), ..Quota::default() }).await;
    let bench = bench.reopen().await;
    let acme = bench.engine.tenant("acme").unwrap();
    for _ in 0..3 {
        publish(&acme).await.unwrap();
    }
    over(publish(&acme).await.unwrap_err(), "events_per_s", 3);
    publish(&bench.tenant).await.unwrap();
    bench.clock.advance(std::time::Duration::from_secs(1));
    publish(&acme).await.unwrap();
}

#[tokio::test]
async fn rows_are_among_the_events_of_a_second_and_so_is_what_an_import_brings() {
    let bench = Bench::new();
    bench.engine.create_tenant(&Caller::local(), "acme").await.unwrap();
    let acme = limited(&bench, Quota { events_per_s: Some(3), ..Quota::default() }).await;
    let files = [("d/concepts.ew".to_owned(), "concept note {\n  n int\n}\n".to_owned())];
    acme.apply("default", check_workspace(&files.into()).definitions).await.unwrap();
    let row = |n: u64| {
        let fields = json!({ "n": n }).as_object().cloned().unwrap();
        Write::of("v1:d:note", Some("a"), Action::Put(fields))
    };
    let by = Caller::local();
    acme.write(&by, row(1)).await.unwrap();
    acme.write_queued(&by, row(2)).await.unwrap();
    publish(&acme).await.unwrap();
    over(acme.write(&by, row(3)).await.map(drop).unwrap_err(), "events_per_s", 3);
    over(acme.write_queued(&by, row(3)).await.map(drop).unwrap_err(), "events_per_s", 3);
    over(acme.write_all(&by, vec![row(3)]).await.map(drop).unwrap_err(), "events_per_s", 3);
    let mut import = Importer::new(acme.clone());
    import.line(br#"{"topic":"t.y"}"#).await.unwrap();
    over(import.finish().await.map(drop).unwrap_err(), "events_per_s", 3);
    acme.write(&Caller { outside: false, ..by.clone() }, row(3)).await.unwrap();
    bench.clock.advance(std::time::Duration::from_secs(1));
    acme.write_all(&by, vec![row(4), row(5), row(6), row(7)]).await.unwrap();
    over(acme.write(&by, row(8)).await.map(drop).unwrap_err(), "events_per_s", 3);
}

#[tokio::test]
async fn a_run_is_run_again_only_within_the_runs_of_its_day_and_goes_on_beyond() {
    let bench = Bench::new();
    bench.engine.create_tenant(&Caller::local(), "acme").await.unwrap();
    let acme = limited(&bench, Quota { runs_per_day: Some(1), ..Quota::default() }).await;
    apply(&acme, &["a"]).await.unwrap();
    let run = acme.start_run(&Caller::local(), "a", Value::Null, None).unwrap().run.unwrap();
    acme.cancel_run(&run).unwrap();
    over(acme.rerun(&run, &Rerun::default()).map(drop).unwrap_err(), "runs_per_day", 1);
    assert_eq!(acme.retry_run(&run).unwrap()["id"], json!(run), "it has begun once already");
    acme.cancel_run(&run).unwrap();
    bench.clock.advance(std::time::Duration::from_secs(86_400));
    assert_eq!(acme.rerun(&run, &Rerun::default()).unwrap()["rerun_of"], json!(run));
}

#[tokio::test]
async fn a_day_has_so_many_runs_and_what_is_refused_says_so() {
    let bench = Bench::new();
    bench.engine.create_tenant(&Caller::local(), "acme").await.unwrap();
    let acme = limited(&bench, Quota { runs_per_day: Some(2), ..Quota::default() }).await;
    apply(&acme, &["a"]).await.unwrap();
    for _ in 0..3 {
        publish(&acme).await.unwrap();
    }
    let outcomes = |tenant: &Tenant| {
        let wanted = engine::history::read::Wanted { limit: 10, ..Default::default() };
        let (mut decisions, _) = tenant.decisions(&wanted).unwrap();
        decisions.reverse();
        let told = |one: &Value| one["reason"].as_str().or(one["outcome"].as_str()).unwrap().to_owned();
        decisions.iter().map(told).collect::<Vec<_>>()
    };
    assert_eq!(outcomes(&acme), ["ran", "ran", "budget"]);
    let by_hand = acme.start_run(&Caller::local(), "a", Value::Null, None).unwrap();
    assert_eq!((by_hand.run, by_hand.reason.as_deref()), (None, Some("budget")));
    drop(acme);
    let bench = bench.reopen().await;
    let acme = bench.engine.tenant("acme").unwrap();
    publish(&acme).await.unwrap();
    assert_eq!(outcomes(&acme).last().unwrap(), "budget", "a restart does not begin the day anew");
    bench.clock.advance(std::time::Duration::from_secs(86_400));
    publish(&acme).await.unwrap();
    assert_eq!(outcomes(&acme).last().unwrap(), "ran");
}
