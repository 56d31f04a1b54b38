//! `everwhen clock`: moves the time of a server that was started with `--clock`.

use std::time::Duration;

use model::time;
use serde_json::{Value, json};

use crate::output::Stop;
use crate::reach::Reach;
use crate::session::Session;

/// Move the time of a server that was started with `serve --clock`
///
/// Its time stands still otherwise. Everything that is due by the new time is done, each at its own instant, before this
/// ends; without --advance and --to it only waits for what is due now.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen clock --advance 5m
  everwhen clock --to 2026-03-29T03:00:00Z")]
pub struct Args {
    /// By so much
    #[arg(long, value_name = "D", value_parser = super::runs::length, conflicts_with = "to")]
    advance: Option<Duration>,
    /// To this instant, which is not in its past
    #[arg(long, value_name = "INSTANT")]
    to: Option<String>,
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let reach = Reach::existing(session).await?;
    let by = match args.to {
        Some(to) => json!({ "to": to }),
        None => json!({ "advance": time::duration_json(args.advance.unwrap_or_default()) }),
    };
    let now: Value = reach.move_clock(&by).await?;
    session.out.result(&now, || now["now"].as_str().unwrap_or_default().to_owned())
}
