//! One turn of the writer: a batch from the mailbox, its answers, and the COMMIT of `state.db` after them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use model::Code;

use super::{Tenant, closing};
use crate::command::Answer;
use crate::mailbox;
use crate::pages;
use crate::writer::{Moment, STATE_OPEN_MAX, Turn, Writer};

impl Tenant {
    /// One batch, and the COMMIT after it if that is due. False when there was nothing to do.
    pub(super) fn turn(&self, writer: &mut Option<Writer>) -> bool {
        let moment = self.moment();
        let turned = self.batch(writer, moment);
        if let Some(Err(fatal)) = writer.as_mut().map(|open| open.commit_state_if_due(moment)) {
            *writer = None;
            self.stop(fatal);
        }
        turned
    }

    fn batch(&self, writer: &mut Option<Writer>, moment: Moment) -> bool {
        let (commands, replies) = self.0.mailbox.take();
        if commands.is_empty() && !self.0.ready.load(Ordering::Acquire) {
            return false;
        }
        let Some(open) = writer.as_mut() else {
            mailbox::answer(replies, std::iter::repeat_with(|| Err(closing())));
            return true;
        };
        if commands.len() > 1 {
            pages::let_go();
        }
        open.heard = self.is_heard();
        match open.turn(moment, commands) {
            Ok(Turn { answers, committed }) => {
                self.note_sync(open, moment);
                self.note_bytes(open);
                self.hand_on(open, committed);
                self.note_rows(&answers);
                if answers.iter().any(|answer| matches!(answer, Err(p) if p.code() == Code::StorageFull)) {
                    self.metrics().storage_full(true);
                } else if answers.iter().any(|answer| matches!(answer, Ok(Answer::Published(_)))) {
                    self.metrics().storage_full(false);
                }
                mailbox::answer(replies, answers.into_iter());
            }
            Err(fatal) => {
                *writer = None;
                self.stop(fatal);
                mailbox::answer(replies, std::iter::repeat_with(|| Err(closing())));
            }
        }
        true
    }

    /// How long a batch takes from its first decision to the end of its sync, about; zero before the first.
    pub fn commit_time(&self) -> Duration {
        Duration::from_nanos(self.0.sync_nanos.load(Ordering::Relaxed))
    }

    fn note_sync(&self, writer: &Writer, moment: Moment) {
        let nanos = self.real().saturating_sub(moment.real).as_nanos() as u64;
        let before = self.0.sync_nanos.load(Ordering::Relaxed);
        self.0.sync_nanos.store(before - before / 8 + nanos / 8, Ordering::Relaxed);
        self.metrics().synced(nanos as f64 / 1e9);
        if writer.unsettled_since().is_some() {
            self.flush_in(STATE_OPEN_MAX);
        }
        if let Some((until, _)) = writer.state.deferred.first() {
            self.due_in(until.since(moment.now));
        }
        self.note_runs(writer, moment);
    }
}
