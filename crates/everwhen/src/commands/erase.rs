//! `everwhen erase`: take the content of events out of the ledger for good, leaving their place in the chain.

use model::{Code, Position, Problem};
use serde_json::{Value, json};

use crate::output::Stop;
use crate::reach::Reach;
use crate::session::Session;

/// Erase the content of events; their place in the chain stays
///
/// Payload and extensions go from the ledger, the state and what was derived from them. The envelope stays: position,
/// topic, time, and also id, space, subject, key, source and actor, so keep people's names out of those. Verify still
/// holds. This cannot be undone. Backups made before still have the content.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen erase 42 43
  everwhen erase 01JZZ0Q4T5C8M3F7V9X2K6A1BD
  everwhen events list --subject user/7 --json | jq .position | xargs -r everwhen erase")]
pub struct Args {
    /// The events' positions or ids
    #[arg(required = true, value_name = "POSITION|ID", value_parser = named)]
    events: Vec<String>,
}

/// Digits alone are a position.
fn named(text: &str) -> Result<String, String> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    match digits && !text.parse::<Position>().is_ok_and(|position| position > 0) {
        true => Err("not a position; positions begin with 1".to_owned()),
        false => Ok(text.to_owned()),
    }
}

async fn position_of(reach: &Reach, id: &str) -> Result<Position, Problem> {
    let event: Value = serde_json::from_str(&reach.event(id).await?).unwrap_or_default();
    let unread = || Problem::new(Code::Internal, format!("the event \"{id}\" has no position"));
    event["position"].as_u64().ok_or_else(unread)
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let reach = Reach::existing(session).await?;
    let mut positions = Vec::with_capacity(args.events.len());
    for event in &args.events {
        positions.push(match event.parse() {
            Ok(position) => position,
            Err(_) => position_of(&reach, event).await?,
        });
    }
    let erased = reach.erase(&positions).await?;
    session.out.result(&json!({ "erased": erased }), || format!("{erased} erased"))
}
