//! What the benchmarks of automations share: declaring them, filling a tenant with runs, and hearing what runs publish.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Caller, Draft, Follow, Follower, Tenant};
use lang::declare::check_workspace;
use model::event::Event;
use model::topic::Pattern;
use model::{Code, Problem};
use serde_json::Value;

use super::measure::round;

/// Events in one commit while filling.
const AT_ONCE: u64 = 500;

/// Applies these files; one that is wrong is a fault of the benchmark itself.
pub async fn declare(tenant: &Tenant, files: &[(&str, String)]) -> Result<(), Problem> {
    let files: BTreeMap<String, String> =
        files.iter().map(|(name, text)| ((*name).to_owned(), text.clone())).collect();
    let checked = check_workspace(&files);
    if let Some(finding) = checked.findings.first().filter(|_| checked.has_errors()) {
        return Err(Problem::new(Code::DefinitionInvalid, finding.message.clone()));
    }
    tenant.apply("bench", checked.definitions).await.map(drop)
}

/// Publishes one event per number, many in a commit: filling is not what is measured.
pub async fn fill(
    tenant: &Tenant,
    topic: &str,
    numbers: std::ops::Range<u64>,
    payload: impl Fn(u64) -> Value,
    progress: &mut dyn FnMut(u64),
) -> Result<(), Problem> {
    let mut from = numbers.start;
    while from < numbers.end {
        let to = (from + AT_ONCE).min(numbers.end);
        let drafts = (from..to).map(|n| Draft::new(topic, &payload(n))).collect();
        tenant.publish_all(&Caller::local(), drafts).await?;
        from = to;
        progress(from);
    }
    Ok(())
}

/// Hears events of one topic as soon as they are durable.
pub struct Heard(Follower);

impl Heard {
    pub fn of(tenant: &Tenant, topic: &str) -> Result<Heard, Problem> {
        let follow = Follow { patterns: vec![Pattern::parse(topic)?], ..Follow::default() };
        Ok(Heard(tenant.follow(follow)?))
    }

    pub async fn next(&mut self) -> Result<Vec<Arc<Event>>, Problem> {
        self.0.next(1_000).await
    }

    /// Until this many have come; `each` gets their payloads.
    pub async fn take(&mut self, count: u64, mut each: impl FnMut(&Value)) -> Result<(), Problem> {
        let mut heard = 0;
        while heard < count {
            let events = self.next().await?;
            heard += events.len() as u64;
            events.iter().for_each(|event| each(&event.to_value()["payload"]));
        }
        Ok(())
    }
}

/// Processor time of this process so far.
pub fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Fields 14 and 15, in hundredths of a second; the name before them may hold spaces, but ends with the last `)`.
    let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 =
        after.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Ready once what the filling left to do is done: the housekeeper looks after sealed segments every ten seconds, and their work is
/// not that of what waits. At most three of its rounds.
pub async fn settled() {
    for _ in 0..3 {
        if idle_percent(Duration::from_secs(11)).await < 0.5 {
            return;
        }
    }
}

/// How much of a core the process uses while nothing is asked of it.
pub async fn idle_percent(time: Duration) -> f64 {
    let (used, begun) = (cpu_time(), Instant::now());
    tokio::time::sleep(time).await;
    round((cpu_time() - used).as_secs_f64() * 100.0 / begun.elapsed().as_secs_f64(), 3)
}
