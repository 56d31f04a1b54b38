//! `for` and `repeat`. The items are written down when the loop begins; a long loop lets others go on between rounds.

use model::Code;
use model::definition::{Condition, For, Repeat};
use serde_json::{Map, Value, json};

use super::{BYTES_BEFORE_YIELD, Flow, Result, STEPS_BEFORE_YIELD, Walk, failure};
use crate::condition;
use crate::env::Frame;
use crate::run::{Block, Inside, Loop, Round};

/// Rounds of a `repeat` that names no other limit; one that wants more has likely lost its end.
const ROUNDS_MAX: usize = 1_000;

impl Walk<'_, '_> {
    pub(super) fn each(&mut self, each: &For, at: &mut Block, path: &str) -> Result<Flow> {
        let mut state = match at.inside.take().map(|inside| *inside) {
            Some(Inside::Loop(state)) => *state,
            _ => self.begin(each)?,
        };
        let most = each.parallel.unwrap_or(1).max(1) as usize;
        loop {
            while state.open.len() < most && state.next < state.items.len() {
                state.open.push(Round { index: state.next, ..Round::default() });
                state.next += 1;
            }
            if state.open.is_empty() {
                return Ok(Flow::Done(Value::Array(state.outputs)));
            }
            let before = (state.open.len(), state.next);
            let mut open = Vec::new();
            let mut rounds = std::mem::take(&mut state.open).into_iter();
            while let Some(mut round) = rounds.next() {
                let item = state.items.get(round.index).cloned().unwrap_or_default();
                let locals = vec![(each.item.clone(), item), (each.index.clone(), round.index.into())];
                let frame = Frame { locals, outputs: std::mem::take(&mut round.outputs), each: true };
                let here = format!("{path}[{}].do", round.index);
                let (flow, frame) = self.framed(&each.steps, &mut round.at, &here, frame);
                round.outputs = frame.outputs;
                match flow {
                    Ok(Flow::Done(output)) => set(&mut state.outputs, round.index, output),
                    Ok(Flow::Blocked) => open.push(round),
                    Ok(leave) => return Ok(leave),
                    Err(stopped) => {
                        state.open = open.into_iter().chain([round]).chain(rounds).collect();
                        at.inside = kept(state);
                        return Err(stopped);
                    }
                }
            }
            state.open = open;
            let full = state.open.len() >= most || state.next >= state.items.len();
            let tired = self.tired() && state.next < state.items.len();
            if (full && !state.open.is_empty()) || tired {
                self.yielded |= tired && state.open.is_empty();
                at.inside = kept(state);
                return Ok(Flow::Blocked);
            }
            debug_assert!(before.0 > state.open.len() || before.1 < state.next || state.open.len() < most);
        }
    }

    fn begin(&mut self, each: &For) -> Result<Loop> {
        let source = self.env.input(self.draft.state, &each.source)?;
        let mut items = match source {
            Value::Array(items) => items,
            Value::Object(map) => {
                map.into_iter().map(|(key, value)| json!({"key": key, "value": value})).collect()
            }
            Value::Null => Vec::new(),
            other => {
                return Err(failure(Code::ExprType, format!("`for` goes over a list, not over {other}")));
            }
        };
        if let Some(filter) = &each.filter {
            let mut kept = Vec::new();
            for (index, item) in items.into_iter().enumerate() {
                let locals = vec![(each.item.clone(), item.clone()), (each.index.clone(), index.into())];
                self.env.frames.push(Frame { locals, each: true, ..Frame::default() });
                let wanted = self.env.test(self.draft.state, filter);
                self.env.frames.pop();
                if wanted? {
                    kept.push(item);
                }
            }
            items = kept;
        }
        Ok(Loop { items, ..Loop::default() })
    }

    pub(super) fn repeat(&mut self, repeat: &Repeat, at: &mut Block, path: &str) -> Result<Flow> {
        let mut state = match at.inside.take().map(|inside| *inside) {
            Some(Inside::Loop(state)) => *state,
            _ => Loop { rounds: self.rounds(repeat)?, ..Loop::default() },
        };
        loop {
            if state.open.is_empty() {
                match self.another(repeat, &mut state) {
                    Ok(true) => {}
                    Ok(false) => return Ok(Flow::Done(state.outputs.pop().unwrap_or_default())),
                    Err(stopped) => {
                        at.inside = kept(state);
                        return Err(stopped);
                    }
                }
                if repeat.max.is_none() && state.rounds.is_none() && state.next >= ROUNDS_MAX {
                    let message =
                        format!("after {ROUNDS_MAX} rounds it still goes on; \"max\" sets another limit");
                    return Err(failure(Code::RepeatLimit, message));
                }
                if self.tired() {
                    self.yielded = true;
                    at.inside = kept(state);
                    return Ok(Flow::Blocked);
                }
                state.open.push(Round { index: state.next, ..Round::default() });
                state.next += 1;
            }
            let Some(mut round) = state.open.pop() else { continue };
            match self.round(repeat, &mut round, &mut state.outputs, path) {
                Ok(None) if repeat.before.is_some() => state.before = round.outputs,
                Ok(None) => {}
                Ok(Some(Flow::Blocked)) => {
                    state.open.push(round);
                    at.inside = kept(state);
                    return Ok(Flow::Blocked);
                }
                Ok(Some(flow)) => return Ok(flow),
                Err(stopped) => {
                    state.open.push(round);
                    at.inside = kept(state);
                    return Err(stopped);
                }
            }
        }
    }

    /// One round of a `repeat`. None: it is over, and another may follow.
    fn round(
        &mut self,
        repeat: &Repeat,
        round: &mut Round,
        last: &mut Vec<Value>,
        path: &str,
    ) -> Result<Option<Flow>> {
        // A run that is resumed where `until` failed asks that again and does nothing twice.
        let is_over = round.at.next >= repeat.steps.len();
        let outputs = std::mem::take(&mut round.outputs);
        let frame = Frame { locals: locals(round.index), outputs, each: false };
        let here = format!("{path}[{}].do", round.index);
        let (flow, frame) = self.framed(&repeat.steps, &mut round.at, &here, frame);
        round.outputs = frame.outputs;
        match flow? {
            Flow::Done(output) if !is_over => *last = vec![output],
            Flow::Done(_) => {}
            other => return Ok(Some(other)),
        }
        let enough = match &repeat.after {
            Some(until) => self.holds(until, round.index, &mut round.outputs)?,
            None => false,
        };
        Ok(enough.then(|| Flow::Done(last.pop().unwrap_or_default())))
    }

    /// Asks a condition of a `repeat` inside its round.
    fn holds(
        &mut self,
        condition: &Condition,
        index: usize,
        outputs: &mut Map<String, Value>,
    ) -> Result<bool> {
        let frame = Frame { locals: locals(index), outputs: std::mem::take(outputs), each: false };
        self.env.frames.push(frame);
        let holds = condition::test(&self.env, self.draft.state, condition);
        *outputs = self.env.frames.pop().unwrap_or_default().outputs;
        Ok(holds?)
    }

    fn rounds(&self, repeat: &Repeat) -> Result<Option<usize>> {
        let Some(count) = &repeat.count else { return Ok(None) };
        let count = self.env.eval(self.draft.state, count)?;
        let rounds = count
            .as_u64()
            .or_else(|| count.as_f64().filter(|n| *n >= 0.0 && n.fract() == 0.0).map(|n| n as u64));
        match rounds {
            Some(rounds) if rounds > Repeat::COUNT_MAX => Err(failure(
                Code::RepeatLimit,
                format!("`repeat` counts to {} at most, not to {count}", Repeat::COUNT_MAX),
            )),
            Some(rounds) => Ok(Some(rounds as usize)),
            None if count.is_number() => Err(failure(
                Code::ExprType,
                format!("`repeat` counts with a whole number from 0, not with {count}"),
            )),
            None => Err(failure(Code::ExprType, format!("`repeat` counts with a number, not with {count}"))),
        }
    }

    /// Whether a further round is wanted.
    fn another(&mut self, repeat: &Repeat, state: &mut Loop) -> Result<bool> {
        if let Some(rounds) = state.rounds {
            return Ok(state.next < rounds);
        }
        if repeat.max.is_some_and(|max| state.next >= max as usize) {
            return Ok(false);
        }
        match &repeat.before {
            Some(before) => self.holds(before, state.next, &mut state.before),
            None => Ok(true),
        }
    }

    /// Long enough for this time; only where steps may wait.
    fn tired(&self) -> bool {
        let enough = self.steps >= STEPS_BEFORE_YIELD || self.bytes >= BYTES_BEFORE_YIELD;
        enough && self.may_wait()
    }
}

fn kept(state: Loop) -> Option<Box<Inside>> {
    Some(Box::new(Inside::Loop(Box::new(state))))
}

fn locals(index: usize) -> Vec<(String, Value)> {
    vec![("index".to_owned(), index.into()), ("repeat".to_owned(), json!({ "index": index }))]
}

fn set(outputs: &mut Vec<Value>, index: usize, output: Value) {
    if outputs.len() <= index {
        outputs.resize(index + 1, Value::Null);
    }
    outputs[index] = output;
}
