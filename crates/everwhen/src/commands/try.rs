//! `everwhen try`: the matcher, JSONPath, filters, expressions, schedules and signatures on the bench, for people and for vectors.

use std::io::{BufRead, IsTerminal};

use clap::Subcommand;
use engine::clock::{Clock, SystemClock};
use lang::jsonpath::JsonPath;
use lang::try_lines::{Kind, try_line};
use lang::{try_cron, try_expr};
use model::{Code, Problem};
use serde_json::{Value, json};
use server::tried;

use super::stdin;
use crate::output::Stop;
use crate::session::Session;

/// Try a pattern, a JSONPath, a filter, an expression, a schedule or a signature without storing anything
///
/// With --jsonl each line of stdin is one case as a JSON object, answered by one line of JSON.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen try topic 'order.*' order.created
  everwhen try jsonpath '$.items[?@.price > 9]' @basket.json
  everwhen try filter 'event.payload.n > 1' '{\"topic\":\"a\",\"payload\":{\"n\":2}}'
  everwhen try expr 'event.payload.n + 1' '{\"event\":{\"payload\":{\"n\":2}}}'
  everwhen try expr
  everwhen try cron '0 7 * * mon-fri' --tz Europe/Berlin
  echo '{\"pattern\":\"a.#\",\"topic\":\"a.b\"}' | everwhen try topic --jsonl")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Does a topic match a pattern?
    #[command(after_long_help = "\
Examples:
  everwhen try topic 'order.*' order.created
  echo '{\"pattern\":\"a.#\",\"topic\":\"a.b\"}' | everwhen try topic --jsonl")]
    Topic(Case),
    /// Which nodes of a document does a JSONPath select?
    #[command(after_long_help = "\
Examples:
  everwhen try jsonpath '$.items[?@.price > 9]' @basket.json
  everwhen try jsonpath '$..n' '{\"a\":{\"n\":1}}'")]
    Jsonpath(Case),
    /// Does a filter hold for an event?
    #[command(after_long_help = "\
Examples:
  everwhen try filter 'event.payload.n > 1' '{\"topic\":\"a\",\"payload\":{\"n\":2}}'")]
    Filter(Case),
    /// What is the value of an expression? Without one: a prompt
    #[command(after_long_help = "\
Examples:
  everwhen try expr '1 + 2'
  everwhen try expr --roots")]
    Expr(ExprCase),
    /// When does a schedule fire next?
    #[command(after_long_help = "\
Examples:
  everwhen try cron '0 7 * * mon-fri' --tz Europe/Berlin
  everwhen try cron '30 2 L * *' --from 2026-01-01T00:00:00Z --count 12
  everwhen try cron '*/15 * * * *' --at 2026-01-01T00:45:00Z")]
    Cron(CronCase),
    /// Is a webhook's delivery signed by who knows the secret?
    #[command(after_long_help = "\
Examples:
  echo '{\"scheme\":\"github\",\"secret\":\"mysecret\",\"headers\":{},\"body\":\"{}\"}' | everwhen try webhook --jsonl")]
    Webhook(WebhookCase),
}

#[derive(clap::Args)]
struct WebhookCase {
    /// Cases as JSON lines on stdin, answers as JSON lines on stdout
    #[arg(long, required_unless_present = "case")]
    jsonl: bool,
    /// One case as JSON: written out, @file, or - for stdin
    #[arg(conflicts_with = "jsonl")]
    case: Option<String>,
}

#[derive(clap::Args)]
struct CronCase {
    /// Cases as JSON lines on stdin, answers as JSON lines on stdout
    #[arg(long, conflicts_with = "expr")]
    jsonl: bool,
    /// Five fields, or six with the second first
    #[arg(required_unless_present = "jsonl")]
    expr: Option<String>,
    /// The zone [default: UTC]
    #[arg(long)]
    tz: Option<String>,
    /// After which instant [default: the time]
    #[arg(long)]
    from: Option<String>,
    /// How many firings
    #[arg(long, default_value_t = 5)]
    count: u64,
    /// Does it fire at this instant?
    #[arg(long, conflicts_with_all = ["from", "count"])]
    at: Option<String>,
}

#[derive(clap::Args)]
struct ExprCase {
    /// Cases as JSON lines on stdin, answers as JSON lines on stdout
    #[arg(long, conflicts_with_all = ["roots", "expr"])]
    jsonl: bool,
    /// The names that expressions may begin with
    #[arg(long, conflicts_with = "expr")]
    roots: bool,
    /// The expression; without it, one on each line of stdin
    expr: Option<String>,
    /// The values of its names as a JSON object: written out, @file, or - for stdin
    with: Option<String>,
    /// The instant that `now` means [default: the time]
    #[arg(long)]
    now: Option<String>,
}

#[derive(clap::Args)]
struct Case {
    /// Cases as JSON lines on stdin, answers as JSON lines on stdout
    #[arg(long)]
    jsonl: bool,
    /// The pattern, the JSONPath or the filter
    #[arg(required_unless_present = "jsonl", conflicts_with = "jsonl")]
    what: Option<String>,
    /// The topic, or JSON: written out, @file, or - for stdin
    #[arg(required_unless_present = "jsonl", conflicts_with = "jsonl")]
    on: Option<String>,
}

pub fn run(args: &Args, session: &Session) -> Result<(), Stop> {
    let (kind, case) = match &args.what {
        What::Topic(case) => (Kind::Topic, case),
        What::Jsonpath(case) => (Kind::Jsonpath, case),
        What::Filter(case) => (Kind::Filter, case),
        What::Expr(case) => return expr(case, session),
        What::Cron(case) => return cron(case, session),
        What::Webhook(case) => return webhook(case, session),
    };
    match (&case.what, &case.on) {
        (Some(what), Some(on)) => one(kind, what, on, session),
        _ => lines(kind, session),
    }
}

fn lines(kind: Kind, session: &Session) -> Result<(), Stop> {
    each_line(session, |line| try_line(kind, line, SystemClock.now()))
}

fn webhook(args: &WebhookCase, session: &Session) -> Result<(), Stop> {
    let Some(case) = &args.case else {
        return each_line(session, |line| tried::line(line, SystemClock.now()).to_string());
    };
    let Value::Object(case) = document(case)? else {
        return Err(Problem::new(Code::JsonInvalid, "a case is a JSON object").into());
    };
    let answer = tried::answer(&case, SystemClock.now())?;
    session.out.result(&answer, || match answer["reason"].as_str() {
        None => "it is believed".to_owned(),
        Some(reason) => format!("it is not believed: {reason}"),
    })?;
    if answer["valid"] == false { Err(Stop::Code(1)) } else { Ok(()) }
}

/// Answers each line of stdin that is not blank, at once.
fn each_line(session: &Session, answer: impl Fn(&str) -> String) -> Result<(), Stop> {
    let mut input = stdin::open("-")?;
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = input.read_until(b'\n', &mut line);
        if read.map_err(|error| Problem::new(Code::UsageInvalid, format!("stdin cannot be read: {error}")))?
            == 0
        {
            return Ok(());
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let text = std::str::from_utf8(&line).map(str::trim);
        session.out.line(&text.map_or_else(|error| not_text(error.valid_up_to()), &answer))?;
        session.out.flush()?;
    }
}

fn not_text(at: usize) -> String {
    let message = format!("the line is not UTF-8 at byte {at}");
    json!({ "error": { "code": Code::JsonInvalid.as_str(), "message": message } }).to_string()
}

/// One case from arguments: prints the answer and exits with 1 when it is "no". What cannot be read is told with its
/// hint, which a line's answer has no place for.
fn one(kind: Kind, what: &str, on: &str, session: &Session) -> Result<(), Stop> {
    match kind {
        Kind::Jsonpath => drop(JsonPath::parse(what)?),
        Kind::Filter => drop(crate::reach::events::parse_filter(what)?),
        Kind::Topic | Kind::Expr | Kind::Cron => {}
    }
    let case = match kind {
        Kind::Topic => json!({ "pattern": what, "topic": on }),
        Kind::Jsonpath => json!({ "selector": what, "document": document(on)? }),
        Kind::Filter => json!({ "filter": crate::reach::events::filter_value(what), "event": document(on)? }),
        Kind::Expr => json!({ "expr": what, "with": document(on)? }),
        Kind::Cron => json!({ "expr": what, "at": on }),
    };
    let answer: Value = serde_json::from_str(&try_line(kind, &case.to_string(), SystemClock.now()))
        .map_err(|error| Problem::new(Code::Internal, format!("the answer is not JSON: {error}")))?;
    if let Some(error) = answer.get("error") {
        return Err(told(error).into());
    }
    session.out.result(&answer, || words(&answer))?;
    if answer["match"] == false { Err(Stop::Code(1)) } else { Ok(()) }
}

fn expr(args: &ExprCase, session: &Session) -> Result<(), Stop> {
    if args.jsonl {
        return lines(Kind::Expr, session);
    }
    if args.roots {
        let names = try_expr::ROOTS;
        return session.out.result(&json!({ "roots": names }), || names.join("\n"));
    }
    let mut case = serde_json::Map::new();
    if let Some(with) = &args.with {
        case.insert("with".into(), document(with)?);
    }
    if let Some(now) = &args.now {
        case.insert("now".into(), now.as_str().into());
    }
    match &args.expr {
        Some(source) => {
            case.insert("expr".into(), source.as_str().into());
            let answer = Value::Object(try_expr::answer(&case, SystemClock.now())?);
            Ok(session.out.result(&answer, || words(&answer))?)
        }
        None => prompt(case, session),
    }
}

/// The next firings, or whether it fires at an instant; one that never does is an error here.
fn cron(args: &CronCase, session: &Session) -> Result<(), Stop> {
    let Some(expr) = &args.expr else { return lines(Kind::Cron, session) };
    let mut case = serde_json::Map::from_iter([("expr".to_owned(), expr.as_str().into())]);
    case.extend(args.tz.as_deref().map(|tz| ("tz".to_owned(), tz.into())));
    try_cron::answer(&case)?;
    match &args.at {
        Some(at) => case.extend([("at".to_owned(), at.as_str().into())]),
        None => {
            let from = args.from.clone().unwrap_or_else(|| SystemClock.now().to_string());
            case.extend([("from".to_owned(), from.into()), ("count".to_owned(), args.count.into())]);
        }
    }
    let answer = Value::Object(try_cron::answer(&case)?);
    session.out.result(&answer, || words(&answer))?;
    if answer["fires"] == false { Err(Stop::Code(1)) } else { Ok(()) }
}

/// An expression on each line; a wrong one is told and the next is asked for.
fn prompt(mut case: serde_json::Map<String, Value>, session: &Session) -> Result<(), Stop> {
    let ask = || {
        if std::io::stdin().is_terminal() {
            eprint!("> ");
        }
    };
    let input = stdin::open("-")?;
    ask();
    for line in input.lines() {
        let line =
            line.map_err(|error| Problem::new(Code::UsageInvalid, format!("stdin cannot be read: {error}")))?;
        if !line.trim().is_empty() {
            case.insert("expr".into(), line.trim().into());
            match try_expr::answer(&case, SystemClock.now()) {
                Ok(answer) => {
                    let answer = Value::Object(answer);
                    session.out.result(&answer, || words(&answer))?;
                }
                Err(problem) => {
                    eprintln!("error: {}\n{}", problem.detail(), problem.hint_text().unwrap_or_default());
                }
            }
            session.out.flush()?;
        }
        ask();
    }
    Ok(())
}

fn document(said: &str) -> Result<Value, Problem> {
    let bytes = match (said, said.strip_prefix('@')) {
        ("-", _) => stdin::read("-")?,
        (_, Some(file)) => stdin::read(file)?,
        (_, None) => said.as_bytes().to_vec(),
    };
    model::json::check(&bytes, engine::settings::DEPTH_MAX)?;
    serde_json::from_slice(&bytes).map_err(|error| Problem::new(Code::JsonInvalid, error.to_string()))
}

fn told(error: &Value) -> Problem {
    let code =
        Code::ALL.iter().copied().find(|code| error["code"] == code.as_str()).unwrap_or(Code::Internal);
    Problem::new(code, error["message"].as_str().unwrap_or_default())
}

fn words(answer: &Value) -> String {
    if let Some(next) = answer["next"].as_array() {
        return next.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n");
    }
    if let Some(fires) = answer["fires"].as_bool() {
        return if fires { "it fires" } else { "it does not fire" }.to_owned();
    }
    match (&answer["match"], answer["result"].as_array(), answer["result_paths"].as_array()) {
        (Value::Bool(true), ..) => "it matches".to_owned(),
        (Value::Bool(false), ..) => "it does not match".to_owned(),
        (_, Some(values), Some(paths)) => {
            let pair =
                |(value, path): (&Value, &Value)| format!("{} {value}", path.as_str().unwrap_or_default());
            values.iter().zip(paths).map(pair).collect::<Vec<_>>().join("\n")
        }
        _ => match (answer.get("value"), answer["type"].as_str()) {
            (Some(value), Some(kind)) => format!("{value} ({kind})"),
            _ => answer.to_string(),
        },
    }
}
