//! `everwhen verify`: every byte of the ledger against its chain, and the derived state against the ledger.

use serde_json::Value;

use crate::output::Stop;
use crate::reach::maintain;
use crate::session::Session;

/// Check the ledger: chain, digests, gaps, and the state derived from it
///
/// All tenants, or the one that --tenant names. Reads only, so it may run beside a server. A torn tail, left by a crash, is no damage: the next start cuts it.
/// Exit 7 when something is wrong.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen verify
  everwhen verify --quick --json | jq .ok")]
pub struct Args {
    /// Do not rebuild the derived state to compare it
    #[arg(long)]
    quick: bool,
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let report = maintain::verify(session, args.quick).await?;
    session.out.result(&report, || words(&report, args.quick))?;
    if report["ok"] == true { Ok(()) } else { Err(Stop::Code(7)) }
}

fn words(report: &Value, quick: bool) -> String {
    let tenants = report["tenants"].as_array().map(Vec::as_slice).unwrap_or_default();
    tenants.iter().map(|report| tenant(report, quick)).collect::<Vec<_>>().join("\n")
}

/// Why the derived state was not compared, if it was not.
fn skipped(report: &Value, quick: bool) -> &'static str {
    match (report["state"].as_str(), quick, report["ok"] == true) {
        (Some("equal" | "differs"), ..) => "",
        (_, true, _) => " (--quick)",
        (_, _, false) => " (there is no sound ledger to compare it with)",
        _ => " (there is none yet: the next start folds it from the ledger)",
    }
}

/// What a later version wrote is not damaged; only this one cannot open it.
fn judgement(report: &Value) -> &'static str {
    let mut problems = report["problems"].as_array().into_iter().flatten();
    match report["ok"] == true {
        true => "ok",
        false if problems.all(|problem| problem["kind"] == "newer") => "NEWER",
        false => "DAMAGED",
    }
}

fn tenant(report: &Value, quick: bool) -> String {
    let number = |name: &str| report[name].as_u64().unwrap_or_default();
    let mut text = format!(
        "{} {}: {} records in {} commits, {} segments, state {}{}",
        judgement(report),
        report["tenant"].as_str().unwrap_or_default(),
        number("records"),
        number("commits"),
        number("segments"),
        report["state"].as_str().unwrap_or("skipped"),
        skipped(report, quick),
    );
    for problem in report["problems"].as_array().into_iter().flatten() {
        let at = |name: &str| problem[name].as_str().unwrap_or_default();
        text += &format!("\n  {} {}:{}: {}", at("kind"), at("file"), problem["offset"], at("message"));
    }
    text
}
