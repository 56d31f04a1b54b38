//! Which effects are with a worker, and how often one was when the process ended.

use model::record::EffectRecord;

use crate::run::{Request, WaitId, WaitKind};
use crate::state::{Result, State};

impl State {
    pub(crate) fn fold_effect(&mut self, record: &EffectRecord) -> Result<()> {
        match record {
            EffectRecord::Handed { of } => {
                of.iter().try_for_each(|id| self.change_effect(*id, |request| request.handed = true))
            }
            EffectRecord::Crashed => self.change_handed(|request| {
                request.crashes += 1;
                request.handed = request.once;
            }),
            EffectRecord::Redriven { run, wait } => {
                self.change_effect((*run, *wait), |request| request.crashes = 0)
            }
            EffectRecord::Late { .. } => Ok(()),
        }
    }

    /// A clean stop: whoever had one was told to stop. What is sent only once stays marked: how it ended is not known.
    pub(crate) fn no_effect_is_out(&mut self) -> Result<()> {
        self.change_handed(|request| request.handed = request.once)
    }

    /// An effect that nobody has answered for.
    pub fn effect(&self, (run, wait): WaitId) -> Result<Option<Request>> {
        let run = self.run(run)?;
        let wait = run.as_ref().and_then(|run| run.wait(wait)).filter(|wait| wait.ended.is_none());
        Ok(wait.and_then(|wait| match &wait.kind {
            WaitKind::Effect(request) => Some(request.as_ref().clone()),
            _ => None,
        }))
    }

    fn change_handed(&mut self, change: impl Fn(&mut Request)) -> Result<()> {
        let open: Vec<WaitId> = self.runs.wakes.effects.iter().copied().collect();
        for id in open {
            if self.effect(id)?.is_some_and(|request| request.handed) {
                self.change_effect(id, &change)?;
            }
        }
        Ok(())
    }

    fn change_effect(&mut self, id: WaitId, change: impl Fn(&mut Request)) -> Result<()> {
        let Some(mut run) = self.run(id.0)? else { return Ok(()) };
        let Some(wait) = run.wait_mut(id.1).filter(|wait| wait.ended.is_none()) else { return Ok(()) };
        self.runs.wakes.remove(id, wait);
        if let WaitKind::Effect(request) = &mut wait.kind {
            change(request);
        }
        self.runs.wakes.insert(id, wait);
        self.open_rows += 1;
        self.runs.changed.insert(id.0, Some(Box::new(run)));
        Ok(())
    }
}
