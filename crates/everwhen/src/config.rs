//! Settings for people: `everwhen.toml` and `EVERWHEN_*`, checked once here and handed down as plain data.

use std::path::{Path, PathBuf};

use engine::effect::guard::Guard;
use engine::settings::{DEPTH_MAX, Effects, PAYLOAD_MAX, Quota, Settings, Switches};
use model::suggest::distance;
use model::{Code, Problem};

mod keys;
pub mod reference;
mod rules;
pub mod shown;
mod template;
#[cfg(test)]
mod tests;
mod written;

use keys::{Kind, TABLES, variable_of};
use written::{Said, Source, Table};

/// The file that `everwhen init` writes: every key with its default, commented out.
pub const TEMPLATE: &str = include_str!("config/template.toml");

/// The settled configuration.
pub struct Config {
    pub listen: String,
    pub data: PathBuf,
    pub settings: Settings,
    /// Certificate chain and private key of `everwhen serve`.
    pub tls: [Option<PathBuf>; 2],
}

impl Config {
    /// Reads `file`, or `./everwhen.toml` when there is one, under the variables of the environment.
    pub fn load(file: Option<&Path>, env: &dyn Fn(&str) -> Option<String>) -> Result<Config, Problem> {
        settle(&Config::source(file)?, env)
    }

    /// As [`Config::load`], but what each setting is and who said so.
    pub fn show(
        file: Option<&Path>,
        env: &dyn Fn(&str) -> Option<String>,
        flags: &[(&str, Option<&str>)],
    ) -> Result<Vec<shown::Shown>, Problem> {
        let source = Config::source(file)?;
        settle(&source, env)?;
        shown::shown(&source, env, flags)
    }

    fn source(file: Option<&Path>) -> Result<Source, Problem> {
        let default = Path::new("everwhen.toml");
        match file {
            Some(path) => Source::read(path),
            None if default.exists() => Source::read(default),
            None => Ok(Source { path: default.to_owned(), text: String::new() }),
        }
    }
}

/// What a variable says about a key. An empty one says nothing, except where empty is a value.
fn said_by(env: &dyn Fn(&str) -> Option<String>, variable: &str, key: &str) -> Option<String> {
    env(variable).filter(|text| !text.is_empty() || key == "default_space")
}

fn settle(source: &Source, env: &dyn Fn(&str) -> Option<String>) -> Result<Config, Problem> {
    let document = source.parse()?;
    let top = Table { source, name: "", at: 0, table: &document };
    check_keys(&top)?;
    let layered = |key| Layered { table: top.table(key), env, section: key };
    let own =
        Layered { table: Ok(Some(Table { source, name: "", at: 0, table: &document })), env, section: "" };

    let mut config = Config {
        listen: "127.0.0.1:3837".to_owned(),
        data: PathBuf::from(".everwhen"),
        settings: Settings::default(),
        tls: [None, None],
    };
    own.set("listen", |said| said.text(), &mut config.listen)?;
    if let Some(said) = own.table()?.and_then(|table| table.get("data")) {
        config.data = source.beside(&said.text()?);
    }
    events(&layered("events"), &mut config.settings)?;
    retention(&layered("retention"), &mut config.settings)?;
    layered("history").set("keep", |said| said.duration(), &mut config.settings.history)?;
    own.set("idle", |said| said.duration(), &mut config.settings.idle)?;
    layers(&layered("layers"), &mut config.settings.switches)?;
    effects(&layered("effects"), &mut config.settings.effects)?;
    quota(&layered("quota"), &mut config.settings.quota)?;
    let file = |said: &Said<'_>| said.file().map(Some);
    layered("tls").set("cert", file, &mut config.tls[0])?;
    layered("tls").set("key", file, &mut config.tls[1])?;
    let beside = |said: &Said<'_>| Ok(Some(source.beside(&said.text()?)));
    layered("backup").set("dir", beside, &mut config.settings.backups)?;
    tenants(&top, &mut config.settings)?;
    rules::read(&top, &mut config.settings)?;
    Ok(config)
}

fn check_keys(top: &Table<'_>) -> Result<(), Problem> {
    for (name, keys) in TABLES {
        match name {
            "" => top.only(keys, &TABLES)?,
            name if keys::many(name) => {
                top.tables(name)?.iter().try_for_each(|table| table.only(keys, &TABLES))?;
            }
            _ => top.table(name)?.iter().try_for_each(|table| table.only(keys, &TABLES))?,
        }
    }
    Ok(())
}

fn events(layered: &Layered<'_>, settings: &mut Settings) -> Result<(), Problem> {
    let size = |high: u64| move |said: &Said<'_>| said.number(1, high).map(|n| n as usize);
    layered.set("default_space", space, &mut settings.default_space)?;
    layered.set("max_payload", size(PAYLOAD_MAX as u64), &mut settings.max_payload)?;
    layered.set("max_depth", size(DEPTH_MAX as u64), &mut settings.max_depth)
}

/// `""` is no space: events that name none are then refused.
fn space(said: &Said<'_>) -> Result<String, Problem> {
    let text = said.text()?;
    if !text.is_empty() {
        engine::admit::check_default_space(&text).map_err(|problem| said.refused(&problem))?;
    }
    Ok(text)
}

fn retention(layered: &Layered<'_>, settings: &mut Settings) -> Result<(), Problem> {
    let retention = &mut settings.retention;
    let age = |said: &Said<'_>| said.duration().map(|age| Some(age).filter(|age| !age.is_zero()));
    let bytes =
        |said: &Said<'_>| said.number(0, u64::MAX).map(|bytes| Some(bytes).filter(|bytes| *bytes > 0));
    layered.set("age", age, &mut retention.age)?;
    layered.set("bytes", bytes, &mut retention.bytes)?;
    layered.set("respect_groups", |said| said.boolean(), &mut retention.respect_groups)?;
    layered.set("respect_runs", |said| said.boolean(), &mut retention.respect_runs)
}

fn layers(layered: &Layered<'_>, switches: &mut Switches) -> Result<(), Problem> {
    layered.set("validation", |said| said.boolean(), &mut switches.validation)?;
    layered.set("redaction", |said| said.boolean(), &mut switches.redaction)?;
    layered.set("attention", |said| said.boolean(), &mut switches.attention)?;
    layered.set("tracing", |said| said.boolean(), &mut switches.tracing)?;
    layered.set("metrics", |said| said.boolean(), &mut switches.metrics)
}

fn effects(layered: &Layered<'_>, effects: &mut Effects) -> Result<(), Problem> {
    let workers = |said: &Said<'_>| said.number(0, 1_000).map(|n| n as usize);
    layered.set("allow", allow, &mut effects.allow)?;
    layered.set("workers", workers, &mut effects.workers)?;
    layered.set("scheduled_workers", workers, &mut effects.scheduled_workers)?;
    let file = |said: &Said<'_>| said.file().map(Some);
    layered.set("ca_file", file, &mut effects.ca_file)?;
    layered.set("timeout", |said| said.duration(), &mut effects.timeout)
}

/// In a variable they stand with commas between them.
fn allow(said: &Said<'_>) -> Result<Vec<String>, Problem> {
    let allowed = said.texts()?;
    Guard::parse(allowed.iter().map(String::as_str)).map_err(|problem| said.refused(&problem))?;
    Ok(allowed)
}

fn quota(layered: &Layered<'_>, quota: &mut Quota) -> Result<(), Problem> {
    let number = |said: &Said<'_>| said.number(0, u64::MAX).map(Some);
    layered.set("bytes", number, &mut quota.bytes)?;
    layered.set("events_per_s", number, &mut quota.events_per_s)?;
    layered.set("groups", number, &mut quota.groups)?;
    layered.set("automations", number, &mut quota.automations)?;
    layered.set("runs_per_day", number, &mut quota.runs_per_day)
}

/// `[tenants.NAME.layers]` and `[tenants.NAME.quota]`: what is not said there is as for all.
fn tenants(top: &Table<'_>, settings: &mut Settings) -> Result<(), Problem> {
    let Some(tenants) = top.table("tenants")? else { return Ok(()) };
    for name in tenants.keys() {
        let Some(tenant) = tenants.table(name)? else { continue };
        tenant.only(&[("layers", Kind::Table), ("quota", Kind::Table)], &TABLES)?;
        let (mut switches, mut own) = (settings.switches, Quota::default());
        layers(&of_tenant(&tenant, "layers")?, &mut switches)?;
        quota(&of_tenant(&tenant, "quota")?, &mut own)?;
        settings.tenants.insert(name.to_owned(), switches);
        settings.quotas.insert(name.to_owned(), own);
    }
    Ok(())
}

/// A table inside that of a tenant, which no variable says.
fn of_tenant<'a>(tenant: &Table<'a>, section: &'a str) -> Result<Layered<'a>, Problem> {
    let table = tenant.table(section)?;
    table.iter().try_for_each(|table| table.only(keys::of(section), &TABLES))?;
    Ok(Layered { table: Ok(table), env: &|_| None, section })
}

/// A table of the file with the environment over it.
struct Layered<'a> {
    table: Result<Option<Table<'a>>, Problem>,
    env: &'a dyn Fn(&str) -> Option<String>,
    section: &'a str,
}

impl<'a> Layered<'a> {
    fn table(&self) -> Result<Option<&Table<'a>>, Problem> {
        self.table.as_ref().map(Option::as_ref).map_err(Clone::clone)
    }

    /// Puts what was said about `key` into `into`; the variable wins over the file, neither leaves the default.
    fn set<T>(
        &self,
        key: &'a str,
        read: impl Fn(&Said<'_>) -> Result<T, Problem>,
        into: &mut T,
    ) -> Result<(), Problem> {
        let name = variable_of(self.section, key);
        if let Some(text) = said_by(self.env, &name, key) {
            *into = read(&Said::variable(&name, key, text))?;
        } else if let Some(said) = self.table()?.and_then(|table| table.get(key)) {
            *into = read(&said)?;
        }
        Ok(())
    }
}

/// The variables that are no keys of the file: flags, logs, and what `drain` tells its commands.
const OTHER_VARIABLES: [&str; 14] = [
    "CA", "DATA", "SERVER", "TOKEN", "TENANT", "PROFILE", "PROFILES", "LOG", "FAULT", "TOPIC", "POSITION",
    "ID", "GROUP", "ATTEMPT",
];

/// Refuses a variable that is meant for us and that nobody reads: one of a table of the file, or nearly one we know.
pub fn check_variables(names: impl Iterator<Item = String>) -> Result<(), Problem> {
    let bare = |table, key| variable_of(table, key)["EVERWHEN_".len()..].to_owned();
    let known: Vec<String> = keys::of_variables()
        .map(|(table, key, _)| bare(table, key))
        .chain(OTHER_VARIABLES.map(str::to_owned))
        .collect();
    let sections: Vec<String> = keys::of_variables()
        .filter(|(table, ..)| !table.is_empty())
        .map(|(table, ..)| format!("{}_", table.to_uppercase()))
        .collect();
    for name in names {
        let Some(given) =
            name.strip_prefix("EVERWHEN_").filter(|given| !known.iter().any(|key| key == given))
        else {
            continue;
        };
        let Some(nearest) = known.iter().min_by_key(|key| distance(given, key)) else { continue };
        let ours = sections.iter().any(|section| given.starts_with(section));
        if ours || distance(given, nearest) <= 1 + usize::from(nearest.len() > 6) {
            return Err(Problem::new(Code::ConfigUnknownKey, format!("unknown variable \"{name}\""))
                .hint(format!("did you mean \"EVERWHEN_{nearest}\"?"))
                .with("variable", name));
        }
    }
    Ok(())
}

/// A value of the environment that is text; what is not Unicode is refused rather than dropped.
pub fn variable(name: &str) -> Result<Option<String>, Problem> {
    match std::env::var(name) {
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => Ok(Some(text)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(Problem::new(Code::ConfigInvalid, format!("{name}: is not valid UTF-8")))
        }
    }
}
