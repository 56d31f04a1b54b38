//! `bench soak`: what memory does while events are published without a pause.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::{Caller, Engine, Tenant};
use model::Problem;
use serde_json::{Map, Value, json};

use super::failed;
use super::measure::{report, resident_mib, round};

#[derive(Clone, Copy)]
pub struct Load {
    pub seconds: u64,
    pub publishers: usize,
    /// Events a second of all publishers; 0 is as fast as they can.
    pub rate: u64,
    pub bytes: usize,
}

const SAMPLE_EVERY: Duration = Duration::from_millis(200);

pub fn run(dir: &Path, load: Load) -> Result<Value, Problem> {
    let (samples, events, seconds) = super::block_on(soak(dir, load))?;
    // Buffers find their size first; growth is what goes on after that.
    let settled = &samples[samples.len() / 4..];
    let (first, last) =
        (settled.first().copied().unwrap_or_default(), settled.last().copied().unwrap_or_default());
    let mut result = Map::new();
    result.insert("seconds".into(), json!(round(seconds, 2)));
    result.insert("events".into(), json!(events));
    result.insert("events_per_s".into(), json!(round(events as f64 / seconds, 1)));
    result.insert("rss_mib_settled".into(), json!(first.mib));
    result.insert("rss_mib".into(), json!(last.mib));
    result.insert("rss_mib_per_minute".into(), json!(round(slope(settled) * 60.0, 2)));
    let Load { seconds, publishers, rate, bytes } = load;
    let args = json!({"seconds": seconds, "publishers": publishers, "rate": rate, "bytes": bytes});
    Ok(report("soak", args, result, dir))
}

#[derive(Clone, Copy, Default)]
struct Sample {
    seconds: f64,
    mib: f64,
}

async fn soak(dir: &Path, load: Load) -> Result<(Vec<Sample>, u64, f64), Problem> {
    let engine = Engine::open(dir.join("data"))?;
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut publishers = tokio::task::JoinSet::new();
    for _ in 0..load.publishers {
        publishers.spawn(publish(engine.main()?, load, stop.clone(), count.clone()));
    }
    let started = Instant::now();
    let mut samples = Vec::with_capacity(load.seconds as usize * 5 + 8);
    let mut beat = tokio::time::interval(SAMPLE_EVERY);
    while started.elapsed() < Duration::from_secs(load.seconds.max(1)) {
        beat.tick().await;
        samples.push(Sample { seconds: started.elapsed().as_secs_f64(), mib: resident_mib() });
    }
    let seconds = started.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    while let Some(done) = publishers.join_next().await {
        done.map_err(failed)??;
    }
    engine.close().await?;
    Ok((samples, count.load(Ordering::Relaxed), seconds))
}

async fn publish(
    tenant: Tenant,
    load: Load,
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
) -> Result<(), Problem> {
    let (caller, draft) = (Caller::local(), super::publish::draft(load.bytes));
    let pause = (load.rate > 0).then(|| load.publishers as f64 / load.rate as f64);
    let mut beat = pause.map(|pause| tokio::time::interval(Duration::from_secs_f64(pause)));
    while !stop.load(Ordering::Relaxed) {
        if let Some(beat) = &mut beat {
            beat.tick().await;
        }
        tenant.publish(&caller, draft.clone()).await?;
        count.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// MiB a second, by least squares: one sample at a bad moment changes little.
fn slope(samples: &[Sample]) -> f64 {
    let n = samples.len() as f64;
    let mean = |of: &dyn Fn(&Sample) -> f64| samples.iter().map(of).sum::<f64>() / n.max(1.0);
    let (t, m) = (mean(&|s| s.seconds), mean(&|s| s.mib));
    let together: f64 = samples.iter().map(|s| (s.seconds - t) * (s.mib - m)).sum();
    let spread: f64 = samples.iter().map(|s| (s.seconds - t).powi(2)).sum();
    if spread > 0.0 { together / spread } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_the_slope_of_all_samples() {
        let grows: Vec<_> =
            (0..10).map(|i| Sample { seconds: f64::from(i), mib: 20.0 + 0.5 * f64::from(i) }).collect();
        assert!((slope(&grows) - 0.5).abs() < 1e-9);
        assert!(slope(&[]).abs() < 1e-9 && slope(&grows[..1]).abs() < 1e-9);
    }
}
