//! `everwhen subscriptions`: which events of a group start which automation, as seed 003 has it.

use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::entity;
use crate::output::Stop;
use crate::reach::Reach;
use crate::session::Session;

/// Which events of a group start which automation; `everwhen drain GROUP` dispatches them
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen subscriptions add reprice --pattern 'price.*' --automation reprice --map '{\"sku\": \"$.payload.sku\"}'
  everwhen drain workflow_runner")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Every subscription
    #[command(after_long_help = "Examples:\n  everwhen subscriptions list --json")]
    List,
    /// Make or replace one, and say which
    #[command(after_long_help = "\
Examples:
  everwhen subscriptions add reprice --pattern 'price.*' --automation reprice
  everwhen subscriptions add big --pattern 'price.*' --automation approve --filter 'event.payload.new > 100'")]
    Add {
        /// Its id
        id: String,
        /// Topics that it wants
        #[arg(long)]
        pattern: String,
        /// What is started
        #[arg(long, value_name = "NAME")]
        automation: String,
        /// An expression, or a filter as JSON
        #[arg(long, value_name = "FILTER")]
        filter: Option<String>,
        /// The input of the run, as JSON; without it, the payload
        #[arg(long, value_name = "JSON")]
        map: Option<String>,
        /// The group whose events it takes
        #[arg(long, value_name = "NAME")]
        group: Option<String>,
    },
    /// One of them
    #[command(after_long_help = "Examples:\n  everwhen subscriptions show reprice")]
    Show {
        /// Its id
        id: String,
    },
    /// Take one away
    #[command(after_long_help = "Examples:\n  everwhen subscriptions rm reprice")]
    Rm {
        /// Its id
        id: String,
    },
    /// Dispatch to it again
    #[command(after_long_help = "Examples:\n  everwhen subscriptions enable reprice")]
    Enable {
        /// Its id
        id: String,
    },
    /// Pass it over
    #[command(after_long_help = "Examples:\n  everwhen subscriptions disable reprice")]
    Disable {
        /// Its id
        id: String,
    },
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let reach = match args.what {
        What::Add { .. } => Reach::administered(session).await?,
        _ => Reach::existing(session).await?,
    };
    let shown = match args.what {
        What::List => return list(&reach, session).await,
        What::Rm { id } => {
            reach.drop_subscription(&id).await?;
            return session.out.result(&json!({"deleted": true}), || format!("{id} is gone"));
        }
        What::Add { id, pattern, automation, filter, map, group } => {
            let read = |text: String| entity::json(&text).unwrap_or(Value::String(text));
            let mut said = Map::new();
            said.insert("pattern".to_owned(), pattern.into());
            said.insert("automation".to_owned(), automation.into());
            said.extend(filter.map(|filter| ("filter".to_owned(), read(filter))));
            said.extend(map.map(|map| ("input_mapper".to_owned(), read(map))));
            said.extend(group.map(|group| ("group".to_owned(), group.into())));
            let (new, mut made) = reach.put_subscription(&id, &Value::Object(said)).await?;
            made["replaced"] = (!new).into();
            let did = if new { "added" } else { "replaced" };
            return session.out.result(&made, || format!("{did} {id}"));
        }
        What::Show { id } => reach.subscription(&id).await?,
        What::Enable { id } => reach.enable_subscription(&id, true).await?,
        What::Disable { id } => reach.enable_subscription(&id, false).await?,
    };
    session.out.result(&shown, || one_line(&shown))
}

async fn list(reach: &Reach, session: &Session) -> Result<(), Stop> {
    for subscription in reach.subscriptions().await? {
        match session.out.json {
            true => session.out.line(&subscription.to_string())?,
            false => session.out.line(&one_line(&subscription))?,
        }
    }
    session.out.flush()
}

fn one_line(subscription: &Value) -> String {
    let text = |name: &str| subscription[name].as_str().unwrap_or_default();
    let state = if subscription["enabled"] == true { "on" } else { "off" };
    format!(
        "{state:<4}  {:<24}  {:<24}  {}  ({})",
        text("id"),
        text("pattern"),
        text("automation"),
        text("group")
    )
}
