//! `everwhen space`: seal what is written in a space, and forget one for good.

use clap::Subcommand;
use model::{Code, Problem};
use serde_json::Value;

use super::stdin;
use crate::output::{Stop, counted};
use crate::reach::Reach;
use crate::session::Session;

/// Seal spaces, so that they can be forgotten
///
/// What is written in a sealed space is encrypted in the ledger under a key of its own. Forgetting a space destroys that key
/// and wipes what its events left in rows, runs and histories; chain and verify hold.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen space seal clinic
  everwhen space list
  everwhen space forget clinic --yes")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Encrypt what is written there from now on
    #[command(after_long_help = "Examples:\n  everwhen space seal clinic\n  everwhen space seal --all")]
    Seal {
        /// Its name
        #[arg(required_unless_present = "all")]
        name: Option<String>,
        /// Every space that has no key of its own, under one key
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// Those that are sealed or were forgotten
    #[command(after_long_help = "Examples:\n  everwhen space list --json")]
    List,
    /// Destroy its key and wipe what its events left, for ever
    ///
    /// Asks first when a person types it.
    #[command(
        after_long_help = "Examples:\n  everwhen space forget clinic\n  everwhen space forget clinic --yes"
    )]
    Forget {
        /// Its name
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    match args.what {
        What::Seal { name, .. } => {
            let name = name.unwrap_or_else(|| "*".to_owned());
            let space = Reach::or_create(session).await?.seal_space(&name).await?;
            session.out.result(&space, || {
                format!("{name} is sealed; its key is in no backup: keep a copy of it apart")
            })
        }
        What::List => list(&Reach::existing(session).await?, session).await,
        What::Forget { name, yes } => {
            let what = format!("This destroys the key of \"{name}\" and what its events say, for ever.");
            if !yes && !stdin::confirms(&what, &name)? {
                return Err(Problem::new(Code::UsageInvalid, format!("\"{name}\" stays as it is"))
                    .hint("type its name to forget it, or give --yes")
                    .into());
            }
            let space = Reach::existing(session).await?.forget_space(&name).await?;
            session.out.result(&space, || match space["already"] == true {
                true => format!("{name} was forgotten already: nothing was published there since"),
                false => {
                    let events = space["events"].as_u64().unwrap_or_default();
                    format!("{name} is forgotten: {}", counted(events as usize, "event"))
                }
            })
        }
    }
}

async fn list(reach: &Reach, session: &Session) -> Result<(), Stop> {
    let spaces = reach.spaces().await?;
    if spaces.is_empty() && !session.out.json {
        session.out.note("none");
    }
    for space in &spaces {
        match session.out.json {
            true => session.out.line(&space.to_string())?,
            false => session.out.line(&one_line(space))?,
        }
    }
    session.out.flush()
}

fn one_line(space: &Value) -> String {
    let text = |name: &str| space[name].as_str().unwrap_or_default().to_owned();
    let sealed = match (&space["sealed"], &space["key_of"]) {
        (Value::Bool(true), Value::Null) => format!("sealed {}", text("sealed_at")),
        (Value::Bool(true), _) => "sealed with all others".to_owned(),
        _ => "not sealed".to_owned(),
    };
    let forgotten = space["forgotten_at"].as_str().map(|at| format!("  forgotten {at}")).unwrap_or_default();
    format!("{:<32}  {sealed}{forgotten}", text("name"))
}
