//! `everwhen mcp`: the Model Context Protocol over stdin and stdout, for agents on this machine.

use bytes::Bytes;
use serde_json::Value;

use super::stdin;
use crate::client::Client;
use crate::output::Stop;
use crate::reach::Reach;
use crate::session::Session;

/// Tools for agents over stdin and stdout (Model Context Protocol)
///
/// One JSON-RPC message a line. Works on the data directory, on the server that holds it, or on --server with --token, whose
/// rights the agent then has.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen mcp --data ./.everwhen
  everwhen mcp --server http://127.0.0.1:3837 --token ew_…")]
pub struct Args {}

pub async fn run(_args: Args, session: &Session) -> Result<(), Stop> {
    // Nobody sits at this terminal who would see that a name with a typo was made a directory.
    let reach = Reach::existing(session).await?;
    let host = reach.share().await?;
    let client = match (&reach, &host) {
        (Reach::Remote(client), _) => client,
        (Reach::Local(_), Some(host)) => &Client::new(host.url(), None, &session.tenant()?)?,
        (Reach::Local(_), None) => return Ok(()),
    };
    let mut lines = stdin::lines("-")?;
    while let Some(line) = lines.recv().await {
        if let Some(answer) = answer(client, &line).await {
            session.out.line(&answer.to_string())?;
            session.out.flush()?;
        }
    }
    match host {
        Some(host) => Ok(host.stop().await?),
        None => Ok(()),
    }
}

/// `None` for what has no answer: a blank line, a notification.
async fn answer(client: &Client, line: &Bytes) -> Option<Value> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return None;
    }
    let message: Value = serde_json::from_slice(line).unwrap_or(Value::Null);
    match client.mcp(&message, line.to_vec()).await {
        Ok(answer) => answer,
        Err(problem) => {
            let error = serde_json::json!({"code": -32_603, "message": problem.to_string()});
            let id = message.get("id")?;
            Some(serde_json::json!({"jsonrpc": "2.0", "id": id, "error": error}))
        }
    }
}
