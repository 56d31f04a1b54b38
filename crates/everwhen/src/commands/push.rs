//! `everwhen push`: events posted to others, signed, until they are taken.

use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::entity;
use crate::output::Stop;
use crate::reach::Reach;
use crate::session::Session;

/// Post events to others, signed as Standard Webhooks says, at least once
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen push add shop --pattern 'order.*' --url https://shop.example.org/hooks
  everwhen push test shop
  everwhen push list")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Every push, and whether it is active
    #[command(after_long_help = "Examples:\n  everwhen push list --json | jq '{name, state, lag}'")]
    List,
    /// Make or replace one; a secret that is made here is printed this once
    #[command(after_long_help = "\
Examples:
  everwhen push add shop --pattern 'order.*' --url https://shop.example.org/hooks
  everwhen push add audit --pattern '#' --url https://audit.example.org/in --ordered --format cloudevents")]
    Add(Box<Add>),
    /// One push with its group's progress
    #[command(after_long_help = "Examples:\n  everwhen push show shop --json")]
    Show {
        /// Its name
        name: String,
    },
    /// Remove one, and its group
    #[command(after_long_help = "Examples:\n  everwhen push rm shop")]
    Rm {
        /// Its name
        name: String,
    },
    /// Send nothing until it is resumed
    #[command(after_long_help = "Examples:\n  everwhen push pause shop")]
    Pause {
        /// Its name
        name: String,
    },
    /// Send again, from where it stopped
    #[command(after_long_help = "Examples:\n  everwhen push resume shop")]
    Resume {
        /// Its name
        name: String,
    },
    /// Send an event that nobody published, and tell what the receiver said
    #[command(after_long_help = "Examples:\n  everwhen push test shop --json")]
    Test {
        /// Its name
        name: String,
    },
}

#[derive(clap::Args)]
struct Add {
    /// Lower-case letters, digits, - and _
    name: String,
    /// Where to
    #[arg(long)]
    url: String,
    /// Topics that are posted; may be given several times
    #[arg(long = "pattern", value_name = "PATTERN", required = true)]
    patterns: Vec<String>,
    /// An expression, or a filter as JSON
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
    /// Only events of this space
    #[arg(long, value_name = "NAME")]
    space: Option<String>,
    /// now, beginning, or a position or time as JSON
    #[arg(long, value_name = "START")]
    start: Option<String>,
    /// One after the other, in the order of the ledger
    #[arg(long)]
    ordered: bool,
    /// json, cloudevents or cloudevents-binary
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,
    /// whsec_…; without it one is made, or the one that is there stays
    #[arg(long, value_name = "SECRET")]
    secret: Option<String>,
    /// For one request, up to 60s
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// A header of every request, as NAME=VALUE; may be given several times
    #[arg(long = "header", value_name = "HEADER")]
    headers: Vec<String>,
}

impl Add {
    fn said(self) -> Map<String, Value> {
        let read = |text: String| entity::json(&text).unwrap_or(Value::String(text));
        let mut said = Map::from_iter([
            ("url".to_owned(), Value::from(self.url)),
            ("pattern".to_owned(), json!(self.patterns)),
            ("ordered".to_owned(), self.ordered.into()),
        ]);
        let texts = [
            ("space", self.space),
            ("format", self.format),
            ("secret", self.secret),
            ("timeout", self.timeout),
        ];
        said.extend(texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?.into()))));
        said.extend(self.filter.map(|filter| ("filter".to_owned(), read(filter))));
        said.extend(self.start.map(|start| ("start".to_owned(), read(start))));
        if !self.headers.is_empty() {
            let pair = |text: &String| {
                let (name, value) = text.split_once('=').unwrap_or((text, ""));
                (name.to_owned(), Value::from(value))
            };
            said.insert("headers".to_owned(), Value::Object(self.headers.iter().map(pair).collect()));
        }
        said
    }
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let reach = match args.what {
        What::Add(_) => Reach::administered(session).await?,
        _ => Reach::existing(session).await?,
    };
    let shown = match args.what {
        What::List => return list(&reach, session).await,
        What::Add(add) => {
            let name = add.name.clone();
            let push = reach.put_push(&name, add.said()).await?;
            return session.out.result(&push, || match push["secret"].as_str() {
                Some(secret) => format!("{}\nsecret  {secret}", one_line(&push)),
                None => one_line(&push),
            });
        }
        What::Rm { name } => {
            reach.drop_push(&name).await?;
            return session.out.result(&json!({"deleted": true}), || format!("{name} is gone"));
        }
        What::Test { name } => {
            let told = reach.act_on_push(&name, "test").await?;
            session.out.result(&told, || tested(&told))?;
            // Not taken is an answer, and it is "no".
            return if told["ok"] == false { Err(Stop::Code(1)) } else { Ok(()) };
        }
        What::Show { name } => reach.push(&name).await?,
        What::Pause { name } => reach.act_on_push(&name, "pause").await?,
        What::Resume { name } => reach.act_on_push(&name, "resume").await?,
    };
    session.out.result(&shown, || one_line(&shown))
}

async fn list(reach: &Reach, session: &Session) -> Result<(), Stop> {
    let pushes = reach.pushes().await?;
    if pushes.is_empty() && !session.out.json {
        session.out.note("none");
    }
    for push in &pushes {
        match session.out.json {
            true => session.out.line(&push.to_string())?,
            false => session.out.line(&one_line(push))?,
        }
    }
    session.out.flush()
}

fn tested(told: &Value) -> String {
    let took = &told["took_ms"];
    match told["error"].as_str() {
        None => format!("taken, after {took} ms"),
        Some(error) => format!("not taken, after {took} ms: {error}"),
    }
}

fn one_line(push: &Value) -> String {
    let text = |name: &str| push[name].as_str().unwrap_or_default();
    let patterns = match &push["pattern"] {
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        one => one.as_str().unwrap_or_default().to_owned(),
    };
    let behind = push["lag"].as_u64().map(|lag| format!("  {lag} behind")).unwrap_or_default();
    let why = push["reason"].as_str().map(|reason| format!("  {reason}")).unwrap_or_default();
    let failing = push["last_error"].as_str().map(|error| format!("  failing: {error}")).unwrap_or_default();
    format!("{:<8}  {:<16}  {patterns}  {}{behind}{why}{failing}", text("state"), text("name"), text("url"))
}
