//! Inbound hooks of a tenant: rows of its own, whose secrets are sealed.

use model::{Code, Problem};
use serde_json::{Map, Value, json};

use super::Tenant;
use crate::admit::Caller;
use crate::entity::own::HOOK;
use crate::entity::{Action, Row, Write};

/// A hook as deliveries need it.
#[derive(Clone, Debug, PartialEq)]
pub struct Hook {
    pub name: String,
    pub scheme: String,
    /// Absent: the scheme's own topic.
    pub topic: Option<String>,
    pub space: Option<String>,
    /// Never for an answer.
    pub secret: String,
}

impl Tenant {
    /// Makes or replaces a hook; `true` when it is new. Without a secret the one that is there stays.
    pub async fn put_hook(
        &self,
        by: &Caller,
        name: &str,
        mut said: Map<String, Value>,
    ) -> Result<(bool, Value), Problem> {
        let inside = Caller { outside: false, ..by.clone() };
        let before = self.entity(&inside, HOOK, None, name).ok();
        if before.is_some() && !said.contains_key("secret") {
            said.insert("secret".to_owned(), crate::entity::MASK.into());
        }
        let written = self.write(&inside, Write::of(HOOK, Some(name), Action::Put(said))).await?;
        Ok((before.is_none(), shown(&written.row)))
    }

    pub fn hooks(&self) -> Result<Vec<Value>, Problem> {
        Ok(self.own_rows(HOOK)?.iter().map(shown).collect())
    }

    pub fn shown_hook(&self, name: &str) -> Result<Value, Problem> {
        Ok(shown(&self.hook_row(name)?))
    }

    /// With its secret in the clear, for checking what is delivered to it.
    pub fn hook(&self, name: &str) -> Result<Hook, Problem> {
        let row = self.hook_row(name)?;
        let text = |field: &str| row.fields.get(field).and_then(Value::as_str).map(str::to_owned);
        let secret =
            self.reveal(&row, "/secret")?.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
        let scheme = text("scheme").unwrap_or_default();
        Ok(Hook { name: name.to_owned(), scheme, topic: text("topic"), space: text("space"), secret })
    }

    pub async fn drop_hook(&self, by: &Caller, name: &str) -> Result<(), Problem> {
        self.hook_row(name)?;
        let inside = Caller { outside: false, ..by.clone() };
        self.write(&inside, Write::of(HOOK, Some(name), Action::Delete)).await.map(drop)
    }

    fn hook_row(&self, name: &str) -> Result<Row, Problem> {
        let inside = Caller { outside: false, ..Caller::local() };
        self.entity(&inside, HOOK, None, name).map_err(|problem| match problem.code() {
            Code::NotFound => Problem::new(Code::NotFound, format!("there is no hook \"{name}\""))
                .hint("`everwhen hooks list` shows them"),
            _ => problem,
        })
    }
}

fn shown(row: &Row) -> Value {
    let mut hook = json!({"name": row.id, "created_at": row.created_at, "created_by": row.created_by});
    let told = row.fields.iter().filter(|(name, value)| *name != "secret" && !value.is_null());
    told.for_each(|(name, value)| hook[name] = value.clone());
    hook
}
