//! What is declared in a tenant: applied as one commit, planned without one, and looked up by everybody else.

use std::sync::{Arc, PoisonError};

use model::Problem;
use model::definition::Definition;

use super::Tenant;
use super::publish::unexpected;
use crate::command::{Answer, Command, Plan};
use crate::entity::Catalog;

impl Tenant {
    /// Makes these the definitions that `workspace` manages: what is new or changed is set, what it no longer names is
    /// removed, what others manage stays. One commit, or a refusal that counts the rows in the way.
    pub async fn apply(&self, workspace: &str, definitions: Vec<Definition>) -> Result<Plan, Problem> {
        self.define(workspace, definitions, false).await
    }

    /// What [`Tenant::apply`] would do, refusals included.
    pub async fn plan(&self, workspace: &str, definitions: Vec<Definition>) -> Result<Plan, Problem> {
        self.define(workspace, definitions, true).await
    }

    async fn define(
        &self,
        workspace: &str,
        definitions: Vec<Definition>,
        dry_run: bool,
    ) -> Result<Plan, Problem> {
        let managed_by = format!("workspace:{workspace}");
        let has_secret = |definition: &Definition| matches!(definition, Definition::Concept(concept) if concept.has_secret());
        if !dry_run && definitions.iter().any(has_secret) {
            self.key()?;
        }
        self.allow_automations(&managed_by, &definitions)?;
        match self.ask(Command::Apply { managed_by, definitions, dry_run }).await? {
            Answer::Applied(plan) => Ok(plan),
            _ => Err(unexpected()),
        }
    }

    /// What is declared now.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.0.catalog.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_catalog(&self, catalog: Arc<Catalog>) {
        *self.0.catalog.write().unwrap_or_else(PoisonError::into_inner) = catalog;
    }
}
