//! `everwhen tasks`: what runs wait for a worker to do, and a worker by hand.

use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::entity;
use crate::output::Stop;
use crate::reach::Reach;
use crate::session::Session;

/// Tasks of runs: list them, or do them by hand as a worker would
///
/// A step `task: {kind: print, input: …}` waits for a worker to poll for its kind, and goes on with what the worker says.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen tasks list
  everwhen tasks poll --kind print --wait 20s --json
  everwhen tasks complete TOKEN '{\"pages\": 3}'")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Every open task, and whether a worker has it
    #[command(after_long_help = "Examples:\n  everwhen tasks list --json | jq 'select(.state == \"ready\")'")]
    List,
    /// Take tasks from a server; each is this worker's for 30 s, and as long as it says `heartbeat`
    #[command(after_long_help = "Examples:\n  everwhen tasks poll --kind print --max 10 --wait 20s --json")]
    Poll {
        /// Only tasks of this kind; may be given several times
        #[arg(long = "kind", value_name = "KIND")]
        kinds: Vec<String>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 1)]
        max: u64,
        /// How long to wait for the first, up to 60s
        #[arg(long, value_name = "TIME", default_value = "0s")]
        wait: String,
    },
    /// The worker is still at it
    #[command(after_long_help = "Examples:\n  everwhen tasks heartbeat TOKEN")]
    Heartbeat {
        /// As the poll printed it
        #[arg(value_name = "TOKEN")]
        task: String,
    },
    /// The task is done
    #[command(after_long_help = "Examples:\n  everwhen tasks complete TOKEN '{\"pages\": 3}'")]
    Complete {
        /// As the poll printed it
        #[arg(value_name = "TOKEN")]
        task: String,
        /// The output of the step, as JSON
        #[arg(value_name = "OUTPUT", default_value = "null")]
        output: String,
    },
    /// The task cannot be done; the step's `retry` says what then
    #[command(after_long_help = "Examples:\n  everwhen tasks fail TOKEN 'out of paper' --final")]
    Fail {
        /// As the poll printed it
        #[arg(value_name = "TOKEN")]
        task: String,
        /// Why
        #[arg(value_name = "ERROR")]
        error: Option<String>,
        /// It would end the same way each time
        #[arg(long = "final")]
        is_final: bool,
    },
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let reach = Reach::existing(session).await?;
    match args.what {
        What::List => show(&reach.tasks().await?, session),
        What::Poll { kinds, max, wait } => {
            let mut said = Map::from_iter([("max".to_owned(), max.into()), ("wait".to_owned(), wait.into())]);
            if !kinds.is_empty() {
                said.insert("kinds".to_owned(), json!(kinds));
            }
            let mut taken = reach.tell_tasks("poll", &Value::Object(said)).await?;
            show(&serde_json::from_value::<Vec<Value>>(taken["tasks"].take()).unwrap_or_default(), session)
        }
        What::Heartbeat { task } => {
            let told = reach.tell_tasks("heartbeat", &json!({ "token": task })).await?;
            session
                .out
                .result(&told, || format!("held until {}", told["deadline"].as_str().unwrap_or_default()))
        }
        What::Complete { task, output } => {
            let said = json!({"token": task, "output": entity::json(&output)?});
            let told = reach.tell_tasks("complete", &said).await?;
            session.out.result(&told, || "done".to_owned())
        }
        What::Fail { task, error, is_final } => {
            let mut said = json!({"token": task, "retryable": !is_final});
            if let Some(error) = error {
                said["error"] = error.into();
            }
            let told = reach.tell_tasks("fail", &said).await?;
            session.out.result(&told, || "failed".to_owned())
        }
    }
}

fn show(tasks: &[Value], session: &Session) -> Result<(), Stop> {
    if tasks.is_empty() && !session.out.json {
        session.out.note("none");
    }
    for task in tasks {
        match session.out.json {
            true => session.out.line(&task.to_string())?,
            false => session.out.line(&one_line(task))?,
        }
    }
    session.out.flush()
}

/// A task of a poll has a token, one of a list a state.
fn one_line(task: &Value) -> String {
    let text = |name: &str| task[name].as_str().unwrap_or_default();
    let first = if task["token"].is_string() { text("token") } else { text("state") };
    format!("{first:<12}  {:<16}  {}  {}  {}", text("kind"), text("run"), text("step"), task["input"])
}
