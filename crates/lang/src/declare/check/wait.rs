//! Checks waits: what ends one must be able to come to it.

use model::Code;
use model::definition::{self, Action, OnTimeout};
use model::event::TOLD;
use model::topic::Pattern;

use super::Checker;
use super::scope::Scope;
use crate::declare::finding::fault;
use crate::declare::tree;
use crate::expr::{Refs, Span};

/// What the engine writes about automations. Nobody else publishes below that word, so there is no more.
const WRITTEN: [&str; 3] = ["automation.disabled", "automation.paused", "automation.storm"];

impl Checker<'_> {
    pub(super) fn wait(&mut self, given: &tree::Action, scope: &mut Scope, refs: &mut Vec<String>) -> Action {
        match given {
            tree::Action::WaitUntil { condition, timeout, on_timeout } => {
                self.woken_by_all(condition);
                Action::WaitUntil(definition::WaitUntil {
                    condition: self.condition(condition, scope, refs),
                    timeout: timeout.as_ref().map(|timeout| self.length(timeout, scope, refs)),
                    on_timeout: on_timeout.unwrap_or(OnTimeout::Continue),
                })
            }
            tree::Action::WaitFor { trigger, timeout, on_timeout } => {
                let mut within = scope.clone();
                within.roots.extend(["topic", "payload", "subject"].map(str::to_owned));
                let made = self.trigger(trigger, &within);
                self.waited_for(trigger.span, &made);
                if let Some(node) = &trigger.filter {
                    let before = self.found.len();
                    refs.extend(self.expr(node, &within).1);
                    self.found.truncate(before);
                }
                Action::WaitFor(definition::WaitFor {
                    trigger: made.on,
                    filter: made.filter,
                    dwell: made.dwell,
                    timeout: timeout.as_ref().map(|timeout| self.length(timeout, scope, refs)),
                    on_timeout: on_timeout.unwrap_or(OnTimeout::Fail),
                })
            }
            _ => unreachable!("only waits are asked for"),
        }
    }

    /// A wait that reads rows of no concept it names is asked again whenever anything changes.
    fn woken_by_all(&mut self, condition: &tree::Condition) {
        let mut unknown = None;
        read_by(condition, &mut unknown);
        if let Some(span) = unknown {
            let what = "which rows this reads is not known before it runs: it is asked again on every change";
            let hint = "name the concept: state.order[event.payload.id].status";
            self.warn(fault(Code::DefinitionInvalid, span, what).hint(hint));
        }
    }

    /// A wait takes an event: what time pulls never comes to it, and there is no gate before it.
    fn waited_for(&mut self, span: Span, trigger: &definition::Trigger) {
        use definition::TriggerKind as Kind;
        let timed = matches!(
            trigger.on,
            Kind::Cron { .. } | Kind::Every(_) | Kind::At(_) | Kind::Absent { .. } | Kind::Manual
        );
        if timed {
            let what = "wait_for takes an event: time and people do not end it";
            self.error(fault(Code::DefinitionTrigger, span, what).hint("use delay, wait_until or ask"));
        }
        if let Kind::Event(patterns) = &trigger.on {
            patterns.iter().for_each(|pattern| self.told_only(pattern, span));
        }
        let is_state = matches!(trigger.on, Kind::State { .. } | Kind::NumericState { .. });
        let gates = [
            ("window", trigger.window.is_some()),
            ("batch", trigger.batch.is_some()),
            ("debounce", trigger.debounce.is_some()),
            ("throttle", trigger.throttle.is_some()),
            ("rate", trigger.rate.is_some()),
            ("cooldown", trigger.cooldown.is_some()),
            ("for", trigger.dwell.is_some() && !is_state),
        ];
        for (gate, _) in gates.into_iter().filter(|(_, is_set)| *is_set) {
            let what = format!("{gate:?} is a gate of triggers; wait_for has none for this");
            let hint = match gate {
                "for" => "only a state or a numeric_state can hold for a while",
                _ => "wait for the event alone",
            };
            self.error(fault(Code::DefinitionTrigger, span, what).hint(hint));
        }
    }

    /// A batch keeps where its events stand, and what is told of runs stands nowhere.
    pub(super) fn told_in_batches(&mut self, trigger: &definition::Trigger, span: Span) {
        let definition::TriggerKind::Event(patterns) = &trigger.on else { return };
        let told = |pattern: &&String| {
            let read = Pattern::parse(pattern);
            read.is_ok_and(|read| TOLD.iter().any(|topic| read.receives(topic)))
        };
        if let Some(pattern) = patterns.iter().find(told).filter(|_| trigger.batch.is_some()) {
            let what = format!("{pattern:?} has no batches: what is told of runs is written nowhere");
            let hint = "use debounce or window; or let the runs publish an event, and batch that";
            self.error(fault(Code::DefinitionTrigger, span, what).hint(hint));
        }
    }

    /// A pattern that meets nothing but what is told of runs would be waited for until the timeout.
    fn told_only(&mut self, pattern: &str, span: Span) {
        let Ok(read) = Pattern::parse(pattern) else { return };
        let meets = |topics: &[&str]| topics.iter().any(|topic| read.receives(topic));
        if meets(&TOLD) && !meets(&WRITTEN) {
            let what = format!(
                "wait_for never hears {pattern:?}: what is told of runs starts runs, and ends no wait"
            );
            let hint = "use a trigger on that topic; or call the automation in a step of this one, which waits for it";
            self.error(fault(Code::DefinitionTrigger, span, what).hint(hint));
        }
    }
}

/// The first expression in a condition that reads rows of which nothing is known.
fn read_by(condition: &tree::Condition, unknown: &mut Option<Span>) {
    match condition {
        tree::Condition::Expr(node) | tree::Condition::Numeric { value: node, .. } => {
            if Refs::of_tree(node).anything {
                unknown.get_or_insert(node.span);
            }
        }
        tree::Condition::And(items) | tree::Condition::Or(items) => {
            items.iter().for_each(|item| read_by(item, unknown));
        }
        tree::Condition::Not(item) => read_by(item, unknown),
        tree::Condition::State { .. } | tree::Condition::Time(_) => {}
    }
}
