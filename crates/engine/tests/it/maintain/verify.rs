//! `verify`, `salvage` and `records`: reading only, beside whoever holds the directory.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use engine::maintain::{records, salvage, verify};
use engine::{Draft, Engine};
use model::Code;
use serde_json::{Value, json};

use super::{publish_keyed, segments, small};
use crate::temp::{Bench, TempDir};

/// Enough for several segments, erasures and a trim.
const WRITES: i64 = 450;

fn look(dir: &std::path::Path) -> Value {
    verify(dir, false, &mut |_, _| ()).unwrap().to_json()
}

#[tokio::test]
async fn a_sound_directory_verifies_beside_its_engine_and_after_it() {
    let bench = Bench::with(small);
    bench.tenant.put_group("g", &json!({"pattern": "#"})).await.unwrap();
    for n in 0..40 {
        publish_keyed(&bench.engine, "a", n).await;
    }
    let mut told = (0, 0);
    let live = verify(bench.dir.path(), false, &mut |done, total| told = (done, total)).unwrap().to_json();
    assert!(told.0 > 0 && told.0 <= told.1, "{told:?}");
    let tenant = &live["tenants"][0];
    assert_eq!(
        (&live["ok"], &tenant["state"], &tenant["problems"]),
        (&json!(true), &json!("equal"), &json!([]))
    );
    assert_eq!((&tenant["first"], &tenant["last"]), (&json!(1), &json!(bench.tenant.head())));
    assert!(tenant["segments"].as_u64().unwrap() > 2);
    let quick = verify(bench.dir.path(), true, &mut |_, _| ()).unwrap().to_json();
    assert_eq!(quick["tenants"][0]["state"], "skipped");
    bench.engine.close().await.unwrap();
    let before: Vec<_> =
        std::fs::read_dir(bench.dir.path().join("tenants/main")).unwrap().flatten().collect();
    assert_eq!(look(bench.dir.path())["tenants"][0]["state"], "equal");
    let after = std::fs::read_dir(bench.dir.path().join("tenants/main")).unwrap().flatten().count();
    assert_eq!(before.len(), after, "verify left something behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_finds_nothing_wrong_with_a_ledger_that_grows_is_trimmed_and_erased_meanwhile() {
    let bench = Bench::with(|options| {
        options.ledger.segment_bytes = 20_000;
        options.settings.retention.bytes = Some(100_000);
    });
    let (engine, tenant) = (bench.engine.clone(), bench.tenant.clone());
    let written = Arc::new(AtomicI64::new(0));
    let counter = written.clone();
    let writing = tokio::spawn(async move {
        for n in 1..=WRITES {
            let position = publish_keyed(&engine, "a", n).await;
            if n % 50 == 0 {
                tenant.erase(&[position - 3]).await.unwrap();
            }
            if n % 200 == 0 {
                engine::maintain::retention::run(&tenant).unwrap();
            }
            counter.store(n, Ordering::Relaxed);
        }
    });
    while written.load(Ordering::Relaxed) < WRITES {
        let report = look(bench.dir.path());
        assert_eq!(
            (&report["ok"], &report["tenants"][0]["problems"]),
            (&json!(true), &json!([])),
            "{report}"
        );
    }
    writing.await.unwrap();
}

#[tokio::test]
async fn damage_is_named_by_file_and_offset_and_other_tenants_serve() {
    let bench = Bench::with(small);
    let other = bench.engine.tenant("other").unwrap();
    for n in 0..30 {
        publish_keyed(&bench.engine, "a", n).await;
        other.publish(&engine::Caller::local(), Draft::new("b", &json!(n))).await.unwrap();
    }
    bench.engine.close().await.unwrap();
    let broken = segments(bench.dir.path())[1].clone();
    let mut bytes = std::fs::read(&broken).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&broken, &bytes).unwrap();
    let report = look(bench.dir.path());
    let (main, fine) = (&report["tenants"][0], &report["tenants"][1]);
    assert_eq!((&report["ok"], &main["ok"], &fine["ok"]), (&json!(false), &json!(false), &json!(true)));
    let problem = &main["problems"][0];
    assert_eq!(problem["file"], json!(broken));
    let offset = problem["offset"].as_u64().unwrap() as usize;
    assert!(offset <= middle && middle < offset + 1_000, "{problem}");
    let sound = TempDir::new();
    let saved = salvage(bench.dir.path(), &sound.path().join("new")).unwrap().to_json();
    assert!(saved["tenants"][0]["stopped"].as_str().unwrap().contains(&offset.to_string()), "{saved}");
    let engine = Engine::open(sound.path().join("new")).unwrap();
    assert_eq!(engine.tenant("other").unwrap().event("30").unwrap().position, 30);
    let kept = engine.main().unwrap().head();
    assert!(kept > 0 && kept < 30, "{kept}");
    assert_eq!(look(&sound.path().join("new"))["ok"], true);
    let again = salvage(bench.dir.path(), &sound.path().join("new")).unwrap_err();
    assert_eq!(again.code(), Code::StoreExists);
}

#[tokio::test]
async fn a_state_that_is_not_what_the_ledger_says_differs() {
    let bench = Bench::new();
    publish_keyed(&bench.engine, "a", 1).await;
    bench.engine.close().await.unwrap();
    let path = bench.dir.path().join("tenants/main/state.db");
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute("UPDATE key SET id = 'another'", []).unwrap();
    drop(db);
    let report = look(bench.dir.path());
    let tenant = &report["tenants"][0];
    assert_eq!((&report["ok"], &tenant["state"]), (&json!(false), &json!("differs")));
    assert_eq!(tenant["problems"][0]["kind"], "state");
    std::fs::remove_file(&path).unwrap();
    let gone = look(bench.dir.path());
    assert_eq!((&gone["ok"], &gone["tenants"][0]["state"]), (&json!(true), &json!("skipped")));
}

#[tokio::test]
async fn an_absent_directory_is_said_and_not_made() {
    let dir = TempDir::new();
    let nowhere = dir.path().join("nowhere");
    assert_eq!(verify(&nowhere, true, &mut |_, _| ()).unwrap_err().code(), Code::StoreNotFound);
    assert_eq!(salvage(&nowhere, &dir.path().join("to")).unwrap_err().code(), Code::StoreNotFound);
    assert!(!nowhere.exists() && !dir.path().join("to").exists());
}

#[tokio::test]
async fn records_are_told_gapless() {
    let bench = Bench::with(small);
    bench.tenant.put_group("g", &json!({"pattern": "#"})).await.unwrap();
    for n in 0..20 {
        bench.publish("a", n).await;
    }
    let mut lines: Vec<Value> = Vec::new();
    records(&bench.tenant, 1, |line| {
        lines.push(serde_json::from_str(line).unwrap());
        Ok::<(), model::Problem>(())
    })
    .unwrap();
    assert_eq!(lines.len() as u64, bench.tenant.head());
    for (index, line) in lines.iter().enumerate() {
        assert_eq!(line["position"], index + 1);
        assert!(line["k"].is_string() && line["v"] == 1 && line["time"].is_string() && line["d"].is_object());
    }
    assert_eq!(lines[0]["k"], "group.put");
    assert_eq!(lines[1]["b"]["payload"]["n"], 0);
}

#[tokio::test]
async fn a_last_line_cut_in_half_is_a_torn_tail_and_nothing_worse() {
    let bench = Bench::new();
    for n in 1..=3 {
        publish_keyed(&bench.engine, "a", n).await;
    }
    bench.pass(1.0);
    let copy = TempDir::new();
    crate::temp::copy_tree(bench.dir.path(), copy.path());
    let path = copy.path().join("tenants/main/ledger/00000000000000000001.jsonl");
    let bytes = std::fs::read(&path).unwrap();
    let end = bytes.iter().rposition(|b| *b != b'\n').unwrap() + 1;
    std::fs::write(&path, &bytes[..end - 100]).unwrap();
    let report = look(copy.path());
    assert_eq!(
        (&report["ok"], &report["tenants"][0]["problems"][0]["kind"]),
        (&json!(true), &json!("torn_tail"))
    );
    assert_eq!(report["tenants"][0]["problems"].as_array().unwrap().len(), 1, "{report}");
}

/// A trimmed ledger, closed.
async fn trimmed() -> TempDir {
    let bench = Bench::with(|options| {
        small(options);
        options.settings.retention.bytes = Some(5_000);
    });
    for n in 0..90 {
        publish_keyed(&bench.engine, "a", n).await;
    }
    engine::maintain::retention::run(&bench.tenant).unwrap().unwrap();
    bench.engine.close().await.unwrap();
    bench.dir
}

fn flip(path: &std::path::Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn what_is_salvaged_of_a_trimmed_ledger_verifies_and_opens_wherever_the_damage_is() {
    let dir = trimmed().await;
    let all = segments(dir.path()).len();
    let new = TempDir::new();
    for nth in 0..all {
        let (bad, to) = (new.path().join(format!("bad{nth}")), new.path().join(format!("to{nth}")));
        std::fs::create_dir_all(&bad).unwrap();
        crate::temp::copy_tree(dir.path(), &bad);
        flip(&segments(&bad)[nth]);
        let saved = salvage(&bad, &to).unwrap().to_json();
        let first = segments(&to)[0].file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap();
        let report = look(&to);
        assert_eq!(
            (&report["ok"], &report["tenants"][0]["problems"]),
            (&json!(true), &json!([])),
            "{nth} {saved}"
        );
        assert_eq!(report["tenants"][0]["last"], saved["tenants"][0]["last"]);
        let engine = Engine::open(&to).unwrap();
        assert_eq!(engine.main().unwrap().first(), first, "{nth}");
        let position = publish_keyed(&engine, "b", 1_000).await;
        assert_eq!(engine.main().unwrap().event(&position.to_string()).unwrap().envelope.topic, "b");
        engine.close().await.unwrap();
        drop(engine);
        std::fs::remove_file(to.join("tenants/main/state.db")).unwrap();
        drop(Engine::open(&to).unwrap());
        assert_eq!(look(&to)["ok"], true, "{nth}: also after a rebuild");
    }
}

#[tokio::test]
async fn a_group_stops_before_a_segment_that_is_gone_and_the_engine_is_not_ready() {
    let bench = Bench::with(small);
    for n in 0..60 {
        publish_keyed(&bench.engine, "a", n).await;
    }
    bench.engine.close().await.unwrap();
    let Bench { dir, engine, tenant, .. } = bench;
    drop((engine, tenant));
    std::fs::remove_file(&segments(dir.path())[1]).unwrap();
    let engine = Engine::open(dir.path()).unwrap();
    let tenant = engine.main().unwrap();
    assert!(engine.health().ready);
    let put = tenant.put_group("g", &json!({"pattern": "#", "start": "beginning"})).await;
    let refused = match put {
        Err(problem) => problem,
        Ok(_) => loop {
            match tenant.pull("g", 1000, std::time::Duration::ZERO).await {
                Ok(out) => assert!(!out.is_empty(), "it has passed over what is gone"),
                Err(problem) => break problem,
            }
        },
    };
    assert_eq!(refused.code(), Code::StoreCorrupt);
    assert!(!engine.health().ready && engine.health().failing.len() == 1, "{:?}", engine.health());
    let gone = segments(dir.path())[0].file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap();
    let next = segments(dir.path())[1].file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap();
    assert_eq!(gone, 1);
    assert_eq!(tenant.event(&(next - 1).to_string()).unwrap_err().code(), Code::StoreCorrupt);
    assert_eq!(tenant.event(&next.to_string()).unwrap().position, next);
}

#[tokio::test]
async fn a_record_of_a_later_version_after_a_clean_stop_is_newer_not_damage() {
    for (kind, data) in [("wholly.new", "{}"), ("format.raised", "{\"n\":999}")] {
        let bench = Bench::new();
        publish_keyed(&bench.engine, "a", 1).await;
        bench.engine.close().await.unwrap();
        let Bench { dir, engine, tenant, .. } = bench;
        drop((engine, tenant));
        let folder = dir.path().join("tenants/main/ledger");
        let head = ledger::closed_at(&ledger::disk::OsDisk, &folder).unwrap();
        let mut batch = ledger::Batch::new(head, head.position, model::Timestamp::EPOCH);
        batch.commit(&[ledger::NewRecord { kind, version: 1, data: data.into(), body: None }]);
        let path = segments(dir.path())[0].clone();
        std::fs::write(&path, [std::fs::read(&path).unwrap(), batch.bytes().to_vec()].concat()).unwrap();
        let error = Engine::open(dir.path()).and_then(|engine| engine.main()).err().unwrap();
        assert_eq!(error.code(), Code::StoreNewer, "{kind}: {error}");
        let said = if kind == "wholly.new" { kind } else { "999" };
        // With the state as it was, and without one.
        for _ in 0..2 {
            let report = look(dir.path());
            let (tenant, problem) = (&report["tenants"][0], &report["tenants"][0]["problems"][0]);
            assert_eq!((&report["ok"], &tenant["state"]), (&json!(false), &json!("skipped")), "{report}");
            assert_eq!(problem["kind"], "newer", "{report}");
            let message = problem["message"].as_str().unwrap();
            assert!(message.starts_with("store.newer: ") && message.contains(said), "{report}");
            let _ = std::fs::remove_file(dir.path().join("tenants/main/state.db"));
        }
    }
}
