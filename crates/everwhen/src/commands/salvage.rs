//! `everwhen salvage`: what is left of a damaged directory, into a new one.

use std::path::PathBuf;

use serde_json::Value;

use crate::output::Stop;
use crate::reach::maintain;
use crate::session::Session;

/// Copy what is sound of a damaged directory into a new one
///
/// Of each tenant's ledger the valid prefix is copied; the damaged directory is not touched.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen salvage --data .everwhen --to .everwhen-salvaged
  everwhen verify --data .everwhen-salvaged")]
pub struct Args {
    /// The new directory; must not exist or be empty
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let report = maintain::salvage(session, &args.to).await?;
    session.out.result(&report, || words(&report, &args.to))
}

fn words(report: &Value, to: &std::path::Path) -> String {
    let tenants = report["tenants"].as_array().map(Vec::as_slice).unwrap_or_default();
    let line = |tenant: &Value| {
        let name = tenant["tenant"].as_str().unwrap_or_default();
        let mut said = format!(
            "{name}: {} records up to position {} are in \"{}\"",
            tenant["records"],
            tenant["last"],
            to.display()
        );
        let ends = "it ends there, and nothing behind came along, because of";
        for (what, text) in [(ends, &tenant["stopped"]), ("not saved", &tenant["lost"])] {
            said.extend(text.as_str().map(|text| format!("\n  {what}: {text}")));
        }
        said
    };
    tenants.iter().map(line).collect::<Vec<_>>().join("\n")
}
