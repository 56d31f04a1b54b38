//! `everwhen tail`: events as they come.

use model::Position;

use crate::commands::show;
use crate::output::Stop;
use crate::reach::Reach;
use crate::reach::events::Finding;
use crate::session::Session;

/// Print events as they come
///
/// From now on, or from a position; --no-follow prints what is there and ends. A server that goes away is waited for: when
/// it is back, tail goes on after the last event that it has seen. On a directory without a server, tail holds the
/// directory and lets other commands in while it runs.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen tail 'order.#' --after 0
  everwhen tail --filter 'event.payload.total > 100' --json | jq .payload")]
pub struct Args {
    /// Which topics: * is one word, # any number of words
    #[arg(default_value = "#")]
    pattern: String,
    /// Begin after this position; 0 is the first event, where nothing was trimmed
    #[arg(long, value_name = "POS", value_parser = show::parse_position, allow_hyphen_values = true)]
    after: Option<u64>,
    /// Only events for which this holds, e.g. 'payload.total > 50' (payload.x is event.payload.x; docs/expressions.md)
    #[arg(long, value_name = "F")]
    filter: Option<String>,
    /// Only events of this space
    #[arg(long, value_name = "NAME")]
    space: Option<String>,
    /// End when all that is there was printed
    #[arg(long)]
    no_follow: bool,
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let Args { pattern, after, filter, space, no_follow } = args;
    show::remark_on_pattern(&session.out, &pattern);
    let finding = Finding { topic: Some(pattern), after, filter, space, limit: 1_000, ..Finding::default() };
    match no_follow {
        true => what_is_there(finding, session).await,
        false => follow(finding, session).await,
    }
}

async fn what_is_there(finding: Finding, session: &Session) -> Result<(), Stop> {
    let (reach, after) = (Reach::existing(session).await?, finding.after);
    print_all(&reach, finding, session, None).await?;
    if let Some(after) = after {
        let newest = Finding { descending: true, limit: 1, ..Finding::default() };
        let last = reach.find(&newest).await?.events.first().map_or(0, |event| show::position(event));
        if after > last {
            session.out.note(&format!("nothing is after {after}: the last event is at {last}"));
        }
    }
    Ok(())
}

/// Changes of the rows of a concept as they come, or of one row.
pub async fn changes(
    concept: &str,
    id: Option<&str>,
    space: Option<String>,
    session: &Session,
) -> Result<(), Stop> {
    // A bare name may belong to any domain.
    let concept = if concept.contains(':') { concept.to_owned() } else { format!("*:{concept}") };
    let filter = id.map(|id| format!("event.subject.id == {}", serde_json::Value::from(id)));
    let finding = Finding {
        topic: Some(format!("graph.node.*.{concept}")),
        filter,
        space,
        limit: 1_000,
        ..Finding::default()
    };
    follow(finding, session).await
}

async fn follow(finding: Finding, session: &Session) -> Result<(), Stop> {
    let reach = Reach::or_create(session).await?;
    let mut follower = reach.follow(finding, session).await?;
    let mut host = reach.share().await?;
    let printed = loop {
        let next = tokio::select! {
            events = follower.next() => events.map_err(Stop::from).and_then(|events| print(&events, session)),
            () = reader_left() => Err(Stop::Pipe),
        };
        if next.is_err() {
            break next;
        }
    };
    if let Some(host) = host.take() {
        host.stop().await?;
    }
    printed
}

/// Ends when nobody reads our stdout any more, also while there is nothing to print.
async fn reader_left() {
    use rustix::event::{PollFd, PollFlags, poll};
    loop {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        let stdout = std::io::stdout();
        let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::ERR) {
            return;
        }
    }
}

fn print(events: &[String], session: &Session) -> Result<(), Stop> {
    events.iter().try_for_each(|event| show::event(&session.out, event))?;
    session.out.flush()
}

/// Prints every page of a search, up to `most` events. When there are more, the position of the last printed.
pub async fn print_all(
    reach: &Reach,
    mut finding: Finding,
    session: &Session,
    most: Option<usize>,
) -> Result<Option<Position>, Stop> {
    let mut left = most.unwrap_or(usize::MAX);
    let mut last = 0;
    while left > 0 {
        finding.limit = left.min(1_000);
        let found = reach.find(&finding).await?;
        print(&found.events, session)?;
        left -= found.events.len().min(left);
        last = found.events.last().map_or(last, |event| show::position(event));
        match found.next {
            Some(next) => finding.cursor = Some(next),
            None => return Ok(None),
        }
    }
    Ok(Some(last))
}
