//! What happens is told to an OpenTelemetry collector, as spans over OTLP/HTTP; nothing of this exists unless one is configured.
//!
//! ```text
//!  publish, handle, effect ──┐
//!                            ├─▶ queue (bounded; what does not fit is counted) ─▶ one thread: runs ─▶ batch ─▶ POST /v1/traces
//!  records of runs ──────────┘
//! ```
//! Spans are made of what calls and records say, beside deciding and folding. Nobody waits for them: neither a request nor the
//! writer. They hold names, ids, positions, times and codes; never payloads, messages, addresses or secrets.

mod context;
mod export;
mod runs;
mod settings;
mod span;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::time::Duration;

use model::Problem;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::pool::{Watch, supervise};
pub use context::{Context, base, passed_on};
use export::{Exporter, Told};
pub(crate) use runs::{Begun, Decided, Fact, Of, Step, What};
pub use settings::{Sampler, Settings};
pub use span::{Kind, Span, Tag};

/// How long an engine that closes waits for the last spans to be taken.
const LAST_MOST: Duration = Duration::from_secs(2);

/// Where spans are told.
pub struct Telemetry {
    sampler: Sampler,
    queue: SyncSender<Told>,
    metrics: Arc<Metrics>,
}

impl Telemetry {
    /// Starts the thread that batches and sends; it ends with the last who holds this.
    pub fn start(
        settings: Settings,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
        health: &Arc<Watch>,
    ) -> Result<Arc<Telemetry>, Problem> {
        let (queue, told) = mpsc::sync_channel(settings.queue);
        let sampler = settings.sampler;
        let exporter = Exporter::new(settings, clock, metrics.clone())?;
        supervise("spans", health, move || exporter.run(&told))?;
        Ok(Arc::new(Telemetry { sampler, queue, metrics }))
    }

    /// Whether what belongs there is told, as far as the context of the one before decides.
    pub fn judged(&self, context: Context) -> Context {
        Context { sampled: self.sampler.samples(&context), ..context }
    }

    /// The context of something that begins here, below `parent` if there is one. `random` is fresh entropy.
    pub fn begun(&self, parent: Option<Context>, random: [u8; 24]) -> Context {
        let own = Context::of_random(random);
        match parent {
            Some(parent) => self.judged(Context { span: own.span, ..parent }),
            None => Context { sampled: self.sampler.begins(&own.trace), ..own },
        }
    }

    /// The context of something whose trace begins with what is recorded, and is the same whenever it is asked for.
    pub fn derived(&self, parts: &[&str]) -> Context {
        let context = Context::root(parts);
        Context { sampled: self.sampler.begins(&context.trace), ..context }
    }

    pub fn tell(&self, span: Span) {
        if span.context.sampled {
            self.put(Told::Span(Box::new(span)));
        }
    }

    pub(crate) fn tell_run(&self, fact: Fact) {
        self.put(Told::Run(Box::new(fact)));
    }

    fn put(&self, told: Told) {
        if self.queue.try_send(told).is_err() {
            self.metrics.lost_spans(1);
        }
    }

    /// Sends what was told so far; waits a little for that.
    pub fn flush(&self) {
        let (done, sent) = mpsc::channel();
        // A queue that is full has a sender at work that is not answered; the engine does not wait for it.
        if self.queue.try_send(Told::Flush(done)).is_ok() {
            let _ = sent.recv_timeout(LAST_MOST);
        }
    }
}
