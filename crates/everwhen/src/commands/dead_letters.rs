//! `everwhen dead-letters`: what a group gave up on, and giving it back.

use clap::Subcommand;
use model::Position;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::show;
use crate::output::Stop;
use crate::reach::Reach;
use crate::reach::groups::Letters;
use crate::session::Session;

/// What a group gave up on: look at it, give it back
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen dead-letters list billing
  everwhen dead-letters redrive billing --position 42 --position 57
  everwhen dead-letters redrive billing --filter 'event.topic == \"order.paid\"'")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The dead letters of a group, oldest first
    #[command(after_long_help = "\
Examples:
  everwhen dead-letters list billing
  everwhen dead-letters list billing --json | jq '{position, error}'")]
    List {
        /// The group's name
        group: String,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
    },
    /// Give dead letters back to their group
    #[command(after_long_help = "\
Examples:
  everwhen dead-letters redrive billing --all
  everwhen dead-letters redrive billing --position 42 --position 57
  everwhen dead-letters redrive billing --filter 'event.topic == \"order.paid\"'")]
    Redrive {
        /// The group's name
        group: String,
        #[command(flatten)]
        which: Which,
    },
}

/// One way of saying which.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// All of them
    #[arg(long)]
    all: bool,
    /// The one at this position; may be given several times
    #[arg(long = "position", value_name = "POS")]
    positions: Vec<Position>,
    /// Those for which this holds, e.g. 'payload.total > 50' (docs/expressions.md)
    #[arg(long, value_name = "F")]
    filter: Option<String>,
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let reach = Reach::existing(session).await?;
    match args.what {
        What::List { group, limit } => list(&reach, &group, limit, session).await,
        What::Redrive { group, which } => {
            let letters = match (which.positions.is_empty(), which.filter) {
                (false, _) => Letters::Positions(which.positions),
                (true, Some(filter)) => Letters::Filter(filter),
                (true, None) => Letters::All,
            };
            let redriven = reach.redrive(&group, letters).await?;
            session.out.result(&json!({ "redriven": redriven }), || format!("{redriven} redriven"))
        }
    }
}

async fn list(reach: &Reach, group: &str, limit: usize, session: &Session) -> Result<(), Stop> {
    let letters = collect(reach, group, limit).await?;
    if session.out.json {
        letters.iter().try_for_each(|letter| session.out.line(letter))?;
        return session.out.flush();
    }
    let heading = ["reason", "attempts", "at", "error", "event"];
    let rows = letters.iter().map(|letter| row(letter)).collect();
    show::table(&session.out, &heading, rows, "there are no dead letters")
}

/// A dead letter in cells; its event stays text, so that the payload keeps every digit.
fn row(letter: &str) -> Vec<String> {
    #[derive(Deserialize)]
    struct Letter<'a> {
        reason: Value,
        attempts: Value,
        at: Value,
        #[serde(default)]
        error: Value,
        #[serde(borrow)]
        event: &'a RawValue,
    }
    let Ok(Letter { reason, attempts, at, error, event }) = serde_json::from_str(letter) else {
        return vec![letter.to_owned()];
    };
    let mut row: Vec<String> = [reason, attempts, at, error].iter().map(show::cell).collect();
    row.push(show::one_line(event.get()));
    row
}

async fn collect(reach: &Reach, group: &str, limit: usize) -> Result<Vec<String>, Stop> {
    let (mut letters, mut cursor): (Vec<String>, Option<String>) = (Vec::new(), None);
    while letters.len() < limit {
        let size = (limit - letters.len()).min(1_000);
        let (page, next) = reach.dead_letters(group, size, cursor.as_deref()).await?;
        letters.extend(page);
        if next.is_none() {
            break;
        }
        cursor = next;
    }
    Ok(letters)
}
