//! Plays a scenario step by step; what is not as expected is noted and the play goes on, a refusal nobody expected ends it.

use engine::command::Toggle;
use engine::entity::{Action, Write};
use engine::{Draft, Outcome};
use model::definition::Definition;
use model::{Code, Problem};
use serde_json::{Value, json};

use super::effects::Effects;
use super::world::World;
use super::{Does, Failure, Given, Played, RowName, Scenario, Step, expect};

/// With `kill_at_waits` the power goes after each step that leaves a run waiting.
pub fn play(scenario: &Scenario, kill_at_waits: bool) -> Result<Played, Problem> {
    let mut given = scenario.given.clone();
    let mut world = World::new(scenario.start, Effects::new(given.effects.clone()))?;
    begin(&mut world, scenario)?;
    let mut failures = Vec::new();
    for (index, step) in scenario.steps.iter().enumerate() {
        let before = failures.len();
        let ended = take(&mut world, scenario, &mut given, step, index + 1, &mut failures);
        let goes_on = judge(step, ended, index + 1, &mut failures);
        if !goes_on && failures.len() > before {
            break;
        }
        if kill_at_waits && world.chronicle.runs.values().any(|run| run.status == "waiting") {
            world.restart(true, std::time::Duration::ZERO)?;
        }
    }
    let shown = scenario.steps.iter().map(|step| step.shown.clone()).collect();
    let failed_runs = if failures.is_empty() { Vec::new() } else { world.chronicle.failed_runs() };
    Ok(Played { failures, failed_runs, shown, killed: kill_at_waits })
}

/// Rows are there before any automation is, so that they start nothing.
fn begin(world: &mut World, scenario: &Scenario) -> Result<(), Problem> {
    let all = scenario.given.definitions(scenario.folder())?;
    let idle = all.iter().filter(|definition| !matches!(definition, Definition::Automation(_)));
    if !scenario.given.entities.is_empty() {
        world.apply(idle.cloned().collect())?;
    }
    for (row, fields) in &scenario.given.entities {
        write(world, row, Action::Upsert(fields.clone()), false).map_err(|problem| {
            super::read::wrong(format!(
                "{}, \"{}\": given.entities: {}",
                scenario.file.display(),
                scenario.name,
                problem.detail()
            ))
        })?;
    }
    if !all.is_empty() {
        world.apply(all)?;
    }
    world.settle()?;
    world.began = world.tenant.head();
    Ok(())
}

/// Whether the play can go on: refused exactly when that was expected.
fn judge(step: &Step, ended: Result<(), Problem>, number: usize, failures: &mut Vec<Failure>) -> bool {
    let path = verb(&step.shown);
    match (ended, step.refused) {
        (Ok(()), false) | (Err(_), true) => true,
        (Ok(()), true) => {
            failures.push(Failure {
                step: number,
                path,
                expected: json!("refused"),
                actual: json!("accepted"),
            });
            true
        }
        (Err(problem), false) => {
            let code = problem.code().as_str();
            let actual = json!(format!("{} [{code}]", problem.detail()));
            failures.push(Failure { step: number, path, expected: json!("accepted"), actual });
            false
        }
    }
}

fn verb(step: &Value) -> String {
    let own = |key: &&String| !matches!(key.as_str(), "at" | "force" | "refused");
    match step {
        Value::String(word) => word.clone(),
        _ => {
            step.as_object().and_then(|map| map.keys().find(own)).cloned().unwrap_or_else(|| "at".to_owned())
        }
    }
}

fn take(
    world: &mut World,
    scenario: &Scenario,
    given: &mut Given,
    step: &Step,
    number: usize,
    failures: &mut Vec<Failure>,
) -> Result<(), Problem> {
    if let Some(at) = step.at {
        // A place in time that has passed: nothing is left to move.
        world.advance_to(scenario.start.plus(at).max(world.now()))?;
    }
    match &step.does {
        Does::Nothing => {}
        Does::Set { rows, force } => {
            for (row, fields) in rows {
                write(world, row, Action::Upsert(fields.clone()), *force)?;
            }
        }
        Does::Remove(rows) => {
            for row in rows {
                write(world, row, Action::Delete, false)?;
            }
        }
        Does::Publish(events) => events.iter().try_for_each(|event| publish(world, event))?,
        Does::Advance(by) => world.advance_to(world.now().plus(*by))?,
        Does::AdvanceTo(at) => go_to(world, *at)?,
        Does::Apply { files, concepts, automations } => {
            let mut new = given.clone();
            new.replace(files, concepts, automations);
            world.apply(new.definitions(scenario.folder())?)?;
            *given = new;
        }
        Does::Toggle { name, enable } => toggle(world, name, *enable)?,
        Does::Run { automation, input, event } => {
            world.tenant.start_run(&world.caller(), automation, input.clone(), event.clone())?;
        }
        Does::Cancel(name) => cancel(world, name)?,
        Does::Answer { automation, value, by } => answer(world, automation, value, by.as_deref())?,
        Does::Restart { kill, down } => world.restart(*kill, *down)?,
        Does::Expect(expected) => {
            world.look()?;
            failures.extend(expect::failures(world, expected, number)?);
        }
    }
    world.look()
}

fn go_to(world: &mut World, at: model::Timestamp) -> Result<(), Problem> {
    if at < world.now() {
        let detail = format!("the clock is at {} and never goes back to {at}", world.now());
        return Err(Problem::new(Code::ScenarioInvalid, detail));
    }
    world.advance_to(at)
}

fn write(world: &mut World, row: &RowName, action: Action, force: bool) -> Result<(), Problem> {
    let mut write = Write::of(&row.concept, Some(&row.id), action);
    write.force = force;
    world.tenant.write_blocking(&world.caller(), write)?;
    world.settle()
}

fn publish(world: &mut World, event: &Value) -> Result<(), Problem> {
    let draft = Draft::parse(event.to_string().as_bytes(), &world.tenant.limits())?;
    match world.tenant.publish_blocking(&world.caller(), draft)? {
        Outcome::Recorded(_) => {}
        other => {
            return Err(Problem::new(
                Code::EventRefused,
                format!("it was not recorded: {}", other.to_json()),
            ));
        }
    }
    world.settle()
}

fn toggle(world: &World, name: &str, enable: bool) -> Result<(), Problem> {
    let toggle = || if enable { Toggle::Enable } else { Toggle::Disable };
    if name != "*" {
        return world.tenant.set_automation(name, toggle());
    }
    for automation in world.tenant.automations()? {
        world.tenant.set_automation(automation["name"].as_str().unwrap_or_default(), toggle())?;
    }
    Ok(())
}

/// As an operator's cancel of all of them: those in the queue go first, or they would begin.
fn cancel(world: &World, name: &str) -> Result<(), Problem> {
    world.tenant.automation(name)?;
    world.tenant.cancel_runs_of(name)
}

fn answer(world: &World, automation: &str, value: &Value, by: Option<&str>) -> Result<(), Problem> {
    let waits = world.tenant.waits()?;
    let open = waits.iter().find(|wait| wait["automation"] == automation && wait["kind"] == "ask");
    let Some(open) = open.and_then(|wait| wait["id"].as_str()) else {
        return Err(Problem::new(Code::NotFound, format!("\"{automation}\" asks nothing")));
    };
    let mut caller = world.caller();
    if let Some(by) = by {
        by.clone_into(&mut caller.actor);
    }
    world.tenant.answer_wait(&caller, open, value.clone())
}
