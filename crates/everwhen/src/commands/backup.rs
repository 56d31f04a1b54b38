//! `everwhen backup`: a copy of the directory as of now, while everything goes on.

use std::path::PathBuf;

use serde_json::Value;

use crate::output::Stop;
use crate::reach::Reach;
use crate::session::{Place, Session};

/// Copy the data directory while it is in use
///
/// The copy is complete up to the last position acknowledged when the command began, and verifies.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen backup --to /backup/$(date +%F)
  everwhen restore --from /backup/2026-01-31 --data .everwhen")]
pub struct Args {
    /// The new directory; must not exist or be empty. Of a server elsewhere: a name among its backups
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let far = matches!(session.place()?, Place::Server(_));
    let report = Reach::existing(session).await?.backup(&args.to, far).await?;
    session.out.result(&report, || words(&report, &args.to))
}

fn words(report: &Value, to: &std::path::Path) -> String {
    let tenants = report["tenants"].as_array().map(Vec::as_slice).unwrap_or_default();
    let line = |tenant: &Value| {
        let name = tenant["tenant"].as_str().unwrap_or_default();
        format!("{name}: up to position {} in \"{}\"", tenant["last"], to.display())
    };
    tenants.iter().map(line).collect::<Vec<_>>().join("\n")
}
