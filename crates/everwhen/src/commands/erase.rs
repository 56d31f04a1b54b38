//! `everwhen erase`: take the content of events out of the ledger for good, leaving their place in the chain.

use model::Position;
use serde_json::json;

use crate::output::Stop;
use crate::reach::Reach;
use crate::session::Session;

/// Erase the content of events; their place in the chain stays
///
/// Payload and extensions go from the ledger, the state and every copy; position, topic and time stay, and verify
/// still holds. This cannot be undone. Backups made before still have the content.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen erase 42 43
  everwhen events list --subject user/7 --json | jq .position | xargs -r everwhen erase")]
pub struct Args {
    /// The events' positions
    #[arg(required = true, value_name = "POSITION", value_parser = clap::value_parser!(u64).range(1..))]
    positions: Vec<Position>,
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let erased = Reach::existing(session).await?.erase(&args.positions).await?;
    session.out.result(&json!({ "erased": erased }), || format!("{erased} erased"))
}
