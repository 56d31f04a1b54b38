//! Events that come from another ledger: exported lines become drafts, many to a commit, and get new positions here.

mod here;

use std::collections::{BTreeSet, HashMap};

use model::{Position, Problem};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::admit::{Caller, Draft};
use crate::tenant::Tenant;
use crate::tenant::audit::ELSEWHERE;
use crate::{Outcome, Receipt};
use here::Here;

/// Most events, and most bytes of lines, that share a commit.
const BATCH_EVENTS: usize = 500;
const BATCH_BYTES: usize = 512 << 10;

/// Most names of unknown fields that are told.
const UNKNOWN_MAX: usize = 20;

/// Where the extensions of an event keep the position of a cause that did not come with it.
const OLD_CAUSE: &str = "importedcause";

/// Takes an export line by line. The events of one actor that stand together become one commit, so a line that is
/// refused takes those of its own batch with it and leaves everything before.
///
/// What an earlier import brought is not brought again: by its key, or without one by being here with the same id,
/// topic, time and payload. Causes lead to where their events stand now; a cause that is not among the lines is kept
/// as an extension.
pub struct Importer {
    tenant: Tenant,
    /// What was here before; `None` when everything is to be stored, come what may.
    here: Option<Here>,
    /// From positions in the old ledger to positions in this one.
    moved: HashMap<Position, Position>,
    /// The line being read, counted from 1.
    line: u64,
    /// Whose events those are that name nobody.
    importing: String,
    /// Whose the batch is.
    actor: String,
    batch: Vec<Draft>,
    /// Where the events of the batch come from: their line, and their old position.
    origins: Vec<(u64, Option<Position>)>,
    bytes: usize,
    done: Imported,
}

/// What became of the lines so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    pub imported: u64,
    /// They were here already, with the same content.
    pub duplicates: u64,
    /// Their cause was not among the lines.
    pub causes_outside: u64,
    /// Their content was erased before the export, so there is nothing to bring.
    pub erased: u64,
    /// Fields that this version does not know: they were left out.
    pub unknown_fields: BTreeSet<String>,
}

impl Imported {
    pub fn to_json(&self) -> Value {
        let mut out = json!({ "imported": self.imported, "duplicates": self.duplicates });
        for (name, count) in [("erased", self.erased), ("causes_outside", self.causes_outside)] {
            if count > 0 {
                out[name] = json!(count);
            }
        }
        if !self.unknown_fields.is_empty() {
            out["unknown_fields"] = json!(self.unknown_fields);
        }
        out
    }
}

/// What decides a line's fate besides the draft in it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Origin {
    actor: Option<String>,
    erased: bool,
    position: Option<Position>,
    cause: Option<Position>,
}

impl Importer {
    pub fn new(tenant: Tenant) -> Importer {
        Importer {
            here: Some(Here::new(tenant.clone())),
            tenant,
            moved: HashMap::new(),
            line: 0,
            importing: Caller::local().actor,
            actor: String::new(),
            batch: Vec::new(),
            origins: Vec::new(),
            bytes: 0,
            done: Imported::default(),
        }
    }

    /// Events that name nobody are those of who brings them; without this, of somebody at this machine.
    pub fn by(mut self, caller: &Caller) -> Importer {
        self.importing.clone_from(&caller.actor);
        self
    }

    /// Stores also what is here already, unless its key says that it is the same event.
    pub fn again(mut self) -> Importer {
        self.here = None;
        self
    }

    /// What is stored by now; lines still waiting for their commit are not counted.
    pub fn so_far(&self) -> Imported {
        self.done.clone()
    }

    /// Takes one line; blank ones are passed over.
    pub async fn line(&mut self, line: &[u8]) -> Result<(), Problem> {
        self.line += 1;
        let line = line.trim_ascii();
        if line.is_empty() {
            return Ok(());
        }
        let (mut draft, unknown) =
            Draft::parse_imported(line, &self.tenant.limits()).map_err(|problem| at(problem, self.line))?;
        for name in unknown {
            if self.done.unknown_fields.len() < UNKNOWN_MAX {
                self.done.unknown_fields.insert(name);
            }
        }
        of_another_house(&mut draft);
        let origin: Origin = serde_json::from_slice(line).unwrap_or_default();
        if origin.erased {
            self.done.erased += 1;
            return Ok(());
        }
        if let (Some(here), None) = (&mut self.here, &draft.key)
            && let Some(position) = here.find(&draft).await?
        {
            self.done.duplicates += 1;
            self.moved.extend(origin.position.map(|old| (old, position)));
            return Ok(());
        }
        if let Some(cause) = origin.cause {
            self.lead_to(cause, &mut draft).await?;
        }
        let actor = origin.actor.unwrap_or_else(|| self.importing.clone());
        if actor != self.actor || self.batch.len() >= BATCH_EVENTS || self.bytes + line.len() > BATCH_BYTES {
            self.commit().await?;
            self.actor = actor;
        }
        self.bytes += line.len();
        self.batch.push(draft);
        self.origins.push((self.line, origin.position));
        Ok(())
    }

    /// Names the cause by its new position, which it has once its own commit is done.
    async fn lead_to(&mut self, cause: Position, draft: &mut Draft) -> Result<(), Problem> {
        if self.origins.iter().any(|(_, old)| *old == Some(cause)) {
            self.commit().await?;
        }
        match self.moved.get(&cause) {
            Some(position) => draft.cause = Some(*position),
            None => {
                self.done.causes_outside += 1;
                draft.ext = Some(with_old_cause(draft.ext.take(), cause));
            }
        }
        Ok(())
    }

    /// Stores what still waits for its commit.
    pub async fn finish(&mut self) -> Result<Imported, Problem> {
        self.commit().await?;
        Ok(self.so_far())
    }

    async fn commit(&mut self) -> Result<(), Problem> {
        let (batch, origins) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.origins));
        self.bytes = 0;
        if batch.is_empty() {
            return Ok(());
        }
        let first = origins.first().map_or(self.line, |(line, _)| *line);
        self.tenant.allow_events(&Caller::local(), batch.len()).map_err(|problem| at(problem, first))?;
        // Not from outside: reserved topics are kept, and attention has judged these events once already.
        let caller =
            Caller { actor: self.actor.clone(), trace: None, outside: false, sight: Default::default() };
        let outcomes =
            self.tenant.publish_all(&caller, batch).await.map_err(|problem| of_line(problem, &origins))?;
        for ((_, old), outcome) in origins.into_iter().zip(outcomes) {
            match outcome {
                Outcome::Recorded(Receipt { duplicate: true, .. }) => self.done.duplicates += 1,
                _ => self.done.imported += 1,
            }
            if let (Some(old), Outcome::Recorded(receipt)) = (old, outcome) {
                self.moved.insert(old, receipt.position);
            }
        }
        Ok(())
    }
}

/// What the engine said of itself elsewhere is kept, under another name: read as its own words it would stand for acts and
/// answers that never happened here.
fn of_another_house(draft: &mut Draft) {
    if let Some(said) = draft.topic.strip_prefix("engine.").filter(|_| !draft.topic.starts_with(ELSEWHERE)) {
        draft.topic = format!("{ELSEWHERE}{said}");
        draft.id = draft.id.take().map(|id| format!("imported:{id}"));
    }
}

/// The extensions with one more, unless an earlier import has already put it there; their own text stays as it is.
fn with_old_cause(ext: Option<Box<RawValue>>, cause: Position) -> Box<RawValue> {
    let mut text = ext.map_or_else(|| "{}".to_owned(), |ext| ext.get().to_owned());
    let members: serde_json::Map<String, Value> = serde_json::from_str(&text).unwrap_or_default();
    if !members.contains_key(OLD_CAUSE) {
        let comma = if members.is_empty() { "" } else { "," };
        text.replace_range(..1, &format!("{{\"{OLD_CAUSE}\":{cause}{comma}"));
    }
    RawValue::from_string(text).expect("an object with one member more is an object")
}

/// The batch says `/3/topic`; the user knows lines.
fn of_line(problem: Problem, origins: &[(u64, Option<Position>)]) -> Problem {
    let index = problem.pointer().and_then(|pointer| pointer.split('/').nth(1)?.parse::<usize>().ok());
    match index.and_then(|index| origins.get(index)) {
        Some((line, _)) => at(problem, *line),
        None => problem,
    }
}

fn at(problem: Problem, line: u64) -> Problem {
    let mut told =
        Problem::new(problem.code(), format!("line {line}: {}", problem.detail())).with("line", line);
    if let Some(hint) = problem.hint_text() {
        told = told.hint(hint);
    }
    for (name, value) in problem.extra() {
        told = told.with(name, value.clone());
    }
    told
}
