//! `everwhen entity`: rows of declared concepts, read, written, listed and looked back at.

use clap::Subcommand;
use engine::{Lately, Listing};
use model::{Code, Problem};
use serde_json::Value;

use super::{show, stdin, tail};
use crate::output::Stop;
use crate::reach::Reach;
use crate::reach::entities::{At, How};
use crate::session::Session;

/// Rows sent at once by an import.
const CHUNK: usize = 500;

/// Rows of concepts: get, put, patch, rm, list, history, watch, import
///
/// A concept is named by its id (v1:health:system) or, when only one has it, by its name. Concepts are declared in .ew
/// files and take effect with `everwhen apply`. Every change is an event graph.node.created|updated|deleted.<concept>.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen entity put v1:health:system api '{\"status\": \"ok\"}'
  everwhen entity patch v1:health:system api '{\"status\": \"down\"}'
  everwhen entity get v1:health:system api --as-of 12
  everwhen entity list v1:health:system --filter 'payload.status == \"down\"' --json
  everwhen entity history v1:health:system api
  everwhen entity watch v1:health:system
  everwhen entity import v1:health:system rows.ndjson")]
pub struct Args {
    #[command(subcommand)]
    what: What,
    /// The row's space [default: events.default_space when writing, any when reading]
    #[arg(long, global = true, value_name = "NAME")]
    space: Option<String>,
    /// Read only once the ledger is at this position
    #[arg(long, global = true, value_name = "POS", hide_short_help = true)]
    min_position: Option<u64>,
}

#[derive(Subcommand)]
enum What {
    /// One row, now or as it was
    #[command(after_long_help = "\
Examples:
  everwhen entity get v1:health:system api
  everwhen entity get v1:health:system api --as-of 2026-01-01T00:00:00Z --json
  everwhen entity get v1:health:system api --in-state-since status --transitions status --window 1h")]
    Get {
        /// The concept's id, or its name when only one has it
        concept: String,
        /// The row's id
        id: String,
        /// A position or an instant
        #[arg(long, value_name = "POS|T", conflicts_with_all = ["in_state_since", "transitions"])]
        as_of: Option<String>,
        /// Also since when this field has its value
        #[arg(long, value_name = "FIELD")]
        in_state_since: Option<String>,
        /// Also how often this field got another value within --window
        #[arg(long, value_name = "FIELD", requires = "window")]
        transitions: Option<String>,
        /// How far to look back, such as 1h
        #[arg(long, value_name = "DURATION")]
        window: Option<String>,
    },
    /// The whole row, new or not
    #[command(after_long_help = "\
Examples:
  everwhen entity put v1:health:system api '{\"status\": \"ok\"}'
  everwhen entity put v1:health:system api @api.json")]
    Put {
        /// The concept's id, or its name when only one has it
        concept: String,
        /// The row's id
        id: String,
        /// The fields as JSON, @file, or - for stdin
        fields: String,
        /// Only if the row is at this version
        #[arg(long, value_name = "VERSION")]
        if_match: Option<u64>,
    },
    /// Some fields of a row; null removes one
    #[command(after_long_help = "\
Examples:
  everwhen entity patch v1:health:system api '{\"status\": \"down\", \"note\": null}'
  everwhen entity patch v1:health:system api '{\"status\": \"down\"}' --if-match 12")]
    Patch {
        /// The concept's id, or its name when only one has it
        concept: String,
        /// The row's id
        id: String,
        /// The fields as JSON, @file, or - for stdin
        fields: String,
        /// Only if the row is at this version
        #[arg(long, value_name = "VERSION")]
        if_match: Option<u64>,
    },
    /// Delete a row; its history stays
    #[command(after_long_help = "\
Examples:
  everwhen entity rm v1:health:system api
  everwhen entity rm v1:health:system api --if-match 12")]
    Rm {
        /// The concept's id, or its name when only one has it
        concept: String,
        /// The row's id
        id: String,
        /// Only if the row is at this version
        #[arg(long, value_name = "VERSION")]
        if_match: Option<u64>,
    },
    /// All rows of a concept, or those that a filter wants
    #[command(after_long_help = "\
Examples:
  everwhen entity list v1:health:system
  everwhen entity list v1:health:system --filter 'payload.status == \"down\"' --limit 10 --json")]
    List {
        /// The concept's id, or its name when only one has it
        concept: String,
        /// An expression over payload.<field>, id, space, createdAt …
        #[arg(long, value_name = "EXPR")]
        filter: Option<String>,
        /// At most so many rows [default: all]
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
    },
    /// Every change of a row, oldest first
    #[command(after_long_help = "\
Examples:
  everwhen entity history v1:health:system api --json")]
    History {
        /// The concept's id, or its name when only one has it
        concept: String,
        /// The row's id
        id: String,
    },
    /// Changes as they happen
    #[command(after_long_help = "\
Examples:
  everwhen entity watch v1:health:system
  everwhen entity watch v1:health:system api --json")]
    Watch {
        /// The concept's id, or its name when only one has it
        concept: String,
        /// Only this row
        id: Option<String>,
    },
    /// Rows from NDJSON: {"id": …, field: …} per line, each written whole
    #[command(after_long_help = "\
Examples:
  everwhen entity import v1:health:system rows.ndjson")]
    Import {
        /// The concept's id, or its name when only one has it
        concept: String,
        /// A file, or - for stdin
        #[arg(default_value = "-")]
        file: String,
    },
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let space = args.space.as_deref();
    if let What::Watch { concept, id } = args.what {
        return tail::changes(&concept, id.as_deref(), args.space, session).await;
    }
    let reach = Reach::existing(session).await?;
    reach.wait_for(args.min_position).await?;
    match args.what {
        What::Get { concept, id, as_of, in_state_since, transitions, window } => {
            let at = At { concept: &concept, id: &id, space, if_match: None };
            let lately = Lately { in_state_since, transitions, window };
            shown(session, &reach.entity(&at, as_of.as_deref(), &lately).await?)
        }
        What::Put { concept, id, fields, if_match } => {
            let at = At { concept: &concept, id: &id, space, if_match };
            shown(session, &reach.write_entity(&at, How::Put, &json(&fields)?).await?)
        }
        What::Patch { concept, id, fields, if_match } => {
            let at = At { concept: &concept, id: &id, space, if_match };
            shown(session, &reach.write_entity(&at, How::Patch, &json(&fields)?).await?)
        }
        What::Rm { concept, id, if_match } => {
            reach.delete_entity(&At { concept: &concept, id: &id, space, if_match }).await?;
            session.out.note(&format!("deleted {id}"));
            Ok(())
        }
        What::List { concept, filter, limit } => {
            let listing = Listing { space: args.space.clone(), filter, limit: 1_000, cursor: None };
            list(&reach, &concept, listing, limit, session).await
        }
        What::History { concept, id } => {
            history(&reach, &At { concept: &concept, id: &id, space, if_match: None }, session).await
        }
        What::Import { concept, file } => import(&reach, &concept, space, &file, session).await,
        What::Watch { .. } => Ok(()),
    }
}

/// JSON as an argument, `@file`, or `-` for stdin.
pub fn json(text: &str) -> Result<Value, Problem> {
    let bytes = match text.strip_prefix('@') {
        Some(file) => stdin::read(file)?,
        None if text == "-" => stdin::read("-")?,
        None => text.as_bytes().to_vec(),
    };
    model::json::check(&bytes, engine::settings::DEPTH_MAX)?;
    serde_json::from_slice(&bytes).map_err(|err| Problem::new(Code::JsonInvalid, err.to_string()))
}

/// A row: the document, or a line of what it is and one per field.
pub fn shown(session: &Session, row: &Value) -> Result<(), Stop> {
    session.out.result(row, || {
        let unchanged = if row["changed"] == false { " (unchanged)" } else { "" };
        let mut lines = vec![format!(
            "{} {} in {} at version {}{unchanged}",
            show::cell(&row["concept"]),
            show::cell(&row["id"]),
            show::cell(&row["space"]),
            row["version"]
        )];
        let fields = row["fields"].as_object().into_iter().flatten();
        lines.extend(fields.map(|(name, value)| format!("  {name}: {}", show::cell(value))));
        let lately = ["in_state_since", "transitions"].into_iter().filter(|name| !row[*name].is_null());
        lines.extend(lately.map(|name| format!("{name}: {}", show::cell(&row[name]))));
        lines.join("\n")
    })
}

async fn list(
    reach: &Reach,
    concept: &str,
    mut listing: Listing,
    limit: Option<usize>,
    session: &Session,
) -> Result<(), Stop> {
    let mut left = limit.unwrap_or(usize::MAX);
    loop {
        listing.limit = left.clamp(1, 1_000);
        let (rows, next) = reach.entities(concept, &listing).await?;
        for row in rows.iter().take(left) {
            session.out.line(&match session.out.json {
                true => row.to_string(),
                false => format!("{}\t{}\t{}", show::cell(&row["id"]), row["version"], row["fields"]),
            })?;
        }
        left = left.saturating_sub(rows.len());
        listing.cursor = next;
        if left == 0 || listing.cursor.is_none() {
            return session.out.flush();
        }
    }
}

async fn history(reach: &Reach, at: &At<'_>, session: &Session) -> Result<(), Stop> {
    let mut cursor = None;
    loop {
        let (changes, next) = reach.entity_history(at, cursor).await?;
        for change in changes {
            session.out.line(&match session.out.json {
                true => change.to_string(),
                false => format!(
                    "{} {} {} by {} {}",
                    change["position"],
                    show::cell(&change["time"]),
                    show::cell(&change["kind"]),
                    show::cell(&change["actor"]),
                    change["delta"]
                ),
            })?;
        }
        cursor = next;
        if cursor.is_none() {
            return session.out.flush();
        }
    }
}

/// Every line by itself; the ones refused are said with their number, and the command ends with 4.
async fn import(
    reach: &Reach,
    concept: &str,
    space: Option<&str>,
    file: &str,
    session: &Session,
) -> Result<(), Stop> {
    let mut lines = stdin::lines(file)?;
    let (mut tally, bar) = (Tally::default(), session.out.progress("import", 0));
    let (mut number, mut chunk) = (0u64, Vec::new());
    loop {
        let line = lines.recv().await;
        let ended = line.is_none();
        if let Some(line) = line {
            number += 1;
            let text = String::from_utf8_lossy(&line).trim().to_owned();
            match json(&format!("{text} ")) {
                _ if text.is_empty() => {}
                Ok(value) => chunk.push((number, value)),
                Err(problem) => tally.refuse(number, &problem, session),
            }
        }
        if chunk.len() >= CHUNK || ended {
            let (numbers, rows): (Vec<u64>, Vec<Value>) = std::mem::take(&mut chunk).into_iter().unzip();
            let answers = reach.import_entities(concept, space, rows).await?;
            numbers.iter().zip(answers).for_each(|(number, answer)| tally.count(*number, answer, session));
            bar.set_position(tally.imported + tally.unchanged + tally.refused);
        }
        if ended {
            break;
        }
    }
    bar.finish_and_clear();
    let Tally { imported, unchanged, refused } = tally;
    let answer = serde_json::json!({ "imported": imported, "unchanged": unchanged, "refused": refused });
    session
        .out
        .result(&answer, || format!("{imported} imported, {unchanged} unchanged, {refused} refused"))?;
    if refused > 0 { Err(Stop::Code(4)) } else { Ok(()) }
}

/// What became of the lines of an import.
#[derive(Default)]
struct Tally {
    imported: u64,
    unchanged: u64,
    refused: u64,
}

impl Tally {
    fn count(&mut self, number: u64, answer: Result<Value, Problem>, session: &Session) {
        match answer {
            Ok(row) if row["changed"] == false => self.unchanged += 1,
            Ok(_) => self.imported += 1,
            Err(problem) => self.refuse(number, &problem, session),
        }
    }

    fn refuse(&mut self, number: u64, problem: &Problem, session: &Session) {
        self.refused += 1;
        session.out.say(&format!("line {number}: {}", problem.detail()));
    }
}
