//! Tenants open on first use or when something is due, and close when nobody needs them.
//!
//! ```text
//!            first use, something due, nothing known of it
//!   closed ─────────────────────────────────────────────▶ open
//!          ◀───────────────────────────────────────────── no handle, nothing in flight, nothing due, for a while
//!            end mark synced, then `due.json`
//! ```
//!
//! **Invariant:** a tenant that anybody holds a handle of is not closed before the engine is. Handles come from the map
//! under its lock, and closing takes the tenant out of the map under the same lock when its own handle is the last. Who
//! asks meanwhile waits at the tenant's gate and opens it again.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::{Code, Problem};
use tokio::sync::watch;

use super::due::{self, Closed};
use super::{DEFAULT_TENANT, Engine, check_name, make_dir};
use crate::admit::Layer;
use crate::deliver::lock;
use crate::entropy::Entropy;
use crate::maintain::{files, retention};
use crate::pool;
use crate::settings::{Quota, Settings};
use crate::tenant::{Home, Opening, Surroundings, Tenant, closing};

/// A due tenant that would not open is tried again after this.
const TRY_AGAIN: Duration = Duration::from_secs(60);
/// How many tenants are opened at a time when many are due.
const OPENERS: usize = 4;

impl Engine {
    /// `main`, and what `due.json` knows of the others. One that is damaged does not keep the others from serving.
    pub(super) fn begin_tenants(&self) -> Result<(), Problem> {
        let mut names: Vec<String> = self.tenants()?;
        self.0.authority.keep_those_of(&names)?;
        names.retain(|name| name != DEFAULT_TENANT);
        let alone = names.is_empty();
        // First the house: which of the others rest, it knows.
        let main = self.main();
        let (resting, names): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| self.is_suspended(name));
        let disk = self.0.options.disk.as_ref();
        let mut closed = due::read(disk, &self.0.dir, names, self.retention());
        closed.extend(resting.into_iter().map(|name| (name, Closed::RESTS)));
        *lock(&self.0.closed_tenants) = closed;
        match main {
            Err(problem) if alone => Err(problem),
            Err(problem) => {
                self.say_refused(DEFAULT_TENANT, &problem);
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }

    fn retention(&self) -> Option<Duration> {
        self.0.options.settings.retention.age
    }

    fn say_refused(&self, name: &str, problem: &Problem) {
        tracing::error!(tenant = name, %problem, "this tenant does not open; the others serve");
    }

    /// A tenant, opened or created now if need be. It stays open while the handle lives.
    pub fn tenant(&self, name: &str) -> Result<Tenant, Problem> {
        check_name(name)?;
        self.admits(name)?;
        if let Some(tenant) = self.opened_now(name) {
            return Ok(tenant);
        }
        let gate = self.gate(name);
        let _alone = lock(&gate);
        self.admits(name)?;
        if let Some(tenant) = self.opened_now(name) {
            return Ok(tenant);
        }
        if self.0.closed.load(Ordering::Acquire) {
            return Err(closing());
        }
        let there = self.has_tenant(name);
        let tenant = self.open_tenant(name).inspect_err(|problem| {
            if there {
                lock(&self.0.refused).insert(name.to_owned(), problem.clone());
            }
        })?;
        self.0.authority.reconcile(&tenant)?;
        if name == DEFAULT_TENANT {
            self.0.house.reconcile(&tenant, |name| self.has_tenant(name))?;
        }
        lock(&self.0.tenants).insert(name.to_owned(), tenant.clone());
        lock(&self.0.refused).remove(name);
        lock(&self.0.closed_tenants).remove(name);
        self.0.around.bell.ring();
        if !there {
            self.0.births.send_replace(());
        }
        Ok(tenant)
    }

    /// A tenant to look at: as [`Engine::tenant`] when there is one of that name, else one that reads as empty and is made
    /// with the first thing recorded in it. A handle of the latter stays empty: ask for it again to see what it became.
    pub fn visit(&self, name: &str) -> Result<Tenant, Problem> {
        check_name(name)?;
        if name == DEFAULT_TENANT || self.has_tenant(name) {
            return self.tenant(name);
        }
        if self.0.closed.load(Ordering::Acquire) {
            return Err(closing());
        }
        Tenant::unborn(name, self.clone(), self.surroundings(name))
    }

    pub(crate) fn births(&self) -> watch::Receiver<()> {
        self.0.births.subscribe()
    }

    pub(crate) fn layers(&self) -> Vec<Arc<dyn Layer>> {
        self.0.options.layers.clone()
    }

    pub(crate) fn gate(&self, name: &str) -> Arc<Mutex<()>> {
        lock(&self.0.gates).entry(name.to_owned()).or_default().clone()
    }

    /// A tenant that is open already; asking for it is a use of it.
    pub fn opened_now(&self, name: &str) -> Option<Tenant> {
        let tenants = lock(&self.0.tenants);
        let tenant = tenants.get(name)?;
        tenant.touch();
        Some(tenant.clone())
    }

    fn open_tenant(&self, name: &str) -> Result<Tenant, Problem> {
        let parent = self.0.dir.join("tenants");
        let dir = parent.join(name);
        make_dir(&dir)?;
        if !files::is_own_dir(&dir) {
            let detail = format!("\"{}\" is no folder of its own", dir.display());
            return Err(Problem::new(Code::StoreCorrupt, detail)
                .hint("a tenant's folder is never a link: move the data here"));
        }
        let options = &self.0.options;
        let ledger = retention::segmented(options.ledger, &options.settings.retention);
        let home = Home::Directory { disk: options.disk.clone(), dir, options: ledger };
        let entropy = options.seed.map_or_else(Entropy::kernel, Entropy::seeded);
        let opening = Opening { name: name.to_owned(), home, layers: options.layers.clone(), entropy };
        let tenant = Tenant::open(opening, self.surroundings(name))?;
        tenant.has_historian(self.0.histories.clone());
        let quota = self.quota_of(name);
        if quota != Quota::default() {
            tenant.set_quota(quota)?;
        }
        Ok(tenant)
    }

    /// What the tenant shares with the others, under its own switches if it has some.
    fn surroundings(&self, name: &str) -> Surroundings {
        let around = self.0.around.clone();
        match around.settings.tenants.get(name) {
            None => around,
            Some(switches) => {
                let settings = Settings { switches: *switches, ..Settings::clone(&around.settings) };
                Surroundings { settings: Arc::new(settings), ..around }
            }
        }
    }

    /// The tenant that is meant when none is named.
    pub fn main(&self) -> Result<Tenant, Problem> {
        self.tenant(DEFAULT_TENANT)
    }

    /// Whether there is such a tenant, open or not.
    pub fn has_tenant(&self, name: &str) -> bool {
        let folder = || files::is_own_dir(&self.0.dir.join("tenants").join(name));
        check_name(name).is_ok() && (lock(&self.0.tenants).contains_key(name) || folder())
    }

    /// Every tenant there is, open or not.
    pub fn tenants(&self) -> Result<Vec<String>, Problem> {
        Ok(files::tenants(&self.0.dir)?.into_iter().map(|(name, _)| name).collect())
    }

    /// Those that are open now. Looking at them is no use of them.
    pub fn open_tenants(&self) -> Vec<Tenant> {
        lock(&self.0.tenants).values().cloned().collect()
    }

    /// Opens what is due or not known, a few at a time. The opener's work; under a clock that is moved by hand, whoever
    /// moves it does this too.
    pub fn open_due(&self) {
        let _alone = lock(&self.0.opening);
        while !self.0.closed.load(Ordering::Acquire) {
            let now = self.0.around.clock.now();
            let waiting: Vec<(String, Closed)> = lock(&self.0.closed_tenants)
                .iter()
                .filter(|(_, closed)| closed.wants_opening(now))
                .map(|(name, closed)| (name.clone(), closed.clone()))
                .collect();
            if waiting.is_empty() {
                return;
            }
            pool::each(OPENERS, &waiting, |(name, closed)| self.open_one(name, closed));
        }
    }

    fn open_one(&self, name: &str, closed: &Closed) {
        if self.0.closed.load(Ordering::Acquire) {
            return;
        }
        match self.tenant(name) {
            Ok(tenant) => {
                tenant.tick();
                if *closed == Closed::Unknown {
                    self.let_go(tenant);
                }
            }
            Err(problem) if problem.code() == Code::ShuttingDown => {}
            Err(problem) if problem.code() == Code::TenantSuspended => {
                lock(&self.0.closed_tenants).insert(name.to_owned(), Closed::RESTS);
            }
            Err(problem) => self.put_off(name, &problem),
        }
    }

    /// Damage is said once and waits for somebody who asks; anything else may pass by itself.
    fn put_off(&self, name: &str, problem: &Problem) {
        self.say_refused(name, problem);
        let lasting = matches!(problem.code(), Code::StoreCorrupt | Code::StoreNewer);
        let due = (!lasting).then(|| self.0.around.clock.now().plus(TRY_AGAIN));
        lock(&self.0.closed_tenants).insert(name.to_owned(), Closed::Until { at: None, due });
    }

    /// Closes what nobody has used for a while; how many that was. The housekeeper's work.
    pub fn close_idle(&self) -> usize {
        let names: Vec<String> = lock(&self.0.tenants).keys().cloned().collect();
        let closed = names.iter().filter(|name| self.close_if(name, self.0.options.settings.idle)).count();
        if closed > 0 {
            tracing::debug!(tenants = closed, "closed for want of use");
            self.write_due();
        }
        closed
    }

    pub(super) fn write_due(&self) {
        let closed = lock(&self.0.closed_tenants).clone();
        if let Err(problem) = due::write(&self.0.dir, &closed, self.retention()) {
            // The next start opens them to see.
            tracing::warn!(%problem, "due.json could not be written");
        }
    }

    /// Closes a tenant that was opened to look at it; the housekeeper does if somebody else looks at it just now.
    pub(crate) fn let_go(&self, tenant: Tenant) {
        tenant.let_go();
        let name = tenant.name().to_owned();
        drop(tenant);
        self.close_if(&name, Duration::ZERO);
    }

    /// Closes a tenant that nobody has used for `idle`, and that is not due before as long again.
    fn close_if(&self, name: &str, idle: Duration) -> bool {
        if name == DEFAULT_TENANT || self.0.around.metrics.is_storage_full() {
            return false;
        }
        let Some(gate) = lock(&self.0.gates).get(name).cloned() else { return false };
        let _alone = lock(&gate);
        let tenant = {
            let mut tenants = lock(&self.0.tenants);
            match tenants.get(name) {
                Some(tenant) if tenant.rests(idle) => tenants.remove(name),
                _ => None,
            }
        };
        let Some(tenant) = tenant else { return false };
        // Out of the map, so nobody can ask it for anything more; and behind the gate, so nobody opens a second one.
        if let Err(problem) = self.end(name, &tenant) {
            tracing::warn!(tenant = name, %problem, "it did not close cleanly; the next use recovers it");
        }
        true
    }

    /// Ends a tenant cleanly and notes when it is due again.
    pub(super) fn end(&self, name: &str, tenant: &Tenant) -> Result<(), Problem> {
        let due = tenant.next_due();
        let ended = due.and_then(|due| tenant.close_now().map(|()| due));
        let closed = match &ended {
            Ok(due) => {
                let ledger = self.0.dir.join("tenants").join(name).join("ledger");
                Closed::Until { at: ledger::closed_at(self.0.options.disk.as_ref(), &ledger), due: *due }
            }
            // The next start finds no entry and looks; here it is looked at in a while.
            Err(_) => Closed::Until { at: None, due: Some(self.0.around.clock.now().plus(TRY_AGAIN)) },
        };
        lock(&self.0.closed_tenants).insert(name.to_owned(), closed);
        ended.map(|_| ())
    }

    /// Ends one tenant of an engine that is closing.
    pub(super) fn end_last(&self, name: &str, gate: &Mutex<()>) -> Result<(), Problem> {
        // Somebody may be opening it just now.
        let _alone = lock(gate);
        let tenant = lock(&self.0.tenants).get(name).cloned();
        tenant.filter(Tenant::is_open).map_or(Ok(()), |tenant| self.end(name, &tenant))
    }
}
