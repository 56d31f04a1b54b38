//! `everwhen clock`: moves the time of a server that was started with `--clock`.

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
    #[arg(long, value_name = "D", value_parser = length, conflicts_with = "to")]
    advance: Option<f64>,
    /// To this instant, which is not in its past
    #[arg(long, value_name = "INSTANT")]
    to: Option<String>,
}

fn length(text: &str) -> Result<f64, String> {
    let length = time::parse_duration(text).ok_or("not a length of time; write it like 5m or 1h30m")?;
    Ok(length.as_secs_f64())
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let reach = Reach::existing(session).await?;
    let by = match args.to {
        Some(to) => json!({ "to": to }),
        None => json!({ "advance": args.advance.unwrap_or(0.0) }),
    };
    let now: Value = reach.move_clock(&by).await?;
    session.out.result(&now, || now["now"].as_str().unwrap_or_default().to_owned())
}
