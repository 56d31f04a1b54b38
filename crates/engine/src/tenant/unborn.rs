//! A tenant that was asked for and is not there. It reads as an empty one; the first thing that is recorded in it makes
//! it, on the disk and for everybody. What is refused before that leaves nothing behind.

use ledger::{MemoryLedger, Opened};
use model::{Position, Problem};
use tokio::sync::watch;

use super::{Home, Opening, Surroundings, Tenant};
use crate::command::Command;
use crate::engine::Engine;
use crate::entropy::Entropy;

impl Tenant {
    /// Holds nothing and never will: whatever is recorded goes to the tenant that `engine` makes for it.
    pub(crate) fn unborn(name: &str, engine: Engine, around: Surroundings) -> Result<Tenant, Problem> {
        let opened = Opened { clean: true, ..Opened::default() };
        let home = Home::Ledger(Box::new(MemoryLedger::new()), opened);
        let (name, layers, entropy) = (name.to_owned(), engine.layers(), Entropy::kernel());
        let tenant = Tenant::open(Opening { name, home, layers, entropy }, around)?;
        let _ = tenant.0.unborn.set(engine);
        Ok(tenant)
    }

    /// Whether it is only an idea.
    pub fn is_unborn(&self) -> bool {
        self.0.unborn.get().is_some()
    }

    /// As [`Tenant::head`], of the ledger that holds what was recorded here: of one that is begun by it, its own.
    pub fn head_begun(&self) -> Position {
        let begun = self.0.unborn.get().and_then(|engine| engine.opened_now(self.name()));
        begun.as_ref().unwrap_or(self).head()
    }

    /// The tenant that takes what this one must not: made now, if nobody was quicker. `None`: it is this one.
    pub(super) fn begun(&self) -> Result<Option<Tenant>, Problem> {
        self.0.unborn.get().map(|engine| engine.tenant(self.name())).transpose()
    }

    /// As [`Tenant::begun`], for a command. What asks for a group or only asks needs no ledger to be refused or answered.
    pub(super) fn begun_by(&self, command: &Command) -> Result<Option<Tenant>, Problem> {
        let asks = match command {
            Command::DeleteGroup { .. } | Command::Seek { .. } | Command::Pause { .. } => true,
            Command::Unhalt { .. } | Command::Move { .. } | Command::Fail { .. } => true,
            Command::Redrive { .. } | Command::Apply { dry_run: true, .. } => true,
            Command::Run(_) => true,
            Command::Note { records } => records.is_empty(),
            _ => false,
        };
        if asks { Ok(None) } else { self.begun() }
    }

    /// For one who waits for its first event: the tenant once it is there, and what to wait for until then. `None`: this
    /// is one.
    pub(crate) fn awaited(&self) -> Option<(watch::Receiver<()>, Option<Tenant>)> {
        let engine = self.0.unborn.get()?;
        // Listen first, look after: one that begins in between is not missed.
        let births = engine.births();
        Some((births, engine.has_tenant(self.name()).then(|| engine.tenant(self.name()).ok()).flatten()))
    }
}
