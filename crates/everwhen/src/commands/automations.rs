//! `everwhen automations` and `everwhen waits`: what is declared to act, what it waits for, and the switches.

use clap::Subcommand;
use engine::command::Toggle;
use model::{Code, Problem};
use serde_json::{Value, json};

use super::runs::{answering, asked, due, text};
use super::{entity, stdin};
use crate::output::Stop;
use crate::reach::Reach;
use crate::session::Session;

/// Automations: list, switch on and off, when they run next
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen automations list
  everwhen automations disable page
  everwhen automations next nightly --count 3")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Every automation: on or off, runs in progress
    #[command(after_long_help = "Examples:\n  everwhen automations list --json | jq .name")]
    List,
    /// One automation with its definition
    #[command(after_long_help = "Examples:\n  everwhen automations get page --json | jq .definition")]
    Get {
        /// The automation's name
        name: String,
    },
    /// Take events and instants again
    #[command(after_long_help = "Examples:\n  everwhen automations enable page")]
    Enable {
        /// The automation's name
        name: String,
    },
    /// Take none; runs in progress go on
    #[command(after_long_help = "Examples:\n  everwhen automations disable page")]
    Disable {
        /// The automation's name
        name: String,
    },
    /// Keep what comes until it is resumed
    #[command(after_long_help = "Examples:\n  everwhen automations pause page")]
    Pause {
        /// The automation's name
        name: String,
    },
    /// Go on with what was kept
    #[command(after_long_help = "Examples:\n  everwhen automations resume page")]
    Resume {
        /// The automation's name
        name: String,
    },
    /// Take nothing new, finish what was taken
    #[command(after_long_help = "Examples:\n  everwhen automations drain page")]
    Drain {
        /// The automation's name
        name: String,
    },
    /// Declare one that no workspace manages
    ///
    /// It may name whatever is in force. Workspaces do not touch it.
    #[command(after_long_help = "\
Examples:
  everwhen automations create @page.yaml
  everwhen automations create '{\"automation\": \"page\", \"triggers\": [{\"event\": \"api.down\"}], \"actions\": []}'")]
    Create {
        /// YAML or JSON, @FILE, or - for stdin
        text: String,
    },
    /// Change keys of one that no workspace manages; null takes a key away
    #[command(after_long_help = "\
Examples:
  everwhen automations patch page '{\"mode\": \"queued\", \"max\": 5}'")]
    Patch {
        /// The automation's name
        name: String,
        /// YAML or JSON, @FILE, or - for stdin
        text: String,
    },
    /// Delete one that no workspace manages, and cancel its runs
    #[command(after_long_help = "Examples:\n  everwhen automations rm page --finish")]
    Rm {
        /// The automation's name
        name: String,
        /// Let runs in progress go on to their end
        #[arg(long)]
        finish: bool,
    },
    /// The next instants at which time starts it
    #[command(after_long_help = "Examples:\n  everwhen automations next nightly --count 3")]
    Next {
        /// The automation's name
        name: String,
        /// How many
        #[arg(long, value_name = "N", default_value_t = 5)]
        count: usize,
    },
}

/// What runs wait for: list, and answer questions
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen waits list --kind ask
  everwhen waits answer run_01J8Z3V4K5M6N7P8Q9R0S1T2V3.1 true")]
pub struct WaitsArgs {
    #[command(subcommand)]
    what: WaitsWhat,
}

#[derive(Subcommand)]
enum WaitsWhat {
    /// Open waits, oldest run first
    #[command(after_long_help = "Examples:\n  everwhen waits list --kind ask --json")]
    List {
        /// delay, until, for, ask, effect or call
        #[arg(long, value_name = "KIND", value_parser = ["delay", "until", "for", "ask", "effect", "call"])]
        kind: Option<String>,
    },
    /// Answer a question; the first answer counts
    #[command(after_long_help = "\
Examples:
  everwhen waits answer run_01J8Z3V4K5M6N7P8Q9R0S1T2V3.1 true
  everwhen waits answer run_01J8Z3V4K5M6N7P8Q9R0S1T2V3.1 true --as user:ann")]
    Answer {
        /// The wait's id, as `waits list` shows it
        id: String,
        /// JSON, or text
        value: String,
        /// In whose name, such as user:ann; a server with tokens goes by the token instead
        #[arg(long = "as", value_name = "ACTOR")]
        by: Option<String>,
    },
    /// Try a request again that was out at ten crashes
    #[command(after_long_help = "Examples:\n  everwhen waits redrive run_01J8Z3V4K5M6N7P8Q9R0S1T2V3.1")]
    Redrive {
        /// The wait's id, as `waits list` shows it
        id: String,
    },
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let reach = Reach::existing(session).await?;
    let (name, toggle) = match args.what {
        What::List => return list(&reach, session).await,
        What::Get { name } => {
            let automation = reach.automation(&name).await?;
            return session.out.result(&automation, || words(&automation).join("\n"));
        }
        What::Next { name, count } => {
            let next = reach.next_instants(&name, count).await?;
            let shown = || next.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
            return session.out.result(&json!({ "next": next }), shown);
        }
        What::Enable { name } => (name, Toggle::Enable),
        What::Disable { name } => (name, Toggle::Disable),
        What::Pause { name } => (name, Toggle::Pause),
        What::Resume { name } => (name, Toggle::Resume),
        What::Drain { name } => (name, Toggle::Drain),
        What::Create { text } => {
            let made = reach.create_automation(&document(&text)?).await?;
            return session.out.result(&made, || one_line(&made));
        }
        What::Patch { name, text } => {
            let made = reach.patch_automation(&name, &document(&text)?).await?;
            return session.out.result(&made, || one_line(&made));
        }
        What::Rm { name, finish } => {
            reach.delete_automation(&name, finish).await?;
            return session.out.result(&json!({ "removed": name }), || format!("removed {name}"));
        }
    };
    let automation = reach.toggle(&name, toggle).await?;
    session.out.result(&automation, || one_line(&automation))
}

/// One document of YAML or JSON, given as such, in a file or on stdin.
fn document(given: &str) -> Result<Value, Stop> {
    let text = match given.strip_prefix('@') {
        _ if given == "-" => String::from_utf8_lossy(&stdin::read("-")?).into_owned(),
        Some(file) => String::from_utf8_lossy(&stdin::read(file)?).into_owned(),
        None => given.to_owned(),
    };
    let mut values = lang::declare::read_values("automation", &text).map_err(|finding| {
        Problem::new(Code::YamlInvalid, finding.message.clone()).hint(format!("line {}", finding.line))
    })?;
    match (values.pop(), values.is_empty()) {
        (Some(value @ Value::Object(_)), true) => Ok(value),
        _ => Err(Problem::new(Code::UsageInvalid, "one automation is given at a time, an object").into()),
    }
}

async fn list(reach: &Reach, session: &Session) -> Result<(), Stop> {
    let all = reach.automations().await?;
    for automation in &all {
        match session.out.json {
            true => session.out.line(&automation.to_string())?,
            false => session.out.line(&one_line(automation))?,
        }
    }
    if all.is_empty() {
        session.out.note("none");
    }
    session.out.flush()
}

fn one_line(automation: &Value) -> String {
    let state = match (automation["enabled"] == true, automation["paused"] == true) {
        (false, _) => "off",
        (true, true) => "paused",
        (true, false) => "on",
    };
    let next = automation["next"][0].as_str().map(|next| format!("  next {next}")).unwrap_or_default();
    let (name, live, all) = (text(&automation["name"]), &automation["runs"], &automation["runs_total"]);
    // Who sees a part of the tenant is not told how many there are.
    let runs = if all.is_null() { String::new() } else { format!("  {all} runs, {live} in progress") };
    format!("{state:<6}  {name:<32}{runs}{next}")
}

/// One automation as it stands and as it is declared, a line for each part.
fn words(automation: &Value) -> Vec<String> {
    let definition = &automation["definition"];
    let mut lines = vec![one_line(automation)];
    let said = [
        ("description", "description"),
        ("off because", "reason"),
        ("managed by", "managed_by"),
        ("version", "version"),
    ];
    for (label, key) in said {
        lines.extend(automation[key].as_str().map(|text| format!("  {label}: {text}")));
    }
    for trigger in definition["triggers"].as_array().into_iter().flatten() {
        let Value::Object(mut trigger) = trigger.clone() else { continue };
        let id = trigger.remove("id").map(|id| text(&id)).unwrap_or_default();
        lines.push(format!("  trigger {id}: {}", Value::Object(trigger)));
    }
    for condition in definition["conditions"].as_array().into_iter().flatten() {
        lines.push(format!("  condition: {}", text(condition)));
    }
    if !definition["mode"].is_null() {
        lines.push(format!("  mode: {}", definition["mode"]));
    }
    for step in definition["steps"].as_array().into_iter().flatten() {
        lines.push(format!("  step: {step}"));
    }
    lines
}

pub async fn waits(args: WaitsArgs, session: &Session) -> Result<(), Stop> {
    let reach = Reach::existing(session).await?;
    match args.what {
        WaitsWhat::List { kind } => {
            let wanted = |wait: &Value| kind.as_ref().is_none_or(|kind| wait["kind"] == kind.as_str());
            let mut waits = reach.waits().await?;
            waits.retain(wanted);
            for wait in &waits {
                match session.out.json {
                    true => session.out.line(&wait.to_string())?,
                    false => session.out.line(&waiting(wait, reach.goes_by_token()))?,
                }
            }
            if waits.is_empty() {
                session.out.note("none");
            }
            session.out.flush()
        }
        WaitsWhat::Answer { id, value, by } => {
            let value = entity::json(&value).unwrap_or(Value::String(value));
            reach.answer(&id, value, by.as_deref()).await?;
            session.out.result(&json!({"answered": true}), || "answered".to_owned())
        }
        WaitsWhat::Redrive { id } => {
            reach.redrive_effect(&id).await?;
            session.out.result(&json!({"redriven": true}), || "it will be tried again".to_owned())
        }
    }
}

fn waiting(wait: &Value, goes_by_token: bool) -> String {
    let (id, kind, automation) = (text(&wait["id"]), text(&wait["kind"]), text(&wait["automation"]));
    let first = format!("{id}  {kind:<6}  {automation:<24}  {}{}", due(wait), asked(wait));
    [vec![first], answering(wait, goes_by_token)].concat().join("\n")
}
