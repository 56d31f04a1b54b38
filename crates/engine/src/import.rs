//! Events that come from another ledger: exported lines become drafts, many to a commit, and get new positions here.

use model::Problem;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::admit::{Caller, Draft};
use crate::tenant::Tenant;
use crate::{Outcome, Receipt};

/// Most events, and most bytes of lines, that share a commit.
const BATCH_EVENTS: usize = 500;
const BATCH_BYTES: usize = 512 << 10;

/// Takes an export line by line. The events of one actor that stand together become one commit, so a line that is
/// refused takes those of its own batch with it and leaves everything before.
pub struct Importer {
    tenant: Tenant,
    /// The line being read, counted from 1.
    line: u64,
    actor: String,
    batch: Vec<Draft>,
    lines: Vec<u64>,
    bytes: usize,
    done: Imported,
}

/// What became of the lines so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    pub imported: u64,
    /// Their key was here already, with the same content.
    pub duplicates: u64,
    /// Their content was erased before the export, so there is nothing to bring.
    pub erased: u64,
}

impl Imported {
    pub fn to_json(self) -> Value {
        let mut out = json!({ "imported": self.imported, "duplicates": self.duplicates });
        if self.erased > 0 {
            out["erased"] = json!(self.erased);
        }
        out
    }
}

/// What decides a line's fate besides the draft in it.
#[derive(Deserialize)]
struct Origin {
    #[serde(default)]
    actor: Option<String>,
    #[serde(default)]
    erased: bool,
}

impl Importer {
    pub fn new(tenant: Tenant) -> Importer {
        let done = Imported::default();
        Importer {
            tenant,
            line: 0,
            actor: String::new(),
            batch: Vec::new(),
            lines: Vec::new(),
            bytes: 0,
            done,
        }
    }

    /// What is stored by now; lines still waiting for their commit are not counted.
    pub fn so_far(&self) -> Imported {
        self.done
    }

    /// Takes one line; blank ones are passed over.
    pub async fn line(&mut self, line: &[u8]) -> Result<(), Problem> {
        self.line += 1;
        let line = line.trim_ascii();
        if line.is_empty() {
            return Ok(());
        }
        let draft =
            Draft::parse_exported(line, &self.tenant.limits()).map_err(|problem| at(problem, self.line))?;
        let origin: Origin = serde_json::from_slice(line).unwrap_or(Origin { actor: None, erased: false });
        if origin.erased {
            self.done.erased += 1;
            return Ok(());
        }
        let actor = origin.actor.unwrap_or_else(|| Caller::local().actor);
        if actor != self.actor || self.batch.len() >= BATCH_EVENTS || self.bytes + line.len() > BATCH_BYTES {
            self.commit().await?;
            self.actor = actor;
        }
        self.bytes += line.len();
        self.batch.push(draft);
        self.lines.push(self.line);
        Ok(())
    }

    pub async fn finish(mut self) -> Result<Imported, Problem> {
        self.commit().await?;
        Ok(self.done)
    }

    async fn commit(&mut self) -> Result<(), Problem> {
        let (batch, lines) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.lines));
        self.bytes = 0;
        if batch.is_empty() {
            return Ok(());
        }
        // Not from outside: reserved topics are kept, and attention has judged these events once already.
        let caller = Caller { actor: self.actor.clone(), trace: None, outside: false };
        let outcomes =
            self.tenant.publish_all(&caller, batch).await.map_err(|problem| of_line(problem, &lines))?;
        for outcome in outcomes {
            match outcome {
                Outcome::Recorded(Receipt { duplicate: true, .. }) => self.done.duplicates += 1,
                _ => self.done.imported += 1,
            }
        }
        Ok(())
    }
}

/// The batch says `/3/topic`; the user knows lines.
fn of_line(problem: Problem, lines: &[u64]) -> Problem {
    let index = problem.pointer().and_then(|pointer| pointer.split('/').nth(1)?.parse::<usize>().ok());
    match index.and_then(|index| lines.get(index)) {
        Some(line) => at(problem, *line),
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
