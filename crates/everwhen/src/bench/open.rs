//! `bench open`: how long a data directory with many events takes to serve after a clean stop, and what it weighs.

use std::path::Path;
use std::time::Instant;

use engine::{Caller, Engine};
use model::Problem;
use serde_json::{Map, Value, json};

use super::measure::{report, resident_mib, round};

/// Events in one commit while filling; filling is not what is measured.
const BATCH: u64 = 500;

pub fn run(dir: &Path, events: u64, progress: &mut dyn FnMut(u64)) -> Result<Value, Problem> {
    let data = dir.join("data");
    super::block_on(fill(&data, events, progress))?;
    let measured = in_a_process_of_its_own(&data)?;
    let mut result = Map::new();
    result.insert("open_ms".into(), measured["open_ms"].clone());
    result.insert("rss_mib".into(), measured["rss_mib"].clone());
    Ok(report("open", json!({"events": events}), result, dir))
}

/// Opens what is in `data`, so that the memory counted is that of opening and not of filling.
pub fn in_a_process_of_its_own(data: &Path) -> Result<Value, Problem> {
    let exe = std::env::current_exe().map_err(super::failed)?;
    let child = std::process::Command::new(exe)
        .args(["bench", "open", "--json", "--opened"])
        .arg("--data")
        .arg(data)
        .output()
        .map_err(super::failed)?;
    serde_json::from_slice(&child.stdout).map_err(super::failed)
}

/// What the child does: opens, answers one question, and says how long that took.
pub fn opened(data: &Path) -> Result<Value, Problem> {
    let started = Instant::now();
    let engine = Engine::open(data)?;
    let head = engine.main()?.head();
    let open_ms = round(started.elapsed().as_secs_f64() * 1e3, 2);
    let measured = json!({"open_ms": open_ms, "rss_mib": resident_mib(), "head": head});
    super::block_on(engine.close())?;
    Ok(measured)
}

async fn fill(data: &Path, events: u64, progress: &mut dyn FnMut(u64)) -> Result<(), Problem> {
    let engine = Engine::open(data)?;
    let tenant = engine.main()?;
    let mut done = 0;
    while done < events {
        let some = BATCH.min(events - done);
        let drafts = (0..some).map(|_| super::publish::draft(200)).collect();
        tenant.publish_all(&Caller::local(), drafts).await?;
        done += some;
        progress(done);
    }
    engine.close().await
}
