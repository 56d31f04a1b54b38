//! The thread that sends: takes what was told, makes batches of it, and posts each once. What is not taken is lost and counted.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use model::Problem;
use serde_json::Value;

use super::runs::{Fact, Runs};
use super::settings::Settings;
use super::span::{Span, request};
use crate::clock::Clock;
use crate::effect::guard::Guard;
use crate::effect::http::{Http, Request};
use crate::metrics::Metrics;

/// A thread that has nothing to send looks around so often.
const LOOK_AROUND: Duration = Duration::from_secs(60);

pub enum Told {
    Span(Box<Span>),
    Run(Box<Fact>),
    /// Send what is there, and say so.
    Flush(Sender<()>),
}

pub struct Exporter {
    settings: Settings,
    http: Http,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    batch: Vec<Span>,
    runs: Runs,
    /// When the first of the batch has waited long enough, in the machine's time.
    due: Option<Duration>,
    /// The last one was not taken, and that was said.
    failing: bool,
}

impl Exporter {
    pub fn new(
        settings: Settings,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Result<Exporter, Problem> {
        // The operator says where spans go, and it is mostly beside us.
        let guard = Guard::parse(["0.0.0.0/0", "::/0"])?;
        let http = Http::new(guard, settings.ca_file.as_ref())?;
        let (batch, runs) = (Vec::new(), Runs::new(settings.sampler));
        Ok(Exporter { settings, http, clock, metrics, batch, runs, due: None, failing: false })
    }

    /// Until nobody is left who could tell anything.
    pub fn run(mut self, told: &Receiver<Told>) {
        loop {
            let wait = self.due.map_or(LOOK_AROUND, |due| due.saturating_sub(self.clock.real()));
            match told.recv_timeout(wait) {
                Ok(Told::Span(span)) => self.batch.push(*span),
                Ok(Told::Run(fact)) => self.runs.take(*fact, &mut self.batch),
                Ok(Told::Flush(done)) => {
                    self.send_all();
                    let _ = done.send(());
                }
                Err(RecvTimeoutError::Timeout) => self.send_all(),
                Err(RecvTimeoutError::Disconnected) => return self.send_all(),
            }
            if self.batch.len() >= self.settings.batch {
                self.send_all();
            }
            if self.batch.is_empty() {
                self.due = None;
            } else if self.due.is_none() {
                self.due = Some(self.clock.real() + self.settings.delay);
            }
        }
    }

    fn send_all(&mut self) {
        let spans = std::mem::take(&mut self.batch);
        for batch in spans.chunks(self.settings.batch) {
            match self.send(batch) {
                Ok(refused) => {
                    self.failing = false;
                    self.metrics.lost_spans(refused);
                }
                Err(why) => {
                    self.metrics.lost_spans(batch.len() as u64);
                    if !std::mem::replace(&mut self.failing, true) {
                        tracing::warn!(why, "spans are not taken, and are lost until they are again");
                    }
                }
            }
        }
        self.due = None;
    }

    /// How many of them the collector would not have.
    fn send(&self, batch: &[Span]) -> Result<u64, String> {
        let mut headers = self.settings.headers.clone();
        headers.push(("content-type".to_owned(), "application/json".to_owned()));
        let sent = Request {
            method: "POST".to_owned(),
            url: self.settings.endpoint.clone(),
            headers,
            body: request(batch, &self.settings.resource).into_bytes(),
            timeout: self.settings.timeout,
            idempotency_key: None,
        };
        let answer = self.http.send(&sent).map_err(|failure| failure.problem.detail().to_owned())?;
        if let Some(failure) = answer.failure() {
            return Err(failure.problem.detail().to_owned());
        }
        let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let refused = &said["partialSuccess"]["rejectedSpans"];
        let refused = refused.as_u64().or_else(|| refused.as_str()?.parse().ok());
        Ok(refused.unwrap_or(0).min(batch.len() as u64))
    }
}
