//! The tools of agents as data: each is a request to a route, with its schemas and what it may do to the world.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::MatchedPath;
use engine::authority::Permission;
use http_body_util::BodyExt;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::service::Service;
use hyper::{Method, Request};
use hyper_util::service::TowerToHyperService;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::Behind;
use crate::{ROUTES, audit};

/// What a call does besides its request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Plain,
    /// The answer has the hash that applying asks for.
    Propose,
    /// Done only if what it would do now has the hash that was confirmed.
    Apply,
}

/// What an agent's host may tell its person before it calls.
#[derive(Clone, Copy)]
struct Hints {
    reads: bool,
    destroys: bool,
    repeats: bool,
}

const READS: Hints = Hints { reads: true, destroys: false, repeats: true };

/// Who asks, and on whose behalf.
const CARRIED: [HeaderName; 4] = [
    AUTHORIZATION,
    HeaderName::from_static("everwhen-tenant"),
    HeaderName::from_static("everwhen-actor"),
    HeaderName::from_static("traceparent"),
];

/// The members of an object, each as it was written.
pub type Members = BTreeMap<String, Box<RawValue>>;

pub struct Tool {
    pub name: &'static str,
    title: &'static str,
    what: &'static str,
    method: &'static str,
    /// Of a route; variables are taken from the arguments.
    path: &'static str,
    shape: Shape,
    hints: Hints,
    /// Names, types and meanings; a name with `!` is required.
    takes: &'static [(&'static str, &'static str, &'static str)],
    /// Fields of the answer that are always there, and their types.
    gives: &'static [(&'static str, &'static str)],
}

const PAGE: (&str, &str, &str) = ("cursor", "string", "`next` of the page before");
const FILES: (&str, &str, &str) = (
    "files!",
    "object",
    "Whole files of declarations, their text by their path, such as {\"page.yaml\": \"automation: page …\"}",
);
const WORKSPACE: (&str, &str, &str) =
    ("workspace", "string", "Whose definitions these are all of; default \"default\"");

pub const TOOLS: &[Tool] = &[
    Tool {
        name: "search_events",
        title: "Search events",
        what: "Events of the ledger, oldest first unless order is desc. While the answer has `next` there are more, whatever the limit: give it as cursor. Topics are words with dots; * is one word, # any number.",
        method: "get",
        path: "/v1/events",
        shape: Shape::Plain,
        hints: READS,
        takes: &[
            ("topic", "string", "A pattern, such as order.* or #"),
            ("filter", "string", "An expression over `event`, such as event.payload.new > 9"),
            ("space", "string", "Only this space"),
            ("subject", "string", "What it is about, KIND/ID"),
            ("since", "string", "RFC 3339, or a position in `after`"),
            ("until", "string", "RFC 3339"),
            ("after", "integer", "Only positions above this"),
            ("before", "integer", "Only positions below this"),
            ("order", "string", "asc or desc"),
            ("limit", "integer", "1 to 1000, default 100"),
            PAGE,
        ],
        gives: &[("events", "array")],
    },
    Tool {
        name: "get_event",
        title: "One event",
        what: "One event by its position or id.",
        method: "get",
        path: "/v1/events/{id}",
        shape: Shape::Plain,
        hints: READS,
        takes: &[("id!", "string", "Position or id")],
        gives: &[("position", "integer"), ("topic", "string")],
    },
    Tool {
        name: "list_runs",
        title: "Runs",
        what: "Runs of automations, newest first, without their steps.",
        method: "get",
        path: "/v1/runs",
        shape: Shape::Plain,
        hints: READS,
        takes: &[
            ("automation", "string", "Only of this automation"),
            ("status", "string", "queued, running, waiting, completed, failed or cancelled"),
            ("since", "string", "RFC 3339"),
            ("limit", "integer", "1 to 1000, default 100"),
            PAGE,
        ],
        gives: &[("runs", "array")],
    },
    Tool {
        name: "get_run",
        title: "One run",
        what: "One run with its steps, outputs, errors and what it waits for.",
        method: "get",
        path: "/v1/runs/{id}",
        shape: Shape::Plain,
        hints: READS,
        takes: &[("id!", "string", "run_…")],
        gives: &[("id", "string"), ("status", "string")],
    },
    Tool {
        name: "explain",
        title: "Why",
        what: "Why an event, an automation or a run did what it did, or did nothing: each gate's decision with the values it saw.",
        method: "get",
        path: "/v1/explain/{what}/{id}",
        shape: Shape::Plain,
        hints: READS,
        takes: &[
            ("what!", "string", "event, automation or run"),
            ("id!", "string", "Position or id of the event, name of the automation, or id of the run"),
        ],
        gives: &[],
    },
    Tool {
        name: "list_automations",
        title: "Automations",
        what: "Every automation: whether it is on, its runs, and when time starts it next.",
        method: "get",
        path: "/v1/automations",
        shape: Shape::Plain,
        hints: READS,
        takes: &[],
        gives: &[("automations", "array")],
    },
    Tool {
        name: "next_runs",
        title: "Next runs",
        what: "The next instants at which time starts an automation.",
        method: "get",
        path: "/v1/automations/{name}/next",
        shape: Shape::Plain,
        hints: READS,
        takes: &[("name!", "string", "Of the automation"), ("count", "integer", "How many, default 5")],
        gives: &[("next", "array")],
    },
    Tool {
        name: "publish_event",
        title: "Publish an event",
        what: "Appends one event durably. Automations may react to it. With a key, a repetition is told from a first.",
        method: "post",
        path: "/v1/events",
        shape: Shape::Plain,
        hints: Hints { reads: false, destroys: false, repeats: false },
        takes: &[
            ("topic!", "string", "Words with dots, such as order.created"),
            ("payload", "", "Any JSON; default {}"),
            ("space", "string", "Default: the server's"),
            ("key", "string", "The same key twice is one event"),
            ("subject", "object", "What it is about: {\"kind\", \"id\"}"),
            ("time", "string", "When it happened, RFC 3339; default now"),
        ],
        gives: &[],
    },
    Tool {
        name: "propose_change",
        title: "Propose a change",
        what: "What applying these files would add, change and remove, checked and not done. Show the plan to a person; its `hash` is what \
               apply_change asks for.",
        method: "post",
        path: "/v1/plan",
        shape: Shape::Propose,
        hints: READS,
        takes: &[FILES, WORKSPACE],
        gives: &[("hash", "string"), ("added", "array"), ("changed", "array"), ("removed", "array")],
    },
    Tool {
        name: "apply_change",
        title: "Apply a change",
        what: "Puts files into force that were proposed before, if what they would do is still what `hash` was given for. What the workspace \
               had and the files do not name is removed. Repeated, it answers as before, with `duplicate`, and does nothing.",
        method: "post",
        path: "/v1/apply",
        shape: Shape::Apply,
        hints: Hints { reads: false, destroys: true, repeats: true },
        takes: &[FILES, WORKSPACE, ("hash!", "string", "Of the plan that a person confirmed")],
        gives: &[("added", "array"), ("changed", "array"), ("removed", "array")],
    },
];

impl Tool {
    /// What its route asks of a token.
    pub fn needs(&self) -> Option<Permission> {
        let route = ROUTES.iter().find(|route| route.path == self.path && route.method == self.method);
        // A tool without a route is nobody's, which a test notices.
        Some(route.and_then(|route| Permission::parse(route.needs)).unwrap_or(Permission::Node))
    }

    pub fn to_json(&self) -> Value {
        let typed = |of: &str, what: &str| {
            let mut schema = json!({ "description": what });
            if !of.is_empty() {
                schema["type"] = of.into();
            }
            schema
        };
        let properties: Map<String, Value> = self
            .takes
            .iter()
            .map(|(name, of, what)| (name.trim_end_matches('!').to_owned(), typed(of, what)))
            .collect();
        let required: Vec<&str> = self.takes.iter().filter_map(|(name, ..)| name.strip_suffix('!')).collect();
        let given: Map<String, Value> =
            self.gives.iter().map(|(name, of)| ((*name).to_owned(), json!({ "type": of }))).collect();
        let always: Vec<&str> = self.gives.iter().map(|(name, _)| *name).collect();
        let Hints { reads, destroys, repeats } = self.hints;
        json!({
            "name": self.name, "title": self.title, "description": self.what,
            "inputSchema": {
                "type": "object", "properties": properties, "required": required, "additionalProperties": false,
            },
            "outputSchema": {"type": "object", "properties": given, "required": always},
            "annotations": {
                "title": self.title, "readOnlyHint": reads, "destructiveHint": destroys, "idempotentHint": repeats,
                "openWorldHint": false,
            },
        })
    }

    /// What the door answers, or its problem.
    pub async fn call(
        &self,
        mut arguments: Members,
        behind: &Behind,
    ) -> Result<Box<RawValue>, Box<RawValue>> {
        if let Some(wrong) = self.wrong(&arguments) {
            return Err(raw(&json!({"detail": wrong})));
        }
        let confirmed = match self.shape {
            Shape::Apply => arguments.remove("hash"),
            _ => None,
        };
        if let Some(confirmed) = &confirmed {
            let plan = value(&send(behind, "post", "/v1/plan", &arguments).await?);
            let hash = hash_of(&arguments, &plan);
            if plain(confirmed) != hash {
                return again(&plain(confirmed), &hash, plan, behind);
            }
        }
        let (path, rest) = self.place(arguments.clone());
        let answer = send(behind, self.method, &path, &rest).await?;
        if let Some(confirmed) = &confirmed {
            let Behind { doors, tenant, .. } = behind;
            doors.keys.keep_applied(tenant, &plain(confirmed), doors.engine.now(), answer.get());
        }
        if self.shape != Shape::Propose {
            return Ok(answer);
        }
        let mut plan = value(&answer);
        plan["hash"] = hash_of(&arguments, &plan).into();
        Ok(raw(&plan))
    }

    /// What is missing or too much.
    fn wrong(&self, arguments: &Members) -> Option<String> {
        let mut required = self.takes.iter().filter_map(|(name, ..)| name.strip_suffix('!'));
        if let Some(missing) = required.find(|name| !arguments.contains_key(*name)) {
            return Some(format!("\"{missing}\" is missing"));
        }
        let known = |name: &str| self.takes.iter().any(|(of, ..)| of.trim_end_matches('!') == name);
        let unknown = arguments.keys().find(|name| !known(name))?;
        Some(format!("there is no argument \"{unknown}\""))
    }

    /// The path with its variables, and the arguments that are left.
    fn place(&self, mut arguments: Members) -> (String, Members) {
        let word = |word: &str, arguments: &mut Members| match word
            .strip_prefix('{')
            .and_then(|word| word.strip_suffix('}'))
        {
            Some(name) => escape(&arguments.remove(name).map(|given| plain(&given)).unwrap_or_default()),
            None => word.to_owned(),
        };
        let words: Vec<String> = self.path.split('/').map(|part| word(part, &mut arguments)).collect();
        (words.join("/"), arguments)
    }
}

/// A hash that is not that of the plan as it is now. If it was given for these very files, and they are in force, this is a
/// repetition, which agents make when an answer was lost: nothing is left to do, and the answer is what it was.
fn again(confirmed: &str, hash: &str, plan: Value, behind: &Behind) -> Result<Box<RawValue>, Box<RawValue>> {
    let nothing_left = ["added", "changed", "removed"]
        .iter()
        .all(|part| plan[*part].as_array().is_none_or(|definitions| definitions.is_empty()));
    if nothing_left
        && confirmed.len() == hash.len()
        && confirmed.get(..FILES_DIGITS) == hash.get(..FILES_DIGITS)
    {
        let first = behind.doors.keys.applied(&behind.tenant, confirmed);
        let mut answer = first.and_then(|first| serde_json::from_slice(&first).ok()).unwrap_or(plan);
        answer["duplicate"] = true.into();
        return Ok(raw(&answer));
    }
    Err(raw(&json!({
        "detail": "what these files would do now is not what this hash was given for", "plan": plan,
        "hint": "propose the change again, and let a person confirm that plan",
    })))
}

/// Asks a door as whoever asked this one; the answer's document, or the problem's.
async fn send(
    behind: &Behind,
    method: &str,
    path: &str,
    arguments: &Members,
) -> Result<Box<RawValue>, Box<RawValue>> {
    let Behind { router, head, .. } = behind;
    let reads = method == "get";
    let query: Vec<String> =
        arguments.iter().map(|(name, value)| format!("{name}={}", escape(&plain(value)))).collect();
    let (uri, body) = match (reads, query.is_empty()) {
        (true, false) => (format!("{path}?{}", query.join("&")), Body::empty()),
        (true, true) => (path.to_owned(), Body::empty()),
        (false, _) => (path.to_owned(), Body::from(object(arguments))),
    };
    let unsent =
        |error: &dyn std::fmt::Display| raw(&json!({"detail": format!("the call cannot be made: {error}")}));
    let mut request = Request::builder()
        .method(if reads { Method::GET } else { Method::POST })
        .uri(uri)
        .body(body)
        .map_err(|error| unsent(&error))?;
    for name in CARRIED {
        if let Some(value) = head.headers.get(&name) {
            request.headers_mut().insert(name, value.clone());
        }
    }
    if !reads {
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    *request.extensions_mut() = head.extensions.clone();
    request.extensions_mut().remove::<MatchedPath>();
    // An act of its own, under the id of the request that it came in.
    let answer = async {
        match TowerToHyperService::new(router.clone()).call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    };
    let response = audit::under_id(audit::request_id(), answer).await;
    let good = response.status().is_success();
    let bytes = response.into_body().collect().await.map_err(|error| unsent(&error))?.to_bytes();
    let document: Box<RawValue> = serde_json::from_slice(&bytes).map_err(|error| unsent(&error))?;
    if good { Ok(document) } else { Err(document) }
}

/// As text again, each value as it was written.
fn object(members: &Members) -> String {
    let members = members.iter().map(|(name, given)| format!("{}:{given}", Value::from(name.as_str())));
    format!("{{{}}}", members.collect::<Vec<String>>().join(","))
}

fn value(written: &RawValue) -> Value {
    serde_json::from_str(written.get()).unwrap_or_default()
}

fn raw(value: &Value) -> Box<RawValue> {
    RawValue::from_string(value.to_string()).expect("a value is written as JSON")
}

/// How much of a hash names the files and their workspace; the rest names what they would do.
const FILES_DIGITS: usize = 32;

/// Names what would be done, by whom, with which texts and to what.
///
/// ```text
///  ├── files, workspace ──┤├── what is added, changed, removed, replaced ──┤
///   32 hexadecimal digits    32 more: after they were applied, another
/// ```
fn hash_of(arguments: &Members, plan: &Value) -> String {
    let argument = |name: &str| arguments.get(name).map(|given| value(given)).unwrap_or_default();
    let half = |named: Value| {
        let hash = model::id::hex(&model::json::canonical_hash([named.to_string().as_str()]));
        hash[..FILES_DIGITS].to_owned()
    };
    let files = half(json!({"files": argument("files"), "workspace": argument("workspace")}));
    let parts = ["added", "changed", "removed", "replaces"];
    let plan: BTreeMap<&str, &Value> = parts.iter().map(|part| (*part, &plan[*part])).collect();
    files + &half(json!(plan))
}

fn plain(written: &RawValue) -> String {
    serde_json::from_str(written.get()).unwrap_or_else(|_| written.get().to_owned())
}

fn escape(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~');
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_is_a_route_and_takes_what_its_path_names() {
        for tool in TOOLS {
            assert_ne!(tool.needs(), Some(Permission::Node), "{} has no route", tool.name);
            for variable in tool.path.split('/').filter_map(|word| word.strip_prefix('{')) {
                let named = format!("{}!", variable.trim_end_matches('}'));
                assert!(tool.takes.iter().any(|(name, ..)| *name == named), "{} lacks {named}", tool.name);
            }
        }
    }
}
