//! Entities: what is declared is checked, a change and its event are one, nothing changed is nothing said.

use engine::entity::{Action, Expect, Write, Written};
use engine::{AsOf, Caller, Paging, Tenant};
use model::definition::{Concept, Definition, Derive, Expr, Field, RowAuthz, Scope, Type};
use model::{Code, Problem};
use serde_json::{Map, Value, json};

use crate::temp::Bench;

mod definitions;
mod narrowing;
mod owners;
mod queries;
mod rebuild;
mod secrets;
mod values;

pub const SYSTEM: &str = "v1:health:system";

pub fn field(name: &str, of: Type) -> Field {
    Field { name: name.to_owned(), of, ..Field::default() }
}

pub fn concept(id: &str, fields: Vec<Field>) -> Concept {
    let name = id.rsplit(':').next().unwrap().to_owned();
    Concept { id: id.to_owned(), name, node_type: "object".to_owned(), fields, ..Concept::default() }
}

/// A concept with a little of everything.
pub fn system() -> Concept {
    let statuses = vec![json!("ok"), json!("degraded"), json!("down")];
    Concept {
        derives: vec![Derive {
            topic: "health.went_down".to_owned(),
            when: Some(Expr("next.status == \"down\" && prev.status != \"down\"".to_owned())),
        }],
        ..concept(
            SYSTEM,
            vec![
                Field { required: true, default: Some(json!("ok")), ..field("status", Type::Enum(statuses)) },
                Field { min: Some(0.0), max: Some(60_000.0), ..field("latency_ms", Type::Int) },
                Field { unique: true, pattern: Some("[a-z]+".into()), ..field("slug", Type::String) },
                Field { immutable: true, ..field("region", Type::String) },
                field(
                    "attributes",
                    Type::Object(vec![field("owner", Type::String), field("n", Type::Double)]),
                ),
                field("checked_at", Type::Timestamp),
                field("every", Type::Duration),
                field("tags", Type::List(Box::new(Type::String))),
            ],
        )
    }
}

pub async fn declared(concepts: Vec<Concept>) -> Bench {
    let bench = Bench::new();
    let definitions = concepts.into_iter().map(Definition::Concept).collect();
    bench.tenant.apply("test", definitions).await.unwrap();
    bench
}

pub fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("{other}"),
    }
}

pub async fn write(tenant: &Tenant, id: &str, action: Action) -> Result<Written, Problem> {
    tenant.write(&Caller::local(), Write::of(SYSTEM, Some(id), action)).await
}

pub async fn put(tenant: &Tenant, id: &str, fields: Value) -> Result<Written, Problem> {
    write(tenant, id, Action::Put(map(fields))).await
}

pub async fn patch(tenant: &Tenant, id: &str, fields: Value) -> Result<Written, Problem> {
    write(tenant, id, Action::Patch(map(fields))).await
}

async fn refused(tenant: &Tenant, fields: Value) -> (Code, String) {
    let problem = put(tenant, "x", fields).await.unwrap_err();
    (problem.code(), problem.pointer().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_change_is_a_row_and_an_event_in_one_commit() {
    let bench = declared(vec![system()]).await;
    let made =
        put(&bench.tenant, "api", json!({"latency_ms": 5, "attributes": {"owner": "ann"}})).await.unwrap();
    assert!(made.created());
    assert_eq!(made.row.fields["status"], "ok", "the default");
    let event = bench.tenant.event(&made.row.version.to_string()).unwrap();
    let value = event.to_value();
    assert_eq!(value["topic"], "graph.node.created.v1:health:system");
    assert_eq!(value["subject"], json!({"kind": SYSTEM, "id": "api"}));
    let payload = &value["payload"];
    assert_eq!(payload["nodeId"], "api");
    assert_eq!(payload["kind"], SYSTEM);
    assert_eq!(payload["nodeType"], "object");
    assert_eq!(payload["partition"], "default");
    assert_eq!(payload["prev"], Value::Null);
    assert_eq!(payload["next"], payload["payload"]);
    assert_eq!(payload["latency_ms"], 5, "fields of the row stand beside");
    let names =
        ["id", "concept", "actor", "createdAt", "occurredAt", "delta", "changed_fields", "changedFields"];
    assert!(names.iter().chain(&["provenance"]).all(|name| payload.get(*name).is_some()), "{payload}");
    let row = bench.tenant.entity(&Caller::local(), SYSTEM, None, "api").unwrap();
    assert_eq!(row, made.row);
}

#[tokio::test]
async fn an_update_says_before_after_and_what_differs_and_nothing_when_nothing_does() {
    let bench = declared(vec![system()]).await;
    put(&bench.tenant, "api", json!({"latency_ms": 5, "tags": ["a"]})).await.unwrap();
    bench.pass(10.0);
    let changed = patch(&bench.tenant, "api", json!({"status": "degraded", "tags": null})).await.unwrap();
    let head = bench.tenant.head();
    let same = patch(&bench.tenant, "api", json!({"status": "degraded"})).await.unwrap();
    assert_eq!((same.change, same.row.version, bench.tenant.head()), (None, changed.row.version, head));
    let payload = bench.tenant.event(&changed.row.version.to_string()).unwrap().to_value()["payload"].clone();
    assert_eq!(payload["prev"], json!({"latency_ms": 5, "status": "ok", "tags": ["a"]}));
    assert_eq!(payload["next"], json!({"latency_ms": 5, "status": "degraded"}));
    assert_eq!(payload["delta"], json!({"status": "degraded", "tags": null}));
    assert_eq!(payload["changed_fields"], json!(["status", "tags"]));
    let row = changed.row;
    assert!(row.in_state_since("status") > row.in_state_since("latency_ms"));
    assert_eq!(row.in_state_since("status"), row.updated_at);
}

#[tokio::test]
async fn a_delete_is_real_and_leaves_its_history() {
    let bench = declared(vec![system()]).await;
    let local = Caller::local();
    let made = put(&bench.tenant, "api", json!({})).await.unwrap().row;
    bench.pass(10.0);
    let down = patch(&bench.tenant, "api", json!({"status": "down"})).await.unwrap().row;
    bench.pass(10.0);
    let count = |window| {
        let window = std::time::Duration::from_secs(window);
        bench.tenant.transitions(&local, (SYSTEM, None, "api"), "status", window).unwrap()
    };
    assert_eq!((count(60), count(5)), (1, 0));
    write(&bench.tenant, "api", Action::Delete).await.unwrap();
    let gone = bench.tenant.entity(&local, SYSTEM, None, "api").unwrap_err();
    assert_eq!(gone.code(), Code::NotFound);
    assert_eq!(write(&bench.tenant, "api", Action::Delete).await.unwrap_err().code(), Code::NotFound);
    let at = (SYSTEM, None, "api");
    let history = bench.tenant.entity_history(&local, at, &Paging::default()).unwrap();
    let kinds: Vec<_> = history.changes.iter().map(|change| change["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["created", "updated", "deleted"]);
    assert_eq!(history.changes[2]["next"], Value::Null);
    assert_eq!(history.changes[2]["prev"]["status"], "down");
    let first = Paging { limit: 1, ..Paging::default() };
    let page = bench.tenant.entity_history(&local, at, &first).unwrap();
    assert_eq!(page.next, Some(down.version));
    let then = bench.tenant.entity_as_of(&local, at, AsOf::Position(down.version - 1)).unwrap();
    assert_eq!((then.version, &then.fields["status"]), (made.version, &json!("ok")));
    let then = bench.tenant.entity_as_of(&local, at, AsOf::Time(down.updated_at)).unwrap();
    assert_eq!(then.fields["status"], "down");
    assert!(bench.tenant.entity_as_of(&local, at, AsOf::Position(made.version - 1)).is_err());
}

#[tokio::test]
async fn what_does_not_fit_is_refused_with_its_place() {
    let bench = declared(vec![system()]).await;
    let tenant = &bench.tenant;
    let cases = [
        (json!({"status": "sleepy"}), "/status"),
        (json!({"latency_ms": 1.5}), "/latency_ms"),
        (json!({"latency_ms": -1}), "/latency_ms"),
        (json!({"latency_ms": "1"}), "/latency_ms"),
        (json!({"slug": "A1"}), "/slug"),
        (json!({"attributes": {"owner": 1}}), "/attributes/owner"),
        (json!({"attributes": {"else": 1}}), "/attributes/else"),
        (json!({"checked_at": "yesterday"}), "/checked_at"),
        (json!({"every": "soon"}), "/every"),
        (json!({"tags": ["a", 1]}), "/tags/1"),
        (json!({"unknown": 1}), "/unknown"),
    ];
    for (fields, pointer) in cases {
        assert_eq!(refused(tenant, fields).await, (Code::EntityInvalid, pointer.to_owned()));
    }
    let fits = json!({"latency_ms": 3.0, "checked_at": "2026-01-01T01:00:00+01:00", "every": "5m"});
    let row = put(tenant, "x", fits).await.unwrap().row;
    assert_eq!(row.fields["latency_ms"], 3);
    assert_eq!(row.fields["checked_at"], "2026-01-01T00:00:00Z");
    assert_eq!(row.fields["every"], 300);
    let problem = tenant.write(&Caller::local(), Write::of("v1:no:such", Some("x"), Action::Delete)).await;
    assert_eq!(problem.unwrap_err().code(), Code::ConceptNotFound);
}

#[tokio::test]
async fn unique_immutable_and_required_hold_over_updates() {
    let bench = declared(vec![system()]).await;
    put(&bench.tenant, "a", json!({"slug": "one", "region": "eu"})).await.unwrap();
    let taken = put(&bench.tenant, "b", json!({"slug": "one"})).await.unwrap_err();
    assert_eq!(taken.pointer(), Some("/slug"));
    put(&bench.tenant, "a", json!({"slug": "one", "region": "eu", "latency_ms": 1})).await.unwrap();
    let moved = patch(&bench.tenant, "a", json!({"region": "us"})).await.unwrap_err();
    assert_eq!((moved.code(), moved.pointer()), (Code::EntityInvalid, Some("/region")));
    let both = vec![
        Write::of(SYSTEM, Some("a"), Action::Patch(map(json!({"slug": "two"})))),
        Write::of(SYSTEM, Some("b"), Action::Put(map(json!({"slug": "one"})))),
    ];
    let written = bench.tenant.write_all(&Caller::local(), both).await.unwrap();
    assert_eq!(written.len(), 2, "a commit sees its own writes");
}

#[tokio::test]
async fn expectations_are_kept() {
    let bench = declared(vec![system()]).await;
    let tenant = &bench.tenant;
    let expecting = |expect, latency: i64| Write {
        expect,
        ..Write::of(SYSTEM, Some("a"), Action::Put(map(json!({"latency_ms": latency}))))
    };
    let local = Caller::local();
    let code = |result: Result<Written, Problem>| result.map(|_| ()).map_err(|problem| problem.code());
    assert_eq!(code(tenant.write(&local, expecting(Expect::Present, 1)).await), Err(Code::IfMatchFailed));
    let row = tenant.write(&local, expecting(Expect::Absent, 1)).await.unwrap().row;
    assert_eq!(code(tenant.write(&local, expecting(Expect::Absent, 1)).await), Err(Code::IfMatchFailed));
    assert_eq!(code(tenant.write(&local, expecting(Expect::Version(row.version), 2)).await), Ok(()));
    assert_eq!(
        code(tenant.write(&local, expecting(Expect::Version(row.version), 3)).await),
        Err(Code::IfMatchFailed)
    );
}

#[tokio::test]
async fn a_repeated_insert_collapses_by_its_content() {
    let bench = declared(vec![system()]).await;
    let insert = |id: Option<&str>, fields: Value| {
        let fields = map(fields);
        let told = fields.keys().cloned().collect();
        bench.tenant.write_blocking(&Caller::local(), Write::of(SYSTEM, id, Action::Insert { fields, told }))
    };
    let first = insert(None, json!({"slug": "one"})).unwrap();
    let again = insert(None, json!({"slug": "one"})).unwrap();
    assert_eq!((first.row.id.len(), again.change, again.row.version), (32, None, first.row.version));
    let other = insert(Some(&first.row.id), json!({"slug": "two"})).unwrap_err();
    assert_eq!(other.code(), Code::EntityExists);
}

#[tokio::test]
async fn derived_events_come_with_the_change_and_groups_see_both() {
    let bench = declared(vec![system()]).await;
    bench.tenant.put_group("g", &json!({"pattern": "#"})).await.unwrap();
    put(&bench.tenant, "a", json!({})).await.unwrap();
    let down = patch(&bench.tenant, "a", json!({"status": "down"})).await.unwrap().row;
    patch(&bench.tenant, "a", json!({"latency_ms": 9})).await.unwrap();
    let got = bench.pull("g", 10).await;
    let topics: Vec<&str> = got.iter().map(|delivery| delivery.event.envelope.topic.as_str()).collect();
    let (created, updated) = ("graph.node.created.v1:health:system", "graph.node.updated.v1:health:system");
    assert_eq!(topics, [created, updated, "health.went_down", updated]);
    assert_eq!(got[2].event.envelope.cause, Some(down.version));
}

#[tokio::test]
async fn global_rows_are_in_the_system_space_and_owned_rows_are_their_owners() {
    let settings = Concept { scope: Scope::Global, open: true, ..concept("v1:a:setting", Vec::new()) };
    let notes = Concept {
        row_authz: Some(RowAuthz { owner: "owner".to_owned() }),
        ..concept("v1:a:note", vec![field("owner", Type::String), field("text", Type::String)])
    };
    let bench = declared(vec![settings, notes]).await;
    let local = Caller::local();
    let row = Write::of("setting", Some("x"), Action::Put(map(json!({"any": [1]}))));
    assert_eq!(bench.tenant.write(&local, row).await.unwrap().row.space, "_system");
    let ann = Caller::named("user:ann").unwrap();
    let note = Write::of("note", Some("n"), Action::Put(map(json!({"text": "hi"}))));
    let row = bench.tenant.write(&ann, note.clone()).await.unwrap().row;
    assert_eq!(row.fields["owner"], "user:ann");
    assert_eq!(bench.tenant.entity(&local, "note", None, "n").unwrap_err().code(), Code::NotFound);
    assert_eq!(bench.tenant.write(&local, note).await.unwrap_err().code(), Code::NotFound);
    let theirs = Write::of("note", Some("m"), Action::Put(map(json!({"owner": "ann"}))));
    assert_eq!(bench.tenant.write(&local, theirs).await.unwrap_err().code(), Code::AuthDenied);
}

#[tokio::test]
async fn secrets_are_sealed_masked_and_kept_under_their_mask() {
    let secret = Field { secret: true, min_length: Some(3), ..field("password", Type::String) };
    let bench = declared(vec![concept("v1:a:login", vec![field("name", Type::String), secret])]).await;
    let put = |fields: Value| {
        let write = Write::of("login", Some("x"), Action::Put(map(fields)));
        bench.tenant.write_blocking(&Caller::local(), write)
    };
    assert_eq!(put(json!({"password": "ab"})).unwrap_err().pointer(), Some("/password"));
    assert_eq!(put(json!({"password": "***"})).unwrap_err().code(), Code::EntityInvalid);
    let row = put(json!({"name": "ann", "password": "hunter2"})).unwrap().row;
    assert_eq!(row.fields["password"], "***");
    assert_eq!(put(json!({"name": "ann", "password": "hunter2"})).unwrap().change, None, "the same secret");
    assert_eq!(put(json!({"name": "ann", "password": "***"})).unwrap().change, None, "the mask keeps it");
    let changed = put(json!({"name": "ann", "password": "other"})).unwrap().row;
    let event = bench.tenant.event(&changed.version.to_string()).unwrap().to_value();
    assert_eq!(event["payload"]["changed_fields"], json!(["password"]));
    assert_eq!(event["payload"]["next"]["password"], "***");
    assert_eq!(bench.tenant.reveal(&changed, "/password").unwrap(), Some(json!("other")));
    let bench = bench.reopen().await;
    let row = bench.tenant.entity(&Caller::local(), "login", None, "x").unwrap();
    assert_eq!(bench.tenant.reveal(&row, "/password").unwrap(), Some(json!("other")));
    let key = bench.dir.path().join("keys/main");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(key).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert!(!stands_in_ledger(&bench, "hunter2") && !stands_in_ledger(&bench, "\"other\""));
}

fn stands_in_ledger(bench: &Bench, word: &str) -> bool {
    let mut files = std::fs::read_dir(bench.dir.path().join("tenants/main/ledger")).unwrap();
    files.any(|file| {
        let text = std::fs::read(file.unwrap().path()).unwrap();
        text.windows(word.len()).any(|window| window == word.as_bytes())
    })
}

/// The definition holds the two halves of the secret; the whole is nowhere but in the row.
const SETS_A_PASSWORD: &str = r#"
use a.login.{ setPassword }

@trigger(event="go")
automation sets {
  step run {
    mutation setPassword { id: "x", password: "hunter" + event.payload.half }
  }
}
"#;

const LOGIN: &str = r#"
@namespace("a")
@version("1.0.0")
concept login {
  name string
  password string @secret
}

mutation login setPassword {
  args { id string!  password string! }
  upsert {
    id: args.id
    name: "ann"
    password: args.password
  }
}
"#;

#[tokio::test]
async fn a_secret_that_a_run_writes_is_sealed_like_any_other() {
    let files = [("a/login.ew", LOGIN), ("sets.ew", SETS_A_PASSWORD)];
    let files = files.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
    let checked = lang::declare::check_workspace(&files);
    assert!(!checked.has_errors(), "{:#?}", checked.findings);
    let bench = Bench::new();
    bench.tenant.apply("test", checked.definitions).await.unwrap();
    bench.engine.publish(engine::Draft::new("go", &json!({"half": "2x"}))).await.unwrap();
    let bench = bench.reopen().await;
    bench.engine.publish(engine::Draft::new("go", &json!({"half": "3x"}))).await.unwrap();
    let row = bench.tenant.entity(&Caller::local(), "login", None, "x").unwrap();
    assert_eq!(row.fields["password"], "***");
    assert_eq!(bench.tenant.reveal(&row, "/password").unwrap(), Some(json!("hunter3x")));
    assert!(!stands_in_ledger(&bench, "hunter2x") && !stands_in_ledger(&bench, "hunter3x"));
}
