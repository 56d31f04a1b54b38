//! `everwhen import`: events from an export, or from seed 002's own files, into this ledger.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::stdin;
use crate::output::Stop;
use crate::reach::Reach;
use crate::session::Session;

mod bus;

/// Store exported events here, with new positions
///
/// Everything but the positions is kept, and causes lead to where their events stand now; a cause that is not in the
/// export becomes the extension "importedcause". An event that is already here is a duplicate and is not stored again: by
/// its key, or without one by its id, topic, time and payload. --from-bus reads the wal/, offsets/ and dlq/ of the older Python bus: events in the order of
/// their times, each consumer as a group that goes on where it stood, with its dead letters; those of a topic without consumers go to the group
/// <topic>__dead_letters. A last line that was torn is left out and counted; a consumer whose offset cannot be read begins again. A group that is here already is left as it is.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen import events.ndjson
  everwhen export --data old | everwhen import --data new
  everwhen import --from-bus workspace/.bus")]
pub struct Args {
    /// An export; - is stdin
    #[arg(default_value = "-", conflicts_with = "from_bus")]
    file: String,
    /// Store also what is here already; a key still says that an event is the same
    #[arg(long)]
    again: bool,
    /// The directory with wal/, offsets/ and dlq/
    #[arg(long, value_name = "DIR")]
    from_bus: Option<PathBuf>,
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let answer = match &args.from_bus {
        Some(dir) => {
            let plan = bus::read(dir)?;
            let reach = Reach::or_create(session).await?;
            for note in plan.skipped.iter().chain(&plan.notes) {
                session.out.warn(note);
            }
            let mut answer = reach.import(bus::exported_lines(plan.events)?, args.again, session).await?;
            let (groups, dead_letters) = plan.groups.make(&reach).await?;
            answer["groups"] = json!(groups);
            answer["dead_letters"] = json!(dead_letters);
            answer["skipped_lines"] = json!(plan.skipped.len());
            if !plan.notes.is_empty() {
                answer["notes"] = json!(plan.notes);
            }
            answer
        }
        None => {
            let lines = stdin::lines(&args.file)?;
            Reach::or_create(session).await?.import(lines, args.again, session).await?
        }
    };
    if let Some(unknown) = answer["unknown_fields"].as_array() {
        let names: Vec<&str> = unknown.iter().filter_map(Value::as_str).collect();
        session
            .out
            .warn(&format!("fields that this version does not know were left out: {}", names.join(", ")));
    }
    session.out.result(&answer, || words(&answer))
}

fn words(answer: &Value) -> String {
    let number = |name: &str| answer[name].as_u64().unwrap_or_default();
    let mut text = format!("{} imported, {} duplicates", number("imported"), number("duplicates"));
    if number("erased") > 0 {
        text += &format!(", {} without content left out", number("erased"));
    }
    if number("causes_outside") > 0 {
        text += &format!(", {} with a cause that is not in the export", number("causes_outside"));
    }
    if let Some(groups) = answer["groups"].as_array() {
        text += &format!("\n{} groups: {}", groups.len(), super::show::cell(&answer["groups"]));
    }
    if number("dead_letters") > 0 {
        text += &format!("\n{} dead letters", number("dead_letters"));
    }
    if number("skipped_lines") > 0 {
        text += &format!("\n{} last lines that could not be read were left out", number("skipped_lines"));
    }
    text
}
