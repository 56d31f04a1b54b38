//! `everwhen publish`: one event from the command line, or many as lines of JSON.

use bytes::Bytes;
use clap::builder::PossibleValuesParser;
use engine::admit::{Admitter, Context};
use engine::{Caller, Draft};
use model::event::push_text;
use model::{Code, Problem, Timestamp};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::stdin;
use crate::output::Stop;
use crate::reach::Reach;
use crate::reach::events::{line_answer, subject};
use crate::session::{Place, Session};

/// Append an event and print its position once it is on disk
///
/// The payload is JSON: written out, read from a file (`@file`) or from stdin (`-`); default {}. With --ndjson each
/// line of the input is one event, answered by itself; lines that fail do not stop the others (exit 4 at the end).
///
/// An [[attention]] rule of everwhen.toml may defer an event ("deferred until …": it gets its position then) or
/// drop it ("dropped by …": nothing is stored). Both exit with 0.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen publish price.changed '{\"new\": 9.5}' --subject item/10472 --key import-7
  seq 3 | sed 's/.*/{\"topic\":\"tick\",\"payload\":&}/' | everwhen publish --ndjson -")]
pub struct Args {
    /// What it is about, words split by dots
    #[arg(required_unless_present = "ndjson", conflicts_with = "ndjson")]
    topic: Option<String>,
    /// JSON, @file, or - for stdin
    #[arg(allow_negative_numbers = true)]
    payload: Option<String>,
    /// Publish each line of FILE (- is stdin) as an event
    #[arg(long, value_name = "FILE")]
    ndjson: Option<String>,
    /// The same key with the same content is stored once
    #[arg(long, value_name = "K")]
    key: Option<String>,
    /// The thing it concerns; without a slash it is an id without a kind
    #[arg(long, value_name = "KIND/ID")]
    subject: Option<String>,
    /// When it happened [default: now]
    #[arg(long, value_name = "T", value_parser = instant)]
    time: Option<String>,
    /// After this long nobody wants it any more, e.g. 30s
    #[arg(long, value_name = "D", value_parser = duration)]
    ttl: Option<String>,
    /// How sensitive it is
    #[arg(long, value_name = "B", value_parser = PossibleValuesParser::new(["green", "amber", "red", "black"]))]
    band: Option<String>,
    /// 0 to 9, higher first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=9))]
    priority: Option<u8>,
    /// The scope inside the tenant
    #[arg(long, value_name = "NAME")]
    space: Option<String>,
    /// The system that says so
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// The position of the event that led to this one
    #[arg(long, value_name = "POS")]
    cause: Option<u64>,
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    match (&args.ndjson, &args.topic) {
        (Some(input), _) => publish_lines(input, session).await,
        (None, Some(topic)) => {
            is_topic(topic, args.payload.is_some())?;
            let event = event_text(topic, &args)?;
            if let Some(admitter) = before_it_begins(session)? {
                judge(&admitter, event.as_bytes())?;
            }
            let answer = Reach::or_create(session).await?.publish(event.into_bytes()).await?;
            session.out.result(&answer, || words(&answer))
        }
        (None, None) => Err(Problem::new(Code::UsageInvalid, "a topic is needed").into()),
    }
}

/// A topic may look like JSON, but who gives only that has forgotten the topic.
fn is_topic(topic: &str, has_payload: bool) -> Result<(), Problem> {
    if has_payload || !topic.trim_start().starts_with(['{', '[']) {
        return Ok(());
    }
    Err(Problem::new(Code::UsageInvalid, "the topic is missing: what is given looks like a payload").hint(
        "everwhen publish TOPIC '{\"a\": 1}'; whole events, one a line, are published by: everwhen publish --ndjson -",
    ))
}

/// What is refused anyway makes no directory and no tenant. Where there are some, they judge for themselves.
fn before_it_begins(session: &Session) -> Result<Option<Admitter>, Problem> {
    let Place::Directory(data) = session.place()? else { return Ok(None) };
    let tenant = session.tenant()?;
    if data.join("tenants").join(&tenant).exists() {
        return Ok(None);
    }
    let mut settings = session.config()?.settings;
    if let Some(switches) = settings.tenants.get(&tenant) {
        settings.switches = *switches;
    }
    Admitter::new(&settings, Vec::new()).map(Some)
}

fn judge(admitter: &Admitter, event: &[u8]) -> Result<(), Problem> {
    let draft = Draft::parse(event, &admitter.limits())?;
    // Any id and salt will do: nothing of it is kept.
    let mut context =
        Context { now: Timestamp::EPOCH, entropy: &mut |bytes| bytes.fill(0xff), cause_depth: None };
    admitter.admit(&Caller::local(), draft, &mut context).map(|_| ())
}

/// Checked here, passed on as it was typed.
fn duration(text: &str) -> Result<String, String> {
    let read = model::time::parse_duration(text).map(|_| text.to_owned());
    read.ok_or_else(|| "not a duration; write it like 30s, 5m or 1h30m".to_owned())
}

/// Checked here, passed on as it was typed.
fn instant(text: &str) -> Result<String, String> {
    let read = model::Timestamp::parse(text).map(|_| text.to_owned());
    read.map_err(|_| "not an instant; write it like 2026-01-31T09:30:00Z".to_owned())
}

async fn publish_lines(input: &str, session: &Session) -> Result<(), Stop> {
    let mut lines = stdin::lines(input)?;
    let (mut failed, mut unread) = (0u64, Ok(()));
    let mut told = |answer: Value| {
        failed += u64::from(answer["error"].is_object());
        // What is in the input is stored, also when nobody reads the answers any more.
        if unread.is_ok() {
            unread = told(&answer, session);
        }
        Ok(())
    };
    match before_it_begins(session)? {
        None => Reach::or_create(session).await?.publish_lines(lines, &mut told).await?,
        Some(admitter) => {
            if let Some((refused, first)) = first_admitted(&admitter, &mut lines, &mut told).await? {
                let mut told = |answer| told(further(answer, refused));
                let lines = with_first(first, lines);
                Reach::or_create(session).await?.publish_lines(lines, &mut told).await?;
            }
        }
    }
    if failed == 0 {
        return unread;
    }
    let refused =
        Problem::new(Code::EventInvalid, format!("{failed} lines were refused, the others are stored"))
            .hint("each refused line is named above; mend those and publish them again");
    Err(refused.with("refused", failed).into())
}

/// Answers lines until one is not refused: that one, and how many stood before it.
async fn first_admitted(
    admitter: &Admitter,
    lines: &mut mpsc::Receiver<Bytes>,
    told: &mut dyn FnMut(Value) -> Result<(), Stop>,
) -> Result<Option<(u64, Bytes)>, Stop> {
    let mut before = 0;
    while let Some(line) = lines.recv().await {
        if !line.trim_ascii().is_empty() {
            match judge(admitter, &line) {
                Ok(()) => return Ok(Some((before, line))),
                Err(problem) => told(line_answer(before + 1, Err(problem)))?,
            }
        }
        before += 1;
    }
    Ok(None)
}

/// A line that was taken out stands before the others again.
fn with_first(first: Bytes, mut rest: mpsc::Receiver<Bytes>) -> mpsc::Receiver<Bytes> {
    let (sender, receiver) = mpsc::channel(1_024);
    tokio::spawn(async move {
        let mut next = Some(first);
        while let Some(line) = next {
            if sender.send(line).await.is_err() {
                return;
            }
            next = rest.recv().await;
        }
    });
    receiver
}

/// Lines are counted from the first of the input, also when some were answered before the others went on.
fn further(mut answer: Value, before: u64) -> Value {
    if let Some(line) = answer["error"]["line"].as_u64() {
        answer["error"]["line"] = json!(line + before);
    }
    answer
}

/// One line's answer, printed when it is true: whoever waits for it may be waiting to send the next line.
fn told(answer: &Value, session: &Session) -> Result<(), Stop> {
    let (out, error) = (&session.out, &answer["error"]);
    match (out.json, error.is_null()) {
        (true, _) => out.line(&answer.to_string())?,
        (false, true) => out.line(&words(answer))?,
        (false, false) => {
            let message = error["message"].as_str().unwrap_or_default();
            out.say(&format!("line {}: {message}", error["line"]));
        }
    }
    out.flush()
}

/// What became of an event, for a person: its position, or why it has none.
fn words(answer: &Value) -> String {
    match answer["verdict"].as_str() {
        Some("defer") => format!("deferred until {}", answer["until"].as_str().unwrap_or_default()),
        Some(_) => format!("dropped by {}", answer["rule"].as_str().unwrap_or("a rule")),
        None => answer["position"].to_string(),
    }
}

/// The event as text; the payload is passed through as it was typed, digit for digit.
fn event_text(topic: &str, args: &Args) -> Result<String, Problem> {
    let payload = payload(args.payload.as_deref())?;
    let mut out = String::from("{\"topic\":");
    push_text(&mut out, topic);
    let subject = args.subject.as_deref().map(subject);
    let fields = [
        ("key", args.key.as_ref().map(|v| json!(v))),
        ("subject", subject.map(|s| json!({ "kind": s.kind, "id": s.id }))),
        ("time", args.time.as_ref().map(|v| json!(v))),
        ("ttl", args.ttl.as_ref().map(|v| json!(v))),
        ("band", args.band.as_ref().map(|v| json!(v))),
        ("priority", args.priority.map(|v| json!(v))),
        ("space", args.space.as_ref().map(|v| json!(v))),
        ("source", args.source.as_ref().map(|v| json!(v))),
        ("cause", args.cause.map(|v| json!(v))),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            out.push_str(&format!(",\"{name}\":{value}"));
        }
    }
    if let Some(payload) = payload {
        out.push_str(",\"payload\":");
        out.push_str(&payload);
    }
    out.push('}');
    Ok(out)
}

/// Checked before it is put into the event, so that an offset counts from where the user began to type.
fn payload(said: Option<&str>) -> Result<Option<String>, Problem> {
    let bytes = match said {
        None => return Ok(None),
        Some("-") => stdin::read("-")?,
        Some(said) => match said.strip_prefix('@') {
            Some(file) => stdin::read(file)?,
            None => said.as_bytes().to_vec(),
        },
    };
    let hint = match bytes.trim_ascii_start().first() {
        Some(b'{') => "a payload is JSON: keys and text need double quotes, e.g. '{\"a\": \"b\"}'",
        _ => "a payload is JSON: text needs quotes of its own, e.g. '\"hello\"'",
    };
    // What says by itself how to mend it is JSON that went wrong, not text.
    let told = |problem: Problem| if problem.hint_text().is_some() { problem } else { problem.hint(hint) };
    model::json::check(&bytes, engine::settings::DEPTH_MAX).map_err(told)?;
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| Problem::new(Code::JsonInvalid, "the payload is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn event(words: &[&str]) -> Result<String, Problem> {
        let args = Line::try_parse_from([&["publish"], words].concat()).unwrap().args;
        event_text(args.topic.as_deref().unwrap(), &args)
    }

    #[test]
    fn an_event_keeps_the_payload_as_it_was_typed() {
        let text = event(&["a.b", r#"{"n": 1.10}"#, "--subject", "item/7", "--priority", "3"]).unwrap();
        assert_eq!(
            text,
            r#"{"topic":"a.b","subject":{"id":"7","kind":"item"},"priority":3,"payload":{"n": 1.10}}"#
        );
        assert_eq!(event(&["a", "-1"]).unwrap(), r#"{"topic":"a","payload":-1}"#);
    }

    #[test]
    fn a_payload_that_is_not_json_is_told_how_to_be() {
        let problem = event(&["a.b", "hello"]).unwrap_err();
        assert_eq!(problem.code(), Code::JsonInvalid);
        assert!(problem.hint_text().unwrap().contains("text needs quotes"));
        let problem = event(&["a.b", "{a: 1}"]).unwrap_err();
        assert!(problem.hint_text().unwrap().contains("keys and text need double quotes"));
    }
}
