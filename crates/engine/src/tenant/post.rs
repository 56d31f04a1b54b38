//! Publishing for a door that serves many from one thread: nothing here waits. What would have to wait is given back untouched.
//!
//! ```text
//!   post … post … post ─▶ send ─▶ (the writer) ─▶ answers in the tray ─▶ Post::finish
//! ```

use std::sync::Arc;
use std::time::Duration;

use model::Problem;

use super::Tenant;
use super::publish::unexpected;
use super::traced::Publishing;
use crate::admit::{Caller, Draft, Prepared};
use crate::command::{Answer, Command, Outcome};
use crate::mailbox::Reply;
use crate::tray::{Laid, Place, Tray};

/// A publish whose answer is still to come. Small, because there is one for each connection; what is rare is elsewhere.
pub struct Post {
    tenant: Tenant,
    publishing: Option<Box<Publishing>>,
    topic: String,
    started: Duration,
    /// Of one with a key: not everybody is told by what it is taken.
    keyed: Option<Box<Caller>>,
}

/// What became of a publish that was posted.
pub enum Posted {
    /// Its answer will lie in the tray, under its ticket; [`Tenant::send`] sees to it.
    Queued(Post),
    /// The writer need not be asked.
    Known(Result<Outcome, Problem>),
    /// Something has to be waited for, or looked up: [`Tenant::publish`] does. Nothing has happened.
    Later,
}

impl Tenant {
    /// As [`Tenant::publish`], up to where the writer is asked.
    pub fn post(&self, caller: &Caller, mut draft: Draft, (tray, ticket): (&Arc<Tray>, u64)) -> Posted {
        if !self.posts(caller, &draft) {
            return Posted::Later;
        }
        let _inside = self.span(&draft).entered();
        let keyed = (draft.key.is_some() || draft.derived_key.is_some()).then(|| Box::new(caller.clone()));
        let (topic, started) = (draft.topic.clone(), self.real());
        let publishing = self.begin_publish(caller, &mut draft);
        let known = match self.prepared(caller, draft) {
            Ok(Ok(event)) => {
                let place = Reply::Tray(Place::new(tray.clone(), ticket));
                self.0.mailbox.post(Command::Publish { events: vec![event] }, place);
                let (tenant, publishing) = (self.clone(), publishing.map(Box::new));
                return Posted::Queued(Post { tenant, publishing, topic, started, keyed });
            }
            Ok(Err(outcome)) => Ok(outcome),
            Err(problem) => Err(problem),
        };
        self.end_publish(publishing, known.as_ref());
        Posted::Known(known)
    }

    /// The writer takes what was posted: `here`, on this thread, if it is idle and the disk is quick.
    pub fn send(&self, here: bool) {
        if here {
            self.run_or_hand_over();
        } else {
            self.hand_over();
        }
    }

    /// Whether [`Tenant::post`] takes it: nothing of it has to be waited for, and nothing takes long. A key may have to be
    /// looked up in the state, which the writer holds; a cause, on the disk.
    pub fn posts(&self, caller: &Caller, draft: &Draft) -> bool {
        let keyed = draft.key.is_some() || draft.derived_key.is_some();
        let looked_up = draft.cause.is_some() || keyed && !caller.sight.is_whole();
        let quick = self.0.admitter.is_quick() && !self.is_unborn();
        quick && !looked_up && !self.lags(caller, &draft.topic)
    }

    fn prepared(&self, caller: &Caller, draft: Draft) -> Result<Result<Prepared, Outcome>, Problem> {
        self.allow_events(caller, 1)?;
        self.takes_more()?;
        self.admit_alone(caller, draft)
    }
}

impl Post {
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// What the writer's answer means to who published. Asked once.
    pub fn finish(&mut self, laid: Laid) -> Result<Outcome, Problem> {
        let Post { tenant, publishing, topic, started, keyed } = self;
        let outcome = match laid.answer {
            Ok(Answer::Published(outcomes)) => outcomes.into_iter().next().ok_or_else(unexpected),
            Ok(_) => Err(unexpected()),
            Err(problem) => Err(match keyed {
                Some(caller) => tenant.veiled(caller, problem),
                None => problem,
            }),
        };
        if let Ok(outcome) = &outcome {
            tenant.observe(topic, outcome, *started);
        }
        tenant.end_publish(publishing.take().map(|publishing| *publishing), outcome.as_ref());
        outcome
    }
}
