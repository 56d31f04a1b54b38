//! Tokens: given out once, known by their hash, revoked at once, and still so after a restart or without their file.

use engine::Caller;
use engine::authority::{Permission, Role, Terms};
use model::{Code, Timestamp};
use serde_json::{Value, json};

use crate::temp::Bench;

async fn made(bench: &Bench, terms: Terms) -> (String, Value) {
    let by = Caller::named("user:ann").unwrap();
    bench.engine.authority().create(&bench.tenant, &by, terms).await.unwrap()
}

fn grant(bench: &Bench, text: &str) -> Result<Permission, Code> {
    let grant = bench.engine.authority().grant(text, bench.tenant.now());
    grant
        .map(|grant| if grant.may(Permission::Admin) { Permission::Admin } else { Permission::Read })
        .map_err(|p| p.code())
}

#[tokio::test]
async fn a_token_is_given_out_once_and_is_nowhere_in_the_files() {
    let bench = Bench::new();
    let (text, shown) = made(&bench, Terms { name: "ci".into(), ..Terms::of(Role::Admin) }).await;
    assert_eq!(
        (&shown["role"], &shown["name"], &shown["created_by"]),
        (&json!("admin"), &json!("ci"), &json!("user:ann"))
    );
    assert_eq!(grant(&bench, &text), Ok(Permission::Admin));
    assert_eq!(crate::maintain::holding(bench.dir.path(), &text), Vec::<std::path::PathBuf>::new());
    let listed = bench.engine.authority().list(&bench.tenant).unwrap();
    assert_eq!(listed[0]["id"], shown["id"]);
    assert!(
        listed[0].get("hash").is_none()
            && listed[0].get("token").is_none()
            && listed[0]["last_used_at"].is_string()
    );
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(bench.dir.path().join("tokens.json")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn a_token_works_until_it_is_revoked_or_over_also_after_a_restart() {
    let bench = Bench::new();
    let soon = bench.tenant.now().plus(std::time::Duration::from_secs(60));
    let (lasting, of) = made(&bench, Terms::of(Role::Viewer)).await;
    let (short, _) = made(&bench, Terms { expires_at: Some(soon), ..Terms::of(Role::Viewer) }).await;
    let bench = bench.reopen().await;
    assert_eq!(
        (grant(&bench, &lasting), grant(&bench, &short)),
        (Ok(Permission::Read), Ok(Permission::Read))
    );
    bench.pass(61.0);
    assert_eq!(grant(&bench, &short), Err(Code::AuthRequired));
    bench
        .engine
        .authority()
        .revoke(&bench.tenant, &Caller::local(), of["id"].as_str().unwrap())
        .await
        .unwrap();
    assert_eq!(grant(&bench, &lasting), Err(Code::AuthRequired));
    let bench = bench.reopen().await;
    assert_eq!(grant(&bench, &lasting), Err(Code::AuthRequired));
    let listed = bench.engine.authority().list(&bench.tenant).unwrap();
    let revoked = listed.iter().find(|token| token["id"] == of["id"]).unwrap();
    assert!(Timestamp::parse(revoked["revoked_at"].as_str().unwrap()).is_ok());
}

#[tokio::test]
async fn without_its_file_the_ledger_still_knows_every_token_and_which_were_revoked() {
    let bench = Bench::new();
    let (kept, _) = made(&bench, Terms::of(Role::Editor)).await;
    let (gone, of) = made(&bench, Terms::of(Role::Editor)).await;
    bench
        .engine
        .authority()
        .revoke(&bench.tenant, &Caller::local(), of["id"].as_str().unwrap())
        .await
        .unwrap();
    bench.engine.close().await.unwrap();
    std::fs::remove_file(bench.dir.path().join("tokens.json")).unwrap();
    let bench = bench.reopen().await;
    assert_eq!((grant(&bench, &kept), grant(&bench, &gone)), (Ok(Permission::Read), Err(Code::AuthRequired)));
}

#[tokio::test]
async fn the_houses_own_rows_are_events_for_who_names_them_and_rows_for_nobody() {
    let bench = Bench::new();
    made(&bench, Terms::of(Role::Owner)).await;
    let of = |pattern: &str| {
        let topic = Some(model::topic::Pattern::parse(pattern).unwrap());
        bench.tenant.find(&engine::Query { topic, limit: 10, ..Default::default() }).unwrap().events
    };
    assert!(of("graph.node.created.#").is_empty());
    let event = of("graph.node.created.v1:everwhen:token")[0].to_value();
    assert_eq!(
        (&event["actor"], &event["payload"]["next"]["hash"]),
        (&json!("user:ann"), &json!("***")),
        "{event}"
    );
    let local = Caller::local();
    let problem = bench.tenant.entities(
        &local,
        "v1:everwhen:token",
        &engine::Listing { limit: 10, ..Default::default() },
    );
    assert_eq!(problem.unwrap_err().code(), Code::ConceptNotFound);
    let write = engine::entity::Write::of(
        "v1:everwhen:token",
        Some("tok_x"),
        engine::entity::Action::Put(Default::default()),
    );
    assert_eq!(bench.tenant.write(&local, write).await.unwrap_err().code(), Code::ConceptNotFound);
}

#[tokio::test]
async fn nobody_declares_the_houses_own_concepts() {
    let bench = Bench::new();
    let (viewer, of) = made(&bench, Terms::of(Role::Viewer)).await;
    let concept = model::definition::Concept {
        id: "v1:everwhen:token".into(),
        name: "token".into(),
        ..Default::default()
    };
    let problem =
        bench.tenant.apply("w", vec![model::definition::Definition::Concept(concept)]).await.unwrap_err();
    assert_eq!(problem.code(), Code::DefinitionReserved);
    let seen = bench.tenant.entity(&Caller::local(), "v1:everwhen:token", None, of["id"].as_str().unwrap());
    assert_eq!(seen.unwrap_err().code(), Code::ConceptNotFound);
    assert_eq!(grant(&bench, &viewer), Ok(Permission::Read));
}

#[tokio::test]
async fn when_a_token_was_last_used_is_known_after_it_was_revoked() {
    let bench = Bench::new();
    let (text, of) = made(&bench, Terms::of(Role::Viewer)).await;
    grant(&bench, &text).unwrap();
    let id = of["id"].as_str().unwrap();
    bench.engine.authority().revoke(&bench.tenant, &Caller::named("user:ann").unwrap(), id).await.unwrap();
    let bench = bench.reopen().await;
    let listed = bench.engine.authority().list(&bench.tenant).unwrap();
    assert!(listed[0]["revoked_at"].is_string() && listed[0]["last_used_at"].is_string(), "{listed:?}");
}
