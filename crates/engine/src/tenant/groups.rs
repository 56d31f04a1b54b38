//! What clients do with groups: define, pull, answer for deliveries, look, seek, pause, redrive.

mod deliveries;

use std::sync::Arc;
use std::time::Duration;

use lang::filter::Filter;
use model::event::Event;
use model::group::{Definition, Start, check_name};
use model::{Code, Position, Problem, Timestamp};
use serde_json::{Value, json};

use super::Tenant;
use super::publish::unexpected;
use crate::admit::check_read_space;
use crate::command::{Answer, Command};
use crate::deliver::dispatcher::Dispatcher;
use crate::deliver::{GroupHandle, matcher};
use crate::state::Group;
use crate::{lifecycle, read};

/// How many of the tokens were good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    pub done: usize,
    pub stale: Vec<String>,
}

/// A group as users see it.
#[derive(Clone, Debug)]
pub struct GroupView {
    pub group: Group,
    /// Exact, or at most that many while what is new has not been looked at.
    pub lag: u64,
    pub lag_exact: bool,
    pub in_flight: usize,
    pub oldest_unacked: Option<Duration>,
    /// Events that the filter could not judge: since the group was opened, or among the newest if those are more.
    pub filter_errors: u64,
    pub last_filter_error: Option<(Position, String)>,
    /// Events that wait for their next try.
    pub delayed: usize,
}

#[derive(Clone, Debug)]
pub struct DeadLetterPage {
    pub dead_letters: Vec<Value>,
    /// The same as JSON text, payloads digit for digit.
    pub texts: Vec<String>,
    pub next: Option<String>,
}

/// Which dead letters to try again.
pub enum Redrive {
    Positions(Vec<Position>),
    Filter(Filter),
    All,
}

/// Most events handed out by one pull, and the longest it waits.
pub const PULL_MAX: usize = 1_000;
pub const PULL_WAIT_MAX: Duration = Duration::from_secs(60);
/// Chunks of the ledger counted in one go when a publish asks how far a group is behind.
const COUNT_CHUNKS: usize = 2;
/// How many of the newest records a look at a group tries its filter on.
const FILTER_LOOK_BACK: u64 = 1_000;
/// Dead letters looked at in one go.
const DEAD_PAGE: usize = 1_000;

impl GroupView {
    pub fn to_json(&self) -> Value {
        let group = &self.group;
        let mut view = group.definition.to_json();
        view.insert("name".into(), json!(group.name));
        view.insert("floor".into(), json!(group.floor));
        view.insert("lag".into(), json!(self.lag));
        view.insert("lag_exact".into(), json!(self.lag_exact));
        view.insert("inflight".into(), json!(self.in_flight));
        view.insert("dead_letters".into(), json!(group.dead_letters));
        view.insert("paused".into(), json!(group.paused));
        view.insert("events_processed_total".into(), json!(group.processed));
        view.insert("filter_errors".into(), json!(self.filter_errors));
        view.insert("delayed".into(), json!(self.delayed));
        if let Some((position, error)) = &self.last_filter_error {
            view.insert("last_filter_error".into(), json!({ "position": position, "error": error }));
        }
        if !group.parked.is_empty() {
            let keys: std::collections::BTreeSet<&String> = group.parked.values().collect();
            view.insert("parked_keys".into(), json!(keys));
        }
        let age = self.oldest_unacked.map_or(0.0, |age| age.as_secs_f64());
        view.insert("oldest_unacked_s".into(), json!(age));
        if group.halted_on != 0 {
            view.insert("halted_on".into(), json!(group.halted_on));
        }
        if let Some(at) = group.last_moved_at {
            view.insert("last_drained_at".into(), json!(at));
        }
        Value::Object(view)
    }
}

impl Tenant {
    pub(crate) fn handle(&self, name: &str) -> Result<Arc<GroupHandle>, Problem> {
        self.registry().get(name).ok_or_else(|| no_group(name))
    }

    /// Creates the group or changes its definition; says whether it is new.
    pub async fn put_group(&self, name: &str, definition: &Value) -> Result<(bool, GroupView), Problem> {
        check_name(name)?;
        let written = definition;
        let definition = Definition::parse(written)?;
        matcher::check(&definition)?;
        if let Some(space) = &definition.space {
            check_read_space(Code::GroupInvalid, space)?;
        }
        if let Some(begun) = self.begun()? {
            return Box::pin(begun.put_group(name, written)).await;
        }
        let known = self.registry().get(name).is_some();
        if !known {
            self.allow_group()?;
        }
        let floor = if known { 0 } else { self.place(&definition.start)? };
        match self.ask(Command::PutGroup { name: name.to_owned(), definition, floor }).await? {
            Answer::Group { created } => Ok((created, self.group(name)?)),
            _ => Err(unexpected()),
        }
    }

    pub async fn delete_group(&self, name: &str) -> Result<(), Problem> {
        self.ask(Command::DeleteGroup { name: name.to_owned() }).await.map(|_| ())
    }

    /// A group, and how its filter fared with the newest events: what it could not judge is in no record.
    pub fn group(&self, name: &str) -> Result<GroupView, Problem> {
        let mut view = self.group_in_short(name)?;
        self.try_filters(std::slice::from_mut(&mut view))?;
        Ok(view)
    }

    fn try_filters(&self, views: &mut [GroupView]) -> Result<(), Problem> {
        let mut filtered = Vec::new();
        for view in views.iter_mut().filter(|view| view.group.definition.filter.is_some()) {
            filtered.push((matcher::Matcher::new(&view.group.definition)?, view, 0));
        }
        let head = self.head();
        let mut from = head.saturating_sub(FILTER_LOOK_BACK).max(self.first());
        while from <= head && !filtered.is_empty() {
            let (events, through) = self.events_from(from, head, PULL_MAX)?;
            for event in &events {
                for (matcher, view, errors) in &mut filtered {
                    if let matcher::Match::Error(error) = matcher.test(event) {
                        *errors += 1;
                        view.last_filter_error = Some((event.position, error));
                    }
                }
            }
            from = through + 1;
        }
        for (_, view, errors) in filtered {
            view.filter_errors = view.filter_errors.max(errors);
        }
        Ok(())
    }

    /// A group without what has to be computed.
    fn group_in_short(&self, name: &str) -> Result<GroupView, Problem> {
        let handle = self.handle(name)?;
        let mut dispatcher = handle.dispatcher();
        self.look(&handle, &mut dispatcher)?;
        let mut view = self.view(&dispatcher);
        drop(dispatcher);
        let recorded = self.with_writer(|writer| Ok(writer.state.groups.get(name).cloned()))?;
        if let Some(recorded) = recorded {
            (view.group.dead_letters, view.group.processed) = (recorded.dead_letters, recorded.processed);
            view.group.last_moved_at = recorded.last_moved_at;
        }
        Ok(view)
    }

    pub fn groups(&self) -> Result<Vec<GroupView>, Problem> {
        let mut views = self.groups_in_short();
        self.try_filters(&mut views)?;
        Ok(views)
    }

    /// All of them, without how their filters fared.
    pub fn groups_in_short(&self) -> Vec<GroupView> {
        let handles = self.registry().all();
        handles.iter().filter_map(|handle| self.group_in_short(&handle.name).ok()).collect()
    }

    fn view(&self, dispatcher: &Dispatcher) -> GroupView {
        let now = self.0.around.clock.now();
        let (mut group, (lag, lag_exact)) = (dispatcher.group.clone(), dispatcher.lag());
        // What was redriven is open again, below what is recorded as the floor.
        let redriven = group.redriven.first().map_or(Position::MAX, |first| first - 1);
        group.floor = dispatcher.floor().min(redriven);
        GroupView {
            group,
            lag,
            lag_exact,
            in_flight: dispatcher.in_flight(),
            oldest_unacked: dispatcher.oldest_open().map(|event| now.since(event.recorded_at)),
            filter_errors: dispatcher.filter_errors,
            last_filter_error: None,
            delayed: dispatcher.delayed(),
        }
    }

    /// How many events the group is known to be behind. What was not looked at yet does not count before it is.
    pub(crate) fn lag_of(&self, handle: &GroupHandle, limit: u64) -> u64 {
        let mut dispatcher = handle.dispatcher();
        let now = dispatcher.now(self.moment());
        let looked = self.look(handle, &mut dispatcher);
        match looked.and_then(|_| self.count(&mut dispatcher, limit, now)) {
            Ok(()) => dispatcher.behind_by(limit, now),
            Err(_) => 0,
        }
    }

    fn count(&self, dispatcher: &mut Dispatcher, limit: u64, now: Timestamp) -> Result<(), Problem> {
        for _ in 0..COUNT_CHUNKS {
            let Some((from, to)) = dispatcher.uncounted(limit) else { break };
            let (events, through) = self.events_for(dispatcher.hears_runs(), from, to)?;
            dispatcher.count(&events, through, now);
        }
        Ok(())
    }

    /// Looks at what is new; true when there is more than one go takes.
    fn look(&self, handle: &GroupHandle, dispatcher: &mut Dispatcher) -> Result<bool, Problem> {
        let runs = dispatcher.hears_runs();
        handle.intake(dispatcher, self.head(), |from, to| self.events_for(runs, from, to))
    }

    /// What a group looks at: a chunk of events, with what is told of `runs` if its patterns name that.
    fn events_for(
        &self,
        runs: bool,
        from: Position,
        to: Position,
    ) -> Result<(Vec<Arc<Event>>, Position), Problem> {
        let from = from.max(self.first());
        match runs {
            true => self.with_reader(|reader| lifecycle::reread::events(reader, (from, to))),
            false => self.events_from(from, to, PULL_MAX),
        }
    }

    /// The floor of a group that begins at `start`.
    fn place(&self, start: &Start) -> Result<Position, Problem> {
        Ok(match start {
            Start::Now => self.head(),
            Start::Beginning => self.first().saturating_sub(1),
            // Who names a place that was trimmed would not be told what they believe they are told.
            Start::Position(position) if *position < self.first() => return Err(read::gone(self.first())),
            Start::Position(position) => (position - 1).min(self.head()),
            Start::Time(time) => self.position_before(*time)?,
        })
    }

    pub async fn seek(&self, name: &str, to: Start) -> Result<GroupView, Problem> {
        self.handle(name)?;
        let floor = self.place(&to)?.min(self.head());
        self.ask(Command::Seek { name: name.to_owned(), floor }).await?;
        self.group(name)
    }

    pub async fn pause(&self, name: &str) -> Result<GroupView, Problem> {
        self.ask(Command::Pause { name: name.to_owned(), paused: true }).await?;
        self.group(name)
    }

    /// Ends a pause and a halt.
    pub async fn resume(&self, name: &str) -> Result<GroupView, Problem> {
        self.ask(Command::Pause { name: name.to_owned(), paused: false }).await?;
        self.drain_pass(name).await
    }

    /// A halted group tries the event it halted on again.
    pub async fn drain_pass(&self, name: &str) -> Result<GroupView, Problem> {
        self.ask(Command::Unhalt { name: name.to_owned() }).await?;
        self.group(name)
    }

    pub fn dead_letters(
        &self,
        name: &str,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<DeadLetterPage, Problem> {
        self.handle(name)?;
        let wrong = || Problem::new(Code::RequestInvalid, "\"cursor\" is not one that was given out");
        let after: Position = cursor.map_or(Ok(0), |text| text.parse().map_err(|_| wrong()))?;
        if after > self.head() {
            return Err(wrong());
        }
        let mut rows = self.with_writer(|writer| {
            writer
                .state
                .dead_letters(name, after, limit + 1)
                .map_err(|fault| crate::writer::Fatal::from(fault).0)
        })?;
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| more).map(|row| row.position.to_string());
        for row in rows.iter_mut().filter(|row| row.event == crate::decide::ERASED) {
            // The letter's copy went with the content; what stays of the event itself is still in the ledger.
            let event = self.with_reader(|reader| lifecycle::reread::event_at(reader, row.position));
            if let Ok(Some(event)) = event {
                row.event = event.to_json();
            }
        }
        let shown = rows.into_iter().map(|row| {
            let mut letter = json!({
                "position": row.position, "attempts": row.attempts, "reason": row.reason, "at": row.at,
            });
            if let Some(error) = row.error {
                letter["error"] = error.into();
            }
            let rest = letter.to_string();
            let text = format!("{{\"event\":{},{}", row.event, &rest[1..]);
            letter["event"] = serde_json::from_str(&row.event).unwrap_or_default();
            (letter, text)
        });
        let (dead_letters, texts) = shown.unzip();
        Ok(DeadLetterPage { dead_letters, texts, next })
    }

    /// Tries dead letters again; says how many.
    pub async fn redrive(&self, name: &str, which: Redrive) -> Result<u64, Problem> {
        self.handle(name)?;
        let positions = match which {
            // What no event can stand at has no dead letter.
            Redrive::Positions(positions) => positions.into_iter().filter(|at| *at <= self.head()).collect(),
            Redrive::All => self.dead_positions(name, |_| true)?,
            Redrive::Filter(filter) => {
                self.dead_positions(name, |event| filter.test(event).unwrap_or(false))?
            }
        };
        let mut redriven = 0;
        for chunk in positions.chunks(DEAD_PAGE) {
            let command = Command::Redrive { group: name.to_owned(), positions: chunk.to_vec() };
            match self.ask(command).await? {
                Answer::Redriven(done) => redriven += done.len() as u64,
                _ => return Err(unexpected()),
            }
        }
        Ok(redriven)
    }

    fn dead_positions(&self, name: &str, wanted: impl Fn(&Value) -> bool) -> Result<Vec<Position>, Problem> {
        let mut positions = Vec::new();
        let mut cursor = None;
        loop {
            let page = self.dead_letters(name, DEAD_PAGE, cursor.as_deref())?;
            let chosen = page.dead_letters.iter().filter(|letter| wanted(&letter["event"]));
            positions.extend(chosen.filter_map(|letter| letter["position"].as_u64()));
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(positions),
            }
        }
    }
}

pub(super) fn no_group(name: &str) -> Problem {
    Problem::new(Code::GroupNotFound, format!("there is no group \"{name}\""))
        .hint("list them with `everwhen groups list`, or create it with `everwhen groups put`")
}
