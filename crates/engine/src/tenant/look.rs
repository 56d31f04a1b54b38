//! Looking back for events that came before a `wait_for` was reached, through the ledger and beside the writer (rules R12).
//!
//! A run that has far to look stands still, and its wait says so; that is recorded, so a crash forgets nothing. What is found,
//! or how far nothing was, comes back as a command: the writer tests only what came after and arms the wait in that commit.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::event::Event;
use model::topic::Pattern;
use model::{Position, Problem};

use super::Tenant;
use super::entity::broken;
use crate::automation::{Automation, patterns};
use crate::command::{Command, RunCommand};
use crate::read;
use crate::route;
use crate::run::{Run, Wait, WaitId, WaitKind};
use crate::state::State;
use crate::writer::Writer;

/// One wait that looks, with all that its filter reads.
struct Look {
    id: WaitId,
    run: Run,
    wait: Wait,
    automation: Arc<Automation>,
    topics: Vec<Pattern>,
    after: Position,
}

impl Tenant {
    /// Every wait that has to look back does.
    pub(crate) fn look_back(&self) {
        let looked = self.looks().and_then(|looks| {
            // Filters that look back read no rows, so any state will do.
            let nothing = if looks.is_empty() { None } else { Some(State::open(None).map_err(broken)?) };
            looks.iter().zip(nothing.iter().cycle()).try_for_each(|(look, state)| self.look_for(look, state))
        });
        if let Err(problem) = looked
            && !self.is_closing()
        {
            tracing::warn!(tenant = self.name(), %problem, "looking back failed; it is tried again");
            self.flush_in(super::runs::AGAIN);
        }
    }

    pub(crate) fn has_looks(&self) -> bool {
        self.0.looks.load(Ordering::Acquire)
    }

    /// After a batch: whether somebody has to look back.
    pub(super) fn note_looks(&self, writer: &Writer) {
        let looks = !writer.state.runs.wakes.looks.is_empty();
        if self.0.looks.swap(looks, Ordering::AcqRel) != looks && looks {
            self.call_historian();
        }
    }

    fn looks(&self) -> Result<Vec<Look>, Problem> {
        if !self.has_looks() {
            return Ok(Vec::new());
        }
        self.with_writer(|writer| {
            let ids = writer.state.runs.wakes.looks.iter();
            ids.filter_map(|id| look_of(writer, *id).transpose()).collect()
        })
    }

    fn look_for(&self, look: &Look, nothing: &State) -> Result<(), Problem> {
        let through = self.head();
        let found = self.first_that_fits(look, nothing, through)?;
        let (run, wait) = look.id;
        self.ask_blocking(Command::Run(RunCommand::Looked { run, wait, through, found })).map(drop)
    }

    fn first_that_fits(
        &self,
        look: &Look,
        nothing: &State,
        through: Position,
    ) -> Result<Option<Arc<Event>>, Problem> {
        let (mut next, mut bytes) = ((look.after + 1).max(self.first()), Vec::new());
        while next <= through {
            let mut found = None;
            let end = self.with_reader(|reader| {
                let end = reader.read(next, read::CHUNK, &mut bytes).map_err(read::problem)?;
                read::events(&bytes, (next, through), |event| {
                    if found.is_none() && look.fits(nothing, &event) {
                        found = Some(event);
                    }
                })?;
                Ok(end)
            })?;
            if found.is_some() {
                return Ok(found);
            }
            next = end.next.max(next + 1);
        }
        Ok(None)
    }
}

impl Look {
    fn fits(&self, nothing: &State, event: &Event) -> bool {
        let topic = &event.envelope.topic;
        self.topics.iter().any(|pattern| pattern.receives(topic))
            && route::wait_takes(nothing, &self.automation, &self.run, &self.wait, event, &event.to_value())
                .unwrap_or(false)
    }
}

fn look_of(writer: &Writer, id: WaitId) -> Result<Option<Look>, Problem> {
    let Some(run) = writer.state.run(id.0).map_err(broken)? else { return Ok(None) };
    let Some(automation) = writer.state.version(&run.automation, &run.hash) else { return Ok(None) };
    let Some(wait) = run.wait(id.1).cloned() else { return Ok(None) };
    let WaitKind::For { trigger, after, .. } = &wait.kind else { return Ok(None) };
    let (topics, after) = (patterns(trigger)?, *after);
    Ok(Some(Look { id, run, wait, automation, topics, after }))
}
