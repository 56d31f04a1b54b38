//! `everwhen schema`: the JSON Schema of YAML and JSON definitions, for editors that complete and underline.

use crate::output::Stop;
use crate::session::Session;

/// As checked in at `docs/schema/automation.json`.
pub const AUTOMATION: &str = include_str!("../../../../docs/schema/automation.json");

/// Print the JSON Schema of automations in YAML and JSON
///
/// An editor with a YAML language server completes and checks from it as one types; `everwhen check` checks more.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen schema > automation.schema.json
  # then, at the top of a YAML file:
  # yaml-language-server: $schema=./automation.schema.json")]
pub struct Args {}

pub fn run(_: &Args, session: &Session) -> Result<(), Stop> {
    session.out.line(AUTOMATION.trim_end())?;
    session.out.flush()
}
