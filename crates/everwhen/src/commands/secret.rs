//! `everwhen secret`: what requests of automations need and nobody else may see.

use clap::Subcommand;
use model::{Code, Problem};
use serde_json::{Value, json};

use super::stdin;
use crate::output::Stop;
use crate::reach::Reach;
use crate::session::Session;

/// Set, list and remove secrets that automations name as secret("name")
///
/// A value is read from stdin or from a file, never from the command line, where everybody could see it. It is kept sealed,
/// used when a request is made, and masked as *** in whatever comes back.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  printf %s \"$PAY_KEY\" | everwhen secret set pay.key
  everwhen secret set tls.key --file key.pem
  everwhen secret list
  everwhen secret rm pay.key")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Set one, or replace its value from the next request on
    #[command(after_long_help = "\
Examples:
  printf %s \"$PAY_KEY\" | everwhen secret set pay.key
  everwhen secret set tls.key --file key.pem")]
    Set {
        /// Up to 64 letters, digits and any of _ - . in between
        name: String,
        /// Where the value is, to its last byte; without it, stdin without its last line break
        #[arg(long, value_name = "FILE")]
        file: Option<String>,
    },
    /// Names and times, never values
    #[command(after_long_help = "Examples:\n  everwhen secret list --json")]
    List,
    /// Remove one; requests that name it fail from then on
    #[command(after_long_help = "Examples:\n  everwhen secret rm pay.key")]
    Rm {
        /// As `list` shows it
        name: String,
    },
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    match args.what {
        What::Set { name, file } => {
            let value = value(file.as_deref())?;
            let secret = Reach::administered(session).await?.put_secret(&name, &value).await?;
            session.out.result(&secret, || format!("{name} is set"))
        }
        What::List => list(&Reach::existing(session).await?, session).await,
        What::Rm { name } => {
            Reach::existing(session).await?.drop_secret(&name).await?;
            session.out.result(&json!({"deleted": true}), || format!("{name} is gone"))
        }
    }
}

/// A secret as it is kept in a file, to its last byte, or piped in.
pub fn value(file: Option<&str>) -> Result<String, Problem> {
    let file = file.filter(|file| *file != "-");
    let bytes = stdin::read(file.unwrap_or("-"))?;
    let text = String::from_utf8(bytes).map_err(|_| {
        Problem::new(Code::SecretInvalid, "the value is not UTF-8").hint("keep bytes as base64 or hex")
    })?;
    Ok(match file {
        None => one_line(text),
        Some(_) => text,
    })
}

/// A secret that is one line, wherever it comes from: nobody signs with the end of a line.
pub fn line(file: Option<&str>) -> Result<String, Problem> {
    value(file).map(one_line)
}

/// Without the line break that a shell's `echo` and an editor end with and nobody means.
fn one_line(text: String) -> String {
    match text.strip_suffix('\n') {
        Some(line) => line.strip_suffix('\r').unwrap_or(line).to_owned(),
        None => text,
    }
}

async fn list(reach: &Reach, session: &Session) -> Result<(), Stop> {
    let secrets = reach.secrets().await?;
    if secrets.is_empty() && !session.out.json {
        session.out.note("none");
    }
    let text = |secret: &Value, name: &str| secret[name].as_str().unwrap_or_default().to_owned();
    for secret in &secrets {
        match session.out.json {
            true => session.out.line(&secret.to_string())?,
            false => {
                session.out.line(&format!("{:<32}  {}", text(secret, "name"), text(secret, "updated_at")))?
            }
        }
    }
    session.out.flush()
}
