//! Steps that choose among lists of steps: `if`, `switch`, `atomic`; and `parallel`, which goes through all of them.

use model::definition::{Action, Branch, Step};
use serde_json::{Map, Value};

use super::{Flow, Result, Stopped, Walk};
use crate::condition;
use crate::entity::same;
use crate::env::Frame;
use crate::run::{Block, Inside};

impl Walk<'_, '_> {
    pub(super) fn choose(&mut self, action: &Action, at: &mut Block, path: &str) -> Result<Flow> {
        let (which, mut inner) = match at.inside.take().map(|inside| *inside) {
            Some(Inside::Block { which, at }) => (which, at),
            _ => (self.which(action)?, Block::default()),
        };
        let (steps, name) = list_of(action, which);
        let atomic = u32::from(matches!(action, Action::Atomic(_)));
        self.atomic += atomic;
        let flow = self.block(steps, &mut inner, &format!("{path}.{name}"));
        self.atomic -= atomic;
        // Also where it failed, so that a run can be resumed from there; what `atomic` did is taken back as a whole.
        if matches!(flow, Ok(Flow::Blocked)) || flow.is_err() && atomic == 0 {
            at.inside = Some(Box::new(Inside::Block { which, at: inner }));
        }
        flow
    }

    fn which(&self, action: &Action) -> Result<usize> {
        Ok(match action {
            Action::If { test, .. } => usize::from(!condition::test(&self.env, self.draft.state, test)?),
            Action::Switch(switch) => {
                let value = self.env.eval(self.draft.state, &switch.on)?;
                let case =
                    switch.cases.iter().position(|case| case.values.iter().any(|one| same(one, &value)));
                case.unwrap_or(switch.cases.len())
            }
            _ => 0,
        })
    }

    /// All branches; with `any`, the first that ends takes the others' waits with it. One that fails fails the step
    /// once the others stand still.
    pub(super) fn parallel(
        &mut self,
        branches: &[Branch],
        any: bool,
        at: &mut Block,
        path: &str,
    ) -> Result<Flow> {
        let (mut open, mut outputs) = match at.inside.take().map(|inside| *inside) {
            Some(Inside::Branches { open, outputs }) => (open, outputs),
            _ => (vec![Some(Block::default()); branches.len()], vec![Value::Null; branches.len()]),
        };
        for (index, branch) in branches.iter().enumerate() {
            let Some(mut block) = open.get_mut(index).and_then(Option::take) else { continue };
            let here = format!("{path}.{}", branch.name);
            match self.block(&branch.steps, &mut block, &here) {
                Ok(Flow::Done(output)) => {
                    outputs[index] = output;
                    if any {
                        open.iter_mut().for_each(|other| *other = None);
                        self.forget_below(path);
                        break;
                    }
                }
                Ok(Flow::Blocked) => open[index] = Some(block),
                Ok(leave) => {
                    self.forget_below(path);
                    return Ok(leave);
                }
                Err(Stopped::Failure(failure)) => {
                    self.forget_below(path);
                    open[index] = Some(block);
                    at.inside = Some(Box::new(Inside::Branches { open, outputs }));
                    return Err(Stopped::Failure(failure));
                }
                Err(fault) => return Err(fault),
            }
        }
        if open.iter().any(Option::is_some) {
            at.inside = Some(Box::new(Inside::Branches { open, outputs }));
            return Ok(Flow::Blocked);
        }
        let named = branches.iter().map(|branch| branch.name.clone()).zip(outputs);
        Ok(Flow::Done(Value::Object(named.collect::<Map<_, _>>())))
    }

    /// A list of steps with variables of its own around it.
    pub(super) fn framed(
        &mut self,
        steps: &[Step],
        at: &mut Block,
        path: &str,
        frame: Frame,
    ) -> (Result<Flow>, Frame) {
        self.env.frames.push(frame);
        let flow = self.block(steps, at, path);
        (flow, self.env.frames.pop().unwrap_or_default())
    }
}

fn list_of(action: &Action, which: usize) -> (&[Step], String) {
    match (action, which) {
        (Action::If { then, .. }, 0) => (then, "then".to_owned()),
        (Action::If { otherwise, .. }, _) => (otherwise, "else".to_owned()),
        (Action::Switch(switch), which) => match switch.cases.get(which) {
            Some(case) => (&case.steps, format!("cases[{which}].do")),
            None => (&switch.default, "default".to_owned()),
        },
        (Action::Atomic(steps), _) => (steps, "atomic".to_owned()),
        _ => (&[], String::new()),
    }
}
