//! Automations at work in the simulated world: what is declared, people who start and cancel runs, workers that make their
//! requests, and whether what waits still waits after a restart.

use std::collections::BTreeMap;

use engine::Caller;
use engine::command::Toggle;
use engine::history::read::Wanted;
use model::Problem;
use model::record::How;
use serde_json::{Value, json};

use super::World;
use super::finish::is_misfortune;

/// One text for each; each publishes one event at its end, into the space of the rows, away from the groups.
pub const AUTOMATIONS: [&str; 18] = [
    "automation: call
triggers:
  - event: b.y
mode: {is: parallel, max: 1000}
actions:
  - http: {url: \"https://example.org/x\", body: {of: 1}}
    retry: {max: 3, base: 1s}
  - publish: {topic: out.call, space: rows}
",
    "automation: echo
triggers:
  - event: a.x
mode: {is: parallel, max: 1000}
actions:
  - publish: {topic: out.echo, space: rows, payload: {of: 1}}
",
    "automation: calm
triggers:
  - event: a.*
    debounce: {for: 2s, max_wait: 9s}
mode: {is: parallel, max: 1000}
actions:
  - publish: {topic: out.calm, space: rows}
",
    "automation: slow
triggers:
  - event: a.y
mode: {is: queued, max: 4}
actions:
  - delay: 4s
  - publish: {topic: out.slow, space: rows}
",
    "automation: latest
triggers:
  - event: b.y
mode: restart
actions:
  - delay: 6s
  - publish: {topic: out.latest, space: rows}
",
    "automation: pay
triggers:
  - event: b.x
mode: {is: parallel, max: 1000}
actions:
  - delay: 2s
  - wait_for: {event: a.x, filter: 'event.payload.k == trigger.event.payload.k', timeout: 20s, on_timeout: continue}
  - publish: {topic: out.pay, space: rows}
",
    "automation: cool
triggers:
  - event: b.x
    cooldown: 8s
conditions:
  - event.payload.k > 1
mode: single
actions:
  - publish: {topic: out.cool, space: rows}
",
    "automation: late
triggers:
  - event: later.z
mode: {is: parallel, max: 1000}
actions:
  - publish: {topic: out.late, space: rows}
",
    "automation: heal
triggers:
  - state: {entity: v1:sim:thing/b, field: size, to: 2}
mode: {is: parallel, max: 1000}
actions:
  - wait_until: {condition: 'state[\"v1:sim:thing\"][\"a\"].size == 3', timeout: 15s, on_timeout: continue}
  - mutate: grow
    args: {id: d, size: 1}
  - publish: {topic: out.heal, space: rows}
",
    "automation: dwell
triggers:
  - state: {entity: v1:sim:thing/c, field: size, to: 1}
    for: 3s
mode: {is: parallel, max: 1000}
actions:
  - publish: {topic: out.dwell, space: rows}
",
    "automation: tick
triggers:
  - every: 10s
actions:
  - publish: {topic: out.tick, space: rows}
",
    "automation: cron
triggers:
  - {cron: \"*/10 * * * * *\", catch_up: {all: 5}}
mode: single
actions:
  - publish: {topic: out.cron, space: rows}
",
    "automation: quiet
triggers:
  - absent: {event: b.x, for: 12s}
mode: {is: parallel, max: 1000}
actions:
  - publish: {topic: out.quiet, space: rows}
",
    "automation: batch
triggers:
  - event: b.*
    batch: {count: 3, for: 5s}
mode: {is: queued, max: 1000}
actions:
  - publish: {topic: out.batch, space: rows}
",
    "automation: burst
triggers:
  - event: a.*
    window: {count: 3, minutes: 1, refire: once}
    debounce: {for: 1s}
mode: {is: queued, max: 1000}
actions:
  - publish: {topic: out.burst, space: rows}
",
    "automation: caller
triggers:
  - event: a.y
mode: {is: parallel, max: 1000}
actions:
  - automation: callee
  - publish: {topic: out.caller, space: rows}
",
    "automation: callee
mode: {is: parallel, max: 1000}
actions:
  - delay: 1s
  - publish: {topic: out.callee, space: rows}
",
    "automation: brief
triggers:
  - event: b.x
timeout: 5s
mode: {is: parallel, max: 1000}
actions:
  - wait_for: {event: never.comes}
  - publish: {topic: out.brief, space: rows}
",
];
/// Those that people pause, switch off and change.
const TOGGLED: [&str; 4] = ["calm", "slow", "echo", "burst"];
/// Those that are taken away and come back.
const MOVABLE: [usize; 2] = [2, 3];

impl World {
    /// A person starts or cancels a run, or a worker does something.
    pub(super) fn operate(&mut self) -> Result<(), String> {
        match self.random.weighted(&[8, 6, 2, 2, 2, 1]) {
            0 => self.hand_out_effects(2),
            1 => self.answer_effect(),
            2 => self.cancel_one(),
            3 => self.start_one(),
            4 => self.toggle_one(),
            _ => {
                let variant = self.random.below(3);
                self.deploy(variant)
            }
        }
    }

    fn toggle_one(&mut self) -> Result<(), String> {
        let name = *self.random.pick(&TOGGLED);
        let toggle = *self.random.pick(&[
            Toggle::Pause,
            Toggle::Resume,
            Toggle::Disable,
            Toggle::Enable,
            Toggle::Drain,
        ]);
        let set = self.tenant().set_automation(name, toggle);
        let said = set.as_ref().map_err(|problem| problem.code().as_str());
        self.note(format_args!("{toggle:?} {name} -> {said:?}"));
        match set {
            Err(problem) if problem.code() == model::Code::NotFound => Ok(()),
            set => excused(set),
        }
    }

    /// What is declared changes: as it was, all with another text, or some gone.
    pub(super) fn deploy(&mut self, variant: usize) -> Result<(), String> {
        let texts = AUTOMATIONS.iter().enumerate();
        let texts = texts.filter(|(n, _)| variant != 2 || !MOVABLE.contains(n));
        let described = |text: &str| match variant {
            1 => format!("{text}description: changed\n"),
            _ => text.to_owned(),
        };
        let automations = texts.map(|(n, text)| (format!("acts/{n}.yaml"), described(text))).collect();
        let definitions = super::rows::declared(automations)?;
        let tenant = self.tenant().clone();
        let applied = self.finish_now(async move { tenant.apply("sim", definitions).await });
        let said = applied.as_ref().map(|applied| applied.as_ref().map(drop).map_err(|p| p.code().as_str()));
        self.note(format_args!("deploy {variant} -> {said:?}"));
        applied.map_or(Ok(()), |applied| excused(applied.map(drop)))
    }

    /// The faults have stopped: everything is declared, on and not paused.
    pub(super) fn restore(&mut self) -> Result<(), String> {
        if !self.temper.acts {
            return Ok(());
        }
        self.deploy(0)?;
        for name in TOGGLED {
            for toggle in [Toggle::Enable, Toggle::Resume] {
                self.tenant().set_automation(name, toggle).map_err(|problem| problem.to_string())?;
            }
        }
        Ok(())
    }

    fn start_one(&mut self) -> Result<(), String> {
        let name = *self.random.pick(&["slow", "echo", "tick"]);
        let input = json!({"k": 1});
        let started = self.tenant().start_run(&Caller::local(), name, input, None);
        let said = started.as_ref().map(|started| started.outcome.as_str());
        self.note(format_args!("start {name} -> {:?}", said.map_err(|problem| problem.code().as_str())));
        match started {
            Err(problem) if problem.code() == model::Code::NotFound => Ok(()),
            started => excused(started.map(drop)),
        }
    }

    fn cancel_one(&mut self) -> Result<(), String> {
        let Some(live) = self.live_runs() else { return Ok(()) };
        let wanted = Wanted { status: Some("queued".to_owned()), limit: 100, ..Wanted::default() };
        let queued = self.tenant().runs(&wanted).map(|(runs, _)| runs).unwrap_or_default();
        let queued = queued.iter().filter_map(|run| run["id"].as_str().map(str::to_owned));
        let ids: Vec<String> = live.into_keys().chain(queued).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let id = self.random.pick(&ids).clone();
        let cancelled = self.tenant().cancel_run(&id);
        self.note(format_args!("cancel {id} -> {:?}", cancelled.as_ref().map_err(|p| p.code().as_str())));
        match cancelled {
            // What stood before it in the same batch ended it.
            Err(problem) if problem.code() == model::Code::RunNotResumable => Ok(()),
            cancelled => excused(cancelled),
        }
    }

    fn hand_out_effects(&mut self, most: usize) -> Result<(), String> {
        let handed = self.tenant().hand_out_effects([most, most]);
        let keys =
            handed.as_ref().map(|all| all.iter().map(|effect| effect.key.as_str()).collect::<Vec<_>>());
        self.note(format_args!("effects -> {:?}", keys.map_err(|problem| problem.code().as_str())));
        let Ok(effects) = handed else { return excused(handed.map(drop)) };
        for effect in effects {
            if self.errands.iter().any(|other| other.id() == effect.id()) {
                return Err(format!("two workers have the effect {}", effect.key));
            }
            self.oracle.acts.call(&effect.run_id, &effect.key)?;
            self.errands.push(effect);
        }
        Ok(())
    }

    /// A worker of this life or of an earlier one answers; only first attempts fail.
    fn answer_effect(&mut self) -> Result<(), String> {
        let late = !self.late.is_empty() && self.random.once_in(4);
        let list = if late { &mut self.late } else { &mut self.errands };
        if list.is_empty() {
            return Ok(());
        }
        let effect = list.swap_remove(self.random.below(list.len()));
        let fails = effect.attempt == 1 && self.random.once_in(3);
        let (how, value) = match fails {
            true => (How::Failed, json!({"code": "http.failed", "message": "no", "class": "transient"})),
            false => (How::Done, json!({"status": 200})),
        };
        let answered = self.tenant().effect_done(&effect, how, value);
        let said = answered.as_ref().map_err(|problem| problem.code().as_str());
        self.note(format_args!("effect {} {how:?}, late: {late} -> {said:?}", effect.key));
        if answered.is_err() && !late {
            self.errands.push(effect);
        }
        excused(answered)
    }

    /// The faults have stopped: what is in quarantine is tried again, and every request is answered.
    pub(super) fn finish_effects(&mut self) -> Result<(), String> {
        let open = self.tenant().open_effects().map_err(|problem| problem.to_string())?;
        for effect in &open {
            // Refused where it is in no quarantine.
            let _ = self.tenant().redrive_effect(&format!("{}.{}", effect.run_id, effect.wait));
        }
        self.hand_out_effects(1_000)?;
        // Also those that were handed out in an answer that was lost.
        for effect in self.tenant().open_effects().map_err(|problem| problem.to_string())? {
            self.oracle.acts.call(&effect.run_id, &effect.key)?;
            excused(self.tenant().effect_done(&effect, How::Done, json!({"status": 200})))?;
        }
        self.errands.clear();
        Ok(())
    }

    /// Live runs by id, each with the number of its open waits; `None` while the disk is broken.
    pub(super) fn live_runs(&self) -> Option<BTreeMap<String, usize>> {
        let shown = self.tenant().live_runs(None).ok()?;
        let waits = |run: &Value| run["waits"].as_array().map_or(0, Vec::len);
        Some(shown.iter().filter_map(|run| Some((run["id"].as_str()?.to_owned(), waits(run)))).collect())
    }

    /// What lived when the process ended lives again, and waits for as many things.
    pub(super) fn check_live(&self) -> Result<(), String> {
        let (Some(live), true) = (self.live_runs(), self.oracle.acts.on) else { return Ok(()) };
        let wanted = self.oracle.acts.live();
        match live == wanted {
            true => Ok(()),
            false => Err(format!("the ledger says that {wanted:?} live, and {live:?} do")),
        }
    }
}

fn excused(answer: Result<(), Problem>) -> Result<(), String> {
    match answer {
        Err(problem) if !is_misfortune(&problem) => Err(problem.to_string()),
        _ => Ok(()),
    }
}
