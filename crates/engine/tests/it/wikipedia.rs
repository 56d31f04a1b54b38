//! 39,244 real edits through windows: each automation runs as often as an independent count says, in the mode that nobody chose.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Command;
use std::task::Poll;

use engine::{Caller, Draft, Outcome, Tenant};
use lang::declare::check_workspace;
use model::{Problem, Timestamp};
use serde_json::Value;

use crate::temp::Bench;

/// This takes a while: every third window is tried, and none that fires more often.
const FIRES_MAX: u64 = 2_000;
/// Publishes that are under way at once, and so share batches of the writer.
const AT_ONCE: usize = 500;

/// Where the vectors are; `None`, said aloud, on a machine without them. CI must have them.
fn folder() -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("NOT RUN: {} is not there, so the windows were not tried", folder.display());
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must have shared/vectors");
    None
}

fn edits(folder: &std::path::Path) -> Vec<Draft> {
    let file = folder.join("data/events-wikipedia/wikiticker-2015-09-12-sampled.json.gz");
    let unpacked = Command::new("gzip").arg("-dc").arg(file).output().expect("gzip is installed");
    let text = String::from_utf8(unpacked.stdout).unwrap();
    let draft = |line: &str| {
        let edit: Value = serde_json::from_str(line).unwrap();
        let time = Timestamp::parse(edit["time"].as_str().unwrap()).unwrap();
        Draft { time: Some(time), ..Draft::new("wikipedia.edit", &edit) }
    };
    text.lines().map(draft).collect()
}

fn automation(name: &str, case: &Value, refire: &str) -> String {
    let filter = match case["filter"].as_str().unwrap() {
        "true" => "true",
        "isAnonymous" => "event.payload.isAnonymous",
        "!isRobot" => "!event.payload.isRobot",
        "channel == '#en.wikipedia'" => "event.payload.channel == '#en.wikipedia'",
        other => panic!("a filter without a translation: {other}"),
    };
    let key = match case["partition_by"].as_str().unwrap() {
        "none" => "'all'",
        "user" => "event.payload.user",
        "channel" => "event.payload.channel",
        "channel+page" => "event.payload.channel + '|' + event.payload.page",
        other => panic!("a key without a translation: {other}"),
    };
    let (count, minutes) = (&case["count"], case["window_seconds"].as_u64().unwrap() / 60);
    format!(
        "- automation: {name}\n  triggers:\n    - event: wikipedia.*\n      filter: \"{filter}\"\n      window: {{count: {count}, minutes: {minutes}, refire: {refire}, partition_by: \"{key}\"}}\n  actions:\n    - publish: {{topic: fired.{name}}}\n"
    )
}

type Publishing<'a> = Pin<Box<dyn Future<Output = Result<Outcome, Problem>> + 'a>>;

/// In the order of the file, many at a time: the first poll of each gives it its place.
async fn publish(tenant: &Tenant, drafts: Vec<Draft>) {
    let caller = Caller::local();
    let publish = |draft| tenant.publish_queued(&caller, draft);
    let mut open: Vec<Publishing<'_>> = Vec::new();
    open.extend(drafts.into_iter().map(|draft| Box::pin(publish(draft)) as _));
    poll_fn(|cx| {
        open.retain_mut(|one| match one.as_mut().poll(cx) {
            Poll::Ready(outcome) => {
                outcome.unwrap();
                false
            }
            Poll::Pending => true,
        });
        if open.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[tokio::test]
async fn windows_over_real_edits_fire_as_often_as_the_truth_says() {
    let Some(folder) = folder() else { return };
    let text = std::fs::read_to_string(folder.join("wikipedia_truth.json")).unwrap();
    let suite: Value = serde_json::from_str(&text).unwrap();
    let windows = suite["cases"].as_array().unwrap().iter().filter(|case| case["fires_every"].is_u64());
    let (mut yaml, mut truth) = (String::new(), Vec::new());
    for (index, case) in windows.enumerate().filter(|(index, _)| index % 3 == 0) {
        for refire in ["every", "once"] {
            let fires = case[format!("fires_{refire}")].as_u64().unwrap();
            if fires <= FIRES_MAX {
                let name = format!("w{index}_{refire}");
                yaml.push_str(&automation(&name, case, refire));
                truth.push((name, fires));
            }
        }
    }
    assert!(truth.len() > 15, "{}", truth.len());
    let bench = Bench::new();
    let checked = check_workspace(&BTreeMap::from([("windows.yaml".to_owned(), yaml)]));
    assert!(!checked.has_errors(), "{:#?}", checked.findings);
    bench.tenant.apply("test", checked.definitions).await.unwrap();
    let mut drafts = edits(&folder).into_iter().peekable();
    while drafts.peek().is_some() {
        publish(&bench.tenant, drafts.by_ref().take(AT_ONCE).collect()).await;
    }
    for (name, fires) in truth {
        let counts = &bench.tenant.explain_automation(&name, None).unwrap()["counts"];
        let ran = &counts["ran"];
        let ran = ran.as_object().map_or(0, |by_reason| by_reason.values().filter_map(Value::as_u64).sum());
        assert_eq!((ran, &counts["skipped"]["busy"]), (fires, &Value::Null), "{name}: {counts}");
    }
}
