//! Tenants made, suspended, resumed and removed: nothing of one that rests runs, and of one that is gone nothing is left.

use std::time::Duration;

use engine::authority::Permission;
use engine::settings::{AttentionRule, Verdict};
use engine::{Caller, Draft, Options, Query};
use model::Code;
use model::topic::Pattern;
use serde_json::{Value, json};

use crate::temp::{Bench, TempDir};

fn ann() -> Caller {
    Caller::named("user:ann").unwrap()
}

/// What is published under `later` becomes an event an hour later.
fn later(options: &mut Options) {
    let verdict = Verdict::Defer { until: Duration::from_secs(3600) };
    let topic = Pattern::parse("later.#").unwrap();
    options.settings.attention = vec![AttentionRule { topic, filter: None, rate: None, verdict }];
}

async fn publish(bench: &Bench, tenant: &str, topic: &str) {
    let tenant = bench.engine.tenant(tenant).unwrap();
    tenant.publish(&Caller::local(), Draft::new(topic, &json!({"n": 1}))).await.unwrap();
}

fn topics(bench: &Bench, tenant: &str) -> Vec<String> {
    let found = bench.engine.tenant(tenant).unwrap().find(&Query::default()).unwrap();
    let ours = found.events.iter().map(|event| event.envelope.topic.clone());
    ours.filter(|topic| !topic.starts_with("graph.")).collect()
}

fn names(bench: &Bench) -> Vec<String> {
    let all = bench.engine.list_tenants().unwrap();
    all.iter().map(|tenant| tenant["name"].as_str().unwrap().to_owned()).collect()
}

fn refused(bench: &Bench, tenant: &str) -> Code {
    bench.engine.tenant(tenant).map(drop).unwrap_err().code()
}

fn token_of(made: &Value) -> String {
    made["owner_token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_tenant_that_is_suspended_rests_and_goes_on_where_it_stood() {
    let bench = Bench::with(later);
    let made = bench.engine.create_tenant(&ann(), "acme").await.unwrap();
    let grant = bench.engine.authority().grant(&token_of(&made), bench.engine.now()).unwrap();
    assert!(grant.tenant == "acme" && grant.may(Permission::Admin) && !grant.may(Permission::Node));
    publish(&bench, "acme", "a").await;
    publish(&bench, "acme", "later.b").await;

    let held = bench.engine.tenant("acme").unwrap();
    let suspended = bench.engine.suspend_tenant(&ann(), "acme").await.unwrap();
    assert!(suspended["suspended"] == true && suspended["suspended_at"].is_string(), "{suspended}");
    assert_eq!(refused(&bench, "acme"), Code::TenantSuspended);
    let late = held.publish(&Caller::local(), Draft::new("c", &json!({}))).await;
    assert!(late.is_err(), "one who held it before writes nothing more");
    bench.clock.advance(Duration::from_secs(7200));
    bench.engine.open_due();
    assert!(bench.engine.open_tenants().iter().all(|tenant| tenant.name() != "acme"), "nothing of it is due");
    assert_eq!(bench.engine.show_tenant("acme").unwrap()["suspended"], true);

    bench.engine.resume_tenant(&ann(), "acme").await.unwrap();
    assert_eq!(topics(&bench, "acme"), ["a", "later.b"], "what came due meanwhile is done now");
    publish(&bench, "acme", "d").await;
    assert_eq!(bench.engine.list_tenants().unwrap()[0]["suspended"], false);
}

#[tokio::test]
async fn a_suspension_holds_over_a_restart_with_and_without_its_file() {
    let bench = Bench::new();
    bench.engine.create_tenant(&ann(), "acme").await.unwrap();
    bench.engine.suspend_tenant(&ann(), "acme").await.unwrap();
    let bench = bench.reopen().await;
    assert_eq!(refused(&bench, "acme"), Code::TenantSuspended);
    std::fs::remove_file(bench.dir.path().join("house.json")).unwrap();
    let bench = bench.reopen().await;
    assert_eq!(refused(&bench, "acme"), Code::TenantSuspended);
    bench.engine.resume_tenant(&ann(), "acme").await.unwrap();
    let bench = bench.reopen().await;
    publish(&bench, "acme", "a").await;
}

#[tokio::test]
async fn a_tenant_that_is_removed_leaves_nothing_and_its_name_begins_anew() {
    let bench = Bench::new();
    let made = bench.engine.create_tenant(&ann(), "acme").await.unwrap();
    publish(&bench, "acme", "canary.in.the.coal.mine").await;
    bench.engine.delete_tenant(&ann(), "acme").await.unwrap();
    assert_eq!(names(&bench), ["main"]);
    let dir = bench.dir.path();
    assert!(
        !dir.join("tenants/acme").exists() && !dir.join("keys/acme").exists() && !dir.join("trash").exists()
    );
    assert_eq!(crate::maintain::holding(dir, "canary.in.the"), Vec::<std::path::PathBuf>::new());
    let now = bench.engine.now();
    assert_eq!(bench.engine.authority().grant(&token_of(&made), now).unwrap_err().code(), Code::AuthRequired);
    assert_eq!(bench.engine.show_tenant("acme").unwrap_err().code(), Code::NotFound);
    bench.engine.create_tenant(&ann(), "acme").await.unwrap();
    assert_eq!(topics(&bench, "acme"), Vec::<String>::new());
    let bench = bench.reopen().await;
    assert_eq!(names(&bench), ["acme", "main"]);
}

#[tokio::test]
async fn a_removal_that_was_cut_short_is_finished_by_the_next_start() {
    let bench = Bench::new();
    let made = bench.engine.create_tenant(&ann(), "acme").await.unwrap();
    bench.engine.create_tenant(&ann(), "other").await.unwrap();
    bench.engine.suspend_tenant(&ann(), "acme").await.unwrap();
    bench.engine.close().await.unwrap();
    let dir = bench.dir.path();
    assert!(dir.join("keys/acme").exists());
    // As a crash leaves it right after the rename.
    std::fs::create_dir_all(dir.join("trash/acme.1")).unwrap();
    std::fs::rename(dir.join("tenants/acme"), dir.join("trash/acme.1/data")).unwrap();
    let bench = bench.reopen().await;
    let dir = bench.dir.path();
    assert!(
        !dir.join("trash").exists() && !dir.join("keys/acme").exists() && dir.join("keys/other").exists()
    );
    assert_eq!(names(&bench), ["main", "other"]);
    // One seed makes the same token for both tenants.
    let grant = bench.engine.authority().grant(&token_of(&made), bench.engine.now());
    assert!(grant.is_err() || grant.is_ok_and(|grant| grant.tenant == "other"));
    publish(&bench, "acme", "a").await;
    assert_eq!(topics(&bench, "acme"), ["a"], "the name is free, and nothing of the old one is suspended");
}

#[tokio::test]
async fn no_name_leads_out_of_the_house_and_no_link_is_followed() {
    let bench = Bench::new();
    let long = "a".repeat(64);
    for name in ["", ".", "..", "../acme", "a/b", "a\\b", "A", "-a", "_a", "a.b", "a\0b", " a", "ä", &long] {
        let made = bench.engine.create_tenant(&ann(), name).await;
        assert_eq!(made.unwrap_err().code(), Code::TenantInvalid, "{name:?}");
        assert!(!bench.engine.has_tenant(name), "{name:?}");
        for gone in [
            bench.engine.show_tenant(name).map(drop),
            bench.engine.suspend_tenant(&ann(), name).await.map(drop),
            bench.engine.delete_tenant(&ann(), name).await,
        ] {
            assert_eq!(gone.unwrap_err().code(), Code::NotFound, "{name:?}");
        }
    }
    let elsewhere = TempDir::new();
    std::os::unix::fs::symlink(elsewhere.path(), bench.dir.path().join("tenants/evil")).unwrap();
    assert_eq!(refused(&bench, "evil"), Code::StoreCorrupt);
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0, "nothing was written there");
    for of_main in [
        bench.engine.suspend_tenant(&ann(), "main").await.map(drop),
        bench.engine.delete_tenant(&ann(), "main").await,
    ] {
        assert_eq!(of_main.unwrap_err().code(), Code::TenantInvalid);
    }
    assert_eq!(bench.engine.create_tenant(&ann(), "main").await.unwrap_err().code(), Code::TenantExists);
}

#[tokio::test]
async fn a_backup_holds_a_tenant_that_rests() {
    let bench = Bench::new();
    bench.engine.create_tenant(&ann(), "acme").await.unwrap();
    publish(&bench, "acme", "a").await;
    bench.engine.suspend_tenant(&ann(), "acme").await.unwrap();
    let to = TempDir::new();
    let copied = engine::maintain::backup(&bench.engine, &to.path().join("copy")).await.unwrap();
    assert!(copied.left_out.is_empty() && copied.tenants.len() == 2, "{copied:?}");
    let data = to.path().join("restored");
    engine::maintain::restore(&to.path().join("copy"), &data).unwrap();
    let engine = engine::Engine::open(&data).unwrap();
    assert_eq!(engine.tenant("acme").map(drop).unwrap_err().code(), Code::TenantSuspended);
    engine.resume_tenant(&ann(), "acme").await.unwrap();
    let found = engine.tenant("acme").unwrap().find(&Query::default()).unwrap();
    assert!(found.events.iter().any(|event| event.envelope.topic == "a"));
    engine.close().await.unwrap();
}
