//! `/`: what was recorded, newest first, with filters; new events appear by themselves.

use axum::response::Response;
use hyper::StatusCode;
use serde_json::Value;

use super::html::{Head, field, instant, link, page, plain, table, text, word};
use super::{Shown, Visit, said};
use crate::query::Params;
use crate::{events, stream as door};

const FILTERS: [&str; 6] = ["topic", "space", "subject", "filter", "since", "until"];
const LIMIT: usize = 50;

pub async fn timeline(visit: Visit) -> Response {
    let frame = visit.frame();
    let typed = Params::typed(visit.0.head.uri.query(), &FILTERS);
    frame.around(shown(visit).await.or_else(|failed| Ok(failed.within(&HEAD, &form(&typed)))))
}

const HEAD: Head<'_> = Head { title: "Events", at: "/" };

async fn shown(visit: Visit) -> Shown {
    let given = visit.0.params(&[&FILTERS[..], &["cursor"]].concat())?;
    let query = format!("{}order=desc&limit={LIMIT}", asked(&given, given.text("cursor")));
    let live = given.text("cursor").is_none();
    let found = said(events::find(visit.asking(&query)?).await).await?;
    let none = Vec::new();
    let rows: Vec<Vec<String>> = found["events"].as_array().unwrap_or(&none).iter().map(row).collect();
    let events = table("Events, newest first", &COLUMNS, &rows, "Nothing was recorded that fits.");
    let older = found["next"].as_str().map(|next| {
        let to = format!("/?{}", asked(&given, Some(next)).trim_end_matches('&'));
        format!("<p>{}</p>", link(&to, "Older events"))
    });
    // What follows needs no position: a reload shows what was missed.
    let follow = if live { live_part(&given) } else { String::new() };
    let body = format!("{}{follow}{events}{}", form(&given), older.unwrap_or_default());
    Ok(page(StatusCode::OK, &HEAD, &body))
}

const COLUMNS: [&str; 6] = ["Recorded", "Position", "Topic", "Subject", "Actor", "Payload"];
/// How much of a payload a row shows.
const GLANCE: usize = 120;

fn row(event: &Value) -> Vec<String> {
    let position = plain(&event["position"]);
    let subject = match &event["subject"] {
        Value::Object(subject) => {
            format!("{}/{}", plain(&subject["kind"]), subject.get("id").map(plain).unwrap_or_default())
        }
        _ => String::new(),
    };
    let payload = event["payload"].to_string();
    let glance: String = payload.chars().take(GLANCE).collect();
    let more = if glance.len() < payload.len() { "…" } else { "" };
    vec![
        instant(&event["recorded_at"]),
        link(&format!("/ui/events/{position}"), &position),
        plain(&event["topic"]),
        subject,
        plain(&event["actor"]),
        format!("<code>{}{more}</code>", text(&glance)),
    ]
}

/// The filters and the cursor, as the page itself takes them.
fn asked(given: &Params, cursor: Option<&str>) -> String {
    let filters = FILTERS.iter().filter_map(|name| Some((*name, given.text(name)?)));
    let all = filters.chain(cursor.map(|cursor| ("cursor", cursor)));
    all.map(|(name, value)| format!("{name}={}&", word(value))).collect()
}

fn form(given: &Params) -> String {
    let hints = ["price.*", "default", "item/10472", "event.payload.new > 9", "2026-11-01T00:00:00Z", ""];
    let labels = ["Topic", "Space", "Subject", "Filter", "Since", "Until"];
    let fields: String = FILTERS
        .iter()
        .zip(labels)
        .zip(hints)
        .map(|((name, label), hint)| field(name, label, given.text(name).unwrap_or_default(), text(hint)))
        .collect();
    format!(
        "<form class=\"filters\" role=\"search\">{fields}<button>Show</button> {}</form>",
        link("/", "All")
    )
}

/// What the script needs to follow; without it the page is as good as it was when it was made.
fn live_part(given: &Params) -> String {
    let of_stream = ["topic", "space", "filter"].iter().filter_map(|name| Some((*name, given.text(name)?)));
    let query: Vec<String> = of_stream.map(|(name, value)| format!("{name}={}", word(value))).collect();
    let narrowed = ["subject", "until"].iter().any(|name| given.text(name).is_some());
    if narrowed {
        return String::new();
    }
    let source = text(&format!("/ui/stream?{}", query.join("&")));
    format!(
        "<p id=\"live\" role=\"status\" data-source=\"{source}\"></p><script src=\"/ui/live.js\" defer></script>"
    )
}

/// `GET /ui/stream`: the stream of events for the page, whose browser can send no header of its own.
pub async fn stream(visit: Visit) -> crate::problem::Answer {
    door::stream(visit.0).await
}
