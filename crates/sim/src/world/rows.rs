//! Clients that write rows: whole, in part, by mutations, and only if a row is still as they know it.

use std::collections::BTreeMap;

use engine::Caller;
use engine::entity::{Action, Expect, Write, Written};
use lang::declare::check_workspace;
use model::definition::Definition;
use model::record::Change;
use model::{Code, Position, Problem};
use serde_json::{Map, Value, json};

use super::World;
use super::acts::AUTOMATIONS;
use super::finish::is_misfortune;
use super::operation::{Answer, Asked};
use crate::oracle::rows::{CONCEPT, IDS, SPACE};

const DECLARED: &str = "
concept thing { size int name string }
mutation thing grow { args { id string! size int! } upsert { id: args.id, args.size } }
";

/// The rows and these automations, checked.
pub(super) fn declared(mut files: BTreeMap<String, String>) -> Result<Vec<Definition>, String> {
    files.insert("sim.ew".to_owned(), DECLARED.to_owned());
    let checked = check_workspace(&files);
    if checked.has_errors() {
        return Err(format!("the simulation's own text is wrong: {:?}", checked.findings));
    }
    Ok(checked.definitions)
}

impl World {
    pub(super) fn declare(&mut self) -> Result<(), String> {
        let texts = AUTOMATIONS.iter().enumerate().filter(|_| self.temper.acts);
        let automations = texts.map(|(n, text)| (format!("acts/{n}.yaml"), (*text).to_owned())).collect();
        let definitions = declared(automations)?;
        let tenant = self.tenant().clone();
        let applied = self.finish_now(async move { tenant.apply("sim", definitions).await });
        applied.ok_or("nothing was applied")?.map(drop).map_err(|problem| problem.to_string())?;
        self.oracle.acts.on = self.temper.acts;
        Ok(())
    }

    pub(super) fn start_write(&mut self) -> Result<(), String> {
        let id = *self.random.pick(&IDS);
        let mut fields = Map::new();
        fields.insert("size".to_owned(), self.random.between(0, 3).into());
        if self.random.once_in(3) {
            fields.insert("name".to_owned(), "x".repeat(self.random.below(30)).into());
        }
        let what = self.random.weighted(&[4, 4, 2, 2, 2, 2]);
        if what == 5 {
            return self.start_mutation(id, fields);
        }
        let action = match what {
            0 => Action::Put(fields),
            1 => Action::Patch(fields),
            2 => Action::Upsert(fields),
            3 => Action::Insert { told: fields.keys().cloned().collect(), fields },
            _ => Action::Delete,
        };
        let known = self.oracle.rows.last_version(id).filter(|_| self.random.once_in(2));
        let deletes = action == Action::Delete;
        let write = Write {
            space: SPACE.to_owned(),
            expect: known.map_or(Expect::Anything, Expect::Version),
            ..Write::of(CONCEPT, Some(id), action)
        };
        self.note(format_args!("write {id} {:?} if {known:?}", write.action));
        let tenant = self.tenant().clone();
        self.start(Asked::Write { id, expected: known, deletes }, async move {
            Answer::Written(Box::new(tenant.write(&Caller::local(), write).await))
        })
    }

    fn start_mutation(&mut self, id: &'static str, fields: Map<String, Value>) -> Result<(), String> {
        let Value::Object(args) = json!({"id": id, "size": fields["size"]}) else { return Ok(()) };
        self.note(format_args!("mutate {id}"));
        let tenant = self.tenant().clone();
        self.start(Asked::Write { id, expected: None, deletes: false }, async move {
            Answer::Written(Box::new(tenant.mutate(&Caller::local(), "grow", args, Some(SPACE)).await))
        })
    }

    pub(super) fn written(
        &mut self,
        id: &'static str,
        (expected, deletes): (Option<Position>, bool),
        answer: Result<Written, Problem>,
    ) -> Result<(), String> {
        let said = answer.as_ref().map(|written| (written.row.version, written.change));
        self.note(format_args!("write {id} -> {:?}", said.map_err(|problem| problem.code().as_str())));
        match answer {
            Ok(written) => {
                self.oracle.rows.answered(id, expected, &written);
                self.read_back(id, &written)
            }
            Err(problem) if is_misfortune(&problem) => {
                if deletes {
                    self.oracle.rows.maybe_gone.insert(id);
                }
                Ok(())
            }
            Err(problem) => match problem.code() {
                Code::NotFound | Code::EntityExists | Code::IfMatchFailed => Ok(()),
                _ => Err(format!("write of {id}: {problem}")),
            },
        }
    }

    /// Who was answered reads what was written, or something newer.
    fn read_back(&mut self, id: &'static str, written: &Written) -> Result<(), String> {
        let version = written.row.version;
        let deleted = written.change == Some(Change::Deleted);
        match self.tenant().entity(&Caller::local(), CONCEPT, Some(SPACE), id) {
            Ok(row) if deleted && row.version <= version => {
                Err(format!("row {id} was deleted and is read at version {}", row.version))
            }
            Ok(row) if row.version < version => {
                Err(format!("row {id} was answered at version {version} and is read at {}", row.version))
            }
            Ok(row) if row.version == version && !deleted && row.fields != written.row.fields => {
                Err(format!("row {id} at version {version} is read as {:?}", row.fields))
            }
            Err(problem) if problem.code() == Code::NotFound && !deleted => {
                let leaves = |asked: &Asked| matches!(asked, Asked::Write { id: other, deletes: true, .. } if *other == id);
                let may_go = self.oracle.rows.may_be_gone(id, version)
                    || self.operations.iter().any(|operation| leaves(&operation.asked));
                if may_go {
                    Ok(())
                } else {
                    Err(format!("row {id} was answered at {version} and is not there"))
                }
            }
            _ => Ok(()),
        }
    }
}
