//! One call of the binary: its flags, where it speaks, and the engine or server it has reached.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Mutex;

use engine::Engine;
use model::{Code, Problem};

use crate::cli::Global;
use crate::client::Client;
use crate::config::{Config, check_variables, variable};
use crate::output::Output;
use crate::profiles::{Profile, Profiles};

pub struct Session {
    pub out: Output,
    pub flags: Global,
    /// The engine this process opened, closed by `main` however the command ends.
    opened: Mutex<Option<Engine>>,
}

/// Where the events are: behind a URL or in a directory of this machine.
pub enum Place {
    Server(String),
    Directory(PathBuf),
}

impl Session {
    pub fn new(flags: Global) -> Session {
        Session { out: Output::new(flags.json, flags.quiet), flags, opened: Mutex::new(None) }
    }

    pub fn config(&self) -> Result<Config, Problem> {
        let named = |(name, _): (OsString, OsString)| name.to_string_lossy().into_owned();
        check_variables(std::env::vars_os().map(named))?;
        Config::load(self.flags.config.as_deref(), &|name| std::env::var(name).ok())
    }

    /// A flag wins over a variable; two of the same strength contradict each other. `--server` and `--data` win over a profile: its token
    /// is for its own server.
    pub fn place(&self) -> Result<Place, Problem> {
        let both = |how: &str| {
            Problem::new(Code::UsageInvalid, format!("{how} cannot be used together"))
                .hint("name a server or a directory, not both")
        };
        match (&self.flags.server, &self.flags.data) {
            (Some(_), Some(_)) => return Err(both("--server and --data")),
            (Some(url), None) => return Ok(Place::Server(url.clone())),
            (None, Some(data)) => return Ok(Place::Directory(data.clone())),
            (None, None) => {}
        }
        if self.flags.profile.is_none() {
            match (variable("EVERWHEN_SERVER")?, variable("EVERWHEN_DATA")?) {
                (Some(_), Some(_)) => return Err(both("EVERWHEN_SERVER and EVERWHEN_DATA")),
                (Some(url), None) => return Ok(Place::Server(url)),
                (None, Some(data)) => return Ok(Place::Directory(data.into())),
                (None, None) => {}
            }
        }
        match self.profile()? {
            Some(profile) => Ok(Place::Server(profile.server)),
            None => Ok(Place::Directory(self.config()?.data)),
        }
    }

    /// Somebody in a folder with data of its own may have forgotten that a profile is in use.
    pub fn mention_profile(&self) {
        let data = self.config().map(|config| config.data).unwrap_or_default();
        if let (None, Ok(Some(profile))) = (&self.flags.profile, self.profile())
            && data.exists()
        {
            let (server, data) = (&profile.server, data.display());
            self.out
                .note(&format!("asking {server}, the profile in use; --data {data} asks the directory here"));
        }
    }

    /// The profile that says where, if nothing stronger does: a flag wins over a variable, that over the one in use.
    fn profile(&self) -> Result<Option<Profile>, Problem> {
        let placed = self.flags.server.is_some() || self.flags.data.is_some();
        let by_variable =
            || Ok(variable("EVERWHEN_SERVER")?.is_some() || variable("EVERWHEN_DATA")?.is_some());
        if placed || (self.flags.profile.is_none() && by_variable()?) {
            return Ok(None);
        }
        let named = match &self.flags.profile {
            Some(name) => Some(name.clone()),
            None => variable("EVERWHEN_PROFILE")?,
        };
        let kept = Profiles::load()?;
        let name = named.or_else(|| kept.in_use.clone());
        name.map(|name| kept.get(&name).cloned()).transpose()
    }

    /// The data directory, for commands that work on files; a server named by a variable is passed over.
    pub fn data(&self) -> Result<PathBuf, Problem> {
        match (&self.flags.data, variable("EVERWHEN_DATA")?) {
            (Some(data), _) => Ok(data.clone()),
            (None, Some(data)) => Ok(data.into()),
            (None, None) => Ok(self.config()?.data),
        }
    }

    /// The tenant that a flag or a variable names.
    pub fn named_tenant(&self) -> Result<Option<String>, Problem> {
        if let Some(tenant) = &self.flags.tenant {
            return Ok(Some(tenant.clone()));
        }
        self.kept_or_set(|profile| profile.tenant, "EVERWHEN_TENANT")
    }

    /// What a profile keeps or a variable says: `--profile` wins over the variable, and that over the profile in use.
    fn kept_or_set(
        &self,
        kept: impl FnOnce(Profile) -> Option<String>,
        name: &str,
    ) -> Result<Option<String>, Problem> {
        let (kept, set) = (self.profile()?.and_then(kept), variable(name)?);
        Ok(if self.flags.profile.is_some() { kept.or(set) } else { set.or(kept) })
    }

    /// The tenant of what this machine's own directory serves; profiles are about other servers.
    pub fn served_tenant(&self) -> Result<String, Problem> {
        let named = self.flags.tenant.clone();
        Ok(named
            .map_or_else(|| variable("EVERWHEN_TENANT"), |tenant| Ok(Some(tenant)))?
            .unwrap_or_else(|| "main".to_owned()))
    }

    pub fn tenant(&self) -> Result<String, Problem> {
        Ok(self.named_tenant()?.unwrap_or_else(|| "main".to_owned()))
    }

    pub fn token(&self) -> Result<Option<String>, Problem> {
        if let Some(token) = &self.flags.token {
            return Ok(Some(token.clone()));
        }
        self.kept_or_set(|profile| profile.token, "EVERWHEN_TOKEN")
    }

    /// The server at this address, for a tenant. With a token the tenant is the token's, and named only where somebody named it: then
    /// the server refuses what was meant for another.
    pub fn client(&self, url: &str, tenant: &str) -> Result<Client, Problem> {
        let ca = match &self.flags.ca {
            Some(ca) => Some(ca.clone()),
            None => {
                let kept = |profile: Profile| profile.ca.map(|ca| ca.to_string_lossy().into_owned());
                self.kept_or_set(kept, "EVERWHEN_CA")?.map(PathBuf::from)
            }
        };
        let named = self.named_tenant()?.as_deref() == Some(tenant);
        Client::new(url, self.token()?, tenant)?.of_the_token(named).trusting(ca.as_ref())
    }

    /// Remembers an engine that must be closed before the process ends.
    pub fn keep(&self, engine: &Engine) {
        *self.opened.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(engine.clone());
    }

    /// The engine that this process opened.
    pub fn engine(&self) -> Option<Engine> {
        self.opened.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Drains and closes what was opened, so that the next start finds a clean end.
    pub async fn close(&self) -> Result<(), Problem> {
        let opened = self.opened.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        match opened {
            Some(engine) => engine.close().await,
            None => Ok(()),
        }
    }
}
