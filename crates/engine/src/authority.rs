//! Who may do what: the tokens of every tenant, known by the hash of their text.
//!
//! ```text
//!  rows of v1:everwhen:token in each tenant's ledger   the truth: who made it, what it may, that it was revoked
//!  DATA/tokens.json (0600)                             derived: all of them at hand before any tenant is open
//! ```
//! A new token is in the ledger before it is in the file, and a revoked one out of the file before it is so in the ledger:
//! a crash in between leaves one that does not work, never one that should not. A tenant that opens mends the file.

pub mod grant;
mod sight;
pub mod token;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use model::{Code, Problem, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::admit::Caller;
use crate::deliver::lock;
use crate::entity::own::TOKEN;
use crate::entity::{Action, Row, Write};
use crate::maintain::files;
use crate::tenant::Tenant;
pub use grant::{Grant, Permission, Permissions, Role, Terms};
pub use sight::Sight;

const FILE: &str = "tokens.json";

type Hash = [u8; 32];

/// A token at hand.
struct Known {
    grant: Arc<Grant>,
    /// Milliseconds since 1970; 0: never.
    used: AtomicI64,
}

/// One entry of the file.
#[derive(Serialize, Deserialize)]
struct Kept {
    hash: String,
    id: String,
    tenant: String,
    #[serde(flatten)]
    terms: Terms,
    #[serde(default, skip_serializing_if = "is_zero")]
    used: i64,
}

fn is_zero(n: &i64) -> bool {
    *n == 0
}

/// The tokens of a data directory.
pub struct Authority {
    path: PathBuf,
    known: RwLock<HashMap<Hash, Known>>,
    /// Hashes of tokens that were revoked: no use, but no guesses either.
    gone: RwLock<HashSet<Hash>>,
    /// Held while the file is written.
    writing: Mutex<()>,
    changes: watch::Sender<()>,
    /// Some were used since the file was written.
    used: AtomicBool,
}

impl Authority {
    pub fn open(data: &Path) -> Result<Authority, Problem> {
        let path = data.join(FILE);
        let kept: Vec<Kept> = match files::read_small(&path)? {
            None => Vec::new(),
            Some(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                Problem::new(Code::StoreCorrupt, format!("\"{}\": {error}", path.display()))
                    .hint("remove it: it is made anew from the ledgers as tenants are used")
            })?,
        };
        let known = kept.into_iter().filter_map(|kept| {
            let grant = Grant::new(kept.id, kept.tenant, kept.terms).ok()?;
            Some((model::id::unhex(&kept.hash)?, Known { grant: Arc::new(grant), used: kept.used.into() }))
        });
        Ok(Authority {
            path,
            known: RwLock::new(known.collect()),
            gone: RwLock::default(),
            writing: Mutex::default(),
            changes: watch::Sender::new(()),
            used: AtomicBool::new(false),
        })
    }

    /// Whether anybody was ever given one.
    pub fn is_empty(&self) -> bool {
        self.known.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// What this text lets its holder do now. Every refusal reads alike, whatever the reason.
    pub fn grant(&self, text: &str, now: Timestamp) -> Result<Arc<Grant>, Problem> {
        let refused = || {
            Problem::new(Code::AuthRequired, "the token is not valid")
                .hint("ask an owner or admin for one (`everwhen tokens create`)")
        };
        if !token::is_whole(text) {
            return Err(refused());
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let found =
            known.get(&token::hash(text)).filter(|known| !known.grant.is_over(now)).ok_or_else(refused)?;
        found.used.store(now.millis(), Ordering::Relaxed);
        // Read first: this is on the path of every request, and a line that all write to would be fought for.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        Ok(found.grant.clone())
    }

    /// Whether this text is, or once was, a token.
    pub fn knew(&self, text: &str) -> bool {
        let hash = token::hash(text);
        self.known.read().unwrap_or_else(PoisonError::into_inner).contains_key(&hash)
            || self.gone.read().unwrap_or_else(PoisonError::into_inner).contains(&hash)
    }

    /// Gives out a token of this tenant; its text is told here and never again.
    pub async fn create(
        &self,
        tenant: &Tenant,
        by: &Caller,
        terms: Terms,
    ) -> Result<(String, Value), Problem> {
        terms.permissions()?;
        let text = token::make(terms.role.as_str(), &tenant.random());
        let hash = token::hash(&text);
        let id = format!("tok_{}", model::id::ulid(tenant.now(), tenant.random()));
        let Value::Object(mut fields) = json!(terms) else { return Err(impossible()) };
        fields.insert("hash".to_owned(), model::id::hex(&hash).into());
        let written = tenant.write(&inside(by), Write::of(TOKEN, Some(&id), Action::Put(fields))).await?;
        self.put(hash, Grant::new(id, tenant.name().to_owned(), terms)?);
        self.save()?;
        Ok((text, shown(&written.row, 0)))
    }

    /// Every token of a tenant, revoked ones too; never the text of one.
    pub fn list(&self, tenant: &Tenant) -> Result<Vec<Value>, Problem> {
        Ok(tenant.own_rows(TOKEN)?.iter().map(|row| shown(row, self.used(&row.id))).collect())
    }

    /// Without effect from here on; the row says who did it and when.
    pub async fn revoke(&self, tenant: &Tenant, by: &Caller, id: &str) -> Result<(), Problem> {
        let absent = |_| {
            Problem::new(Code::NotFound, format!("there is no token \"{id}\""))
                .hint("`everwhen tokens list` shows them")
        };
        let row = tenant.entity(&inside(by), TOKEN, None, id).map_err(absent)?;
        if row.fields.contains_key("revoked_at") {
            return Ok(());
        }
        let used = self.used(id);
        self.forget(|grant| grant.id == id);
        self.save()?;
        let mut revoked = Map::from_iter([("revoked_at".to_owned(), json!(tenant.now()))]);
        if used > 0 {
            // Whoever revokes one that leaked wants to know just this, and the file forgets it now.
            revoked.insert("last_used_at".to_owned(), json!(Timestamp::from_millis(used)));
        }
        tenant.write(&inside(by), Write::of(TOKEN, Some(id), Action::Patch(revoked))).await.map(drop)
    }

    /// What the ledger of a tenant that opens says is so, whatever the file said.
    pub fn reconcile(&self, tenant: &Tenant) -> Result<(), Problem> {
        let mut changed = false;
        let known = self.ids();
        for row in tenant.own_rows(TOKEN)? {
            if known.contains(&row.id) {
                continue;
            }
            let hash = tenant.reveal(&row, "/hash")?;
            let hash = hash.and_then(|hash| model::id::unhex(hash.as_str()?));
            if row.fields.contains_key("revoked_at") {
                self.gone.write().unwrap_or_else(PoisonError::into_inner).extend(hash);
                continue;
            }
            let terms = Terms::deserialize(Value::Object(row.fields.clone())).ok();
            let (Some(hash), Some(terms)) = (hash, terms) else { continue };
            let Ok(grant) = Grant::new(row.id, tenant.name().to_owned(), terms) else { continue };
            self.put(hash, grant);
            changed = true;
        }
        if changed { self.save() } else { Ok(()) }
    }

    /// A tenant is gone, and so is whoever could use it.
    pub fn forget_tenant(&self, name: &str) -> Result<(), Problem> {
        self.forget(|grant| grant.tenant == name);
        self.save()
    }

    /// Some have no effect any more; who holds something open by one of them is told.
    fn forget(&self, which: impl Fn(&Grant) -> bool) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let gone = known.extract_if(|_, known| which(&known.grant)).map(|(hash, _)| hash);
        self.gone.write().unwrap_or_else(PoisonError::into_inner).extend(gone);
        drop(known);
        self.look_again();
    }

    /// Tokens of tenants that are not there are what a deletion left that was cut short.
    pub fn keep_those_of(&self, tenants: &[String]) -> Result<(), Problem> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let before = known.len();
        known.retain(|_, known| tenants.contains(&known.grant.tenant));
        let changed = known.len() != before;
        drop(known);
        if changed { self.save() } else { Ok(()) }
    }

    /// Changes whenever somebody's token may have lost its effect.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Calls everybody who holds something open to see whether they still may.
    pub fn look_again(&self) {
        self.changes.send_replace(());
    }

    /// Whether this grant still is one.
    pub fn stands(&self, grant: &Grant, now: Timestamp) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        !grant.is_over(now) && known.values().any(|known| known.grant.id == grant.id)
    }

    fn put(&self, hash: Hash, grant: Grant) {
        let known = Known { grant: Arc::new(grant), used: AtomicI64::new(0) };
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(hash, known);
    }

    fn ids(&self) -> HashSet<String> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.values().map(|known| known.grant.id.clone()).collect()
    }

    fn used(&self, id: &str) -> i64 {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let found = known.values().find(|known| known.grant.id == id);
        found.map_or(0, |known| known.used.load(Ordering::Relaxed))
    }

    /// Writes down when tokens were last used, if any was. The housekeeper's work.
    pub(crate) fn save_uses(&self) -> Result<(), Problem> {
        if self.used.swap(false, Ordering::Relaxed) { self.save() } else { Ok(()) }
    }

    /// Writes the file; also when the engine closes, for when each was last used.
    pub fn save(&self) -> Result<(), Problem> {
        let _alone = lock(&self.writing);
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if known.is_empty() && !self.path.exists() {
            return Ok(());
        }
        let mut kept: Vec<Kept> = known
            .iter()
            .map(|(hash, known)| Kept {
                hash: model::id::hex(hash),
                id: known.grant.id.clone(),
                tenant: known.grant.tenant.clone(),
                terms: known.grant.terms.clone(),
                used: known.used.load(Ordering::Relaxed),
            })
            .collect();
        drop(known);
        kept.sort_by(|a, b| a.id.cmp(&b.id));
        files::write_private(&self.path, json!(kept).to_string().as_bytes())
    }
}

/// The house acts for who asked: it may touch its own rows, and the record says who it was for.
pub(crate) fn inside(by: &Caller) -> Caller {
    Caller { outside: false, ..by.clone() }
}

/// As contracts §13 lists one.
fn shown(row: &Row, used: i64) -> Value {
    let mut token = Map::from_iter([("id".to_owned(), Value::from(row.id.as_str()))]);
    let told = row.fields.iter().filter(|(name, value)| *name != "hash" && !value.is_null());
    token.extend(told.map(|(name, value)| (name.clone(), value.clone())));
    token.insert("created_at".to_owned(), json!(row.created_at));
    token.insert("created_by".to_owned(), row.created_by.as_str().into());
    if used > 0 {
        token.insert("last_used_at".to_owned(), json!(Timestamp::from_millis(used)));
    }
    Value::Object(token)
}

fn impossible() -> Problem {
    Problem::new(Code::Internal, "the terms of a token are no object")
}
