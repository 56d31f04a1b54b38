//! `/ui/runs`, `/ui/waits`, `/ui/automations`: what runs, what waits for what, and why an automation did or did not.

use axum::extract::Path;
use axum::response::Response;
use engine::run::question;
use hyper::StatusCode;
use serde_json::Value;

use super::event::decision;
use super::html::{
    Head, facts, field, instant, json, link, list, page, plain, state, table, text, to_automation, to_run,
    word,
};
use super::{Frame, Shown, Visit, said};
use crate::query::Params;
use crate::runs as door;

const RUNS: Head<'_> = Head { title: "Runs", at: "/ui/runs" };
const FILTERS: [&str; 2] = ["automation", "status"];

pub async fn runs(visit: Visit) -> Response {
    let frame = visit.frame();
    let typed = Params::typed(visit.0.head.uri.query(), &FILTERS);
    frame.around(listed(visit).await.or_else(|failed| Ok(failed.within(&RUNS, &form(&typed)))))
}

fn form(given: &Params) -> String {
    let fields = field("automation", "Automation", given.text("automation").unwrap_or_default(), "")
        + &field("status", "Status", given.text("status").unwrap_or_default(), "failed");
    format!(
        "<form class=\"filters\" role=\"search\">{fields}<button>Show</button> {}</form>",
        link("/ui/runs", "All")
    )
}

async fn listed(visit: Visit) -> Shown {
    let given = visit.0.params(&["automation", "status", "cursor"])?;
    let asked = |cursor: Option<&str>| {
        let named = FILTERS.iter().filter_map(|name| Some((*name, given.text(name)?)));
        let all = named.chain(cursor.map(|cursor| ("cursor", cursor)));
        all.map(|(name, value)| format!("{name}={}&", word(value))).collect::<String>()
    };
    let query = asked(given.text("cursor")) + "limit=50";
    let found = said(door::list(visit.asking(&query)?).await).await?;
    let row = |run: &Value| {
        vec![
            instant(&run["started_at"]),
            to_run(&run["id"]),
            to_automation(&run["automation"]),
            run["status"].as_str().map(state).unwrap_or_default(),
            plain(&run["occurrence"]["kind"]),
            plain(&run["error"]["message"]),
        ]
    };
    let rows: Vec<Vec<String>> = list(&found["runs"]).iter().map(row).collect();
    let columns = ["Started", "Run", "Automation", "Status", "By", "Error"];
    let shown = table("Runs, newest first", &columns, &rows, "There is no run that fits.");
    let older = found["next"].as_str().map(|next| {
        let to = format!("/ui/runs?{}", asked(Some(next)).trim_end_matches('&'));
        link(&to, "Older runs")
    });
    let body = format!("{}{shown}<p>{}</p>", form(&given), older.unwrap_or_default());
    Ok(page(StatusCode::OK, &RUNS, &body))
}

pub async fn run(Path(id): Path<String>, visit: Visit) -> Response {
    visit.frame().around(one(id, visit).await)
}

async fn one(id: String, visit: Visit) -> Shown {
    let why = door::explain(Path(("run".to_owned(), id.clone())), visit.again().asking("")?).await;
    let frame = visit.frame();
    let run = said(door::get(Path(id), visit.asking("")?).await).await?;
    let why = said(why).await.unwrap_or_default();
    let occurrence = &run["occurrence"];
    let event = occurrence["position"].as_u64().filter(|position| *position > 0);
    let body = [
        facts(&[
            ("automation", to_automation(&run["automation"])),
            ("version", plain(&run["version"])),
            ("status", run["status"].as_str().map(state).unwrap_or_default()),
            ("started by", plain(&occurrence["kind"])),
            ("event", event.map(|at| link(&format!("/ui/events/{at}"), &at.to_string())).unwrap_or_default()),
            ("started", instant(&run["started_at"])),
            ("ended", instant(&run["ended_at"])),
            ("attempt", plain(&run["attempt"])),
            ("error", plain(&run["error"]["code"])),
            ("says", plain(&run["error"]["message"])),
        ]),
        steps(&run),
        waiting(("It waits for", "It waits for nothing."), list(&run["waits"]), frame),
        format!("<h2>Output</h2>{}", json(&run["output"])),
        decided(&why),
    ];
    let title = format!("Run of {}", run["automation"].as_str().unwrap_or_default());
    Ok(page(StatusCode::OK, &Head { title: &title, at: "/ui/runs" }, &body.concat()))
}

fn steps(run: &Value) -> String {
    let row = |step: &Value| {
        let output = &step["output"];
        vec![
            format!("<code>{}</code>", plain(&step["path"])),
            plain(&step["kind"]),
            step["status"].as_str().map(state).unwrap_or_default(),
            plain(&step["attempts"]),
            plain(&step["error"]["message"]),
            if output.is_null() { String::new() } else { format!("<code>{}</code>", plain(output)) },
        ]
    };
    let rows: Vec<Vec<String>> = list(&run["steps"]).iter().map(row).collect();
    let columns = ["Step", "Kind", "Status", "Attempts", "Error", "Output"];
    table("Steps", &columns, &rows, "No step has been taken.")
}

fn decided(why: &Value) -> String {
    let decided = &why["decision"];
    let rows = if decided.is_object() { vec![decision(decided)] } else { Vec::new() };
    let columns = ["Automation", "Outcome", "Reason", "Gate", "Run", "Values"];
    table("Why it ran", &columns, &rows, "Its decision is no longer kept.")
}

fn waiting((caption, none): (&str, &str), waits: &[Value], frame: Frame) -> String {
    let row = |wait: &Value| {
        let refs = wait["refs"].as_array().map(|refs| refs.iter().map(plain).collect::<Vec<_>>().join(", "));
        vec![
            plain(&wait["kind"]),
            if wait["run"].is_string() { to_run(&wait["run"]) } else { String::new() },
            refs.unwrap_or_default() + &asked(wait, frame),
            instant(&wait["since"]),
            instant(&wait["due"]),
        ]
    };
    let rows: Vec<Vec<String>> = waits.iter().map(row).collect();
    table(caption, &["Kind", "Run", "For", "Since", "Due"], &rows, none)
}

/// A question, what an answer must be, and the command that gives one.
fn asked(wait: &Value, frame: Frame) -> String {
    if wait.get("question").is_none() {
        return String::new();
    }
    let about = facts(&[
        ("asked", plain(&wait["to"])),
        ("answers", text(&question::answers(wait).join(", "))),
        ("form", text(&question::form(wait))),
        ("if nobody answers", plain(&wait["default"])),
    ]);
    let command = text(&question::command(wait, frame.has_tokens));
    format!("<p>{}</p>{about}<pre>{command}</pre>", plain(&wait["question"]))
}

pub async fn waits(visit: Visit) -> Response {
    visit.frame().around(all_waits(visit).await)
}

async fn all_waits(visit: Visit) -> Shown {
    let frame = visit.frame();
    let found = said(door::waits(visit.asking("")?).await).await?;
    let body = waiting(("What runs wait for", "Nothing waits."), list(&found["waits"]), frame);
    Ok(page(StatusCode::OK, &Head { title: "Waits", at: "/ui/waits" }, &body))
}

pub async fn automations(visit: Visit) -> Response {
    visit.frame().around(every(visit).await)
}

async fn every(visit: Visit) -> Shown {
    let found = said(door::automations(visit.asking("")?).await).await?;
    let row = |automation: &Value| {
        let on = automation["enabled"].as_bool().unwrap_or(true);
        let standing = if automation["paused"].as_bool() == Some(true) {
            "paused"
        } else if on {
            "on"
        } else {
            "off"
        };
        vec![
            to_automation(&automation["name"]),
            state(standing),
            plain(&automation["managed_by"]),
            instant(&automation["next"]),
        ]
    };
    let rows: Vec<Vec<String>> = list(&found["automations"]).iter().map(row).collect();
    let columns = ["Automation", "State", "Managed by", "Next"];
    let body = table("Automations", &columns, &rows, "There is none. `everwhen apply` puts some into force.");
    Ok(page(StatusCode::OK, &Head { title: "Automations", at: "/ui/automations" }, &body))
}

pub async fn automation(Path(name): Path<String>, visit: Visit) -> Response {
    visit.frame().around(explained(name, visit).await)
}

async fn explained(name: String, visit: Visit) -> Shown {
    let found =
        said(door::explain(Path(("automation".to_owned(), name.clone())), visit.asking("")?).await).await?;
    let recent: Vec<Vec<String>> = list(&found["recent"]).iter().map(decision).collect();
    let near = |near: &Value| {
        let at = plain(&near["position"]);
        vec![
            link(&format!("/ui/events/{at}"), &at),
            plain(&near["topic"]),
            plain(&near["gate"]),
            format!("<code>{}</code>", plain(&near["values"])),
        ]
    };
    let nearest: Vec<Vec<String>> = list(&found["nearest"]).iter().map(near).collect();
    let next: String = list(&found["next"]).iter().map(|at| format!("<li>{}</li>", instant(at))).collect();
    let decisions = ["Automation", "Outcome", "Reason", "Gate", "Run", "Values"];
    let body = [
        facts(&[("on", plain(&found["enabled"])), ("outcomes", plain(&found["counts"]))]),
        table("Decisions, newest first", &decisions, &recent, "Nothing has concerned it yet."),
        table(
            "Events that nearly started it",
            &["Event", "Topic", "Stopped at", "Values"],
            &nearest,
            "No near miss.",
        ),
        if next.is_empty() { String::new() } else { format!("<h2>Next</h2><ul>{next}</ul>") },
    ];
    Ok(page(StatusCode::OK, &Head { title: &name, at: "/ui/automations" }, &body.concat()))
}
