//! `everwhen dead-letters`: what a group gave up on, and giving it back.

use clap::Subcommand;
use model::Position;
use serde_json::{Value, json};

use super::{events, show};
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
    List {
        group: String,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
    },
    /// Give dead letters back to their group
    Redrive {
        group: String,
        /// All of them
        #[arg(long, required_unless_present_any = ["positions", "filter"])]
        all: bool,
        /// The one at this position; may be given several times
        #[arg(long = "position", value_name = "POS", conflicts_with_all = ["all", "filter"])]
        positions: Vec<Position>,
        /// Those for which this holds
        #[arg(long, value_name = "F", conflicts_with = "all")]
        filter: Option<String>,
    },
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let reach = Reach::existing(session).await?;
    match args.what {
        What::List { group, limit } => list(&reach, &group, limit, session).await,
        What::Redrive { group, positions, filter, .. } => {
            let letters = match (positions.is_empty(), filter) {
                (false, _) => Letters::Positions(positions),
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
        letters.iter().try_for_each(|letter| session.out.line(&letter.to_string()))?;
        return session.out.flush();
    }
    let row = |letter: &Value| {
        let mut row: Vec<String> =
            ["reason", "attempts", "at"].iter().map(|field| show::cell(&letter[*field])).collect();
        row.push(show::cell(&letter["error"]));
        row.push(events::line_of(&letter["event"]));
        row
    };
    let heading = ["reason", "attempts", "at", "error", "event"];
    show::table(&session.out, &heading, letters.iter().map(row).collect(), "there are no dead letters")
}

async fn collect(reach: &Reach, group: &str, limit: usize) -> Result<Vec<Value>, Stop> {
    let (mut letters, mut cursor): (Vec<Value>, Option<String>) = (Vec::new(), None);
    while letters.len() < limit {
        let size = (limit - letters.len()).min(1_000);
        let mut page = reach.dead_letters(group, size, cursor.as_deref()).await?;
        if let Some(Value::Array(items)) = page.get_mut("dead_letters").map(Value::take) {
            letters.extend(items);
        }
        match page["next"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }
    Ok(letters)
}
