//! How a command reaches a tenant: through a server, or by opening the directory itself. Written once for both.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use engine::{Caller, Engine, Options, Tenant};
use model::{Code, Problem};
use serde_json::Value;

use crate::client::{Client, escape};
use crate::held::Holder;
use crate::session::{Place, Session};

pub mod audit;
pub mod entities;
pub mod events;
pub mod follow;
pub mod groups;
pub mod hooks;
pub mod host;
pub mod maintain;
pub mod pushes;
pub mod runs;
pub mod secrets;
pub mod spaces;
pub mod subscriptions;
pub mod tasks;
pub mod tenants;
pub mod tokens;

/// How long a command waits for a directory that another short command holds just now.
const PATIENCE: Duration = Duration::from_secs(3);

/// A tenant, near or far. Every operation of a command is a method on this.
pub enum Reach {
    Local(Local),
    Remote(Client),
}

/// A directory that this process holds.
pub struct Local {
    pub engine: Engine,
    pub tenant: Tenant,
    pub caller: Caller,
    pub data: PathBuf,
}

impl Reach {
    /// Reaches what is there; a directory or tenant that is not is an error.
    pub async fn existing(session: &Session) -> Result<Reach, Problem> {
        Reach::open(session, &session.tenant()?, false).await
    }

    /// Reaches what is there and makes what is not.
    pub async fn or_create(session: &Session) -> Result<Reach, Problem> {
        Reach::open(session, &session.tenant()?, true).await
    }

    /// Reaches what is there to administer it. A directory may be made for that; a tenant is made by its first event, group or
    /// definition, or by `tenants create`, and not by a slip in its name.
    pub async fn administered(session: &Session) -> Result<Reach, Problem> {
        let tenant = session.tenant()?;
        Reach::open(session, &tenant, tenant == engine::DEFAULT_TENANT).await
    }

    /// Reaches the house itself, whichever tenant is named otherwise: that one may be suspended.
    pub async fn house(session: &Session, create: bool) -> Result<Reach, Problem> {
        Reach::open(session, engine::DEFAULT_TENANT, create).await
    }

    /// Whether a token says who asks; else anybody may say so for themselves.
    pub fn goes_by_token(&self) -> bool {
        match self {
            Reach::Local(_) => false,
            Reach::Remote(client) => client.goes_by_token(),
        }
    }

    /// The server that was reached before, wherever it listens by now. The directory itself is left alone: a server that starts
    /// again needs it.
    pub fn again(session: &Session) -> Result<Client, Problem> {
        let tenant = session.tenant()?;
        match session.place()? {
            Place::Server(url) => session.client(&url, &tenant),
            Place::Directory(data) => match Holder::read(&data) {
                Some(holder) => held_by(session, holder, &tenant),
                None => {
                    let detail = format!("no server holds \"{}\"", data.display());
                    Err(Problem::new(Code::ServerUnreachable, detail).hint("start one with: everwhen serve"))
                }
            },
        }
    }

    async fn open(session: &Session, tenant: &str, create: bool) -> Result<Reach, Problem> {
        match session.place()? {
            Place::Server(url) => {
                session.mention_profile();
                let client = session.client(&url, tenant)?;
                mention_new(session, &client, create).await;
                Ok(Reach::Remote(client))
            }
            Place::Directory(data) => {
                // A name that no tenant can have begins nothing.
                engine::check_tenant_name(tenant)?;
                directory(session, &data, tenant, create).await
            }
        }
    }
}

/// Opens the directory, or finds the server that holds it. A holder without a server is another command that will
/// soon be done; a `serve.json` without a holder is what a killed server left.
async fn directory(session: &Session, data: &Path, tenant: &str, create: bool) -> Result<Reach, Problem> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let locked = match open_here(session, data, tenant, create) {
            Err(problem) if problem.code() == Code::StoreLocked => problem,
            other => return other.map(Reach::Local),
        };
        if let Some(holder) = Holder::read(data) {
            let client = held_by(session, holder, tenant)?;
            if client.text("/livez").await.is_ok() {
                mention_new(session, &client, create).await;
                return Ok(Reach::Remote(client));
            }
        }
        if Instant::now() >= deadline {
            return Err(locked);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The server that holds a directory.
fn held_by(session: &Session, holder: Holder, tenant: &str) -> Result<Client, Problem> {
    // Who shows a token wants to be held to it, also where the directory would let them do everything.
    let shown = session.flags.token.clone();
    let named = shown.is_none() || session.named_tenant()?.as_deref() == Some(tenant);
    let token = shown.unwrap_or(holder.token);
    Ok(Client::new(&holder.url, Some(token), tenant)?.of_the_token(named))
}

/// The server begins a tenant as a directory would, and cannot say so: a slip in its name is seen here.
async fn mention_new(session: &Session, client: &Client, create: bool) {
    let Some(tenant) = client.tenant().filter(|tenant| create && *tenant != engine::DEFAULT_TENANT) else {
        return;
    };
    let found: Result<Value, Problem> = client.get(&format!("/v1/tenants/{}", escape(tenant))).await;
    let absent = |problem: Problem| matches!(problem.code(), Code::TenantNotFound | Code::NotFound);
    if found.is_err_and(absent) {
        session.out.note(&format!("a tenant \"{tenant}\" begins at {}", client.url()));
    }
}

/// Also reading takes the lock and mends a torn tail, so it needs to write.
fn unwritable(problem: Problem, create: bool) -> Problem {
    match (problem.code(), create) {
        (Code::StorageReadOnly, false) => {
            let advice = problem.advice().to_owned();
            problem.hint(format!(
                "opening the directory takes its lock, also for reading; {advice}; or ask a server with --server URL; \
                 everwhen verify only reads"
            ))
        }
        _ => problem,
    }
}

fn open_here(session: &Session, data: &Path, name: &str, create: bool) -> Result<Local, Problem> {
    // A command that ends at once begins no request; the server makes it.
    let settings = session.config()?.settings;
    let options = Options { settings, create, effects: false, ..Options::default() };
    let new = !data.join("tenants").exists();
    let engine = Engine::open_with(data, options).map_err(|problem| unwritable(problem, create))?;
    session.keep(&engine);
    if new {
        session.out.note(&format!("created {}", data.display()));
    }
    Holder::forget(data);
    if !engine.has_tenant(name) {
        if !create {
            let detail = format!("there is no tenant \"{name}\" in \"{}\"", data.display());
            return Err(Problem::new(Code::TenantNotFound, detail)
                .hint("`everwhen tenants list` shows those there are, `everwhen tenants create` makes one"));
        }
        if name != engine::DEFAULT_TENANT {
            session.out.note(&format!("a tenant \"{name}\" begins in {}", data.display()));
        }
    }
    let tenant = engine.visit(name)?;
    Ok(Local { engine, tenant, caller: Caller::local(), data: data.to_owned() })
}
