//! Secrets of a tenant: rows of its own, whose values are sealed and opened for a request alone.

use model::definition::is_secret_name;
use model::{Code, Problem};
use serde_json::{Map, Value, json};

use super::Tenant;
use crate::admit::Caller;
use crate::effect::secret::{Veil, absent};
use crate::entity::own::SECRET;
use crate::entity::{Action, Row, Write};
use crate::run::{Effect, Marks};

/// Shorter ones would be found everywhere, and masking them would leave nothing.
pub const SECRET_MIN: usize = 4;
pub const SECRET_MAX: usize = 64 << 10;

impl Tenant {
    /// Sets or replaces one; `true` when it is new. From the next attempt of an effect on the new value counts.
    pub async fn put_secret(&self, by: &Caller, name: &str, value: &str) -> Result<(bool, Value), Problem> {
        check(name, value)?;
        let new = self.secret_row(name).is_err();
        let said = Map::from_iter([("value".to_owned(), Value::from(value))]);
        let written = self.write(&inside(by), Write::of(SECRET, Some(name), Action::Put(said))).await?;
        Ok((new, shown(&written.row)))
    }

    /// Their names and times.
    pub fn secrets(&self) -> Result<Vec<Value>, Problem> {
        Ok(self.own_rows(SECRET)?.iter().map(shown).collect())
    }

    pub async fn drop_secret(&self, by: &Caller, name: &str) -> Result<(), Problem> {
        self.secret_row(name)?;
        self.write(&inside(by), Write::of(SECRET, Some(name), Action::Delete)).await.map(drop)
    }

    /// The values of the secrets that an effect's version names, as they are now.
    pub fn veil(&self, effect: &Effect) -> Result<Veil, Problem> {
        self.veil_over(&effect.secrets)
    }

    /// Every secret of the tenant, for what cannot be told whose it is.
    pub(super) fn veil_of_all(&self) -> Result<Veil, Problem> {
        let rows = self.own_rows(SECRET)?;
        self.veil_over(&rows.into_iter().map(|row| (row.id.clone(), row.id)).collect())
    }

    fn veil_over(&self, marks: &Marks) -> Result<Veil, Problem> {
        Veil::new(marks, |name| match self.secret_row(name) {
            Ok(row) => {
                let value = self.reveal(&row, "/value")?;
                let value = value.as_ref().and_then(Value::as_str).map(str::to_owned);
                value.map(Some).ok_or_else(|| {
                    Problem::new(Code::StoreCorrupt, format!("the secret \"{name}\" does not open"))
                        .hint("the tenant's key was replaced; set the secret again")
                })
            }
            Err(problem) if problem.code() == Code::SecretNotFound => Ok(None),
            Err(problem) => Err(problem),
        })
    }

    fn secret_row(&self, name: &str) -> Result<Row, Problem> {
        self.entity(&inside(&Caller::local()), SECRET, None, name).map_err(|problem| match problem.code() {
            Code::NotFound => absent(name),
            _ => problem,
        })
    }
}

fn inside(by: &Caller) -> Caller {
    Caller { outside: false, ..by.clone() }
}

fn check(name: &str, value: &str) -> Result<(), Problem> {
    let wrong = |at: &str, detail: String| Problem::new(Code::SecretInvalid, detail).at(at);
    if !is_secret_name(name) {
        return Err(wrong("/name", format!("{name:?} is no name for a secret"))
            .hint("use up to 64 letters, digits, \"_\", \"-\" and \".\""));
    }
    match value.len() {
        SECRET_MIN..=SECRET_MAX => Ok(()),
        bytes => Err(wrong("/value", format!("a secret of {bytes} bytes cannot be kept"))
            .hint(format!("{SECRET_MIN} to {SECRET_MAX} bytes; a shorter one could not be masked"))),
    }
}

fn shown(row: &Row) -> Value {
    json!({
        "name": row.id, "created_at": row.created_at, "created_by": row.created_by,
        "updated_at": row.updated_at,
    })
}
