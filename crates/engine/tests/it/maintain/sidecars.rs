//! Sidecars change how events are found, never what is found.

use engine::maintain::sidecar;
use engine::{Draft, Query};
use model::Timestamp;
use model::event::Subject;
use model::topic::Pattern;
use serde_json::json;

use super::{files, small};
use crate::temp::Bench;

async fn filled() -> Bench {
    let bench = Bench::with(small);
    for n in 0..120_u64 {
        let subject = Some(Subject { kind: "item".into(), id: (n % 7).to_string() });
        let cause = (n % 10 == 9).then(|| n - 8);
        let draft = Draft {
            subject,
            cause,
            id: Some(format!("id-{n}")),
            ..Draft::new(format!("t.{}", n / 40), &json!(n))
        };
        bench.engine.publish(draft).await.unwrap();
        bench.clock.advance(std::time::Duration::from_secs(1));
    }
    bench
}

fn queries() -> Vec<Query> {
    let at = |seconds: i64| Some(Timestamp::from_millis(1_767_225_600_000 + seconds * 1000));
    let topic = |text: &str| Some(Pattern::parse(text).unwrap());
    let subject = |id: &str| Some(Subject { kind: "item".into(), id: id.into() });
    vec![
        Query { topic: topic("t.1"), ..Query::default() },
        Query { topic: topic("none.#"), ..Query::default() },
        Query { subject: subject("3"), ..Query::default() },
        Query { subject: subject("99"), ..Query::default() },
        Query {
            subject: subject("3"),
            topic: topic("t.*"),
            after: Some(20),
            before: Some(90),
            ..Query::default()
        },
        Query { since: at(50), until: at(70), ..Query::default() },
        Query { topic: topic("t.2"), limit: 7, ..Query::default() },
    ]
}

/// Every page of a query, in one list.
fn all(bench: &Bench, mut query: Query, descending: bool) -> Vec<u64> {
    query.descending = descending;
    let mut found = Vec::new();
    loop {
        let page = bench.tenant.find(&query).unwrap();
        found.extend(page.events.iter().map(|event| event.position));
        match page.next {
            Some(next) => query.cursor = Some(next),
            None => return found,
        }
    }
}

#[tokio::test]
async fn searches_find_the_same_with_and_without_sidecars() {
    let bench = filled().await;
    let find = || -> Vec<Vec<u64>> {
        let up = queries().into_iter().map(|query| all(&bench, query, false));
        up.chain(queries().into_iter().map(|query| all(&bench, query, true))).collect()
    };
    let (without, lineage) = (find(), bench.tenant.lineage("1").unwrap());
    assert_eq!(without[0].len(), 40);
    assert!(!lineage.ends_with("\"effects\":[]}"), "{lineage}");
    let built = sidecar::build_missing(&bench.tenant).unwrap();
    assert_eq!(built, sidecar::sealed(&bench.tenant).unwrap().len());
    assert!(built > 10);
    assert_eq!(sidecar::build_missing(&bench.tenant).unwrap(), 0);
    assert_eq!(find(), without);
    assert_eq!(bench.tenant.lineage("1").unwrap(), lineage);
    for n in [0, 1, 60, 119] {
        assert_eq!(bench.tenant.event(&format!("id-{n}")).unwrap().position, n + 1);
    }
    assert!(bench.tenant.event("id-120").is_err());
}

#[tokio::test]
async fn a_damaged_sidecar_is_passed_over_and_built_again() {
    let bench = filled().await;
    sidecar::build_missing(&bench.tenant).unwrap();
    let bench = bench.reopen().await;
    let sidecars = files(&bench.dir.path().join("tenants/main/sidecars"), "idx");
    let mut bytes = std::fs::read(&sidecars[0]).unwrap();
    bytes[130] ^= 1;
    std::fs::write(&sidecars[0], bytes).unwrap();
    std::fs::write(&sidecars[1], b"").unwrap();
    std::fs::copy(&sidecars[3], &sidecars[2]).unwrap();
    for n in 0..120 {
        assert_eq!(bench.tenant.event(&format!("id-{n}")).unwrap().position, n + 1);
    }
    // The clean stop may have sealed one more.
    assert!(sidecar::build_missing(&bench.tenant).unwrap() >= 3);
    assert_eq!(sidecar::build_missing(&bench.tenant).unwrap(), 0);
    assert_eq!(bench.tenant.event("id-0").unwrap().position, 1);
}
