//! `/ui/groups`: how far each group is, and what it gave up on.

use axum::extract::Path;
use axum::response::Response;
use hyper::StatusCode;
use serde_json::Value;

use super::html::{Head, facts, instant, json, link, list, page, plain, state, table, to_group, word};
use super::{Shown, Visit, said};
use crate::groups as door;

fn standing(group: &Value) -> String {
    if group["halted_on"].is_u64() {
        return format!("{} on {}", state("paused"), plain(&group["halted_on"]));
    }
    state(if group["paused"].as_bool() == Some(true) { "paused" } else { "on" })
}

pub async fn groups(visit: Visit) -> Response {
    visit.frame().around(every(visit).await)
}

async fn every(visit: Visit) -> Shown {
    let found = said(door::list(visit.asking("")?).await).await?;
    let row = |group: &Value| {
        let columns = ["pattern", "lag", "inflight", "dead_letters", "floor"];
        let mut row = vec![to_group(&group["name"]), standing(group)];
        row.extend(columns.iter().map(|column| plain(&group[*column])));
        row
    };
    let rows: Vec<Vec<String>> = list(&found["groups"]).iter().map(row).collect();
    let columns = ["Group", "State", "Pattern", "Behind", "In flight", "Dead letters", "Floor"];
    let body = table("Groups", &columns, &rows, "There is none. `everwhen groups put` makes one.");
    Ok(page(StatusCode::OK, &Head { title: "Groups", at: "/ui/groups" }, &body))
}

pub async fn group(Path(name): Path<String>, visit: Visit) -> Response {
    visit.frame().around(one(name, visit).await)
}

async fn one(name: String, visit: Visit) -> Shown {
    let given = visit.0.params(&["cursor"])?;
    let asked = given.text("cursor").map(|cursor| format!("cursor={}&", word(cursor))).unwrap_or_default();
    let dead = door::dead_letters(Path(name.clone()), visit.again().asking(&(asked + "limit=50"))?).await;
    let dead = said(dead).await?;
    let group = said(door::get(Path(name.clone()), visit.asking("")?).await).await?;
    let row = |letter: &Value| {
        let at = plain(&letter["position"]);
        vec![
            link(&format!("/ui/events/{at}"), &at),
            plain(&letter["event"]["topic"]),
            plain(&letter["reason"]),
            plain(&letter["attempts"]),
            plain(&letter["error"]),
            instant(&letter["at"]),
        ]
    };
    let rows: Vec<Vec<String>> = list(&dead["dead_letters"]).iter().map(row).collect();
    let next = dead["next"].as_str();
    let more = next.map(|next| link(&format!("/ui/groups/{}?cursor={}", word(&name), word(next)), "More"));
    let columns = ["Event", "Topic", "Reason", "Attempts", "Error", "At"];
    let body = [
        facts(&[
            ("state", standing(&group)),
            ("behind", plain(&group["lag"])),
            ("in flight", plain(&group["inflight"])),
            ("processed", plain(&group["events_processed_total"])),
        ]),
        table("Dead letters", &columns, &rows, "There are no dead letters."),
        format!("<p>{}</p>", more.unwrap_or_default()),
        format!("<h2>Definition and figures</h2>{}", json(&group)),
    ];
    Ok(page(StatusCode::OK, &Head { title: &name, at: "/ui/groups" }, &body.concat()))
}
