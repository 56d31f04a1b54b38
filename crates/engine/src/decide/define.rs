//! Decides an apply: which definitions are new, changed or gone, and whether the rows that are there still fit.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::definition::{Concept as Declared, Definition, Field, Kind, Type};
use model::record::{Applied, Record, Set};
use model::{Code, Problem};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::entity::value_at;
use super::{Decided, Entry, Ground, Refusal, raised};
use crate::command::{Answer, Change, Plan};
use crate::entity::catalog::Entry as Declaration;
use crate::entity::check::{Fill, check, check_secret};
use crate::entity::{Catalog, Concept, Row, own, same, seal, token};
use crate::state::State;
use crate::state::entity::json_path;

pub(super) fn apply(
    state: &State,
    managed_by: String,
    definitions: Vec<Definition>,
    dry_run: bool,
    ground: &mut Ground<'_>,
) -> Result<Decided, Refusal> {
    let (applied, mut plan) = compare(&state.catalog, managed_by, &definitions)?;
    plan.position = ground.next - 1;
    check_all(state, &definitions, &applied)?;
    plan.runs_on_old = on_old_versions(state, &applied);
    plan.runs_cancelled = of_removed(state, &applied);
    let sync = true;
    if dry_run || applied.set.is_empty() && applied.removed.is_empty() {
        return Ok(Decided { entries: Vec::new(), answer: Answer::Applied(plan), sync });
    }
    let mut entries = raised(state, ground);
    entries.push(Entry::new(Record::DefinitionsApplied(Box::new(applied)), ground.entropy));
    let position = ground.next + entries.len() as u64 - 1;
    Ok(Decided { entries, answer: Answer::Applied(Plan { position, ..plan }), sync })
}

/// Single definitions, set or removed by the one who manages them.
pub(super) fn change(state: &State, change: Change, ground: &mut Ground<'_>) -> Result<Decided, Refusal> {
    let Change { managed_by, set, removed, create, finish_runs } = change;
    let mut applied = Applied { managed_by, removed, ..Applied::default() };
    let mut plan = Plan::default();
    for (kind, name) in &applied.removed {
        let there = state.catalog.get(*kind, name).ok_or_else(|| undeclared(*kind, name))?;
        ours(*kind, name, &there.managed_by, &applied.managed_by)?;
        plan.removed.push(format!("{kind} {name}"));
    }
    for definition in &set {
        let (kind, name) = (definition.kind(), definition.key());
        let there = state.catalog.get(kind, name);
        match there {
            Some(there) if create => return Err(taken(kind, name, &there.managed_by).into()),
            Some(there) => ours(kind, name, &there.managed_by, &applied.managed_by)?,
            None => {}
        }
        if there.is_some_and(|there| there.hash == definition.hash()) {
            continue;
        }
        let shown = format!("{kind} {name}");
        if there.is_some() {
            plan.changed.push(shown)
        } else {
            plan.added.push(shown)
        }
        applied.set.push(written(definition)?);
    }
    check_all(state, &set, &applied)?;
    plan.runs_on_old = on_old_versions(state, &applied);
    if !finish_runs {
        plan.runs_cancelled = of_removed(state, &applied);
    }
    plan.position = ground.next - 1;
    if plan.is_empty() {
        return Ok(Decided { entries: Vec::new(), answer: Answer::Applied(plan), sync: true });
    }
    let mut entries = raised(state, ground);
    entries.push(Entry::new(Record::DefinitionsApplied(Box::new(applied)), ground.entropy));
    plan.position = ground.next + entries.len() as u64 - 1;
    Ok(Decided { entries, answer: Answer::Applied(plan), sync: true })
}

fn undeclared(kind: Kind, name: &str) -> Problem {
    Problem::new(Code::NotFound, format!("there is no {kind} \"{name}\""))
        .hint("`everwhen automations list` shows what is declared")
}

fn taken(kind: Kind, name: &str, by: &str) -> Problem {
    Problem::new(Code::DefinitionConflict, format!("{kind} \"{name}\" is declared already, by \"{by}\""))
        .hint("choose another name, or change the one that is there")
        .with("managed_by", by)
}

fn ours(kind: Kind, name: &str, by: &str, us: &str) -> Result<(), Problem> {
    if by == us {
        return Ok(());
    }
    Err(Problem::new(Code::DefinitionConflict, format!("{kind} \"{name}\" is managed by \"{by}\""))
        .hint("change the files of that workspace and apply them")
        .with("managed_by", by))
}

fn written(definition: &Definition) -> Result<Set, Problem> {
    let (kind, name) = (definition.kind(), definition.key());
    let text = RawValue::from_string(definition.to_json())
        .map_err(|err| Problem::new(Code::Internal, format!("{kind} \"{name}\": {err}")))?;
    Ok(Set { kind, name: name.to_owned(), hash: definition.hash(), definition: text })
}

/// Runs that will be on another version than the one in force, or on one of an automation that is gone.
fn on_old_versions(state: &State, applied: &Applied) -> BTreeMap<String, BTreeMap<String, u64>> {
    let automations = applied.set.iter().filter(|set| set.kind == Kind::Automation);
    let new: BTreeMap<&str, &str> = automations.map(|set| (set.name.as_str(), set.hash.as_str())).collect();
    let mut old: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    for brief in state.runs.live.values() {
        let declared = state.catalog.automations.get(&brief.automation).map(|there| there.hash.as_str());
        let hash = new.get(brief.automation.as_str()).copied().or(declared);
        if is_removed(applied, &brief.automation) || hash.is_some_and(|hash| hash != brief.hash) {
            let version = brief.hash.get(..12).unwrap_or(&brief.hash).to_owned();
            *old.entry(brief.automation.clone()).or_default().entry(version).or_insert(0) += 1;
        }
    }
    old
}

fn is_removed(applied: &Applied, automation: &str) -> bool {
    applied.removed.iter().any(|(kind, name)| *kind == Kind::Automation && name == automation)
}

/// How many runs of each automation that is removed are in progress.
fn of_removed(state: &State, applied: &Applied) -> BTreeMap<String, u64> {
    let mut live = BTreeMap::new();
    for brief in state.runs.live.values().filter(|brief| is_removed(applied, &brief.automation)) {
        *live.entry(brief.automation.clone()).or_insert(0) += 1;
    }
    live
}

/// What the workspace says now against what it manages; the rest is not its business.
fn compare(
    catalog: &Catalog,
    managed_by: String,
    definitions: &[Definition],
) -> Result<(Applied, Plan), Problem> {
    let mut applied = Applied { managed_by, ..Applied::default() };
    let mut plan = Plan::default();
    for (index, definition) in definitions.iter().enumerate() {
        let (kind, name) = (definition.kind(), definition.key());
        let shown = format!("{kind} {name}");
        if definitions[..index].iter().any(|other| other.kind() == kind && other.key() == name) {
            let detail = format!("{kind} \"{name}\" is declared twice");
            return Err(Problem::new(Code::DefinitionInvalid, detail).hint("rename or remove one of them"));
        }
        let hash = definition.hash();
        match catalog.get(kind, name) {
            Some(there) if there.managed_by != applied.managed_by => {
                let detail = format!("{kind} \"{name}\" is managed by \"{}\"", there.managed_by);
                return Err(Problem::new(Code::DefinitionInvalid, detail)
                    .hint("choose another name, or remove it there first"));
            }
            Some(there) if there.hash == hash => continue,
            Some(there) => {
                plan.replaces.insert(shown.clone(), there.hash.clone());
                plan.changed.push(shown);
            }
            None => plan.added.push(shown),
        }
        applied.set.push(written(definition)?);
    }
    let ours = catalog.entries().filter(|(_, entry)| entry.managed_by == applied.managed_by);
    let named = |kind: Kind, name: &str| definitions.iter().any(|d| d.kind() == kind && d.key() == name);
    for ((kind, name), there) in ours.filter(|((kind, name), _)| !named(*kind, name)) {
        let shown = format!("{kind} {name}");
        plan.replaces.insert(shown.clone(), there.hash.clone());
        plan.removed.push(shown);
        applied.removed.push((*kind, name.clone()));
    }
    Ok((applied, plan))
}

/// The house's own rows are nobody else's to declare: whoever could would own every token.
fn foreign(definition: &Definition) -> Result<(), Problem> {
    let Definition::Concept(concept) = definition else { return Ok(()) };
    if concept.id.split(':').nth(1) != Some(own::NAMESPACE) {
        return Ok(());
    }
    let detail = format!("concept \"{}\" stands in a namespace of the engine", concept.id);
    Err(Problem::new(Code::DefinitionReserved, detail).hint("choose another namespace"))
}

fn check_all(state: &State, definitions: &[Definition], applied: &Applied) -> Result<(), Refusal> {
    let mut after = state.catalog.after(0, &Applied { set: Vec::new(), ..applied.clone() });
    for definition in definitions {
        foreign(definition)?;
        after.put(Declaration {
            hash: String::new(),
            managed_by: String::new(),
            position: 0,
            definition: Arc::new(definition.clone()),
        })?;
    }
    for (_, name) in applied.removed.iter().filter(|(kind, _)| *kind == Kind::Concept) {
        let rows = state.count_rows(name)?;
        if rows > 0 {
            let detail = format!("concept \"{name}\" is not declared any more, but has {rows} rows");
            return Err(breaking(detail, rows)
                .hint(
                    "apply takes all files of a workspace: name its folder (everwhen apply .), or give these files \
                     one of their own (--workspace NAME); to drop the concept, delete its rows first",
                )
                .into());
        }
    }
    for set in applied.set.iter().filter(|set| set.kind == Kind::Concept) {
        let (Ok(old), Ok(new)) = (state.catalog.concept(&set.name), after.concept(&set.name)) else {
            continue;
        };
        rows_fit(state, old, new)?;
    }
    Ok(())
}

/// Refuses a definition that rows do not fit, saying how many. An additive change looks at no row.
fn rows_fit(state: &State, old: &Concept, new: &Concept) -> Result<(), Refusal> {
    if old.definition.scope != new.definition.scope {
        let rows = state.count_rows(new.id())?;
        if rows > 0 {
            let detail = format!("the scope of \"{}\" cannot change while it has {rows} rows", new.id());
            return Err(breaking(detail, rows)
                .hint("export the rows, delete them, apply, import them")
                .into());
        }
    }
    if may_break(&old.definition, &new.definition) {
        let (mut rows, mut first) = (0, None);
        state.each_row(new.id(), |row| {
            let secrets = secrets_fit(state, new, &row);
            let fits = check(new, row.fields.clone(), Fill::Required);
            let fits = fits.and_then(|normal| in_form(new, &row.fields, &normal)).and(secrets);
            if let Err(problem) = fits {
                rows += 1;
                first.get_or_insert((row.id, problem));
            }
        })?;
        if let Some((id, problem)) = first {
            let detail = format!(
                "{rows} rows of \"{}\" do not fit; the first is \"{id}\": {}",
                new.id(),
                problem.detail()
            );
            return Err(breaking(detail, rows)
                .hint("change these rows first, or make the change additive")
                .into());
        }
    }
    for pointer in new.unique.iter().filter(|pointer| !old.unique.contains(pointer)) {
        let rows = duplicates(state, new.id(), pointer)?;
        if rows > 0 {
            let detail = format!("{rows} rows of \"{}\" share a value of \"{pointer}\"", new.id());
            return Err(breaking(detail, rows)
                .hint("make the values differ before the field is unique")
                .into());
        }
    }
    Ok(())
}

/// Instants and durations stand in rows in one form, which indexes and sorts rest on; an apply does not rewrite rows.
fn in_form(new: &Concept, fields: &Map<String, Value>, normal: &Map<String, Value>) -> Result<(), Problem> {
    for path in [Type::Timestamp, Type::Duration].iter().flat_map(|of| new.paths_of(of)) {
        let pointer: String = path.split('.').map(|step| format!("/{}", token(step))).collect();
        let (Some(before), Some(after)) = (value_at(fields, &pointer), value_at(normal, &pointer)) else {
            continue;
        };
        if !same(before, after) {
            let detail =
                format!("field \"{path}\" of \"{}\" must be written {after}, not {before}", new.id());
            return Err(Problem::new(Code::EntityInvalid, detail).at(pointer));
        }
    }
    Ok(())
}

/// What is sealed in a row, by the new definition. What its key does not open any more cannot be judged.
fn secrets_fit(state: &State, new: &Concept, row: &Row) -> Result<(), Problem> {
    sealed_alike(new, row)?;
    let Some(key) = state.key.get() else { return Ok(()) };
    for (pointer, sealed) in &row.sealed {
        let Some(field) = seal::field_at(&new.definition.fields, pointer) else { continue };
        let open = |id: &str| key.open(&seal::place_of(&row.concept, &row.space, id, pointer), sealed);
        if let Some(value) = open(&row.id).or_else(|| open("")) {
            check_secret(new, field, value, pointer)?;
        }
    }
    Ok(())
}

/// Nothing seals or opens what is there: a value would stay readable under its mask, a secret would be lost behind it.
fn sealed_alike(new: &Concept, row: &Row) -> Result<(), Problem> {
    let wrong = |pointer: &str, what: &str| {
        let name = pointer.trim_start_matches('/').replace('/', ".");
        Problem::new(Code::EntityInvalid, format!("field \"{name}\" {what}")).at(pointer)
    };
    let clear =
        |pointer: &&String| !row.sealed.contains_key(*pointer) && value_at(&row.fields, pointer).is_some();
    if let Some(pointer) = new.secrets.iter().find(clear) {
        return Err(wrong(pointer, "has a value in the clear, which `@secret` would not seal"));
    }
    match row.sealed.keys().find(|pointer| !new.secrets.contains(pointer)) {
        Some(pointer) => Err(wrong(pointer, "holds a secret, which would be lost without `@secret`")),
        None => Ok(()),
    }
}

fn duplicates(state: &State, concept: &str, pointer: &str) -> Result<u64, Refusal> {
    let path = json_path(pointer);
    let sql = format!(
        "SELECT coalesce(sum(n), 0) FROM (SELECT count(*) AS n FROM entity WHERE concept = ?1 AND
         json_extract(fields, {path}) IS NOT NULL GROUP BY space, json_extract(fields, {path}) HAVING n > 1)"
    );
    let count = state.table()?.query_row(&sql, [concept], |row| row.get(0));
    Ok(count.map_err(crate::state::Fault)?)
}

fn breaking(detail: String, rows: u64) -> Problem {
    Problem::new(Code::DefinitionBreaking, detail).with("rows", rows)
}

/// False only when no row that fitted can fail to fit: what was there is as it was, what is new may be absent.
fn may_break(old: &Declared, new: &Declared) -> bool {
    let plain = |field: &Field| Field {
        description: None,
        default: None,
        required: false,
        immutable: false,
        unique: false,
        ..field.clone()
    };
    let kept = |field: &Field| {
        let now = new.fields.iter().find(|now| now.name == field.name);
        now.is_some_and(|now| {
            plain(now) == plain(field) && (!now.required || field.required || now.default.is_some())
        })
    };
    let harmless = |field: &Field| {
        let known = old.fields.iter().any(|old| old.name == field.name);
        known || !old.open && (!field.required || field.default.is_some())
    };
    let closed = old.open && !new.open;
    closed || !old.fields.iter().all(kept) || !new.fields.iter().all(harmless)
}
