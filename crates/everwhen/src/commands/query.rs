//! `everwhen query` and `everwhen mutate`: what is declared, run by name.

use engine::{AsOf, Asking};
use model::{Code, Problem};
use serde_json::{Map, Value};

use super::entity;
use crate::output::Stop;
use crate::reach::Reach;
use crate::session::Session;

/// Run a declared query
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen query systemsByStatus status=down
  everwhen query systemsByStatus '{\"status\": \"down\"}' --json
  everwhen query systemsByStatus status=down --explain
  everwhen query systemsByStatus status=down --as-of 12")]
pub struct QueryArgs {
    /// The query's name
    name: String,
    /// Arguments as name=value (JSON, or text) or one JSON object
    args: Vec<String>,
    /// Show how the rows are found
    #[arg(long)]
    explain: bool,
    /// The rows as they were: a position or an instant
    #[arg(long, value_name = "POS|T")]
    as_of: Option<String>,
    /// Only rows of this space [default: all]
    #[arg(long, value_name = "NAME")]
    space: Option<String>,
    /// Wait until the ledger is at this position
    #[arg(long, value_name = "POS")]
    min_position: Option<u64>,
}

/// Run a declared mutation
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen mutate createSystem id=api owner=ann
  everwhen mutate createSystem '{\"id\": \"api\"}' --json")]
pub struct MutateArgs {
    /// The mutation's name
    name: String,
    /// Arguments as name=value (JSON, or text) or one JSON object
    args: Vec<String>,
    /// The row's space [default: events.default_space]
    #[arg(long, value_name = "NAME")]
    space: Option<String>,
}

pub async fn run(args: QueryArgs, session: &Session) -> Result<(), Stop> {
    let reach = Reach::existing(session).await?;
    reach.wait_for(args.min_position).await?;
    let as_of = args.as_of.as_deref().map(AsOf::parse).transpose()?;
    let query = |given| {
        let (space, as_of) = (args.space.clone(), as_of);
        let asking = Asking { args: given, space, explain: args.explain, as_of, ..Asking::default() };
        reach.run_query(&args.name, asking, args.as_of.as_deref())
    };
    let answer = as_declared(&args.args, query).await?;
    if session.out.json {
        session.out.line(&answer.to_string())?;
        return session.out.flush();
    }
    if let Some(count) = answer.get("count") {
        session.out.line(&count.to_string())?;
    }
    for row in answer["rows"].as_array().into_iter().flatten() {
        session.out.line(&row.to_string())?;
    }
    for step in answer["plan"].as_array().into_iter().flatten() {
        session.out.note(&format!("plan: {}", step.as_str().unwrap_or_default()));
    }
    session.out.flush()
}

pub async fn mutate(args: MutateArgs, session: &Session) -> Result<(), Stop> {
    let reach = Reach::existing(session).await?;
    let mutate = |given| reach.mutate(&args.name, given, args.space.as_deref());
    let written = as_declared(&args.args, mutate).await?;
    entity::shown(session, &written)
}

/// Asks with the arguments as they read best. Where a text is declared and digits were typed, the refusal points at it, and
/// it is asked again with the text: a refused call has changed nothing.
pub async fn as_declared<T, F>(words: &[String], ask: impl Fn(Map<String, Value>) -> F) -> Result<T, Problem>
where
    F: Future<Output = Result<T, Problem>>,
{
    let mut args = arguments(words)?;
    loop {
        let refused = match ask(args.clone()).await {
            Ok(answer) => return Ok(answer),
            Err(problem) => problem,
        };
        let typed = refused.pointer().and_then(|pointer| pointer.strip_prefix("/args/")).and_then(|name| {
            let word = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))?;
            Some((name.to_owned(), Value::from(word)))
        });
        match typed {
            Some((name, text)) if args.get(&name).is_some_and(|given| !given.is_string()) => {
                args.insert(name, text);
            }
            _ => return Err(refused),
        }
    }
}

/// `name=value` where the value is JSON if it reads as JSON and text otherwise; or one object with all of them.
pub fn arguments(words: &[String]) -> Result<Map<String, Value>, Problem> {
    if let [only] = words
        && only.trim_start().starts_with('{')
        && let Value::Object(args) = entity::json(only)?
    {
        return Ok(args);
    }
    let one = |word: &String| {
        let (name, value) = word.split_once('=').ok_or_else(|| {
            Problem::new(Code::UsageInvalid, format!("\"{word}\" is not name=value"))
                .hint("write arguments as name=value, or all of them as one JSON object")
        })?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        Ok((name.to_owned(), value))
    };
    words.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_are_json_where_they_can_be_and_text_otherwise() {
        let words = ["n=1", "on=true", "name=ann", "list=[1]", "eq=a=b"].map(str::to_owned);
        let read = Value::Object(arguments(&words).unwrap());
        assert_eq!(read, json!({"n": 1, "on": true, "name": "ann", "list": [1], "eq": "a=b"}));
        assert!(arguments(&["alone".to_owned()]).is_err());
    }
}
