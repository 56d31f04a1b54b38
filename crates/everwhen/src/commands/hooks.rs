//! `everwhen hooks`: addresses where others deliver events, believed by their signature.

use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::secret;
use crate::output::Stop;
use crate::reach::Reach;
use crate::session::Session;

/// Inbound webhooks: who may deliver to /hooks/TENANT/NAME, and how they sign
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen hooks set github --scheme github --secret-file github.secret
  everwhen hooks set shop --scheme standard-webhooks --secret-file shop.secret --topic shop.in
  everwhen hooks list")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Every hook, without its secret
    #[command(after_long_help = "Examples:\n  everwhen hooks list --json")]
    List,
    /// Make or change one; without a secret the one that is there stays
    #[command(after_long_help = "\
Examples:
  everwhen hooks set github --scheme github --secret-file github.secret
  pass show github | everwhen hooks set github --scheme github --secret -")]
    Set {
        /// Up to 64 letters, digits, - and _
        name: String,
        /// standard-webhooks, github, stripe, slack or hmac
        #[arg(long, value_name = "SCHEME")]
        scheme: String,
        /// As the sender has it; - reads it from stdin, where nobody else sees it
        #[arg(long, value_name = "SECRET", conflicts_with = "secret_file")]
        secret: Option<String>,
        /// Where the secret is, without its last line break; - is stdin
        #[arg(long, value_name = "FILE")]
        secret_file: Option<String>,
        /// Of its events; default github.EVENT.ACTION, else hook.NAME
        #[arg(long, value_name = "TOPIC")]
        topic: Option<String>,
        /// Of its events
        #[arg(long, value_name = "NAME")]
        space: Option<String>,
    },
    /// Remove one
    #[command(after_long_help = "Examples:\n  everwhen hooks rm github")]
    Rm {
        /// Its name
        name: String,
    },
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let reach = match args.what {
        What::Set { .. } => Reach::administered(session).await?,
        _ => Reach::existing(session).await?,
    };
    match args.what {
        What::List => list(&reach, session).await,
        What::Set { name, scheme, secret, secret_file, topic, space } => {
            let secret = match (secret.as_deref(), secret_file.as_deref()) {
                (Some("-"), _) => Some(secret::line(None)?),
                (_, Some(file)) => Some(secret::line(Some(file))?),
                (given, None) => given.map(str::to_owned),
            };
            let mut said = Map::from_iter([("scheme".to_owned(), Value::from(scheme))]);
            let texts = [("secret", secret), ("topic", topic), ("space", space)];
            said.extend(texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?.into()))));
            let hook = reach.put_hook(&name, said).await?;
            session.out.result(&hook, || one_line(&hook))
        }
        What::Rm { name } => {
            reach.drop_hook(&name).await?;
            session.out.result(&json!({"deleted": true}), || format!("{name} is gone"))
        }
    }
}

async fn list(reach: &Reach, session: &Session) -> Result<(), Stop> {
    let hooks = reach.hooks().await?;
    if hooks.is_empty() && !session.out.json {
        session.out.note("none");
    }
    for hook in &hooks {
        match session.out.json {
            true => session.out.line(&hook.to_string())?,
            false => session.out.line(&one_line(hook))?,
        }
    }
    session.out.flush()
}

fn one_line(hook: &Value) -> String {
    let text = |name: &str| hook[name].as_str().unwrap_or_default();
    let own = format!("hook.{}", text("name"));
    let topic = match (text("topic"), text("scheme")) {
        ("", "github") => "github.#",
        ("", _) => own.as_str(),
        (topic, _) => topic,
    };
    format!("{:<20}  {:<18}  {topic}", text("name"), text("scheme"))
}
