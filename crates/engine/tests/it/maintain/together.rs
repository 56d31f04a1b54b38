//! Everything at once: maintenance, groups and publishing never wait for each other in a circle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::maintain::{backup, retention, snapshot, verify};
use engine::{Engine, Tenant};
use model::group::Start;
use serde_json::json;

use super::{publish_keyed, small};
use crate::temp::{Bench, TempDir, tokens};

async fn work_off(tenant: Tenant, stop: Arc<AtomicBool>) {
    let mut n = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let out = tenant.pull("g", 20, Duration::ZERO).await.unwrap();
        n += 1;
        match n % 3 {
            0 => {
                drop(tenant.nack("g", &tokens(&out), Some(Duration::ZERO), Some("no".into())).await.unwrap())
            }
            1 => drop(tenant.reject("g", &tokens(&out), None).await.unwrap()),
            _ => drop(tenant.ack("g", &tokens(&out), n.is_multiple_of(2)).await.unwrap()),
        }
        tenant.tick();
        tokio::task::yield_now().await;
    }
}

async fn meddle(tenant: Tenant, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        tenant.pause("g").await.unwrap();
        tenant.resume("g").await.unwrap();
        tenant.seek("g", Start::Beginning).await.unwrap();
        tenant.redrive("g", engine::Redrive::All).await.unwrap();
        tokio::task::yield_now().await;
    }
}

async fn care(engine: Engine, to: TempDir) {
    let tenant = engine.main().unwrap();
    for n in 0..3 {
        let first = tenant.find(&engine::Query::default()).unwrap().events[0].position;
        // It may be trimmed in between, which is refused and fine.
        let _ = tenant.erase(&[first]).await;
        let own = tenant.clone();
        tokio::task::spawn_blocking(move || {
            snapshot::take(&own).unwrap();
            // A group that was just moved back may hold it up.
            let _ = retention::run(&own);
            engine::maintain::sidecar::build_missing(&own)
        })
        .await
        .unwrap()
        .ok();
        backup(&engine, &to.path().join(n.to_string())).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn maintenance_groups_and_publishing_never_wait_in_a_circle() {
    let bench = Bench::with(|options| {
        small(options);
        options.ledger.segment_bytes = 10_000;
        options.settings.retention.bytes = Some(40_000);
        options.settings.retention.respect_groups = false;
    });
    let definition = json!({"pattern": "#", "start": "beginning", "max_retries": 1});
    bench.tenant.put_group("g", &definition).await.unwrap();
    publish_keyed(&bench.engine, "a", 0).await;
    let stop = Arc::new(AtomicBool::new(false));
    let (engine, halt) = (bench.engine.clone(), stop.clone());
    let publishing = tokio::spawn(async move {
        let mut n = 1;
        while !halt.load(Ordering::Relaxed) {
            publish_keyed(&engine, "a", n).await;
            n += 1;
        }
    });
    let workers = [
        publishing,
        tokio::spawn(work_off(bench.tenant.clone(), stop.clone())),
        tokio::spawn(work_off(bench.tenant.clone(), stop.clone())),
        tokio::spawn(meddle(bench.tenant.clone(), stop.clone())),
    ];
    let all = async {
        care(bench.engine.clone(), TempDir::new()).await;
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("somebody waits for ever");
    bench.engine.close().await.unwrap();
    let report = verify(bench.dir.path(), false, &mut |_, _| ()).unwrap().to_json();
    assert_eq!((&report["ok"], &report["tenants"][0]["state"]), (&json!(true), &json!("equal")), "{report}");
}
