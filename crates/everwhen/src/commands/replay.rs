//! `everwhen replay`: the past again, to stdout or into a group.

use serde_json::json;

use super::events::instant;
use crate::output::Stop;
use crate::reach::Reach;
use crate::reach::events::Finding;
use crate::session::Session;

/// Give past events again: to stdout as NDJSON, or into a group
///
/// --into moves the group back to that place, so that it gets everything from there on again.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen replay --since 1d --topic 'order.#' > yesterday.ndjson
  everwhen replay --from 100 --into billing")]
#[command(group = clap::ArgGroup::new("where").required(true).args(["from", "since"]))]
pub struct Args {
    /// From this position on
    #[arg(long, value_name = "POS", value_parser = clap::value_parser!(u64).range(1..))]
    from: Option<u64>,
    /// From this instant on, or so long ago (10m, 2d)
    #[arg(long, value_name = "T")]
    since: Option<String>,
    /// Up to this instant
    #[arg(long, value_name = "T", conflicts_with = "into")]
    until: Option<String>,
    /// Only these topics
    #[arg(long, value_name = "PATTERN", conflicts_with = "into")]
    topic: Option<String>,
    /// Only events for which this holds, e.g. 'payload.total > 50' (payload.x is event.payload.x; docs/expressions.md)
    #[arg(long, value_name = "F", conflicts_with = "into")]
    filter: Option<String>,
    /// Only events of this space
    #[arg(long, value_name = "NAME", conflicts_with = "into")]
    space: Option<String>,
    /// Move this group there instead of printing
    #[arg(long, value_name = "GROUP")]
    into: Option<String>,
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let since = args.since.as_deref().map(instant).transpose()?;
    let reach = Reach::existing(session).await?;
    if let Some(group) = &args.into {
        let to = match (args.from, since) {
            (Some(position), _) => json!({ "position": position }),
            (None, since) => json!({ "time": since }),
        };
        let view = reach.seek(group, &to).await?;
        return session.out.result(&view, || format!("{group} goes on after position {}", view["floor"]));
    }
    let finding = Finding {
        topic: args.topic,
        space: args.space,
        after: args.from.map(|from| from - 1),
        since,
        until: args.until.as_deref().map(instant).transpose()?,
        filter: args.filter,
        ..Finding::default()
    };
    print_ndjson(&reach, finding, session).await
}

/// Every event of a search as it stands, one per line.
pub async fn print_ndjson(reach: &Reach, mut finding: Finding, session: &Session) -> Result<(), Stop> {
    finding.limit = 1_000;
    let bar = session.out.progress("events", 0);
    loop {
        let found = reach.find(&finding).await?;
        found.events.iter().try_for_each(|event| session.out.line(event))?;
        session.out.flush()?;
        bar.inc(found.events.len() as u64);
        match found.next {
            Some(next) => finding.cursor = Some(next),
            None => break,
        }
    }
    bar.finish_and_clear();
    Ok(())
}
