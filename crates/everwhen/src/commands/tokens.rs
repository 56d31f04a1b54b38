//! `everwhen tokens`: who may do what, given out once and revoked at once.

use clap::Subcommand;
use serde_json::{Map, Value, json};

use crate::output::Stop;
use crate::reach::Reach;
use crate::session::Session;

/// Give out, list and revoke tokens of a tenant
///
/// A token has a role: owner, admin, editor, viewer or publisher. Scopes cut that down further.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen tokens create --role publisher --name sensors
  everwhen tokens create --role editor --scope event:read --scope event:write --expires-in 90d
  everwhen tokens create --role viewer --space sales --max-band amber
  everwhen tokens list")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Give one out; its text is printed this once
    #[command(after_long_help = "\
Examples:
  everwhen tokens create --role viewer --name dashboard")]
    Create {
        /// owner, admin, editor, viewer or publisher
        #[arg(long)]
        role: String,
        /// For people, and in the actor of what it does
        #[arg(long)]
        name: Option<String>,
        /// Only this of what the role may; may be given several times
        #[arg(long = "scope", value_name = "SCOPE")]
        scopes: Vec<String>,
        /// Only this space; may be given several times
        #[arg(long = "space", value_name = "SPACE")]
        spaces: Vec<String>,
        /// Nothing above this band: green, amber, red or black
        #[arg(long, value_name = "BAND")]
        max_band: Option<String>,
        /// How long it is valid, such as 90d
        #[arg(long, value_name = "TIME")]
        expires_in: Option<String>,
    },
    /// Every token, without its text
    #[command(after_long_help = "Examples:\n  everwhen tokens list --json")]
    List,
    /// Let one have no effect any more
    #[command(after_long_help = "Examples:\n  everwhen tokens revoke tok_01KDVDNA00A7WYWD51N0CYEG59")]
    Revoke {
        /// Its id, as `list` shows it
        id: String,
    },
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let reach = match args.what {
        What::Create { .. } => Reach::administered(session).await?,
        _ => Reach::existing(session).await?,
    };
    match args.what {
        What::Create { role, name, scopes, spaces, max_band, expires_in } => {
            let mut said = Map::from_iter([("role".to_owned(), Value::from(role))]);
            said.extend(name.map(|name| ("name".to_owned(), name.into())));
            said.extend(expires_in.map(|length| ("expires_in".to_owned(), length.into())));
            said.extend(max_band.map(|band| ("max_band".to_owned(), band.into())));
            for (field, words) in [("scopes", scopes), ("spaces", spaces)] {
                if !words.is_empty() {
                    said.insert(field.to_owned(), json!(words));
                }
            }
            let token = reach.create_token(&Value::Object(said)).await?;
            session.out.result(&token, || token["token"].as_str().unwrap_or_default().to_owned())
        }
        What::List => list(&reach, session).await,
        What::Revoke { id } => {
            reach.revoke_token(&id).await?;
            session.out.result(&json!({"revoked": true}), || format!("{id} has no effect any more"))
        }
    }
}

async fn list(reach: &Reach, session: &Session) -> Result<(), Stop> {
    let tokens = reach.tokens().await?;
    if tokens.is_empty() && !session.out.json {
        session.out.note("none");
    }
    for token in &tokens {
        match session.out.json {
            true => session.out.line(&token.to_string())?,
            false => session.out.line(&one_line(token))?,
        }
    }
    session.out.flush()
}

fn one_line(token: &Value) -> String {
    let text = |name: &str| token[name].as_str().unwrap_or_default();
    let state = match (text("revoked_at"), text("expires_at")) {
        ("", "") => "valid".to_owned(),
        ("", until) => format!("valid until {until}"),
        (at, _) => format!("revoked {at}"),
    };
    let list = |name: &str| {
        let words = token[name].as_array().into_iter().flatten().filter_map(Value::as_str);
        words.collect::<Vec<_>>().join(",")
    };
    let parts =
        [("scopes", list("scopes")), ("spaces", list("spaces")), ("up to", text("max_band").to_owned())];
    let parts = parts.iter().filter(|(_, words)| !words.is_empty());
    let edges: String = parts.map(|(name, words)| format!("  {name} {words}")).collect();
    let used = match text("last_used_at") {
        "" => "  never used".to_owned(),
        at => format!("  used {at}"),
    };
    format!("{}  {:<9}  {:<20}  {state}{used}{edges}", text("id"), text("role"), text("name"))
}
