//! Servers that somebody works with, by name: `profiles.toml` in their configuration directory, readable by them alone.
//!
//! ```toml
//! use = "prod"
//!
//! [profiles.prod]
//! server = "https://events.example.org"
//! token = "ew_editor_…"
//! tenant = "acme"
//! ca = "/home/ann/house-ca.pem"
//! ```

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use model::{Code, Problem};
use serde::{Deserialize, Serialize};

use crate::config::variable;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profiles {
    /// The one that counts when nothing else says where.
    #[serde(default, rename = "use", skip_serializing_if = "Option::is_none")]
    pub in_use: Option<String>,
    #[serde(default)]
    pub profiles: BTreeMap<String, Profile>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub server: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Whose certificates are believed besides the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

/// `EVERWHEN_PROFILES`, else where the system keeps such files; `None` for somebody without a home.
fn path() -> Result<Option<PathBuf>, Problem> {
    if let Some(path) = variable("EVERWHEN_PROFILES")? {
        return Ok(Some(path.into()));
    }
    let config = match variable("XDG_CONFIG_HOME")? {
        Some(config) => Some(PathBuf::from(config)),
        None => variable("HOME")?.map(|home| PathBuf::from(home).join(".config")),
    };
    Ok(config.map(|config| config.join("everwhen/profiles.toml")))
}

fn wrong(path: &Path, what: impl std::fmt::Display) -> Problem {
    Problem::new(Code::ConfigInvalid, format!("{}: {what}", path.display()))
        .hint("mend it, or remove it and make the profiles anew with `everwhen profiles set`")
}

impl Profiles {
    /// What is kept; nothing where there is no file.
    pub fn load() -> Result<Profiles, Problem> {
        let Some(path) = path()? else { return Ok(Profiles::default()) };
        match std::fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).map_err(|error| wrong(&path, error.message())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Profiles::default()),
            Err(error) => Err(wrong(&path, error)),
        }
    }

    /// Written aside and renamed, so that no reader finds half of it; it holds tokens, so nobody else reads it.
    pub fn save(&self) -> Result<PathBuf, Problem> {
        let path = path()?.ok_or_else(|| {
            Problem::new(Code::ConfigInvalid, "there is no home directory to keep profiles in")
                .hint("name a file by EVERWHEN_PROFILES")
        })?;
        let text = toml::to_string(self).map_err(|error| wrong(&path, error))?;
        let aside = path.with_extension("new");
        let write = || {
            std::fs::create_dir_all(path.parent().unwrap_or(Path::new("")))?;
            let mut file = std::fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&aside)?;
            file.write_all(text.as_bytes())?;
            file.sync_data()?;
            std::fs::rename(&aside, &path)
        };
        write().map_err(|error| wrong(&path, error))?;
        Ok(path)
    }

    pub fn get(&self, name: &str) -> Result<&Profile, Problem> {
        self.profiles.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.profiles.keys().map(String::as_str).collect();
            let hint = match known.as_slice() {
                [] => "there are none; make one with `everwhen profiles set`".to_owned(),
                known => format!("there are: {}", known.join(", ")),
            };
            Problem::new(Code::NotFound, format!("there is no profile \"{name}\"")).hint(hint)
        })
    }
}
