//! `everwhen groups`: durable consumers, made, looked at and driven by hand.

use std::time::Duration;

use clap::Subcommand;
use model::time::parse_duration;
use model::{Code, Problem};
use serde_json::{Map, Value, json};

use super::{show, stdin};
use crate::output::Stop;
use crate::reach::Reach;
use crate::reach::events::filter_value;
use crate::reach::groups::Settle;
use crate::session::Session;

/// Durable consumers: define, pull, acknowledge, move
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen groups put billing --pattern 'order.*' --start beginning
  everwhen groups pull billing --max 10 --json
  everwhen groups ack billing TOKEN
  everwhen groups seek billing '{\"position\": 100}'")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// All groups with their lag
    #[command(after_long_help = "\
Examples:
  everwhen groups list
  everwhen groups list --space shop
  everwhen groups list --json | jq .lag")]
    List {
        /// Only groups that take the events of this space alone
        #[arg(long, value_name = "NAME")]
        space: Option<String>,
    },
    /// One group with everything about it
    #[command(after_long_help = "\
Examples:
  everwhen groups get billing
  everwhen groups get billing --json | jq .halted_on")]
    Get {
        /// The group's name
        name: String,
    },
    /// Make or change a group
    #[command(after_long_help = "\
Examples:
  everwhen groups put billing --pattern 'order.*' --start beginning
  everwhen groups put sync --pattern 'order.#' --ordering strict --on-exhausted halt
  everwhen groups put billing --pattern 'order.*' --backoff '{\"base\":\"1s\",\"max\":\"5m\"}'
  everwhen groups put billing --file billing.json

A file holds the same words as the flags, e.g.
  {\"pattern\": [\"order.*\", \"refund.*\"], \"filter\": \"payload.total > 50\", \"max_retries\": 3}")]
    Put(Box<Put>),
    /// Delete a group and its dead letters
    #[command(after_long_help = "\
Examples:
  everwhen groups rm billing")]
    Rm {
        /// The group's name
        name: String,
    },
    /// Take events; each has a token that settles it, good as long as the process that holds the directory lives
    #[command(after_long_help = "\
Examples:
  everwhen groups pull billing --max 10 --wait 20s --json
  everwhen groups pull billing --ack")]
    Pull {
        /// The group's name
        name: String,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 1)]
        max: usize,
        /// How long to wait for the first
        #[arg(long, value_name = "D", default_value = "0s", value_parser = duration)]
        wait: Duration,
        /// Settle them as soon as they are printed
        #[arg(long)]
        ack: bool,
    },
    /// Done: these events are settled
    #[command(after_long_help = "\
Examples:
  everwhen groups ack billing TOKEN
  everwhen groups ack billing TOKEN TOKEN --sync")]
    Ack {
        /// The group's name
        name: String,
        /// The tokens of the deliveries, as a pull printed them
        #[arg(required = true)]
        tokens: Vec<String>,
        /// Answer when it is on disk
        #[arg(long)]
        sync: bool,
    },
    /// Failed: give these events again later
    #[command(after_long_help = "\
Examples:
  everwhen groups nack billing TOKEN --delay 5m --error 'no route to the bank'")]
    Nack {
        /// The group's name
        name: String,
        /// The tokens of the deliveries, as a pull printed them
        #[arg(required = true)]
        tokens: Vec<String>,
        /// When to give them again [default: the group's backoff]
        #[arg(long, value_name = "D", value_parser = duration)]
        delay: Option<Duration>,
        /// Why; kept with the event
        #[arg(long, value_name = "TEXT")]
        error: Option<String>,
    },
    /// Still at it: move the deadline
    #[command(after_long_help = "\
Examples:
  everwhen groups extend billing TOKEN --by 2m")]
    Extend {
        /// The group's name
        name: String,
        /// The tokens of the deliveries, as a pull printed them
        #[arg(required = true)]
        tokens: Vec<String>,
        /// From now on so long
        #[arg(long, value_name = "D", default_value = "30s", value_parser = duration)]
        by: Duration,
    },
    /// Hopeless: dead letter at once
    #[command(after_long_help = "\
Examples:
  everwhen groups reject billing TOKEN --error 'no such customer'")]
    Reject {
        /// The group's name
        name: String,
        /// The tokens of the deliveries, as a pull printed them
        #[arg(required = true)]
        tokens: Vec<String>,
        /// Why; kept with the event
        #[arg(long, value_name = "TEXT")]
        error: Option<String>,
    },
    /// Move to beginning, end, {"position": N} or {"time": T}
    #[command(after_long_help = "\
Examples:
  everwhen groups seek billing beginning
  everwhen groups seek billing '{\"position\": 100}'
  everwhen groups seek billing 2026-01-31T09:30:00Z")]
    Seek {
        /// The group's name
        name: String,
        /// beginning, end, a position, an instant, or one of the objects above
        to: String,
    },
    /// Hand out nothing until resume
    #[command(after_long_help = "\
Examples:
  everwhen groups pause billing")]
    Pause {
        /// The group's name
        name: String,
    },
    /// Hand out again, also after a halt
    #[command(after_long_help = "\
Examples:
  everwhen groups resume billing")]
    Resume {
        /// The group's name
        name: String,
    },
}

/// A group from flags, or whole from a JSON document.
#[derive(clap::Args)]
struct Put {
    /// The group's name: a-z, 0-9, _ and -, at most 64
    name: String,
    /// Which topics; may be given several times
    #[arg(long, value_name = "P", required_unless_present = "file")]
    pattern: Vec<String>,
    /// The definition as JSON, from a file or - for stdin
    #[arg(long, value_name = "FILE", conflicts_with = "pattern")]
    file: Option<String>,
    /// Only events for which this holds, e.g. 'payload.total > 50' (payload.x is event.payload.x; docs/expressions.md)
    #[arg(long, value_name = "F")]
    filter: Option<String>,
    /// Only events of this space [default: all]
    #[arg(long, value_name = "NAME")]
    space: Option<String>,
    /// now, beginning, a position or an instant; read only when the group is new
    #[arg(long, value_name = "WHERE")]
    start: Option<String>,
    /// How long a delivery may take before it is given again [default: 30s]
    #[arg(long, value_name = "D")]
    ack_deadline: Option<String>,
    /// How many may be out at once [default: 100]
    #[arg(long, value_name = "N")]
    max_inflight: Option<u64>,
    /// How often a failed event is given again [default: 5]
    #[arg(long, value_name = "N")]
    max_retries: Option<u64>,
    /// What waits for what: nothing, events of one key, or all [default: none]
    #[arg(long, value_parser = ["none", "key", "strict"])]
    ordering: Option<String>,
    /// The expression whose values are ordered, with --ordering key
    #[arg(long, value_name = "EXPR")]
    key: Option<String>,
    /// When the retries are used up [default: dead_letter]
    #[arg(long, value_parser = ["dead_letter", "halt", "park_key"])]
    on_exhausted: Option<String>,
    /// When an event is older than its ttl [default: drop]
    #[arg(long, value_parser = ["drop", "dead_letter"])]
    on_expired: Option<String>,
    /// Nothing more sensitive than this [default: black]
    #[arg(long, value_parser = ["green", "amber", "red", "black"])]
    max_band: Option<String>,
    /// How long to wait after failures, as JSON: {"base":"1s","mult":2,"max":"5m"}
    #[arg(long, value_name = "JSON", value_parser = object)]
    backoff: Option<Value>,
    /// What publishing does when the group is too far behind, as JSON: {"do":"refuse","events":1000}
    #[arg(long, value_name = "JSON", value_parser = object)]
    on_lag: Option<Value>,
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    match args.what {
        What::Put(put) => return run_put(&put, session).await,
        What::List { space } => {
            return list(&Reach::existing(session).await?, space.as_deref(), session).await;
        }
        _ => {}
    }
    let reach = Reach::existing(session).await?;
    match args.what {
        What::Get { name } => shown(session, &reach.group(&name).await?),
        What::Rm { name } => {
            reach.delete_group(&name).await?;
            session.out.result(&json!({ "deleted": name }), || format!("deleted {name}"))
        }
        What::Pull { name, max, wait, ack } => {
            let tokens = pull(&reach, &name, max, wait, session).await?;
            if !ack && !tokens.is_empty() && matches!(reach, Reach::Local(_)) {
                session.out.note(&format!(
                    "these tokens end with this command, and the events will be given again: start everwhen serve first, \
                     or settle at once with --ack, or use: everwhen drain {name} --exec CMD"
                ));
            }
            match ack {
                true if !tokens.is_empty() => reach
                    .settle(&name, &tokens, Settle::Ack { sync: true })
                    .await
                    .map(drop)
                    .map_err(Stop::from),
                _ => Ok(()),
            }
        }
        What::Ack { name, tokens, sync } => {
            settle(&reach, &name, &tokens, Settle::Ack { sync }, session).await
        }
        What::Nack { name, tokens, delay, error } => {
            settle(&reach, &name, &tokens, Settle::Nack { delay, error }, session).await
        }
        What::Extend { name, tokens, by } => {
            settle(&reach, &name, &tokens, Settle::Extend { by }, session).await
        }
        What::Reject { name, tokens, error } => {
            settle(&reach, &name, &tokens, Settle::Reject { error }, session).await
        }
        What::Seek { name, to } => {
            let view = reach.seek(&name, &place(&to)).await?;
            shown(session, &view)?;
            session.out.note(&format!("{name} goes on after {}", view["floor"]));
            Ok(())
        }
        What::Pause { name } => shown(session, &reach.pause(&name).await?),
        What::Resume { name } => shown(session, &reach.resume(&name).await?),
        What::List { .. } | What::Put(_) => Ok(()),
    }
}

async fn run_put(put: &Put, session: &Session) -> Result<(), Stop> {
    let definition = definition(put)?;
    put.pattern.iter().for_each(|pattern| show::remark_on_pattern(&session.out, pattern));
    let (created, view) = Reach::or_create(session).await?.put_group(&put.name, &definition).await?;
    session.out.result(&view, || format!("{} {}", if created { "created" } else { "changed" }, put.name))
}

fn definition(put: &Put) -> Result<Value, Problem> {
    if let Some(file) = &put.file {
        let bytes = stdin::read(file)?;
        model::json::check(&bytes, engine::settings::DEPTH_MAX)?;
        return serde_json::from_slice(&bytes).map_err(|e| Problem::new(Code::JsonInvalid, e.to_string()));
    }
    let text = |value: &Option<String>| value.as_ref().map(|v| json!(v));
    let fields = [
        ("pattern", Some(if put.pattern.len() == 1 { json!(put.pattern[0]) } else { json!(put.pattern) })),
        ("filter", put.filter.as_deref().map(filter_value)),
        ("space", text(&put.space)),
        ("start", put.start.as_deref().map(place)),
        ("ack_deadline", text(&put.ack_deadline)),
        ("max_inflight", put.max_inflight.map(|v| json!(v))),
        ("max_retries", put.max_retries.map(|v| json!(v))),
        ("ordering", text(&put.ordering)),
        ("key", text(&put.key)),
        ("on_exhausted", text(&put.on_exhausted)),
        ("on_expired", text(&put.on_expired)),
        ("max_band", text(&put.max_band)),
        ("backoff", put.backoff.clone()),
        ("on_lag", put.on_lag.clone()),
    ];
    let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Ok(Value::Object(given.collect::<Map<_, _>>()))
}

fn object(text: &str) -> Result<Value, String> {
    let object = serde_json::from_str(text).ok().filter(Value::is_object);
    object.ok_or_else(|| "not a JSON object".to_owned())
}

/// A place in the ledger as typed: a bare number is a position, a bare instant a time.
pub fn place(text: &str) -> Value {
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Number(position)) => json!({ "position": position }),
        Ok(object @ Value::Object(_)) => object,
        _ if model::Timestamp::parse(text).is_ok() => json!({ "time": text }),
        _ => json!(text),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "not a duration; write it like 30s, 5m or 1h30m".to_owned())
}

async fn list(reach: &Reach, space: Option<&str>, session: &Session) -> Result<(), Stop> {
    let mut groups = reach.groups().await?;
    groups.retain(|group| space.is_none_or(|space| group["space"] == space));
    if session.out.json {
        groups.iter().try_for_each(|group| session.out.line(&group.to_string()))?;
        return session.out.flush();
    }
    let row = |group: &Value| {
        let fields = ["name", "pattern", "floor", "lag", "inflight", "dead_letters"];
        let mut row: Vec<String> = fields.iter().map(|field| show::cell(&group[*field])).collect();
        row.push(state(group));
        row
    };
    let heading = ["name", "pattern", "floor", "lag", "in flight", "dead", "state"];
    show::table(&session.out, &heading, groups.iter().map(row).collect(), "there are no groups")
}

fn state(group: &Value) -> String {
    match (&group["paused"], &group["halted_on"]) {
        (Value::Bool(true), _) => "paused".to_owned(),
        (_, Value::Number(position)) => format!("halted on {position}"),
        _ => "running".to_owned(),
    }
}

/// A whole group: the document, or a field per line.
fn shown(session: &Session, view: &Value) -> Result<(), Stop> {
    session.out.result(view, || {
        let fields = view.as_object().into_iter().flatten();
        fields.map(|(name, value)| format!("{name}: {}", show::cell(value))).collect::<Vec<_>>().join("\n")
    })
}

async fn pull(
    reach: &Reach,
    name: &str,
    max: usize,
    wait: Duration,
    session: &Session,
) -> Result<Vec<String>, Stop> {
    let deliveries = reach.pull(name, max, wait).await?;
    for delivery in &deliveries {
        let (token, event) = (json!(delivery.token), delivery.event.get());
        session.out.line(&match session.out.json {
            true => format!(
                "{{\"token\":{token},\"attempt\":{},\"deadline\":\"{}\",\"event\":{event}}}",
                delivery.attempt, delivery.deadline
            ),
            false => format!("{} {}", delivery.token, show::one_line(event)),
        })?;
    }
    if deliveries.is_empty() {
        session.out.note("nothing to give");
    }
    session.out.flush()?;
    Ok(deliveries.into_iter().map(|delivery| delivery.token).collect())
}

async fn settle(
    reach: &Reach,
    name: &str,
    tokens: &[String],
    how: Settle,
    session: &Session,
) -> Result<(), Stop> {
    if let Some(token) = tokens.iter().find(|token| engine::deliver::Token::parse(token).is_none()) {
        return Err(Problem::new(Code::UsageInvalid, format!("\"{token}\" is not a token of a delivery"))
            .hint(format!("a pull prints them before each event: everwhen groups pull {name}"))
            .into());
    }
    let answer = reach.settle(name, tokens, how).await?;
    session.out.result(&answer, || {
        let stale = answer["stale"].as_array().map_or(0, Vec::len);
        if stale == 0 {
            format!("{} done", answer["done"])
        } else {
            format!("{} done, {stale} stale", answer["done"])
        }
    })?;
    if answer["done"] != 0 {
        return Ok(());
    }
    session.out.note(match reach {
        Reach::Local(_) => {
            "a token ends with the command that pulled it: start everwhen serve, then pull and settle"
        }
        Reach::Remote(_) => {
            "settled before, past their deadline, or pulled before the server started: pull again"
        }
    });
    Err(Stop::Code(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_is_typed() {
        assert_eq!(place("7"), json!({"position": 7}));
        assert_eq!(place("beginning"), json!("beginning"));
        assert_eq!(place(r#"{"time":"2026-01-01T00:00:00Z"}"#), json!({"time":"2026-01-01T00:00:00Z"}));
        assert_eq!(place("2026-01-01T00:00:00Z"), json!({"time":"2026-01-01T00:00:00Z"}));
    }
}
