//! `everwhen profiles`: servers by name, so that a token is typed once.

use clap::Subcommand;
use engine::authority::token::is_whole;
use model::{Code, Problem};
use serde_json::json;

use super::stdin;
use crate::client::Client;
use crate::config::variable;
use crate::held;
use crate::output::Stop;
use crate::profiles::{Profile, Profiles};
use crate::session::Session;

/// Keep servers with their tokens under names
///
/// They stand in ~/.config/everwhen/profiles.toml, which nobody else can read. Every command takes --profile NAME; `use`
/// says which one counts when neither a flag nor a variable names a server or a directory.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  echo $TOKEN | everwhen profiles set prod https://events.example.org --tenant acme
  everwhen --profile prod tail
  everwhen profiles use prod")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Keep a server, with --tenant and --ca if they are given; its token is read from standard input, one line
    ///
    /// --token wins over standard input, and EVERWHEN_TOKEN counts when nothing comes from there. While the command runs, a flag is
    /// visible to other users of this machine; standard input is not.
    #[command(after_long_help = "\
Examples:
  echo $TOKEN | everwhen profiles set prod https://events.example.org
  echo $TOKEN | everwhen profiles set house https://house.internal --ca house-ca.pem
  EVERWHEN_TOKEN=$TOKEN everwhen profiles set prod https://events.example.org < /dev/null")]
    Set {
        /// What to call it
        name: String,
        /// Its address
        url: String,
    },
    /// Every profile, without its token
    #[command(after_long_help = "Examples:\n  everwhen profiles list")]
    List,
    /// Let one count where nothing else is named; without a name, none
    #[command(after_long_help = "Examples:\n  everwhen profiles use prod\n  everwhen profiles use")]
    Use {
        /// Which one
        name: Option<String>,
    },
    /// Forget one
    #[command(after_long_help = "Examples:\n  everwhen profiles rm prod")]
    Rm {
        /// Which one
        name: String,
    },
}

pub fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let mut kept = Profiles::load()?;
    match args.what {
        What::Set { name, url } => set(&mut kept, name, url, session),
        What::List => list(&kept, session),
        What::Use { name } => {
            if let Some(name) = &name {
                kept.get(name)?;
            }
            kept.in_use = name;
            kept.save()?;
            let said = kept
                .in_use
                .as_deref()
                .map_or("no profile is in use".to_owned(), |name| format!("{name} is in use"));
            session.out.result(&json!({ "use": kept.in_use }), || said)
        }
        What::Rm { name } => {
            kept.get(&name)?;
            kept.profiles.remove(&name);
            kept.in_use = kept.in_use.take().filter(|used| *used != name);
            kept.save()?;
            session.out.result(&json!({ "removed": name }), || format!("removed {name}"))
        }
    }
}

fn set(kept: &mut Profiles, name: String, url: String, session: &Session) -> Result<(), Stop> {
    let tenant = session.flags.tenant.clone();
    let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if !plain {
        return Err(Problem::new(Code::UsageInvalid, format!("\"{name}\" is no name of a profile"))
            .hint("letters, digits, -, _ and .")
            .into());
    }
    let unplaced = |error| Problem::new(Code::UsageInvalid, format!("--ca cannot be used: {error}"));
    let ca = session.flags.ca.as_ref().map(std::path::absolute).transpose().map_err(unplaced)?;
    Client::new(&url, None, tenant.as_deref().unwrap_or("main"))?.trusting(ca.as_ref())?;
    let token = token(session)?;
    token.as_deref().map_or(Ok(()), check_token)?;
    let without = if token.is_some() { "" } else { ", without a token" };
    kept.profiles.insert(name.clone(), Profile { server: url, token, tenant, ca });
    let path = kept.save()?;
    session.out.result(&json!({ "profile": name, "file": path }), || {
        format!("kept {name} in {}{without}", path.display())
    })
}

/// The one to keep. Not that of the session: a profile in use has one for another server. An empty flag is a slip, and refused as no token.
fn token(session: &Session) -> Result<Option<String>, Problem> {
    if let Some(token) = &session.flags.token {
        return Ok(Some(token.clone()));
    }
    match stdin::line()?.filter(|line| !line.is_empty()) {
        Some(line) => Ok(Some(line)),
        None => variable("EVERWHEN_TOKEN"),
    }
}

/// A slip in copying is told here, and not by a server much later; whether a token is good only its server knows.
fn check_token(token: &str) -> Result<(), Problem> {
    if is_whole(token) || held::is_local(token) {
        return Ok(());
    }
    let detail = match token.starts_with("ew_") {
        true => {
            "the token is not whole: its checksum does not fit, so a character is missing, too many or another"
        }
        false => "what was given is no token",
    };
    Err(Problem::new(Code::UsageInvalid, detail).hint(
        "copy all of it, ew_<role>_<32 letters and digits>_<6 more>; `everwhen tokens create` gives out a new one",
    ))
}

fn list(kept: &Profiles, session: &Session) -> Result<(), Stop> {
    let used = |name: &str| kept.in_use.as_deref() == Some(name);
    let shown: Vec<_> = kept
        .profiles
        .iter()
        .map(|(name, profile)| {
            let mut one = json!({
                "name": name, "server": profile.server, "token": profile.token.is_some(), "in_use": used(name),
            });
            if let Some(tenant) = &profile.tenant {
                one["tenant"] = tenant.as_str().into();
            }
            if let Some(ca) = &profile.ca {
                one["ca"] = json!(ca);
            }
            one
        })
        .collect();
    if shown.is_empty() {
        session.out.note("no profiles; `everwhen profiles set NAME URL` keeps one");
    }
    for one in &shown {
        let text = |name: &str| one[name].as_str().unwrap_or_default();
        let mark = if one["in_use"] == true { "*" } else { " " };
        let line = format!("{mark} {:<12} {}", text("name"), text("server"));
        session.out.line(&if session.out.json { one.to_string() } else { line })?;
    }
    session.out.flush()
}
