//! `GET /v1/runs/stream`, `GET /v1/decisions/stream`: runs and decisions as they change, as server-sent events, without a gap.
//!
//! ```text
//!   event: ready      data: {"position":41}
//!   id: 43            event: run        data: {"id":"run_…","status":"running",…}
//! ```
//! The id is the position of the record that made the change. Several changes by one record share it, and only the last
//! carries it: a reader that was cut off between them sees them all again.

use std::fmt::Write;

use engine::Seen;
use engine::tenant::{Change, Changes, Changing, Chosen};
use model::Problem;

use super::{after, has_room, leave, next, problem_frame, ready, streamed};
use crate::caller::Call;
use crate::pipe::{Feed, pipe};
use crate::problem::Answer;
use crate::socket::Cut;
use crate::{Doors, aside, runs};

pub async fn runs(call: Call) -> Answer {
    let params = call.read_params(&["automation", "status", "after"]).await?;
    let chosen = Chosen { automation: params.owned("automation"), status: params.owned("status") };
    runs::operate::status(chosen.status.as_deref())?;
    let after = after(&call, &params)?;
    stream(call, Changing::Runs, chosen, after).await
}

pub async fn decisions(call: Call) -> Answer {
    let params = call.read_params(&["automation", "outcome", "after"]).await?;
    let chosen = Chosen { automation: params.owned("automation"), status: params.owned("outcome") };
    runs::outcome(chosen.status.as_deref())?;
    let after = after(&call, &params)?;
    stream(call, Changing::Decisions, chosen, after).await
}

async fn stream(call: Call, of: Changing, chosen: Chosen, after: Option<u64>) -> Answer {
    let cut = call.head.extensions.get::<Cut>().cloned();
    let (over, seen) = (call.over(), call.seen());
    let (doors, tenant) = (call.doors, call.tenant);
    let changes = aside::blocking(move || tenant.changes(of, chosen, after)).await?;
    let (feed, outlet) = pipe(super::BUFFER_BYTES_MAX);
    aside::spawn(async move {
        tokio::select! {
            biased;
            problem = over => feed.push(problem_frame(&problem).as_bytes()),
            () = run(changes, (of, seen), &feed, &doors) => {}
        }
        feed.end();
        if let Some(cut) = cut {
            leave(&feed, &cut, &doors).await;
        }
    });
    Ok(streamed(outlet))
}

async fn run(mut changes: Changes, (of, seen): (Changing, Seen), feed: &Feed, doors: &Doors) {
    feed.push(ready(changes.position()).as_bytes());
    while has_room(feed, doors).await {
        let looked = match next(changes.grown(), feed, doors).await {
            Some(Ok(())) => {
                let seen = seen.clone();
                aside::blocking(move || Ok((look(&mut changes, of, &seen)?, changes))).await
            }
            Some(Err(problem)) => Err(problem),
            None => return,
        };
        match looked {
            Ok((told, same)) => {
                feed.push(frames(of, &told).as_bytes());
                changes = same;
            }
            Err(problem) => return feed.push(problem_frame(&problem).as_bytes()),
        }
    }
}

/// What changed and may be seen.
fn look(changes: &mut Changes, of: Changing, seen: &Seen) -> Result<Vec<Change>, Problem> {
    let mut told = changes.look()?;
    told.retain(|change| match of {
        Changing::Runs => seen.sees_run(&change.now),
        Changing::Decisions => seen.sees_decision(&change.now),
    });
    Ok(told)
}

fn frames(of: Changing, told: &[Change]) -> String {
    let name = if of == Changing::Runs { "run" } else { "decision" };
    let mut out = String::with_capacity(512 * told.len());
    for (i, change) in told.iter().enumerate() {
        let last = told.get(i + 1).is_none_or(|next| next.position != change.position);
        if last {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "id: {}", change.position);
        }
        let _ = write!(out, "event: {name}\ndata: {}\n\n", change.now);
    }
    out
}
