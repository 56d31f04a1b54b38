//! `everwhen restore`: a backup becomes a data directory again.

use std::path::PathBuf;

use crate::output::Stop;
use crate::reach::maintain;
use crate::session::Session;

/// Make a data directory out of a backup
///
/// The directory named by --data must not exist or be empty. The backup is verified first and not changed.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen restore --from /backup/2026-01-31 --data .everwhen")]
pub struct Args {
    /// The backup
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let report = maintain::restore(session, &args.from).await?;
    let data = report["data"].as_str().unwrap_or_default().to_owned();
    session.out.result(&report, || format!("restored into \"{data}\""))?;
    session.out.note(
        "the keys of sealed spaces are in no backup: if there are any, copy keys/<tenant>.spaces there before the first start",
    );
    Ok(())
}
