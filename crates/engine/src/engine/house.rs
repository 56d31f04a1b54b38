//! The house: which tenants there are, made, suspended, resumed and removed by whoever owns all of them.
//!
//! ```text
//!  rows of v1:everwhen:tenant in the ledger of `main`   the truth: who made it, who suspended it
//!  DATA/house.json                                      derived: what must be known before any tenant is open
//!  DATA/trash/                                          what was deleted: renamed there, synced, then unlinked
//! ```
//! A suspended tenant is closed and stays so: nothing of it runs, nothing is due, and nobody opens it. A tenant that began by
//! itself, with its first event, has no row until something is said about it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use model::{Code, Problem, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use super::due::Closed;
use super::{DEFAULT_TENANT, Engine, check_name};
use crate::admit::Caller;
use crate::authority::{Role, Terms, inside};
use crate::deliver::lock;
use crate::entity::own::TENANT;
use crate::entity::{Action, Write};
use crate::maintain::{files, trash};
use crate::pool::supervise;
use crate::settings::Quota;
use crate::tenant::Tenant;

const FILE: &str = "house.json";

/// What is known of a tenant while it is closed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Kept {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    suspended_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "is_empty")]
    quota: Quota,
}

fn is_empty(quota: &Quota) -> bool {
    *quota == Quota::default()
}

pub(super) struct House {
    path: PathBuf,
    known: RwLock<BTreeMap<String, Kept>>,
    /// Held by whoever changes which tenants there are, or how one stands.
    changing: tokio::sync::Mutex<()>,
}

impl House {
    /// What the file says; the ledger of `main` corrects it once that is open.
    pub fn open(data: &Path) -> Result<House, Problem> {
        trash::empty(data)?;
        let path = data.join(FILE);
        let kept = files::read_small(&path)?.map(|bytes| serde_json::from_slice(&bytes)).transpose();
        let kept = kept.map_err(|error| {
            Problem::new(Code::StoreCorrupt, format!("\"{}\": {error}", path.display()))
                .hint("remove it: it is made anew from the ledger of \"main\"")
        })?;
        Ok(House { path, known: RwLock::new(kept.unwrap_or_default()), changing: Default::default() })
    }

    fn of(&self, name: &str) -> Kept {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(name).cloned().unwrap_or_default()
    }

    fn is_suspended(&self, name: &str) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(name).is_some_and(|kept| kept.suspended_at.is_some())
    }

    /// In memory only.
    fn put(&self, name: &str, kept: Option<Kept>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        match kept {
            Some(kept) => drop(known.insert(name.to_owned(), kept)),
            None => drop(known.remove(name)),
        }
    }

    fn save(&self) -> Result<(), Problem> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).clone();
        files::write_small(&self.path, json!(known).to_string().as_bytes())
    }

    /// What the rows of `main` say is so. A row of a tenant that is not there is what a deletion left that was cut short.
    pub fn reconcile(&self, main: &Tenant, is_there: impl Fn(&str) -> bool) -> Result<(), Problem> {
        let mut said = BTreeMap::new();
        for row in main.own_rows(TENANT)? {
            if is_there(&row.id) {
                let suspended_at = row.fields.get("suspended_at");
                let suspended_at = suspended_at.and_then(|at| Timestamp::deserialize(at).ok());
                let quota = row.fields.get("quota").and_then(|quota| Quota::deserialize(quota).ok());
                let (created_at, quota) = (Some(row.created_at), quota.unwrap_or_default());
                said.insert(row.id.clone(), Kept { created_at, suspended_at, quota });
            } else {
                let delete = Write::of(TENANT, Some(&row.id), Action::Delete);
                main.write_blocking(&Caller { outside: false, ..Caller::local() }, delete)?;
            }
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if *known == said {
            return Ok(());
        }
        *known = said;
        drop(known);
        self.save()
    }
}

impl Engine {
    /// Whether it rests until somebody resumes it.
    pub fn is_suspended(&self, name: &str) -> bool {
        self.0.house.is_suspended(name)
    }

    /// Refuses what is asked of a tenant that is suspended.
    pub fn admits(&self, name: &str) -> Result<(), Problem> {
        if !self.is_suspended(name) {
            return Ok(());
        }
        Err(Problem::new(Code::TenantSuspended, format!("tenant \"{name}\" is suspended"))
            .hint("nothing is lost; whoever owns this server can resume it"))
    }

    /// Makes a tenant and its first token, whose text is told here only.
    pub async fn create_tenant(&self, by: &Caller, name: &str) -> Result<Value, Problem> {
        check_name(name).map_err(|problem| {
            let hint = problem.hint_text().unwrap_or_default().to_owned();
            Problem::new(Code::TenantInvalid, problem.detail()).hint(hint).at("/name")
        })?;
        let _alone = self.0.house.changing.lock().await;
        if self.has_tenant(name) {
            return Err(Problem::new(Code::TenantExists, format!("there is a tenant \"{name}\" already"))
                .hint("choose another name")
                .at("/name"));
        }
        let owned = name.to_owned();
        let tenant = self.beside(move |engine| engine.tenant(&owned)).await?;
        self.note(by, name, Kept::default()).await?;
        let terms = Terms { name: "owner".to_owned(), ..Terms::of(Role::Owner) };
        let (token, _) = self.0.authority.create(&tenant, by, terms).await?;
        let mut shown = self.shown(name);
        shown["owner_token"] = token.into();
        Ok(shown)
    }

    /// Every tenant, by name.
    pub fn list_tenants(&self) -> Result<Vec<Value>, Problem> {
        Ok(self.tenants()?.iter().map(|name| self.shown(name)).collect())
    }

    /// What it may use: what the house says of it, else the settings.
    pub(super) fn quota_of(&self, name: &str) -> Quota {
        let settings = &self.0.around.settings;
        let named = settings.quotas.get(name).copied().unwrap_or_default();
        self.0.house.of(name).quota.or(named).or(settings.quota)
    }

    /// Says what a tenant may use, from now on; what is not said is as the settings have it.
    pub async fn set_quota(&self, by: &Caller, name: &str, quota: Quota) -> Result<Value, Problem> {
        self.must_be(name)?;
        let _alone = self.0.house.changing.lock().await;
        self.note(by, name, Kept { quota, ..self.0.house.of(name) }).await?;
        let (owned, quota) = (name.to_owned(), self.quota_of(name));
        self.beside(move |engine| {
            let open = lock(&engine.0.tenants).get(&owned).cloned();
            open.map_or(Ok(()), |tenant| tenant.set_quota(quota))?;
            engine.show_tenant(&owned)
        })
        .await
    }

    /// One tenant, what it takes up and what it may.
    pub fn show_tenant(&self, name: &str) -> Result<Value, Problem> {
        self.must_be(name)?;
        let mut shown = self.shown(name);
        shown["quota"] = json!(self.quota_of(name));
        // One that rests or does not open cannot be asked.
        if let Some(usage) = self.tenant(name).ok().and_then(|tenant| tenant.usage().ok()) {
            shown["usage"] = usage;
        }
        shown["bytes"] = files::size_of_all(&self.0.dir.join("tenants").join(name)).into();
        Ok(shown)
    }

    /// Closes it, and lets nobody open it. What was in progress goes on when it is resumed.
    pub async fn suspend_tenant(&self, by: &Caller, name: &str) -> Result<Value, Problem> {
        self.must_be(name)?;
        not_main(name, "suspended")?;
        let _alone = self.0.house.changing.lock().await;
        let before = self.0.house.of(name);
        if before.suspended_at.is_none() {
            let kept = Kept { suspended_at: Some(self.now()), ..before };
            self.0.house.put(name, Some(kept.clone()));
            self.0.house.save()?;
            self.rest(name).await?;
            self.note(by, name, kept).await?;
        }
        Ok(self.shown(name))
    }

    /// It goes on where it stood.
    pub async fn resume_tenant(&self, by: &Caller, name: &str) -> Result<Value, Problem> {
        self.must_be(name)?;
        let _alone = self.0.house.changing.lock().await;
        let before = self.0.house.of(name);
        if before.suspended_at.is_some() {
            self.note(by, name, Kept { suspended_at: None, ..before }).await?;
            let owned = name.to_owned();
            self.beside(move |engine| engine.tenant(&owned).map(|tenant| tenant.tick())).await?;
        }
        Ok(self.shown(name))
    }

    /// Removes it for ever, with everything in it.
    pub async fn delete_tenant(&self, by: &Caller, name: &str) -> Result<(), Problem> {
        self.must_be(name)?;
        not_main(name, "deleted")?;
        let _alone = self.0.house.changing.lock().await;
        let before = self.0.house.of(name);
        // Nobody opens it from here on; only in memory, so that a crash leaves it as it was.
        self.0.house.put(name, Some(Kept { suspended_at: Some(self.now()), ..before.clone() }));
        let gone = self.take_away(name).await;
        if gone.is_err() {
            self.0.house.put(name, Some(before));
            return gone;
        }
        self.0.authority.forget_tenant(name)?;
        let main = self.main()?;
        if main.own_rows(TENANT)?.iter().any(|row| row.id == name) {
            main.write(&inside(by), Write::of(TENANT, Some(name), Action::Delete)).await?;
        }
        self.0.house.put(name, None);
        self.0.house.save()?;
        self.beside(|engine| trash::empty(&engine.0.dir)).await
    }

    async fn take_away(&self, name: &str) -> Result<(), Problem> {
        self.rest(name).await?;
        let (owned, mark) = (name.to_owned(), self.now().millis().to_string());
        self.beside(move |engine| {
            let gate = engine.gate(&owned);
            let _alone = lock(&gate);
            trash::take(&engine.0.dir, &owned, &mark)?;
            lock(&engine.0.closed_tenants).remove(&owned);
            lock(&engine.0.refused).remove(&owned);
            Ok(())
        })
        .await
    }

    /// Closes it whoever holds it: they are told that it is closing.
    async fn rest(&self, name: &str) -> Result<(), Problem> {
        let open = lock(&self.0.tenants).get(name).cloned();
        if let Some(tenant) = open {
            tenant.begin_close();
            tenant.drain().await;
            tenant.stop_effects();
        }
        self.0.authority.look_again();
        let owned = name.to_owned();
        self.beside(move |engine| engine.close_for_rest(&owned)).await
    }

    fn close_for_rest(&self, name: &str) -> Result<(), Problem> {
        let gate = self.gate(name);
        let _alone = lock(&gate);
        let tenant = lock(&self.0.tenants).remove(name);
        let ended = tenant.filter(Tenant::is_open).map_or(Ok(()), |tenant| self.end(name, &tenant));
        lock(&self.0.closed_tenants).insert(name.to_owned(), Closed::RESTS);
        ended
    }

    /// Says in the ledger of `main` how a tenant stands, then at hand.
    async fn note(&self, by: &Caller, name: &str, kept: Kept) -> Result<(), Problem> {
        let mut fields = Map::new();
        if let Some(at) = kept.suspended_at {
            fields.insert("suspended_at".to_owned(), json!(at));
        }
        if !is_empty(&kept.quota) {
            fields.insert("quota".to_owned(), json!(kept.quota));
        }
        let written =
            self.main()?.write(&inside(by), Write::of(TENANT, Some(name), Action::Put(fields))).await?;
        self.0.house.put(name, Some(Kept { created_at: Some(written.row.created_at), ..kept }));
        self.0.house.save()
    }

    fn must_be(&self, name: &str) -> Result<(), Problem> {
        if check_name(name).is_ok() && self.has_tenant(name) {
            return Ok(());
        }
        Err(no_tenant(name))
    }

    fn shown(&self, name: &str) -> Value {
        let kept = self.0.house.of(name);
        let mut shown = json!({"name": name, "suspended": kept.suspended_at.is_some()});
        for (field, at) in [("created_at", kept.created_at), ("suspended_at", kept.suspended_at)] {
            at.into_iter().for_each(|at| shown[field] = json!(at));
        }
        shown
    }

    /// Work on files, on a thread of its own: no async worker waits for a disk.
    pub(crate) async fn beside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Engine) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let (engine, (done, result)) = (self.clone(), oneshot::channel());
        supervise("house", &self.0.around.health, move || {
            let result = work(&engine);
            drop(engine);
            let _ = done.send(result);
        })?;
        result.await.unwrap_or_else(|_| Err(Problem::new(Code::TaskDied, "the task of the house died")))
    }
}

/// As one that never was.
pub fn no_tenant(name: &str) -> Problem {
    Problem::new(Code::NotFound, format!("there is no tenant \"{name}\""))
        .hint("`everwhen tenants list` shows them")
}

fn not_main(name: &str, what: &str) -> Result<(), Problem> {
    if name != DEFAULT_TENANT {
        return Ok(());
    }
    Err(Problem::new(Code::TenantInvalid, format!("\"{name}\" is the house itself and is never {what}"))
        .hint("stop the server instead"))
}
