//! `everwhen doctor`: is this machine, and this directory, well? One line per question.

use model::{Code, Problem, Timestamp};
use serde_json::{Value, json};

use crate::output::{Stop, columns};
use crate::reach::events::Finding;
use crate::reach::{Reach, maintain};
use crate::session::{Place, Session};

mod disk;

/// Ledgers up to this size are verified on the way; larger ones are left to `everwhen verify`.
const VERIFY_BYTES: u64 = 256 << 20;
/// A group further behind than this is worth a word.
const LAG: u64 = 10_000;

/// Check the machine and the data directory
///
/// Looks at the disk (space, writable, how long a sync takes), the lock, the clock, the tail of each ledger and the
/// groups. Changes nothing unless told to. Exit 1 when something must be mended.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen doctor
  everwhen doctor --json | jq '.checks[] | select(.status != \"ok\")'")]
pub struct Args {
    /// Let schedules that fired ahead of the clock go on from now; instants up to where they were may fire again
    #[arg(long)]
    lower_schedules: bool,
}

/// How one question was answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Ok,
    Warn,
    Fail,
}

impl Status {
    fn word(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Warn => "warn",
            Status::Fail => "fail",
        }
    }
}

struct Check {
    name: &'static str,
    status: Status,
    message: String,
}

fn check(name: &'static str, status: Status, message: impl Into<String>) -> Check {
    Check { name, status, message: message.into() }
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    if args.lower_schedules {
        lower(session).await?;
    }
    let mut checks = Vec::new();
    match session.config() {
        Ok(_) => checks.push(check("config", Status::Ok, "understood")),
        Err(problem) => checks.push(check("config", Status::Fail, problem.detail())),
    }
    if checks[0].status == Status::Ok
        && let Place::Directory(data) = session.place()?
    {
        checks.extend(disk::look(&data));
    }
    if checks.iter().all(|check| check.status != Status::Fail) {
        checks.extend(ledgers(session).await);
        checks.extend(tenant(session).await);
    } else {
        let message = "ledgers, tenant, clock and groups were not looked at: mend the above first";
        checks.push(check("rest", Status::Warn, message));
    }
    told(&checks, session)
}

/// Only in a directory that nobody serves. It is closed again: the checks ask whether somebody holds it, and open it anew.
async fn lower(session: &Session) -> Result<(), Problem> {
    match Reach::existing(session).await? {
        Reach::Local(local) => {
            local.tenant.lower_schedules()?;
            drop(local);
            session.close().await
        }
        Reach::Remote(_) => Err(Problem::new(Code::RequestInvalid, "a server has the directory")
            .hint("stop it, then run this on its machine with --data DIR")),
    }
}

fn told(checks: &[Check], session: &Session) -> Result<(), Stop> {
    let ok = checks.iter().all(|check| check.status != Status::Fail);
    let one = |check: &Check| json!({ "check": check.name, "status": check.status.word(), "message": check.message });
    let report = json!({ "ok": ok, "checks": checks.iter().map(one).collect::<Vec<_>>() });
    session.out.result(&report, || {
        let row = |check: &Check| {
            vec![check.status.word().to_owned(), check.name.to_owned(), check.message.clone()]
        };
        columns(&checks.iter().map(row).collect::<Vec<_>>())
    })?;
    if ok { Ok(()) } else { Err(Stop::Code(1)) }
}

/// Torn tails and damage, where the ledgers are small enough to be read now.
async fn ledgers(session: &Session) -> Vec<Check> {
    let Ok(Place::Directory(data)) = session.place() else { return Vec::new() };
    let bytes = disk::ledger_bytes(&data);
    if bytes > VERIFY_BYTES {
        let message = format!("{} MiB, not read now; everwhen verify does", bytes >> 20);
        return vec![check("ledger", Status::Ok, message)];
    }
    match maintain::verify(session, true).await {
        Ok(report) => report["tenants"].as_array().into_iter().flatten().map(ledger).collect(),
        Err(problem) => vec![check("ledger", Status::Fail, problem.detail())],
    }
}

fn ledger(report: &Value) -> Check {
    let name = report["tenant"].as_str().unwrap_or_default();
    let problems = report["problems"].as_array().map(Vec::as_slice).unwrap_or_default();
    match (report["ok"] == true, problems.first()) {
        (true, None) => {
            check("ledger", Status::Ok, format!("{name}: {} records, chain intact", report["records"]))
        }
        (true, Some(_)) => check(
            "ledger",
            Status::Warn,
            format!("{name}: a torn tail, which the next start cuts and records"),
        ),
        (false, first) => {
            let what = first.and_then(|problem| problem["message"].as_str()).unwrap_or("damaged");
            check("ledger", Status::Fail, format!("{name}: {what}; see everwhen verify and everwhen salvage"))
        }
    }
}

/// What only an open tenant can tell: does it open, is the clock ahead of its last record, how are its groups.
async fn tenant(session: &Session) -> Vec<Check> {
    let reach = match Reach::existing(session).await {
        Ok(reach) => reach,
        Err(problem) => return vec![check("tenant", Status::Fail, problem.detail())],
    };
    let mut checks = match reach.ready().await {
        Ok(ready) if ready["ready"] == true => vec![check("tenant", Status::Ok, "open and ready")],
        Ok(ready) => vec![check("tenant", Status::Fail, format!("not ready: {}", failing(&ready)))],
        Err(problem) => vec![check("tenant", Status::Fail, problem.detail())],
    };
    checks.push(clock(&reach).await.unwrap_or_else(|problem| check("clock", Status::Fail, problem.detail())));
    checks
        .push(armed(&reach).await.unwrap_or_else(|problem| check("timers", Status::Fail, problem.detail())));
    match reach.groups().await {
        Ok(groups) if groups.is_empty() => checks.push(check("groups", Status::Ok, "none")),
        Ok(groups) => {
            for view in groups {
                let name = view["name"].as_str().unwrap_or_default();
                checks.push(group(&reach.group(name).await.unwrap_or_else(|_| view.clone())));
            }
        }
        Err(problem) => checks.push(check("groups", Status::Fail, problem.detail())),
    }
    checks
}

fn failing(ready: &Value) -> String {
    let failing: Vec<&str> =
        ready["failing"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if failing.is_empty() { "it does not say why".to_owned() } else { failing.join("; ") }
}

/// Everything that waits for time will be woken by it. A server proves that with its own verify.
async fn armed(reach: &Reach) -> Result<Check, Problem> {
    let unarmed = match reach {
        Reach::Local(local) => local.tenant.unarmed()?,
        Reach::Remote(client) => {
            let report: Value = client.get("/v1/verify?quick=true").await?;
            let tenants = report["tenants"].as_array().cloned().unwrap_or_default();
            let problems =
                tenants.iter().flat_map(|tenant| tenant["problems"].as_array().into_iter().flatten());
            let state = problems.filter(|problem| problem["kind"] == "state");
            state.filter_map(|problem| problem["message"].as_str().map(str::to_owned)).collect()
        }
    };
    Ok(match unarmed.first() {
        None => check("timers", Status::Ok, "every schedule, wait, dwell and retry is armed"),
        Some(first) => {
            let message = format!("{} are not armed, the first: {first}; restart to arm them", unarmed.len());
            check("timers", Status::Fail, message)
        }
    })
}

async fn clock(reach: &Reach) -> Result<Check, Problem> {
    use engine::clock::{Clock, SystemClock};
    let last = reach.find(&Finding { descending: true, limit: 1, ..Finding::default() }).await?;
    let Some(event) = last.events.first() else {
        return Ok(check("clock", Status::Ok, "no event to compare with"));
    };
    let event: Value = serde_json::from_str(event)
        .map_err(|error| Problem::new(Code::Internal, format!("an event is not JSON: {error}")))?;
    let recorded = Timestamp::parse(event["recorded_at"].as_str().unwrap_or_default())?;
    let ahead = recorded.since(SystemClock.now());
    Ok(match ahead.as_secs() {
        0 => check("clock", Status::Ok, format!("after the last event, recorded at {recorded}")),
        seconds => {
            let message = format!("{seconds} s behind the last event, recorded at {recorded}; set the clock");
            check("clock", Status::Warn, message)
        }
    })
}

fn group(view: &Value) -> Check {
    let name = view["name"].as_str().unwrap_or_default();
    let number = |field: &str| view[field].as_u64().unwrap_or_default();
    let (lag, dead) = (number("lag"), number("dead_letters"));
    let (status, message) = match (&view["halted_on"], view["paused"] == true) {
        (Value::Number(position), _) => (Status::Warn, format!("halted on position {position}")),
        (_, true) => (Status::Warn, format!("paused, {lag} behind")),
        _ if lag > LAG => (Status::Warn, format!("{lag} behind")),
        _ if dead > 0 => (Status::Warn, format!("{dead} dead letters")),
        _ if number("filter_errors") > 0 => {
            let error = view["last_filter_error"]["error"].as_str().unwrap_or("see everwhen groups get");
            (Status::Warn, format!("its filter could not judge {} events: {error}", number("filter_errors")))
        }
        _ => (Status::Ok, format!("{lag} behind")),
    };
    check("group", status, format!("{name}: {message}"))
}
