//! `everwhen export`: the ledger as NDJSON, events or every record.

use super::replay::print_ndjson;
use crate::output::Stop;
use crate::reach::Reach;
use crate::reach::events::Finding;
use crate::session::Session;

/// Print all events as NDJSON, to be imported elsewhere
///
/// --records prints every record of the ledger instead, gapless: what the engine wrote about groups, snapshots and
/// itself as well.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen export > events.ndjson
  everwhen export --topic 'order.#' | everwhen import --data other")]
pub struct Args {
    /// Only these topics
    #[arg(long, value_name = "PATTERN")]
    topic: Option<String>,
    /// Only events of this space
    #[arg(long, value_name = "NAME")]
    space: Option<String>,
    /// Only positions above this
    #[arg(long, value_name = "POS")]
    after: Option<u64>,
    /// Every record, not only events
    #[arg(long, conflicts_with_all = ["topic", "space"])]
    records: bool,
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let reach = Reach::existing(session).await?;
    if args.records {
        return reach.records(args.after.unwrap_or(0) + 1, session).await;
    }
    let finding = Finding { topic: args.topic, space: args.space, after: args.after, ..Finding::default() };
    print_ndjson(&reach, finding, session).await
}
