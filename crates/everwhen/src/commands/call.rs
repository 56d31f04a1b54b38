//! `everwhen call`: logic, called from outside a run.

use crate::output::Stop;
use crate::reach::Reach;
use crate::session::Session;

/// Call logic and print what it answers
///
/// What it writes is one commit; when it fails, nothing of it stands.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen call closeOrder id=7 reason=\"out of stock\"
  everwhen call closeOrder '{\"id\": \"7\"}'")]
pub struct Args {
    /// The logic's name
    name: String,
    /// Arguments as NAME=VALUE (the value is JSON, or text), or one JSON object
    args: Vec<String>,
    /// Work in this space [default: see all of them]
    #[arg(long, value_name = "NAME")]
    space: Option<String>,
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let reach = Reach::existing(session).await?;
    let call = |given| reach.call(&args.name, given, args.space.as_deref());
    let output = super::query::as_declared(&args.args, call).await?;
    session.out.result(&output, || output.as_str().map_or_else(|| output.to_string(), str::to_owned))
}
