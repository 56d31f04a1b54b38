//! `for` and `repeat`. The items are written down when the loop begins; a long loop lets others go on between rounds.

use model::Code;
use model::definition::{For, Repeat};
use serde_json::{Value, json};

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
                        at.inside = Some(Box::new(Inside::Loop(Box::new(state))));
                        return Err(stopped);
                    }
                }
            }
            state.open = open;
            let full = state.open.len() >= most || state.next >= state.items.len();
            let tired = self.tired() && state.next < state.items.len();
            if (full && !state.open.is_empty()) || tired {
                self.yielded |= tired && state.open.is_empty();
                at.inside = Some(Box::new(Inside::Loop(Box::new(state))));
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
                if !self.another(repeat, &state)? {
                    return Ok(Flow::Done(state.outputs.pop().unwrap_or_default()));
                }
                if self.tired() {
                    self.yielded = true;
                    at.inside = Some(Box::new(Inside::Loop(Box::new(state))));
                    return Ok(Flow::Blocked);
                }
                state.open.push(Round { index: state.next, ..Round::default() });
                state.next += 1;
            }
            let Some(mut round) = state.open.pop() else { continue };
            let outputs = std::mem::take(&mut round.outputs);
            let frame = Frame { locals: locals(round.index), outputs, each: false };
            let here = format!("{path}[{}].do", round.index);
            let (flow, frame) = self.framed(&repeat.steps, &mut round.at, &here, frame);
            match flow {
                Ok(Flow::Done(output)) => {
                    state.outputs = vec![output];
                    if let Some(until) = &repeat.after {
                        self.env.frames.push(Frame { locals: locals(round.index), ..frame });
                        let enough = condition::test(&self.env, self.draft.state, until).unwrap_or(false);
                        self.env.frames.pop();
                        if enough {
                            return Ok(Flow::Done(state.outputs.pop().unwrap_or_default()));
                        }
                    }
                }
                Ok(Flow::Leave(output)) => return Ok(Flow::Leave(output)),
                stopped => {
                    round.outputs = frame.outputs;
                    state.open.push(round);
                    at.inside = Some(Box::new(Inside::Loop(Box::new(state))));
                    return stopped;
                }
            }
        }
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

    /// Whether a further round is wanted. A `while` that cannot be evaluated counts as no.
    fn another(&self, repeat: &Repeat, state: &Loop) -> Result<bool> {
        if let Some(rounds) = state.rounds {
            return Ok(state.next < rounds);
        }
        if repeat.max.is_some_and(|max| state.next >= max as usize) {
            return Ok(false);
        }
        let wanted = match &repeat.before {
            Some(before) => condition::test(&self.env, self.draft.state, before).unwrap_or(false),
            None => true,
        };
        if wanted && repeat.max.is_none() && state.next >= ROUNDS_MAX {
            let message = format!("after {ROUNDS_MAX} rounds it still goes on; \"max\" sets another limit");
            return Err(failure(Code::RepeatLimit, message));
        }
        Ok(wanted)
    }

    /// Long enough for this time; only where steps may wait.
    fn tired(&self) -> bool {
        let enough = self.steps >= STEPS_BEFORE_YIELD || self.bytes >= BYTES_BEFORE_YIELD;
        enough && self.may_wait()
    }
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
