//! Backups made while others publish, and the way back.

use engine::maintain::{backup, restore, verify};
use engine::{Engine, Options};
use model::Code;
use serde_json::json;

use super::{publish_keyed, small};
use crate::temp::{Bench, TempDir, tokens};

#[tokio::test]
async fn a_backup_under_load_restores_to_everything_acked_before_it() {
    let bench = Bench::with(small);
    bench.tenant.put_group("g", &json!({"pattern": "#", "start": "beginning"})).await.unwrap();
    for n in 0..30 {
        publish_keyed(&bench.engine, "a", n).await;
    }
    let out = bench.pull("g", 4).await;
    bench.tenant.ack("g", &tokens(&out[..1]), true).await.unwrap();
    let to = TempDir::new();
    let copy = to.path().join("copy");
    let during = async {
        for n in 30..60 {
            publish_keyed(&bench.engine, "a", n).await;
            tokio::task::yield_now().await;
        }
    };
    let (made, ()) = tokio::join!(backup(&bench.engine, &copy), during);
    let made = made.unwrap().to_json();
    assert_eq!(made["tenants"][0]["tenant"], "main");
    assert_eq!(verify(&copy, false, &mut |_, _| ()).unwrap().to_json()["ok"], true);
    let data = to.path().join("data");
    restore(&copy, &data).unwrap();
    let engine = Engine::open(&data).unwrap();
    let tenant = engine.main().unwrap();
    let last = made["tenants"][0]["last"].as_u64().unwrap();
    assert!(tenant.head() >= last);
    for n in 0..30 {
        let draft = engine::Draft {
            key: Some(format!("k{n}")),
            ..engine::Draft::new("a", &json!({"n": n, "pad": "x".repeat(100)}))
        };
        let outcome = engine.publish(draft).await.unwrap();
        assert!(matches!(outcome, engine::Outcome::Recorded(receipt) if receipt.duplicate), "{n}");
    }
    // What was out at the time of the backup counts as crashed, and old tokens mean nothing.
    assert_eq!(tenant.ack("g", &tokens(&out[1..2]), true).await.unwrap().done, 0);
    let again = tenant.pull("g", 1, std::time::Duration::ZERO).await.unwrap();
    assert_eq!((again[0].event.position, again[0].attempt), (out[1].event.position, 2));
}

#[tokio::test]
async fn targets_that_exist_and_backups_that_lack_something_are_refused() {
    let bench = Bench::new();
    for n in 0..5 {
        bench.publish("a", n).await;
    }
    let to = TempDir::new();
    let (copy, data) = (to.path().join("copy"), to.path().join("data"));
    backup(&bench.engine, &copy).await.unwrap();
    assert_eq!(backup(&bench.engine, &copy).await.unwrap_err().code(), Code::StoreExists);
    let inside = bench.dir.path().join("tenants/copy");
    assert_eq!(backup(&bench.engine, &inside).await.unwrap_err().code(), Code::RequestInvalid);
    restore(&copy, &data).unwrap();
    assert_eq!(restore(&copy, &data).unwrap_err().code(), Code::StoreExists);
    let nowhere = to.path().join("nowhere");
    assert_eq!(restore(&nowhere, &to.path().join("x")).unwrap_err().code(), Code::StoreNotFound);

    // Cut after a whole line: the ledger alone looks sound, but it is not all of the backup.
    let segment = super::segments(&copy)[0].clone();
    let text = std::fs::read_to_string(&segment).unwrap();
    let cut = text.trim_end().rfind('\n').unwrap();
    std::fs::write(&segment, &text[..=cut]).unwrap();
    let short = restore(&copy, &to.path().join("y")).unwrap_err();
    assert_eq!(short.code(), Code::StoreCorrupt);
    std::fs::write(&segment, text.replacen("\"n\":3", "\"n\":4", 1)).unwrap();
    let changed = restore(&copy, &to.path().join("y")).unwrap_err();
    assert!(changed.detail().contains("at byte"), "{changed}");
    assert!(!to.path().join("y").exists());
}

#[tokio::test]
async fn a_trimmed_ledger_is_backed_up_with_what_it_is_folded_on() {
    let bench = Bench::with(|options: &mut Options| {
        small(options);
        options.settings.retention.bytes = Some(5_000);
    });
    for n in 0..60 {
        publish_keyed(&bench.engine, "a", n).await;
    }
    engine::maintain::retention::run(&bench.tenant).unwrap().unwrap();
    let to = TempDir::new();
    let (copy, data) = (to.path().join("copy"), to.path().join("data"));
    backup(&bench.engine, &copy).await.unwrap();
    restore(&copy, &data).unwrap();
    let engine = Engine::open(&data).unwrap();
    assert_eq!(engine.main().unwrap().first(), bench.tenant.first());
    assert_eq!(verify(&data, false, &mut |_, _| ()).unwrap().to_json()["tenants"][0]["state"], "equal");
}

#[tokio::test]
async fn a_backup_of_a_trimmed_ledger_without_a_sound_snapshot_is_refused() {
    let bench = Bench::with(|options: &mut Options| {
        small(options);
        options.settings.retention.bytes = Some(5_000);
    });
    for n in 0..60 {
        publish_keyed(&bench.engine, "a", n).await;
    }
    engine::maintain::retention::run(&bench.tenant).unwrap().unwrap();
    let to = TempDir::new();
    let (copy, data) = (to.path().join("copy"), to.path().join("data"));
    backup(&bench.engine, &copy).await.unwrap();
    let snapshots = super::files(&copy.join("tenants/main/snapshots"), "db");
    for path in &snapshots {
        // Readable all the same, but not what was recorded.
        let db = rusqlite::Connection::open(path).unwrap();
        db.execute("UPDATE key SET id = 'another'", []).unwrap();
    }
    let refused = restore(&copy, &data).unwrap_err();
    assert!(refused.code() == Code::StoreCorrupt && refused.detail().contains("snapshot"), "{refused}");
    snapshots.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    assert_eq!(restore(&copy, &data).unwrap_err().code(), Code::StoreCorrupt);
    assert!(!data.exists());
}
