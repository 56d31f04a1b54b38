//! `everwhen events`: find stored events, show one, show what led to it, or what is still to come.

use clap::Subcommand;
use model::{Code, Problem, Timestamp};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{show, tail};
use crate::output::Stop;
use crate::reach::Reach;
use crate::reach::events::Finding;
use crate::session::Session;

/// Events that a search shows unless it says how many.
const LIMIT: usize = 100;

/// Find events, show one, or show where it came from
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen events --space shop --order desc --limit 5
  everwhen events list --topic 'order.*' --since 1h --limit 20
  everwhen events get 42 --json
  everwhen events lineage 42")]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    list: List,
}

#[derive(Subcommand)]
enum What {
    /// Search the ledger, oldest first
    #[command(after_long_help = "\
Examples:
  everwhen events list --topic 'order.*' --order desc --limit 5
  everwhen events list --topic 'order.*' --since 1h --limit 20
  everwhen events list --subject item/10472 --order desc --json | jq .payload")]
    List(List),
    /// Show one event by position or id
    #[command(after_long_help = "\
Examples:
  everwhen events get 42
  everwhen events get 42 | jq .payload")]
    Get {
        /// A position or an id
        id: String,
    },
    /// Show publishes that were deferred and wait for their time, soonest first
    #[command(after_long_help = "\
Examples:
  everwhen events deferred
  everwhen events deferred --json | jq '.event.topic'")]
    Deferred {
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = limit)]
        limit: usize,
    },
    /// Show what led to an event and what it led to
    #[command(after_long_help = "\
Examples:
  everwhen events lineage 42
  everwhen events lineage 42 --json | jq '.causes[].topic'")]
    Lineage {
        /// A position or an id
        id: String,
    },
}

// No doc comment: it would become that of `events`, where these flags stand, too.
#[derive(clap::Args)]
pub struct List {
    /// Which topics: * is one word, # any number of words
    #[arg(long, value_name = "PATTERN")]
    topic: Option<String>,
    /// Only events of this space
    #[arg(long, value_name = "NAME")]
    space: Option<String>,
    /// Only events about this thing
    #[arg(long, value_name = "KIND/ID")]
    subject: Option<String>,
    /// Positions above this
    #[arg(long, value_name = "POS", value_parser = show::parse_position, allow_hyphen_values = true)]
    after: Option<u64>,
    /// Positions below this
    #[arg(long, value_name = "POS", value_parser = show::parse_position, allow_hyphen_values = true)]
    before: Option<u64>,
    /// At or after this instant, or so long ago (10m, 2d)
    #[arg(long, value_name = "T")]
    since: Option<String>,
    /// Before this instant, or so long ago
    #[arg(long, value_name = "T")]
    until: Option<String>,
    /// Only events for which this holds, e.g. 'payload.total > 50' (payload.x is event.payload.x; docs/expressions.md)
    #[arg(long, value_name = "F")]
    filter: Option<String>,
    /// Oldest first, or newest first
    #[arg(long, value_parser = ["asc", "desc"], default_value = "asc")]
    order: String,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = LIMIT, value_parser = limit)]
    limit: usize,
}

impl List {
    fn says_something(&self) -> bool {
        let List { topic, space, subject, after, before, since, until, filter, order, limit } = self;
        let texts = [topic, space, subject, since, until, filter];
        let positions = after.or(*before);
        texts.into_iter().any(Option::is_some) || positions.is_some() || order != "asc" || *limit != LIMIT
    }
}

/// Flags of a search before another word would say nothing.
fn before_its_word() -> Problem {
    Problem::new(Code::UsageInvalid, "flags of a search stand before a word that they do not belong to")
        .hint("write them after it: everwhen events list --topic 'order.*'")
}

fn limit(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n >= 1).ok_or_else(|| "not a whole number from 1 on".to_owned())
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let what = match args.what {
        None => What::List(args.list),
        Some(_) if args.list.says_something() => return Err(before_its_word().into()),
        Some(what) => what,
    };
    match what {
        What::List(list) => {
            let (most, finding) = (list.limit, finding(list)?);
            show::remark_on_pattern(&session.out, finding.topic.as_deref().unwrap_or_default());
            let (reach, newest_first) = (Reach::existing(session).await?, finding.descending);
            if let Some(last) = tail::print_all(&reach, finding, session, Some(most)).await? {
                session.out.note(&match newest_first {
                    true => format!("there are more, older ones: add --before {last}, or raise --limit"),
                    false => format!(
                        "there are more, newer ones: add --after {last}, raise --limit, or see the newest first with \
                         --order desc"
                    ),
                });
            }
            Ok(())
        }
        What::Get { id } => {
            let event = Reach::existing(session).await?.event(&id).await?;
            session.out.line(&event)?;
            session.out.flush()
        }
        What::Deferred { limit } => {
            let deferred = Reach::existing(session).await?.deferred(limit.min(1_000)).await?;
            if session.out.json {
                deferred.iter().try_for_each(|text| session.out.line(text))?;
                return session.out.flush();
            }
            let rows = deferred.iter().map(|text| waiting(text)).collect();
            show::table(
                &session.out,
                &["until", "id", "topic", "payload"],
                rows,
                "no publish waits for its time",
            )
        }
        What::Lineage { id } => {
            let lineage = Reach::existing(session).await?.lineage(&id).await?;
            session.out.line(&if session.out.json { lineage } else { show::lineage(&lineage) })?;
            session.out.flush()
        }
    }
}

/// A deferred publish in cells; its event stays text, so that the payload keeps every digit.
fn waiting(text: &str) -> Vec<String> {
    #[derive(Deserialize)]
    struct Waiting<'a> {
        until: String,
        #[serde(borrow)]
        event: Event<'a>,
    }
    #[derive(Deserialize)]
    struct Event<'a> {
        id: String,
        topic: String,
        #[serde(borrow, default, deserialize_with = "show::present")]
        payload: Option<&'a RawValue>,
    }
    let Ok(Waiting { until, event }) = serde_json::from_str(text) else { return vec![text.to_owned()] };
    let payload = event.payload.map_or("(erased)", RawValue::get);
    vec![until, event.id, event.topic, payload.to_owned()]
}

fn finding(list: List) -> Result<Finding, Problem> {
    Ok(Finding {
        topic: list.topic,
        space: list.space,
        subject: list.subject,
        after: list.after,
        before: list.before,
        since: list.since.as_deref().map(instant).transpose()?,
        until: list.until.as_deref().map(instant).transpose()?,
        filter: list.filter,
        descending: list.order == "desc",
        limit: list.limit,
        cursor: None,
    })
}

/// An instant as people give it on a command line: RFC 3339, or how long ago.
pub fn instant(text: &str) -> Result<Timestamp, Problem> {
    use engine::clock::{Clock, SystemClock};
    match model::time::parse_duration(text) {
        Some(ago) => Ok(SystemClock.now().minus(ago)),
        None => Timestamp::parse(text).map_err(|_| {
            Problem::new(Code::UsageInvalid, format!("\"{text}\" is neither an instant nor a duration"))
                .hint("write it like 2026-01-31T09:30:00Z, or like 10m for ten minutes ago")
        }),
    }
}
