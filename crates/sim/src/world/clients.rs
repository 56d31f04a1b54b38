//! Publishers: single events and batches, with keys that repeat, keys that conflict, priorities, lifetimes.

use std::time::Duration;

use engine::{Caller, Draft};
use model::Code;
use serde_json::value::RawValue;

use super::operation::{Answer, Asked, Operation};
use super::{World, finish};
use crate::oracle::{Fate, Sent, payload};

const TOPICS: [&str; 6] = ["a.x", "a.y", "b.x", "b.y", "later.z", "noise.z"];

impl World {
    pub(super) fn start_publish(&mut self) -> Result<(), String> {
        let keyed: Vec<usize> = (0..self.oracle.sent.len())
            .filter(|n| {
                self.oracle.sent[*n].key.is_some()
                    && !matches!(
                        self.oracle.sent[*n],
                        Sent { fate: Fate::Pending, .. } | Sent { gone: true, .. }
                    )
            })
            .collect();
        if !keyed.is_empty() && self.random.once_in(6) {
            let n = *self.random.pick(&keyed);
            return if self.random.once_in(4) { self.conflict(n) } else { self.publish(vec![n]) };
        }
        let count = if self.random.once_in(5) { self.random.between(2, 6) } else { 1 };
        let batch = self.oracle.sent.len();
        let numbers = (0..count).map(|_| self.invent(batch)).collect();
        self.publish(numbers)
    }

    /// A new publish, not yet sent.
    fn invent(&mut self, batch: usize) -> usize {
        let n = self.oracle.sent.len();
        let (topic, k) = (*self.random.pick(&TOPICS), self.random.between(0, 3));
        let pad = if self.random.once_in(8) { self.random.below(1_500) } else { self.random.below(40) };
        let key = self.random.once_in(3).then(|| format!("key-{n}"));
        let ttl = self.random.once_in(12).then(|| self.random.between(500, 20_000));
        let priority = if self.random.once_in(3) { self.random.between(1, 9) as u8 } else { 0 };
        let body = payload(n, k, pad);
        let (fate, fresh, gone) = (Fate::Pending, false, false);
        self.oracle.sent.push(Sent { topic, k, body, key, ttl, priority, fate, fresh, gone, batch });
        n
    }

    fn draft(&self, n: usize) -> Draft {
        let sent = &self.oracle.sent[n];
        let raw = RawValue::from_string(sent.body.clone()).expect("our payloads are JSON");
        Draft {
            key: sent.key.clone(),
            ttl: sent.ttl.map(Duration::from_millis),
            priority: sent.priority,
            ..Draft::new(sent.topic, &raw)
        }
    }

    fn publish(&mut self, numbers: Vec<usize>) -> Result<(), String> {
        let drafts: Vec<Draft> = numbers.iter().map(|n| self.draft(*n)).collect();
        self.note(format_args!("publish {numbers:?}"));
        self.oracle.sending(&numbers);
        let tenant = self.tenant().clone();
        let future = async move {
            let caller = Caller::local();
            Answer::Published(match <[Draft; 1]>::try_from(drafts) {
                Ok([draft]) => tenant.publish(&caller, draft).await.map(|outcome| vec![outcome]),
                Err(drafts) => tenant.publish_all(&caller, drafts).await,
            })
        };
        self.start(Asked::Publish(numbers), future)
    }

    /// Another body under a key that stands: must be refused.
    fn conflict(&mut self, n: usize) -> Result<(), String> {
        let Fate::Acked { position, .. } = self.oracle.sent[n].fate else { return Ok(()) };
        if position < self.tenant().first() {
            // Its key was trimmed with it.
            return Ok(());
        }
        let draft = Draft { payload: RawValue::NULL.to_owned().into(), ..self.draft(n) };
        let tenant = self.tenant().clone();
        let answer = self.finish_now(async move { tenant.publish(&Caller::local(), draft).await });
        match answer {
            Some(Err(problem)) if problem.code() == Code::EventKeyConflict => {
                self.note(format_args!("publish {n} with another body conflicts"));
                Ok(())
            }
            Some(Err(problem)) if finish::is_misfortune(&problem) => Ok(()),
            None => Ok(()),
            Some(other) => {
                Err(format!("key of publish {n} stands at {position}; another body got {other:?}"))
            }
        }
    }

    pub(super) fn start(
        &mut self,
        asked: Asked,
        future: impl Future<Output = Answer> + 'static,
    ) -> Result<(), String> {
        let operation = Operation::new(self.step, asked, future);
        self.operations.push(operation);
        self.poll_at(self.operations.len() - 1)
    }
}
