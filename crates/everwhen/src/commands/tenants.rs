//! `everwhen tenants`: who has a ledger of their own in this house.

use clap::Subcommand;
use model::{Code, Problem};
use serde_json::{Value, json};

use super::stdin;
use crate::output::Stop;
use crate::reach::Reach;
use crate::session::Session;

/// Make, list, suspend, resume and remove tenants
///
/// A tenant has a ledger, a state, keys and tokens of its own. `main` is always there; who owns it owns the house.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen tenants create acme
  everwhen tenants list
  everwhen tenants suspend acme
  everwhen tenants rm acme --yes")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Make one; the text of its owner's token is printed this once
    #[command(after_long_help = "Examples:\n  everwhen tenants create acme")]
    Create {
        /// 1 to 63 of a-z, 0-9, _ and -, beginning with a letter or digit
        name: String,
    },
    /// Every tenant
    #[command(after_long_help = "Examples:\n  everwhen tenants list --json")]
    List,
    /// One tenant and what it takes up
    #[command(after_long_help = "Examples:\n  everwhen tenants show acme")]
    Show {
        /// Its name
        name: String,
    },
    /// Close it until it is resumed: nobody reaches it, nothing of it runs
    #[command(after_long_help = "Examples:\n  everwhen tenants suspend acme")]
    Suspend {
        /// Its name
        name: String,
    },
    /// Let it go on where it stood
    #[command(after_long_help = "Examples:\n  everwhen tenants resume acme")]
    Resume {
        /// Its name
        name: String,
    },
    /// Say what it may use; what is left out has no limit of its own
    #[command(
        after_long_help = "Examples:\n  everwhen tenants quota acme --events-per-s 500 --bytes 10000000000"
    )]
    Quota {
        /// Its name
        name: String,
        /// Bytes of its ledger
        #[arg(long, value_name = "N")]
        bytes: Option<u64>,
        /// Events a second, over a second or so
        #[arg(long, value_name = "N")]
        events_per_s: Option<u64>,
        /// Groups
        #[arg(long, value_name = "N")]
        groups: Option<u64>,
        /// Automations
        #[arg(long, value_name = "N")]
        automations: Option<u64>,
        /// From midnight to midnight, UTC
        #[arg(long, value_name = "N")]
        runs_per_day: Option<u64>,
    },
    /// Remove it for ever, with everything in it; asks first when a person types it
    #[command(after_long_help = "Examples:\n  everwhen tenants rm acme --yes")]
    Rm {
        /// Its name
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    let reach = Reach::house(session, matches!(args.what, What::Create { .. })).await?;
    match args.what {
        What::Create { name } => {
            let made = reach.create_tenant(&name).await?;
            session.out.note(&format!("\"{name}\" is made; its owner's token, shown this once:"));
            session.out.result(&made, || made["owner_token"].as_str().unwrap_or_default().to_owned())
        }
        What::List => list(&reach, session).await,
        What::Show { name } => shown(&reach.show_tenant(&name).await?, session),
        What::Suspend { name } => shown(&reach.suspend_tenant(&name).await?, session),
        What::Resume { name } => shown(&reach.resume_tenant(&name).await?, session),
        What::Quota { name, bytes, events_per_s, groups, automations, runs_per_day } => {
            let said = json!({
                "bytes": bytes, "events_per_s": events_per_s, "groups": groups, "automations": automations,
                "runs_per_day": runs_per_day,
            });
            shown(&reach.set_quota(&name, &said).await?, session)
        }
        What::Rm { name, yes } => {
            let what = format!("This removes \"{name}\" for ever, with every event in it.");
            if !yes && !stdin::confirms(&what, &name)? {
                return Err(Problem::new(Code::UsageInvalid, format!("\"{name}\" stays as it is"))
                    .hint("type its name to remove it, or give --yes")
                    .into());
            }
            reach.delete_tenant(&name).await?;
            session.out.result(&json!({"deleted": true}), || format!("\"{name}\" is gone"))
        }
    }
}

async fn list(reach: &Reach, session: &Session) -> Result<(), Stop> {
    for tenant in &reach.tenants().await? {
        match session.out.json {
            true => session.out.line(&tenant.to_string())?,
            false => session.out.line(&one_line(tenant))?,
        }
    }
    session.out.flush()
}

fn shown(tenant: &Value, session: &Session) -> Result<(), Stop> {
    session.out.result(tenant, || [vec![one_line(tenant)], used(tenant)].concat().join("\n"))
}

/// A line for each thing that is counted or limited.
fn used(tenant: &Value) -> Vec<String> {
    let names = [
        ("bytes", "bytes"),
        ("events_per_s", "events_per_s"),
        ("groups", "groups"),
        ("automations", "automations"),
        ("runs_per_day", "runs_today"),
    ];
    let line = |(quota, usage): (&str, &str)| {
        let (limit, used) = (&tenant["quota"][quota], &tenant["usage"][usage]);
        let used = used.as_u64().map_or("-".to_owned(), |used| used.to_string());
        let limit = limit.as_u64().map_or("no limit".to_owned(), |limit| format!("of {limit}"));
        format!("  {quota:<14}  {used:>12}  {limit}")
    };
    if tenant["quota"].is_null() { Vec::new() } else { names.map(line).to_vec() }
}

fn one_line(tenant: &Value) -> String {
    let text = |name: &str| tenant[name].as_str().unwrap_or_default();
    let state = match text("suspended_at") {
        "" => "open to its tokens".to_owned(),
        at => format!("suspended {at}"),
    };
    let bytes = tenant["bytes"].as_u64().map_or(String::new(), |bytes| format!("  {bytes} bytes"));
    format!("{:<20}  {state}{bytes}", text("name"))
}
