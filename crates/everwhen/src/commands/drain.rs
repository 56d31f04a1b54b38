//! `everwhen drain`: seed 003's drain with a shell command as the dispatcher, one event after the other.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use model::{Code, Problem};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use crate::output::{Stop, counted};
use crate::reach::Reach;
use crate::reach::groups::{Delivery, Settle};
use crate::session::Session;

/// While a command runs, its event's deadline is moved this often, by three times as much.
const RENEW: Duration = Duration::from_secs(10);
/// How much of a command's stderr is kept: enough for its last line.
const STDERR_KEPT: usize = 64 << 10;

/// Hand each event of a group to a command, or to the automations that subscribe to it, in order
///
/// Without --exec each event starts a run for every subscription that wants it (everwhen subscriptions); it is settled
/// when all of these ended well, and the pass stops where one did not. The command of --exec runs in a shell with the event as JSON on stdin and EVERWHEN_TOPIC, EVERWHEN_POSITION, EVERWHEN_ID,
/// EVERWHEN_GROUP and EVERWHEN_ATTEMPT in its environment. Exit 0 settles the event; anything else fails it, with the
/// last line of its stderr as the reason. A group with on_exhausted = halt stops at the first failure, and the next
/// pass tries that event again; other groups retry by their backoff, with --follow in the same pass.
///
/// Exit 0 when every event that was handed out is settled, 1 when one failed and did not succeed later in this pass.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen groups put sync --pattern 'order.#' --ordering strict --on-exhausted halt
  everwhen drain sync --exec 'jq .payload >> orders.txt'
  everwhen drain workflow_runner")]
pub struct Args {
    /// The group's name
    group: String,
    /// The command, run by sh -c for each event
    #[arg(long, value_name = "CMD")]
    exec: Option<String>,
    /// Stop after so many events
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Wait for more when there is nothing left
    #[arg(long, requires = "exec")]
    follow: bool,
}

/// What a pass did.
#[derive(Default)]
struct Pass {
    processed: u64,
    failed: u64,
    /// Positions that failed and did not succeed since.
    unsettled: BTreeSet<u64>,
    last: Option<u64>,
    halted_on: Option<u64>,
    /// Why it halted there.
    error: Option<String>,
    /// Whether the group itself holds there, or only this pass ended and tries are left.
    halted: bool,
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let reach = Reach::existing(session).await?;
    let group = reach.drain_pass(&args.group).await?;
    if group["paused"] == true {
        return Err(Problem::new(Code::GroupPaused, format!("group \"{}\" is paused", args.group))
            .hint(format!("everwhen groups resume {}", args.group))
            .into());
    }
    if args.exec.is_none() {
        return dispatch(&reach, &args, session).await;
    }
    let host = if args.follow { reach.share().await? } else { None };
    let halts = group["on_exhausted"] == "halt";
    let pass = drain(&reach, &args, halts, session).await;
    if let Some(host) = host {
        host.stop().await?;
    }
    told(&args.group, &pass?, session)
}

/// One pass that starts runs instead of a command.
async fn dispatch(reach: &Reach, args: &Args, session: &Session) -> Result<(), Stop> {
    let drained = reach.dispatch(&args.group, args.limit.unwrap_or(u64::MAX)).await?;
    session.out.result(&drained, || {
        let runs = drained["triggered"].as_array().map_or(0, Vec::len);
        format!("{} processed, {} started", drained["processed"], counted(runs, "run"))
    })?;
    if drained["halted_on_event_id"].is_null() {
        return Ok(());
    }
    let (group, why) =
        (&args.group, drained["halted_because"].as_str().unwrap_or("its runs did not end well"));
    // A server of an earlier version says only which event it is.
    let held = match drained["halted_on_position"].as_u64() {
        Some(position) => {
            format!("group \"{group}\" halted on position {position}: {why}\n{}", next(group, position))
        }
        None => format!("held by event {}; the next drain tries it again", drained["halted_on_event_id"]),
    };
    session.out.note(&held);
    Err(Stop::Code(1))
}

/// What to do about an event that holds its group.
fn next(group: &str, position: u64) -> String {
    format!(
        "the next drain tries it again: mend what failed first (everwhen explain event {position}); \
         to pass it: everwhen groups seek {group} {}",
        position + 1
    )
}

fn told(group: &str, pass: &Pass, session: &Session) -> Result<(), Stop> {
    let answer = json!({
        "processed": pass.processed, "failed": pass.failed, "halted_on": pass.halted_on, "last": pass.last,
        "error": pass.error,
    });
    let answer: Value =
        answer.as_object().into_iter().flatten().filter(|(_, v)| !v.is_null()).map(own).collect();
    session.out.result(&answer, || match pass.failed {
        0 => format!("{} processed", pass.processed),
        failed => format!("{} processed, {failed} failed", pass.processed),
    })?;
    match pass.halted_on {
        None if pass.unsettled.is_empty() => Ok(()),
        None => {
            session.out.note(&format!(
                "{} failed; they are tried again when their backoff is over: run this again, or with --follow; what used \
                 up its retries is in: everwhen dead-letters list {group}",
                pass.unsettled.len()
            ));
            Err(Stop::Code(1))
        }
        Some(position) => {
            let what = if pass.halted { "halted on" } else { "stopped at" };
            session
                .out
                .note(&format!("group \"{group}\" {what} position {position}; {}", next(group, position)));
            Err(Stop::Code(1))
        }
    }
}

fn own((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), value.clone())
}

async fn drain(reach: &Reach, args: &Args, halts: bool, session: &Session) -> Result<Pass, Stop> {
    let mut pass = Pass::default();
    let wait = if args.follow { Duration::from_secs(20) } else { Duration::ZERO };
    while args.limit.is_none_or(|limit| pass.processed + pass.failed < limit) {
        let Some(delivery) = reach.pull(&args.group, 1, wait).await?.pop() else {
            if args.follow {
                continue;
            }
            break;
        };
        let seen = Seen::of(&delivery)?;
        let outcome = work(reach, args, &delivery, &seen, (halts, session)).await?;
        pass.last = Some(seen.position);
        match outcome {
            None => {
                pass.processed += 1;
                pass.unsettled.remove(&seen.position);
            }
            Some(failure) => {
                pass.failed += 1;
                pass.unsettled.insert(seen.position);
                session.out.note(&format!("position {} failed: {}", seen.position, failure.unsaid));
                if halts {
                    (pass.halted_on, pass.error) = (Some(seen.position), Some(failure.reason));
                    pass.halted = reach.group(&args.group).await?["halted_on"] == seen.position;
                    break;
                }
            }
        }
    }
    Ok(pass)
}

/// What the command is told about its event besides the event.
#[derive(Deserialize)]
struct Seen {
    id: String,
    position: u64,
    topic: String,
}

impl Seen {
    fn of(delivery: &Delivery) -> Result<Seen, Problem> {
        serde_json::from_str(delivery.event.get())
            .map_err(|error| Problem::new(Code::Internal, format!("an event is not understood: {error}")))
    }
}

/// Why an event's command failed.
struct Failure {
    /// What the group is told: the last line of its stderr, else how it ended.
    reason: String,
    /// How it ended, without what its stderr has already said on ours.
    unsaid: String,
}

impl Failure {
    fn new(reason: impl Into<String>) -> Failure {
        let reason = reason.into();
        Failure { unsaid: reason.clone(), reason }
    }
}

/// Runs the command on one event and settles it; `Some` says why it failed. A group that halts does so at its first
/// failure, because the next pass is when to try again, not a timer.
async fn work(
    reach: &Reach,
    args: &Args,
    delivery: &Delivery,
    seen: &Seen,
    (halts, session): (bool, &Session),
) -> Result<Option<Failure>, Problem> {
    let tokens = std::slice::from_ref(&delivery.token);
    let child = spawn(args, delivery, seen, session)?;
    let running = run_to_end(child, delivery.event.get());
    tokio::pin!(running);
    let outcome = loop {
        tokio::select! {
            outcome = &mut running => break outcome,
            () = tokio::time::sleep(RENEW) => {
                reach.settle(&args.group, tokens, Settle::Extend { by: RENEW * 3 }).await?;
            }
        }
    };
    let settle = match &outcome {
        None => Settle::Ack { sync: true },
        Some(failure) if halts => Settle::Halt { error: failure.reason.clone() },
        Some(failure) => Settle::Nack { delay: None, error: Some(failure.reason.clone()) },
    };
    let answer = reach.settle(&args.group, tokens, settle).await?;
    match (outcome, answer["done"].as_u64()) {
        (None, Some(0)) => {
            Ok(Some(Failure::new("the command outlived its deadline, so the event will be given again")))
        }
        (outcome, _) => Ok(outcome),
    }
}

fn spawn(args: &Args, delivery: &Delivery, seen: &Seen, session: &Session) -> Result<Child, Problem> {
    // With --json stdout is for our own answer.
    let stdout = if session.out.json { Stdio::from(std::io::stderr()) } else { Stdio::inherit() };
    Command::new("sh")
        .args(["-c", args.exec.as_deref().unwrap_or_default()])
        .env("EVERWHEN_TOPIC", &seen.topic)
        .env("EVERWHEN_POSITION", seen.position.to_string())
        .env("EVERWHEN_ID", &seen.id)
        .env("EVERWHEN_GROUP", &args.group)
        .env("EVERWHEN_ATTEMPT", delivery.attempt.to_string())
        .stdin(Stdio::piped())
        .stdout(stdout)
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| Problem::new(Code::DrainFailed, format!("sh cannot be started: {error}")))
}

/// `None` when the command ended well, else why not. What it wrote to stderr goes on to ours.
async fn run_to_end(mut child: Child, event: &str) -> Option<Failure> {
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A command may end without reading its input; that is its own business.
            let _ = stdin.write_all(event.as_bytes()).await;
            let _ = stdin.write_all(b"\n").await;
        }
    };
    let listen = async {
        let mut kept = Vec::new();
        let mut buffer = [0u8; 4096];
        if let Some(mut stderr) = stderr {
            while let Ok(n @ 1..) = stderr.read(&mut buffer).await {
                let _ = std::io::Write::write_all(&mut std::io::stderr(), &buffer[..n]);
                kept.extend_from_slice(&buffer[..n]);
                kept.drain(..kept.len().saturating_sub(STDERR_KEPT));
            }
        }
        kept
    };
    let (status, (), kept) = tokio::join!(child.wait(), feed, listen);
    match status {
        Ok(status) if status.success() => None,
        Ok(status) => {
            let unsaid = status.to_string();
            Some(Failure { reason: last_line(&kept).unwrap_or_else(|| unsaid.clone()), unsaid })
        }
        Err(error) => Some(Failure::new(error.to_string())),
    }
}

fn last_line(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    text.lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .map(|line| line.chars().take(500).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_last_line_that_says_something() {
        assert_eq!(last_line(b"first\nno such order\n\n  \n").as_deref(), Some("no such order"));
        assert_eq!(last_line(b"\n"), None);
    }
}
