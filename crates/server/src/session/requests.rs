//! What a client of a session may ask for, as JSON, whichever wire it came over.

use engine::authority::Permission;
use engine::{Follow, Settled};
use lang::filter::Filter;
use model::{Code, Problem};
use serde_json::{Map, Value, json};

use super::{CREDITS_MAX, Session, Wire, kinds};
use crate::body::{flag, text};
use crate::groups::deliver::{duration, error, tokens};

/// Longest name of a subscription or of a message.
pub const NAME_BYTES_MAX: usize = 128;
pub const REQUESTS: &str = "subscribe, unsubscribe, consume, credit, ack, nack, extend, reject";

pub fn wrong(pointer: &str, detail: &str) -> Problem {
    Problem::new(Code::RequestInvalid, detail).at(pointer)
}

/// Does one thing that is asked for; what the answer says.
pub async fn request<W: Wire>(
    session: &mut Session<W>,
    payload: Map<String, Value>,
) -> Result<Value, Problem> {
    let mut payload = payload.into_iter();
    let (Some((what, said)), None) = (payload.next(), payload.next()) else {
        return Err(wrong("/payload", "\"payload\" asks for one thing").hint(REQUESTS));
    };
    let Value::Object(said) = said else {
        return Err(wrong(&format!("/payload/{what}"), "what is asked for is an object"));
    };
    let under = format!("/payload/{what}");
    let done = match what.as_str() {
        "subscribe" => return subscribe(session, said).await,
        "unsubscribe" => unsubscribe(session, &said),
        "consume" => consume(session, &said).await,
        "credit" => credit(session, &said),
        "ack" | "nack" | "extend" | "reject" => settle(session, &what, said).await,
        _ => return Err(wrong("/payload", &format!("\"{what}\" cannot be asked for")).hint(REQUESTS)),
    };
    done.map_err(|problem| if problem.pointer().is_some() { problem.within(&under) } else { problem })
}

fn known(said: &Map<String, Value>, names: &[&str]) -> Result<(), Problem> {
    match said.keys().find(|key| !names.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(wrong(
            &format!("/{}", key.replace('~', "~0").replace('/', "~1")),
            &format!("unknown field \"{key}\""),
        )
        .hint(format!("known fields: {}", names.join(", ")))),
    }
}

fn subscription(said: &Map<String, Value>) -> Result<String, Problem> {
    let id = text(said, "subscription_id")?.filter(|id| !id.is_empty() && id.len() <= NAME_BYTES_MAX);
    id.ok_or_else(|| wrong("/subscription_id", "\"subscription_id\" is a text of 1 to 128 bytes"))
}

async fn subscribe<W: Wire>(session: &mut Session<W>, said: Map<String, Value>) -> Result<Value, Problem> {
    let within = |problem: Problem| problem.within("/payload/subscribe");
    known(&said, &["subscription_id", "kind", "filter", "config"]).map_err(within)?;
    let id = subscription(&said).map_err(within)?;
    let filter = text(&said, "filter").map_err(within)?.unwrap_or_default();
    let patterns = kinds::patterns(&said.get("kind").cloned().unwrap_or_default(), &filter)?;
    let shown: Vec<&str> = patterns.iter().map(|pattern| pattern.as_str()).collect();
    let mut ok = json!({"subscription_id": id, "patterns": shown});
    let follow =
        Follow { patterns, ..config(said.get("config")).map_err(|p| p.within("/payload/subscribe/config"))? };
    ok["position"] = session.subscribe(id, follow).await?.into();
    Ok(ok)
}

/// What the seed leaves open: where to begin, one space, an expression.
fn config(said: Option<&Value>) -> Result<Follow, Problem> {
    let said = match said {
        None | Some(Value::Null) => return Ok(Follow::default()),
        Some(Value::Object(said)) => said,
        Some(_) => return Err(wrong("", "\"config\" is an object")),
    };
    known(said, &["after", "space", "filter"])?;
    let after = match said.get("after") {
        None | Some(Value::Null) => None,
        Some(after) => Some(after.as_u64().ok_or_else(|| wrong("/after", "\"after\" is a position"))?),
    };
    let filter = said.get("filter").filter(|filter| !filter.is_null());
    let filter = filter.map(Filter::parse).transpose().map_err(|problem| problem.within("/filter"))?;
    Ok(Follow { space: text(said, "space")?, filter, after, ..Follow::default() })
}

fn unsubscribe<W: Wire>(session: &mut Session<W>, said: &Map<String, Value>) -> Result<Value, Problem> {
    known(said, &["subscription_id"])?;
    let id = subscription(said)?;
    session.unsubscribe(&id)?;
    Ok(json!({ "subscription_id": id }))
}

fn credits(said: &Map<String, Value>, default: usize) -> Result<usize, Problem> {
    let Some(given) = said.get("credits") else { return Ok(default) };
    let read = given.as_u64().filter(|credits| (1..=CREDITS_MAX as u64).contains(credits));
    read.map(|credits| credits as usize)
        .ok_or_else(|| wrong("/credits", &format!("\"credits\" is a whole number from 1 to {CREDITS_MAX}")))
}

async fn consume<W: Wire>(session: &mut Session<W>, said: &Map<String, Value>) -> Result<Value, Problem> {
    known(said, &["subscription_id", "group", "credits"])?;
    let (id, credits) = (subscription(said)?, credits(said, 1)?);
    let group = text(said, "group")?.ok_or_else(|| wrong("/group", "\"group\" names what to consume"))?;
    session.consume(id.clone(), group, credits).await?;
    Ok(json!({"subscription_id": id, "credits": credits}))
}

fn credit<W: Wire>(session: &Session<W>, said: &Map<String, Value>) -> Result<Value, Problem> {
    known(said, &["subscription_id", "credits"])?;
    let id = subscription(said)?;
    Ok(json!({"credits": session.credit(&id, credits(said, 1)?)?, "subscription_id": id}))
}

async fn settle<W: Wire>(
    session: &mut Session<W>,
    what: &str,
    mut said: Map<String, Value>,
) -> Result<Value, Problem> {
    let more: &[&str] = match what {
        "ack" => &["sync"],
        "nack" => &["delay", "error"],
        "extend" => &["by"],
        _ => &["error"],
    };
    known(&said, &[&["subscription_id", "tokens"], more].concat())?;
    session.allow(Permission::GroupConsume).await?;
    let group = session.group_of(&subscription(&said)?)?;
    let tenant = session.tenant.clone();
    let (tokens, others) = session.seen().own_tokens(&group, tokens(&mut said)?)?;
    let Settled { done, mut stale, .. } = match what {
        "ack" => tenant.ack(&group, &tokens, flag(&said, "sync")?).await?,
        "nack" => tenant.nack(&group, &tokens, duration(&said, "delay")?, error(&said)?).await?,
        "extend" => {
            let by = duration(&said, "by")?.ok_or_else(|| wrong("/by", "\"by\" is missing"))?;
            tenant.extend(&group, &tokens, by).await?
        }
        _ => tenant.reject(&group, &tokens, error(&said)?).await?,
    };
    stale.extend(others);
    Ok(json!({"done": done, "stale": stale}))
}
